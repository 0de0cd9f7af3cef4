//! Workers: each has a queue of every device and a socket of every port, and one loop.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, IoSlice, PipeReader, PipeWriter};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use quicket_gue::{MAX_ICMP, Packet, too_big};

use crate::coalesce::Group;
use crate::config::{Port, Setup, Tunnel};
use crate::counters::{Counters, Drop};
use crate::device::{self, Queue};
use crate::inbound::{Inbound, Refused};
use crate::outbound::{Context, Outbound, Verdict};
use crate::path::{Path, Sent};
use crate::registry::Registry;
use crate::udp::{self, Datagrams, Options, Socket};
use crate::vnet::{VNET_LEN, Vnet};

/// Packets or trains taken from one place before others have their turn.
const BATCH: usize = 64;
/// How long the addresses of this host are believed.
const OWN_LIFETIME: Duration = Duration::from_secs(1);
/// Bytes of a packet from a device with its header: the longest of IP.
const PACKET: usize = VNET_LEN + 65_535;

/// Tunnels at work.
#[derive(Debug)]
pub struct Tunnels {
    shared: Arc<Shared>,
    /// Dropped, it stops the workers.
    stop: Option<PipeWriter>,
    workers: Vec<JoinHandle<io::Result<()>>>,
}

#[derive(Debug)]
struct Shared {
    setup: Setup,
    registry: Registry,
    paths: Vec<Path>,
    counters: Vec<Counters>,
    /// Of packets that were for no tunnel.
    strays: Counters,
    sequence: Vec<AtomicU32>,
    expected: Vec<AtomicU32>,
    secret: u64,
}

impl Tunnels {
    /// Makes devices and sockets, and starts the workers.
    ///
    /// # Errors
    ///
    /// When a device or socket cannot be made; the message says which and what to do.
    pub fn start(setup: Setup, workers: usize) -> io::Result<Self> {
        let mut paths = Vec::new();
        let mut queues = Vec::new();
        for tunnel in &setup.tunnels {
            let path = Path::open(tunnel).map_err(|error| blame(&tunnel.name, &error))?;
            let made = device::attach(&tunnel.name, workers, path.inner_mtu());
            queues.push(made.map_err(|error| blame_device(&tunnel.name, &error))?);
            paths.push(path);
        }
        let count = setup.tunnels.len();
        let shared = Arc::new(Shared {
            registry: Registry::new(&setup.tunnels),
            paths,
            counters: (0..count).map(|_| Counters::default()).collect(),
            strays: Counters::default(),
            sequence: (0..count).map(|_| AtomicU32::new(0)).collect(),
            expected: (0..count).map(|_| AtomicU32::new(0)).collect(),
            secret: RandomState::new().hash_one("flows"),
            setup,
        });
        let (until, stop) = io::pipe()?;
        let mut started = Self { shared: shared.clone(), stop: Some(stop), workers: Vec::new() };
        for number in 0..workers {
            let own = queues.iter_mut().filter_map(Vec::pop).collect();
            let worker = Worker::new(shared.clone(), own)?;
            let until = until.try_clone()?;
            let thread = std::thread::Builder::new().name(format!("tunnel-{number}"));
            started.workers.push(thread.spawn(move || worker.run(&until))?);
        }
        Ok(started)
    }

    /// Tunnels and ports.
    #[must_use]
    pub fn setup(&self) -> &Setup {
        &self.shared.setup
    }

    /// Counters of a tunnel, by its place in the setup.
    #[must_use]
    pub fn counters(&self, index: usize) -> Option<&Counters> {
        self.shared.counters.get(index)
    }

    /// Counters of what was for no tunnel.
    #[must_use]
    pub fn strays(&self) -> &Counters {
        &self.shared.strays
    }

    /// MTU of a tunnel as the path has it now, in bytes.
    #[must_use]
    pub fn mtu(&self, index: usize) -> Option<u16> {
        self.shared.paths.get(index).map(Path::inner_mtu)
    }

    /// Whether a worker has ended, which none should.
    #[must_use]
    pub fn ended(&self) -> bool {
        self.workers.iter().any(JoinHandle::is_finished)
    }

    /// Waits until a worker fails, which none should.
    ///
    /// # Errors
    ///
    /// What made it fail.
    pub fn wait(mut self) -> io::Result<()> {
        self.join()
    }

    fn join(&mut self) -> io::Result<()> {
        let mut result = Ok(());
        for worker in self.workers.drain(..) {
            let ended =
                worker.join().unwrap_or_else(|_| Err(io::Error::other("a worker panicked")));
            result = result.and(ended);
        }
        result
    }
}

