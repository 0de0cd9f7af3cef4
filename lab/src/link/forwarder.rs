//! The loop: receive, decide, wait, send.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use nix::sys::time::TimeSpec;
use quicket_engine::time::{Duration as Span, Time};
use quicket_sim::rng::SimRng;

use super::capture::Captures;
use super::clock::{self, Clock};
use super::direction::{Burst, Direction};
use super::namespace::Namespace;
use super::nat::{Nat, OutsideId, Wish};
use super::report::Report;
use super::socket::{Buffers, Socket};
use super::{LinkError, Options};

/// From here on epoll calls the sockets that clients send to, by their index; the others go by
/// their numbers.
const GATES: u64 = u64::MAX / 2;
/// Sockets that are looked at before time is.
const EVENTS: usize = 16;
/// The longest sleep.
const NAP: Duration = Duration::from_secs(3600);
/// Bytes of UDP header and of IP header without options.
const IPV4_OVERHEAD: usize = 28;
const IPV6_OVERHEAD: usize = 48;

/// Where clients send to, and the address of the server that this reaches.
#[derive(Debug)]
struct Gate {
    listener: Socket,
    to: SocketAddr,
}

/// What a datagram must know of its way: the client's socket outside, and through which gate.
type Route = (OutsideId, usize);

/// A link and all of its sockets.
#[derive(Debug)]
pub(super) struct Forwarder {
    options: Options,
    namespace: Namespace,
    /// At least one.
    gates: Vec<Gate>,
    nat: Nat,
    up: Direction<Route>,
    down: Direction<Route>,
    clock: Clock,
    epoll: Epoll,
    buffers: Buffers,
    burst: Burst<Route>,
    captures: Captures,
    /// CPU time used so far.
    cpu: Duration,
}

