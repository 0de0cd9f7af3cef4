//! What leads to a worker though it was not the worker's choice: the connection IDs to which clients
//! send their first packets, and tokens of stateless resets. Shared by the workers of an endpoint.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use quicket_engine::{ConnectionHandle, EndpointEvent};
use quicket_wire::ConnectionId;

/// Into how many parts the table is divided, so that workers seldom wait for each other.
const SHARDS: usize = 16;

/// What a datagram can be known by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Pin {
    /// A client's first Destination Connection ID, until its handshake is confirmed.
    First(ConnectionId),
    /// A server's address and the token with which it resets a connection of ours (RFC 9000,
    /// Section 10.3).
    Reset(SocketAddr, [u8; 16]),
}

/// The table. Peers choose the keys, so their places depend on a random number.
#[derive(Debug, Default)]
pub(crate) struct Pins {
    hasher: RandomState,
    shards: [Mutex<HashMap<Pin, usize>>; SHARDS],
    /// How many tokens there are: servers have none.
    resets: AtomicUsize,
}

impl Pins {
    fn shard(&self, pin: &Pin) -> MutexGuard<'_, HashMap<Pin, usize>> {
        let shard = self.hasher.hash_one(pin) as usize % SHARDS;
        let shard = self.shards.get(shard).unwrap_or(&self.shards[0]);
        shard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The worker to which a pin leads.
    pub(crate) fn find(&self, pin: &Pin) -> Option<usize> {
        self.shard(pin).get(pin).copied()
    }

    /// The worker that a datagram from `remote` resets, if it ends with a token.
    pub(crate) fn find_reset(&self, remote: SocketAddr, data: &[u8]) -> Option<usize> {
        if self.resets.load(Ordering::Relaxed) == 0 {
            return None;
        }
        self.find(&Pin::Reset(remote, *data.last_chunk::<16>()?))
    }

    /// Has `pin` lead to `worker`, unless it leads to another. Returns to which it leads, and whether
    /// it did before.
    fn insert(&self, pin: Pin, worker: usize) -> (usize, bool) {
        let mut shard = self.shard(&pin);
        if let Some(&worker) = shard.get(&pin) {
            return (worker, true);
        }
        shard.insert(pin, worker);
        if matches!(pin, Pin::Reset(..)) {
            self.resets.fetch_add(1, Ordering::Relaxed);
        }
        (worker, false)
    }

    fn remove(&self, pin: &Pin) {
        if self.shard(pin).remove(pin).is_some() && matches!(pin, Pin::Reset(..)) {
            self.resets.fetch_sub(1, Ordering::Relaxed);
        }
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().unwrap().len()).sum()
    }
}

/// The pins of one worker, by connection.
#[derive(Debug)]
pub(crate) struct OwnPins {
    pins: Arc<Pins>,
    worker: usize,
    by_handle: HashMap<usize, Vec<Pin>>,
}

/// A client's first connection ID as it was before a worker took it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// Nobody had it.
    Now,
    /// This worker had it.
    Before,
    /// Another worker has it.
    ByAnother,
}

impl OwnPins {
    pub(crate) fn new(pins: Arc<Pins>, worker: usize) -> Self {
        Self { pins, worker, by_handle: HashMap::new() }
    }

    /// Takes a client's first connection ID before there is a connection.
    pub(crate) fn take(&self, first: ConnectionId) -> Taken {
        match self.pins.insert(Pin::First(first), self.worker) {
            (_, false) => Taken::Now,
            (worker, true) if worker == self.worker => Taken::Before,
            (_, true) => Taken::ByAnother,
        }
    }

    /// There is no connection: lets go of what was taken.
    pub(crate) fn give_up(&self, first: ConnectionId) {
        self.pins.remove(&Pin::First(first));
    }

    /// There is one: what was taken is its.
    pub(crate) fn keep(&mut self, first: ConnectionId, handle: ConnectionHandle) {
        self.by_handle.entry(handle.0).or_default().push(Pin::First(first));
    }

