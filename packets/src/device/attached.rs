//! One device: its program, a socket for each queue, and what attaching has changed.

mod begin;
mod gone;

use std::collections::HashSet;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use quicket_bpf::{TupleProgram, Tuples};
use quicket_ring::Lie;
use rustix::event::epoll::EventData;
use rustix::io::Errno;

use begin::{check, hook, sockets};

use super::altered::{Altered, Loopback};
use super::netlink::{Link, Netlink};
use super::offloads::{self, Offloads};
use super::queue::Queue;
use super::record::Record;
use super::trains::{self, Leaving, Trains};
use super::vlans::{Member, ServedVlan, refuse_hidden};
use super::xsk::MAX_FRAME;
use crate::batch::Batch;
use crate::counters::{Counters, Reason};
use crate::frame::{self, ETHERNET_LEN, MAX_TAGS, MIN_FRAME};

/// ARPHRD_ETHER (linux/if_arp.h).
const ETHERNET: u16 = 1;
/// Octets of the header of Ethernet with all tags.
const MAX_HEADER: u32 = (ETHERNET_LEN + 4 * MAX_TAGS) as u32;

/// The longest packet.
const MAX_PACKET: u32 = MAX_FRAME - MAX_HEADER;

/// Where the program of a device meets frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// In the driver, if it can; else behind it.
    #[default]
    Best,
    /// In the driver, or not at all.
    Native,
    /// Behind the driver: slower, and of any device.
    Generic,
}

/// A device as others see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attached {
    /// Its name.
    pub name: String,
    /// Its number.
    pub index: u32,
    /// The program is in the driver; otherwise behind it.
    pub is_native: bool,
    /// The driver reads and writes the memory of frames itself; otherwise the kernel copies them.
    pub is_zero_copy: bool,
    /// Queues, each of which has a socket.
    pub queues: u32,
    /// The longest packet in octets. Of `lo`, what the switch takes and sends by it.
    pub mtu: u32,
    /// What attaching has switched off, and detaching switches on again.
    pub changed: Offloads,
    /// What attaching has set on `lo`, and detaching sets back.
    pub loopback: Loopback,
    /// The VLANs on it that are served, in the order of their numbers.
    pub vlans: Vec<ServedVlan>,
    /// What became of frames: `sent` are those of ports that left by the device, `received` those that came by
    /// it and were delivered. Of dropped ones, [`Reason::Full`] counts those that were to leave; what was for
    /// a port without room is counted there. With [`Reason::Length`] are those for ports that were longer than frames of the switch,
    /// which the kernel has dropped.
    pub counters: Counters,
}

/// Where a frame goes next.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hop {
    /// The neighbour.
    pub(super) mac: [u8; 6],
    /// The longest packet of the route, where it is known.
    pub(super) mtu: Option<u32>,
    /// The VLAN that it leaves in.
    pub(super) vlan: Option<Member>,
}

/// A device that is attached. It is detached on drop.
#[derive(Debug)]
pub(crate) struct Device {
    pub(super) link: Link,
    program: TupleProgram,
    /// None only while this is dropped.
    hook: Option<quicket_bpf::Link>,
    queues: Vec<Queue>,
    /// Where frames of TCP are put together.
    trains: Option<Trains>,
    /// The system has not refused to take them so.
    may_train: bool,
    /// Those get copies of what ICMP says by the device: one of IPv4, one of IPv6.
    errors: [OwnedFd; 2],
    /// Which of them is read first the next time, so that a flood by one keeps nothing of the other away.
    next_errors: usize,
    /// The VLANs on it that are served, or may be, if the kernel has refused a change of them.
    vlans: Vec<Member>,
    /// The devices whose errors are heard: this one, and those of its VLANs that are not attached themselves.
    heard: Vec<u32>,
    /// It is the device of a VLAN, or above one.
    is_in_vlan: bool,
    /// How often in a row the kernel has refused such a change.
    refusals: u32,
    is_native: bool,
    /// That has been seen ([`Device::has_gone`]).
    has_gone: bool,
    altered: Altered,
    pub(super) counters: Counters,
}

