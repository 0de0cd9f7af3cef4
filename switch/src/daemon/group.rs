//! The sockets of an address beside the first, whose they are, and what the kernel is told of that.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use nix::errno::Errno;
use quicket_bpf::{Door, OwnerProgram, ProgramError, attach_reuseport, detach_reuseport};
use quicket_engine::time::{Duration, Time};
use quicket_steering::{Configurations, Owner};
use quicket_udp::UdpSocket;

use crate::keep::{Keep, MAX_STEERED};
use crate::registry::{ListenerId, Place, RECYCLE_AFTER};

/// How long the socket of a program that has not come back is given to no other: as long as its number
/// rests.
const LATE: Duration = RECYCLE_AFTER;

/// The sockets of an address but the first, and what the kernel does with them.
#[derive(Debug)]
pub(super) struct Steering {
    /// How connection IDs are written and read.
    pub(super) configurations: Configurations,
    keep: Option<Keep>,
    /// In the order in which they were bound: the first one here has place 1.
    sockets: Vec<Steered>,
    /// So many of them are kept, and stay.
    kept: usize,
    /// Owners that the kernel knows.
    pub(super) owners: usize,
    /// Why the kernel does not help, if it does not.
    pub(super) trouble: Option<String>,
    /// Who gets first packets past the switch, and where.
    door: Option<(ListenerId, Door)>,
    /// With how many sockets there was no room for a door.
    cramped: Option<usize>,
    /// The kernel's program is that of a switch before this one: right for all that come back.
    pub(super) inherited: bool,
    /// When the kernel is told next that it is not any more.
    pub(super) settles_from: Time,
    /// When those who are late have lost theirs.
    late_until: Option<Time>,
}

/// A socket.
#[derive(Debug)]
pub(super) struct Steered {
    pub(super) socket: Arc<UdpSocket>,
    pub(super) holder: Holder,
}

/// Whose a socket is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Holder {
    Worker(Place),
    /// The switch reads it.
    Nobody,
    /// A program's that has yet to come back, perhaps.
    Away,
    /// The same once the time for that is over: the switch reads it, and gives it to nobody else yet.
    Late,
}

impl Holder {
    /// A worker of this listener.
    pub(super) fn is(self, listener: ListenerId) -> bool {
        matches!(self, Self::Worker(at) if at.listener == listener)
    }
}

impl Steering {
    pub(super) const fn new(configurations: Configurations) -> Self {
        Self {
            configurations,
            keep: None,
            sockets: Vec::new(),
            kept: 0,
            owners: 0,
            trouble: None,
            door: None,
            cramped: None,
            inherited: false,
            settles_from: Time::ZERO,
            late_until: None,
        }
    }

    /// Whether the address has sockets beside the first.
    pub(super) const fn is_on(&self) -> bool {
        self.keep.is_some()
    }

    /// How many.
    pub(super) const fn sockets(&self) -> usize {
        self.sockets.len()
    }

    /// The socket with a place.
    pub(super) fn at(&self, place: u16) -> Option<&Steered> {
        self.sockets.get(usize::from(place).checked_sub(1)?)
    }

    /// The socket with a place, if the switch reads it.
    pub(super) fn spare(&self, place: u16) -> Option<Arc<UdpSocket>> {
        let steered = self.at(place)?;
        let is_spare = matches!(steered.holder, Holder::Nobody | Holder::Late);
        is_spare.then(|| Arc::clone(&steered.socket))
    }

    pub(super) fn set_holder(&mut self, place: u16, holder: Holder) {
        // Who has gone has no door: its sockets are read here.
        self.door = self.door.filter(|(listener, door)| {
            let end = door.first.saturating_add(door.workers);
            !(door.first..end).contains(&place) || holder.is(*listener)
        });
        let at = usize::from(place).checked_sub(1);
        if let Some(steered) = at.and_then(|at| self.sockets.get_mut(at)) {
            steered.holder = holder;
        }
    }

    /// All with their places.
    pub(super) fn placed(&self) -> impl Iterator<Item = (u16, &Steered)> {
        (1..).zip(&self.sockets)
    }

    /// Places next to each other that nobody has, so that the kernel's program stays short.
    pub(super) fn free_run(&self, count: u16) -> Option<u16> {
        let is_free = |steered: &Steered| steered.holder == Holder::Nobody;
        let mut windows = (1..).zip(self.sockets.windows(count.into()));
        windows.find(|(_, run)| run.iter().all(is_free)).map(|(first, _)| first)
    }

