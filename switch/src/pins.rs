//! What leads to a worker though it does not say whose it is: the connection IDs that clients choose
//! for their first packets, and the tokens with which servers reset connections of programs that are
//! clients.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use quicket_engine::time::{Duration, Time};
use quicket_wire::{ConnectionId, StatelessResetToken};

use crate::registry::{AddressId, ListenerId, Place};

/// How many pins there are at most. Once there are so many, whoever has the most loses its oldest.
pub const MAX_PINS: usize = 65_536;

/// How long a client's first connection ID is pinned: longer than a handshake may take.
pub const PIN_TIME: Duration = Duration::from_secs(60);

/// What a datagram can be known by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Pin {
    First(AddressId, ConnectionId),
    Reset(AddressId, SocketAddr, StatelessResetToken),
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    place: Place,
    /// In the order in which pins came.
    serial: u64,
    made: Time,
}

/// The table. Its order does not depend on hashes: peers choose what is in it.
#[derive(Debug, Default)]
pub struct Pins {
    entries: BTreeMap<Pin, Entry>,
    /// The pins of each listener, the oldest first.
    by_listener: BTreeMap<ListenerId, BTreeMap<u64, Pin>>,
    /// All that end with time, the oldest first.
    firsts: BTreeMap<u64, Pin>,
    resets: usize,
    next_serial: u64,
    evicted: u64,
}

impl Pins {
    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// How many had to make room for others.
    #[must_use]
    pub const fn evicted(&self) -> u64 {
        self.evicted
    }

    /// Has the connection ID that a client chose lead to a worker, unless it leads to one.
    pub fn add_first(&mut self, now: Time, address: AddressId, id: ConnectionId, place: Place) {
        self.insert(now, Pin::First(address, id), place);
    }

    /// To whom a connection ID leads that a client chose.
    #[must_use]
    pub fn first(&self, now: Time, address: AddressId, id: &ConnectionId) -> Option<Place> {
        let entry = self.entries.get(&Pin::First(address, *id))?;
        (now.since(entry.made) < PIN_TIME).then_some(entry.place)
    }

    /// Whether connection IDs that clients chose lead to another listener at an address.
    #[must_use]
    pub fn has_firsts_of_others(&self, address: AddressId, listener: ListenerId) -> bool {
        let others = self.by_listener.iter();
        let mut others = others.filter(|(id, _)| id.address() == address && **id != listener);
        others.any(|(_, own)| own.values().any(|pin| matches!(pin, Pin::First(..))))
    }

    /// The listener needs the pin no more: its handshake is confirmed. Pins of others stay.
    pub fn remove_first(&mut self, listener: ListenerId, id: &ConnectionId) {
        self.remove_own(listener, Pin::First(listener.address(), *id));
    }

    /// A server at `remote` resets a connection of this worker with this token (RFC 9000, Section
    /// 10.3). False if it leads to another.
    pub fn add_reset(
        &mut self,
        now: Time,
        place: Place,
        remote: SocketAddr,
        token: StatelessResetToken,
    ) -> bool {
        self.insert(now, Pin::Reset(place.listener.address(), remote, token), place)
    }

    /// The token is of no use any more. Pins of others stay.
    pub fn remove_reset(
        &mut self,
        listener: ListenerId,
        remote: SocketAddr,
        token: StatelessResetToken,
    ) {
        self.remove_own(listener, Pin::Reset(listener.address(), remote, token));
    }

    /// Whether there are any tokens.
    #[must_use]
    pub const fn has_resets(&self) -> bool {
        self.resets > 0
    }

    /// Whose connection a datagram resets, if it ends with a token.
    #[must_use]
    pub fn reset(&self, address: AddressId, remote: SocketAddr, data: &[u8]) -> Option<Place> {
        if self.resets == 0 {
            return None;
        }
        let token = StatelessResetToken(*data.last_chunk()?);
        self.entries.get(&Pin::Reset(address, remote, token)).map(|entry| entry.place)
    }

    /// The listener is gone.
    pub fn remove_listener(&mut self, listener: ListenerId) {
        let own = self.by_listener.remove(&listener).unwrap_or_default();
        for pin in own.into_values() {
            self.take(pin);
        }
    }

    /// Forgets what is over.
    pub fn expire(&mut self, now: Time) {
        while let Some((_, pin)) = self.firsts.first_key_value() {
            let pin = *pin;
            if self.entries.get(&pin).is_some_and(|each| now.since(each.made) < PIN_TIME) {
                return;
            }
            self.drop_pin(pin);
        }
    }

    fn insert(&mut self, now: Time, pin: Pin, place: Place) -> bool {
        self.expire(now);
        if let Some(entry) = self.entries.get(&pin) {
            return entry.place == place;
        }
        if self.entries.len() >= MAX_PINS {
            self.evict();
        }
        self.next_serial += 1;
        let serial = self.next_serial;
        self.entries.insert(pin, Entry { place, serial, made: now });
        self.by_listener.entry(place.listener).or_default().insert(serial, pin);
        match pin {
            Pin::First(..) => drop(self.firsts.insert(serial, pin)),
            Pin::Reset(..) => self.resets += 1,
        }
        true
    }

    /// Who has the most loses its oldest: a flood at one listener costs the others nothing.
    fn evict(&mut self) {
        let most = self.by_listener.values().max_by_key(|own| own.len());
        if let Some(pin) = most.and_then(|own| own.values().next().copied()) {
            self.drop_pin(pin);
            self.evicted += 1;
        }
    }

    fn remove_own(&mut self, listener: ListenerId, pin: Pin) {
        if self.entries.get(&pin).is_some_and(|entry| entry.place.listener == listener) {
            self.drop_pin(pin);
        }
    }

