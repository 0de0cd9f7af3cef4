//! A program's side: a port.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use quicket_ring::program::{Receiver, Sender};
use quicket_ring::{Bell, Layout, Memory};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use crate::counters::Counters;
use crate::local;
use crate::protocol::{Answer, MAX_MESSAGE, Request, Sizes, VERSION};
use crate::queue::Queue;
use crate::tuple::Tuple;
use crate::watch::Seen;

/// Answers that nobody waits for, at most: the switch closes a connection whose answers have no room.
const MAX_OWED: u32 = 16;

/// A port at the switch for packets. It lives until this is dropped or the process ends, and its tuples
/// with it; a process that was forked from this one keeps it, too.
#[derive(Debug)]
pub struct Port {
    registrar: Registrar,
    queue: Queue,
}

/// What a port consists of, for who has threads or locks of his own for each: [`Port::into_parts`].
#[derive(Debug)]
pub struct Parts {
    /// Registers and removes tuples. The port lives as long as this.
    pub registrar: Registrar,
    /// Rings when frames have come, or when there is room, for a side that has said that it sleeps.
    pub bell: Bell,
    /// Sends frames.
    pub sender: Sender,
    /// Receives them.
    pub receiver: Receiver,
}

/// Registers and removes the tuples of a port: asks the switch, and waits for its answer.
#[derive(Debug)]
pub struct Registrar {
    control: OwnedFd,
    /// Answers to [`Registrar::start_removal`] that are still to come, before all others.
    owed: u32,
}

impl Registrar {
    const fn new(control: OwnedFd) -> Self {
        Self { control, owed: 0 }
    }

    /// As [`Port::register`].
    ///
    /// # Errors
    ///
    /// Those of [`Port::register`].
    pub fn register(&mut self, socket: impl AsFd) -> io::Result<Tuple> {
        self.register_until(socket, None)
    }

    fn register_until(&mut self, socket: impl AsFd, until: Option<Instant>) -> io::Result<Tuple> {
        self.settle_until(until)?;
        let (control, proof) = (self.control.as_fd(), [socket.as_fd()]);
        match ask_until(control, Request::Register, &proof, until)? {
            (Answer::Registered(tuple), _) => Ok(tuple),
            (answer, _) => Err(answer.into_error()),
        }
    }

    /// As [`Port::remove`].
    ///
    /// # Errors
    ///
    /// Those of [`Port::remove`].
    pub fn remove(&mut self, tuple: Tuple) -> io::Result<()> {
        self.order(Request::Remove(tuple))
    }

    /// Gives a tuple back without waiting for the answer. What is asked after it is answered after it, too; that the port does not
    /// own the tuple is not said. Returns false, with nothing done, while the switch has 16 of them to answer, or takes no
    /// more requests: to be tried again later.
    ///
    /// # Errors
    ///
    /// When the switch has gone.
    pub fn start_removal(&mut self, tuple: Tuple) -> io::Result<bool> {
        while self.owed > 0 {
            match hear(self.control.as_fd())? {
                Some(_) => self.owed -= 1,
                None => break,
            }
        }
        if self.owed >= MAX_OWED {
            return Ok(false);
        }
        let is_sent = say(self.control.as_fd(), Request::Remove(tuple), &[])?;
        self.owed += u32::from(is_sent);
        Ok(is_sent)
    }

    /// Waits until the switch has answered all of [`Registrar::start_removal`].
    ///
    /// # Errors
    ///
    /// When the switch has gone.
    pub fn settle(&mut self) -> io::Result<()> {
        self.settle_until(None)
    }

    fn settle_until(&mut self, until: Option<Instant>) -> io::Result<()> {
        while self.owed > 0 {
            hear_until(self.control.as_fd(), until)?;
            self.owed -= 1;
        }
        Ok(())
    }

    /// As [`Port::counters`].
    ///
    /// # Errors
    ///
    /// Those of [`Port::counters`].
    pub fn counters(&mut self) -> io::Result<Counters> {
        self.settle()?;
        match ask(self.control.as_fd(), Request::Count, &[])? {
            (Answer::Counted(counters), _) => Ok(*counters),
            (answer, _) => Err(answer.into_error()),
        }
    }

    fn order(&mut self, request: Request) -> io::Result<()> {
        self.settle()?;
        match ask(self.control.as_fd(), request, &[])? {
            (Answer::Done, _) => Ok(()),
            (answer, _) => Err(answer.into_error()),
        }
    }
}

impl Port {
    /// Opens a port at the switch that listens at a path.
    ///
    /// # Errors
    ///
    /// What the system says, such as `NotFound` and `ConnectionRefused` when no switch is there; `OutOfMemory` when the
    /// user's ports would have more memory than they may.
    pub fn open(path: &Path, layout: Layout) -> io::Result<Self> {
        Self::open_until(path, layout, None)
    }

