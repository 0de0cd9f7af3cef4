//! Workers: each has a queue of every device and a socket of every port, and one loop.

use std::io::{self, IoSlice, PipeReader, Read};
use std::iter;
use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Instant;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use quicket_gue::vnet::{VNET_LEN, Vnet};
use quicket_gue::{MAX_ICMP, Packet, parameter_problem, too_big, unreachable};

use crate::coalesce::Group;
use crate::counters::{Counters, Drop};
use crate::departures::Departures;
use crate::device::Queue;
use crate::ethernet::{self, Link};
use crate::inbound::{Opened, Way};
use crate::sources::Source;
use crate::transit::{self, Gate, Own, Refusal};
use crate::tunnels::Shared;
use crate::udp::{self, Datagrams, Socket};
use crate::world::World;

/// Packets or trains taken from one place before others have their turn.
const BATCH: usize = 64;
/// Bytes of a packet from a device with its header: the longest of IP.
const PACKET: usize = VNET_LEN + 65_535;
/// Packets that leave together at most, so that the other end begins before all are read.
const TOGETHER: usize = 16;
/// Bytes of packets that wait for what else the device has. A super-packet waits for nothing.
const GATHERED: usize = 32 << 10;

/// One of the threads.
pub(crate) struct Worker {
    number: usize,
    shared: Arc<Shared>,
    world: Arc<World>,
    version: u64,
    queues: Vec<Queue>,
    /// Addresses of this host.
    own: Own,
    /// In seconds since the start.
    now: u32,
    /// When a probe of a path may be due.
    probe_at: Option<Instant>,
    departures: Departures,
    group: Group,
    packets: Vec<u8>,
    train: Vec<u8>,
    control: Vec<u8>,
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
            own: Own::default(),
            now: 0,
            probe_at: None,
            departures: Departures::default(),
            group: Group::default(),
            packets: vec![0; GATHERED + PACKET],
            train: vec![0; udp::BUFFER],
            control: udp::control_buffer(),
        }
    }

    /// Carries packets until the other end of `bell` is closed; a byte there says that the world
    /// is another one.
    pub(crate) fn run(mut self, mut bell: PipeReader) -> io::Result<()> {
        let shared = self.shared.clone();
        let mut sources = Source::all(&self.world, self.number);
        self.probe_at = self.first_probe();
        let mut ready = Vec::new();
        loop {
            if let Some(world) = shared.newer(self.number, &mut self.version) {
                let before = std::mem::replace(&mut self.world, world);
                self.hand_over(&shared, &before);
                self.probe_at = self.first_probe();
                sources = Source::all(&self.world, self.number);
            }
            let world = self.world.clone();
            if self.wait(&world, &bell, &sources, &mut ready)? && bell.read(&mut [0; 16])? == 0 {
                return Ok(());
            }
            let now = Instant::now();
            self.refresh(now);
            self.discover(&shared, &world, now);
            for &index in &ready {
                match index.checked_sub(self.queues.len()) {
                    None => self.carry_out(&shared, &world, index)?,
                    Some(index) => {
                        let source = sources[index];
                        let socket = source.socket(&world, self.number);
                        _ = self.carry_in(&shared, &world, source.way(&world), socket);
                    }
                }
            }
        }
    }

    /// Waits for something to read, and says whether the bell has been rung. What is ready is counted from
    /// the first device on; the sockets follow the devices.
    fn wait(
        &self,
        world: &World,
        bell: &PipeReader,
        sources: &[Source],
        ready: &mut Vec<usize>,
    ) -> io::Result<bool> {
        let devices = self.queues.iter().map(Queue::as_fd);
        let sockets = sources.iter().map(|source| source.socket(world, self.number).as_fd());
        let all = iter::once(bell.as_fd()).chain(devices).chain(sockets);
        let mut files: Vec<_> = all.map(|file| PollFd::new(file, PollFlags::POLLIN)).collect();
        ready.clear();
        match poll(&mut files, self.patience(Instant::now())) {
            Ok(_) => {}
            Err(Errno::EINTR) => return Ok(false),
            Err(error) => return Err(error.into()),
        }
        let any = |file: &PollFd<'_>| file.any().unwrap_or(true);
        let events = files[1..].iter().enumerate();
        ready.extend(events.filter(|(_, file)| any(file)).map(|(index, _)| index));
        Ok(any(&files[0]))
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
        self.probe_at = transit::discover(world, &shared.ledger, now);
    }

    /// Looks at what may change: MTUs of paths, addresses of this host.
    fn refresh(&mut self, now: Instant) {
        self.now = self.shared.ledger.seconds(now);
        for path in &self.world.paths {
            path.refresh_at(now);
        }
        self.own.refresh(now);
    }

    /// Sends what a device has.
    fn carry_out(&mut self, shared: &Shared, world: &World, index: usize) -> io::Result<()> {
        let mut filled = 0;
        for _ in 0..BATCH {
            let len = match self.queues[index].read(&mut self.packets[filled..]) {
                Ok(len) => len,
                Err(error) => {
                    self.depart(shared, world, index);
                    return ignore(error);
                }
            };
            if self.prepare(shared, world, index, filled..filled + len) {
                filled += len;
            }
            if filled > GATHERED || self.departures.len() >= TOGETHER {
                self.depart(shared, world, index);
                filled = 0;
            }
        }
        self.depart(shared, world, index);
        Ok(())
    }

    /// Makes datagrams of what was read into a place of the buffer; whether there are any.
    fn prepare(
        &mut self,
        shared: &Shared,
        world: &World,
        index: usize,
        place: Range<usize>,
    ) -> bool {
        let header = self.packets[place.clone()].first_chunk::<VNET_LEN>();
        let Some(vnet) = header.and_then(|header| Vnet::decode(*header)) else {
            shared.ledger.counters[index].dropped_out(Drop::Malformed);
            return false;
        };
        let place = place.start + VNET_LEN..place.end;
        let packet = (vnet, &self.packets[..], place.clone());
        let departures = &mut self.departures;
        match transit::prepare(world, &shared.ledger, departures, index, packet, self.now) {
            Ok(()) => true,
            Err(refusal) => {
                let frames = world.setup.tunnels[index].kind.is_ethernet();
                tell(&self.queues[index], frames, &self.packets[place], refusal);
                false
            }
        }
    }

    /// Sends what was prepared.
    fn depart(&mut self, shared: &Shared, world: &World, index: usize) {
        if self.departures.is_empty() {
            return;
        }
        let frames = world.setup.tunnels[index].kind.is_ethernet();
        let (queue, departures) = (&self.queues[index], &mut self.departures);
        transit::depart(
            world,
            &shared.ledger,
            departures,
            index,
            &self.packets,
            |bytes, refusal| {
                tell(queue, frames, bytes, refusal);
            },
        );
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
        let gate = Gate { world, ledger: &shared.ledger, own: &self.own, now: self.now };
        let opened = gate.inward(way, train.outer, &mut self.train[place]);
        let Some(opened) = opened else { return };
        let range = at + opened.range.start..at + opened.range.end;
        let opened = Opened { range, ..opened };
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
        let counters = &shared.ledger.counters[write.tunnel];
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

/// Tells the sender of a packet why it is not carried.
fn tell(queue: &Queue, ethernet: bool, bytes: &[u8], refusal: Refusal) {
    let link = match ethernet::look(bytes) {
        _ if !ethernet => 0,
        Some(Link::Ip { len, .. }) => len,
        _ => return,
    };
    let (link, inner) = bytes.split_at(link);
    let Ok(packet) = Packet::parse(inner) else { return };
    let mut icmp = [0; MAX_ICMP];
    let made = match refusal {
        Refusal::Dropped(_) => return,
        Refusal::Unreachable => unreachable(&packet, &mut icmp),
        Refusal::TooBig(mtu) => too_big(&packet, mtu, &mut icmp),
        Refusal::TooDeep(at) => parameter_problem(&packet, at, &mut icmp),
    };
    if let Ok(len @ 1..) = made {
        let header = Vnet::default().encode(packet.is_v4(), 0);
        let parts = [&header[..], &ethernet::back(link), &icmp[..len]];
        // If the device does not take it, the next packet asks again.
        let _ = queue.write(&parts.map(IoSlice::new));
    }
}
