//! The kernel's choice among programs: a socket for each of their workers at the address, and a program
//! that finds the one of a connection's owner. `docs/switch.md` says what for.
//!
//! All that names no living owner goes to the first socket, which the switch reads. Sockets stay where they
//! are ([`Keep`]); one whose program has gone is read by the switch until the next one gets it.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::epoll::EpollFlags;
use quicket_engine::time::Duration;

use super::Daemon;
use super::events::Token;
use super::group::{Holder, Steering};
use super::route::Source;
use crate::keep::{Keep, MAX_KEPT};
use crate::registry::{AddressId, ListenerId, Place};

/// How long the datagram may take that the switch sends to itself, in milliseconds.
const PROOF_MILLIS: u8 = 20;
/// How often a socket is read until it is empty: it holds 4 MiB, and what is brought to a socket of nobody has an end.
const MOST_TURNS: usize = 1024;
/// Between two attempts to have the kernel know who has come back.
const AGAIN: Duration = Duration::from_millis(250);

impl Daemon {
    /// Gives each worker of a program that has just come a socket of its own. Returns their places; none if
    /// all comes by channels.
    pub(super) fn give_sockets(&mut self, listener: ListenerId, workers: u16) -> Vec<u16> {
        let id = listener.address();
        let kept: usize = self.addresses.values().map(|each| each.steering.sockets()).sum();
        let Some(address) = self.addresses.get_mut(&id) else { return Vec::new() };
        let first = Arc::clone(&address.socket);
        let steering = &mut address.steering;
        if self.doors.are_kept_shut() || steering.inherited {
            return Vec::new();
        }
        let free = steering.free_run(workers);
        // Then others have the address, who would get nothing any more.
        if !steering.is_on() && first.shares_port().unwrap_or(true) {
            steering.trouble = Some("the socket that it was given shares its port".to_owned());
            return Vec::new();
        }
        let bound = match free {
            Some(free) => Ok(free),
            None if kept + usize::from(workers) > MAX_KEPT => {
                Err(io::Error::other("the switch keeps as many sockets as it may"))
            }
            None => steering.bind(&first, workers),
        };
        let given = bound.and_then(|at| self.prepare(listener, (at, workers), free.is_some()));
        let Some(address) = self.addresses.get_mut(&id) else { return Vec::new() };
        let steering = &mut address.steering;
        steering.trouble = given.as_ref().err().map(ToString::to_string);
        if let Err(error) = &given {
            log::debug!("{}: the kernel does not help: {error}", address.listen);
            if free.is_none() {
                steering.shrink(&first);
            }
            self.release_sockets(listener);
            self.steer_anew(id);
        }
        given.unwrap_or_default()
    }

    /// Has the kernel bring a listener's datagrams to sockets, new ones or those of somebody who has gone.
    fn prepare(
        &mut self,
        listener: ListenerId,
        (at, count): (u16, u16),
        known: bool,
    ) -> io::Result<Vec<u16>> {
        let id = listener.address();
        let gone = || io::Error::from(io::ErrorKind::NotFound);
        let places: Vec<_> = (at..).take(count.into()).collect();
        if known {
            // Read until now; what is there still is the switch's to read.
            for place in &places {
                self.unwatch(id, *place);
                self.drain_spare(id, *place);
            }
        }
        let address = self.addresses.get_mut(&id).ok_or_else(gone)?;
        for (worker, place) in (0..).zip(&places) {
            address.steering.set_holder(*place, Holder::Worker(Place { listener, worker }));
        }
        self.attach(id)?;
        if known {
            return Ok(places);
        }
        for (worker, place) in (0..).zip(&places) {
            self.prove(Place { listener, worker }, *place)?;
        }
        let steering = &mut self.addresses.get_mut(&id).ok_or_else(gone)?.steering;
        steering.keep_all()?;
        Ok(places)
    }

