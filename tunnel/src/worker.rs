//! Workers: each has a queue of every device and a socket of every port, and one loop.

use std::collections::HashSet;
use std::io::{self, IoSlice, PipeReader, Read};
use std::net::IpAddr;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use quicket_gue::{Full, MAX_ICMP, Packet, Probe, parameter_problem, too_big, unreachable};

use crate::coalesce::Group;
use crate::config::{Port, PortKind};
use crate::counters::{Counters, Drop};
use crate::device::Queue;
use crate::ethernet::{self, Link};
use crate::inbound::{Inbound, Opened, Refused, Way, joined};
use crate::outbound::{Context, Outbound, Verdict};
use crate::path::Sent;
use crate::tunnels::Shared;
use crate::udp::{self, Datagrams, Socket};
use crate::vnet::{VNET_LEN, Vnet};
use crate::world::World;

/// Packets or trains taken from one place before others have their turn.
const BATCH: usize = 64;
/// How long the addresses of this host are believed.
const OWN_LIFETIME: Duration = Duration::from_secs(1);
/// Bytes of a packet from a device with its header: the longest of IP.
const PACKET: usize = VNET_LEN + 65_535;

/// One of the threads.
pub(crate) struct Worker {
    number: usize,
    shared: Arc<Shared>,
    world: Arc<World>,
    version: u64,
    queues: Vec<Queue>,
    own: HashSet<IpAddr>,
    own_until: Instant,
    /// In seconds since the start.
    now: u32,
    /// When a probe of a path may be due.
    probe_at: Option<Instant>,
    outbound: Outbound,
    group: Group,
    packet: Vec<u8>,
    train: Vec<u8>,
    control: Vec<u8>,
}

/// Where something is to be read.
#[derive(Clone, Copy, Debug)]
enum Source {
    Device(usize),
    Port(usize),
    /// A raw socket of a tunnel, for a protocol.
    Raw {
        tunnel: usize,
        socket: usize,
        protocol: u8,
    },
    /// A socket that sends for a tunnel, from a port that is one of ours as well.
    Shared {
        tunnel: usize,
        socket: usize,
        port: usize,
    },
}

impl Worker {
    pub(crate) fn new(
        number: usize,
        shared: Arc<Shared>,
        world: Arc<World>,
        queues: Vec<Queue>,
    ) -> Self {
        Self {
            number,
            shared,
            world,
            version: 0,
            queues,
            own: HashSet::new(),
            own_until: Instant::now(),
            now: 0,
            probe_at: None,
            outbound: Outbound::default(),
            group: Group::default(),
            packet: vec![0; PACKET],
            train: vec![0; udp::BUFFER],
            control: udp::control_buffer(),
        }
    }

    /// Carries packets until the other end of `bell` is closed; a byte there says that the world
    /// is another one.
    pub(crate) fn run(mut self, mut bell: PipeReader) -> io::Result<()> {
        let shared = self.shared.clone();
        let mut sources = self.sources();
        self.probe_at = self.first_probe();
        let mut ready = Vec::new();
        loop {
            if let Some(world) = shared.newer(self.number, &mut self.version) {
                let before = std::mem::replace(&mut self.world, world);
                self.hand_over(&shared, &before);
                self.probe_at = self.first_probe();
                sources = self.sources();
            }
            let world = self.world.clone();
            if self.wait(&world, &bell, &sources, &mut ready)? && bell.read(&mut [0; 16])? == 0 {
                return Ok(());
            }
            let now = Instant::now();
            self.refresh(now);
            self.discover(&shared, &world, now);
            for source in &ready {
                match *source {
                    Source::Device(index) => self.carry_out(&shared, &world, index)?,
                    Source::Port(index) => {
                        let socket = world.doors[index].socket(self.number);
                        let way = Way::Port(&world.setup.ports[index]);
                        _ = self.carry_in(&shared, &world, way, socket);
                    }
                    Source::Raw { tunnel, socket, protocol } => {
                        let socket = &world.paths[tunnel].sockets()[socket];
                        let way = Way::Raw { tunnel, protocol };
                        _ = self.carry_in(&shared, &world, way, socket);
                    }
                    Source::Shared { tunnel, socket, port } => {
                        let socket = &world.paths[tunnel].sockets()[socket];
                        let way = Way::Port(&world.setup.ports[port]);
                        _ = self.carry_in(&shared, &world, way, socket);
                    }
                }
            }
        }
    }

