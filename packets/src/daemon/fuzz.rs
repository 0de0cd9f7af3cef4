//! A program that says what it likes to the switch, for fuzzing.

use std::collections::VecDeque;
use std::net::{TcpListener, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use super::Daemon;
use crate::local;
use crate::protocol::{Answer, MAX_MESSAGE, Request, Sizes, VERSION};
use crate::tuple::Tuple;

/// How long the switch may take: a thread looks into what is handed over.
const PATIENCE: Duration = Duration::from_secs(20);
/// More would be slow, as all of it is allocated.
const MOST_MEMORY: usize = 1 << 20;
/// Ports below this are those of tuples that were registered, in their order.
const STAND_INS: u16 = 16;
const LOCALHOST: &str = "127.0.0.1:0";

/// Programs of which the input says what they send.
const PROGRAMS: usize = 2;

/// Whatever programs send, each message has an answer, another program is served, and what was theirs is given back with them.
///
/// A message is a byte that says whose it is and what comes with it, one of its length, and so many bytes.
pub(crate) fn control(input: &[u8]) {
    let mut bench = Bench::new();
    let mut programs: Vec<Option<Program>> = (0..PROGRAMS).map(|_| bench.connect()).collect();
    let mut rest = input;
    while let [how, len, behind @ ..] = rest {
        let (message, behind) = behind.split_at(usize::from(*len).min(behind.len()));
        rest = behind;
        let program = &mut programs[usize::from(*how) % PROGRAMS];
        let with = how >> 4;
        match program {
            Some(known) if with == 0xf => {
                // It goes without hearing the answer.
                let _ = local::send(known.socket.as_fd(), &bench.harmless(message), &[]);
                *program = None;
            }
            Some(known) => {
                let message = bench.harmless(message);
                if !bench.ask(known, &message, with) {
                    *program = None;
                }
            }
            None => *program = bench.connect(),
        }
    }
    drop(programs);
    bench.until_empty();
    bench.is_well();
    bench.until_empty();
}

/// A program's side.
struct Program {
    socket: OwnedFd,
    /// It is shown another one's frames, and ends with that one.
    watches: bool,
    /// Memory and bells: a port without its bell would end.
    kept: Vec<OwnedFd>,
}

struct Bench {
    daemon: Daemon,
    /// Tuples that were registered: the system chooses their ports.
    registered: Vec<Tuple>,
    events: Vec<rustix::event::epoll::Event>,
    pace: super::Pace,
}

impl Bench {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("quicket-fuzz-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let daemon = Daemon::bind(&path, false).expect("a switch");
        // Programs come without it, so that nothing is left of a process that fails.
        std::fs::remove_file(&path).expect("it was there");
        let (registered, events) = (Vec::new(), Vec::with_capacity(super::EVENTS));
        Self { daemon, registered, events, pace: super::Pace::new() }
    }

    /// The message, unless it would change this machine or take much of its memory. The first ports stand for tuples that were
    /// registered.
    fn harmless(&self, message: &[u8]) -> Vec<u8> {
        let mut message = message.to_vec();
        let known = |tuple: Tuple| {
            let at = usize::from(tuple.port) % self.registered.len().max(1);
            self.registered.get(at).copied().filter(|_| tuple.port < STAND_INS).unwrap_or(tuple)
        };
        match Request::decode(&message) {
            // There is no such name: nothing of this machine is attached.
            Some(Request::Attach { .. }) => message[2] = b'/',
            Some(Request::Open { sizes, .. } | Request::AddQueue(sizes))
                if sizes.layout().is_some_and(|layout| layout.memory() > MOST_MEMORY) =>
            {
                message.clear();
            }
            Some(Request::Remove(tuple)) => message = Request::Remove(known(tuple)).encode(),
            Some(Request::Watch(tuple)) => message = Request::Watch(known(tuple)).encode(),
            Some(Request::Claim(tuple)) => message = Request::Claim(known(tuple)).encode(),
            _ => {}
        }
        message
    }

    /// None if there are as many connections, with queues, as there may be.
    fn connect(&mut self) -> Option<Program> {
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (theirs, ours) =
            rustix::net::socketpair(family, kind, flags, None).expect("two sockets");
        self.daemon.welcome(ours).ok()?;
        Some(Program { socket: theirs, watches: false, kept: Vec::new() })
    }

    fn turn(&mut self) {
        let at_once = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        let Self { daemon, events, pace, .. } = self;
        daemon.turn(events, pace, Some(&at_once)).expect("it goes on");
    }

    /// Sends a message, and hears its answer. Returns whether the program is still there.
    fn ask(&mut self, program: &mut Program, message: &[u8], with: u8) -> bool {
        let descriptors = descriptors(with);
        let with: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
        // A message of nothing would be the end.
        if message.is_empty() {
            return true;
        }
        if local::send(program.socket.as_fd(), message, &with).is_err() {
            assert!(program.watches, "the switch has closed a connection");
            return false;
        }
        let Some((answer, descriptors)) = self.answer(program) else { return false };
        assert_eq!(Answer::decode(&answer.encode()).as_ref(), Some(&answer));
        let request = Request::decode(message);
        let is_done = answer == Answer::Done;
        let wants = matches!(request, Some(Request::Open { .. } | Request::AddQueue(_)));
        assert_eq!(descriptors.len(), if wants && is_done { 2 } else { 0 }, "{answer:?}");
        program.watches |= is_done && matches!(request, Some(Request::Watch(_)));
        program.kept.extend(descriptors);
        if let Answer::Registered(tuple) = answer {
            self.registered.push(tuple);
        }
        true
    }

    /// What the switch says; none if it has closed the connection, as what the program watched has gone.
    fn answer(&mut self, program: &Program) -> Option<(Answer, Vec<OwnedFd>)> {
        let begun = Instant::now();
        loop {
            self.turn();
            let mut buffer = [0; MAX_MESSAGE];
            match quicket_clerk::receive_message(program.socket.as_fd(), &mut buffer) {
                Ok((0, _)) | Err(Errno::CONNRESET) => {
                    assert!(program.watches, "the switch has closed a connection");
                    return None;
                }
                Ok((len, descriptors)) => {
                    let answer = Answer::decode(&buffer[..len]).expect("it is an answer");
                    return Some((answer, descriptors));
                }
                Err(Errno::AGAIN) => {}
                Err(error) => panic!("{error}"),
            }
            assert!(begun.elapsed() < PATIENCE, "no answer");
        }
    }

    /// Another program is served.
    fn is_well(&mut self) {
        let program = self.connect().expect("all that was there has gone");
        let say = |request: Request| {
            local::send(program.socket.as_fd(), &request.encode(), &[]).expect("there is room");
        };
        let layout = quicket_ring::Layout::new(16, 16, 128).expect("a layout");
        let open = Request::Open { version: VERSION, sizes: Sizes::of(layout) };
        say(open);
        let (answer, descriptors) = self.answer(&program).expect("it is served");
        assert_eq!((answer, descriptors.len()), (Answer::Done, 2));
        say(Request::Count);
        let (answer, _) = self.answer(&program).expect("it is served");
        assert_eq!(answer, Answer::Counted(Box::default()));
    }

    /// Nothing is left of programs that have gone.
    fn until_empty(&mut self) {
        let begun = Instant::now();
        while self.daemon.connections.iter().any(Option::is_some) {
            self.turn();
            assert!(begun.elapsed() < PATIENCE, "a program that has gone is still there");
        }
        let Daemon { forwarder, users, memory, queues, .. } = &self.daemon;
        assert_eq!((forwarder.tuples(), *memory, *queues), (0, 0, 0));
        for user in users.values() {
            assert_eq!((user.connections, user.memory, user.queues, user.tuples), (0, 0, 0, 0));
        }
        // The clerk closes what he has, some time.
        let mut held: VecDeque<_> = users.values().collect();
        while let Some(user) = held.front() {
            if user.held() == 0 {
                held.pop_front();
            }
            assert!(begun.elapsed() < PATIENCE, "descriptors are not closed");
            std::thread::yield_now();
        }
    }
}

/// What comes with a message.
fn descriptors(with: u8) -> Vec<OwnedFd> {
    let udp = || UdpSocket::bind(LOCALHOST).expect("a socket");
    match with {
        1..=4 => vec![udp().into()],
        5 => vec![udp().into(), udp().into()],
        6 => vec![TcpListener::bind(LOCALHOST).expect("a socket").into()],
        7 => vec![std::fs::File::open("/dev/null").expect("a file").into()],
        8 => {
            let socket = udp();
            socket.connect("127.0.0.1:9").expect("a socket");
            vec![socket.into()]
        }
        9 => {
            let (family, kind) = (AddressFamily::INET, SocketType::STREAM);
            let socket = rustix::net::socket(family, kind, None).expect("a socket");
            let address = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
            rustix::net::bind(&socket, &address).expect("an address");
            vec![socket]
        }
        10 => vec![UdpSocket::bind("0.0.0.0:0").expect("a socket").into()],
        _ => Vec::new(),
    }
}
