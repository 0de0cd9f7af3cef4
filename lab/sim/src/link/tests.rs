use quicket_wire::EcnCodepoint;

use super::*;
use crate::schedule::When;
use crate::units::{Probability, QueueLength};

const MS: Duration = Duration::from_millis(1);

fn datagram(len: usize, ecn: EcnCodepoint) -> Datagram {
    Datagram {
        src: "10.0.0.1:4000".parse().unwrap(),
        dst: "10.0.0.2:443".parse().unwrap(),
        ecn,
        payload: vec![0; len],
    }
}

fn packet(len: usize) -> Datagram {
    datagram(len, EcnCodepoint::NotEct)
}

fn link(settings: LinkSettings) -> Link {
    Link::new(settings, Schedule::default(), &SimRng::new(1))
}

fn drain(link: &mut Link) -> Vec<(Time, Datagram)> {
    let mut out = Vec::new();
    while let Some(at) = link.next_delivery_time() {
        while let Some(datagram) = link.poll(at) {
            out.push((at, datagram));
        }
    }
    out
}

#[test]
fn default_link_passes_everything_at_once() {
    let mut link = link(LinkSettings::default());
    link.offer(Time::ZERO, packet(100));
    assert_eq!(link.poll(Time::ZERO), Some(packet(100)));
    assert_eq!(link.poll(Time::ZERO), None);
    assert_eq!(link.next_delivery_time(), None);
    assert_eq!((link.stats().delivered, link.stats().delivered_bytes), (1, 128));
}

#[test]
fn packets_take_transmission_and_propagation_time() {
    let rate = Some(10_000_000);
    let mut link = link(LinkSettings { delay: MS.times(15), rate, ..Default::default() });
    // 1,250 bytes on the wire take 1 ms at 10 Mbit/s.
    link.offer(Time::ZERO, packet(1_222));
    link.offer(Time::ZERO, packet(1_222));
    assert_eq!(link.poll(Time::ZERO + MS.times(15)), None);
    let arrivals: Vec<u64> = drain(&mut link).iter().map(|(at, _)| at.as_nanos()).collect();
    assert_eq!(arrivals, [16_000_000, 17_000_000]);
}

#[test]
fn every_drop_has_its_reason_and_its_counter() {
    let queue = Some(QueueLength::Packets(0));
    let cases = [
        (LinkSettings { loss: Probability::ALWAYS, ..Default::default() }, DropReason::Loss),
        (
            LinkSettings { burst_loss: "100%,0%".parse().ok(), ..Default::default() },
            DropReason::BurstLoss,
        ),
        (LinkSettings { drop: PacketList::of(&[2]), ..Default::default() }, DropReason::Listed),
        (LinkSettings { mtu: Some(1_227), ..Default::default() }, DropReason::Mtu),
        (LinkSettings { rate: Some(1_000), queue, ..Default::default() }, DropReason::Queue),
    ];
    for (settings, reason) in cases {
        let mut link = link(settings);
        link.offer(Time::ZERO, packet(1_000));
        assert_eq!(link.offer(Time::ZERO, packet(1_200)), Fate::Dropped(reason));
        assert!(link.stats().dropped() >= 1, "{reason:?}");
        let delivered = drain(&mut link).len() as u64;
        assert_eq!(delivered + link.stats().dropped(), 2, "{reason:?}");
    }
}

#[test]
fn black_hole_swallows_while_it_is_open() {
    let changes = [(When::At(MS.times(10)), LinkChange::Blackhole(MS.times(5)))];
    let settings = LinkSettings { delay: MS, ..Default::default() };
    let mut link = Link::new(settings, Schedule::new(Time::ZERO, changes), &SimRng::new(1));
    let fates: Vec<bool> = [9, 10, 14, 15]
        .map(|ms| matches!(link.offer(Time::ZERO + MS.times(ms), packet(1)), Fate::Passed(_)))
        .into();
    assert_eq!(fates, [true, false, false, true]);
    assert_eq!(link.stats().dropped_by_blackhole, 2);
}

