//! First packets of which it is not known yet whose they are: of a listener that was passed on over fork(2) and that
//! nobody accepts from yet, as clients wait in the queue of a socket that processes share; of clients that a program may
//! just be reading whose door was shut; and where nobody serves beside an endpoint that had the address to itself.

use std::collections::BTreeMap;

use quicket_engine::time::Time;

use super::Daemon;
use super::route::Outbox;
use crate::first_packet::{HeldDatagram, Waiting};
use crate::registry::AddressId;
use crate::router::Train;

/// Datagrams that wait, of each address in the order in which they came.
#[derive(Debug, Default)]
pub(super) struct Parked(BTreeMap<AddressId, Waiting>);

impl Parked {
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
    /// Has a datagram wait until it is known who gets it. It has waited since then.
    pub(super) fn park(&mut self, since: Time, id: AddressId, datagram: HeldDatagram) {
        self.parked.0.entry(id).or_default().add(since, datagram);
    }

    /// It may have changed who gets clients at an address: what waits there is decided about anew.
    pub(super) fn unpark(&mut self, id: AddressId) {
        let now = self.now();
        let Some(mut waiting) = self.parked.0.remove(&id) else { return };
        let waiting = waiting.take(now);
        let mut outbox = Outbox::default();
        for (since, HeldDatagram { remote, local, ecn, bytes }) in &waiting {
            let (remote, local, ecn) = (*remote, *local, *ecn);
            let train = Train { address: id, remote, local, ecn, segment_size: bytes.len(), bytes };
            self.sort((now, *since), &train, &mut outbox);
        }
        self.hand_over(id, outbox);
    }
}
