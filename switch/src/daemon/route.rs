//! Datagrams: received, decided about by the router, and handed over or answered.

use std::borrow::Cow;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

use nix::sys::epoll::{EpollEvent, EpollFlags};
use quicket_engine::replies;
use quicket_engine::time::Time;
use quicket_udp::{Arrival, Outgoing, ReceiveBuffers};
use quicket_wire::{EcnCodepoint, TransportErrorCode, Version};

use super::address::Address;
use super::{Daemon, Token};
use crate::channel::{HEAD, encode};
use crate::first_packet::HeldDatagram;
use crate::registry::{AddressId, Place, ProcessId};
use crate::router::{Decision, Piece, Train};

/// How many batches of an address are received before programs and others get their turn.
const BATCHES_PER_TURN: usize = 8;
/// The alert of a server that speaks none of the client's protocols (RFC 9001, Section 8.1).
const NO_APPLICATION_PROTOCOL: u8 = 120;

/// A train on its way.
type Parcel<'a> = ([u8; HEAD], Cow<'a, [u8]>);

/// Trains by where they go.
#[derive(Default)]
struct Outbox<'a>(Vec<(Place, Vec<Parcel<'a>>)>);

impl<'a> Outbox<'a> {
    fn add(&mut self, place: Place, head: [u8; HEAD], bytes: Cow<'a, [u8]>) {
        match self.0.iter_mut().find(|(to, _)| *to == place) {
            Some((_, parcels)) => parcels.push((head, bytes)),
            None => self.0.push((place, vec![(head, bytes)])),
        }
    }
}

impl Daemon {
    /// Receives at an address what is there, for a while.
    pub(super) fn receive(&mut self, number: u32) {
        let id = self.addresses.keys().copied().find(|id| id.number() == number);
        let (Some(id), Some(mut buffers)) = (id, self.buffers.take()) else { return };
        for _ in 0..BATCHES_PER_TURN {
            if !self.receive_batch(id, &mut buffers) {
                break;
            }
        }
        self.buffers = Some(buffers);
    }

    /// True if there may be more.
    fn receive_batch(&mut self, id: AddressId, buffers: &mut ReceiveBuffers) -> bool {
        let Some(address) = self.addresses.get(&id) else { return false };
        let socket = Arc::clone(&address.socket);
        let mut batch = match socket.receive(buffers) {
            Ok(batch) => batch,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
            Err(error) => {
                self.complaints.warn(format_args!(
                    "the system refuses to receive on {}: {error}",
                    address.listen
                ));
                return false;
            }
        };
        let more = batch.more;
        let now = self.now();
        let mut outbox = Outbox::default();
        for train in batch.trains() {
            let quicket_udp::Train { remote, local, ecn, stride, bytes } = train;
            let bytes: &[u8] = bytes;
            let train = Train { address: id, remote, local, ecn, segment_size: stride, bytes };
            self.sort(now, &train, &mut outbox);
        }
        self.hand_over(id, outbox);
        more
    }

