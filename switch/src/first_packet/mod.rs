//! What a client asks for, read from its first packets.
//!
//! A ClientHello may come in several datagrams, its CRYPTO frames in any order (RFC 9000, Section
//! 19.6), with packets of 0-RTT before, between and behind. Datagrams are held until all of it is there,
//! and then released as they came. Where the name is encrypted (Encrypted ClientHello), the outer one
//! is what counts.
//!
//! Anybody can send first packets, from any address. So there are at most [`MAX_HELLOS`] half-read
//! ones with [`MAX_HELD_BYTES`]; the oldest of the address that has the most makes room. A client that
//! sends all of it at once needs a moment only, and comes through a flood of halves. What is read at
//! all is limited in number for each source ([`HELLOS_PER_SOURCE`]) and for each address
//! ([`HELLOS_PER_SECOND`]), so that there is time left for datagrams of connections.

mod assembly;
mod limits;
mod open;
#[cfg(test)]
mod tests;
mod waiting;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::SocketAddr;

use quicket_engine::crypto::CryptoProvider;
use quicket_engine::time::{Duration, Time};
use quicket_wire::{ConnectionId, EcnCodepoint, Version};

use crate::registry::AddressId;
use assembly::Assembly;
use limits::{Limits, Source};
use open::Keys;

pub use assembly::{MAX_HELLO, MAX_PIECES};
pub use limits::{HELLOS_PER_SECOND, HELLOS_PER_SOURCE, MAX_SOURCES};
pub use open::MAX_COALESCED;
pub use waiting::{MAX_PARKED, MAX_PARKED_BYTES, PARK_TIME, Waiting};

/// How many half-read ones there are at a time.
pub const MAX_HELLOS: usize = 4096;
/// ... and of one source: an IPv4 address, or an IPv6 network of 64 bits.
pub const MAX_HALVES_PER_SOURCE: usize = 256;
/// How many bytes they hold together.
pub const MAX_HELD_BYTES: usize = 16 << 20;
/// How many datagrams each holds.
pub const MAX_HELD_DATAGRAMS: usize = 16;
/// How many datagrams of each are opened: that takes time, and the rates below count beginnings only.
pub const MAX_OPENED: u8 = 32;
/// How long the rest may take: a client sends what was lost again after one second, and again after
/// three (RFC 9002, Section 6.2).
pub const HELLO_TIME: Duration = Duration::from_secs(5);

/// A datagram as it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldDatagram {
    /// Who sent it.
    pub remote: SocketAddr,
    /// To which address of ours, if known.
    pub local: Option<SocketAddr>,
    /// The mark in its IP header.
    pub ecn: EcnCodepoint,
    /// Its payload.
    pub bytes: Vec<u8>,
}

/// A client's datagram that begins, or may begin, a connection.
#[derive(Clone, Copy, Debug)]
pub struct Knock<'a> {
    /// At which address of ours.
    pub address: AddressId,
    /// Of which version.
    pub version: Version,
    /// The connection ID that the client chose.
    pub dcid: ConnectionId,
    /// Who sent it.
    pub remote: SocketAddr,
    /// To which address of ours, if known.
    pub local: Option<SocketAddr>,
    /// The mark in its IP header.
    pub ecn: EcnCodepoint,
    /// Its payload.
    pub bytes: &'a [u8],
}

/// What came of reading one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reading {
    /// The whole ClientHello, and the datagrams that were held before this one, in order.
    Whole {
        /// The message, for [`quicket_wire::ClientHello::parse`].
        message: Vec<u8>,
        /// The datagrams.
        held: Vec<HeldDatagram>,
    },
    /// More is to come: the datagram is held.
    More,
    /// It is not held.
    Dropped(Unread),
}

