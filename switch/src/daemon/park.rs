//! First packets of which it is not known yet whose they are: of a listener that was passed on over fork(2) and that
//! nobody accepts from yet, as clients wait in the queue of a socket that processes share; of clients that a program may
//! just be reading whose door was shut; and where nobody serves beside an endpoint that had the address to itself.

use std::collections::BTreeMap;

use quicket_engine::time::Time;

use super::Daemon;
use super::traffic::Outbox;
use crate::first_packet::{HeldDatagram, Waiting};
use crate::registry::AddressId;
use crate::router::Train;

/// Datagrams that wait, of each address in the order in which they came.
#[derive(Debug, Default)]
pub(super) struct Parked(BTreeMap<AddressId, Waiting>);

impl Parked {
    /// Has a datagram wait. It has waited since then.
    pub(super) fn add(&mut self, since: Time, id: AddressId, datagram: HeldDatagram) {
        self.0.entry(id).or_default().add(since, datagram);
    }

    /// Takes out what waits at an address, with when each has begun to.
    fn take(&mut self, now: Time, id: AddressId) -> Vec<(Time, HeldDatagram)> {
        self.0.remove(&id).map(|mut waiting| waiting.take(now)).unwrap_or_default()
    }

    /// Whether any waits at an address.
    pub(super) fn has_any(&self, id: AddressId) -> bool {
        self.0.contains_key(&id)
    }

    /// Gives up what has waited for too long.
    pub(super) fn expire(&mut self, now: Time) {
        self.0.values_mut().for_each(|waiting| waiting.expire(now));
        self.0.retain(|_, waiting| !waiting.is_empty());
    }
}

impl Daemon {
    /// It may have changed who gets clients at an address: what waits there is decided about anew.
    pub(super) fn unpark(&mut self, id: AddressId) {
        let now = self.now();
        let waiting = self.traffic.parked.take(now, id);
        let mut outbox = Outbox::default();
        for (since, HeldDatagram { remote, local, ecn, bytes }) in &waiting {
            let (remote, local, ecn) = (*remote, *local, *ecn);
            let train = Train { address: id, remote, local, ecn, segment_size: bytes.len(), bytes };
            self.sort((now, *since), &train, &mut outbox);
        }
        self.hand_over(id, outbox);
    }
}

#[cfg(test)]
mod tests {
    use quicket_engine::time::Duration;
    use quicket_wire::EcnCodepoint;

    use super::*;
    use crate::first_packet::PARK_TIME;
    use crate::registry::ListenerId;

    #[test]
    fn what_waits_at_an_address_is_taken_out_once_and_not_for_ever() {
        let id = ListenerId::for_test(0).address();
        let at = |seconds| Time::ZERO + Duration::from_secs(seconds);
        let datagram = |first: u8| HeldDatagram {
            remote: "192.0.2.1:443".parse().unwrap(),
            local: None,
            ecn: EcnCodepoint::NotEct,
            bytes: vec![first; 10],
        };
        let mut parked = Parked::default();
        assert!(!parked.has_any(id) && parked.take(at(1), id).is_empty());
        parked.add(at(1), id, datagram(1));
        parked.add(at(2), id, datagram(2));
        assert!(parked.has_any(id));
        let taken = parked.take(at(3), id);
        let taken: Vec<_> = taken.iter().map(|(since, each)| (*since, each.bytes[0])).collect();
        assert_eq!(taken, [(at(1), 1), (at(2), 2)]);
        assert!(!parked.has_any(id));
        parked.add(at(3), id, datagram(3));
        parked.expire(at(3) + PARK_TIME);
        assert!(parked.has_any(id));
        parked.expire(at(4) + PARK_TIME);
        assert!(!parked.has_any(id));
    }
}