    /// Makes sure that the kernel counts sockets as the switch does, and reads connection IDs alike: others may
    /// have bound some, and filters may be in the way. The datagram goes from the address to itself.
    fn prove(&mut self, to: Place, at: u16) -> io::Result<()> {
        let id = to.listener.address();
        let gone = || io::Error::from(io::ErrorKind::NotFound);
        let address = self.addresses.get(&id).ok_or_else(gone)?;
        let socket = Arc::clone(&address.steering.at(at).ok_or_else(gone)?.socket);
        let probe = self.issuer.probe(address, to).ok_or_else(gone)?;
        for own in address.own_addresses() {
            address.send_to(own, &probe);
        }
        self.traffic.expect(probe);
        let source = Source::Socket(Arc::clone(&socket));
        for _ in 0..PROOF_MILLIS {
            self.receive_some(id, &source);
            if !self.traffic.is_expecting() {
                break;
            }
            let _ = poll(&mut [PollFd::new(socket.readable(), PollFlags::POLLIN)], 1_u8);
        }
        // One that is late is known if it comes to the switch.
        match self.traffic.is_expecting() {
            false => Ok(()),
            true => Err(io::Error::other(
                "a datagram from the address to itself did not come to the socket that it was for",
            )),
        }
    }

    /// A program comes back with the sockets that the switch before had given it. False if another one has
    /// them by now.
    pub(super) fn take_sockets_back(
        &mut self,
        listener: ListenerId,
        places: &[u16],
        keep: Option<Keep>,
    ) -> bool {
        let id = listener.address();
        let Some(address) = self.addresses.get_mut(&id) else { return false };
        let steering = &mut address.steering;
        if let (false, Some(keep)) = (steering.is_on(), keep) {
            let adopted = steering.adopt(keep);
            if let Err(error) = adopted {
                log::warn!("{}: every datagram is forwarded: {error}", address.listen);
                steering.trouble = Some(error.to_string());
                // It would go on as the switch before has told it, and hear of no changes.
                if let Err(error) = steering.know_nobody(&address.socket) {
                    log::warn!(
                        "{}: the kernel does not hear who is there: {error}",
                        address.listen
                    );
                }
            }
        }
        if !steering.is_on() {
            // It reads them, and hands back what is not its own.
            return true;
        }
        let holders = places.iter().map(|place| steering.at(*place).map(|each| each.holder));
        let is_taken = |holder| matches!(holder, None | Some(Holder::Worker(_)));
        if holders.into_iter().any(is_taken) {
            return false;
        }
        for (worker, place) in (0..).zip(places) {
            self.unwatch(id, *place);
            if let Some(address) = self.addresses.get_mut(&id) {
                let holder = Holder::Worker(Place { listener, worker });
                address.steering.set_holder(*place, holder);
            }
        }
        self.steer_anew(id);
        true
    }

    /// Whether a listener has sockets of its own.
    pub(super) fn is_steered(&self, listener: ListenerId) -> bool {
        let address = self.addresses.get(&listener.address());
        address.is_some_and(|address| address.steering.places_of(listener).next().is_some())
    }

    /// A listener has gone: its sockets are the switch's to read.
    pub(super) fn release_sockets(&mut self, listener: ListenerId) {
        let id = listener.address();
        let Some(address) = self.addresses.get_mut(&id) else { return };
        let its: Vec<_> = address.steering.places_of(listener).collect();
        if its.is_empty() {
            return;
        }
        for place in &its {
            address.steering.set_holder(*place, Holder::Nobody);
        }
        self.steer_anew(id);
        its.into_iter().for_each(|place| self.watch_spare(id, place));
    }

    /// Has the kernel know who is there now; not as long as programs come back from the switch before.
    pub(super) fn steer_anew(&mut self, id: AddressId) {
        let Some(address) = self.addresses.get(&id) else { return };
        if !address.steering.is_on() || address.steering.inherited {
            return;
        }
        let listen = address.listen;
        // What it knew before leads to sockets that are read, by programs that hand back what is not theirs.
        if let Err(error) = self.attach(id) {
            log::warn!("{listen}: the kernel does not hear who is there: {error}");
        }
    }