    /// Waits for something to read, and says whether the bell has been rung.
    fn wait(
        &self,
        world: &World,
        bell: &PipeReader,
        sources: &[Source],
        ready: &mut Vec<Source>,
    ) -> io::Result<bool> {
        let mut files = vec![PollFd::new(bell.as_fd(), PollFlags::POLLIN)];
        let file = |source: &Source| PollFd::new(self.file(world, *source), PollFlags::POLLIN);
        files.extend(sources.iter().map(file));
        ready.clear();
        match poll(&mut files, self.patience(Instant::now())) {
            Ok(_) => {}
            Err(Errno::EINTR) => return Ok(false),
            Err(error) => return Err(error.into()),
        }
        let any = |file: &PollFd<'_>| file.any().unwrap_or(true);
        let events = files[1..].iter().zip(sources);
        ready.extend(events.filter(|(file, _)| any(file)).map(|(_, source)| *source));
        Ok(any(&files[0]))
    }

    /// All that is read from. What the other end sends to the port that a datagram came from
    /// arrives at the socket that sent it, if that port is one of ours. Of such a socket one
    /// worker takes care, so that flows stay in order; so it is with the raw sockets of a tunnel,
    /// as nothing outside tells its flows apart.
    fn sources(&self) -> Vec<Source> {
        let mut sources: Vec<_> = (0..self.queues.len()).map(Source::Device).collect();
        sources.extend((0..self.world.doors.len()).map(Source::Port));
        for (tunnel, path) in self.world.paths.iter().enumerate() {
            if tunnel % self.world.workers == self.number {
                let raw = |(socket, protocol)| Source::Raw { tunnel, socket, protocol };
                sources.extend(path.raw().map(raw));
            }
            let sockets = path.sockets().iter().enumerate();
            let mine = |socket: &usize| socket % self.world.workers == self.number;
            for (socket, sender) in sockets.filter(|(socket, _)| mine(socket)) {
                let v6 = self.world.setup.tunnels[tunnel].kind.is_v6();
                let same = |port: &Port| port.port == sender.port() && port.v6 == v6;
                if let Some(port) = self.world.setup.ports.iter().position(same) {
                    sources.push(Source::Shared { tunnel, socket, port });
                }
            }
        }
        sources
    }

    /// Raw sockets that take the place of others have copies of all that came to those since they were
    /// made: what the others have is read, and the copies are not.
    fn hand_over(&mut self, shared: &Shared, before: &World) {
        let world = self.world.clone();
        let own = self.number;
        let both = before.paths.iter().zip(&world.paths).enumerate();
        let changed = both
            .filter(|(tunnel, (old, new))| tunnel % world.workers == own && !Arc::ptr_eq(old, new));
        for (tunnel, (old, new)) in changed {
            for (socket, protocol) in old.raw() {
                let way = Way::Raw { tunnel, protocol };
                let more = |_: &usize| self.carry_in(shared, before, way, &old.sockets()[socket]);
                let _ = (0..BATCH).take_while(more).count();
            }
            for (socket, _) in new.raw() {
                let socket = &new.sockets()[socket];
                let mut more =
                    |_: &usize| socket.receive(&mut self.train, &mut self.control).is_ok();
                let _ = (0..BATCH * BATCH).take_while(|at| more(at)).count();
            }
        }
    }

    fn file<'a>(&'a self, world: &'a World, source: Source) -> BorrowedFd<'a> {
        match source {
            Source::Device(index) => self.queues[index].as_fd(),
            Source::Port(index) => world.doors[index].socket(self.number).as_fd(),
            Source::Raw { tunnel, socket, .. } | Source::Shared { tunnel, socket, .. } => {
                world.paths[tunnel].sockets()[socket].as_fd()
            }
        }
    }

    /// How long nothing has to be done. Probes are the business of one worker.
    fn patience(&self, now: Instant) -> PollTimeout {
        let Some(next) = self.probe_at else { return PollTimeout::NONE };
        // Not before it is time.
        let wait = next.saturating_duration_since(now).as_millis().saturating_add(1);
        PollTimeout::try_from(wait).unwrap_or(PollTimeout::MAX)
    }

    /// At once, if there are paths to be probed.
    fn first_probe(&self) -> Option<Instant> {
        let any = self.world.paths.iter().any(|path| path.discovery().is_some());
        (any && self.number == 0).then(Instant::now)
    }

    /// Sends probes of paths that are due.
    fn discover(&mut self, shared: &Shared, world: &World, now: Instant) {
        if self.number != 0 {
            return;
        }
        self.probe_at = None;
        for (path, counters) in world.paths.iter().zip(&shared.counters) {
            if let Some((next, sent)) = path.discover(now) {
                Counters::add(&counters.tx_probes, u64::from(sent));
                self.probe_at = Some(self.probe_at.map_or(next, |known| known.min(next)));
            }
        }
    }

