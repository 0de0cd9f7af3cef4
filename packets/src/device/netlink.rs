//! What the system knows of devices, routes and neighbours: a few requests of rtnetlink(7).
//!
//! The kernel answers while the request is being sent, so that nothing here waits. There are libraries with all messages
//! of rtnetlink; these are four, with a handful of attributes.

mod dump;
mod link;
mod loopback;
mod numbered;

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

use super::routes::Labels;

use link::link;
pub(super) use link::{LOOPBACK, Link, Vlan};
pub(super) use loopback::{Changes, Settings};
pub(super) use numbered::is_none;

/// The longest answer that is read, in octets.
const MAX_ANSWER: usize = 16384;
/// Messages that are read for one answer: more are of somebody who has lost count.
const MAX_MESSAGES: usize = 16;

/// Types of messages.
const ERROR: u16 = 2;
const DONE: u16 = 3;
const NEW_LINK: u16 = 16;
const DELETE_LINK: u16 = 17;
const GET_LINK: u16 = 18;
const NEW_ADDRESS: u16 = 20;
const DELETE_ADDRESS: u16 = 21;
const GET_ADDRESS: u16 = 22;
const NEW_ROUTE: u16 = 24;
const GET_ROUTE: u16 = 26;
const NEW_NEIGHBOUR: u16 = 28;
const GET_NEIGHBOUR: u16 = 30;
const NEW_QUEUEING: u16 = 36;
const DELETE_QUEUEING: u16 = 37;
/// Flags of a request: NLM_F_REQUEST, NLM_F_ACK, NLM_F_CREATE.
const REQUEST: u16 = 1;
const ACKNOWLEDGE: u16 = 4;
const CREATE: u16 = 0x400;
/// A flag of an answer, NLM_F_DUMP_INTR: something has changed while the kernel listed it.
const INTERRUPTED: u16 = 0x10;

/// The groups that hear of devices, of the queues before them, and of addresses (RTMGRP_LINK, RTMGRP_TC, RTMGRP_IPV4_IFADDR,
/// RTMGRP_IPV6_IFADDR).
const LINKS: u32 = 1 | 8 | 0x10 | 0x100;

/// Attributes (linux/if_link.h, linux/rtnetlink.h, linux/neighbour.h).
const LINK_NAME: u16 = 3;
#[cfg(any(test, feature = "rates"))]
const LINK_STATS: u16 = 23;
const ADDRESS: u16 = 1;
const ADDRESS_LOCAL: u16 = 2;
const ADDRESS_BROADCAST: u16 = 4;
const ROUTE_TO: u16 = 1;
const ROUTE_FROM: u16 = 2;
const ROUTE_DEVICE: u16 = 4;
const ROUTE_GATEWAY: u16 = 5;
const ROUTE_METRICS: u16 = 8;
const ROUTE_MARK: u16 = 16;
const ROUTE_VIA: u16 = 18;
const METRIC_MTU: u16 = 2;
const NEIGHBOUR_TO: u16 = 1;
const NEIGHBOUR_ADDRESS: u16 = 2;

/// RTM_F_FIB_MATCH: the route of a table that leads there, or none; not the guess that the destination is a neighbour,
/// which IPv4 makes where a device is named and no route is found.
const FIB_MATCH: u32 = 0x2000;

/// Where rtm_tos is in the header of a message about routes.
const ROUTE_TOS: usize = 3;
/// The bits of rtm_tos that are ECN's: no route depends on them.
const ECN: u8 = 3;

/// RTN_UNICAST, RTN_LOCAL.
const UNICAST: u8 = 1;
const LOCAL: u8 = 2;
/// NTF_USE: somebody is going to send there.
const USE: u8 = 1;
/// States in which a neighbour's address may be used (NUD_VALID): permanent, without resolution, reachable, being probed,
/// stale, soon to be probed.
const VALID: u16 = FIXED | 0x02 | 0x10 | 0x04 | 0x08;
/// Those in which it does not change by itself: permanent, without resolution.
const FIXED: u16 = 0x80 | 0x40;