    /// The same where it can fail. Who loses the door for want of room is looked after as if it had been shut.
    fn attach(&mut self, id: AddressId) -> io::Result<()> {
        let Some(address) = self.addresses.get_mut(&id) else { return Ok(()) };
        let open = address.steering.door();
        address.steering.attach(&address.socket)?;
        if let (Some((listener, _)), None) = (open, address.steering.door()) {
            self.end_door(id, listener);
        }
        Ok(())
    }

    /// Programs have had their time to come back: the kernel hears who is there, and the switch reads the
    /// sockets of those who are not.
    pub(super) fn end_inheritance(&mut self) {
        let now = self.now();
        self.addresses.values_mut().for_each(|address| address.steering.give_up_late(now));
        let inherited = self.addresses.iter().filter(|(_, address)| {
            address.steering.inherited && address.steering.settles_from <= now
        });
        for id in inherited.map(|(id, _)| *id).collect::<Vec<_>>() {
            if let Err(error) = self.settle_inheritance(id) {
                self.complaints.warn(format_args!(
                    "the kernel goes on as the switch before this one has told it: {error}"
                ));
            }
        }
    }

    /// The same for one address, if it is time.
    ///
    /// # Errors
    ///
    /// When the kernel refuses: it goes on as the switch before this one has told it, which may have had a door open, and
    /// is told again after a while.
    pub(super) fn settle_inheritance(&mut self, id: AddressId) -> io::Result<()> {
        let now = self.now();
        let Some(address) = self.addresses.get_mut(&id) else { return Ok(()) };
        if !address.steering.inherited || !self.registry.is_settled(now, id) {
            return Ok(());
        }
        address.steering.settles_from = now + AGAIN;
        let late = address.steering.settle(now);
        late.into_iter().for_each(|place| self.watch_spare(id, place));
        self.attach(id)?;
        // The switch before this one may have had a door open, for whoever it was.
        self.begin_quiet(id, &self.noting_at(id));
        self.doors.mind();
        Ok(())
    }

    /// Both ends of what keeps an address's sockets, and the sockets with these places.
    pub(super) fn handles<'a>(
        &'a self,
        id: AddressId,
        places: &'a [u16],
    ) -> impl Iterator<Item = std::os::fd::BorrowedFd<'a>> {
        let steering = self.addresses.get(&id).map(|address| &address.steering);
        let steering = steering.filter(|_| !places.is_empty());
        let ends = steering.and_then(Steering::ends);
        let sockets = places.iter().filter_map(move |place| steering?.at(*place));
        ends.into_iter().flatten().chain(sockets.map(|each| each.socket.as_fd()))
    }

    fn watch_spare(&mut self, id: AddressId, place: u16) {
        let Some(socket) = self.addresses.get(&id).and_then(|each| each.steering.spare(place))
        else {
            return;
        };
        let token = Token::Spare(id.number(), place);
        if let Err(error) = self.events.add(&socket, EpollFlags::EPOLLIN, token) {
            log::warn!("a socket whose program has gone is not read: {error}");
        }
    }

    fn unwatch(&mut self, id: AddressId, place: u16) {
        let address = self.addresses.get(&id);
        if let Some(steered) = address.and_then(|address| address.steering.at(place)) {
            // It may not be watched.
            let _ = self.events.remove(&steered.socket);
        }
    }

    /// The address ends. Whoever has its descriptors still must not be heard under its number.
    pub(super) fn unwatch_all(&mut self, id: AddressId) {
        let sockets = self.addresses.get(&id).map_or(0, |address| address.steering.sockets());
        (1..).take(sockets).for_each(|place| self.unwatch(id, place));
    }

    fn drain_spare(&mut self, id: AddressId, place: u16) {
        let spare = self.addresses.get(&id).and_then(|address| address.steering.spare(place));
        if let Some(socket) = spare {
            // All of it: the next one takes for its own what it finds there. Nothing new is brought there.
            let source = Source::Socket(socket);
            for _ in 0..MOST_TURNS {
                if !self.receive_some(id, &source) {
                    break;
                }
            }
        }
    }
}
