//! Handing frames to AF_XDP sockets by their destination: for the switch for packets.
//!
//! A frame whose destination (address, protocol, port) is among the [`Tuples`] goes to the socket of the queue that it
//! came by, with its tag if it is of a VLAN that is served there. Everything else goes to the system as it came. So does what the
//! program cannot tell for certain: fragments, other VLANs, options of IPv4, headers out of order, lengths that contradict each
//! other; and ICMP.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;

use crate::sys::{Map, Table};
use crate::tuple_program::{self, Maps};
use crate::xdp::XdpProgram;
use crate::{LoadError, ProgramError};

/// An address, one of IPv4 mapped into IPv6; the port in network byte order; the protocol; a zero.
pub(crate) const KEY: usize = 20;

/// Queues of a device that have a socket.
pub const MAX_QUEUES: u32 = 64;

/// The numbers that tags have room for (IEEE 802.1Q, Section 9.6).
const VLANS: u32 = 4096;

/// The address of Ethernet of this host in a VLAN, 1 if it is served, and a zero.
pub(crate) const VLAN_ENTRY: usize = 8;

/// A destination as the kernel's table has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TupleKey([u8; KEY]);

impl TupleKey {
    /// `port` is 0 with protocols that have none. An address of IPv4 that is mapped into IPv6 is the same as that of IPv4.
    #[must_use]
    pub fn new(address: IpAddr, protocol: u8, port: u16) -> Self {
        let address = match address {
            IpAddr::V4(address) => address.to_ipv6_mapped(),
            IpAddr::V6(address) => address,
        };
        let [p0, p1] = port.to_be_bytes();
        let mut key = [0; KEY];
        let octets = address.octets().into_iter().chain([p0, p1, protocol]);
        key.iter_mut().zip(octets).for_each(|(to, from)| *to = from);
        Self(key)
    }
}

/// The destinations, which programs on several devices share.
#[derive(Debug)]
pub struct Tuples(Table<KEY, 1>);

impl Tuples {
    /// None yet, and room for `most`, which is allocated at once.
    ///
    /// # Errors
    /// When the kernel has no memory for them, or a capability is missing.
    pub fn new(most: u32) -> io::Result<Self> {
        Table::new(Map::Hash, most).map(Self)
    }

    /// From now on frames with that destination go to the sockets.
    ///
    /// # Errors
    /// `E2BIG` when there are as many as there is room for.
    pub fn add(&self, key: &TupleKey) -> io::Result<()> {
        self.0.set(&key.0, &[1])
    }

    /// From now on they go to the system.
    ///
    /// # Errors
    /// `NotFound` when it is not there.
    pub fn remove(&self, key: &TupleKey) -> io::Result<()> {
        self.0.remove(&key.0)
    }
}

/// A program for one device.
#[derive(Debug)]
pub struct TupleProgram {
    sockets: Table<4, 4>,
    /// By number.
    vlans: Table<4, VLAN_ENTRY>,
    is_of_loopback: bool,
    /// A program keeps its maps, but another one for the same sockets is made of this one.
    tuples: Arc<Tuples>,
    program: XdpProgram,
}

impl TupleProgram {
    /// A program for a device with that address of Ethernet; frames to others go up, as switches flood them.
    /// Nothing is attached, and no queue has a socket yet.
    ///
    /// # Errors
    /// When the kernel does not take it.
    pub fn new(mac: [u8; 6], tuples: &Arc<Tuples>) -> Result<Self, LoadError> {
        Self::make(mac, false, tuples)
    }

    /// The same for the loopback device, whose address is zeros. Only there do frames to 127.0.0.0/8 and `::1` come to
    /// sockets: from elsewhere they are the system's, which drops them.
    ///
    /// # Errors
    /// When the kernel does not take it.
    pub fn of_loopback(tuples: &Arc<Tuples>) -> Result<Self, LoadError> {
        Self::make([0; 6], true, tuples)
    }

    fn make(mac: [u8; 6], is_of_loopback: bool, tuples: &Arc<Tuples>) -> Result<Self, LoadError> {
        let sockets = Table::new(Map::XdpSockets, MAX_QUEUES)?;
        let vlans = Table::new(Map::Array, VLANS)?;
        let program = load(mac, is_of_loopback, tuples, &sockets, &vlans)?;
        Ok(Self { sockets, vlans, is_of_loopback, tuples: Arc::clone(tuples), program })
    }

    /// Has frames with the tag of that VLAN (IEEE 802.1Q) come to sockets as those without do, if they are for this address of
    /// Ethernet; or leaves them to the system, as at first. The tag stays in the frame.
    ///
    /// # Errors
    /// `E2BIG` when no VLAN has that number.
    pub fn set_vlan(&self, number: u16, mac: Option<[u8; 6]>) -> io::Result<()> {
        let mut entry = [0; VLAN_ENTRY];
        if let Some([a, b, c, d, e, f]) = mac {
            entry = [a, b, c, d, e, f, 1, 0];
        }
        self.vlans.set(&u32::from(number).to_ne_bytes(), &entry)
    }

    /// Has the frames of a queue go to an AF_XDP socket, in place of the system. The kernel drops them unless the socket
    /// is bound to that queue of the device.
    ///
    /// # Errors
    /// `E2BIG` beyond [`MAX_QUEUES`]; `EOPNOTSUPP` when it is no such socket.
    pub fn set_socket(&self, queue: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
        self.sockets.set(&queue.to_ne_bytes(), &socket.as_raw_fd().to_ne_bytes())
    }

    /// Makes the program anew, for another address of Ethernet. What is attached has to be replaced with it
    /// ([`crate::Link::update`]).
    ///
    /// # Errors
    /// When the kernel does not take it; this one is as it was.
    pub fn readdress(&mut self, mac: [u8; 6]) -> Result<(), LoadError> {
        let Self { sockets, vlans, is_of_loopback, tuples, .. } = self;
        self.program = load(mac, *is_of_loopback, tuples, sockets, vlans)?;
        Ok(())
    }

    /// The program, to attach it.
    #[must_use]
    pub const fn program(&self) -> &XdpProgram {
        &self.program
    }
}

fn load(
    mac: [u8; 6],
    is_of_loopback: bool,
    tuples: &Tuples,
    sockets: &Table<4, 4>,
    vlans: &Table<4, VLAN_ENTRY>,
) -> Result<XdpProgram, LoadError> {
    let maps = Maps { tuples: tuples.0.as_fd(), sockets: sockets.as_fd(), vlans: vlans.as_fd() };
    let program = tuple_program::write(mac, is_of_loopback, &maps)
        .ok_or(LoadError::Program(ProgramError::TooLong))?;
    Ok(XdpProgram::load_as(*b"quicket_packets\0", &program)?)
}
