//! What ICMP messages may and may not do: RFC 9000, Sections 14.2.1 and 21.1.1.1.

use quicket_engine::{ConnectionError, Unreachable};
use quicket_sim::app::Workload;
use quicket_sim::sim::{Pair, PairOptions};

use crate::support::{CLEAN, error_of, establish, ms, ok, pair, secs};

/// The beginning of a long header, with a connection ID that is nobody's.
const FOREIGN: &[u8] = &[0xc0, 0, 0, 0, 1, 8, 1, 2, 3, 4, 5, 6, 7, 8, 0];

/// A client that nobody answers.
fn waiting() -> Pair {
    let mut pair = pair(PairOptions::new(CLEAN));
    pair.sim.network_mut().set_tap(|_, _| false);
    pair.connect(Workload::none());
    ok(pair.sim.run_for(ms(1)));
    pair
}

/// A message comes; returns how the connection ended, if it did.
fn tell(pair: &mut Pair, what: Unreachable, quoted: &[u8]) -> Option<ConnectionError> {
    let now = pair.now();
    let connection = &mut pair.at_client().connection;
    connection.on_unreachable(now, what, quoted);
    connection.close_reason().cloned()
}

#[test]
fn a_closed_port_is_believed_when_two_flights_have_met_it() {
    let mut pair = waiting();
    for _ in 0..10 {
        assert_eq!(tell(&mut pair, Unreachable::Port, &[]), None, "all of the first flight");
        assert_eq!(tell(&mut pair, Unreachable::Port, FOREIGN), None);
    }
    // The first probe timeout (RFC 9002, Section 6.2.2) has passed.
    ok(pair.sim.run_for(secs(2)));
    assert_eq!(tell(&mut pair, Unreachable::Port, FOREIGN), None);
    let ended = tell(&mut pair, Unreachable::Port, &[]);
    assert_eq!(ended, Some(ConnectionError::PortUnreachable));
}

#[test]
fn that_a_host_cannot_be_reached_is_believed_when_three_flights_have_met_it() {
    let mut pair = waiting();
    for flight in 0..3 {
        let ended = [0; 5].map(|_| tell(&mut pair, Unreachable::Host, &[])).into_iter().flatten();
        let ended: Vec<_> = ended.collect();
        match flight {
            2 => assert_eq!(ended.first(), Some(&ConnectionError::HostUnreachable)),
            _ => assert!(ended.is_empty(), "flight {flight}: {ended:?}"),
        }
        ok(pair.sim.run_for(secs(2)));
    }
}

#[test]
fn an_established_connection_believes_nothing() {
    let mut pair = pair(PairOptions::new(CLEAN));
    pair.connect(Workload::download(1_000_000));
    establish(&mut pair);
    for what in [Unreachable::Port, Unreachable::Host] {
        for _ in 0..10 {
            assert_eq!(tell(&mut pair, what, &[]), None);
            ok(pair.sim.run_for(ms(1)));
        }
    }
    let now = pair.now();
    pair.at_server().connection.on_unreachable(now, Unreachable::Port, &[]);
    ok(pair.run(secs(60)));
    ok(pair.close());
    assert!(!matches!(error_of(&pair, pair.client), Some(ConnectionError::PortUnreachable)));
}
