//! What becomes of a datagram.
//!
//! In this order:
//!
//! 1. A *pin*: the connection ID that a client chose, or the token that ends a stateless reset.
//! 2. The *owner* in the connection ID. In long headers all of it is deciphered, which tells those of
//!    ours from random ones; this is also how a client comes back after a Retry, and how packets of the
//!    handshake find its connection.
//! 3. A *first packet* goes to whoever serves what its ClientHello asks for, in the newest generation;
//!    unread where one program is alone. It waits while a program may have its client past the switch and has yet to
//!    note it, and while those who could accept it do not. A version that nobody here can read is the business of the
//!    program that is alone, and of the switch otherwise: it answers with those that it reads.
//! 4. The rest is *nobody's*, or that of an endpoint that was there before the address was shared. A stateless reset
//!    answers what leads to an owner that is known dead; everything else is dropped. Programs reset what leads to them and is unknown there.

mod counters;
mod decision;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use quicket_engine::ReplyRates;
use quicket_engine::crypto::CryptoProvider;
use quicket_engine::replies::{Reply, ReplyLimits};
use quicket_engine::time::Time;
use quicket_steering::HashKey;
use quicket_wire::{ClientHello, ConnectionId, InvariantHeader, PacketKind, Version};

use crate::first_packet::{FirstPackets, Knock, Reading};
use crate::pins::Pins;
use crate::registry::{AddressId, ListenerId, Place, Registry, Spread, Standing};

pub use counters::{Counters, DropReason, Way};
pub use decision::{Decision, Piece, Reader, Train};

/// The shortest packet with a short header: one octet, a packet number of one and a tag of 16 leave
/// three for the sample of header protection (RFC 9001, Section 5.4.2).
const MIN_SHORT: usize = 21;
/// The least that a client's first datagram has (RFC 9000, Section 14.1).
const MIN_FIRST: usize = 1200;
/// The least that the connection ID has that a client chooses (RFC 9000, Section 7.2).
const MIN_FIRST_ID: usize = 8;

struct Lane {
    reader: Reader,
    counters: Counters,
    /// Who gets what leads to nobody.
    remainder: Option<Place>,
    /// Clients that nobody knows wait: their first packets may be with a program yet.
    is_quiet: bool,
}

/// Decides, and remembers what that takes.
pub struct Router {
    crypto: Arc<dyn CryptoProvider>,
    spread: HashKey,
    lanes: BTreeMap<AddressId, Lane>,
    /// What leads to workers without saying so. Programs add the tokens that servers gave them, and
    /// remove what they need no more.
    pub pins: Pins,
    first: FirstPackets,
    answers: ReplyLimits,
}

impl Router {
    /// Knows no address. `secret` is random: it decides which worker a connection gets, so that
    /// clients cannot.
    #[must_use]
    pub fn new(crypto: Arc<dyn CryptoProvider>, secret: [u8; 16], answers: ReplyRates) -> Self {
        let (spread, limits) = secret.split_at(8);
        let octets = |half: &[u8]| half.first_chunk().copied().unwrap_or_default();
        Self {
            crypto,
            spread: HashKey::new(octets(spread)),
            lanes: BTreeMap::new(),
            pins: Pins::default(),
            first: FirstPackets::new(octets(limits)),
            answers: ReplyLimits::new(answers),
        }
    }

    /// Says how connection IDs of an address are read, when it comes and when keys rotate.
    pub fn set_reader(&mut self, address: AddressId, reader: Reader) {
        match self.lanes.get_mut(&address) {
            Some(lane) => lane.reader = reader,
            None => {
                let counters = Counters::default();
                self.lanes
                    .insert(address, Lane { reader, counters, remainder: None, is_quiet: false });
            }
        }
    }

    /// The address is closed.
    pub fn remove_address(&mut self, address: AddressId) {
        self.lanes.remove(&address);
        self.first.remove_address(address);
    }