    /// Looks at what may change: MTUs of paths, addresses of this host.
    fn refresh(&mut self, now: Instant) {
        self.now = self.shared.seconds(now);
        for path in &self.world.paths {
            path.refresh_at(now);
        }
        if now < self.own_until {
            return;
        }
        self.own_until = now + OWN_LIFETIME;
        // Without the list the system's own checks remain.
        let Ok(addresses) = nix::ifaddrs::getifaddrs() else { return };
        self.own.clear();
        self.own.extend(addresses.filter_map(|interface| {
            let address = interface.address?;
            let v4 = address.as_sockaddr_in().map(|address| IpAddr::V4(address.ip()));
            v4.or_else(|| address.as_sockaddr_in6().map(|address| IpAddr::V6(address.ip())))
        }));
    }

    /// Sends what a device has.
    fn carry_out(&mut self, shared: &Shared, world: &World, index: usize) -> io::Result<()> {
        for _ in 0..BATCH {
            let len = match self.queues[index].read(&mut self.packet) {
                Ok(len) => len,
                Err(error) => return ignore(error),
            };
            let (tunnel, path) = (&world.setup.tunnels[index], &world.paths[index]);
            let frames = tunnel.kind.is_ethernet();
            let counters = &shared.counters[index];
            let Some((header, bytes)) = self.packet[..len].split_first_chunk::<VNET_LEN>() else {
                counters.dropped_out(Drop::Malformed);
                continue;
            };
            let Some(vnet) = Vnet::decode(*header) else {
                counters.dropped_out(Drop::Malformed);
                continue;
            };
            let sequence = &shared.sequence[index];
            let peers = match world.other_end(index, bytes, self.now) {
                Ok(peers) => peers,
                Err(why) => {
                    counters.dropped_out(why);
                    tell(&self.queues[index], frames, bytes, unreachable);
                    continue;
                }
            };
            let peer = peers.map(|(_, peer)| peer);
            let (secret, mtu) = (shared.secret, path.inner_mtu_to(peer));
            let limit = tunnel.encaplimit;
            let context = Context { tunnel, secret, sequence, mtu, limit, peers };
            let sending = match self.outbound.build(context, vnet, bytes) {
                Verdict::Send(sending) => sending,
                Verdict::TooBig(mtu) => {
                    counters.dropped_out(Drop::TooBig);
                    tell(&self.queues[index], frames, bytes, |packet, icmp| {
                        too_big(packet, mtu, icmp)
                    });
                    continue;
                }
                Verdict::TooDeep(at) => {
                    counters.dropped_out(Drop::Loop);
                    let error =
                        |packet: &Packet<'_>, icmp: &mut [u8]| parameter_problem(packet, at, icmp);
                    tell(&self.queues[index], frames, bytes, error);
                    continue;
                }
                Verdict::Drop(why) => {
                    counters.dropped_out(why);
                    continue;
                }
            };
            match path.send(&self.outbound, bytes, sending) {
                Sent::All { calls } => {
                    let pieces = self.outbound.pieces().len() as u64;
                    Counters::add(&counters.tx_packets, pieces);
                    Counters::add(&counters.tx_bytes, bytes.len() as u64);
                    Counters::add(&counters.tx_bursts, calls);
                }
                Sent::TooBig => {
                    counters.dropped_out(Drop::TooBig);
                    let mtu = path.inner_mtu_to(peer);
                    tell(&self.queues[index], frames, bytes, |packet, icmp| {
                        too_big(packet, mtu, icmp)
                    });
                }
                Sent::Refused => counters.dropped_out(Drop::Refused),
            }
        }
        Ok(())
    }

    /// Hands to devices what a socket has: one of the ports, or one that sends for a tunnel. Whether it
    /// may have more.
    fn carry_in(&mut self, shared: &Shared, world: &World, way: Way<'_>, socket: &Socket) -> bool {
        for _ in 0..BATCH {
            let train = match socket.receive(&mut self.train, &mut self.control) {
                Ok(train) => train,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
                // An error of a datagram that was sent before; it has been taken note of.
                Err(_) => continue,
            };
            let mut at = train.start;
            while at < train.bytes {
                let end = train.bytes.min(at + train.stride.max(1));
                self.datagram(shared, world, way, &train, at..end);
                at = end;
            }
            self.flush(shared);
        }
        true
    }