    /// Takes note of what a connection says.
    pub(crate) fn on_event(&mut self, handle: ConnectionHandle, event: EndpointEvent) {
        match event {
            EndpointEvent::CidRetired(cid) => self.remove(handle, Pin::First(cid)),
            EndpointEvent::ResetTokenAdded(remote, token) => {
                let pin = Pin::Reset(remote, token.0);
                if let (_, false) = self.pins.insert(pin, self.worker) {
                    self.by_handle.entry(handle.0).or_default().push(pin);
                }
            }
            EndpointEvent::ResetTokenRemoved(remote, token) => {
                self.remove(handle, Pin::Reset(remote, token.0));
            }
            EndpointEvent::Drained => {
                let pins = self.by_handle.remove(&handle.0).unwrap_or_default();
                pins.iter().for_each(|pin| self.pins.remove(pin));
            }
            // Routing sees to these.
            EndpointEvent::CidAdded(_) | EndpointEvent::HandshakeOver => {}
        }
    }

    fn remove(&mut self, handle: ConnectionHandle, pin: Pin) {
        let Some(own) = self.by_handle.get_mut(&handle.0) else { return };
        let Some(at) = own.iter().position(|each| *each == pin) else { return };
        own.swap_remove(at);
        if own.is_empty() {
            self.by_handle.remove(&handle.0);
        }
        self.pins.remove(&pin);
    }
}

impl Drop for OwnPins {
    fn drop(&mut self) {
        for pin in self.by_handle.values().flatten() {
            self.pins.remove(pin);
        }
    }
}

#[cfg(test)]
mod tests {
    use quicket_wire::StatelessResetToken;

    use super::*;

    const A: ConnectionHandle = ConnectionHandle(0);

    fn first(octet: u8) -> ConnectionId {
        ConnectionId::new(&[octet; 8]).unwrap()
    }

    #[test]
    fn a_first_connection_id_has_one_worker_until_it_is_retired() {
        let pins = Arc::new(Pins::default());
        let (mut a, b) = (OwnPins::new(pins.clone(), 0), OwnPins::new(pins.clone(), 1));
        assert_eq!(a.take(first(1)), Taken::Now);
        assert_eq!((a.take(first(1)), b.take(first(1))), (Taken::Before, Taken::ByAnother));
        a.keep(first(1), A);
        assert_eq!(pins.find(&Pin::First(first(1))), Some(0));
        a.on_event(A, EndpointEvent::CidRetired(first(2)));
        assert_eq!(pins.len(), 1, "another one");
        a.on_event(A, EndpointEvent::CidRetired(first(1)));
        assert_eq!((pins.len(), a.by_handle.len()), (0, 0));
        assert_eq!(b.take(first(1)), Taken::Now);
        b.give_up(first(1));
        assert_eq!(pins.len(), 0);
    }

    #[test]
    fn nothing_is_left_of_a_connection_or_a_worker_that_is_gone() {
        let pins = Arc::new(Pins::default());
        let mut own = OwnPins::new(pins.clone(), 3);
        let remote = "192.0.2.1:443".parse().unwrap();
        let reset = |octet| [&[0x40; 30][..], &[octet; 16]].concat();
        assert_eq!(pins.find_reset(remote, &reset(1)), None);
        for (handle, octet) in [(0, 1), (0, 2), (1, 3)] {
            let token = StatelessResetToken([octet; 16]);
            own.on_event(ConnectionHandle(handle), EndpointEvent::ResetTokenAdded(remote, token));
        }
        assert_eq!(own.take(first(1)), Taken::Now);
        own.keep(first(1), A);
        assert_eq!(pins.find_reset(remote, &reset(2)), Some(3));
        assert_eq!(pins.find_reset("192.0.2.1:444".parse().unwrap(), &reset(2)), None);
        let token = StatelessResetToken([1; 16]);
        own.on_event(A, EndpointEvent::ResetTokenRemoved(remote, token));
        assert_eq!(pins.find_reset(remote, &reset(1)), None);
        own.on_event(A, EndpointEvent::Drained);
        assert_eq!(pins.len(), 1);
        drop(own);
        assert_eq!((pins.len(), pins.resets.load(Ordering::Relaxed)), (0, 0));
    }
}