impl Forwarder {
    pub(super) fn new(options: &Options) -> Result<Self, LinkError> {
        let namespace = Namespace::open(options.listen_in.as_deref())?;
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)
            .map_err(|error| LinkError::system("cannot make an epoll instance", error))?;
        let mut gates = Vec::new();
        for &(listen, to) in [(options.listen, options.to)].iter().chain(&options.also) {
            let gate = Gate { listener: namespace.inside(|| listen_on(listen, to))??, to };
            watch(&epoll, &gate.listener, GATES + gates.len() as u64)?;
            gates.push(gate);
        }
        let (up, down) = options.scenario.channels(Time::ZERO, &SimRng::new(options.seed));
        let overhead = |of: SocketAddr| if of.is_ipv4() { IPV4_OVERHEAD } else { IPV6_OVERHEAD };
        let up = Direction::new(up, overhead(options.to), options.memory);
        let down = Direction::new(down, overhead(options.listen), options.memory);
        Ok(Self {
            nat: Nat::new(options)?,
            namespace,
            gates,
            up,
            down,
            clock: Clock::default(),
            epoll,
            buffers: Buffers::new(),
            burst: Burst::new(),
            captures: Captures::new(options.capture.as_deref(), options.snap)?,
            cpu: Duration::ZERO,
            options: options.clone(),
        })
    }

    /// Where clients send to.
    pub(super) fn addresses(&self) -> Vec<SocketAddr> {
        self.gates.iter().map(|gate| gate.listener.local()).collect()
    }

    /// Where somebody else asks for a rebinding.
    pub(super) fn wish(&self) -> Wish {
        self.nat.wish.clone()
    }

    /// Carries datagrams until `until` can be read or is closed, or until `deadline`.
    pub(super) fn run(
        &mut self,
        until: Option<BorrowedFd<'_>>,
        deadline: Option<Instant>,
    ) -> Result<(), LinkError> {
        // Wakes up on time, not up to 50 us later; a system without that is only less exact.
        let _ = nix::sys::prctl::set_timerslack(1);
        let cpu = cpu_time();
        loop {
            let busy = self.receive()?;
            self.send();
            let left = deadline.map_or(NAP, |at| at.saturating_duration_since(Instant::now()));
            // Even a link that is never idle ends.
            let wait = if busy { Duration::ZERO } else { left.min(self.until_next()) };
            if left.is_zero() || self.sleep(until, wait)? {
                break;
            }
        }
        self.cpu += cpu_time().saturating_sub(cpu);
        self.captures.finish()?;
        self.nat.count_kernel_drops()?;
        let drops = || self.gates.iter().map(|gate| gate.listener.kernel_drops()).sum::<u64>();
        let drops = self.namespace.inside(drops)?;
        self.nat.tally.kernel_drops += drops;
        Ok(())
    }

    /// What happened so far.
    pub(super) fn report(&self) -> Report {
        let elapsed = Duration::from_nanos(self.clock.now().as_nanos());
        let ways = [self.up.tally(), self.down.tally()];
        Report::new(&self.options, (elapsed, self.cpu), ways, self.nat.tally)
    }

    /// How long until the next datagram leaves.
    fn until_next(&self) -> Duration {
        let next = [self.up.next_time(), self.down.next_time()].into_iter().flatten().min();
        let wait = next.map_or(NAP, |at| self.clock.until(at));
        if wait <= self.options.spin { Duration::ZERO } else { wait - self.options.spin }
    }

    /// Waits for datagrams; true if it is time to end.
    fn sleep(&self, until: Option<BorrowedFd<'_>>, wait: Duration) -> Result<bool, LinkError> {
        let sockets = PollFd::new(self.epoll.0.as_fd(), PollFlags::POLLIN);
        let end = until.map(|fd| PollFd::new(fd, PollFlags::POLLIN));
        let mut both = [end.unwrap_or_else(|| sockets.clone()), sockets];
        match ppoll(&mut both, Some(TimeSpec::from_duration(wait)), None) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(LinkError::system("cannot wait for datagrams", error)),
        }
        let [end, _] = &both;
        Ok(until.is_some() && end.any().unwrap_or(true))
    }

    /// Takes in what waits, a few trains of each socket; true if there was anything.
    fn receive(&mut self) -> Result<bool, LinkError> {
        let mut events = [EpollEvent::empty(); EVENTS];
        let count = match self.epoll.wait(&mut events, 0_u8) {
            Ok(count) => count,
            Err(Errno::EINTR) => 0,
            Err(error) => return Err(LinkError::system("cannot ask for datagrams", error)),
        };
        for event in events.iter().take(count) {
            match event.data() {
                number @ GATES.. => self.receive_from_clients((number - GATES) as usize)?,
                number => self.receive_from_server(OutsideId(number))?,
            }
            // What is due must not wait for the other sockets.
            self.send();
        }
        Ok(count > 0)
    }

    fn receive_from_clients(&mut self, index: usize) -> Result<(), LinkError> {
        let Self { buffers, gates, clock, nat, up, epoll, captures, .. } = self;
        let Some(Gate { listener, .. }) = gates.get(index) else { return Ok(()) };
        let Some(trains) = buffers.receive(listener).map_err(receiving)? else { return Ok(()) };
        for train in trains {
            let age = clock::age(train.stamp);
            clock.start(age);
            let at = clock.now() - Span::from(age);
            let Some((id, is_new)) = nat.outbound(at, train.from)? else {
                train.for_each(|_| nat.tally.turned_away += 1);
                continue;
            };
            if is_new && let Some(socket) = nat.socket(id) {
                watch(epoll, socket, id.0)?;
            }
            let ecn = train.ecn;
            let addresses = (train.from, listener.local());
            train.for_each(|datagram| {
                captures.client.add(age, addresses, ecn, datagram);
                up.offer(at, (id, index), ecn, datagram);
            });
        }
        Ok(())
    }

    fn receive_from_server(&mut self, id: OutsideId) -> Result<(), LinkError> {
        let Self { buffers, gates, clock, nat, down, captures, .. } = self;
        let Some(socket) = nat.socket(id) else { return Ok(()) };
        let Some(trains) = buffers.receive(socket).map_err(receiving)? else { return Ok(()) };
        let mut strangers = 0;
        for train in trains {
            let gate_to =
                |right: &dyn Fn(SocketAddr) -> bool| gates.iter().position(|it| right(it.to));
            let gate = gate_to(&|to| to == train.from)
                .or_else(|| gate_to(&|to| to.ip() == train.from.ip()));
            // A client that asked the server hears nobody else.
            let Some(gate) = gate else {
                train.for_each(|_| strangers += 1);
                continue;
            };
            let age = clock::age(train.stamp);
            let at = clock.now() - Span::from(age);
            let ecn = train.ecn;
            let addresses = (train.from, socket.local());
            train.for_each(|datagram| {
                captures.server.add(age, addresses, ecn, datagram);
                down.offer(at, (id, gate), ecn, datagram);
            });
        }
        nat.tally.unknown += strangers;
        Ok(())
    }

    /// Sends what is due.
    fn send(&mut self) {
        let Self { gates, nat, up, down, clock, burst, captures, .. } = self;
        while up.take(clock.now(), burst) {
            let route =
                burst.route.and_then(|(id, gate)| Some((nat.socket(id)?, gates.get(gate)?)));
            let Some((socket, gate)) = route else {
                nat.tally.unknown += burst.len();
                continue;
            };
            let addresses = (socket.local(), gate.to);
            captures.server.add_burst(addresses, burst.ecn, burst.segment, &burst.bytes);
            let refused = socket.send(gate.to, burst.ecn, burst.segment, &burst.bytes);
            up.count_refused(refused);
            up.has_left(clock.now(), burst);
        }
        while down.take(clock.now(), burst) {
            let route =
                burst.route.and_then(|(id, gate)| Some((nat.client(id)?, gates.get(gate)?)));
            let Some((client, Gate { listener, .. })) = route else {
                nat.tally.unknown += burst.len();
                continue;
            };
            let addresses = (listener.local(), client);
            captures.client.add_burst(addresses, burst.ecn, burst.segment, &burst.bytes);
            let refused = listener.send(client, burst.ecn, burst.segment, &burst.bytes);
            down.count_refused(refused);
            down.has_left(clock.now(), burst);
        }
    }
}

/// A socket at `listen` for what goes to `to`.
fn listen_on(listen: SocketAddr, to: SocketAddr) -> Result<Socket, LinkError> {
    if listen.ip().is_unspecified() || to.ip().is_unspecified() {
        return Err(LinkError::new(
            "0.0.0.0 and [::] stand for any address; name the one that clients send to with \
             `--listen`, and that of the server with `--to`",
        ));
    }
    Socket::bind(listen).map_err(|error| {
        LinkError::new(format!(
            "cannot listen on {listen}: {error}; `--listen` takes another address, port 0 any \
             free port"
        ))
    })
}

/// CPU time of this thread.
fn cpu_time() -> Duration {
    nix::time::clock_gettime(nix::time::ClockId::CLOCK_THREAD_CPUTIME_ID)
        .map_or(Duration::ZERO, Duration::from)
}

fn receiving(error: std::io::Error) -> LinkError {
    LinkError::system("cannot receive", error)
}

fn watch(epoll: &Epoll, socket: &Socket, number: u64) -> Result<(), LinkError> {
    epoll
        .add(socket, EpollEvent::new(EpollFlags::EPOLLIN, number))
        .map_err(|error| LinkError::system("cannot watch a socket", error))
}
