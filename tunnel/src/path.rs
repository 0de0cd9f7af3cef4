//! The way to the other end of a tunnel: source ports, MTU, and what the system refuses.

use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, IoSlice};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::socket::SockaddrStorage;
use quicket_gue::{Outer, Probe, flow, protocol};

use crate::answers::Answers;
use crate::config::{Encap, FlowLabel, Tunnel};
use crate::departures::Lane;
use crate::discovery::Discovery;
use crate::ends::{Ends, MTU_LIFETIME};
use crate::outbound::{Outbound, Piece, Sending, bursts};
use crate::udp::{Burst, Datagrams, Options, Socket};

/// Source ports of a tunnel: flows are spread over as many queues and links.
pub(crate) const SOURCE_PORTS: usize = 16;
/// Ports that are tried for each of them.
const ATTEMPTS: usize = 64;
/// Most datagrams in one call (UDP_MAX_SEGMENTS of Linux).
pub(crate) const MAX_SEGMENTS: usize = 64;
/// MTU of a path that the system says nothing of: that of Ethernet.
const DEFAULT_MTU: u16 = 1500;

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
    /// Those for most packets, and then those for packets that may be fragmented where most must not, or
    /// the other way round: that is a matter of sockets.
    sockets: Vec<Socket>,
    /// How many the first are.
    main: usize,
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
    /// What the system knows of it.
    system: AtomicU16,
    /// What probes find out, if that is asked for.
    discovery: Option<Mutex<Discovery>>,
    /// Whether packets were sent since the last look at what probes find out.
    used: AtomicBool,
    /// The answers to probes of this second.
    answers: Mutex<Answers>,
    /// The MTU of the path to each of many other ends.
    ends: RwLock<Ends>,
    /// When it is asked for again, in milliseconds from `start`.
    asked: AtomicU64,
    start: Instant,
    /// Whether the system takes several datagrams in one call.
    bursts: AtomicBool,
    /// Whether the other end may drop what others have overtaken.
    in_order: bool,
}

/// How sockets of a path are made.
#[derive(Debug)]
struct Made {
    local: IpAddr,
    /// None if there are many other ends.
    remote: Option<SocketAddr>,
    dport: u16,
    dev: Option<String>,
    checksum: bool,
    dont_fragment: bool,
    limit: Option<u8>,
    label: FlowLabel,
    mark: Option<u32>,
}

impl Made {
    /// With UDP.
    fn open(&self, port: u16) -> io::Result<Socket> {
        self.open_to(self.remote, None, port, false)
    }

    /// Without. It only sends if it is `deaf`, or if what comes with options is for the socket of what
    /// follows them.
    fn open_raw(&self, protocol: u8, deaf: bool) -> io::Result<Socket> {
        let deaf = deaf || protocol == protocol::DESTINATION_OPTIONS;
        self.open_to(self.remote, Some(protocol), 0, deaf)
    }

    fn open_to(
        &self,
        remote: Option<SocketAddr>,
        protocol: Option<u8>,
        port: u16,
        deaf: bool,
    ) -> io::Result<Socket> {
        Socket::open(Options {
            protocol,
            local: SocketAddr::new(self.local, port),
            remote,
            dev: self.dev.as_deref(),
            checksum: self.checksum,
            dont_fragment: self.dont_fragment,
            // Without UDP it is part of what is sent.
            limit: self.limit.filter(|_| protocol.is_none()),
            label: self.label,
            mark: self.mark,
            deaf,
        })
    }

    /// MTU of the path to one of many other ends. The system knows it of sockets that are connected.
    fn mtu_to(&self, peer: IpAddr) -> io::Result<u16> {
        let remote = SocketAddr::new(peer, self.dport.max(1));
        self.open_to(Some(remote), None, 0, true)?.path_mtu()
    }