/// A neighbour whose address may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Neighbour {
    pub(super) mac: [u8; 6],
    /// Nobody has to look after it.
    pub(super) is_fixed: bool,
}

/// The addresses of this host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Addresses {
    /// Each with the number of a device that has it.
    pub(super) own: Vec<(IpAddr, u32)>,
    /// Of its networks.
    pub(super) broadcasts: Vec<IpAddr>,
}

/// Where a packet goes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Route {
    /// The number of the device; 0 if it is none.
    pub(super) device: u32,
    /// Whose address of Ethernet is to be asked for.
    pub(super) next: IpAddr,
    /// The longest packet on that way, where it is known to be shorter than the device's.
    pub(super) mtu: Option<u32>,
}

/// A socket to ask by.
#[derive(Debug)]
pub(super) struct Netlink {
    socket: OwnedFd,
    sequence: u32,
    answer: Box<[u8]>,
}

impl Netlink {
    /// For the network namespace of this thread.
    pub(super) fn open() -> io::Result<Self> {
        Ok(Self { socket: socket()?, sequence: 0, answer: vec![0; MAX_ANSWER].into() })
    }

    /// A device of that name.
    ///
    /// # Errors
    ///
    /// `ENODEV` when there is none.
    pub(super) fn link(&mut self, name: &str) -> io::Result<Link> {
        let mut request = Request::new(GET_LINK, &[0; 16]);
        request.attribute(LINK_NAME, &[name.as_bytes(), &[0]].concat());
        self.ask(request, 0, |kind, body| (kind == NEW_LINK).then(|| link(body))?)
    }

    /// How many packets have come by a device of that name, by its own count (IFLA_STATS64, `struct rtnl_link_stats64`).
    ///
    /// # Errors
    ///
    /// `ENODEV` when there is none.
    #[cfg(any(test, feature = "rates"))]
    pub(super) fn received(&mut self, name: &str) -> io::Result<u64> {
        let mut request = Request::new(GET_LINK, &[0; 16]);
        request.attribute(LINK_NAME, &[name.as_bytes(), &[0]].concat());
        self.ask(request, 0, |kind, body| {
            let (_, rest) = body.split_first_chunk::<16>().filter(|_| kind == NEW_LINK)?;
            let (_, stats) = attributes(rest).find(|(kind, _)| *kind == LINK_STATS)?;
            stats.first_chunk().map(|packets| u64::from_ne_bytes(*packets))
        })
    }

    /// The way that the system would send a packet between these addresses.
    ///
    /// # Errors
    ///
    /// `ENETUNREACH` and others when there is none; `InvalidInput` when the source is not the system's.
    pub(super) fn route(&mut self, from: IpAddr, to: IpAddr) -> io::Result<Route> {
        let request = route_request(from, to, 0);
        self.ask(request, 0, |kind, body| (kind == NEW_ROUTE).then(|| route(body, to))?)
    }

    /// Asks for a route of a table by which such packets between these addresses leave by this device.
    ///
    /// # Errors
    ///
    /// As those of [`Netlink::route`].
    pub(super) fn route_by(
        &mut self,
        device: u32,
        from: IpAddr,
        to: IpAddr,
        labels: Labels,
    ) -> io::Result<()> {
        let mut request = route_request(from, to, FIB_MATCH);
        request.0[HEADER + ROUTE_TOS] = labels.tos & !ECN;
        request.attribute(ROUTE_DEVICE, &device.to_ne_bytes());
        request.attribute(ROUTE_MARK, &labels.mark.to_ne_bytes());
        self.ask(request, 0, |kind, _| (kind == NEW_ROUTE).then_some(()))
    }

