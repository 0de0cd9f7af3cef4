//! The part of the work that the kernel does, on one device (XDP).
//!
//! A snapshot becomes a program with its tables, which takes the place of the one before as a whole.
//! Connection IDs in plain text are in it from the start; those that are enciphered are added as
//! workers read them. What it does not know goes up to the workers.

mod plan;
mod slots;

use std::io;
use std::sync::Arc;

use quicket_bpf::{Counts, ForwardTable, Link, LoadError, Mode, Run};
use quicket_steering::ConfigId;

use crate::config::{Config, XdpMode};
use crate::device::Device;
use crate::snapshot::Snapshot;

use self::plan::{Plan, forwarding};
use self::slots::Counted;

/// A snapshot in the kernel.
#[derive(Debug)]
pub struct Offload {
    table: ForwardTable,
    plan: Plan,
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
        Self::load(Plan::new(device, config, snapshot, slot_of, |_| true), counts)
    }

    fn load(plan: Plan, counts: &Counts) -> Result<Self, LoadError> {
        let named = plan.ids.iter().filter_map(|(id, server)| {
            let target = plan.targets.get(*server).copied().flatten();
            target.map(|target| (id, target))
        });
        let table = ForwardTable::new(&plan.rules, named, counts)?;
        Ok(Self { table, plan })
    }

    /// How many servers only user space can send to: those without a route when this was loaded, or
    /// with a version of IP that the system did not forward.
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
        self.table.program().run(packet, repeat)
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

impl Kernel {
    /// Loads a snapshot and attaches it to the device that the file names; none if it names none.
    ///
    /// # Errors
    /// When there is no such device or the system does not forward what comes by it, when it has a
    /// program already, or a capability is missing; the message says what to do.
    pub fn attach(config: &Config, snapshot: &Snapshot) -> io::Result<Option<Self>> {
        let Some(xdp) = &config.xdp else { return Ok(None) };
        let device = Device::find(&xdp.device, xdp.mode)?;
        let counted = Counted::new().map_err(refused)?;
        let offload = load(&counted, plan(&counted, &device, config, snapshot)?)?;
        let mode = match xdp.mode {
            XdpMode::Native => Mode::Native,
            XdpMode::Generic => Mode::Generic,
        };
        let link = offload.table.program().attach(device.index, mode).map_err(refused)?;
        Ok(Some(Self { link, counted, offload: Arc::new(offload) }))
    }

    /// Puts another snapshot in the place of the one that is attached, for the devices that there
    /// are now. Where the program would be the same it remains, with what it has learned.
    ///
    /// # Errors
    /// When the kernel does not take it; the one before is attached still.
    pub fn replace(&mut self, config: &Config, snapshot: &Snapshot) -> io::Result<()> {
        let xdp = config.xdp.as_ref().ok_or(io::ErrorKind::InvalidInput)?;
        let device = Device::find(&xdp.device, xdp.mode)?;
        let plan = plan(&self.counted, &device, config, snapshot)?;
        let other = match plan == self.offload.plan {
            true => None,
            false => Some(Arc::new(load(&self.counted, plan)?)),
        };
        // The same program again disturbs nothing, and says whether the device is gone.
        self.link.update(other.as_ref().unwrap_or(&self.offload).table.program())?;
        self.offload = other.unwrap_or_else(|| self.offload.clone());
        self.counted.settle(snapshot);
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

fn plan(
    counted: &Counted,
    device: &Device,
    config: &Config,
    snapshot: &Snapshot,
) -> io::Result<Plan> {
    let name = config.xdp.as_ref().map_or("", |xdp| xdp.device.as_str());
    let forwards = forwarding(name, config)?;
    let slots = counted.prepare(snapshot);
    let slot_of = |at: usize| slots.get(&snapshot.members().get(at)?.number).copied();
    Ok(Plan::new(device, config, snapshot, slot_of, forwards))
}

fn load(counted: &Counted, plan: Plan) -> io::Result<Offload> {
    Offload::load(plan, counted.counts()).map_err(|error| match error {
        LoadError::System(error) => refused(error),
        error @ LoadError::Program(_) => io::Error::other(error),
    })
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
