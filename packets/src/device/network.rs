//! All devices, for the forwarder.

mod shared;

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use quicket_bpf::{TupleKey, Tuples};
use rustix::event::epoll::EventData;
use shared::Shared;

use super::attached::{Attached, Device, Hop};
use super::checksum;
use super::netlink::{Change, Link, Links, Netlink, is_none};
use super::outside::{Entrance, Outside, is_loopback};
use super::vlans::{Arrival, ServedVlan, Vlans, refuse_hidden};
use super::ways::{Way, Ways};
use crate::batch::{Batch, Rule};
use crate::counters::{Counters, Reason};
use crate::forwarder::IDLE_TURNS;
use crate::frame::{self, Ends, TAG_LEN};
use crate::registry::{MAX_TUPLES, Registry};
use crate::tuple::Tuple;

/// Devices that are attached.
pub const MAX_DEVICES: usize = 16;
/// How often a port has the system's tables looked into in one turn.
const LOOKS: u32 = 8;
/// How often it is looked whether devices still send by as many queues: the system tells nobody when that changes.
const QUEUES_TIME: Duration = Duration::from_secs(1);
/// How often in a row the kernel may refuse to serve a device's VLANs, a second after one another, until that is detached.
const MAX_REFUSALS: u32 = 3;

/// Devices, and what they share. Without any, a frame costs nothing here.
#[derive(Debug)]
pub(crate) struct Network {
    /// There from the first device on.
    shared: Option<Shared>,
    devices: Vec<Device>,
    /// The time of this turn.
    now: Instant,
    /// When the queues of devices were looked at.
    looked: Instant,
    /// How often the port whose turn it is may still have the tables looked into.
    looks: u32,
    /// Turns without frames.
    idle: u32,
    is_active: bool,
    /// Devices that are gone, or whose rings cannot be: their numbers.
    broken: Vec<u32>,
}

impl Network {
    pub(crate) fn new() -> Self {
        Self {
            shared: None,
            devices: Vec::new(),
            now: Instant::now(),
            looked: Instant::now(),
            looks: 0,
            idle: 0,
            is_active: false,
            broken: Vec::new(),
        }
    }

    /// Makes ready for devices; `all` are the tuples that there are. Returns what [`Device::attach`] takes.
    ///
    /// # Errors
    ///
    /// When the kernel has no memory, or a capability is missing.
    pub(crate) fn prepare(&mut self, all: impl Iterator<Item = Tuple>) -> io::Result<Arc<Tuples>> {
        if let Some(shared) = &self.shared {
            return Ok(Arc::clone(&shared.tuples));
        }
        let tuples = Arc::new(Tuples::new(MAX_TUPLES as u32)?);
        for tuple in all {
            tuples.add(&key(tuple))?;
        }
        let mut ways = Ways::open()?;
        // Changes are heard from before it is looked.
        let links = Links::open()?;
        let addresses = ways.tables().addresses()?;
        let outside = Outside::new(&addresses);
        // Those are looked at with each device.
        let (vlans, known) = (Vlans::default(), Vec::new());
        let shared = Shared {
            tuples,
            ways,
            links,
            outside,
            vlans,
            known,
            addresses,
            is_owed: true,
            is_relinked: true,
            asked: Instant::now(),
            is_refused: false,
        };
        Ok(Arc::clone(&self.shared.insert(shared).tuples))
    }