    /// The address of Ethernet of a neighbour; none if it is not known.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub(super) fn neighbour(
        &mut self,
        device: u32,
        address: IpAddr,
    ) -> io::Result<Option<Neighbour>> {
        let request = neighbour_request(GET_NEIGHBOUR, device, address, 0);
        let answer =
            self.ask(request, 0, |kind, body| (kind == NEW_NEIGHBOUR).then(|| neighbour(body)));
        match answer {
            Ok(found) => Ok(found),
            Err(error) if error.raw_os_error() == Some(Errno::NOENT.raw_os_error()) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Tells the system that a neighbour is going to be sent to: it asks for its address if it does not know it, and
    /// finds out whether it is still there if it has not heard of it for long.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub(super) fn use_neighbour(&mut self, device: u32, address: IpAddr) -> io::Result<()> {
        let request = neighbour_request(NEW_NEIGHBOUR, device, address, USE);
        self.ask(request, ACKNOWLEDGE | CREATE, |_, _| Some(()))
    }

    /// Sends a request, and reads messages until `read` makes something of one. An acknowledgment is one, too: its body
    /// is empty.
    fn ask<T>(
        &mut self,
        request: Request,
        flags: u16,
        read: impl FnMut(u16, &[u8]) -> Option<T>,
    ) -> io::Result<T> {
        self.ask_for(request, flags, MAX_MESSAGES, read)
    }

    /// The same, with how often it reads.
    ///
    /// # Errors
    ///
    /// `Interrupted` when something has changed while the kernel listed it.
    fn ask_for<T>(
        &mut self,
        request: Request,
        flags: u16,
        most: usize,
        mut read: impl FnMut(u16, &[u8]) -> Option<T>,
    ) -> io::Result<T> {
        self.sequence = self.sequence.wrapping_add(1);
        let bytes = request.finish(REQUEST | flags, self.sequence);
        rustix::net::send(&self.socket, &bytes, SendFlags::DONTWAIT)?;
        let mut is_interrupted = false;
        for _ in 0..most {
            let (len, _) = rustix::net::recv(&self.socket, &mut *self.answer, RecvFlags::DONTWAIT)?;
            for message in messages(self.answer.get(..len).unwrap_or_default()) {
                let Message { kind, flags, sequence, body } = message;
                // What is left of a request before.
                if sequence != self.sequence {
                    continue;
                }
                is_interrupted |= flags & INTERRUPTED != 0;
                // At the end of a list, too, if that is not whole.
                if kind == ERROR || kind == DONE && is_negative(body) {
                    let code = body.first_chunk().map_or(0, |code| i32::from_ne_bytes(*code));
                    if code != 0 {
                        return Err(io::Error::from_raw_os_error(code.wrapping_neg()));
                    }
                    return read(kind, &[]).ok_or_else(|| io::ErrorKind::InvalidData.into());
                }
                if let Some(found) = read(kind, body) {
                    // Not before: the kernel makes no other list for this socket until all of this one has been read.
                    return if is_interrupted { Err(Errno::INTR.into()) } else { Ok(found) };
                }
            }
        }
        Err(io::ErrorKind::InvalidData.into())
    }
}

/// What becomes of devices.
#[derive(Debug)]
pub(super) struct Links {
    socket: OwnedFd,
    answer: Box<[u8]>,
}

/// What has become of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// It is so now.
    Is(Link),
    /// The device of that number is no more.
    Gone(u32),
    /// What leaves by the device of that number waits elsewhere, or nowhere.
    Queueing(u32),
    /// This host has got an address, or has one no more.
    Addresses,
    /// There was more than was heard: all may have changed.
    Unknown,
}

impl Change {
    /// The number of the device that it is about.
    pub(super) const fn device(&self) -> Option<u32> {
        match self {
            Self::Is(link) => Some(link.index),
            Self::Gone(index) | Self::Queueing(index) => Some(*index),
            Self::Addresses | Self::Unknown => None,
        }
    }
}

impl Links {
    /// Of the network namespace of this thread.
    pub(super) fn open() -> io::Result<Self> {
        Ok(Self { socket: subscribe(LINKS)?, answer: vec![0; MAX_ANSWER].into() })
    }

    /// What has changed since the last look.
    pub(super) fn hear(&mut self) -> Vec<Change> {
        let mut changes = Vec::new();
        for _ in 0..MAX_MESSAGES {
            match rustix::net::recv(&self.socket, &mut *self.answer, RecvFlags::DONTWAIT) {
                Ok((len, _)) => {
                    changes.extend(heard(self.answer.get(..len).unwrap_or_default()));
                }
                Err(Errno::NOBUFS) => changes.push(Change::Unknown),
                Err(_) => break,
            }
        }
        changes
    }
}