    /// Divides a train by where its datagrams go.
    fn sort<'a>(&mut self, now: Time, train: &Train<'a>, outbox: &mut Outbox<'a>) {
        let mut pieces = std::mem::take(&mut self.pieces);
        self.router.route(&mut self.registry, now, train, &mut pieces);
        if let Some(address) = self.addresses.get_mut(&train.address) {
            let datagrams = train.bytes.len().div_ceil(train.segment_size.max(1));
            address.counters.received += datagrams as u64;
        }
        let Train { remote, local, ecn, segment_size: stride, .. } = *train;
        let head = encode(&Arrival { remote, local, ecn, stride, len: 0 });
        for Piece { range, decision } in pieces.drain(..) {
            let bytes = train.bytes.get(range).unwrap_or_default();
            match decision {
                Decision::Deliver { place, .. } => outbox.add(place, head, Cow::Borrowed(bytes)),
                Decision::Release { place, held } => {
                    for HeldDatagram { remote, local, ecn, bytes } in held {
                        let (stride, len) = (bytes.len(), bytes.len());
                        let head = encode(&Arrival { remote, local, ecn, stride, len });
                        outbox.add(place, head, Cow::Owned(bytes));
                    }
                    outbox.add(place, head, Cow::Borrowed(bytes));
                }
                Decision::Held | Decision::Drop(_) => {}
                answered => self.answer_datagram(train, bytes, &answered),
            }
        }
        self.pieces = pieces;
    }

    /// Answers in place of programs.
    fn answer_datagram(&mut self, train: &Train<'_>, datagram: &[u8], decision: &Decision) {
        let Some(address) = self.addresses.get(&train.address) else { return };
        let crypto = &self.tools.crypto;
        let random = &mut *self.tools.random;
        let answer = match decision {
            Decision::Reset { dcid, .. } => {
                let (key, len) = (&address.secrets.reset_key.0, datagram.len());
                replies::stateless_reset(&**crypto, key, dcid, len, random)
            }
            Decision::NegotiateVersion => {
                replies::version_negotiation(datagram, Version::SUPPORTED, random)
            }
            Decision::Refuse { version, dcid, scid } => {
                let code = match self.registry.is_vacant(train.address) {
                    true => TransportErrorCode::CONNECTION_REFUSED,
                    false => TransportErrorCode::crypto(NO_APPLICATION_PROTOCOL),
                };
                replies::refusal(Arc::clone(crypto), *version, dcid, scid, code)
            }
            _ => None,
        };
        if let Some(bytes) = answer {
            address.answer(train, &bytes);
        }
    }

    fn hand_over(&mut self, id: AddressId, outbox: Outbox<'_>) {
        for (place, parcels) in outbox.0 {
            let process = self.seats.get(&place.listener).copied();
            let program = process.and_then(|process| self.programs.get_mut(&process));
            let seat = program.and_then(|program| program.seat.as_mut());
            let outlet = seat.and_then(|seat| seat.outlets.get_mut(usize::from(place.worker)));
            let (Some(process), Some(outlet)) = (process, outlet) else { continue };
            let trains: Vec<_> = parcels.iter().map(|(head, bytes)| (*head, &**bytes)).collect();
            let was_full = outlet.is_full();
            let sent = outlet.send(&trains);
            if outlet.is_full() && !was_full {
                let token = Token::Room(process.0 as u32, place.worker);
                let event = EpollEvent::new(EpollFlags::EPOLLOUT, token.pack());
                if let Err(error) = self.epoll.add(outlet.as_fd(), event) {
                    log::debug!("a channel is not watched for room: {error}");
                }
            }
            if let Some(address) = self.addresses.get_mut(&id) {
                address.counters.forwarded += sent.datagrams;
            }
            self.count_lost(id, place.listener, sent.lost);
        }
    }

    fn count_lost(&mut self, id: AddressId, listener: crate::registry::ListenerId, lost: u64) {
        if lost == 0 {
            return;
        }
        if let Some(address) = self.addresses.get_mut(&id) {
            address.counters.lost += lost;
        }
        self.registry.note(listener, |counters| counters.lost += lost);
    }

    /// There is room in a channel.
    pub(super) fn flush(&mut self, process: ProcessId, worker: u16) {
        let program = self.programs.get_mut(&process);
        let Some(seat) = program.and_then(|program| program.seat.as_mut()) else { return };
        let Some(outlet) = seat.outlets.get_mut(usize::from(worker)) else { return };
        let lost = outlet.flush();
        if !outlet.is_full() {
            let _ = self.epoll.delete(outlet.as_fd());
        }
        let (address, listener) = (seat.address, seat.listener);
        self.count_lost(address, listener, lost);
    }
}

impl Address {
    /// What finds no room is lost: the peer asks again.
    fn answer(&self, train: &Train<'_>, bytes: &[u8]) {
        let _ = self.sender.send(&Outgoing {
            remote: train.remote,
            local: train.local.map(|local| local.ip()),
            ecn: EcnCodepoint::NotEct,
            segment_size: bytes.len(),
            bytes,
        });
    }
}