    /// Where a packet goes, where the socket does not know.
    fn to(&self, peer: Option<IpAddr>, label: u32) -> Option<SockaddrStorage> {
        let remote = match (peer, self.remote) {
            (Some(peer), _) => SocketAddr::new(peer, self.dport),
            (None, Some(remote)) if label != 0 => remote,
            _ => return None,
        };
        Some(match remote {
            SocketAddr::V6(mut remote) => {
                remote.set_flowinfo(label.to_be());
                remote.into()
            }
            remote @ SocketAddr::V4(_) => remote.into(),
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
            remote: tunnel.external.is_none().then(|| SocketAddr::new(tunnel.remote, tunnel.dport)),
            dport: tunnel.dport,
            dev: tunnel.dev.clone(),
            checksum: tunnel.csum,
            dont_fragment: tunnel.pmtudisc,
            limit: tunnel.encaplimit,
            label: tunnel.flowlabel,
            mark: tunnel.fwmark,
        };
        let mut protocols = Vec::new();
        if tunnel.encap == Encap::None {
            protocols = tunnel.protocols();
            // For packets with an encapsulation limit.
            protocols.extend(tunnel.kind.is_v6().then_some(protocol::DESTINATION_OPTIONS));
        }
        let mut sockets: Vec<Socket> = match tunnel.sport {
            _ if !protocols.is_empty() => {
                let open = |protocol: &u8| made.open_raw(*protocol, false);
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
        let main = sockets.len();
        if tunnel.fragments_some() {
            let open = |index: usize| match protocols.get(index) {
                Some(protocol) => made.open_raw(*protocol, true),
                None => made.open(sockets[index].port()),
            };
            // With `pmtudisc` there are few of them.
            let count = if tunnel.pmtudisc && protocols.is_empty() { 1 } else { main };
            let others = (0..count).map(open).collect::<io::Result<Vec<_>>>()?;
            for socket in &others {
                socket.set_fragmentation(!tunnel.pmtudisc)?;
            }
            sockets.extend(others);
        }
        let path = Self {
            sockets,
            main,
            made,
            limited: Mutex::new(None),
            overhead: tunnel.overhead(),
            dont_fragment: tunnel.pmtudisc,
            outer: AtomicU16::new(DEFAULT_MTU),
            used: AtomicBool::new(false),
            ends: RwLock::default(),
            system: AtomicU16::new(DEFAULT_MTU),
            discovery: tunnel.discovery.then(|| Mutex::new(Discovery::new(DEFAULT_MTU))),
            answers: Mutex::default(),
            asked: AtomicU64::new(0),
            start: Instant::now(),
            // The system segments only UDP, and only where it computes checksums.
            bursts: AtomicBool::new(tunnel.csum && protocols.is_empty()),
            in_order: tunnel.oseq,
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

    /// What the path leaves inside; to one of many other ends.
    pub(crate) fn inner_mtu_to(&self, peer: Option<IpAddr>) -> u16 {
        let Some(peer) = peer else { return self.inner_mtu() };
        let now = Instant::now();
        let known = self.ends.read().unwrap_or_else(PoisonError::into_inner).mtu(peer, now);
        self.overhead.mtu(known.unwrap_or_else(|| self.ask_for(peer, now)))
    }

    /// Asks for the MTU of the path to one of many other ends. The others do not wait meanwhile.
    fn ask_for(&self, peer: IpAddr, now: Instant) -> u16 {
        let mtu = self.made.mtu_to(peer).unwrap_or(DEFAULT_MTU);
        self.ends.write().unwrap_or_else(PoisonError::into_inner).insert(peer, mtu, now);
        mtu
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
        let known =
            self.sockets.iter().take(self.main).filter_map(|socket| socket.path_mtu().ok()).min();
        let Some(mtu) = known else { return false };
        self.system.store(mtu, Ordering::Relaxed);
        if let Some(discovery) = &self.discovery {
            lock(discovery).set_max(mtu);
        }
        self.settle()
    }

    /// Takes up what is known of the path; true if it has become narrower.
    fn settle(&self) -> bool {
        let system = self.system.load(Ordering::Relaxed);
        let mtu = self.discovery.as_ref().map_or(system, |known| lock(known).mtu());
        self.outer.swap(mtu, Ordering::Relaxed) > mtu
    }

    fn milliseconds(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.start).as_millis() as u64
    }

    /// Sends a probe if it is time; when the next one may be due, if there are any, and whether one
    /// was sent.
    pub(crate) fn discover(&self, now: Instant) -> Option<(Instant, bool)> {
        let discovery = self.discovery.as_ref()?;
        let due = {
            let mut discovery = lock(discovery);
            if self.used.swap(false, Ordering::Relaxed) {
                discovery.note_use();
            }
            discovery.due(self.milliseconds(now), || RandomState::new().hash_one("probe"))
        };
        self.settle();
        if let Some((number, size)) = due {
            let outer = match self.overhead.outer {
                Outer::V4 => 20,
                Outer::V6 { encapsulation_limit: false } => 40,
                Outer::V6 { encapsulation_limit: true } => 48,
            };
            self.tell(Probe::Ask(number), usize::from(size).saturating_sub(outer + 8), None);
        }
        let next = self.start + Duration::from_millis(lock(discovery).next());
        Some((next, due.is_some()))
    }

    /// The state of the search, and the MTU that it has found, if there is one.
    pub(crate) fn discovery(&self) -> Option<(&'static str, u16)> {
        let discovery = lock(self.discovery.as_ref()?);
        Some((discovery.state(), discovery.mtu()))
    }

    /// Takes a control message of the other end, or of one of many; true if it was a probe that is
    /// answered, or an answer to one of ours.
    pub(crate) fn hear(&self, message: Probe, source: IpAddr, now: Instant) -> bool {
        match (message, &self.discovery) {
            (Probe::Ask(number), _) => {
                let may = lock(&self.answers).may(source, self.milliseconds(now) / 1000);
                if may {
                    let peer = self.made.remote.is_none().then_some(source);
                    self.tell(Probe::Answer(number), 0, peer);
                }
                may
            }
            (Probe::Answer(number), Some(discovery)) => {
                let known = lock(discovery).answered(number, self.milliseconds(now));
                self.settle();
                known
            }
            (Probe::Answer(_), None) => false,
        }
    }

    /// Sends a control message of at least so many bytes, to one of many other ends if there are many.
    /// What is refused is as if it were lost.
    fn tell(&self, message: Probe, len: usize, peer: Option<IpAddr>) {
        let mut bytes = message.encode().to_vec();
        bytes.resize(bytes.len().max(len), 0);
        let Some(socket) = self.sockets.first() else { return };
        let parts = [IoSlice::new(&bytes)];
        // See `send_burst` about the size of segments.
        let limited = self.made.limit.is_some() && self.bursts.load(Ordering::Relaxed);
        let segment = limited.then_some(bytes.len() as u16);
        let to = self.made.to(peer, 0);
        let _ = try_send(socket, &Burst { parts: &parts, segment, tos: 0, ttl: 64, to });
    }

    /// The same for the path to one of many other ends.
    fn refresh_to(&self, peer: Option<IpAddr>) -> bool {
        let Some(peer) = peer else { return self.refresh() };
        let before = self.inner_mtu_to(Some(peer));
        self.overhead.mtu(self.ask_for(peer, Instant::now())) < before
    }

    /// The socket of a flow, if its datagrams may leave together with others by that socket: not where
    /// the system does not segment, and not where numbers have to arrive in order.
    pub(crate) fn lane(&self, sending: &Sending) -> Option<Lane> {
        let alone = self.in_order || sending.limit.is_some() || !self.bursts_for(sending);
        let (sockets, first) = self.sockets_for(sending);
        (!alone).then(|| Lane(first + flow::choose(sending.hash, sockets.len())))
    }

    /// The sockets for datagrams like this one, and the place of the first.
    fn sockets_for(&self, sending: &Sending) -> (&[Socket], usize) {
        let (main, others) = self.sockets.split_at(self.main);
        match sending.dont_fragment == self.dont_fragment || others.is_empty() {
            true => (main, 0),
            false => (others, self.main),
        }
    }

    /// Whether the system segments: nothing that it would have to fragment.
    fn bursts_for(&self, sending: &Sending) -> bool {
        let narrow = self.dont_fragment && !sending.dont_fragment;
        self.bursts.load(Ordering::Relaxed) && !narrow
    }

    /// Sends the datagrams made of one packet, in order, by the socket of their flow. Their bytes are in the
    /// arena of `outbound` and in `buffer`.
    pub(crate) fn send(
        &self,
        outbound: &Outbound,
        buffer: &[u8],
        pieces: &[Piece],
        sending: Sending,
    ) -> Sent {
        let (sockets, _) = self.sockets_for(&sending);
        let by = |socket| self.send_by(socket, outbound, buffer, pieces, sending);
        if !self.protocols.is_empty() {
            let socket = self.protocols.iter().position(|protocol| *protocol == sending.protocol);
            return socket.and_then(|socket| sockets.get(socket)).map_or(Sent::Refused, by);
        }
        let Some(limit) = sending.limit else {
            return by(&sockets[flow::choose(sending.hash, sockets.len())]);
        };
        let mut limited = self.limited.lock().unwrap_or_else(PoisonError::into_inner);
        if limited.is_none() {
            *limited = self.made.open(self.sockets[0].port()).ok();
        }
        match &*limited {
            Some(socket)
                if socket.set_limit(limit).is_ok()
                    && socket.set_fragmentation(sending.dont_fragment).is_ok() =>
            {
                by(socket)
            }
            _ => Sent::Refused,
        }
    }

    /// Sends datagrams of several packets in one call, and says how many calls it took after all; none if
    /// not all have left, so that the system says of each what it refuses.
    pub(crate) fn send_together(
        &self,
        Lane(socket): Lane,
        outbound: &Outbound,
        buffer: &[u8],
        pieces: &[Piece],
        sending: Sending,
    ) -> Option<u64> {
        self.note_use();
        self.send_burst(&self.sockets[socket], outbound, buffer, pieces, sending).ok()
    }

    /// All workers look at it with each packet, and seldom write.
    fn note_use(&self) {
        if self.discovery.is_some() && !self.used.load(Ordering::Relaxed) {
            self.used.store(true, Ordering::Relaxed);
        }
    }

    fn send_by(
        &self,
        socket: &Socket,
        outbound: &Outbound,
        buffer: &[u8],
        pieces: &[Piece],
        sending: Sending,
    ) -> Sent {
        self.note_use();
        let mut calls = 0;
        let max = if self.bursts_for(&sending) { MAX_SEGMENTS } else { 1 };
        for burst in bursts(pieces, max) {
            match self.send_burst(socket, outbound, buffer, burst, sending) {
                Ok(more) => calls += more,
                Err(Errno::EMSGSIZE) => {
                    self.refresh_to(sending.peer);
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
        buffer: &[u8],
        pieces: &[Piece],
        sending: Sending,
    ) -> Result<u64, Errno> {
        // Two for each datagram.
        let mut parts = [IoSlice::new(&[]); 2 * MAX_SEGMENTS];
        for (pair, piece) in parts.chunks_exact_mut(2).zip(pieces) {
            pair[0] = IoSlice::new(&outbound.arena()[piece.header.clone()]);
            pair[1] = IoSlice::new(&buffer[piece.payload.clone()]);
        }
        let parts = &parts[..2 * pieces.len()];
        let Sending { tos, ttl, .. } = sending;
        // Where Linux does not segment it counts the option of a limit twice, and refuses what has the
        // full length; so it is asked to segment where there is nothing to segment.
        let limited = self.made.limit.or(sending.limit).is_some();
        let segmented = pieces.len() > 1 || limited && self.bursts_for(&sending);
        let segment = segmented.then(|| pieces[0].len() as u16);
        let to = self.made.to(sending.peer, sending.label);
        match try_send(socket, &Burst { parts, segment, tos, ttl, to }) {
            Err(error) if segmented && refuses_bursts(error) => {
                // A path that has become narrower is refused this way by older systems, too.
                if self.refresh_to(sending.peer) {
                    return Err(Errno::EMSGSIZE);
                }
                log::warn!("segmentation offload is refused ({error}); sending one by one");
                self.bursts.store(false, Ordering::Relaxed);
                for pair in parts.chunks_exact(2) {
                    try_send(socket, &Burst { parts: pair, segment: None, tos, ttl, to })?;
                }
                Ok(pieces.len() as u64)
            }
            other => other.map(|()| 1),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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
