//! Workers: each has a socket of every address and a table of flows, and one loop.

use std::io::{self, PipeReader, Read};
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use quicket_wire::PacketKind;

use crate::answer::Answers;
use crate::balancer::Shared;
use crate::config::Config;
use crate::counters::{Counters, add};
use crate::decide::{self, Decision, Look};
use crate::flows::{Flow, Flows};
use crate::inner::{self, Headers, MAX_HEADER};
use crate::kernel::Offload;
use crate::outbox::{Outbox, Piece, Way};
use crate::snapshot::Snapshot;
use crate::sys::{Arrivals, Train};
use crate::udp;

/// Ports that packets to servers leave by, so that devices and servers spread them.
pub(crate) const SOURCE_PORTS: usize = 4;
/// Connection IDs of which a worker remembers that the kernel was told.
const RECENT: usize = 1 << 14;
/// The power of two of seconds after which it is told again.
const TOLD_FOR: u32 = 3;
/// Calls that receive from one socket before others have their turn.
const ROUNDS: usize = 16;

/// One of the threads.
pub(crate) struct Worker {
    shared: Arc<Shared>,
    snapshot: Arc<Snapshot>,
    version: u64,
    start: Instant,
    sockets: Vec<(OwnedFd, SocketAddr)>,
    carrier: Carrier,
    arrivals: Arrivals,
}

/// What becomes of trains, without the sockets that they come by.
struct Carrier {
    counters: Arc<Counters>,
    flows: Flows,
    v4: Vec<Outbox>,
    v6: Vec<Outbox>,
    headers: Vec<u8>,
    answers: Answers,
    offload: Option<(Arc<Offload>, OffloadCache)>,
}

impl Worker {
    pub(crate) fn open(
        config: &Config,
        shared: Arc<Shared>,
        snapshot: Arc<Snapshot>,
        counters: Arc<Counters>,
        secret: [u8; 16],
    ) -> io::Result<Self> {
        let listen = |address: &SocketAddr| Ok((udp::listen(*address)?, *address));
        let outboxes = |v6| -> io::Result<Vec<Outbox>> {
            let open = |_| udp::sender(v6, config.fragment).map(Outbox::new);
            (0..SOURCE_PORTS).map(open).collect()
        };
        let entries = config.flows.div_ceil(config.workers);
        Ok(Self {
            shared,
            snapshot,
            version: 0,
            start: Instant::now(),
            sockets: config.listen.iter().map(listen).collect::<io::Result<_>>()?,
            carrier: Carrier {
                counters,
                flows: Flows::new(entries, config.lifetime, secret),
                v4: outboxes(false)?,
                // A machine may be without IPv6; packets to servers that have it are refused then.
                v6: outboxes(true).unwrap_or_default(),
                headers: Vec::new(),
                answers: Answers::open(),
                offload: None,
            },
            arrivals: Arrivals::new(),
        })
    }

    /// Carries datagrams until the other end of `bell` is closed.
    pub(crate) fn run(mut self, mut bell: PipeReader) -> io::Result<()> {
        let sockets = std::mem::take(&mut self.sockets);
        let ear = bell.try_clone()?;
        let files = sockets.iter().map(|(socket, _)| socket.as_fd()).chain([ear.as_fd()]);
        let mut files: Vec<PollFd<'_>> =
            files.map(|file| PollFd::new(file, PollFlags::POLLIN)).collect();
        loop {
            match poll(&mut files, PollTimeout::NONE) {
                Err(Errno::EINTR) => continue,
                polled => polled?,
            };
            let rung = files.last().is_none_or(|file| file.any().unwrap_or(true));
            if rung && bell.read(&mut [0; 16])? == 0 {
                return Ok(());
            }
            for (file, (socket, local)) in files.iter().zip(&sockets) {
                if file.any().unwrap_or(true) {
                    self.drain(socket, *local)?;
                }
            }
        }
    }