impl std::ops::Drop for Tunnels {
    fn drop(&mut self) {
        self.stop = None;
        if let Err(error) = self.join() {
            log::warn!("a worker of the tunnels has failed: {error}");
        }
    }
}

fn blame(name: &str, error: &io::Error) -> io::Error {
    let why = match error.kind() {
        io::ErrorKind::AddrNotAvailable => "local is no address of this host",
        io::ErrorKind::AddrInUse => "the port is taken by another program",
        _ => "no socket",
    };
    io::Error::new(error.kind(), format!("{name}: {why}: {error}"))
}

fn blame_device(name: &str, error: &io::Error) -> io::Error {
    let why = match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::EPERM | Errno::EACCES) => "making a device needs CAP_NET_ADMIN (run as root)",
        Some(Errno::ENOENT | Errno::ENODEV) => "/dev/net/tun is missing: load the module tun",
        Some(Errno::EBUSY) => "another program has this device",
        Some(Errno::EINVAL) => {
            "a device of this name is of another kind, or has been made with another number of \
             workers: quicket tunnel del removes it"
        }
        _ => "no device",
    };
    io::Error::new(error.kind(), format!("{name}: {why}: {error}"))
}

struct Worker {
    shared: Arc<Shared>,
    queues: Vec<Queue>,
    /// Sockets of the ports, in the order of the setup.
    ports: Vec<Socket>,
    own: HashSet<IpAddr>,
    own_until: Instant,
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
    /// A socket that sends for a tunnel, from a port that is one of ours as well.
    Shared {
        tunnel: usize,
        socket: usize,
        port: usize,
    },
}

impl Worker {
    fn new(shared: Arc<Shared>, queues: Vec<Queue>) -> io::Result<Self> {
        let open = |port: &Port| {
            let any: IpAddr = match port.v6 {
                true => Ipv6Addr::UNSPECIFIED.into(),
                false => Ipv4Addr::UNSPECIFIED.into(),
            };
            let local = SocketAddr::new(port.local.unwrap_or(any), port.port);
            // Datagrams without a checksum come in where a tunnel sends such.
            let unchecked = |tunnel: &Tunnel| tunnel.kind.is_v6() == port.v6 && !tunnel.csum;
            let checksum = !shared.setup.tunnels.iter().any(unchecked);
            let options =
                Options { local, remote: None, dev: None, checksum, dont_fragment: false };
            Socket::open(options).map_err(|error| blame(&format!("port {}", port.port), &error))
        };
        let ports = shared.setup.ports.iter().map(open).collect::<io::Result<_>>()?;
        Ok(Self {
            queues,
            ports,
            own: HashSet::new(),
            own_until: Instant::now(),
            outbound: Outbound::default(),
            group: Group::default(),
            packet: vec![0; PACKET],
            train: vec![0; udp::BUFFER],
            control: udp::control_buffer(),
            shared,
        })
    }

    fn run(mut self, until: &PipeReader) -> io::Result<()> {
        let shared = self.shared.clone();
        let sources = self.sources();
        let mut ready = Vec::new();
        loop {
            {
                let mut files = vec![PollFd::new(until.as_fd(), PollFlags::POLLIN)];
                files.extend(
                    sources
                        .iter()
                        .map(|source| PollFd::new(self.file(&shared, *source), PollFlags::POLLIN)),
                );
                match poll(&mut files, PollTimeout::NONE) {
                    Ok(_) | Err(Errno::EINTR) => {}
                    Err(error) => return Err(error.into()),
                }
                if files[0].any().unwrap_or(true) {
                    return Ok(());
                }
                ready.clear();
                let events = files[1..].iter().zip(&sources);
                ready
                    .extend(events.filter(|(file, _)| file.any().unwrap_or(true)).map(|(_, s)| *s));
            }
            self.refresh(Instant::now());
            for source in &ready {
                match *source {
                    Source::Device(index) => self.carry_out(&shared, index)?,
                    Source::Port(index) => {
                        let port = shared.setup.ports[index];
                        self.carry_in(&shared, &port, None, index);
                    }
                    Source::Shared { tunnel, socket, port } => {
                        let port = shared.setup.ports[port];
                        self.carry_in(&shared, &port, Some(tunnel), socket);
                    }
                }
            }
        }
    }

