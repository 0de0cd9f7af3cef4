//! A program's side: a port.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use quicket_ring::program::{Receiver, Sender};
use quicket_ring::{Bell, Layout};

use crate::ask::{ask_until, connect_until};
use crate::counters::Counters;
use crate::protocol::{Request, Sizes, VERSION};
use crate::queue::Queue;
use crate::tuple::Tuple;
use crate::watch::Seen;

pub use crate::handed::{Opening, VARIABLE, inherited};
pub use crate::registrar::Registrar;

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

    /// Opens the port of a connection to the switch that somebody else has opened, and has handed to this program, such as by
    /// `quicket switch open`: a program in another network namespace, where no socket proves an address of the host. What he has
    /// reserved for it is in [`Port::reserved`], and [`Port::claim`] registers it. A connection has one port in its life.
    ///
    /// # Errors
    ///
    /// As [`Port::open`]; `NotConnected` and others when it is no such connection.
    pub fn open_on(control: OwnedFd, layout: Layout) -> io::Result<Self> {
        let mut registrar = Registrar::handed(control)?;
        let request = Request::Open { version: VERSION, sizes: Sizes::of(layout) };
        let (answer, descriptors) = registrar.ask(request)?;
        let queue = Queue::made(answer, descriptors, layout)?;
        Ok(Self { registrar, queue })
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
        let queue = Queue::made(answer, descriptors, layout)?;
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

    /// As [`Registrar::reserved`].
    #[must_use]
    pub fn reserved(&self) -> &[Tuple] {
        self.registrar.reserved()
    }

    /// As [`Registrar::claim`].
    ///
    /// # Errors
    ///
    /// Those of [`Registrar::claim`].
    pub fn claim(&mut self, tuple: Tuple) -> io::Result<Tuple> {
        self.registrar.claim(tuple)
    }

    /// As [`Registrar::claim_one`].
    ///
    /// # Errors
    ///
    /// Those of [`Registrar::claim_one`].
    pub fn claim_one(&mut self, protocol: u8, address: SocketAddr) -> io::Result<Tuple> {
        self.registrar.claim_one(protocol, address)
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

    /// Adds a queue, over which and over those that there are the port's flows are spread from now on. Where the port has tuples
    /// by then, flows of theirs change their queues: what has come for one before is still where it was.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if the port watches another one; `OutOfMemory` when the user's ports would have more memory than they may;
    /// `QuotaExceeded` when the port has [`MAX_QUEUES`](crate::MAX_QUEUES), or the user as many ports and queues as he may.
    pub fn add_queue(&mut self, layout: Layout) -> io::Result<Queue> {
        self.registrar.add_queue(layout)
    }

    /// Both parts: what asks the switch, such as for further queues, and the port's first queue. The port lives as long as both.
    #[must_use]
    pub fn split(self) -> (Registrar, Queue) {
        (self.registrar, self.queue)
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

impl AsFd for Port {
    /// Readable when the switch has rung, or has gone.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.queue.as_fd()
    }
}
