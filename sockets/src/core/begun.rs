//! Which clients have begun a connection a moment ago. What they send first may come twice, and by two ways: from the switch,
//! and to a socket of the endpoint's own, which brings the rest of the handshake sooner. The connection is not found by
//! the client's first connection ID any more then; a second one would be nobody's.

use std::collections::VecDeque;
use std::net::SocketAddr;

use quicket_engine::time::{Duration, Time};
use quicket_wire::ConnectionId;

/// How many are remembered.
const MAX_BEGUN: usize = 512;
/// ... and for how long.
const BEGUN_TIME: Duration = Duration::from_secs(3);

/// The last ones, in order.
#[derive(Debug, Default)]
pub(super) struct Begun(VecDeque<(Time, ConnectionId, SocketAddr)>);

impl Begun {
    pub(super) fn add(&mut self, now: Time, first: ConnectionId, remote: SocketAddr) {
        if self.0.len() >= MAX_BEGUN {
            self.0.pop_front();
        }
        self.0.push_back((now, first, remote));
    }

    pub(super) fn has(&mut self, now: Time, first: ConnectionId, remote: SocketAddr) -> bool {
        while self.0.front().is_some_and(|(since, ..)| now.since(*since) > BEGUN_TIME) {
            self.0.pop_front();
        }
        self.0.iter().any(|(_, id, from)| *id == first && *from == remote)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_ones_are_remembered_for_a_while() {
        let id = |number: u16| ConnectionId::new(&number.to_be_bytes()).unwrap();
        let (one, other) = ("192.0.2.1:9".parse().unwrap(), "192.0.2.1:10".parse().unwrap());
        let mut begun = Begun::default();
        let last = u16::try_from(MAX_BEGUN).unwrap();
        (0..=last).for_each(|number| begun.add(Time::ZERO, id(number), one));
        assert!(!begun.has(Time::ZERO, id(0), one));
        let until = Time::ZERO + BEGUN_TIME;
        assert!(begun.has(until, id(1), one) && begun.has(until, id(last), one));
        assert!(!begun.has(until, id(1), other));
        assert!(!begun.has(until + Duration::from_nanos(1), id(1), one));
        assert!(begun.0.is_empty());
    }
}