    /// The same, with a time by which the switch has to have answered: `TimedOut` then.
    pub(crate) fn open_until(
        path: &Path,
        layout: Layout,
        until: Option<Instant>,
    ) -> io::Result<Self> {
        let control = connect_until(path, until)?;
        let request = Request::Open { version: VERSION, sizes: Sizes::of(layout) };
        let (answer, descriptors) = ask_until(control.as_fd(), request, &[], until)?;
        let queue = queue(answer, descriptors, layout)?;
        Ok(Self { registrar: Registrar::new(control), queue })
    }

    /// Registers what a socket is bound to: from now on, frames to that tuple come to this port, and it may send with
    /// it as source. The switch keeps the socket, so that nobody else binds it; this process need not.
    ///
    /// The socket is one of TCP or UDP that is bound to one address and port, without SO_REUSEADDR and
    /// SO_REUSEPORT, and neither listens nor is connected; or a raw one of a protocol without ports, bound to an
    /// address.
    ///
    /// # Errors
    ///
    /// `ResourceBusy` when the tuple has an owner; `InvalidInput`, `AddrNotAvailable`, `PermissionDenied` and others when
    /// the socket proves nothing, with the reason.
    pub fn register(&mut self, socket: impl AsFd) -> io::Result<Tuple> {
        self.register_until(socket, None)
    }

    /// The same, with a time by which the switch has to have answered: `TimedOut` then.
    pub(crate) fn register_until(
        &mut self,
        socket: impl AsFd,
        until: Option<Instant>,
    ) -> io::Result<Tuple> {
        self.registrar.register_until(socket, until)
    }

    /// Gives a tuple back.
    ///
    /// # Errors
    ///
    /// `NotFound` when this port does not own it.
    pub fn remove(&mut self, tuple: Tuple) -> io::Result<()> {
        self.registrar.remove(tuple)
    }

    /// Has this port, which has no tuples, shown what the port that owns a tuple sends, and what comes for it, those frames
    /// included for which it has no room. [`Port::see`] reads that. It ends with that port.
    ///
    /// # Errors
    ///
    /// `NotFound` when no port of this user has the tuple (root may see all), `ResourceBusy` when somebody watches
    /// that port.
    pub fn watch(&mut self, tuple: Tuple) -> io::Result<()> {
        self.registrar.order(Request::Watch(tuple))
    }

