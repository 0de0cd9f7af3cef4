//! Datagrams: received, decided about by the router, and handed over or answered.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use nix::sys::epoll::EpollFlags;
use quicket_engine::replies;
use quicket_engine::time::Time;
use quicket_udp::{Outgoing, ReceiveBuffers, UdpSocket, receive_from_port};
use quicket_wire::{EcnCodepoint, TransportErrorCode, Version};

use super::address::Address;
use super::issuer::Issuer;
use super::traffic::Outbox;
use super::users::Users;
use super::{Daemon, Tools};
use crate::channel::Outlet;
use crate::protocol::{Refusal, Refused};
use crate::registry::{AddressId, ProcessId};
use crate::router::{Decision, Train};

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
        let Some(mut buffers) = self.traffic.take_buffers() else { return false };
        let mut more = true;
        for _ in 0..BATCHES_PER_TURN {
            more = self.receive_batch(id, source, &mut buffers);
            if !more {
                break;
            }
        }
        self.traffic.return_buffers(buffers);
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
            if self.traffic.has_come(bytes) {
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
        times: (Time, Time),
        train: &Train<'a>,
        outbox: &mut Outbox<'a>,
    ) {
        let Self { traffic, registry, addresses, issuer, users, .. } = self;
        traffic.sort(registry, times, train, outbox, |registry, datagram, decision| {
            let Some(address) = addresses.get(&train.address) else { return };
            let is_vacant = || registry.is_vacant(train.address);
            if let Some(bytes) = answer_to(decision, datagram, address, is_vacant, issuer, users) {
                address.answer(train, &bytes);
            }
        });
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

/// What the switch says to a datagram in place of programs, if anything.
fn answer_to(
    decision: &Decision,
    datagram: &[u8],
    address: &Address,
    is_vacant: impl FnOnce() -> bool,
    issuer: &mut Issuer,
    users: &Users,
) -> Option<Vec<u8>> {
    match decision {
        Decision::Reset { dcid, uid } => {
            // The key of the stateless reset token of a connection ID that led to a program of this user.
            let ring = match users.is_tenant(*uid) {
                true => issuer.secrets_of_tenant(*uid)?.ring(),
                false => address.secrets.ring(),
            };
            let key = ring.ok()?.of(dcid.as_slice())?.reset;
            let Tools { crypto, random, .. } = &mut issuer.tools;
            replies::stateless_reset(&**crypto, &key, dcid, datagram.len(), &mut **random)
        }
        Decision::NegotiateVersion => {
            let random = &mut *issuer.tools.random;
            replies::version_negotiation(datagram, Version::SUPPORTED, random)
        }
        Decision::Refuse { version, dcid, scid } => {
            let code = match is_vacant() {
                true => TransportErrorCode::CONNECTION_REFUSED,
                false => TransportErrorCode::crypto(NO_APPLICATION_PROTOCOL),
            };
            replies::refusal(Arc::clone(&issuer.tools.crypto), *version, dcid, scid, code)
        }
        _ => None,
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