    /// Binds further sockets beside `first`. The kernel knows nothing of them yet.
    pub(super) fn bind(&mut self, first: &UdpSocket, count: u16) -> io::Result<u16> {
        let room = MAX_STEERED.saturating_sub(self.sockets.len());
        if usize::from(count) > room {
            return Err(io::Error::other("the address has as many sockets as there may be"));
        }
        if self.keep.is_none() {
            first.share_port()?;
        }
        let before = self.sockets.len();
        for _ in 0..count {
            let socket = Arc::new(UdpSocket::new(quicket_udp::twin(first)?)?);
            self.sockets.push(Steered { socket, holder: Holder::Nobody });
        }
        Ok(u16::try_from(before).unwrap_or(u16::MAX) + 1)
    }

    /// Has the kernel know the living owners, and the door. Those for whom there is no room get what is theirs by
    /// their channels. Who may lose the door with that is to be looked after ([`Self::door`]).
    ///
    /// # Errors
    ///
    /// When the kernel refuses: it goes on as before, and so does the door.
    pub(super) fn attach(&mut self, first: &UdpSocket) -> io::Result<()> {
        let owners: Vec<_> = self.placed().filter_map(|(at, each)| each.owner(at)).collect();
        let mut count = owners.len();
        let before = (self.door, self.cramped);
        loop {
            let some = owners.get(..count).unwrap_or_default();
            let door = self.door.as_ref().map(|(_, door)| door);
            let attached = match OwnerProgram::among(self.configurations.all(), some, door) {
                Ok(program) => attach_reuseport(first, &program),
                Err(ProgramError::TooLong) => Err(Errno::ENOMEM.into()),
                Err(error) => Err(io::Error::other(error)),
            };
            let is_too_long =
                |error: &io::Error| error.raw_os_error() == Some(Errno::ENOMEM as i32);
            match attached {
                // Longer than the system takes (net.core.optmem_max).
                Err(error) if self.door.is_some() && is_too_long(&error) => {
                    (self.door, self.cramped) = (None, Some(owners.len()));
                }
                Err(error) if count > 0 && is_too_long(&error) => count /= 2,
                Err(error) => {
                    (self.door, self.cramped) = before;
                    return Err(error);
                }
                Ok(()) => {
                    (self.owners, self.inherited) = (count, false);
                    return Ok(());
                }
            }
        }
    }

    /// Who gets first packets past the switch, and where.
    pub(super) const fn door(&self) -> Option<(ListenerId, Door)> {
        self.door
    }

    /// Has the kernel bring a listener first packets, if there is room for that.
    pub(super) fn open(
        &mut self,
        first: &UdpSocket,
        listener: ListenerId,
        door: Door,
    ) -> io::Result<()> {
        let sockets = self.placed().filter(|(at, each)| each.owner(*at).is_some()).count();
        if self.cramped.is_some_and(|cramped| sockets >= cramped) {
            return Ok(());
        }
        self.cramped = None;
        self.door = Some((listener, door));
        self.attach(first).inspect_err(|_| self.door = None)
    }

    /// Has the kernel bring nobody first packets but the switch.
    pub(super) fn shut(&mut self, first: &UdpSocket) -> io::Result<()> {
        let open = self.door.take();
        self.attach(first).inspect_err(|_| self.door = open)
    }

    /// The sockets of a listener.
    pub(super) fn sockets_of(&self, listener: ListenerId) -> Vec<Arc<UdpSocket>> {
        let its = self.placed().filter(|(_, each)| each.holder.is(listener));
        its.map(|(_, each)| Arc::clone(&each.socket)).collect()
    }

    /// The kernel is to know nobody: everything goes to the first socket.
    pub(super) fn know_nobody(&mut self, first: &UdpSocket) -> io::Result<()> {
        let program = OwnerProgram::among(self.configurations.all(), &[], None);
        attach_reuseport(first, &program.map_err(io::Error::other)?)
    }

    /// Has all stay open in their order, whoever goes.
    pub(super) fn keep_all(&mut self) -> io::Result<()> {
        let keep = match self.keep.take() {
            Some(keep) => keep,
            None => Keep::new()?,
        };
        let keep = self.keep.insert(keep);
        for steered in self.sockets.iter().skip(self.kept) {
            keep.add(steered.socket.as_fd())?;
            self.kept += 1;
        }
        Ok(())
    }

    /// Both ends of what keeps them.
    pub(super) fn ends(&self) -> Option<[BorrowedFd<'_>; 2]> {
        self.keep.as_ref().map(Keep::ends)
    }

    /// The places of a listener's sockets.
    pub(super) fn places_of(&self, listener: ListenerId) -> impl Iterator<Item = u16> {
        self.placed().filter(move |(_, each)| each.holder.is(listener)).map(|(at, _)| at)
    }