    /// Reads up to `most` frames of a port that is watched. Returns how many there were.
    ///
    /// # Errors
    ///
    /// As [`Port::receive`].
    pub fn see(&mut self, most: u32, mut read: impl FnMut(Seen<'_>)) -> io::Result<u32> {
        self.receive(most, |shown| {
            if let Some(seen) = Seen::read(shown) {
                read(seen);
            }
        })
    }

    /// The parts, for who has threads or locks of his own for each.
    #[must_use]
    pub fn into_parts(self) -> Parts {
        let Self { registrar, queue } = self;
        let (bell, sender, receiver) = queue.into_parts();
        Parts { registrar, bell, sender, receiver }
    }

    /// What became of this port's frames.
    ///
    /// # Errors
    ///
    /// When the switch has gone.
    pub fn counters(&mut self) -> io::Result<Counters> {
        self.registrar.counters()
    }

    /// The first queue of the port, by which it sends and receives itself.
    pub const fn queue(&mut self) -> &mut Queue {
        &mut self.queue
    }

    /// Adds a queue, over which and over those that there are the port's flows are spread from now on. It is added while the port
    /// has no tuples, so that no flow changes its queue.
    ///
    /// # Errors
    ///
    /// `InvalidInput` once the port has tuples; `OutOfMemory` when the user's ports would have more memory than they may;
    /// `QuotaExceeded` when the port has [`MAX_QUEUES`](crate::MAX_QUEUES), or the user as many ports and queues as he may.
    pub fn add_queue(&mut self, layout: Layout) -> io::Result<Queue> {
        let request = Request::AddQueue(Sizes::of(layout));
        self.registrar.settle()?;
        let (answer, descriptors) = ask(self.registrar.control.as_fd(), request, &[])?;
        queue(answer, descriptors, layout)
    }

    /// As [`Queue::send`].
    ///
    /// # Errors
    ///
    /// When the switch has gone. A length beyond the slot is a frame that the switch drops.
    pub fn send(&mut self, write: impl FnMut(&mut [u8]) -> Option<usize>) -> io::Result<u32> {
        self.queue.send(write)
    }

    /// As [`Queue::receive`].
    ///
    /// # Errors
    ///
    /// `InvalidData` when the switch has left what cannot be.
    pub fn receive(&mut self, most: u32, read: impl FnMut(&[u8])) -> io::Result<u32> {
        self.queue.receive(most, read)
    }

    /// As [`Queue::room`].
    ///
    /// # Errors
    ///
    /// `Other` when the switch has left what cannot be.
    pub fn room(&mut self, wanted: u32) -> io::Result<u32> {
        self.queue.room(wanted)
    }

    /// As [`Queue::slot`].
    pub fn slot(&mut self, n: u32) -> Option<&mut [u8]> {
        self.queue.slot(n)
    }

    /// As [`Queue::set_len`].
    pub fn set_len(&mut self, n: u32, len: u16) {
        self.queue.set_len(n, len);
    }

    /// As [`Queue::publish`].
    ///
    /// # Errors
    ///
    /// When the switch has gone.
    pub fn publish(&mut self, n: u32) -> io::Result<()> {
        self.queue.publish(n)
    }

    /// As [`Queue::ready`].
    ///
    /// # Errors
    ///
    /// `Other` when the switch has left what cannot be.
    pub fn ready(&mut self) -> io::Result<u32> {
        self.queue.ready()
    }

    /// As [`Queue::frame`].
    #[must_use]
    pub fn frame(&self, n: u32) -> Option<&[u8]> {
        self.queue.frame(n)
    }

    /// As [`Queue::release`].
    pub fn release(&mut self, n: u32) {
        self.queue.release(n);
    }

    /// As [`Queue::wait`].
    ///
    /// # Errors
    ///
    /// `ConnectionReset` when the switch has gone, or `Interrupted` by a signal.
    pub fn wait(&mut self, time: Option<Duration>) -> io::Result<bool> {
        self.queue.wait(time)
    }

    /// As [`Queue::wait_for_room`].
    ///
    /// # Errors
    ///
    /// As [`Port::wait`].
    pub fn wait_for_room(&mut self, time: Option<Duration>) -> io::Result<bool> {
        self.queue.wait_for_room(time)
    }

    /// As [`Queue::sleep`].
    ///
    /// # Errors
    ///
    /// When the switch has left what cannot be.
    pub fn sleep(&mut self) -> io::Result<bool> {
        self.queue.sleep()
    }

    /// As [`Queue::awake`].
    ///
    /// # Errors
    ///
    /// `ConnectionReset` when the switch has gone.
    pub fn awake(&mut self) -> io::Result<()> {
        self.queue.awake()
    }
}

/// The queue that the switch has made.
fn queue(answer: Answer, descriptors: Vec<OwnedFd>, layout: Layout) -> io::Result<Queue> {
    let Ok([memory, bell]) = <[OwnedFd; 2]>::try_from(descriptors) else {
        return Err(answer.into_error());
    };
    Ok(Queue::new(Memory::open(memory, layout)?, Bell::from_descriptor(bell)))
}

impl AsFd for Port {
    /// Readable when the switch has rung, or has gone.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.queue.as_fd()
    }
}

/// Connects to the switch that listens at a path.
pub(crate) fn connect(path: &Path) -> io::Result<OwnedFd> {
    connect_until(path, None)
}

/// How long there is until a time; an error if it is over.
fn left(until: Option<Instant>) -> io::Result<Option<Duration>> {
    let left = until.map(|until| until.saturating_duration_since(Instant::now()));
    if left.is_some_and(|left| left < Duration::from_millis(1)) {
        return Err(too_late());
    }
    Ok(left)
}

fn too_late() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "the switch for packets does not answer in time")
}

fn connect_until(path: &Path, until: Option<Instant>) -> io::Result<OwnedFd> {
    let address = SocketAddrUnix::new(path)?;
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    let control = rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
    // It waits for as long as others do, whom nobody accepts.
    let left = left(until)?;
    if left.is_some() {
        set_socket_timeout(&control, Timeout::Send, left)?;
    }
    match rustix::net::connect(&control, &address) {
        Err(Errno::AGAIN) if until.is_some() => Err(too_late()),
        result => Ok(result.map(|()| control)?),
    }
}

