//! The part of the work that the kernel does, on one device (XDP).
//!
//! A snapshot becomes a program with its tables, which takes the place of the one before as a whole.
//! Connection IDs in plain text are in it from the start; those that are enciphered are added as
//! workers read them. What it does not know goes up to the workers.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::sync::{Arc, Mutex, PoisonError};

use quicket_bpf::{Counts, ForwardTable, Link, LoadError, Mode, Reading, Rules, Run, Target};
use quicket_steering::{ConfigId, ServerId};

use crate::config::{Config, MAX_SERVERS, XdpMode};
use crate::counters::{ServerCounters, add};
use crate::device::{self, Device};
use crate::flows::Flow;
use crate::inner;
use crate::snapshot::Snapshot;

/// A snapshot in the kernel.
#[derive(Debug)]
pub struct Offload {
    table: ForwardTable,
    plan: Plan,
}

/// All that a program is made of: of two snapshots with the same one, one program does for both.
#[derive(Debug, PartialEq, Eq)]
struct Plan {
    rules: Rules,
    /// In the order of the servers; none for one that the kernel cannot send to.
    targets: Vec<Option<Target>>,
    /// Server IDs, in order, and whose they are.
    ids: Vec<(ServerId, usize)>,
}

impl Offload {
    /// Loads a program for a device that decides as the snapshot does. `slot_of` says where packets
    /// for a server are counted, by its index.
    ///
    /// # Errors
    /// When the kernel does not take it.
    pub fn new(
        device: &Device,
        config: &Config,
        snapshot: &Snapshot,
        counts: &Counts,
        slot_of: impl Fn(usize) -> Option<u32>,
    ) -> Result<Self, LoadError> {
        Self::load(Plan::new(device, config, snapshot, slot_of), counts)
    }

    fn load(plan: Plan, counts: &Counts) -> Result<Self, LoadError> {
        let named = plan.ids.iter().filter_map(|(id, server)| {
            let target = plan.targets.get(*server).copied().flatten();
            target.map(|target| (id, target))
        });
        let table = ForwardTable::new(&plan.rules, named, counts)?;
        Ok(Self { table, plan })
    }

    /// How many servers only user space can send to: those with IPv6, or without a route when this
    /// was loaded.
    #[must_use]
    pub fn left_out(&self) -> usize {
        self.plan.targets.iter().filter(|target| target.is_none()).count()
    }

    /// Has the kernel forward a connection ID that user space has read; says whether it does now
    /// what it could not before.
    pub fn learn(&self, id: &[u8], server: usize) -> bool {
        let config = id.first().copied().and_then(ConfigId::of_first_octet);
        let enciphered = config.is_some_and(|config| {
            let mut readings = self.plan.rules.readings.iter();
            readings.any(|reading| reading.id == config.number() && reading.plain.is_none())
        });
        let target = self.plan.targets.get(server).copied().flatten().filter(|_| enciphered);
        // Without room in the kernel, datagrams go by user space as before.
        target.is_some_and(|target| self.table.learn(id, &target).is_ok())
    }

    /// Has the program look at a packet, from the header of Ethernet on, without sending it. Each
    /// repetition finds the packet as the one before has left it.
    ///
    /// # Errors
    /// What the kernel says of it.
    pub fn run(&self, packet: &[u8], repeat: u32) -> io::Result<Run> {
        self.table.run(packet, repeat)
    }
}

impl Plan {
    fn new(
        device: &Device,
        config: &Config,
        snapshot: &Snapshot,
        slot_of: impl Fn(usize) -> Option<u32>,
    ) -> Self {
        let listen = config.listen.iter().filter_map(|address| match address {
            SocketAddr::V4(address) => Some(*address),
            SocketAddr::V6(_) => None,
        });
        let (mac, egress) = (device.mac, device.egress.clone());
        let mut rules =
            Rules { mac, egress, listen: listen.collect(), id_len: 0, readings: Vec::new() };
        if let Some(reader) = &snapshot.reader {
            rules.id_len = reader.id_len();
            let codecs = (0..ConfigId::COUNT as u8).filter_map(ConfigId::new);
            for codec in codecs.filter_map(|id| reader.get(id)) {
                let id = codec.id().number();
                let plain = (!codec.is_enciphered()).then_some(codec.format().server_id_len());
                rules.readings.push(Reading { id, plain });
            }
        }
        let max_payload = snapshot.mtu.saturating_sub(overhead() as u16);
        let target = |(at, member): (usize, &crate::snapshot::Member)| {
            let SocketAddr::V4(to) = member.address else { return None };
            Some(Target { to, from: source(to)?, max_payload, slot: slot_of(at)? })
        };
        let targets: Vec<Option<Target>> =
            snapshot.members().iter().enumerate().map(target).collect();
        let mut ids: Vec<_> = snapshot.ids().map(|(id, server)| (*id, server)).collect();
        ids.sort_unstable_by(|one, other| one.0.as_slice().cmp(other.0.as_slice()));
        Self { rules, targets, ids }
    }
}

/// What a payload grows by where all addresses are of IPv4.
fn overhead() -> usize {
    let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
    inner::overhead(&Flow { client: any, local: any }, true)
}

/// The address of this host that packets to `to` come from; none without a route.
fn source(to: SocketAddrV4) -> Option<Ipv4Addr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    socket.connect(to).ok()?;
    match socket.local_addr().ok()?.ip() {
        IpAddr::V4(address) => Some(address),
        IpAddr::V6(_) => None,
    }
}

/// A device on which the kernel forwards.
#[derive(Debug)]
pub struct Kernel {
    link: Link,
    counted: Counted,
    /// What is attached.
    offload: Arc<Offload>,
}

/// What the kernel has forwarded.
#[derive(Debug)]
struct Counted {
    counts: Counts,
    slots: Mutex<Slots>,
}