    /// Readable when devices have changed ([`Network::hear`]); there after [`Network::prepare`].
    pub(crate) fn links(&self) -> Option<BorrowedFd<'_>> {
        self.shared.as_ref().map(|shared| shared.links.as_fd())
    }

    /// Takes a device in, as it is now: nobody has heard of changes since it was looked at to be attached.
    ///
    /// # Errors
    ///
    /// When it has gone, or what there is on it cannot be served: it is among those to be removed then.
    pub(crate) fn add(&mut self, mut device: Device) -> io::Result<()> {
        let index = device.link.index;
        let tables = self.shared.as_mut().map(|shared| shared.ways.tables());
        let is_well = !device.has_gone()
            && match tables.and_then(|tables| look(tables, index)) {
                Some(Change::Is(link)) => device.update(link).is_ok(),
                Some(_) => false,
                // The system does not say.
                None => device.retrain().is_ok(),
            };
        self.devices.push(device);
        self.forget();
        self.rouse();
        if let Some(shared) = &mut self.shared {
            // What is on this device has not been followed yet.
            (shared.is_relinked, shared.is_refused) = (true, true);
        }
        let result = self.look();
        let is_served = self.devices.last().is_some_and(|device| device.refusals() == 0);
        if is_well && is_served && result.is_ok() && !self.broken.contains(&index) {
            return Ok(());
        }
        self.broken.push(index);
        result?;
        Err(io::Error::other("the device has changed meanwhile, or its VLANs cannot be served"))
    }

    /// Looks up where the addresses of this host are, and which VLANs come by devices. Until that is known, none is served. A list that
    /// changes while the kernel makes it says nothing: what there was stays until there is a whole one.
    ///
    /// # Errors
    ///
    /// What the system says.
    fn look(&mut self) -> io::Result<()> {
        let Some(shared) = &mut self.shared else { return Ok(()) };
        let was_known = shared.vlans.are_known();
        match shared.look() {
            Ok(true) => self.arrange(),
            Ok(false) => {}
            Err(error) if was_known && error.kind() == io::ErrorKind::Interrupted => {
                log::debug!("{error}");
                return Err(error);
            }
            Err(error) => {
                shared.vlans.forget();
                if was_known {
                    log::warn!("the addresses and VLANs of this host are not known: {error}");
                }
                self.serve();
                return Err(error);
            }
        }
        Ok(())
    }

    /// Follows what is known of this host, and which devices are attached.
    fn arrange(&mut self) {
        let Self { shared: Some(shared), devices, .. } = self else { return };
        let attached: Vec<u32> = devices.iter().map(|device| device.link.index).collect();
        shared.outside = Outside::new(&shared.addresses);
        shared.vlans.follow(&shared.known, &shared.addresses, &attached);
        self.serve();
    }

    /// Has devices serve the VLANs that are known.
    fn serve(&mut self) {
        let Self { shared: Some(shared), devices, broken, .. } = self else { return };
        let attached: Vec<u32> = devices.iter().map(|device| device.link.index).collect();
        for device in devices {
            let index = device.link.index;
            if broken.contains(&index) {
                continue;
            }
            if device.is_unsure() {
                if let Err(error) = device.keep() {
                    log::warn!("the tags of VLANs of {} are hidden: {error}", device.link.name);
                    broken.push(index);
                    continue;
                }
                if device.is_unsure() {
                    shared.refuse();
                }
            }
            if let Err(error) = refuse_hidden(&device.link, &shared.known) {
                log::warn!("{error}");
                broken.push(index);
                continue;
            }
            device.set_in_vlan(shared.vlans.has_device(index));
            if let Err(error) = device.serve(shared.vlans.on(index), &attached) {
                log::warn!("the VLANs of {} cannot be served: {error}", device.link.name);
                shared.refuse();
                if device.refusals() >= MAX_REFUSALS {
                    broken.push(index);
                }
            }
        }
    }

    /// Lets a device go, which is detached by its drop.
    pub(crate) fn remove(&mut self, index: u32) -> Option<Device> {
        let at = self.devices.iter().position(|device| device.link.index == index)?;
        // What was said of it is not said of another one that gets its number.
        self.broken.retain(|broken| *broken != index);
        self.forget();
        let device = self.devices.swap_remove(at);
        // What is not known is looked at later.
        if self.shared.as_ref().is_some_and(|shared| !shared.is_owed) {
            self.arrange();
        }
        Some(device)
    }

    fn forget(&mut self) {
        if let Some(shared) = &mut self.shared {
            shared.ways.forget();
        }
    }

    #[cfg(test)]
    pub(crate) fn all(&self) -> impl Iterator<Item = Attached> {
        self.devices.iter().map(Device::describe)
    }

    /// The device of a place in the list.
    pub(crate) fn nth(&self, at: usize) -> Option<Attached> {
        self.devices.get(at).map(Device::describe)
    }

    /// The VLANs that are served on a device, from that number on, in their order; none without such a device.
    pub(crate) fn vlans(&self, index: u32, from: u16) -> Option<Vec<ServedVlan>> {
        let is_here = self.devices.iter().any(|device| device.link.index == index);
        self.shared.as_ref().filter(|_| is_here).map(|shared| shared.served(index, from))
    }

    /// The number of a device of that name, or that has it beside its own (`altname` of ip-link(8)).
    pub(crate) fn find(&mut self, name: &str) -> Option<u32> {
        if let Some(found) = self.devices.iter().find(|device| device.link.name == name) {
            return Some(found.link.index);
        }
        let index = self.shared.as_mut()?.ways.tables().link(name).ok()?.index;
        self.devices.iter().any(|device| device.link.index == index).then_some(index)
    }

    /// Whether the device is attached that has this name, or has it beside its own (`altname` of ip-link(8)).
    pub(crate) fn is_attached(&mut self, name: &str) -> bool {
        let Some(shared) = &mut self.shared else { return false };
        let Ok(link) = shared.ways.tables().link(name) else { return false };
        let mut same = self.devices.iter_mut().filter(|device| device.link.index == link.index);
        // One that has gone, of which nobody has heard yet, is another one.
        same.any(|device| !device.has_gone())
    }

    pub(crate) const fn len(&self) -> usize {
        self.devices.len()
    }

    /// What a device is to frames that come by it; none without such a device.
    pub(crate) fn entrance(&self, index: u32) -> Option<Entrance<'_>> {
        let device = self.devices.iter().find(|device| device.link.index == index)?;
        Some(self.shared.as_ref()?.outside.by(device.link.is_loopback()))
    }

    /// Whom a frame may reach that the system says to have come by a device, which is the attached one, or that of a VLAN on it; none
    /// without such a device.
    pub(crate) fn arrival(&self, index: u32, by: u32) -> Option<Arrival<'_>> {
        let device = self.devices.iter().find(|device| device.link.index == index)?;
        Some(self.shared.as_ref()?.vlans.by(&device.link, by))
    }

    /// Frames to that tuple come to the switch.
    ///
    /// # Errors
    ///
    /// When the kernel does not take it, though there is room.
    pub(crate) fn add_tuple(&self, tuple: Tuple) -> io::Result<()> {
        self.shared.as_ref().map_or(Ok(()), |shared| shared.tuples.add(&key(tuple)))
    }

    /// Frames to that tuple go to the system.
    pub(crate) fn remove_tuple(&self, tuple: Tuple) {
        if let Some(shared) = &self.shared {
            // It was there, or nobody hears of it.
            let _ = shared.tuples.remove(&key(tuple));
        }
    }

    /// What has become of devices. Their program follows a change of their address of Ethernet.
    pub(crate) fn hear(&mut self) {
        let Some(shared) = &mut self.shared else { return };
        let mut changes = shared.links.hear();
        let is_all = changes.contains(&Change::Unknown);
        let known = |index: u32| shared.known.iter().find(|link| link.index == index);
        let is_relinked = changes.iter().any(|change| match change {
            Change::Unknown => true,
            Change::Is(link) => known(link.index) != Some(link),
            Change::Gone(index) => known(*index).is_some(),
            Change::Addresses | Change::Queueing(_) => false,
        });
        let is_moved = is_relinked || changes.contains(&Change::Addresses);
        for device in &mut self.devices {
            let index = device.link.index;
            let before = changes.len();
            let is_gone = is_all || changes.contains(&Change::Gone(index));
            changes.retain(|change| change.device() != Some(index));
            // One that has gone may have been another one, which had its number before.
            if is_gone && device.has_gone() {
                changes.push(Change::Gone(index));
            } else if is_gone || changes.len() != before {
                // As it is now: a name of before may be another one's.
                changes.extend(look(shared.ways.tables(), index));
            }
        }
        if !changes.is_empty() {
            shared.ways.forget();
        }
        for change in changes {
            let Some(index) = change.device() else { continue };
            let here = self.devices.iter_mut().find(|device| device.link.index == index);
            let Some(device) = here else { continue };
            let is_well = match change {
                Change::Is(link) => device.update(link).is_ok(),
                _ => false,
            };
            if !is_well {
                self.broken.push(index);
            }
        }
        if self.devices.iter().any(Device::is_unsure) {
            shared.refuse();
        }
        if is_moved {
            shared.is_owed = true;
            shared.is_relinked |= is_relinked;
        }
        self.catch_up();
    }

    /// Devices to be removed.
    pub(crate) fn take_broken(&mut self) -> Option<u32> {
        self.broken.pop()
    }

    /// Whether devices want to be looked at in the next turn. Otherwise their descriptors become readable.
    pub(crate) const fn is_active(&self) -> bool {
        self.is_active
    }

    /// To be called before somebody waits for `events`, which the descriptors of devices are in: has them tell of frames, unless devices are
    /// looked at anyway.
    pub(crate) fn watch(&mut self, events: BorrowedFd<'_>, data: EventData) {
        let is_active = self.is_active;
        if !self.devices.iter_mut().all(|device| device.watch(events, data, is_active)) {
            // For want of memory.
            self.rouse();
        }
    }

    /// Looks at devices again.
    pub(crate) const fn rouse(&mut self) {
        (self.is_active, self.idle) = (true, 0);
    }

    /// All queues of all devices: the places that others take.
    pub(crate) fn places(&self) -> usize {
        if self.is_active { self.devices.iter().map(Device::queues).sum() } else { 0 }
    }

    /// The device and queue of a place.
    #[inline]
    fn place(devices: &mut [Device], mut place: usize) -> Option<(&mut Device, usize)> {
        for device in devices {
            if place < device.queues() {
                return Some((device, place));
            }
            place -= device.queues();
        }
        None
    }

    /// How many frames have come at a place.
    #[inline]
    pub(crate) fn ready(&mut self, place: usize) -> u32 {
        let Some((device, queue)) = Self::place(&mut self.devices, place) else { return 0 };
        device.ready(queue).unwrap_or_else(|_| {
            self.broken.push(device.link.index);
            0
        })
    }

    /// Copies frames that have come at a place, checks them, and finds out to whom they go ([`Batch`]); what is not for a
    /// port is counted. Returns the position behind them.
    #[inline]
    pub(crate) fn receive(
        &mut self,
        place: usize,
        (from, to): (u32, u32),
        batch: &mut Batch,
        registry: &Registry,
    ) -> u32 {
        let Some((device, queue)) = Self::place(&mut self.devices, place) else { return to };
        let at = device.fill(queue, (from, to), batch).unwrap_or_else(|_| {
            self.broken.push(device.link.index);
            to
        });
        let Some(Shared { outside, vlans, .. }) = &self.shared else { return at };
        let leaves_checksums = device.leaves_checksums();
        // Who is here does not come from outside, and nobody else by the loopback device.
        let entrance = Some(outside.by(device.link.is_loopback()));
        let rule = Rule { sender: None, may_leave: false, entrance };
        let Device { link, counters, .. } = device;
        let untagged = vlans.untagged(link);
        batch.check(rule, registry, counters, |frame| {
            let (frame, arrival, less) = match frame::vlan(frame) {
                None => (frame, untagged, 0),
                // A port sees no tags of VLANs: where its addresses are says in which it is.
                Some(number) => {
                    let arrival = vlans.tagged(link.index, number)?;
                    (frame::take_out_tag(frame)?, arrival, TAG_LEN as u16)
                }
            };
            let ends = match frame::check(frame) {
                Err(Reason::Checksum) if leaves_checksums && checksum::complete(frame) => {
                    frame::check(frame)
                }
                result => result,
            }?;
            arrival.admit(ends.destination.address)?;
            Ok((ends, less))
        });
        at
    }

    /// What became of the frames of the device of a place.
    #[inline]
    pub(crate) fn counters(&mut self, place: usize) -> Option<&mut Counters> {
        Self::place(&mut self.devices, place).map(|(device, _)| &mut device.counters)
    }

    /// Copies the next error of ICMP that has come by a device. Returns the first place of the device, the length of the
    /// frame, and by which device of the system's it came; none if there are no more.
    pub(crate) fn take_error(&mut self, index: u32, to: &mut [u8]) -> Option<(usize, u16, u32)> {
        let mut place = 0;
        for device in &mut self.devices {
            if device.link.index == index {
                let (len, by) = device.take_error(to)?;
                return Some((place, len, by));
            }
            place += device.queues();
        }
        None
    }

    /// Gives back the first frames that have come at a place.
    pub(crate) fn release(&mut self, place: usize, n: u32) {
        let Some((device, queue)) = Self::place(&mut self.devices, place) else { return };
        if device.release(queue, n).is_err() {
            self.broken.push(device.link.index);
        }
        self.rouse();
    }

    /// The beginning of a turn.
    #[inline]
    pub(crate) fn begin(&mut self) {
        if !self.devices.is_empty() {
            self.now = Instant::now();
            if self.now.duration_since(self.looked) > QUEUES_TIME {
                self.look_at_queues();
            }
            self.catch_up();
        }
    }

    fn look_at_queues(&mut self) {
        self.looked = self.now;
        for device in &mut self.devices {
            if device.retrain().is_err() {
                self.broken.push(device.link.index);
            }
        }
    }

    /// Asks the system again, if that is owed and time.
    #[inline]
    fn catch_up(&mut self) {
        if self.shared.as_ref().and_then(Shared::patience).is_some_and(|left| left.is_zero()) {
            // What cannot be known now is looked at later.
            let _ = self.look();
        }
    }

    /// How long who waits for other events may wait until the next turn, if not without end.
    pub(crate) fn patience(&self) -> Option<Duration> {
        let shared = self.shared.as_ref().filter(|_| !self.devices.is_empty())?;
        shared.patience()
    }

    /// The turn of another port.
    #[inline]
    pub(crate) const fn begin_port(&mut self) {
        self.looks = LOOKS;
    }

    /// Sends a frame that has been checked, as the system would send it. `flow` is the same for all of one port.
    #[inline]
    pub(crate) fn send(&mut self, frame: &mut [u8], ends: &Ends, flow: u32) -> Result<(), Reason> {
        let Some(shared) = self.shared.as_mut().filter(|_| !self.devices.is_empty()) else {
            return Err(Reason::Destination);
        };
        let stays_here = is_loopback(ends.source.address);
        if stays_here && !self.devices.iter().any(|device| device.link.is_loopback()) {
            return Err(Reason::Route);
        }
        let (index, mac, mtu) = match shared.ways.find(ends, self.now, &mut self.looks) {
            Way::By { device, mac, mtu } => (device, mac, mtu),
            Way::Closed(reason) => return Err(reason),
        };
        // What leaves by the device of a VLAN leaves by the one below, unless it is attached itself.
        let is_attached = self.devices.iter().any(|device| device.link.index == index);
        let vlan = if is_attached { None } else { shared.vlans.of_device(index) };
        let index = vlan.map_or(index, |member| member.vlan.below);
        let here = self.devices.iter_mut().find(|device| device.link.index == index);
        let device = here.filter(|device| !stays_here || device.link.is_loopback());
        let device = device.ok_or(Reason::Route)?;
        (self.is_active, self.idle) = (true, 0);
        device.send(frame, Hop { mac, mtu, vlan }, flow).unwrap_or_else(|_| {
            self.broken.push(index);
            Err(Reason::Route)
        })
    }

    /// Has all leave that is to: the end of a turn.
    pub(crate) fn end(&mut self) {
        if !self.is_active {
            return;
        }
        let mut is_owed = false;
        for device in &mut self.devices {
            match device.flush() {
                Ok(owed) => is_owed |= owed,
                Err(_) => self.broken.push(device.link.index),
            }
        }
        self.idle += 1;
        if self.idle > IDLE_TURNS && !is_owed {
            self.is_active = false;
        }
    }
}

/// How a device is now. It may be called something else than before. None if the system does not say.
fn look(tables: &mut Netlink, index: u32) -> Option<Change> {
    said(index, tables.link_of(index).map(|(link, _)| link))
}

fn said(index: u32, answer: io::Result<Link>) -> Option<Change> {
    match answer {
        Ok(link) => Some(Change::Is(link)),
        Err(error) if is_none(&error) => Some(Change::Gone(index)),
        Err(error) => {
            log::warn!("how device {index} is now is not known: {error}");
            None
        }
    }
}

fn key(Tuple { address, protocol, port }: Tuple) -> TupleKey {
    TupleKey::new(address, protocol, port)
}

#[cfg(test)]
#[path = "network_tests.rs"]
mod tests;
