//! Tunnels without devices: a program hands packets over, and takes those that arrive.

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use quicket_gue::vnet::Vnet;

use crate::arrivals::Arrivals;
use crate::config::Setup;
use crate::counters::{Counters, Drop};
use crate::departures::Departures;
use crate::ledger::Ledger;
use crate::sources::Source;
use crate::transit::{self, Gate, Own, Refusal};
use crate::udp::{self, Datagrams};
use crate::world::World;

/// Tunnels and ports whose packets are handed over in calls, without a device.
///
/// The same that [`Tunnels`](crate::Tunnels) does with packets of a device is done with them: they are
/// encapsulated and checked as the words of each tunnel say, those that arrive by the rules for sources,
/// keys, sequence numbers and ECN. Packets are whole packets of IP with right checksums, in both
/// directions; for `gretap` and `ip6gretap`, frames of Ethernet. The name of a tunnel names no device.
///
/// Tunnels in UDP take no privileges. `encap none` and `encaplimit` take CAP_NET_RAW, `fwmark` takes
/// CAP_NET_ADMIN.
///
/// One thread may send while another one receives. Of those that send, and of those that receive, one
/// does at a time, and the others wait for it.
#[derive(Debug)]
pub struct Carrier {
    world: World,
    ledger: Ledger,
    sources: Vec<Source>,
    sender: Mutex<Departures>,
    receiver: Mutex<Receiver>,
}

/// A packet that has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// The tunnel that it came through, by its place in the setup.
    pub tunnel: usize,
    /// Its bytes, at the front of the buffer.
    pub len: usize,
}

/// Why a packet was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SendError {
    /// There is no tunnel at this place of the setup.
    NoTunnel,
    /// It is no whole packet of IP, or no frame.
    Malformed,
    /// The tunnel does not carry packets of this version of IP.
    Family,
    /// The tunnel has many other ends (`external`), and none is known for this destination.
    Unreachable,
    /// It is longer than the path carries and must not be fragmented. [`quicket_gue::too_big`] makes the
    /// ICMP error that its sender should get.
    TooBig {
        /// The most bytes that a packet may have.
        mtu: u16,
    },
    /// Its encapsulation limit is used up (RFC 2473, Section 4.1.1).
    LimitUsedUp {
        /// Where in the packet the limit is: for [`quicket_gue::parameter_problem`].
        at: u32,
    },
    /// It is a datagram of the tunnel itself.
    Loop,
    /// The system does not send it: there is no route, or no room.
    Refused,
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoTunnel => f.write_str("there is no such tunnel in the setup"),
            Self::Malformed => f.write_str("not a whole packet of IP"),
            Self::Family => f.write_str("the tunnel does not carry this version of IP"),
            Self::Unreachable => f.write_str("no other end is known for this destination"),
            Self::TooBig { mtu } => write!(f, "too long for the path: at most {mtu} bytes"),
            Self::LimitUsedUp { .. } => f.write_str("the encapsulation limit is used up"),
            Self::Loop => f.write_str("a datagram of the tunnel itself"),
            Self::Refused => f.write_str("the system does not send it"),
        }
    }
}

impl std::error::Error for SendError {}

/// What who receives has.
#[derive(Debug)]
struct Receiver {
    arrivals: Arrivals,
    control: Vec<u8>,
    own: Own,
    /// Which source is asked first: each has its turn.
    turn: usize,
    /// When probes of paths may be due.
    probe_at: Option<Instant>,
}