/// Where packets for servers are counted, by their numbers.
#[derive(Debug, Default)]
struct Slots {
    used: HashMap<u32, Slot>,
    free: Vec<u32>,
    /// Slots that were given so far.
    given: u32,
    /// Packets and bytes of all that have been added to counters.
    total: [u64; 2],
}

#[derive(Debug)]
struct Slot {
    at: u32,
    counters: Arc<ServerCounters>,
    /// What has been added to the counters.
    seen: [u64; 2],
}

impl Kernel {
    /// Loads a snapshot and attaches it to the device that the file names; none if it names none.
    ///
    /// # Errors
    /// When there is no such device or the system does not forward what comes by it, when it has a
    /// program already, or a capability is missing; the message says what to do.
    pub fn attach(config: &Config, snapshot: &Snapshot) -> io::Result<Option<Self>> {
        let Some(xdp) = &config.xdp else { return Ok(None) };
        if !config.listen.iter().any(SocketAddr::is_ipv4) {
            return Err(io::Error::other(
                "no listen address over IPv4: the kernel has nothing to forward",
            ));
        }
        let device = Device::find(&xdp.device, xdp.mode)?;
        device::check_forwarding(&xdp.device)?;
        let counts = Counts::new(MAX_SERVERS as u32).map_err(refused)?;
        let counted = Counted { counts, slots: Mutex::default() };
        let offload = counted.load(counted.plan(&device, config, snapshot))?;
        let mode = match xdp.mode {
            XdpMode::Native => Mode::Native,
            XdpMode::Generic => Mode::Generic,
        };
        let link = offload.table.attach(device.index, mode).map_err(refused)?;
        Ok(Some(Self { link, counted, offload: Arc::new(offload) }))
    }

    /// Puts another snapshot in the place of the one that is attached, for the devices that there
    /// are now. Where the program would be the same it remains, with what it has learned.
    ///
    /// # Errors
    /// When the kernel does not take it; the one before is attached still.
    pub fn replace(&mut self, config: &Config, snapshot: &Snapshot) -> io::Result<()> {
        self.count();
        let xdp = config.xdp.as_ref().ok_or(io::ErrorKind::InvalidInput)?;
        let device = Device::find(&xdp.device, xdp.mode)?;
        let plan = self.counted.plan(&device, config, snapshot);
        let other = match plan == self.offload.plan {
            true => None,
            false => Some(Arc::new(self.counted.load(plan)?)),
        };
        // The same program again disturbs nothing, and says whether the device is gone.
        self.link.update(&other.as_ref().unwrap_or(&self.offload).table)?;
        self.offload = other.unwrap_or_else(|| self.offload.clone());
        Ok(())
    }

    /// What is attached.
    #[must_use]
    pub const fn offload(&self) -> &Arc<Offload> {
        &self.offload
    }

    /// Adds what has been forwarded to the counters of servers; packets and bytes of all so far.
    pub fn count(&self) -> [u64; 2] {
        self.counted.count()
    }

    /// Detaches the program, and counts what it has forwarded until then.
    #[must_use]
    pub fn detach(self) -> [u64; 2] {
        let Self { link, counted, .. } = self;
        drop(link);
        counted.count()
    }
}

impl Counted {
    fn count(&self) -> [u64; 2] {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let mut total = slots.total;
        for slot in slots.used.values_mut() {
            let Ok(now) = self.counts.of(slot.at) else { continue };
            let grown = [0, 1].map(|which: usize| now[which].wrapping_sub(slot.seen[which]));
            slot.seen = now;
            add(&slot.counters.sent, grown[0]);
            add(&slot.counters.sent_bytes, grown[1]);
            total = [total[0] + grown[0], total[1] + grown[1]];
        }
        slots.total = total;
        total
    }

    fn plan(&self, device: &Device, config: &Config, snapshot: &Snapshot) -> Plan {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        slots.follow(snapshot, &self.counts);
        let slot_of = |at: usize| {
            let member = snapshot.members().get(at)?;
            slots.used.get(&member.number).map(|slot| slot.at)
        };
        Plan::new(device, config, snapshot, slot_of)
    }

    fn load(&self, plan: Plan) -> io::Result<Offload> {
        Offload::load(plan, &self.counts).map_err(|error| match error {
            LoadError::System(error) => refused(error),
            error @ LoadError::Program(_) => io::Error::other(error),
        })
    }
}

impl Slots {
    /// Gives slots to servers that are new, and takes those of servers that are gone.
    fn follow(&mut self, snapshot: &Snapshot, counts: &Counts) {
        let numbers: HashMap<u32, &Arc<ServerCounters>> =
            snapshot.members().iter().map(|member| (member.number, &member.counters)).collect();
        let free = &mut self.free;
        self.used.retain(|number, slot| {
            let stays = numbers.contains_key(number);
            free.extend((!stays).then_some(slot.at));
            stays
        });
        for (number, counters) in numbers {
            let Slots { used, free, given, .. } = self;
            used.entry(number).or_insert_with(|| {
                let at = free.pop().unwrap_or_else(|| {
                    *given += 1;
                    *given - 1
                });
                Slot { at, counters: Arc::clone(counters), seen: counts.of(at).unwrap_or_default() }
            });
        }
    }
}

/// What to do about an error.
fn refused(error: io::Error) -> io::Error {
    let advice = match error.kind() {
        io::ErrorKind::PermissionDenied => "it takes CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON",
        io::ErrorKind::ResourceBusy => "the device has an XDP program of somebody else",
        io::ErrorKind::Unsupported => "the driver cannot: write \"xdp DEVICE generic\"",
        _ => "the kernel does not take the program",
    };
    io::Error::new(error.kind(), format!("{advice}: {error}"))
}