/// Why a first packet is not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unread {
    /// No packet in it can be opened with the keys of its connection ID.
    Undecryptable,
    /// What is within are no frames.
    Malformed,
    /// The CRYPTO stream begins with something else.
    NoClientHello,
    /// It is longer, in more pieces or in more datagrams than may be.
    TooLarge,
    /// The same datagram is held.
    Duplicate,
    /// The source or the address has had as many in this second as may be.
    Rate,
}

/// A half-read one.
struct Half {
    serial: u64,
    source: Source,
    began: Time,
    keys: Option<Keys>,
    hello: Assembly,
    held: Vec<HeldDatagram>,
    held_bytes: usize,
    /// Datagrams that were opened, or could not be.
    opened: u8,
}

impl Half {
    const fn cost(&self) -> usize {
        self.held_bytes + self.hello.cost()
    }
}

type Key = (AddressId, ConnectionId);

/// All that are half-read.
pub struct FirstPackets {
    halves: BTreeMap<Key, Half>,
    /// In the order in which they began.
    order: BTreeMap<u64, Key>,
    by_address: BTreeMap<AddressId, BTreeSet<u64>>,
    by_source: BTreeMap<Source, BTreeSet<u64>>,
    bytes: usize,
    next_serial: u64,
    limits: Limits,
    scratch: Vec<u8>,
    /// Datagrams that were held and are lost: their time was over, or others needed the room.
    lost: u64,
}

impl FirstPackets {
    /// None. `secret` is random: it hides which sources share a limit.
    #[must_use]
    pub fn new(secret: [u8; 8]) -> Self {
        Self {
            halves: BTreeMap::new(),
            order: BTreeMap::new(),
            by_address: BTreeMap::new(),
            by_source: BTreeMap::new(),
            bytes: 0,
            next_serial: 0,
            limits: Limits::new(secret),
            scratch: Vec::new(),
            lost: 0,
        }
    }

    /// How many are half-read.
    #[must_use]
    pub fn len(&self) -> usize {
        self.halves.len()
    }

