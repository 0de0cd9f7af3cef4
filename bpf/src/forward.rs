//! Forwarding a balancer's datagrams in the kernel, before it makes sockets' packets of them: the
//! program, its tables, and what attaches it to a device.
//!
//! It decides what it can decide as user space would, and leaves everything else to it: other
//! protocols, fragments, connection IDs that name no server, packets that are too long or whose way is
//! not known. A program cannot do AES; connection IDs that are enciphered are in a table
//! once user space has read them ([`ForwardTable::learn`]).

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use quicket_steering::ServerId;

use crate::cuckoo::{self, BUCKET, Buckets};
use crate::forward_program::{self, Maps};
use crate::sys::{self, Map, SharedArray, Table};
use crate::xdp::XdpProgram;
use crate::{LoadError, ProgramError};

/// The longest connection ID and what it is filled up to in a table.
pub(crate) const ID_KEY: usize = 24;
/// A server: see [`Ways::target`].
pub(crate) const TARGET: usize = cuckoo::VALUE;
/// Both ends of a way over IPv6.
const WAY: usize = 32;
/// Slots of one processor's counters are a multiple: no two processors write to one line of a cache.
const SLOTS: u32 = 4;

/// The most devices that a program sends by.
pub const MAX_EGRESS: usize = 16;

/// Connection IDs that are remembered as user space has read them.
const LEARNED: u32 = 1 << 16;

/// How the connection IDs of a configuration are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// Its number, 0 to 6.
    pub id: u8,
    /// The octets of the server ID in plain text; none if it is enciphered.
    pub plain: Option<usize>,
}

/// What a program goes by that does not change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// The device's own address of Ethernet. Frames to others go up as they came: a program meets
    /// them before the system has discarded those for other machines.
    pub mac: [u8; 6],
    /// The devices that frames may leave by, of which the first [`MAX_EGRESS`] count. They have to
    /// be of type Ethernet and able to send frames of programs: the kernel drops a frame for another
    /// device without an error.
    pub egress: Vec<u32>,
    /// The addresses that datagrams come to.
    pub listen: Vec<SocketAddr>,
    /// The length of connection IDs, at most 20 octets.
    pub id_len: usize,
    /// The configurations.
    pub readings: Vec<Reading>,
}

/// Between which addresses encapsulated packets go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Over IPv4.
    V4 {
        /// The server.
        to: Ipv4Addr,
        /// This host.
        from: Ipv4Addr,
    },
    /// Over IPv6.
    V6 {
        /// The server.
        to: Ipv6Addr,
        /// This host.
        from: Ipv6Addr,
    },
}

/// Where datagrams go that name a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// The way there, in GUE.
    pub way: Way,
    /// The server's port.
    pub port: u16,
    /// The longest payload of a client over IPv4, in bytes; over IPv6 it is 20 less.
    pub max_payload: u16,
    /// Where they are counted.
    pub slot: u32,
}

/// The ways over IPv6 that a program knows, numbered: both addresses do not fit into a target.
#[derive(Debug, Default)]
struct Ways(BTreeMap<[u8; WAY], u32>);

impl Ways {
    fn octets(to: &Ipv6Addr, from: &Ipv6Addr) -> [u8; WAY] {
        let mut octets = [0; WAY];
        let both = to.octets().into_iter().chain(from.octets());
        octets.iter_mut().zip(both).for_each(|(octet, from)| *octet = from);
        octets
    }

    fn add(&mut self, way: &Way) {
        if let Way::V6 { to, from } = way {
            let next = self.0.len() as u32;
            self.0.entry(Self::octets(to, from)).or_insert(next);
        }
    }

    /// What a program finds of a target: to, from, the port in network byte order, the longest
    /// payload, the slot; over IPv6 zero in the place of the first, as no server has this address,
    /// and the number of the way in that of the second. None for a way that was not added.
    fn target(&self, target: &Target) -> Option<[u8; TARGET]> {
        let (to, from) = match &target.way {
            Way::V4 { to, .. } if to.is_unspecified() => return None,
            Way::V4 { to, from } => (to.octets(), from.octets()),
            Way::V6 { to, from } => ([0; 4], self.0.get(&Self::octets(to, from))?.to_ne_bytes()),
        };
        let mut octets = [0; TARGET];
        let parts = [
            &to[..],
            &from,
            &target.port.to_be_bytes(),
            &target.max_payload.to_ne_bytes(),
            &target.slot.to_ne_bytes(),
        ];
        octets.iter_mut().zip(parts.concat()).for_each(|(to, from)| *to = from);
        Some(octets)
    }

    /// The same in the kernel.
    fn table(&self) -> io::Result<Table<4, WAY>> {
        let table = Table::new(Map::Array, self.0.len().max(1) as u32)?;
        for (octets, number) in &self.0 {
            table.set(&number.to_ne_bytes(), octets)?;
        }
        Ok(table)
    }
}