    /// Has packets of connections at an address that lead to nobody go to a worker: of an endpoint that was there
    /// before the address was shared.
    pub fn set_remainder(&mut self, address: AddressId, place: Place) {
        if let Some(lane) = self.lanes.get_mut(&address) {
            lane.remainder = Some(place);
        }
    }

    /// Whether there is such an endpoint at an address.
    #[must_use]
    pub fn has_remainder(&self, address: AddressId) -> bool {
        self.lanes.get(&address).is_some_and(|lane| lane.remainder.is_some())
    }

    /// Has clients that nobody knows wait at an address until it is said otherwise: the kernel has brought first packets
    /// to a program until now, which has yet to note the last of them.
    pub fn set_quiet(&mut self, address: AddressId, is_quiet: bool) {
        if let Some(lane) = self.lanes.get_mut(&address) {
            lane.is_quiet = is_quiet;
        }
    }

    /// Whether nothing here leads first packets at an address to others than this listener, so that it could have them
    /// unseen.
    #[must_use]
    pub fn is_clear_for(&self, listener: ListenerId) -> bool {
        let address = listener.address();
        let lane = self.lanes.get(&address);
        lane.is_some_and(|lane| lane.remainder.is_none() && !lane.is_quiet)
            && !self.first.has_any(address)
            && !self.pins.has_firsts_of_others(address, listener)
    }

    /// The key of the hash by which workers get their clients.
    #[must_use]
    pub const fn spread_key(&self) -> &HashKey {
        &self.spread
    }

    /// The listener is gone.
    pub fn remove_listener(&mut self, listener: ListenerId) {
        if let Some(lane) = self.lanes.get_mut(&listener.address()) {
            lane.remainder = lane.remainder.filter(|place| place.listener != listener);
        }
        self.pins.remove_listener(listener);
    }

    /// What became of the datagrams of an address.
    #[must_use]
    pub fn counters(&self, address: AddressId) -> Option<Counters> {
        self.lanes.get(&address).map(|lane| lane.counters)
    }

    /// Forgets what time has ended, whether anything comes or not: nothing of that is to keep a door shut.
    pub fn expire(&mut self, now: Time) {
        self.pins.expire(now);
        self.first.expire(now);
    }

    /// The half-read first packets.
    #[must_use]
    pub const fn first_packets(&self) -> &FirstPackets {
        &self.first
    }

    /// Decides about a train; adds to `pieces` what becomes of which part, in order. Datagrams next to
    /// each other that go to one worker the same way are one piece.
    pub fn route(
        &mut self,
        registry: &mut Registry,
        now: Time,
        train: &Train<'_>,
        pieces: &mut Vec<Piece>,
    ) {
        let segment_size = train.segment_size.max(1);
        let mut at = 0;
        // The connection ID of the packet with a short header before, and that it led to an owner.
        let mut before: Option<&[u8]> = None;
        while at < train.bytes.len() {
            let end = at.saturating_add(segment_size).min(train.bytes.len());
            let datagram = train.bytes.get(at..end).unwrap_or_default();
            let id = self.short_id(train.address, datagram);
            let same = id.is_some() && id == before;
            if let (true, Some(piece)) = (same, pieces.last_mut()) {
                piece.range.end = end;
                self.count(registry, train.address, &piece.decision, 1);
            } else {
                let decision = self.decide(registry, now, train, datagram);
                self.count(registry, train.address, &decision, 1);
                let delivered = matches!(decision, Decision::Deliver { way: Way::Owner, .. });
                before = id.filter(|_| delivered);
                push(pieces, at..end, decision);
            }
            at = end;
        }
    }