/// Asks the switch, and waits for its answer.
pub(crate) fn ask(
    control: BorrowedFd<'_>,
    request: Request,
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<(Answer, Vec<OwnedFd>)> {
    ask_until(control, request, descriptors, None)
}

fn ask_until(
    control: BorrowedFd<'_>,
    request: Request,
    descriptors: &[BorrowedFd<'_>],
    until: Option<Instant>,
) -> io::Result<(Answer, Vec<OwnedFd>)> {
    if !say(control, request, descriptors)? {
        return Err(Errno::AGAIN.into());
    }
    hear_until(control, until)
}

fn gone() -> io::Error {
    let text = "the switch for packets has gone, or has closed this port: open another";
    io::Error::new(io::ErrorKind::ConnectionReset, text)
}

/// Sends a request. Returns whether there was room for it.
fn say(
    control: BorrowedFd<'_>,
    request: Request,
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<bool> {
    match local::send(control, &request.encode(), descriptors) {
        Ok(()) => Ok(true),
        Err(Errno::AGAIN) => Ok(false),
        Err(Errno::PIPE | Errno::CONNRESET) => Err(gone()),
        Err(error) => Err(error.into()),
    }
}

/// The next answer, if it is there.
fn hear(control: BorrowedFd<'_>) -> io::Result<Option<(Answer, Vec<OwnedFd>)>> {
    let mut buffer = [0; MAX_MESSAGE];
    match local::receive(control, &mut buffer) {
        Ok((0, _)) | Err(Errno::CONNRESET) => Err(gone()),
        Ok((len, descriptors)) => {
            let answer = buffer.get(..len).and_then(Answer::decode);
            Ok(Some((answer.ok_or(io::ErrorKind::InvalidData)?, descriptors)))
        }
        Err(Errno::AGAIN) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Waits for the next answer.
fn hear_until(
    control: BorrowedFd<'_>,
    until: Option<Instant>,
) -> io::Result<(Answer, Vec<OwnedFd>)> {
    loop {
        if let Some(heard) = hear(control)? {
            return Ok(heard);
        }
        let time = left(until)?.map(|left| Timespec {
            tv_sec: left.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        });
        match poll(&mut [PollFd::new(&control, PollFlags::IN)], time.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_switch_that_says_nothing_is_waited_for_until_a_time() {
        let dir = std::env::temp_dir().join(format!("quicket-silent-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let path = dir.join("switch");
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let listener = rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None).unwrap();
        rustix::net::bind(&listener, &SocketAddrUnix::new(&*path).unwrap()).unwrap();
        rustix::net::listen(&listener, 0).unwrap();
        let layout = Layout::new(16, 16, 2048).unwrap();
        // Nobody accepts: the first is in the queue, and waits for its answer; the others wait for room in it.
        let _queued = connect(&path).unwrap();
        for _ in 0..3 {
            let begun = Instant::now();
            let until = begun + Duration::from_millis(50);
            let error = Port::open_until(&path, layout, Some(until)).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{error}");
            assert!(begun.elapsed() < Duration::from_secs(10));
        }
        // One that is accepted, and no more.
        drop(rustix::net::accept(&listener).unwrap());
        let control = connect(&path).unwrap();
        let _accepted = rustix::net::accept(&listener).unwrap();
        let until = Instant::now() + Duration::from_millis(50);
        let error = ask_until(control.as_fd(), Request::Count, &[], Some(until)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{error}");
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn answers_that_nobody_waits_for_come_before_others_and_are_so_many() {
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let flags = SocketFlags::CLOEXEC;
        let (ours, switch) = rustix::net::socketpair(family, kind, flags, None).unwrap();
        let mut registrar = Registrar::new(ours);
        let tuple =
            |port| Tuple { address: std::net::Ipv4Addr::LOCALHOST.into(), protocol: 6, port };
        let answer = |answer: Answer| local::send(switch.as_fd(), &answer.encode(), &[]).unwrap();
        let asked = || {
            let mut buffer = [0; MAX_MESSAGE];
            let received = local::receive(switch.as_fd(), &mut buffer);
            received.map(|(len, _)| Request::decode(&buffer[..len]).unwrap())
        };
        for port in 0..16 {
            assert!(registrar.start_removal(tuple(port)).unwrap());
            assert_eq!(asked(), Ok(Request::Remove(tuple(port))));
        }
        assert!(!registrar.start_removal(tuple(16)).unwrap());
        assert_eq!(asked(), Err(Errno::AGAIN), "nothing was sent");
        // Whatever the answer is, there is room for another one.
        answer(Answer::refuse(Errno::NOENT, "it is not this port's"));
        assert!(registrar.start_removal(tuple(16)).unwrap());
        assert_eq!(asked(), Ok(Request::Remove(tuple(16))));
        // What is asked now is answered behind all of them.
        (0..16).for_each(|_| answer(Answer::Done));
        let mut counters = Counters::default();
        counters.sent = 3;
        answer(Answer::Counted(counters.into()));
        assert_eq!(registrar.counters().unwrap(), counters);
        assert_eq!(asked(), Ok(Request::Count));
        registrar.settle().unwrap();
        drop(switch);
        let error = registrar.start_removal(tuple(1)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset, "{error}");
    }
}