/// What was forwarded, by slots; programs that take each other's place share it. Each processor has
/// a part of one array, which a program finds with one look.
#[derive(Debug)]
pub struct Counts {
    array: SharedArray,
    /// Slots of each processor.
    stride: u32,
    processors: u32,
}

impl Counts {
    /// Zeros.
    ///
    /// # Errors
    /// When the kernel has no memory for them, or a capability is missing.
    pub fn new(slots: u32) -> io::Result<Self> {
        let processors = u32::try_from(sys::possible_processors()?).unwrap_or(u32::MAX);
        let stride = slots.max(1).div_ceil(SLOTS).saturating_mul(SLOTS);
        let all = stride.checked_mul(processors).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { array: SharedArray::new(all)?, stride, processors })
    }

    /// Packets and bytes of payload that went to the server with a slot, since the beginning.
    ///
    /// # Errors
    /// `NotFound` when there is no such slot.
    pub fn of(&self, slot: u32) -> io::Result<[u64; 2]> {
        if slot >= self.stride {
            return Err(io::ErrorKind::NotFound.into());
        }
        let mut sum = [0_u64; 2];
        for processor in 0..self.processors {
            let one = self.array.get(processor * self.stride + slot);
            sum.iter_mut().zip(one).for_each(|(sum, one)| *sum = sum.wrapping_add(one));
        }
        Ok(sum)
    }
}

/// A program with its tables.
#[derive(Debug)]
pub struct ForwardTable {
    ways: Ways,
    learned: Table<ID_KEY, TARGET>,
    program: XdpProgram,
}

impl ForwardTable {
    /// A program that knows the servers that connection IDs in plain text name; of targets with the
    /// same server ID the last one counts. Nothing is attached.
    ///
    /// # Errors
    /// When the rules have no address to listen on or no device to send by, when they or the servers
    /// are beyond what programs can do, or the kernel does not take it.
    pub fn new<'a>(
        rules: &Rules,
        servers: impl IntoIterator<Item = (&'a ServerId, Target)>,
        counts: &Counts,
    ) -> Result<Self, LoadError> {
        if rules.listen.is_empty() || rules.egress.is_empty() {
            let why = "a program takes an address to listen on and a device to send by";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why).into());
        }
        let servers: Vec<_> =
            servers.into_iter().filter(|(_, target)| target.slot < counts.stride).collect();
        let mut ways = Ways::default();
        servers.iter().for_each(|(_, target)| ways.add(&target.way));
        let named: BTreeMap<_, _> = servers
            .into_iter()
            .filter_map(|(server, target)| Some((cuckoo::key(server), ways.target(&target)?)))
            .collect();
        let named: Vec<_> = named.into_iter().collect();
        let buckets = Buckets::new(&named).ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidInput, "no way to arrange the servers' IDs")
        })?;
        let servers = named_servers(&buckets)?;
        let learned = Table::new(Map::LruHash, LEARNED)?;
        let numbered = ways.table()?;
        let maps = Maps {
            servers: servers.as_fd(),
            buckets: buckets.as_slice().len(),
            learned: learned.as_fd(),
            ways: numbered.as_fd(),
            counts: counts.array.as_fd(),
            stride: counts.stride,
        };
        let program = forward_program::write(rules, &maps)
            .ok_or(LoadError::Program(ProgramError::TooLong))?;
        // The program keeps the tables of servers and ways.
        Ok(Self { ways, learned, program: XdpProgram::load(&program)? })
    }

    /// An enciphered connection ID leads there from now on. The one that was not seen for longest
    /// is forgotten when there are too many.
    ///
    /// # Errors
    /// `NotFound` when its way is none of those that the servers had; and when the kernel has no
    /// memory.
    pub fn learn(&self, id: &[u8], target: &Target) -> io::Result<()> {
        let target = self.ways.target(target).ok_or(io::ErrorKind::NotFound)?;
        let mut key = [0; ID_KEY];
        key.iter_mut().zip(id).for_each(|(to, from)| *to = *from);
        self.learned.set(&key, &target)
    }

    /// The program, to attach it.
    #[must_use]
    pub const fn program(&self) -> &XdpProgram {
        &self.program
    }
}

/// The table of servers in the kernel.
fn named_servers(buckets: &Buckets) -> io::Result<Table<4, BUCKET>> {
    let table = Table::new(Map::AlignedArray, buckets.as_slice().len() as u32)?;
    for (place, bucket) in buckets.as_slice().iter().enumerate() {
        // The kernel has zeros already.
        if *bucket != [0; BUCKET] {
            table.set(&(place as u32).to_ne_bytes(), bucket)?;
        }
    }
    Ok(table)
}