    /// The connection ID of a packet with a short header that may end with no reset token that
    /// matters: with pins for those, each datagram is looked at.
    fn short_id<'d>(&self, address: AddressId, datagram: &'d [u8]) -> Option<&'d [u8]> {
        let lane = self.lanes.get(&address)?;
        let is_short = datagram.len() >= MIN_SHORT && datagram.first()? & 0x80 == 0;
        let len = lane.reader.configurations.id_len();
        if is_short && !self.pins.has_resets() { datagram.get(1..=len) } else { None }
    }

    fn count(&mut self, registry: &mut Registry, id: AddressId, decision: &Decision, count: u64) {
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        let counters = &mut lane.counters;
        match decision {
            Decision::Deliver { place, way } => {
                counters.deliver(*way, count);
                note(registry, place.listener, *way, count);
            }
            Decision::Release { place, held } => {
                let all = held.len() as u64 + count;
                counters.deliver(Way::FirstPacket, all);
                note(registry, place.listener, Way::FirstPacket, all);
            }
            Decision::Held => counters.held += count,
            Decision::Wait { held } => counters.waited += held.len() as u64 + count,
            Decision::Reset { .. } => counters.resets += count,
            Decision::NegotiateVersion => counters.version_negotiations += count,
            Decision::Refuse { .. } => counters.refusals += count,
            Decision::Drop(reason) => counters.drop(*reason, count),
        }
    }

    fn decide(
        &mut self,
        registry: &Registry,
        now: Time,
        train: &Train<'_>,
        datagram: &[u8],
    ) -> Decision {
        let Some(first) = datagram.first() else { return Decision::Drop(DropReason::TooShort) };
        if !self.lanes.contains_key(&train.address) {
            return Decision::Drop(DropReason::UnknownAddress);
        }
        let decision = if first & 0x80 == 0 {
            self.decide_short(registry, now, train, datagram)
        } else {
            match InvariantHeader::parse(datagram) {
                Ok(header) => self.decide_long(registry, now, train, &header, datagram),
                Err(_) => Decision::Drop(DropReason::Malformed),
            }
        };
        let remainder = self.lanes.get(&train.address).and_then(|lane| lane.remainder);
        match (decision, remainder.filter(|place| is_there(registry, place))) {
            (Decision::Drop(DropReason::Unroutable), Some(place)) => {
                Decision::Deliver { place, way: Way::Remainder }
            }
            (decision, _) => decision,
        }
    }

    fn decide_short(
        &mut self,
        registry: &Registry,
        now: Time,
        train: &Train<'_>,
        datagram: &[u8],
    ) -> Decision {
        if datagram.len() < MIN_SHORT {
            return Decision::Drop(DropReason::TooShort);
        }
        let pinned = self.pins.reset(train.address, train.remote, datagram);
        if let Some(place) = pinned.filter(|place| is_there(registry, place)) {
            return Decision::Deliver { place, way: Way::Pin };
        }
        let Some(lane) = self.lanes.get(&train.address) else {
            return Decision::Drop(DropReason::UnknownAddress);
        };
        let behind = datagram.get(1..).unwrap_or_default();
        let configurations = &lane.reader.configurations;
        let owner = configurations.of(behind).and_then(|codec| codec.owner(behind));
        let Some(owner) = owner else { return Decision::Drop(DropReason::Unroutable) };
        match registry.standing(train.address, owner) {
            Standing::Living(listener) => {
                let place = Place { listener, worker: owner.worker };
                Decision::Deliver { place, way: Way::Owner }
            }
            Standing::Dead { uid } => {
                let dcid = behind.get(..configurations.id_len()).and_then(ConnectionId::new);
                match dcid.filter(|dcid| lane.reader.owner(dcid).is_some()) {
                    Some(dcid) => self.reset(now, datagram, dcid, uid),
                    None => Decision::Drop(DropReason::Unroutable),
                }
            }
            Standing::Nobody => Decision::Drop(DropReason::Unroutable),
        }
    }

    fn reset(&mut self, now: Time, datagram: &[u8], dcid: ConnectionId, uid: u32) -> Decision {
        // A reset is shorter than what it answers (RFC 9000, Section 10.3.3).
        if datagram.len() <= MIN_SHORT {
            return Decision::Drop(DropReason::Dead);
        }
        if !self.answers.take(now, Reply::StatelessReset) {
            return Decision::Drop(DropReason::Answers);
        }
        Decision::Reset { dcid, uid }
    }

    fn decide_long(
        &mut self,
        registry: &Registry,
        now: Time,
        train: &Train<'_>,
        header: &InvariantHeader<'_>,
        datagram: &[u8],
    ) -> Decision {
        let kind = header.kind();
        let dcid = ConnectionId::new(header.dcid);
        let begins =
            matches!(kind, PacketKind::Initial | PacketKind::ZeroRtt | PacketKind::UnknownVersion);
        if let Some(dcid) = &dcid {
            let pinned = self.pins.first(now, train.address, dcid).filter(|_| begins);
            if let Some(place) = pinned.filter(|place| is_there(registry, place)) {
                return Decision::Deliver { place, way: Way::Pin };
            }
            match self.standing(registry, train.address, dcid) {
                Some(decision @ Decision::Deliver { .. }) => return decision,
                // It may begin a connection anew.
                Some(decision) if !begins => return decision,
                _ => {}
            }
        }
        if !begins {
            return Decision::Drop(DropReason::Unroutable);
        }
        // What a client begins with is no smaller, whatever the version.
        if datagram.len() < MIN_FIRST && kind != PacketKind::ZeroRtt {
            return Decision::Drop(DropReason::TooShort);
        }
        if self.lanes.get(&train.address).is_some_and(|lane| lane.is_quiet) {
            return Decision::Wait { held: Vec::new() };
        }
        let spread = Spread { key: &self.spread, of: header.dcid };
        if let Some(place) = registry.alone(now, train.address, &spread) {
            if registry.is_away(place.listener) {
                return Decision::Wait { held: Vec::new() };
            }
            // Neither early data nor an unknown version begins a connection. Whose that is the client's Initial says,
            // which may come when another generation serves and this one listens no more.
            if kind != PacketKind::Initial {
                return Decision::Deliver { place, way: Way::Ahead };
            }
            self.pin(now, train.address, dcid, place);
            return Decision::Deliver { place, way: Way::FirstPacket };
        }
        if !registry.is_served(train.address) {
            return self.turn_away(registry, now, train.address, header);
        }
        match dcid.filter(|dcid| dcid.len() >= MIN_FIRST_ID) {
            _ if kind == PacketKind::UnknownVersion => self.negotiate(registry, now, train.address),
            Some(dcid) => self.knock(registry, now, train, header, dcid, datagram),
            None => Decision::Drop(DropReason::Malformed),
        }
    }

    /// Where the owner in the connection ID of a long header leads, if it is one of ours.
    fn standing(
        &self,
        registry: &Registry,
        address: AddressId,
        dcid: &ConnectionId,
    ) -> Option<Decision> {
        let owner = self.lanes.get(&address)?.reader.owner(dcid)?;
        match registry.standing(address, owner) {
            Standing::Living(listener) => {
                let place = Place { listener, worker: owner.worker };
                Some(Decision::Deliver { place, way: Way::Owner })
            }
            Standing::Dead { .. } => Some(Decision::Drop(DropReason::Dead)),
            Standing::Nobody => None,
        }
    }

    /// Nobody takes clients at the address. Where no program is left a client is told so; one that is
    /// there may begin to serve at any moment; and who brings a listener of before is about to, so that clients wait.
    fn turn_away(
        &mut self,
        registry: &Registry,
        now: Time,
        address: AddressId,
        header: &InvariantHeader<'_>,
    ) -> Decision {
        let ids = ConnectionId::new(header.dcid).zip(ConnectionId::new(header.scid));
        let ids = ids.filter(|(dcid, _)| dcid.len() >= MIN_FIRST_ID);
        let gone = registry.is_vacant(address) && registry.is_settled(now, address);
        let remains = self.lanes.get(&address).is_some_and(|lane| lane.remainder.is_some());
        if remains || registry.has_family(address) {
            return Decision::Wait { held: Vec::new() };
        }
        match ids.filter(|_| gone && header.kind() == PacketKind::Initial) {
            None => Decision::Drop(DropReason::NotServed),
            Some((dcid, scid)) => self.refuse(now, header.version, dcid, scid),
        }
    }

    fn refuse(
        &mut self,
        now: Time,
        version: Version,
        dcid: ConnectionId,
        scid: ConnectionId,
    ) -> Decision {
        if !self.answers.take(now, Reply::Refusal) {
            return Decision::Drop(DropReason::Answers);
        }
        Decision::Refuse { version, dcid, scid }
    }

    fn negotiate(&mut self, registry: &Registry, now: Time, address: AddressId) -> Decision {
        if !registry.is_settled(now, address) {
            return Decision::Drop(DropReason::NotServed);
        }
        if !self.answers.take(now, Reply::VersionNegotiation) {
            return Decision::Drop(DropReason::Answers);
        }
        Decision::NegotiateVersion
    }

    fn pin(&mut self, now: Time, address: AddressId, dcid: Option<ConnectionId>, place: Place) {
        if let Some(dcid) = dcid.filter(|dcid| dcid.len() >= MIN_FIRST_ID) {
            self.pins.add_first(now, address, dcid, place);
        }
    }

    /// A client's first packets, at an address with several programs.
    fn knock(
        &mut self,
        registry: &Registry,
        now: Time,
        train: &Train<'_>,
        header: &InvariantHeader<'_>,
        dcid: ConnectionId,
        datagram: &[u8],
    ) -> Decision {
        let Train { address, remote, local, ecn, .. } = *train;
        let version = header.version;
        let knock = Knock { address, version, dcid, remote, local, ecn, bytes: datagram };
        let reading = match header.kind() {
            PacketKind::ZeroRtt => self.first.hold_early(now, &knock),
            _ => self.first.read(&*self.crypto, now, &knock),
        };
        let (message, held) = match reading {
            Reading::Whole { message, held } => (message, held),
            Reading::More => return Decision::Held,
            Reading::Dropped(unread) => return Decision::Drop(unread.into()),
        };
        let Ok(hello) = ClientHello::parse(&message) else {
            return Decision::Drop(DropReason::Unreadable);
        };
        let spread = Spread { key: &self.spread, of: dcid.as_slice() };
        let Some(place) = registry.choose(address, &hello, &spread) else {
            // Who serves it may come back in a moment, and the client tries again.
            if !registry.is_settled(now, address) {
                return Decision::Drop(DropReason::NotServed);
            }
            let Some(scid) = ConnectionId::new(header.scid) else {
                return Decision::Drop(DropReason::Malformed);
            };
            return self.refuse(now, version, dcid, scid);
        };
        if registry.is_away(place.listener) {
            return Decision::Wait { held };
        }
        self.pin(now, address, Some(dcid), place);
        match held.is_empty() {
            true => Decision::Deliver { place, way: Way::FirstPacket },
            false => Decision::Release { place, held },
        }
    }
}

fn is_there(registry: &Registry, place: &Place) -> bool {
    registry.workers(place.listener).is_some()
}

fn note(registry: &mut Registry, listener: ListenerId, way: Way, datagrams: u64) {
    registry.note(listener, |counters| {
        counters.datagrams += datagrams;
        if way == Way::FirstPacket {
            counters.first_packets += 1;
        }
    });
}

/// Adds a piece, or makes the one before it longer.
fn push(pieces: &mut Vec<Piece>, range: Range<usize>, decision: Decision) {
    if let (Decision::Deliver { .. }, Some(last)) = (&decision, pieces.last_mut())
        && last.decision == decision
        && last.range.end == range.start
    {
        last.range.end = range.end;
        return;
    }
    pieces.push(Piece { range, decision });
}

impl fmt::Debug for Router {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Router")
            .field("addresses", &self.lanes.len())
            .field("pins", &self.pins.len())
            .field("first", &self.first)
            .finish_non_exhaustive()
    }
}