impl AsFd for Links {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// What has changed, by messages to groups.
fn heard(bytes: &[u8]) -> impl Iterator<Item = Change> {
    messages(bytes).filter_map(|Message { kind, body, .. }| match kind {
        NEW_LINK => link(body).map(Change::Is),
        DELETE_LINK => link(body).map(|link| Change::Gone(link.index)),
        NEW_ADDRESS | DELETE_ADDRESS => Some(Change::Addresses),
        // `struct tcmsg`: a family, and the number of the device.
        NEW_QUEUEING | DELETE_QUEUEING => body.get(4..).and_then(number).map(Change::Queueing),
        _ => None,
    })
}

/// A socket that hears what these groups are told, in the network namespace of this thread.
pub(super) fn subscribe(groups: u32) -> io::Result<OwnedFd> {
    let socket = socket()?;
    rustix::net::bind(&socket, &SocketAddrNetlink::new(0, groups))?;
    Ok(socket)
}

fn socket() -> io::Result<OwnedFd> {
    let (family, kind) = (AddressFamily::NETLINK, SocketType::RAW);
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    // NETLINK_ROUTE is 0.
    Ok(rustix::net::socket_with(family, kind, flags, None)?)
}

fn family(address: IpAddr) -> u8 {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    family.as_raw() as u8
}

/// A request that is being written.
#[derive(Clone)]
struct Request(Vec<u8>);

const HEADER: usize = 16;

impl Request {
    fn new(kind: u16, header: &[u8]) -> Self {
        let mut bytes = vec![0; HEADER];
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes.extend(header);
        Self(bytes)
    }

    fn attribute(&mut self, kind: u16, value: &[u8]) {
        self.0.extend((4 + value.len() as u16).to_ne_bytes());
        self.0.extend(kind.to_ne_bytes());
        self.0.extend(value);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
    }

    fn finish(self, flags: u16, sequence: u32) -> Vec<u8> {
        let mut bytes = self.0;
        let len = (bytes.len() as u32).to_ne_bytes();
        bytes[..4].copy_from_slice(&len);
        bytes[6..8].copy_from_slice(&flags.to_ne_bytes());
        bytes[8..12].copy_from_slice(&sequence.to_ne_bytes());
        bytes
    }
}

fn route_request(from: IpAddr, to: IpAddr, flags: u32) -> Request {
    let octets = |address: IpAddr| match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    };
    let (from, to_octets) = (octets(from), octets(to));
    let bits = to_octets.len() as u8 * 8;
    let mut header = [family(to), bits, bits, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    header[8..].copy_from_slice(&flags.to_ne_bytes());
    let mut request = Request::new(GET_ROUTE, &header);
    request.attribute(ROUTE_TO, &to_octets);
    request.attribute(ROUTE_FROM, &from);
    request
}

fn neighbour_request(kind: u16, device: u32, address: IpAddr, flags: u8) -> Request {
    let mut header = [0; 12];
    header[0] = family(address);
    header[4..8].copy_from_slice(&device.to_ne_bytes());
    header[10] = flags;
    let mut request = Request::new(kind, &header);
    match address {
        IpAddr::V4(address) => request.attribute(NEIGHBOUR_TO, &address.octets()),
        IpAddr::V6(address) => request.attribute(NEIGHBOUR_TO, &address.octets()),
    }
    request
}

/// A message: what is in its header, and what follows that.
struct Message<'a> {
    kind: u16,
    flags: u16,
    sequence: u32,
    body: &'a [u8],
}

