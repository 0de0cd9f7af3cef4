//! Datagrams: received, decided about by the router, and handed over or answered.

use std::borrow::Cow;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use nix::sys::epoll::EpollFlags;
use quicket_engine::replies;
use quicket_engine::time::Time;
use quicket_udp::{Arrival, Outgoing, ReceiveBuffers, UdpSocket, receive_from_port};
use quicket_wire::{EcnCodepoint, TransportErrorCode, Version};

use super::Daemon;
use super::address::Address;
use crate::channel::{HEAD, Outlet, encode};
use crate::first_packet::HeldDatagram;
use crate::protocol::{Refusal, Refused};
use crate::registry::{AddressId, Place, ProcessId};
use crate::router::{Decision, Piece, Train, Way};

/// How many batches of an address are received before programs and others get their turn.
const BATCHES_PER_TURN: usize = 8;
/// The alert of a server that speaks none of the client's protocols (RFC 9001, Section 8.1).
const NO_APPLICATION_PROTOCOL: u8 = 120;

/// Where datagrams come from.
#[derive(Debug)]
pub(super) enum Source {
    /// A socket of the address.
    Socket(Arc<UdpSocket>),
    /// A worker of a program, which hands them back.
    Channel(ProcessId, u16),
}

/// A train on its way.
type Parcel<'a> = ([u8; HEAD], Cow<'a, [u8]>);

/// Trains by where they go.
#[derive(Default)]
pub(super) struct Outbox<'a> {
    places: Vec<(Place, Vec<Parcel<'a>>)>,
    /// Something was for nobody, or its connection ID does not say whose it is.
    others: bool,
}

impl<'a> Outbox<'a> {
    fn add(&mut self, place: Place, head: [u8; HEAD], bytes: Cow<'a, [u8]>) {
        match self.places.iter_mut().find(|(to, _)| *to == place) {
            Some((_, parcels)) => parcels.push((head, bytes)),
            None => self.places.push((place, vec![(head, bytes)])),
        }
    }

    /// Where all of it goes, if that is one worker and its connection IDs say so.
    fn destination(&self) -> Option<Place> {
        match &*self.places {
            [(place, _)] if !self.others => Some(*place),
            _ => None,
        }
    }
}

impl Daemon {
    /// Receives at an address what is there, for a while.
    pub(super) fn receive(&mut self, number: u32) {
        let Some(id) = self.address_with(number) else { return };
        // A socket that is lent may have room for what waits, and is not read for that.
        let address = self.addresses.get(&id).filter(|address| address.lending.to().is_none());
        if let Some(address) = address {
            let source = Source::Socket(Arc::clone(&address.socket));
            self.receive_some(id, &source);
        }
    }

    /// The same for a socket whose program has gone.
    pub(super) fn receive_spare(&mut self, number: u32, place: u16) {
        let Some(id) = self.address_with(number) else { return };
        let spare = self.addresses.get(&id).and_then(|address| address.steering.spare(place));
        if let Some(socket) = spare {
            self.receive_some(id, &Source::Socket(socket));
        }
    }

    fn address_with(&self, number: u32) -> Option<AddressId> {
        self.addresses.keys().copied().find(|id| id.number() == number)
    }

    /// Receives for a while. True if there may be more.
    pub(super) fn receive_some(&mut self, id: AddressId, source: &Source) -> bool {
        let Some(mut buffers) = self.buffers.take() else { return false };
        let mut more = true;
        for _ in 0..BATCHES_PER_TURN {
            more = self.receive_batch(id, source, &mut buffers);
            if !more {
                break;
            }
        }
        self.buffers = Some(buffers);
        more
    }

    /// True if there may be more.
    pub(super) fn receive_batch(
        &mut self,
        id: AddressId,
        source: &Source,
        buffers: &mut ReceiveBuffers,
    ) -> bool {
        let Some(address) = self.addresses.get(&id) else { return false };
        let port = address.socket.local_addr().port();
        let received = match source {
            Source::Socket(socket) => socket.receive(buffers),
            Source::Channel(process, worker) => match self.programs.outlet(*process, *worker) {
                Some(outlet) => receive_from_port(outlet, port, buffers),
                None => return false,
            },
        };
        let mut batch = match received {
            Ok(batch) => batch,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
            Err(error) => {
                self.on_refusal(id, source, &error);
                return false;
            }
        };
        let more = batch.more;
        let now = self.now();
        let mut outbox = Outbox::default();
        let mut trains = 0;
        for train in batch.trains() {
            let quicket_udp::Train { remote, local, ecn, stride, bytes, .. } = train;
            trains += 1;
            let bytes: &[u8] = bytes;
            if self.probe.as_deref() == Some(bytes) {
                self.probe = None;
                continue;
            }
            self.count_received(id, source, bytes.len().div_ceil(stride) as u64);
            let train = Train { address: id, remote, local, ecn, segment_size: stride, bytes };
            self.sort((now, now), &train, &mut outbox);
        }
        let to = outbox.destination();
        self.hand_over(id, outbox);
        // Behind all that was handed over. What is lent is left to who has it.
        let lent = trains > 0 && self.consider_lending(id, source, (to, trains));
        more && !lent
    }