    /// Whether none is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.halves.is_empty()
    }

    /// Whether any is at an address.
    #[must_use]
    pub fn has_any(&self, address: AddressId) -> bool {
        self.by_address.contains_key(&address)
    }

    /// How many bytes they hold.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// How many datagrams were held and then lost, because their time was over or others needed the
    /// room.
    #[must_use]
    pub const fn lost(&self) -> u64 {
        self.lost
    }

    /// Reads an Initial packet of a client.
    pub fn read(&mut self, crypto: &dyn CryptoProvider, now: Time, knock: &Knock<'_>) -> Reading {
        let mut half = match self.half(now, knock) {
            Ok(half) => half,
            Err(unread) => return Reading::Dropped(unread),
        };
        if half.opened >= MAX_OPENED {
            self.put_back(half, knock);
            return Reading::Dropped(Unread::TooLarge);
        }
        half.opened += 1;
        let keys = half.keys.get_or_insert_with(|| Keys::new(crypto, knock.version, knock.dcid));
        let read = keys.read(knock.bytes, &mut self.scratch, &mut half.hello);
        match read.and_then(|()| half.hello.message().map(|message| message.map(<[u8]>::to_vec))) {
            Ok(Some(message)) => Reading::Whole { message, held: half.held },
            Ok(None) => self.hold(half, knock),
            Err(unread) => {
                self.put_back(half, knock);
                Reading::Dropped(unread)
            }
        }
    }

    /// Holds a packet of 0-RTT, which may overtake its ClientHello.
    pub fn hold_early(&mut self, now: Time, knock: &Knock<'_>) -> Reading {
        match self.half(now, knock) {
            Ok(half) => self.hold(half, knock),
            Err(unread) => Reading::Dropped(unread),
        }
    }

    /// Forgets those whose time is over. Done by the way, too.
    pub fn expire(&mut self, now: Time) {
        while let Some((_, key)) = self.order.first_key_value() {
            let key = *key;
            if self.halves.get(&key).is_some_and(|half| now.since(half.began) < HELLO_TIME) {
                return;
            }
            self.lose(&key);
        }
    }

    /// The address is closed.
    pub fn remove_address(&mut self, address: AddressId) {
        let own = self.by_address.get(&address).cloned().unwrap_or_default();
        let keys: Vec<_> =
            own.iter().filter_map(|serial| self.order.get(serial)).copied().collect();
        for key in keys {
            self.lose(&key);
        }
        self.limits.remove_address(address);
    }

    /// What is there of this one, taken out.
    fn half(&mut self, now: Time, knock: &Knock<'_>) -> Result<Half, Unread> {
        self.expire(now);
        if let Some(half) = self.take(&(knock.address, knock.dcid)) {
            if half.held.iter().any(|held| held.bytes == knock.bytes) {
                self.put_back(half, knock);
                return Err(Unread::Duplicate);
            }
            return Ok(half);
        }
        let source = Source::of(knock.remote.ip());
        if !self.limits.take(now, knock.address, source) {
            return Err(Unread::Rate);
        }
        self.next_serial += 1;
        Ok(Half {
            serial: self.next_serial,
            source,
            began: now,
            keys: None,
            hello: Assembly::default(),
            held: Vec::new(),
            held_bytes: 0,
            opened: 0,
        })
    }

    fn hold(&mut self, mut half: Half, knock: &Knock<'_>) -> Reading {
        if half.held.len() >= MAX_HELD_DATAGRAMS {
            self.put_back(half, knock);
            return Reading::Dropped(Unread::TooLarge);
        }
        let Knock { remote, local, ecn, bytes, .. } = *knock;
        half.held.push(HeldDatagram { remote, local, ecn, bytes: bytes.to_vec() });
        half.held_bytes += bytes.len();
        let own = self.by_source.get(&half.source);
        if own.is_some_and(|own| own.len() >= MAX_HALVES_PER_SOURCE) {
            let oldest = own.and_then(BTreeSet::first).and_then(|serial| self.order.get(serial));
            if let Some(key) = oldest.copied() {
                self.lose(&key);
            }
        }
        while self.halves.len() >= MAX_HELLOS || self.bytes + half.cost() > MAX_HELD_BYTES {
            if !self.make_room() {
                break;
            }
        }
        self.put_back(half, knock);
        Reading::More
    }

    /// The address that has the most loses its oldest.
    fn make_room(&mut self) -> bool {
        let most = self.by_address.values().max_by_key(|own| own.len());
        let oldest = most.and_then(BTreeSet::first).and_then(|serial| self.order.get(serial));
        let Some(key) = oldest.copied() else { return false };
        self.lose(&key);
        true
    }

    fn lose(&mut self, key: &Key) {
        if let Some(half) = self.take(key) {
            self.lost += half.held.len() as u64;
        }
    }

    fn take(&mut self, key: &Key) -> Option<Half> {
        let half = self.halves.remove(key)?;
        self.order.remove(&half.serial);
        remove_from(&mut self.by_address, key.0, half.serial);
        remove_from(&mut self.by_source, half.source, half.serial);
        self.bytes -= half.cost();
        Some(half)
    }

    /// Keeps one that holds something; nothing is kept of what cannot be read.
    fn put_back(&mut self, half: Half, knock: &Knock<'_>) {
        if half.held.is_empty() {
            return;
        }
        let key = (knock.address, knock.dcid);
        self.order.insert(half.serial, key);
        self.by_address.entry(key.0).or_default().insert(half.serial);
        self.by_source.entry(half.source).or_default().insert(half.serial);
        self.bytes += half.cost();
        self.halves.insert(key, half);
    }
}

fn remove_from<K: Ord>(index: &mut BTreeMap<K, BTreeSet<u64>>, key: K, serial: u64) {
    if let Some(own) = index.get_mut(&key) {
        own.remove(&serial);
        if own.is_empty() {
            index.remove(&key);
        }
    }
}

impl fmt::Debug for FirstPackets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FirstPackets")
            .field("halves", &self.halves.len())
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}