    /// All that is read from. What the other end sends to the port that a datagram came from
    /// arrives at the socket that sent it, if that port is one of ours.
    fn sources(&self) -> Vec<Source> {
        let mut sources: Vec<_> = (0..self.queues.len()).map(Source::Device).collect();
        sources.extend((0..self.ports.len()).map(Source::Port));
        for (tunnel, path) in self.shared.paths.iter().enumerate() {
            for (socket, sender) in path.sockets().iter().enumerate() {
                let v6 = self.shared.setup.tunnels[tunnel].kind.is_v6();
                let same = |port: &Port| port.port == sender.port() && port.v6 == v6;
                if let Some(port) = self.shared.setup.ports.iter().position(same) {
                    sources.push(Source::Shared { tunnel, socket, port });
                }
            }
        }
        sources
    }

    fn file<'a>(&'a self, shared: &'a Shared, source: Source) -> BorrowedFd<'a> {
        match source {
            Source::Device(index) => self.queues[index].as_fd(),
            Source::Port(index) => self.ports[index].as_fd(),
            Source::Shared { tunnel, socket, .. } => shared.paths[tunnel].sockets()[socket].as_fd(),
        }
    }

    /// Looks at what may change: MTUs of paths, addresses of this host.
    fn refresh(&mut self, now: Instant) {
        for path in &self.shared.paths {
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
    fn carry_out(&mut self, shared: &Shared, index: usize) -> io::Result<()> {
        for _ in 0..BATCH {
            let len = match self.queues[index].read(&mut self.packet) {
                Ok(len) => len,
                Err(error) => return ignore(error),
            };
            let (tunnel, path) = (&shared.setup.tunnels[index], &shared.paths[index]);
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
            let context = Context { tunnel, secret: shared.secret, sequence, mtu: path.mtu() };
            let sending = match self.outbound.build(context, vnet, bytes) {
                Verdict::Send(sending) => sending,
                Verdict::TooBig(mtu) => {
                    counters.dropped_out(Drop::TooBig);
                    tell(&self.queues[index], bytes, mtu);
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
                    tell(&self.queues[index], bytes, path.inner_mtu());
                }
                Sent::Refused => counters.dropped_out(Drop::Refused),
            }
        }
        Ok(())
    }

    /// Hands to devices what a socket has: one of the ports, or one that sends for a tunnel.
    fn carry_in(&mut self, shared: &Shared, port: &Port, tunnel: Option<usize>, index: usize) {
        for _ in 0..BATCH {
            let socket = match tunnel {
                Some(tunnel) => &shared.paths[tunnel].sockets()[index],
                None => &self.ports[index],
            };
            let train = match socket.receive(&mut self.train, &mut self.control) {
                Ok(train) => train,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // An error of a datagram that was sent before; it has been taken note of.
                Err(_) => continue,
            };
            let mut at = 0;
            while at < train.bytes {
                let end = train.bytes.min(at + train.stride.max(1));
                self.datagram(shared, port, &train, at, end);
                at = end;
            }
            self.flush(shared);
        }
    }

    fn datagram(
        &mut self,
        shared: &Shared,
        port: &Port,
        train: &udp::Train,
        at: usize,
        end: usize,
    ) {
        let inbound = Inbound {
            tunnels: &shared.setup.tunnels,
            registry: &shared.registry,
            own: &self.own,
            expected: &shared.expected,
        };
        let opened = match inbound.open(port, train.outer, &mut self.train[at..end]) {
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
        let (tunnel, partial) = (opened.tunnel, opened.partial);
        if !self.group.push(&self.train, tunnel, range.clone(), partial) {
            self.flush(shared);
            self.group.push(&self.train, tunnel, range, partial);
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

/// What a read of a device may say without an end to the tunnel: nothing there, or it is down.
fn ignore(error: io::Error) -> io::Result<()> {
    match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::EAGAIN | Errno::EINTR | Errno::EIO) => Ok(()),
        Some(Errno::EBADFD) => Err(io::Error::new(error.kind(), "the device has been removed")),
        _ => Err(error),
    }
}

/// Tells the sender of a packet that it is too long.
fn tell(queue: &Queue, bytes: &[u8], mtu: u16) {
    let Ok(packet) = Packet::parse(bytes) else { return };
    let mut icmp = [0; MAX_ICMP];
    if let Ok(len @ 1..) = too_big(&packet, mtu, &mut icmp) {
        let header = Vnet::default().encode(packet.is_v4(), 0);
        // If the device does not take it, the next packet asks again.
        let _ = queue.write(&[IoSlice::new(&header), IoSlice::new(&icmp[..len])]);
    }
}