impl Carrier {
    /// Opens the sockets.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if there is no tunnel, or tunnels and ports contradict each other. Others when a
    /// socket cannot be made; the message says which and what to do.
    pub fn open(setup: Setup) -> io::Result<Self> {
        if setup.tunnels.is_empty() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "there is no tunnel"));
        }
        let world = World::open(setup, 1, None)?;
        let ledger = Ledger::new(world.setup.tunnels.len());
        let sources = Source::all(&world, 0);
        let receiver = Receiver {
            arrivals: Arrivals::default(),
            control: udp::control_buffer(),
            own: Own::default(),
            turn: 0,
            probe_at: Some(Instant::now()),
        };
        let (sender, receiver) = (Mutex::default(), Mutex::new(receiver));
        Ok(Self { world, ledger, sources, sender, receiver })
    }

    /// Sends a packet by a tunnel, which is named by its place in the setup.
    ///
    /// A packet of IPv4 that is too long for the path and may be fragmented is. Sending does not wait: what the
    /// system has no room for is refused, and lost on its way are packets as always.
    ///
    /// # Errors
    ///
    /// When nothing was sent, or not all fragments; it is counted as well.
    pub fn send(&self, tunnel: usize, packet: &[u8]) -> Result<(), SendError> {
        let path = self.world.paths.get(tunnel).ok_or(SendError::NoTunnel)?;
        let now = Instant::now();
        path.refresh_at(now);
        let now = self.ledger.seconds(now);
        let mut sender = lock(&self.sender);
        let (world, ledger) = (&self.world, &self.ledger);
        let whole = (Vnet::default(), packet, 0..packet.len());
        let mut result = transit::prepare(world, ledger, &mut sender, tunnel, whole, now);
        transit::depart(world, ledger, &mut sender, tunnel, packet, |_, refusal| {
            result = Err(refusal);
        });
        result.map_err(|refusal| match refusal {
            Refusal::Unreachable => SendError::Unreachable,
            Refusal::TooBig(mtu) => SendError::TooBig { mtu },
            Refusal::TooDeep(at) => SendError::LimitUsedUp { at },
            Refusal::Dropped(why) => match why {
                Drop::Family => SendError::Family,
                Drop::TooBig => SendError::TooBig { mtu: path.inner_mtu() },
                Drop::Loop => SendError::Loop,
                Drop::Refused => SendError::Refused,
                _ => SendError::Malformed,
            },
        })
    }

    /// Waits for a packet of any tunnel, for as long as `wait` says or for ever; none if the time is over.
    /// `Some(Duration::ZERO)` does not wait.
    ///
    /// What may not come in is counted and never returned. 65,535 bytes are enough for all packets; frames
    /// may have 22 more. While somebody waits here, probes of paths go out and are answered
    /// (`discovery`).
    ///
    /// # Errors
    ///
    /// `InvalidInput` if the packet is longer than the buffer; it is returned by the next call that has
    /// room for it. Others if the system refuses to wait.
    pub fn recv(&self, buffer: &mut [u8], wait: Option<Duration>) -> io::Result<Option<Received>> {
        let until = wait.and_then(|wait| Instant::now().checked_add(wait));
        let mut receiver = lock(&self.receiver);
        loop {
            if let Some(received) = receiver.arrivals.take(buffer)? {
                let counters = &self.ledger.counters[received.tunnel];
                Counters::add(&counters.rx_packets, 1);
                Counters::add(&counters.rx_bytes, received.len as u64);
                return Ok(Some(received));
            }
            if receiver.arrivals.is_over() {
                let now = Instant::now();
                receiver.turn_to(self, now);
                let heard = receiver.receive(self);
                // Whoever floods us does not keep a caller that has waited long enough.
                let left = until.map(|until| until.saturating_duration_since(now));
                match (heard, left) {
                    (_, Some(Duration::ZERO)) if receiver.arrivals.is_over() => return Ok(None),
                    (false, left) => receiver.wait(self, now, left)?,
                    (true, _) => {}
                }
                continue;
            }
            let ledger = &self.ledger;
            let Receiver { arrivals, own, .. } = &mut *receiver;
            let now = ledger.seconds(Instant::now());
            let gate = Gate { world: &self.world, ledger, own, now };
            let opened = arrivals.open(|source, outer, datagram| {
                gate.inward(source.way(&self.world), outer, datagram)
            });
            if let Err(tunnel) = opened {
                ledger.counters[tunnel].dropped_in(Drop::Joined);
            }
            if receiver.arrivals.is_over() && until.is_some_and(|until| Instant::now() >= until) {
                return Ok(None);
            }
        }
    }

    /// Tunnels and ports, those ports included that tunnels need besides.
    #[must_use]
    pub fn setup(&self) -> &Setup {
        &self.world.setup
    }

    /// MTU of a tunnel as the path has it now, in bytes; to one of many other ends, as a path of 1500
    /// bytes has it.
    #[must_use]
    pub fn mtu(&self, tunnel: usize) -> Option<u16> {
        self.world.paths.get(tunnel).map(|path| path.inner_mtu())
    }

    /// Counters of a tunnel.
    #[must_use]
    pub fn counters(&self, tunnel: usize) -> Option<&Counters> {
        self.ledger.counters.get(tunnel)
    }

    /// Counters of what was for no tunnel.
    #[must_use]
    pub fn strays(&self) -> &Counters {
        &self.ledger.strays
    }

    /// What a tunnel with many other ends has learned, as [`Tunnels::learned`](crate::Tunnels::learned).
    #[must_use]
    pub fn learned(&self, tunnel: usize) -> Vec<(IpAddr, IpAddr, u32)> {
        let peers = self.world.peers.get(tunnel).and_then(Option::as_deref);
        let now = self.ledger.seconds(Instant::now());
        peers.map_or_else(Vec::new, |peers| peers.learned(now))
    }
}

impl Receiver {
    /// Does what is due.
    fn turn_to(&mut self, carrier: &Carrier, now: Instant) {
        self.own.refresh(now);
        for path in &carrier.world.paths {
            path.refresh_at(now);
        }
        if self.probe_at.is_some_and(|at| now >= at) {
            self.probe_at = transit::discover(&carrier.world, &carrier.ledger, now);
        }
    }

    /// Receives a train from the next source that has one; whether there was anything.
    fn receive(&mut self, carrier: &Carrier) -> bool {
        let count = carrier.sources.len();
        let mut any = false;
        for step in 0..count {
            let index = (self.turn + step) % count;
            let source = carrier.sources[index];
            let socket = source.socket(&carrier.world, 0);
            let receive = |buffer: &mut [u8]| socket.receive(buffer, &mut self.control);
            match self.arrivals.receive(source, receive) {
                Ok(()) => {
                    self.turn = index + 1;
                    return true;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // An error of a datagram that was sent before; it has been taken note of.
                Err(_) => any = true,
            }
        }
        any
    }

    /// Waits until there is something to be received or done.
    fn wait(&self, carrier: &Carrier, now: Instant, left: Option<Duration>) -> io::Result<()> {
        let sockets = carrier.sources.iter().map(|source| source.socket(&carrier.world, 0).as_fd());
        let mut files: Vec<_> =
            sockets.map(|socket| PollFd::new(socket, PollFlags::POLLIN)).collect();
        let probe = self.probe_at.map(|at| at.saturating_duration_since(now));
        let soonest = [left, probe].into_iter().flatten().min();
        // Not before it is time.
        let patience = soonest.map_or(PollTimeout::NONE, |wait| {
            PollTimeout::try_from(wait.as_millis().saturating_add(1)).unwrap_or(PollTimeout::MAX)
        });
        match poll(&mut files, patience) {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