    /// The system refuses to receive.
    fn on_refusal(&mut self, id: AddressId, source: &Source, error: &io::Error) {
        match source {
            Source::Socket(_) => {
                if let Some(address) = self.addresses.get(&id) {
                    self.complaints.warn(format_args!(
                        "the system refuses to receive on {}: {error}",
                        address.listen
                    ));
                }
            }
            // The program has closed its end, and may still be there.
            Source::Channel(process, worker) => {
                if let Some(outlet) = self.programs.outlet_mut(*process, *worker) {
                    outlet.set_hears(false);
                }
                self.programs.watch_channel(&self.events, *process, *worker);
            }
        }
    }

    fn count_received(&mut self, id: AddressId, source: &Source, datagrams: u64) {
        let Some(address) = self.addresses.get_mut(&id) else { return };
        match source {
            Source::Socket(_) => address.counters.received += datagrams,
            Source::Channel(..) => address.counters.handed_back += datagrams,
        }
    }

    /// Divides a train, which has waited since then, by where its datagrams go.
    pub(super) fn sort<'a>(
        &mut self,
        (now, since): (Time, Time),
        train: &Train<'a>,
        outbox: &mut Outbox<'a>,
    ) {
        let mut pieces = std::mem::take(&mut self.pieces);
        self.router.route(&mut self.registry, now, train, &mut pieces);
        let Train { remote, local, ecn, segment_size: stride, .. } = *train;
        let head = encode(&Arrival { remote, local, ecn, stride, len: 0 });
        for Piece { range, decision } in pieces.drain(..) {
            let bytes = train.bytes.get(range).unwrap_or_default();
            outbox.others |= !matches!(decision, Decision::Deliver { way: Way::Owner, .. });
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
                Decision::Wait { held } => {
                    held.into_iter().for_each(|held| self.park(since, train.address, held));
                    let bytes = bytes.to_vec();
                    self.park(since, train.address, HeldDatagram { remote, local, ecn, bytes });
                }
                Decision::Held | Decision::Drop(_) => {}
                answered => self.answer_datagram(train, bytes, &answered),
            }
        }
        self.pieces = pieces;
    }

    /// Answers in place of programs.
    fn answer_datagram(&mut self, train: &Train<'_>, datagram: &[u8], decision: &Decision) {
        let key = match decision {
            Decision::Reset { dcid, uid } => self.reset_key(train.address, *uid, dcid),
            _ => None,
        };
        let Some(address) = self.addresses.get(&train.address) else { return };
        let crypto = &self.tools.crypto;
        let random = &mut *self.tools.random;
        let answer = match decision {
            Decision::Reset { dcid, .. } => key.and_then(|key| {
                replies::stateless_reset(&**crypto, &key, dcid, datagram.len(), random)
            }),
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

    pub(super) fn hand_over(&mut self, id: AddressId, outbox: Outbox<'_>) {
        for (place, parcels) in outbox.places {
            let Some(process) = self.programs.owner(place.listener) else { continue };
            let Some(outlet) = self.programs.outlet_mut(process, place.worker) else { continue };
            let trains: Vec<_> = parcels.iter().map(|(head, bytes)| (*head, &**bytes)).collect();
            let was_full = outlet.is_full();
            let sent = outlet.send(&trains);
            if outlet.is_full() && !was_full {
                self.programs.watch_channel(&self.events, process, place.worker);
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

    /// Something happens in a channel.
    pub(super) fn on_channel(&mut self, process: ProcessId, worker: u16, events: EpollFlags) {
        if events.contains(EpollFlags::EPOLLOUT) {
            self.flush(process, worker);
        }
        if events.intersects(EpollFlags::EPOLLIN | EpollFlags::EPOLLHUP | EpollFlags::EPOLLERR) {
            let Some(program) = self.programs.get(process) else { return };
            if self.users.clerks.have_too_much(program.uid) {
                let text = "more descriptors came than can be closed".to_owned();
                return self.expel(process, Refused { why: Refusal::Full, text });
            }
            match program.seat.as_ref().map(|seat| (seat.address, seat.sender.is_some())) {
                Some((_, true)) => self.send_for(process, worker),
                Some((id, false)) => {
                    self.receive_some(id, &Source::Channel(process, worker));
                }
                None => {}
            }
            if self.programs.outlet(process, worker).is_some_and(Outlet::has_handed) {
                let text = "descriptors came with datagrams: nobody takes any".to_owned();
                self.expel(process, Refused { why: Refusal::Invalid, text });
            }
        }
    }

    /// There is room in a channel.
    fn flush(&mut self, process: ProcessId, worker: u16) {
        let Some(seat) = self.programs.seat_mut(process) else { return };
        let Some(outlet) = seat.outlets.get_mut(usize::from(worker)) else { return };
        let lost = outlet.flush();
        let (address, listener) = (seat.address, seat.listener);
        self.programs.watch_channel(&self.events, process, worker);
        self.count_lost(address, listener, lost);
    }
}

impl Address {
    /// Sends a datagram; what finds no room is lost.
    pub(super) fn send_to(&self, remote: SocketAddr, bytes: &[u8]) {
        let (ecn, segment_size) = (EcnCodepoint::NotEct, bytes.len());
        let _ = self.sender.send(&Outgoing { remote, local: None, ecn, segment_size, bytes });
    }

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
