use super::*;
use crate::units::{Probability, QueueLength};

#[test]
fn text_sets_both_directions_or_one() {
    let text = "delay=15ms rate=10mbit queue=25 loss=1%; up loss=0%; down mtu=1400";
    let scenario: Scenario = text.parse().unwrap();
    assert_eq!(scenario.up.delay, Duration::from_millis(15));
    assert_eq!(scenario.down.rate, Some(10_000_000));
    assert_eq!(scenario.down.queue, Some(QueueLength::Packets(25)));
    assert_eq!(scenario.up.loss, Probability::NEVER);
    assert_eq!(scenario.down.loss, Probability::percent(1));
    assert_eq!((scenario.up.mtu, scenario.down.mtu), (None, Some(1_400)));
    assert_eq!(scenario.min_rtt(), Duration::from_millis(30));
}

#[test]
fn times_stand_before_directions_and_settings() {
    let text =
        "at 5s mtu=1300 rate=off; every 1s down blackhole=100ms; every 2s from 500ms rebind=port";
    let scenario: Scenario = text.parse().unwrap();
    let printed: Vec<String> = scenario.changes.iter().map(Change::to_string).collect();
    assert_eq!(
        printed,
        [
            "at 5s mtu=1300",
            "at 5s rate=off",
            "every 1s down blackhole=100ms",
            "every 2s from 500ms rebind=port"
        ]
    );
}

#[test]
fn printing_and_parsing_give_the_same_scenario() {
    let texts = [
        "",
        "delay=1ms",
        "up delay=1ms; down delay=2ms jitter=1us",
        "burst-loss=1%,25%,50% drop=1,3-5 corrupt=0.5% reorder=1%,8ms duplicate=2%",
        "mark=10% mark-above=20kB ecn=bleach; up ecn=mangle; at 3s ecn=keep",
        "at 0 blackhole=1s; every 3s from 0 up loss=100%; at 2s drop=off",
    ];
    let all = texts.iter().chain(Scenario::NAMES);
    for text in all {
        let scenario: Scenario = text.parse().unwrap();
        let printed = scenario.to_string();
        assert_eq!(printed.parse::<Scenario>().as_ref(), Ok(&scenario), "{printed}");
    }
}

#[test]
fn named_scenarios_can_be_changed() {
    let base = Scenario::named("simple-p2p").unwrap();
    let changed: Scenario = "simple-p2p; down loss=3%".parse().unwrap();
    assert_eq!(changed.up, base.up);
    assert_eq!(changed.down.rate, base.down.rate);
    assert_eq!(changed.down.loss, Probability::percent(3));
    assert_eq!(Scenario::named("none-such"), None);
    assert!(Scenario::NAMES.iter().all(|name| Scenario::description(name).is_some()));
}

#[test]
fn errors_say_what_to_write() {
    let cases = [
        ("simple", "use one of ideal, simple-p2p"),
        ("delay", "use one of"),
        ("up", "use one of"),
        ("delay=1ms; up", "write at least one `key=value`"),
        ("delay=15", "such as `15ms`"),
        ("speed=3", "is not a setting; use one of blackhole"),
        ("loss=200%", "at most 100%"),
        ("at mtu=1", "is not a time"),
        ("at", "use one of"),
        ("at 5s", "write at least one"),
        ("every 0 loss=1%", "above 0"),
        ("every 1s from", "a time is missing"),
        ("rebind=port", "say when to rebind"),
        ("at 1s up rebind=port", "leave `up` or `down` away"),
        ("at 1s rebind=all", "rebind=address"),
        ("mtu=big", "bytes of an IP packet"),
        ("ecn=drop", "keep, bleach or mangle"),
        ("rate=0bit", "a number above 0"),
        ("up down loss=1%", "neither a direction"),
        ("simple-p2p; dsl", "neither a direction"),
    ];
    for (text, hint) in cases {
        let error = text.parse::<Scenario>().expect_err(text).to_string();
        assert!(error.contains(hint), "{text}: {error}");
    }
}

#[test]
fn changes_reach_the_links_and_the_nat_they_concern() {
    use crate::datagram::Datagram;
    use crate::link::Fate;
    use quicket_wire::EcnCodepoint;

    let scenario: Scenario =
        "at 1s up loss=100%; at 1s down blackhole=1s; at 1s rebind=address".parse().unwrap();
    let rng = SimRng::new(1);
    let (mut up, mut down) = scenario.links(Time::ZERO, &rng);
    let mut nat = scenario.nat(Time::ZERO, 0, &rng);
    let src = "10.0.0.1:1".parse().unwrap();
    let dst = "10.0.0.2:2".parse().unwrap();
    let packet = Datagram { src, dst, ecn: EcnCodepoint::NotEct, payload: vec![0] };
    let passes = |fate| matches!(fate, Fate::Passed(_));
    let outcome = [0, 1, 2].map(|s| {
        let now = Time::ZERO + Duration::from_secs(s);
        (
            passes(up.offer(now, packet.clone())),
            passes(down.offer(now, packet.clone())),
            nat.outbound(now, src) == src,
        )
    });
    assert_eq!(outcome, [(true, true, true), (false, false, false), (false, true, false)]);
}