impl Device {
    /// Attaches a program to a device of this thread's network namespace, and a socket to each of its queues. What that alters
    /// is noted in `record`.
    ///
    /// # Errors
    ///
    /// What stands in the way, and what to do.
    pub(crate) fn attach(
        name: &str,
        mode: Mode,
        tuples: &Arc<Tuples>,
        record: &Arc<Record>,
    ) -> io::Result<Self> {
        let failed = |what: &str, error: io::Error| {
            io::Error::new(error.kind(), format!("cannot attach {name}: {what}{error}"))
        };
        let mut tables = Netlink::open()?;
        let link = tables.link(name).map(bounded).map_err(|error| {
            match error.raw_os_error().map(Errno::from_raw_os_error) {
                Some(Errno::NODEV) => io::Error::new(
                    io::ErrorKind::NotFound,
                    format!(
                        "cannot attach {name}: there is no such device in the network namespace of the switch; ip \
                         link shows which there are"
                    ),
                ),
                _ => failed("", error),
            }
        })?;
        check(&link)?;
        refuse_hidden(&link, &tables.links().map_err(|error| failed("", error))?)?;
        if matches!(tables.link_of(link.index), Ok((_, true))) {
            // Before it is altered under that program.
            return Err(failed("it has an XDP program of somebody else: ", Errno::BUSY.into()));
        }
        // Whatever comes now, the drop undoes this.
        let mut altered =
            Altered::new(&link, &mut tables, record).map_err(|error| failed("", error))?;
        let program = match link.is_loopback() {
            true => TupleProgram::of_loopback(tuples),
            false => TupleProgram::new(link.mac, tuples),
        };
        let program = program.map_err(io::Error::other)?;
        let (hook, is_native) = hook(&program, &link, mode).map_err(|error| {
            let advice = match error.kind() {
                io::ErrorKind::ResourceBusy => "it has an XDP program of somebody else: ",
                // The kernel refuses it below one that is there (`dev_xdp_attach` of net/core/dev.c).
                io::ErrorKind::AlreadyExists => {
                    "a device above it, as that of a VLAN, has an XDP program: "
                }
                io::ErrorKind::PermissionDenied => "it takes CAP_BPF and CAP_NET_ADMIN: ",
                io::ErrorKind::Unsupported => "its driver has no XDP: ",
                _ => "the kernel does not take the program: ",
            };
            failed(advice, error)
        })?;
        let queues = sockets(&program, &link, is_native)
            .map_err(|error| failed("no socket of AF_XDP: ", error))?;
        let error_socket = |is_v4| quicket_bpf::error_socket(link.index, is_v4);
        let errors = match (error_socket(true), error_socket(false)) {
            (Ok(v4), Ok(v6)) => [v4, v6],
            (Err(error), _) | (_, Err(error)) => {
                return Err(failed("no packet socket for errors of ICMP: ", error));
            }
        };
        altered.look()?;
        let (hook, heard, counters) = (Some(hook), vec![link.index], Counters::default());
        // Whether frames are put together is found out when the device is taken in ([`Device::update`]).
        Ok(Self {
            link,
            program,
            hook,
            queues,
            trains: None,
            may_train: true,
            errors,
            next_errors: 0,
            vlans: Vec::new(),
            heard,
            is_in_vlan: false,
            refusals: 0,
            is_native,
            has_gone: false,
            altered,
            counters,
        })
    }

    pub(crate) fn describe(&self) -> Attached {
        Attached {
            name: self.link.name.clone(),
            index: self.link.index,
            is_native: self.is_native,
            is_zero_copy: self.queues.iter().all(|queue| queue.socket.is_zero_copy()),
            queues: self.queues.len() as u32,
            mtu: self.link.mtu,
            changed: self.altered.offloads(),
            loopback: self.altered.loopback(),
            // Known to all devices together ([`Network::vlans`]).
            vlans: Vec::new(),
            counters: self.counters(),
        }
    }

    /// With what the kernel has dropped before anybody here saw it.
    fn counters(&self) -> Counters {
        let mut counters = self.counters;
        let too_long = self.queues.iter().map(|queue| queue.socket.too_long()).sum();
        counters.drop_many(Reason::Length, too_long);
        counters
    }

    /// Has all queues watched, or, while the device `is_active` and so is looked at, not those that frames leave by. Returns
    /// whether it could be done.
    pub(super) fn watch(
        &mut self,
        events: BorrowedFd<'_>,
        data: EventData,
        is_active: bool,
    ) -> bool {
        self.queues.iter_mut().all(|queue| queue.watch(events, data, is_active))
    }