/// All messages. Ends where something cannot be.
fn messages(mut bytes: &[u8]) -> impl Iterator<Item = Message<'_>> {
    std::iter::from_fn(move || {
        let header: &[u8; HEADER] = bytes.first_chunk()?;
        let [l0, l1, l2, l3, k0, k1, f0, f1, s0, s1, s2, s3, ..] = *header;
        let len = u32::from_ne_bytes([l0, l1, l2, l3]) as usize;
        let body = bytes.get(HEADER..len)?;
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some(Message {
            kind: u16::from_ne_bytes([k0, k1]),
            flags: u16::from_ne_bytes([f0, f1]),
            sequence: u32::from_ne_bytes([s0, s1, s2, s3]),
            body,
        })
    })
}

/// Attributes: their types, and what is in them. Ends where something cannot be.
fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let [l0, l1, k0, k1] = *bytes.first_chunk()?;
        let len = usize::from(u16::from_ne_bytes([l0, l1]));
        let value = bytes.get(4..len)?;
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or_default();
        // The upper two bits say how it is written.
        Some((u16::from_ne_bytes([k0, k1]) & 0x3fff, value))
    })
}

/// Whether a code in front of a message is that of an error.
fn is_negative(body: &[u8]) -> bool {
    body.first_chunk().is_some_and(|code| i32::from_ne_bytes(*code) < 0)
}

fn number(bytes: &[u8]) -> Option<u32> {
    bytes.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes))
}

fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => bytes.first_chunk::<4>().map(|octets| (*octets).into()),
        16 => bytes.first_chunk::<16>().map(|octets| (*octets).into()),
        _ => None,
    }
}

/// What is this host's of an address (`struct ifaddrmsg`).
fn own_addresses(body: &[u8], all: &mut Addresses) {
    let Some((header, rest)) = body.split_first_chunk::<8>() else { return };
    let of = |wanted: u16| {
        let value = attributes(rest).find(|(kind, _)| *kind == wanted);
        value.and_then(|(_, value)| address(value))
    };
    // Of two ends of one link, the other one stands beside it.
    let own = of(ADDRESS_LOCAL).or_else(|| of(ADDRESS));
    if let Some(IpAddr::V4(own)) = own
        && header[1] < 31
    {
        // A network has this broadcast, whatever its interface has been told.
        let hosts = u32::MAX.checked_shr(header[1].into()).unwrap_or(0);
        all.broadcasts.push(Ipv4Addr::from_bits(own.to_bits() | hosts).into());
    }
    all.own.extend(own.zip(header.get(4..).and_then(number)));
    all.broadcasts.extend(of(ADDRESS_BROADCAST));
}

/// A route to an address: the next hop is that itself, if there is no gateway.
fn route(body: &[u8], to: IpAddr) -> Option<Route> {
    let (header, rest) = body.split_first_chunk::<12>()?;
    let mut found = Route { device: 0, next: to, mtu: None };
    // To a group, or to nobody: by no device.
    if !matches!(header[7], UNICAST | LOCAL) {
        return Some(found);
    }
    for (kind, value) in attributes(rest) {
        match kind {
            ROUTE_DEVICE => found.device = number(value)?,
            ROUTE_GATEWAY => found.next = address(value)?,
            // A family, and an address of it.
            ROUTE_VIA => found.next = address(value.get(2..)?)?,
            ROUTE_METRICS => {
                let mtu = attributes(value).find(|(kind, _)| *kind == METRIC_MTU);
                found.mtu = mtu.and_then(|(_, value)| number(value)).filter(|mtu| *mtu > 0);
            }
            _ => {}
        }
    }
    // To this host itself: another device than that of loopback is one of a VRF, by which frames do not come back.
    if header[7] == LOCAL && found.device != LOOPBACK {
        found.device = 0;
    }
    Some(found)
}

/// It, if its address may be used.
fn neighbour(body: &[u8]) -> Option<Neighbour> {
    let (header, rest) = body.split_first_chunk::<12>()?;
    let state = u16::from_ne_bytes([header[8], header[9]]);
    if state & VALID == 0 {
        return None;
    }
    let (_, address) = attributes(rest).find(|(kind, _)| *kind == NEIGHBOUR_ADDRESS)?;
    Some(Neighbour { mac: address.try_into().ok()?, is_fixed: state & FIXED != 0 })
}

#[cfg(test)]
#[path = "netlink_tests.rs"]
mod tests;
