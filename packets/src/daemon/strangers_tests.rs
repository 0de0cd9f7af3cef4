//! What programs do to the switch between two of its looks.

use std::io::{IoSlice, Read};
use std::mem::MaybeUninit;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketType,
};

use super::shortage::RETRY_TIME;
use super::*;
use crate::client::Port;
use crate::local;
use crate::protocol::{Answer, MAX_MESSAGE, Request, Sizes, VERSION};

/// How long the switch may take.
const PATIENCE: Duration = Duration::from_secs(20);

struct Bench {
    daemon: Daemon,
    events: Vec<epoll::Event>,
    pace: Pace,
}

impl Bench {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("quicket-strangers-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let daemon = Daemon::bind(&path, false).unwrap();
        // Programs come without it, so that nothing is left of a process that fails.
        std::fs::remove_file(&path).unwrap();
        Self { daemon, events: Vec::with_capacity(EVENTS), pace: Pace::new() }
    }

    fn turn(&mut self) {
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        let Self { daemon, events, pace, .. } = self;
        daemon.turn(events, pace, Some(&at_once)).unwrap();
    }

    fn connect(&mut self) -> OwnedFd {
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (theirs, ours) = rustix::net::socketpair(family, kind, flags, None).unwrap();
        self.daemon.welcome(ours).unwrap();
        theirs
    }

    /// A port, and what has come with it.
    fn open(&mut self) -> (OwnedFd, Vec<OwnedFd>) {
        let program = self.connect();
        say_open(&program);
        let kept = self.opened(&program);
        (program, kept)
    }

    fn opened(&mut self, program: &OwnedFd) -> Vec<OwnedFd> {
        let (begun, mut buffer) = (Instant::now(), [0; MAX_MESSAGE]);
        loop {
            self.turn();
            match quicket_clerk::receive_message(program.as_fd(), &mut buffer) {
                Ok((len, kept)) => {
                    assert_eq!(Answer::decode(&buffer[..len]), Some(Answer::Done));
                    return kept;
                }
                Err(error) => assert_eq!(error, Errno::AGAIN),
            }
            assert!(begun.elapsed() < PATIENCE, "no answer");
        }
    }
}

fn say_open(program: &OwnedFd) {
    let layout = quicket_ring::Layout::new(16, 16, 128).unwrap();
    let open = Request::Open { version: VERSION, sizes: Sizes::of(layout) };
    local::send(program.as_fd(), &open.encode(), &[]).unwrap();
}

/// Rings, with a descriptor.
fn ring_with(bell: &OwnedFd, with: &UnixStream, flags: SendFlags) {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut rights = SendAncillaryBuffer::new(&mut space);
    let with = [with.as_fd()];
    assert!(rights.push(SendAncillaryMessage::ScmRights(&with)));
    rustix::net::sendmsg(bell, &[IoSlice::new(&[1])], &mut rights, flags).unwrap();
}

/// The bell rings, the connection ends, and another program opens a port: one look sees all three, in that order.
#[test]
fn what_came_by_a_bell_before_its_connection_ended_is_closed_by_the_clerk_of_its_user() {
    for flags in [SendFlags::empty(), SendFlags::OOB] {
        let mut bench = Bench::new();
        let (program, kept) = bench.open();
        let (next, port) = (bench.connect(), bench.daemon.connections[0].as_ref().unwrap().port);
        // Until the port is looked at when it rings only.
        let begun = Instant::now();
        while bench.daemon.forwarder.is_active() {
            assert!(begun.elapsed() < PATIENCE, "it is looked at all the time");
            bench.turn();
        }
        let (with, mut other) = UnixStream::pair().unwrap();
        ring_with(&kept[1], &with, flags);
        drop((program, with));
        say_open(&next);
        let _kept = bench.opened(&next);
        let has_gone = bench.daemon.connections[0].is_none();
        assert!(has_gone, "the look that has opened the port has closed the other one");
        assert_eq!(bench.daemon.connections[1].as_ref().unwrap().port, port, "it has its number");
        assert!(bench.daemon.porter.is_none(), "it counts for nobody");
        other.set_read_timeout(Some(PATIENCE)).unwrap();
        assert_eq!(other.read(&mut [0]).unwrap(), 0, "it is closed");
        (0..100).for_each(|_| bench.turn());
        assert!(bench.daemon.connections[1].is_some(), "the other one's port stays");
    }
}

/// Others had what the system did not have for a while: no program of this switch goes, so that nothing tells when it is there again.
#[test]
fn who_was_not_let_in_for_want_of_descriptors_is_let_in_once_there_are_some() {
    let path = std::env::temp_dir().join(format!("quicket-deaf-{}", std::process::id()));
    let mut daemon = Daemon::bind(&path, false).unwrap();
    daemon.be_deaf();
    let (stop, stopped) = UnixStream::pair().unwrap();
    let switch = std::thread::spawn(move || daemon.run(stopped.as_fd()).unwrap());
    let (opened, opens) = channel();
    let program = std::thread::spawn(move || {
        let layout = quicket_ring::Layout::new(16, 16, 128).unwrap();
        let _ = opened.send(Port::open(&path, layout).is_ok());
    });
    assert_eq!(opens.recv_timeout(PATIENCE), Ok(true), "nobody is let in any more");
    drop(stop);
    switch.join().unwrap();
    program.join().unwrap();
}

/// Its sender is not looked at all the time until there is room, and heard then.
#[test]
fn a_message_that_has_no_room_is_looked_at_now_and_then() {
    let mut bench = Bench::new();
    let program = bench.connect();
    let limit = std::mem::take(&mut bench.daemon.limit);
    let file = std::fs::File::open("/dev/null").unwrap();
    let message = Request::Count.encode();
    local::send(program.as_fd(), &message, &[file.as_fd()]).unwrap();
    let begun = Instant::now();
    while bench.daemon.shortage.crowded.is_empty() {
        bench.turn();
        assert!(begun.elapsed() < PATIENCE, "it is not put off");
    }
    bench.daemon.limit = limit;
    let mut buffer = [0; MAX_MESSAGE];
    while quicket_clerk::receive_message(program.as_fd(), &mut buffer).is_err() {
        bench.turn();
        assert!(begun.elapsed() < PATIENCE, "it is not heard");
    }
    assert!(begun.elapsed() >= RETRY_TIME && bench.daemon.shortage.crowded.is_empty());
}

/// As after `be_deaf` for want of what there still is not: it is tried now and then, and not all the time.
#[test]
fn a_switch_that_lets_nobody_in_tries_again_now_and_then() {
    let mut bench = Bench::new();
    bench.daemon.be_deaf();
    let begun = Instant::now();
    while bench.daemon.shortage.is_deaf {
        bench.turn();
        assert!(begun.elapsed() < PATIENCE, "it is deaf for ever");
    }
    assert!(begun.elapsed() >= RETRY_TIME, "it tries all the time");
}
