//! The way to the other end of a tunnel: source ports, MTU, and what the system refuses.

use std::fs;
use std::io::{self, IoSlice};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use quicket_gue::{flow, protocol};

use crate::config::{Encap, Tunnel};
use crate::outbound::{Outbound, Piece, Sending};
use crate::udp::{Burst, Datagrams, Options, Socket};

/// Source ports of a tunnel: flows are spread over as many queues and links.
pub(crate) const SOURCE_PORTS: usize = 16;
/// Ports that are tried for each of them.
const ATTEMPTS: usize = 64;
/// Most datagrams in one call (UDP_MAX_SEGMENTS of Linux).
const MAX_SEGMENTS: usize = 64;
/// How often the MTU is asked for again: a path that has become wider says nothing.
const MTU_LIFETIME: Duration = Duration::from_secs(10);

/// What became of datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    All {
        calls: u64,
    },
    /// They are too long for the path, whose MTU is now known.
    TooBig,
    Refused,
}

/// The way to the other end, shared by all workers.
#[derive(Debug)]
pub(crate) struct Path {
    sockets: Vec<Socket>,
    /// The protocols of raw sockets, in their order; none with UDP.
    protocols: Vec<u8>,
    /// How they are made.
    made: Made,
    /// For packets that have a limit of their own: it is set anew for each.
    limited: Mutex<Option<Socket>>,
    overhead: quicket_gue::Overhead,
    dont_fragment: bool,
    /// MTU of the path outside, in bytes.
    outer: AtomicU16,
    /// When it is asked for again, in milliseconds from `start`.
    asked: AtomicU64,
    start: Instant,
    /// Whether the system takes several datagrams in one call.
    bursts: AtomicBool,
}

/// How sockets of a path are made.
#[derive(Debug)]
struct Made {
    local: IpAddr,
    remote: SocketAddr,
    dev: Option<String>,
    checksum: bool,
    dont_fragment: bool,
    limit: Option<u8>,
    label: Option<u32>,
}

impl Made {
    /// With UDP.
    fn open(&self, port: u16) -> io::Result<Socket> {
        self.open_any(None, port)
    }

    fn open_any(&self, protocol: Option<u8>, port: u16) -> io::Result<Socket> {
        Socket::open(Options {
            protocol,
            local: SocketAddr::new(self.local, port),
            remote: Some(self.remote),
            dev: self.dev.as_deref(),
            checksum: self.checksum,
            dont_fragment: self.dont_fragment,
            // Without UDP it is part of what is sent.
            limit: self.limit.filter(|_| protocol.is_none()),
            label: self.label,
        })
    }
}

impl Path {
    pub(crate) fn open(tunnel: &Tunnel) -> io::Result<Self> {
        let any: IpAddr = match tunnel.kind.is_v6() {
            true => Ipv6Addr::UNSPECIFIED.into(),
            false => Ipv4Addr::UNSPECIFIED.into(),
        };
        let local = tunnel.local.unwrap_or(any);
        let made = Made {
            local,
            remote: SocketAddr::new(tunnel.remote, tunnel.dport),
            dev: tunnel.dev.clone(),
            checksum: tunnel.csum,
            dont_fragment: tunnel.pmtudisc,
            limit: tunnel.encaplimit,
            label: tunnel.flowlabel,
        };
        let mut protocols = Vec::new();
        if tunnel.encap == Encap::None {
            protocols = tunnel.protocols();
            // For packets with an encapsulation limit.
            protocols.extend(tunnel.kind.is_v6().then_some(protocol::DESTINATION_OPTIONS));
        }
        let sockets = match tunnel.sport {
            _ if !protocols.is_empty() => {
                let open = |protocol: &u8| made.open_any(Some(*protocol), 0);
                protocols.iter().map(open).collect::<io::Result<_>>()?
            }
            Some(port) => vec![made.open(port)?],
            None => {
                let range = port_range(tunnel);
                (0..SOURCE_PORTS)
                    .map(|slot| open_slot(slot, range, &made))
                    .collect::<io::Result<_>>()?
            }
        };
        let path = Self {
            sockets,
            made,
            limited: Mutex::new(None),
            overhead: tunnel.overhead(),
            dont_fragment: tunnel.pmtudisc,
            outer: AtomicU16::new(1500),
            asked: AtomicU64::new(0),
            start: Instant::now(),
            // The system segments only UDP, and only where it computes checksums.
            bursts: AtomicBool::new(tunnel.csum && protocols.is_empty()),
            protocols,
        };
        path.refresh();
        Ok(path)
    }

    /// The sockets, for what the other end sends to a source port of ours.
    pub(crate) fn sockets(&self) -> &[Socket] {
        &self.sockets
    }

    /// The sockets that receive without UDP, and what they receive.
    pub(crate) fn raw(&self) -> impl Iterator<Item = (usize, u8)> {
        let all = self.protocols.iter().copied().enumerate();
        all.filter(|(_, protocol)| *protocol != protocol::DESTINATION_OPTIONS)
    }

    /// What packets inside may have, in bytes.
    pub(crate) fn mtu(&self) -> u16 {
        if self.dont_fragment { self.inner_mtu() } else { u16::MAX }
    }

    /// What the device should have.
    pub(crate) fn inner_mtu(&self) -> u16 {
        self.overhead.mtu(self.outer.load(Ordering::Relaxed))
    }

    /// Asks for the MTU of the path, if it is time.
    pub(crate) fn refresh_at(&self, now: Instant) {
        let now = now.saturating_duration_since(self.start).as_millis() as u64;
        let then = self.asked.load(Ordering::Relaxed);
        if now >= then {
            let next = now.saturating_add(MTU_LIFETIME.as_millis() as u64);
            self.asked.store(next, Ordering::Relaxed);
            self.refresh();
        }
    }

