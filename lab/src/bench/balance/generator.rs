//! The process that sends: as many datagrams as one core makes, from many clients in turn.

use std::io::{IoSlice, Read};
use std::net::{IpAddr, Ipv4Addr, SocketAddrV4, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::ExitCode;

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, ControlMessage, MsgFlags, MultiHeaders, SockFlag, SockType, SockaddrIn,
    sendmmsg, sendmsg, setsockopt, socket, sockopt,
};
use quicket_gue::Sum;
use quicket_workload::bench::{Failure, Ids, pin, raise_open_files};

use super::site::{self, Id, PORT};
use super::{Assignment, Word};
use crate::netns::{End, Namespaces};

/// Datagrams of one call.
const BATCH: usize = 64;
/// Headers of IPv4 and UDP.
const HEADERS: usize = 28;
/// That of Ethernet.
const ETHERNET: usize = 14;
/// Bytes of datagrams with a short header.
const SHORT: usize = 200;
/// Bytes of first packets (RFC 9000, Section 14.1).
const FIRST: usize = 1200;
/// Clients whose datagrams come in trains: each takes a socket.
const TRAIN_CLIENTS: usize = 256;
/// From one client to the next but one and so on: prime, so that each has its turn.
const STEP: usize = 611_953;
/// Where clients have their addresses, 64 ports on each.
const CLIENTS: u32 = 0x6440_0000;
/// The device that frames are for.
pub(super) const FRAME_TO: [u8; 6] = [2, 0, 0, 0, 0, 1];

/// Sends as `assignment` says until standard input ends.
pub(in crate::bench) fn process(assignment: &str) -> ExitCode {
    std::thread::spawn(|| {
        while matches!(std::io::stdin().read(&mut [0; 64]), Ok(1..)) {}
        std::process::exit(0);
    });
    let sent = serde_json::from_str(assignment).map_err(Failure::from).and_then(|assignment| {
        let assignment: Assignment = assignment;
        pin(assignment.core)?;
        if assignment.train > 1 { trains(&assignment) } else { singles(&assignment) }
    });
    let Err(failure) = sent;
    crate::command::tell(&failure);
    Word::Failed { reason: failure.to_string() }.emit();
    ExitCode::FAILURE
}

/// What is in a datagram with a connection ID.
pub(super) fn payload(ids: Ids, id: &Id) -> Vec<u8> {
    let (len, octets) = (id[0], &id[1..=usize::from(id[0])]);
    let (mut payload, full) = match ids {
        // A long header: version 1, no Source Connection ID, no token.
        Ids::First => ([&[0xc3, 0, 0, 0, 1, len], octets, &[0, 0]].concat(), FIRST),
        _ => ([&[0x41], octets].concat(), SHORT),
    };
    payload.resize(full, 0x5a);
    payload
}

/// Where the connection ID is in a payload.
fn id_offset(ids: Ids) -> usize {
    if ids == Ids::First { 6 } else { 1 }
}

fn site_address() -> Result<Ipv4Addr, Failure> {
    match Namespaces::address(End::Left) {
        IpAddr::V4(address) => Ok(address),
        IpAddr::V6(_) => Err("the namespaces have IPv4".into()),
    }
}