    /// The time for programs to come back is over. Returns the places of those that have not.
    pub(super) fn settle(&mut self, now: Time) -> Vec<u16> {
        self.late_until.get_or_insert(now + LATE);
        self.turn(Holder::Away, Holder::Late)
    }

    /// Whoever is late for long does not come any more.
    pub(super) fn give_up_late(&mut self, now: Time) {
        if self.late_until.is_some_and(|until| until <= now) {
            self.late_until = None;
            self.turn(Holder::Late, Holder::Nobody);
        }
    }

    fn turn(&mut self, from: Holder, to: Holder) -> Vec<u16> {
        let placed = (1..).zip(&mut self.sockets);
        let turned = placed.filter(|(_, each)| each.holder == from).map(|(at, each)| {
            each.holder = to;
            at
        });
        turned.collect()
    }

    /// Closes what is not kept.
    pub(super) fn shrink(&mut self, first: &UdpSocket) {
        self.sockets.truncate(self.kept);
        if self.kept == 0 {
            self.keep = None;
            // Fails where nothing was attached.
            let _ = detach_reuseport(first);
            let _ = first.share_port_no_more();
        }
    }

    /// Takes over the sockets of the switch before.
    pub(super) fn adopt(&mut self, keep: Keep) -> io::Result<()> {
        let sockets = keep.sockets()?.into_iter().map(|socket| {
            Ok(Steered { socket: Arc::new(UdpSocket::new(socket)?), holder: Holder::Away })
        });
        self.sockets = sockets.collect::<io::Result<_>>()?;
        self.kept = self.sockets.len();
        (self.keep, self.inherited, self.trouble) = (Some(keep), true, None);
        Ok(())
    }

    /// The address ends: nothing is left at a socket that others may have.
    pub(super) fn end(&mut self, first: &UdpSocket) {
        if self.is_on() {
            self.kept = 0;
            self.shrink(first);
        }
    }
}

impl Steered {
    fn owner(&self, at: u16) -> Option<(Owner, u16)> {
        let Holder::Worker(Place { listener, worker }) = self.holder else { return None };
        Some((Owner { generation: listener.generation(), worker }, at))
    }
}

#[cfg(test)]
mod tests {
    use quicket_sim::test_crypto::TestCrypto;
    use quicket_steering::{Codec, ConfigId, Format, HashKey};

    use super::*;
    use crate::registry::{
        Attention, ListenAddress, Names, OWNER_BITS, ProcessId, Receipts, Registration, Registry,
    };

    const WORKERS: u16 = 128;

    /// More owners than there is room for.
    fn owners() -> Vec<Place> {
        let receipts = Receipts::new(Arc::new(TestCrypto), [5; 32], 0);
        let mut registry = Registry::new(Time::ZERO, 1000, receipts, false);
        let mut listener = |process| {
            let new = Registration {
                address: ListenAddress::new("192.0.2.1:443".parse().unwrap(), false),
                uid: 1000,
                process: ProcessId(process),
                program: process.to_string(),
                names: Names::new([], []).unwrap(),
                workers: WORKERS,
                reuse_port: true,
                replace: false,
                claim: None,
                family: None,
                attention: Attention::default(),
            };
            registry.register(Time::ZERO, new).unwrap().listener
        };
        let places = |listener| (0..WORKERS).rev().map(move |worker| Place { listener, worker });
        (1..=32).map(&mut listener).flat_map(places).collect()
    }

    #[test]
    fn where_the_kernel_refuses_the_door_is_as_before() {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let socket = Arc::new(UdpSocket::new(socket).unwrap());
        let format = Format::new(1, 9).unwrap().with_owner(OWNER_BITS).unwrap();
        let key = HashKey::new(*b"maskmask");
        let codec = Codec::new(ConfigId::new(0).unwrap(), format, None, key);
        let mut steering = Steering::new(Configurations::new(codec));
        let owners = owners();
        let door = Some((owners[0].listener, Door { first: 1, workers: WORKERS, key }));
        steering.sockets = owners
            .into_iter()
            .map(|place| Steered { socket: Arc::clone(&socket), holder: Holder::Worker(place) })
            .collect();
        steering.door = door;
        // It is alone at its port.
        let error = steering.attach(&socket).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(Errno::EINVAL as i32), "{error}");
        assert_eq!((steering.door(), steering.cramped, steering.owners), (door, None, 0));
        socket.share_port().unwrap();
        let _twin = quicket_udp::twin(&socket).unwrap();
        steering.attach(&socket).unwrap();
        assert_eq!((steering.door(), steering.cramped), (None, Some(steering.sockets())));
        assert!((1..steering.sockets()).contains(&steering.owners));
    }
}