    /// Readable when frames have come, one for each queue. All are watched at first.
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.queues.iter().map(|queue| queue.socket.as_fd())
    }

    /// Readable when ICMP has said something.
    pub(crate) fn error_sockets(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.errors.iter().map(AsFd::as_fd)
    }

    /// What it is called.
    pub(crate) fn name(&self) -> &str {
        &self.link.name
    }

    /// Its number.
    pub(crate) const fn index(&self) -> u32 {
        self.link.index
    }

    /// Copies the next error of ICMP, of both versions of IP in turns. Returns the length of the frame, and by which device it came:
    /// this one, or that of a VLAN on it; none if there are no more.
    pub(super) fn take_error(&mut self, to: &mut [u8]) -> Option<(u16, u32)> {
        let first = self.next_errors;
        self.next_errors = 1 - first;
        [first, 1 - first].into_iter().find_map(|at| {
            let socket = self.errors.get(at)?;
            // An error is that the device is down; what comes once it is up is told again.
            let (len, by) = quicket_bpf::receive_error(socket.as_fd(), to).ok()?;
            // One that is longer than all frames of devices is cut off, and not in order.
            Some((u16::try_from(len).unwrap_or(u16::MAX), by))
        })
    }

    /// Serves these VLANs of it from now on, and leaves others to the system. `attached` are all devices that are.
    ///
    /// # Errors
    ///
    /// When the kernel does not take it: this may be tried again.
    pub(super) fn serve(&mut self, vlans: Vec<Member>, attached: &[u32]) -> io::Result<()> {
        // An attached one has errors of its own.
        let others = vlans.iter().map(|member| member.device).filter(|it| !attached.contains(it));
        let heard: Vec<u32> = [self.link.index].into_iter().chain(others).collect();
        if self.refusals == 0 && (&vlans, &heard) == (&self.vlans, &self.heard) {
            return Ok(());
        }
        self.refusals += 1;
        let numbers: HashSet<u16> = vlans.iter().map(|member| member.vlan.number).collect();
        self.vlans.retain(|member| !numbers.contains(&member.vlan.number));
        let gone: Vec<u16> = self.vlans.iter().map(|member| member.vlan.number).collect();
        self.vlans.extend(&vlans);
        for number in gone {
            self.program.set_vlan(number, None)?;
        }
        for Member { vlan, mac, .. } in &vlans {
            self.program.set_vlan(vlan.number, Some(*mac))?;
        }
        for socket in &self.errors {
            quicket_bpf::hear_errors_of(socket.as_fd(), &heard)?;
        }
        (self.vlans, self.heard, self.refusals) = (vlans, heard, 0);
        Ok(())
    }

    /// How often in a row the kernel has refused to serve its VLANs.
    pub(super) const fn refusals(&self) -> u32 {
        self.refusals
    }

    /// It is the device of a VLAN or above one, or is not.
    pub(super) const fn set_in_vlan(&mut self, is_in_vlan: bool) {
        self.is_in_vlan = is_in_vlan;
    }

    pub(super) fn queues(&self) -> usize {
        self.queues.len()
    }

    /// Whether senders at the other end leave checksums to a device that there is not.
    pub(super) const fn leaves_checksums(&self) -> bool {
        self.link.virtual_kind.is_some() || self.link.is_loopback()
    }

    /// The device is so now.
    ///
    /// # Errors
    ///
    /// When it has another address of Ethernet and the kernel does not take a program for it, or when it takes tags out of
    /// frames again and cannot be kept from it.
    pub(super) fn update(&mut self, link: Link) -> io::Result<()> {
        if link.mac != self.link.mac {
            self.program.readdress(link.mac).map_err(io::Error::other)?;
            if let Some(hook) = &self.hook {
                hook.update(self.program.program())?;
            }
        }
        self.altered.rename(&link.name);
        self.altered.keep()?;
        self.link = bounded(link);
        self.retrain()
    }

    /// As [`Altered::keep`].
    pub(super) fn keep(&mut self) -> io::Result<()> {
        self.altered.keep()
    }

    /// As [`Altered::is_unsure`].
    pub(super) const fn is_unsure(&self) -> bool {
        self.altered.is_unsure()
    }

    /// Begins or ends to put frames together, as the device is now.
    ///
    /// # Errors
    ///
    /// When the device has gone.
    pub(super) fn retrain(&mut self) -> io::Result<()> {
        if !self.may_train || !pays(&self.link, &self.queues) {
            self.part(false)?;
            self.trains = None;
            return Ok(());
        }
        if self.trains.is_none() {
            match Trains::new(self.link.index) {
                Ok(trains) => self.trains = Some(trains),
                Err(error) => self.give_up_trains(&error),
            }
        }
        if let Some(trains) = &mut self.trains {
            trains.limit(self.link.gso_size, self.link.gso_segments);
        }
        Ok(())
    }

    fn give_up_trains(&mut self, error: &dyn std::fmt::Display) {
        let name = &self.link.name;
        log::warn!(
            "segments leave {name} one by one, as a packet socket cannot send them: {error}"
        );
        (self.trains, self.may_train) = (None, false);
    }

    /// How many frames have come by a queue.
    #[inline]
    pub(super) fn ready(&self, queue: usize) -> Result<u32, Lie> {
        self.queues.get(queue).map_or(Ok(0), |queue| queue.socket.ready())
    }

    /// Copies frames that have come by a queue, as [`Batch::fill`].
    #[inline]
    pub(super) fn fill(
        &mut self,
        queue: usize,
        (from, to): (u32, u32),
        batch: &mut Batch,
    ) -> Result<u32, Lie> {
        let Some(Queue { socket, .. }) = self.queues.get(queue) else { return Ok(to) };
        let mut is_lie = false;
        let get = |at| socket.get(at);
        let at = batch.fill((from, to), &mut self.counters, get, |frame, _, to| {
            match socket.load(frame, to) {
                Ok(true) => Ok(()),
                Ok(false) => Err(Reason::Length),
                Err(Lie) => {
                    is_lie = true;
                    Err(Reason::Descriptor)
                }
            }
        });
        if is_lie { Err(Lie) } else { Ok(at) }
    }

    /// Gives them back.
    pub(super) fn release(&mut self, queue: usize, n: u32) -> Result<(), Lie> {
        self.queues.get_mut(queue).map_or(Ok(()), |queue| queue.socket.release(n))
    }

    /// Sends a frame to a neighbour by one of the queues: `flow` chooses it. With a VLAN it gets the tag of that.
    #[inline]
    pub(super) fn send(
        &mut self,
        frame: &mut [u8],
        hop: Hop,
        flow: u32,
    ) -> Result<Result<(), Reason>, Lie> {
        let Hop { mac, mtu, vlan } = hop;
        let mtu = mtu.unwrap_or(u32::MAX).min(vlan.map_or(u32::MAX, |member| member.mtu));
        let longest = mtu.min(self.link.mtu) as usize;
        let is_padded = frame.len() <= MIN_FRAME;
        if packet_len(frame) > longest && !is_padded {
            return Ok(Err(Reason::Mtu));
        }
        // By the device of a VLAN that keeps the system's header as it is (reorder_hdr off), such a tag would leave in place of the VLAN's.
        if self.is_in_vlan && frame::tag(frame, 0).is_none() {
            return Ok(Err(Reason::Vlan));
        }
        let Some(addresses) = frame.first_chunk_mut::<12>() else { return Ok(Err(Reason::Length)) };
        addresses[..6].copy_from_slice(&mac);
        addresses[6..].copy_from_slice(&vlan.map_or(self.link.mac, |member| member.mac));
        let at = flow as usize % self.queues.len().max(1);
        if let Some(member) = vlan {
            let Some(tag) = frame::tag(frame, member.vlan.number) else {
                return Ok(Err(Reason::Vlan));
            };
            let (addresses, rest) = frame.split_at(12);
            return self.put([addresses, &tag, rest], at);
        }
        if self.trains.is_some() {
            return self.join(frame, at);
        }
        self.put([frame], at)
    }

    /// Puts the parts of a frame into the ring of a queue.
    #[inline]
    fn put<const N: usize>(
        &mut self,
        parts: [&[u8]; N],
        at: usize,
    ) -> Result<Result<(), Reason>, Lie> {
        let Some(queue) = self.queues.get_mut(at) else { return Ok(Err(Reason::Route)) };
        if !queue.put(parts)? {
            self.counters.drop_one(Reason::Full);
            return Ok(Err(Reason::Full));
        }
        self.counters.sent += 1;
        Ok(Ok(()))
    }

    /// Puts a frame of TCP behind others of its flow. What else there is leaves before it.
    fn join(&mut self, frame: &[u8], at: usize) -> Result<Result<(), Reason>, Lie> {
        let is_behind = self.queues.get(at).is_none_or(|queue| queue.is_behind);
        let segment = if is_behind { None } else { trains::read(frame) };
        let (Some(trains), Some(segment)) = (&mut self.trains, segment) else {
            self.part(false).map_err(|_| Lie)?;
            return self.put([frame], at);
        };
        if trains.append(frame, &segment, at) {
            return Ok(Ok(()));
        }
        // An error is that the device has gone.
        self.part(false).map_err(|_| Lie)?;
        match self.trains.as_mut().is_some_and(|trains| trains.begin(frame, segment, at)) {
            true => Ok(Ok(())),
            false => self.put([frame], at),
        }
    }

    /// Has leave what has been put together. What there is no room for waits for the next turn if it `may_wait`. What the
    /// system does not take is counted here: its port knows no more of it.
    ///
    /// # Errors
    ///
    /// When the device has gone.
    fn part(&mut self, may_wait: bool) -> Result<(), Errno> {
        let Self { trains: Some(trains), queues, counters, .. } = self else { return Ok(()) };
        let (at, n) = match trains.close() {
            None => return Ok(()),
            Some(Leaving::One(at, frame)) => {
                let Some(queue) = queues.get_mut(at) else { return Ok(()) };
                match queue.put([frame]).map_err(|Lie| Errno::IO)? {
                    true => counters.sent += 1,
                    false => counters.drop_one(Reason::Full),
                }
                return Ok(());
            }
            Some(Leaving::Many(at, n)) => (at, n),
        };
        // What went before is not overtaken.
        let sent = match queues.get_mut(at).map(Queue::drain).transpose()? {
            Some(false) => Err(Errno::AGAIN),
            _ => trains.send(),
        };
        match sent {
            Ok(()) => counters.sent += u64::from(n),
            Err(error @ (Errno::NXIO | Errno::NODEV)) => return Err(error),
            Err(Errno::AGAIN | Errno::NOBUFS) if may_wait && trains.wait(at, n) => {}
            Err(error) => {
                counters.drop_many(Reason::Full, n.into());
                // It would not take the next ones, either.
                if let Errno::INVAL | Errno::PERM | Errno::MSGSIZE | Errno::OPNOTSUPP = error {
                    self.give_up_trains(&error);
                }
            }
        }
        Ok(())
    }

    /// Has the kernel send what is there. Returns whether something is left.
    pub(super) fn flush(&mut self) -> Result<bool, Errno> {
        self.part(true)?;
        let mut is_owed = self.trains.as_ref().is_some_and(Trains::is_waiting);
        for queue in self.queues.iter_mut().filter(|queue| queue.is_owed) {
            is_owed |= queue.flush()?;
        }
        Ok(is_owed)
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // Its program says that, as long as it is there.
        if self.has_gone() {
            self.altered.give_up();
        }
        // First the program, so that all goes to the system; then its sockets; then what was changed, as a field.
        self.hook = None;
        self.queues.clear();
    }
}