/// Each datagram of another client than the one before, by a raw socket, which takes addresses that
/// nobody has.
fn singles(assignment: &Assignment) -> Result<std::convert::Infallible, Failure> {
    let ids = site::ids(assignment)?;
    let to = SocketAddrV4::new(site_address()?, PORT);
    let raw: OwnedFd = socket(
        AddressFamily::Inet,
        SockType::Raw,
        SockFlag::SOCK_CLOEXEC,
        nix::sys::socket::SockProtocol::Raw,
    )?;
    let mut packets: Vec<Vec<u8>> = vec![packet(to, &payload(assignment.ids, &ids[0])); BATCH];
    let id_at = HEADERS + id_offset(assignment.ids);
    let addresses = [Some(SockaddrIn::from(to)); BATCH];
    let mut headers = MultiHeaders::<SockaddrIn>::preallocate(BATCH, None);
    let mut flow = 0;
    loop {
        for packet in &mut packets {
            flow = (flow + STEP) % ids.len();
            set_flow(packet, flow, id_at, &ids[flow]);
        }
        let parts: Vec<[IoSlice<'_>; 1]> =
            packets.iter().map(|packet| [IoSlice::new(packet)]).collect();
        let sent =
            sendmmsg(raw.as_raw_fd(), &mut headers, &parts, addresses, [], MsgFlags::empty());
        match sent {
            Ok(_) | Err(Errno::ENOBUFS | Errno::EAGAIN | Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// A packet of IPv4; the system fills in the length and the checksum of its header. UDP's is left
/// out.
fn packet(to: SocketAddrV4, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 17, 0, 0, 0, 0, 0, 0];
    packet.extend(to.ip().octets());
    packet.extend([0, 0]);
    packet.extend(to.port().to_be_bytes());
    packet.extend((payload.len() as u16 + 8).to_be_bytes());
    packet.extend([0, 0]);
    packet.extend(payload);
    packet
}

/// Gives a packet of IPv4 the client and the connection ID of a flow.
fn set_flow(packet: &mut [u8], flow: usize, id_at: usize, id: &Id) {
    let client = CLIENTS + (flow as u32 >> 6);
    packet[12..16].copy_from_slice(&client.to_be_bytes());
    packet[20..22].copy_from_slice(&(1024 + (flow & 63) as u16).to_be_bytes());
    let len = usize::from(id[0]);
    packet[id_at..id_at + len].copy_from_slice(&id[1..=len]);
}

/// The packets of flows from the header of Ethernet on, one at a time, with what the system would
/// fill in.
pub(super) struct Frame {
    bytes: Vec<u8>,
    id_at: usize,
}

impl Frame {
    /// `id` is as long as those of all flows.
    pub(super) fn new(ids: Ids, to: SocketAddrV4, id: &Id) -> Self {
        let mut packet = packet(to, &payload(ids, id));
        let total = (packet.len() as u16).to_be_bytes();
        packet[2..4].copy_from_slice(&total);
        // Any checksum of UDP: it is the server that would look at it.
        packet[26..28].copy_from_slice(&[0x12, 0x34]);
        let bytes = [&FRAME_TO[..], &[2, 0, 0, 0, 0, 2, 8, 0], &packet[..]].concat();
        Self { bytes, id_at: HEADERS + id_offset(ids) }
    }

    /// The packet of a flow.
    pub(super) fn of(&mut self, flow: usize, id: &Id) -> &[u8] {
        let packet = &mut self.bytes[ETHERNET..];
        set_flow(packet, flow, self.id_at, id);
        packet[10..12].fill(0);
        let checksum = Sum::new().bytes(&packet[..20]).checksum().to_be_bytes();
        packet[10..12].copy_from_slice(&checksum);
        &self.bytes
    }
}

/// Trains of datagrams, each of another client than the one before.
fn trains(assignment: &Assignment) -> Result<std::convert::Infallible, Failure> {
    let to = SocketAddrV4::new(site_address()?, PORT);
    raise_open_files(TRAIN_CLIENTS as u64 + 64)?;
    let few = Assignment { flows: TRAIN_CLIENTS as u32, ..*assignment };
    let open = |id: &Id| -> Result<(UdpSocket, Vec<u8>), Failure> {
        let client = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        setsockopt(&client, sockopt::SndBuf, &(4 << 20))?;
        client.connect(to)?;
        Ok((client, payload(assignment.ids, id).repeat(assignment.train.into())))
    };
    let clients: Vec<_> = site::ids(&few)?.iter().map(open).collect::<Result<_, _>>()?;
    let segment = payload(assignment.ids, &Id::default()).len() as u16;
    loop {
        for (client, train) in &clients {
            let parts = [IoSlice::new(train)];
            let message = [ControlMessage::UdpGsoSegments(&segment)];
            match sendmsg::<()>(client.as_raw_fd(), &parts, &message, MsgFlags::empty(), None) {
                // Nobody listens any more: this process is told so next.
                Ok(_) | Err(Errno::ENOBUFS | Errno::EINTR | Errno::ECONNREFUSED) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}
