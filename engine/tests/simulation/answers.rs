//! A peer that owes data and is silent: is it still there? RFC 9000, Sections 10.1 and 10.3.

use quicket_engine::ConnectionError;
use quicket_engine::time::Duration;
use quicket_sim::app::Workload;
use quicket_sim::sim::{Pair, PairOptions};
use quicket_wire::Dir;

use crate::support::{CLEAN, error_of, establish, ms, ok, pair, secs};

/// A client that has nothing to say while it receives, such as MAX_DATA: its windows are wide.
fn receiver(answer_probe: Duration) -> Pair {
    pair(PairOptions::new(CLEAN).client_transport(move |t| {
        t.initial_receive_window = 1 << 40;
        t.max_receive_window = 1 << 40;
        t.initial_stream_window = 1 << 40;
        t.max_stream_window = 1 << 40;
        t.answer_probe = answer_probe.into();
    }))
}

/// In the midst of a download no packet arrives any more.
fn cut_off(answer_probe: Duration) -> Pair {
    let mut pair = receiver(answer_probe);
    pair.connect(Workload::download(1_000_000_000));
    ok(pair.sim.run_for(secs(2)));
    pair.sim.network_mut().set_tap(|_, _| false);
    pair
}

/// How long it takes until the client gives up, and why.
fn end_of(mut pair: Pair) -> (Duration, Option<ConnectionError>) {
    let (start, client) = (pair.now(), pair.client);
    ok(pair.sim.run_until(secs(200), "the client's end", |sim| {
        sim.host(client).sessions().next().is_none()
    }));
    (pair.now() - start, error_of(&pair, client))
}

#[test]
fn a_server_that_crashed_and_came_back_is_noticed_by_who_only_receives() {
    for away in [ms(100), secs(1), ms(2_500), secs(5), secs(10)] {
        let mut pair = cut_off(secs(2));
        let server = pair.server;
        pair.sim.host_mut(server).crash();
        ok(pair.sim.run_for(away));
        pair.sim.network_mut().set_tap(|_, _| true);
        let (took, error) = end_of(pair);
        assert_eq!(error, Some(ConnectionError::StatelessReset), "away for {away:?}");
        // Probes come after two seconds, and then ever more rarely, as PTO has it.
        assert!(took <= secs(3) + away.times(2), "away for {away:?}: {took:?}");
    }
}

#[test]
fn without_probes_a_server_that_came_back_is_never_heard() {
    let mut pair = cut_off(Duration::ZERO);
    let server = pair.server;
    pair.sim.host_mut(server).crash();
    ok(pair.sim.run_for(secs(1)));
    pair.sim.network_mut().set_tap(|_, _| true);
    assert_eq!(end_of(pair).1, Some(ConnectionError::IdleTimeout));
}

#[test]
fn a_server_that_is_gone_for_good_is_given_up_no_later_for_the_probes() {
    let [with, without] = [secs(2), Duration::ZERO].map(|probe| end_of(cut_off(probe)));
    assert_eq!(with.1, Some(ConnectionError::IdleTimeout));
    assert_eq!(with, without);
    assert!(with.0 >= secs(29) && with.0 <= secs(32), "{:?}", with.0);
}

/// An established connection on which the server has been asked for something and is silent.
fn asked() -> Pair {
    let mut pair = receiver(secs(2));
    pair.connect(Workload::none());
    establish(&mut pair);
    ok(pair.sim.run_for(secs(10)));
    let client = &mut pair.at_client().connection;
    let id = client.open(Dir::Bidi).unwrap();
    // The server's application waits for the rest.
    client.write(id, b"abc").unwrap();
    pair
}

fn sent(pair: &mut Pair) -> u64 {
    pair.at_client().connection.stats().counters.datagrams_sent
}

#[test]
fn a_server_that_thinks_is_asked_three_times_and_left_alone_then() {
    let mut pair = asked();
    ok(pair.sim.run_for(ms(500)));
    let before = sent(&mut pair);
    let mut probes = Vec::new();
    for second in 1..=25 {
        ok(pair.sim.run_for(secs(1)));
        if sent(&mut pair) > before + probes.len() as u64 {
            probes.push(second);
        }
    }
    assert_eq!(sent(&mut pair), before + 3, "{probes:?}");
    assert_eq!(probes.len(), 3, "{probes:?}");
    assert!(pair.at_client().connection.is_established());
    assert!(pair.at_server().connection.is_established());
}

/// Silence that lasts ends the connection, though later than without probes.
#[test]
fn probes_do_not_keep_a_connection_for_ever() {
    let (took, error) = end_of(asked());
    assert_eq!(error, Some(ConnectionError::IdleTimeout));
    assert!(took >= secs(40) && took <= secs(48), "{took:?}");
}

#[test]
fn nobody_is_probed_who_owes_nothing() {
    let mut pair = receiver(secs(2));
    pair.connect(Workload::download(10_000));
    ok(pair.run(secs(10)));
    ok(pair.sim.run_for(secs(1)));
    let before = sent(&mut pair);
    ok(pair.sim.run_for(secs(20)));
    assert_eq!(sent(&mut pair), before);
}