    /// Forwards what a socket has.
    fn drain(&mut self, socket: &OwnedFd, local: SocketAddr) -> io::Result<()> {
        for _ in 0..ROUNDS {
            match self.arrivals.receive(socket.as_fd()) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            }
            if let Some((snapshot, offload)) = self.shared.newer(&mut self.version) {
                self.carrier.flows.set_lifetime(snapshot.lifetime);
                self.carrier.set_offload(offload);
                self.snapshot = snapshot;
            }
            let now = self.start.elapsed().as_secs() as u32;
            self.carrier.carry(&self.snapshot, &self.arrivals, local, now);
        }
        Ok(())
    }
}

impl Carrier {
    /// What a worker has told the kernel, the same program still knows.
    fn set_offload(&mut self, offload: Option<Arc<Offload>>) {
        if let (Some((known, _)), Some(offload)) = (&self.offload, &offload)
            && Arc::ptr_eq(known, offload)
        {
            return;
        }
        self.offload = offload.map(|offload| (offload, OffloadCache::new()));
    }

    fn carry(&mut self, snapshot: &Snapshot, arrivals: &Arrivals, local: SocketAddr, now: u32) {
        self.headers.clear();
        let evicted = self.flows.evicted();
        for train in arrivals.trains() {
            self.train(snapshot, arrivals.bytes(), train, local, now);
        }
        for outbox in self.v4.iter_mut().chain(&mut self.v6) {
            outbox.flush(&self.headers, arrivals.bytes(), snapshot, &self.counters);
        }
        let counters = &self.counters;
        add(&counters.evicted, self.flows.evicted() - evicted);
        add(&counters.receive_calls, 1);
    }

    /// Decides about a train: once for each connection ID in a row.
    fn train(
        &mut self,
        snapshot: &Snapshot,
        bytes: &[u8],
        train: &Train,
        local: SocketAddr,
        now: u32,
    ) {
        let flow = Flow { client: train.client, local };
        let headers = Headers::new(&flow, train.tos, train.ttl.saturating_sub(1));
        let mut last: Option<(Look<'_>, Decision)> = None;
        let mut tally = Tally::default();
        let mut at = train.start;
        let end = train.start + train.len;
        add(&self.counters.received_bytes, train.len as u64);
        // A datagram may be empty.
        loop {
            let next = end.min(at + train.stride);
            let decision = match (snapshot.look(&bytes[at..next]), last) {
                (Ok(look), Some((before, decision))) if look == before => decision,
                (Ok(look), _) => {
                    let decision = snapshot.route(&mut self.flows, &flow, &look, now);
                    last = Some((look, decision));
                    if let Decision::Forward { server, way: decide::Way::Named } = decision
                        && let Some((offload, told)) = &mut self.offload
                        && told.teach(look.dcid, now, |id| offload.learn(id, server))
                    {
                        add(&self.counters.taught, 1);
                    }
                    decision
                }
                (Err(refusal), _) => {
                    last = None;
                    Decision::Refuse(refusal)
                }
            };
            tally.take(last.map(|(look, _)| look.kind), decision, &self.counters);
            if let Decision::Forward { server, .. } = decision {
                let load = Load { bytes, payload: at..next, now };
                self.forward(snapshot, &flow, train, server, &headers, load);
            }
            at = next;
            if at >= end {
                return tally.count(&self.counters);
            }
        }
    }

    fn forward(
        &mut self,
        snapshot: &Snapshot,
        flow: &Flow,
        train: &Train,
        server: usize,
        headers: &Headers,
        Load { bytes, payload, now }: Load<'_>,
    ) {
        let Some(member) = snapshot.members().get(server) else { return };
        // Nobody can answer port 0; a packet that goes in circles ends here.
        if train.ttl <= 1 || flow.client.port() == 0 {
            return add(&self.counters.expired, 1);
        }
        let to = member.address;
        let max_payload =
            usize::from(snapshot.mtu).saturating_sub(inner::overhead(flow, to.is_ipv4()));
        if payload.len() > max_payload {
            let told = self.answers.too_long(flow, headers, &bytes[payload], max_payload, now);
            add(&self.counters.told, u64::from(told));
            return add(&self.counters.too_big, 1);
        }
        let mut header = [0; MAX_HEADER];
        let len = headers.write(&bytes[payload.clone()], &mut header);
        let at = self.headers.len();
        self.headers.extend_from_slice(&header[..len]);
        let outboxes = if to.is_ipv4() { &mut self.v4 } else { &mut self.v6 };
        let Some(count) = outboxes.len().checked_sub(1) else {
            return add(&self.counters.send_refused, 1);
        };
        let outbox = &mut outboxes[spread(flow.client) & count];
        // RFC 6040, Section 4.1, normal mode: the outer field is a copy of the inner one.
        let way = Way { server, to, tos: train.tos & 0b11 };
        outbox.push(way, Piece { header: at..at + len, payload });
    }
}

/// Which connection IDs the kernel was told lately, by their hashes: they are not told with every
/// packet where the kernel meets none of theirs, as those of another device.
struct OffloadCache {
    recent: Vec<u64>,
}

impl OffloadCache {
    fn new() -> Self {
        Self { recent: vec![0; RECENT] }
    }