    /// Asks for the MTU of the path; true if it has become less.
    fn refresh(&self) -> bool {
        let known = self.sockets.iter().filter_map(|socket| socket.path_mtu().ok()).min();
        let Some(mtu) = known else { return false };
        self.outer.swap(mtu, Ordering::Relaxed) > mtu
    }

    /// Sends datagrams made of `packet`, in order, by the socket of their flow.
    pub(crate) fn send(&self, outbound: &Outbound, packet: &[u8], sending: Sending) -> Sent {
        if !self.protocols.is_empty() {
            let socket = self.protocols.iter().position(|protocol| *protocol == sending.protocol);
            return socket.map_or(Sent::Refused, |socket| {
                self.send_by(&self.sockets[socket], outbound, packet, sending)
            });
        }
        match sending.limit {
            None => {
                let socket = &self.sockets[flow::choose(sending.hash, self.sockets.len())];
                self.send_by(socket, outbound, packet, sending)
            }
            Some(limit) => {
                let mut limited = self.limited.lock().unwrap_or_else(PoisonError::into_inner);
                if limited.is_none() {
                    *limited = self.made.open(self.sockets[0].port()).ok();
                }
                match &*limited {
                    Some(socket) if socket.set_limit(limit).is_ok() => {
                        self.send_by(socket, outbound, packet, sending)
                    }
                    _ => Sent::Refused,
                }
            }
        }
    }

    fn send_by(
        &self,
        socket: &Socket,
        outbound: &Outbound,
        packet: &[u8],
        sending: Sending,
    ) -> Sent {
        let mut calls = 0;
        let max = if self.bursts.load(Ordering::Relaxed) { MAX_SEGMENTS } else { 1 };
        for burst in outbound.bursts(max) {
            match self.send_burst(socket, outbound, packet, burst, sending) {
                Ok(more) => calls += more,
                Err(Errno::EMSGSIZE) => {
                    self.refresh();
                    return Sent::TooBig;
                }
                Err(_) => return Sent::Refused,
            }
        }
        Sent::All { calls }
    }

    fn send_burst(
        &self,
        socket: &Socket,
        outbound: &Outbound,
        packet: &[u8],
        pieces: &[Piece],
        sending: Sending,
    ) -> Result<u64, Errno> {
        // Two for each datagram.
        let mut parts = [IoSlice::new(&[]); 2 * MAX_SEGMENTS];
        for (pair, piece) in parts.chunks_exact_mut(2).zip(pieces) {
            pair[0] = IoSlice::new(&outbound.arena()[piece.header.clone()]);
            pair[1] = IoSlice::new(&packet[piece.payload.clone()]);
        }
        let parts = &parts[..2 * pieces.len()];
        let Sending { tos, ttl, .. } = sending;
        // Where Linux does not segment it counts the option of a limit twice, and refuses what has the
        // full length; so it is asked to segment where there is nothing to segment.
        let limited = self.made.limit.or(sending.limit).is_some();
        let segmented = pieces.len() > 1 || limited && self.bursts.load(Ordering::Relaxed);
        let segment = segmented.then(|| pieces[0].len() as u16);
        match try_send(socket, &Burst { parts, segment, tos, ttl }) {
            Err(error) if segmented && refuses_bursts(error) => {
                // A path that has become narrower is refused this way by older systems, too.
                if self.refresh() {
                    return Err(Errno::EMSGSIZE);
                }
                log::warn!("segmentation offload is refused ({error}); sending one by one");
                self.bursts.store(false, Ordering::Relaxed);
                for pair in parts.chunks_exact(2) {
                    try_send(socket, &Burst { parts: pair, segment: None, tos, ttl })?;
                }
                Ok(pieces.len() as u64)
            }
            other => other.map(|()| 1),
        }
    }
}

fn refuses_bursts(error: Errno) -> bool {
    matches!(error, Errno::EINVAL | Errno::EIO | Errno::EOPNOTSUPP)
}

/// Sends, once more if an error of an earlier datagram was reported in its place.
fn try_send(socket: &Socket, burst: &Burst<'_>) -> Result<(), Errno> {
    let send =
        || socket.send(burst).map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or(0)));
    match send() {
        // The other end is not there (yet), or an ICMP error told of an MTU.
        Err(
            Errno::ECONNREFUSED
            | Errno::EMSGSIZE
            | Errno::EHOSTUNREACH
            | Errno::ENETUNREACH
            | Errno::EPROTO
            | Errno::ENOPROTOOPT
            | Errno::EINTR,
        ) => send(),
        other => other,
    }
}

/// Which source ports there are: those of the system, or those of RFC 8086 for GRE in UDP.
fn port_range(tunnel: &Tunnel) -> (u16, u16) {
    if tunnel.kind.is_gre() && tunnel.encap == Encap::Fou {
        return flow::DYNAMIC_PORTS;
    }
    let text = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let mut numbers = text.split_whitespace().map_while(|number| number.parse().ok());
    match (numbers.next(), numbers.next()) {
        (Some(min), Some(max)) if min < max => (min, max),
        _ => flow::DYNAMIC_PORTS,
    }
}

/// Opens one of the source ports: the slots share the range, and each has the first port of its
/// share that is free, the same after each start.
fn open_slot(slot: usize, range: (u16, u16), made: &Made) -> io::Result<Socket> {
    let share = usize::from(range.1 - range.0) / SOURCE_PORTS;
    let mut refused = io::Error::from(io::ErrorKind::AddrInUse);
    for attempt in 0..share.clamp(1, ATTEMPTS) {
        match made.open(range.0 + (slot * share + attempt) as u16) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => refused = error,
            other => return other,
        }
    }
    Err(refused)
}