    fn drop_pin(&mut self, pin: Pin) {
        let Some(entry) = self.take(pin) else { return };
        let listener = entry.place.listener;
        if let Some(own) = self.by_listener.get_mut(&listener) {
            own.remove(&entry.serial);
            if own.is_empty() {
                self.by_listener.remove(&listener);
            }
        }
    }

    /// Removes a pin everywhere but among those of its listener.
    fn take(&mut self, pin: Pin) -> Option<Entry> {
        let entry = self.entries.remove(&pin)?;
        match pin {
            Pin::First(..) => drop(self.firsts.remove(&entry.serial)),
            Pin::Reset(..) => self.resets -= 1,
        }
        Some(entry)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use quicket_sim::test_crypto::TestCrypto;

    use super::*;
    use crate::registry::{
        Attention, ListenAddress, Names, ProcessId, Protocol, Receipts, Registration, Registry,
    };

    fn places() -> [Place; 2] {
        let receipts = Receipts::new(Arc::new(TestCrypto), [5; 32], 0);
        let mut registry = Registry::new(Time::ZERO, 0, receipts, false);
        ["a", "b"].map(|program| {
            let names = Names::new([Protocol::new(program.as_bytes()).unwrap()], []).unwrap();
            let new = Registration {
                address: ListenAddress::new("192.0.2.1:443".parse().unwrap(), false),
                uid: 0,
                process: ProcessId(0),
                program: program.to_owned(),
                names,
                workers: 2,
                reuse_port: false,
                replace: false,
                claim: None,
                family: None,
                attention: Attention::default(),
            };
            let listener = registry.register(Time::ZERO, new).unwrap().listener;
            Place { listener, worker: 1 }
        })
    }

    fn id(number: u64) -> ConnectionId {
        ConnectionId::new(&number.to_be_bytes()).unwrap()
    }

    fn at(seconds: u64) -> Time {
        Time::from_nanos(seconds * 1_000_000_000)
    }

    #[test]
    fn a_first_connection_id_leads_to_one_worker_for_a_while() {
        let [a, b] = places();
        let address = a.listener.address();
        let mut pins = Pins::default();
        pins.add_first(at(0), address, id(1), a);
        pins.add_first(at(0), address, id(1), b);
        assert_eq!(pins.first(at(59), address, &id(1)), Some(a));
        pins.remove_first(b.listener, &id(1));
        assert_eq!(pins.first(at(59), address, &id(1)), Some(a), "it is not the other's");
        assert_eq!(pins.first(at(60), address, &id(1)), None);
        pins.expire(at(60));
        assert!(pins.is_empty() && pins.by_listener.is_empty() && pins.firsts.is_empty());
        pins.add_first(at(60), address, id(1), b);
        pins.remove_first(b.listener, &id(1));
        assert!(pins.is_empty() && pins.by_listener.is_empty() && pins.firsts.is_empty());
    }

    #[test]
    fn it_is_known_whether_clients_are_with_others() {
        let [a, b] = places();
        let (address, token) = (a.listener.address(), StatelessResetToken([9; 16]));
        let mut pins = Pins::default();
        // A client of theirs is no server's client.
        assert!(pins.add_reset(at(0), b, "192.0.2.9:1".parse().unwrap(), token));
        pins.add_first(at(0), address, id(1), a);
        assert!(!pins.has_firsts_of_others(address, a.listener));
        assert!(pins.has_firsts_of_others(address, b.listener));
        pins.add_first(at(1), address, id(2), b);
        assert!(pins.has_firsts_of_others(address, a.listener));
        pins.expire(at(60));
        assert!(!pins.has_firsts_of_others(address, b.listener));
        pins.remove_listener(b.listener);
        assert!(!pins.has_firsts_of_others(address, a.listener));
    }

    #[test]
    fn resets_lead_to_the_program_that_is_the_client() {
        let [a, b] = places();
        let (address, token) = (a.listener.address(), StatelessResetToken([9; 16]));
        let (remote, other) = ("192.0.2.9:1".parse().unwrap(), "192.0.2.9:2".parse().unwrap());
        let data = [&[0x40; 20][..], &token.0].concat();
        let mut pins = Pins::default();
        assert!(pins.add_reset(at(0), a, remote, token));
        assert!(!pins.add_reset(at(0), b, remote, token));
        pins.expire(at(1000));
        assert_eq!(pins.reset(address, remote, &data), Some(a));
        assert_eq!(pins.reset(address, other, &data), None);
        assert_eq!(pins.reset(address, remote, &data[..30]), None);
        pins.remove_reset(b.listener, remote, token);
        assert_eq!(pins.len(), 1);
        pins.remove_listener(a.listener);
        assert!(pins.is_empty() && pins.by_listener.is_empty() && pins.resets == 0);
    }

    #[test]
    fn a_flood_at_one_listener_costs_the_others_nothing() {
        let [flooded, quiet] = places();
        let address = flooded.listener.address();
        let mut pins = Pins::default();
        for number in 0..1000 {
            pins.add_first(at(0), address, id(number), quiet);
        }
        for number in 1000..200_000 {
            pins.add_first(at(1), address, id(number), flooded);
        }
        assert_eq!(pins.len(), MAX_PINS);
        assert_eq!(pins.evicted(), 200_000 - MAX_PINS as u64);
        assert!((0..1000).all(|number| pins.first(at(1), address, &id(number)) == Some(quiet)));
        assert_eq!(pins.first(at(1), address, &id(1000)), None);
        assert_eq!(pins.first(at(1), address, &id(199_999)), Some(flooded));
    }
}