    fn datagram(
        &mut self,
        shared: &Shared,
        world: &World,
        way: Way<'_>,
        train: &udp::Train,
        place: Range<usize>,
    ) {
        let at = place.start;
        if let Some(message) = control(way, &self.train[place.clone()]) {
            let source = train.outer.source;
            let mut all = world.gue_tunnels(source, train.outer.destination).peekable();
            let first = all.peek().copied();
            let now = Instant::now();
            let hear = |tunnel: &usize| world.paths[*tunnel].hear(message, source, now);
            let heard = match message {
                // The first one answers, or has answered enough.
                Probe::Ask(_) => first.filter(hear),
                // An answer is for the one that has asked.
                Probe::Answer(_) => all.find(hear),
            };
            let tunnel = heard.or(first);
            let counters = tunnel.map_or(&shared.strays, |tunnel| &shared.counters[tunnel]);
            match (heard, first) {
                (Some(_), _) => Counters::add(&counters.rx_probes, 1),
                (None, Some(_)) => counters.dropped_in(Drop::Control),
                (None, None) => counters.dropped_in(Drop::Peer),
            }
            return;
        }
        let inbound = Inbound {
            tunnels: &world.setup.tunnels,
            registry: &world.registry,
            own: &self.own,
            expected: &shared.expected,
            peers: &world.peers,
            now: self.now,
        };
        let opened = match inbound.open(way, train.outer, &mut self.train[place]) {
            Ok(opened) => opened,
            Err(Refused(tunnel, why)) => {
                tunnel.map_or(&shared.strays, |tunnel| &shared.counters[tunnel]).dropped_in(why);
                return;
            }
        };
        if opened.suspicious {
            Counters::add(&shared.counters[opened.tunnel].rx_ecn_suspicious, 1);
        }
        let range = at + opened.range.start..at + opened.range.end;
        let joined = match (way, opened.partial) {
            (Way::Raw { tunnel, .. }, Some(_)) => {
                joined(&self.train[range.clone()], world.paths[tunnel].inner_mtu())
            }
            _ => Ok(None),
        };
        let joined = match joined {
            Ok(joined) => joined,
            Err(why) => return shared.counters[opened.tunnel].dropped_in(why),
        };
        let opened = Opened { range, joined, ..opened };
        if !self.group.push(&self.train, opened.clone()) {
            self.flush(shared);
            self.group.push(&self.train, opened);
        }
    }

    /// Writes the packets that were gathered.
    fn flush(&mut self, shared: &Shared) {
        if self.group.is_empty() {
            return;
        }
        let packets = self.group.packets() as u64;
        let write = self.group.finish(&mut self.train);
        let mut parts = [IoSlice::new(&[]); 65];
        parts[0] = IoSlice::new(&write.header);
        for (part, range) in parts[1..].iter_mut().zip(write.parts) {
            *part = IoSlice::new(&self.train[range.clone()]);
        }
        let counters = &shared.counters[write.tunnel];
        match self.queues[write.tunnel].write(&parts[..=write.parts.len()]) {
            Ok(_) => {
                Counters::add(&counters.rx_packets, packets);
                Counters::add(&counters.rx_bytes, write.bytes as u64);
                Counters::add(&counters.rx_writes, 1);
            }
            // The device is down, or its queue is full.
            Err(_) => Counters::add(&counters.rx_refused, packets),
        }
        self.group.clear();
    }
}

/// A control message that is known.
fn control(way: Way<'_>, datagram: &[u8]) -> Option<Probe> {
    match way {
        Way::Port(Port { kind: PortKind::Gue, .. }) => Probe::decode(datagram),
        _ => None,
    }
}

/// What a read of a device may say without an end to the tunnel: nothing there, or it is down.
fn ignore(error: io::Error) -> io::Result<()> {
    match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::EAGAIN | Errno::EINTR | Errno::EIO) => Ok(()),
        Some(Errno::EBADFD) => Err(io::Error::new(error.kind(), "the device has been removed")),
        _ => Err(error),
    }
}

/// Tells the sender of a packet why it is not carried.
fn tell(
    queue: &Queue,
    ethernet: bool,
    bytes: &[u8],
    error: impl FnOnce(&Packet<'_>, &mut [u8]) -> Result<usize, Full>,
) {
    let link = match ethernet::look(bytes) {
        _ if !ethernet => 0,
        Some(Link::Ip { len, .. }) => len,
        _ => return,
    };
    let (link, inner) = bytes.split_at(link);
    let Ok(packet) = Packet::parse(inner) else { return };
    let mut icmp = [0; MAX_ICMP];
    if let Ok(len @ 1..) = error(&packet, &mut icmp) {
        let header = Vnet::default().encode(packet.is_v4(), 0);
        let parts = [&header[..], &ethernet::back(link), &icmp[..len]];
        // If the device does not take it, the next packet asks again.
        let _ = queue.write(&parts.map(IoSlice::new));
    }
}