    /// Tells a connection ID unless that was done in the last seconds; says whether it was now. The
    /// kernel forgets those that it was told long ago, and may have had no room.
    fn teach(&mut self, id: &[u8], now: u32, tell: impl FnOnce(&[u8]) -> bool) -> bool {
        let mix = |hash: u64, octet: u64| (hash ^ octet).wrapping_mul(0x0100_0000_01b3);
        // FNV-1a; connection IDs that name a server are not chosen by those who send.
        let hash = id.iter().fold(0xcbf2_9ce4_8422_2325, |hash, octet| mix(hash, (*octet).into()));
        let mark = mix(hash, u64::from(now >> TOLD_FOR));
        let place = &mut self.recent[hash as usize % RECENT];
        let told = *place != mark && tell(id);
        if told {
            *place = mark;
        }
        told
    }
}

/// A payload in its buffer.
struct Load<'a> {
    bytes: &'a [u8],
    payload: Range<usize>,
    /// When it came, in seconds.
    now: u32,
}

/// Datagrams in a row of which the same is to be counted.
#[derive(Default)]
struct Tally {
    same: Option<(Option<PacketKind>, Decision)>,
    count: u64,
}

impl Tally {
    fn take(&mut self, kind: Option<PacketKind>, decision: Decision, counters: &Counters) {
        if self.same != Some((kind, decision)) {
            self.count(counters);
            *self = Self { same: Some((kind, decision)), count: 0 };
        }
        self.count += 1;
    }

    fn count(&self, counters: &Counters) {
        let Some((kind, decision)) = self.same else { return };
        add(&counters.received, self.count);
        if let Some(kind) = kind {
            counters.kind(kind, self.count);
        }
        counters.decided(decision, self.count);
    }
}

/// A number that is the same for a flow and differs between flows. It needs no key: it only
/// chooses a port of ours.
pub(crate) fn spread(client: SocketAddr) -> usize {
    let ip = match client.ip() {
        IpAddr::V4(ip) => ip.to_bits(),
        IpAddr::V6(ip) => ip.to_bits() as u32,
    };
    let mixed = (ip ^ u32::from(client.port()) << 16).wrapping_mul(0x9e37_79b1);
    (mixed >> 24) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_is_told_until_it_has_taken_a_connection_id_and_again_later() {
        let mut told = OffloadCache::new();
        assert!(!told.teach(b"one", 1, |_| false), "it had no room");
        assert!(told.teach(b"one", 1, |id| id == b"one"));
        assert!(!told.teach(b"one", 2, |_| panic!("it was told a second ago")));
        assert!(told.teach(b"two", 2, |_| true));
        assert!(told.teach(b"one", 9, |_| true), "it may have forgotten");
    }
}