#[test]
fn settings_change_at_their_times() {
    let changes = [
        (When::At(MS.times(10)), LinkChange::Set(Setting::Mtu(Some(1_300)))),
        (When::At(MS.times(20)), LinkChange::Set(Setting::Mtu(None))),
    ];
    let schedule = Schedule::new(Time::ZERO, changes);
    let mut link = Link::new(LinkSettings::default(), schedule, &SimRng::new(1));
    let passed =
        [0, 10, 20].map(|ms| link.offer(Time::ZERO + MS.times(ms), packet(1_400))).map(|fate| {
            match fate {
                Fate::Passed(_) => true,
                Fate::Dropped(reason) => {
                    assert_eq!(reason, DropReason::Mtu);
                    false
                }
            }
        });
    assert_eq!(passed, [true, false, true]);
}

#[test]
fn ect_packets_are_marked_and_others_are_not() {
    let mut link = link(LinkSettings { mark: Probability::ALWAYS, ..Default::default() });
    let fields = [EcnCodepoint::NotEct, EcnCodepoint::Ect0, EcnCodepoint::Ect1];
    for ecn in fields {
        link.offer(Time::ZERO, datagram(10, ecn));
    }
    let arrived: Vec<EcnCodepoint> = drain(&mut link).iter().map(|(_, d)| d.ecn).collect();
    assert_eq!(arrived, [EcnCodepoint::NotEct, EcnCodepoint::Ce, EcnCodepoint::Ce]);
    assert_eq!(link.stats().marked, 2);
}

#[test]
fn long_queues_mark() {
    let settings = LinkSettings {
        rate: Some(1_000_000),
        mark_above: Some(QueueLength::Packets(1)),
        ..Default::default()
    };
    let mut link = link(settings);
    for _ in 0..4 {
        link.offer(Time::ZERO, datagram(1_000, EcnCodepoint::Ect0));
    }
    let arrived: Vec<EcnCodepoint> = drain(&mut link).iter().map(|(_, d)| d.ecn).collect();
    let ect = EcnCodepoint::Ect0;
    assert_eq!(arrived, [ect, ect, EcnCodepoint::Ce, EcnCodepoint::Ce]);
}

#[test]
fn bleaching_and_mangling_rewrite_the_field() {
    for (treatment, expected) in
        [(EcnTreatment::Bleach, EcnCodepoint::NotEct), (EcnTreatment::Mangle, EcnCodepoint::Ce)]
    {
        let mut link = link(LinkSettings { ecn: treatment, ..Default::default() });
        link.offer(Time::ZERO, datagram(10, EcnCodepoint::Ect0));
        assert_eq!(drain(&mut link)[0].1.ecn, expected);
        assert_eq!(link.stats().ecn_rewritten, 1);
    }
}

#[test]
fn duplicates_arrive_twice_and_corruption_changes_bits() {
    let settings = LinkSettings {
        duplicate: Probability::ALWAYS,
        corrupt: Probability::ALWAYS,
        ..Default::default()
    };
    let mut link = link(settings);
    link.offer(Time::ZERO, packet(100));
    let arrived = drain(&mut link);
    assert_eq!(arrived.len(), 2);
    assert_eq!(arrived[0], arrived[1]);
    assert_ne!(arrived[0].1.payload, vec![0; 100]);
    let stats = link.stats();
    assert_eq!((stats.offered, stats.delivered, stats.duplicated, stats.corrupted), (1, 2, 1, 1));
}

#[test]
fn same_seed_gives_the_same_fates_and_impairments_draw_apart() {
    let run = |settings: LinkSettings| {
        let mut link = Link::new(settings, Schedule::default(), &SimRng::new(99));
        let lost = (0..500)
            .filter(|_| link.offer(Time::ZERO, packet(50)) == Fate::Dropped(DropReason::Loss))
            .count();
        (lost, drain(&mut link))
    };
    let lossy = LinkSettings { loss: Probability::percent(5), ..Default::default() };
    assert_eq!(run(lossy.clone()), run(lossy.clone()));
    let corrupting = LinkSettings { corrupt: Probability::percent(50), ..lossy.clone() };
    assert_eq!(run(lossy).0, run(corrupting).0, "the same packets are lost");
}