/// Octets behind the header of Ethernet and its tags.
#[inline]
fn packet_len(frame: &[u8]) -> usize {
    let mut at = 12;
    for _ in 0..MAX_TAGS {
        if matches!(frame.get(at..at + 2), Some([0x81, 0] | [0x88, 0xa8])) {
            at += 4;
        }
    }
    frame.len().saturating_sub(at + 2)
}

/// As the switch uses it: the MTU of the loopback device is that of all local programs, and stays as it is.
fn bounded(mut link: Link) -> Link {
    if link.is_loopback() {
        link.mtu = link.mtu.min(MAX_PACKET);
    }
    link
}

/// Whether it pays to put frames together: where the kernel copies them to a veth, and no queue of the system's stands before
/// that, in which they could be overtaken by those that go by AF_XDP. Of several queues of the device, both ways would take
/// different ones.
fn pays(link: &Link, queues: &[Queue]) -> bool {
    let [Queue { socket, .. }] = queues else { return false };
    link.virtual_kind.as_deref() == Some("veth")
        && link.is_queueless
        && !socket.is_zero_copy()
        // A device that cannot say has those that there were at first.
        && !matches!(offloads::transmit_queues(&link.name), Ok(2..))
}

#[cfg(test)]
#[path = "attached_tests.rs"]
mod tests;
