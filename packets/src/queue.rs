//! A queue of a port: frames out and in, and a bell.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use quicket_ring::program::{Receiver, Sender};
use quicket_ring::{Bell, Gone, Layout, Memory, program};

use crate::protocol::Answer;

/// How many calls in a row that find no room it takes to ask the system whether the switch has gone: who waits for room by trying again and
/// again is not to make a system call each time.
pub const LOOKS: u32 = 64;

/// One queue of a port ([`Port::add_queue`](crate::client::Port::add_queue)). It ends with its port. Each may be another
/// thread's. If one is dropped before its port, flows would go to nobody: the switch closes the port then.
///
/// Frames for the port are spread over its queues: those of one flow (both addresses, the protocol, both ports) come to one
/// and in order, and so do errors of ICMP about what was sent in it. Any queue may send with any tuple of the port.
#[derive(Debug)]
pub struct Queue {
    bell: Bell,
    sender: Sender,
    receiver: Receiver,
    /// How often in a row there was no room.
    refusals: u32,
}

impl Queue {
    pub(crate) fn new(memory: Memory, bell: Bell) -> Self {
        let (sender, receiver) = program::halves(memory);
        Self { bell, sender, receiver, refusals: 0 }
    }

    /// The one that the switch has made.
    pub(crate) fn made(
        answer: Answer,
        descriptors: Vec<OwnedFd>,
        layout: Layout,
    ) -> io::Result<Self> {
        let Ok([memory, bell]) = <[OwnedFd; 2]>::try_from(descriptors) else {
            return Err(answer.into_error());
        };
        Ok(Self::new(Memory::open(memory, layout)?, Bell::from_descriptor(bell)))
    }

    /// The bell, and both halves, for who has locks of his own.
    pub(crate) fn into_parts(self) -> (Bell, Sender, Receiver) {
        (self.bell, self.sender, self.receiver)
    }

    /// Writes frames into slots until there are no more or no room is left, and sends them at once. `write` fills a
    /// slot and returns the length of the frame in octets, or none if there are no more. Returns how many
    /// were sent.
    ///
    /// # Errors
    ///
    /// When the switch has gone: at the latest once the ring is full and this was called [`LOOKS`] times more. A length beyond the slot is a
    /// frame that the switch drops.
    pub fn send(&mut self, mut write: impl FnMut(&mut [u8]) -> Option<usize>) -> io::Result<u32> {
        let room = self.room(1)?;
        let mut n = 0;
        while n < room {
            let Some(len) = self.sender.slot(n).and_then(&mut write) else { break };
            self.sender.set_len(n, u16::try_from(len).unwrap_or(u16::MAX));
            n += 1;
        }
        if n > 0 && self.sender.publish(n) {
            self.bell.ring()?;
        }
        Ok(n)
    }

    /// Reads up to `most` frames that have come, in place, and gives their slots back at once. Returns how many
    /// there were.
    ///
    /// # Errors
    ///
    /// `InvalidData` when the switch has left what cannot be.
    pub fn receive(&mut self, most: u32, mut read: impl FnMut(&[u8])) -> io::Result<u32> {
        let n = self.receiver.ready().map_err(io::Error::other)?.min(most);
        for at in 0..n {
            read(self.receiver.frame(at).ok_or(io::ErrorKind::InvalidData)?);
        }
        if n > 0 {
            self.receiver.release(n);
        }
        Ok(n)
    }

    /// How many frames have room, at least `wanted` or else all that have. [`Queue::slot`], [`Queue::set_len`] and
    /// [`Queue::publish`] send them in place.
    ///
    /// # Errors
    ///
    /// `Other` when the switch has left what cannot be; `ConnectionReset` when it has gone, which is asked of the system only after
    /// [`LOOKS`] calls in a row that found no room.
    pub fn room(&mut self, wanted: u32) -> io::Result<u32> {
        let room = self.sender.room(wanted).map_err(io::Error::other)?;
        if room > 0 {
            self.refusals = 0;
            return Ok(room);
        }
        self.refusals += 1;
        if self.refusals >= LOOKS {
            self.refusals = 0;
            if self.bell.is_gone()? {
                return Err(Gone.into());
            }
        }
        Ok(0)
    }

    /// The slot of the `n`th frame that has room: what stands there from an earlier one, to be overwritten.
    pub fn slot(&mut self, n: u32) -> Option<&mut [u8]> {
        self.sender.slot(n)
    }

    /// Says how long the `n`th frame is, in octets.
    pub fn set_len(&mut self, n: u32, len: u16) {
        self.sender.set_len(n, len);
    }

    /// Sends the first `n` frames at once.
    ///
    /// # Errors
    ///
    /// When the switch has gone and had said that it sleeps. Otherwise [`Queue::room`] tells.
    pub fn publish(&mut self, n: u32) -> io::Result<()> {
        if n > 0 && self.sender.publish(n) {
            self.bell.ring()?;
        }
        Ok(())
    }

    /// How many frames have come. [`Queue::frame`] and [`Queue::release`] read them in place.
    ///
    /// # Errors
    ///
    /// `Other` when the switch has left what cannot be.
    pub fn ready(&mut self) -> io::Result<u32> {
        self.receiver.ready().map_err(io::Error::other)
    }

    /// The `n`th frame that has come.
    #[must_use]
    pub fn frame(&self, n: u32) -> Option<&[u8]> {
        self.receiver.frame(n)
    }

    /// Gives the first `n` frames back.
    pub fn release(&mut self, n: u32) {
        self.receiver.release(n);
    }

    /// Waits until frames have come, for some time or without end. Returns false if none have by then.
    ///
    /// # Errors
    ///
    /// `ConnectionReset` when the switch has gone, or `Interrupted` by a signal.
    pub fn wait(&mut self, time: Option<Duration>) -> io::Result<bool> {
        let receiver = &mut self.receiver;
        let result = sleep_on(&self.bell, time, || receiver.sleep().map_err(io::Error::other));
        self.receiver.wake();
        result
    }

    /// Waits until there is room to send, for some time or without end. Returns false if there is none by then.
    ///
    /// # Errors
    ///
    /// As [`Queue::wait`].
    pub fn wait_for_room(&mut self, time: Option<Duration>) -> io::Result<bool> {
        let sender = &mut self.sender;
        let result = sleep_on(&self.bell, time, || sender.wait().map_err(io::Error::other));
        self.sender.wake();
        result
    }

    /// Says that this side waits for [`Queue::as_fd`] to become readable, with other descriptors: false if frames have
    /// come by now, so that it is not to wait. [`Queue::awake`] comes after that.
    ///
    /// # Errors
    ///
    /// When the switch has left what cannot be.
    pub fn sleep(&mut self) -> io::Result<bool> {
        self.receiver.sleep().map_err(io::Error::other)
    }

    /// In place of [`Queue::sleep`] and [`Queue::awake`], for who waits by descriptor before he looks, or after he has taken some
    /// of the frames only: says that this side sleeps, and takes rings that mean nothing any more. [`Queue::as_fd`] is readable whenever
    /// more than `held` frames have come, of which the caller has seen that many and not given them back. False if more have come by now.
    /// Nothing else may take rings of this queue: neither those two nor [`Queue::wait`] and [`Queue::wait_for_room`].
    ///
    /// No frame waits without a ring: the word "asleep" stands there from the beginning, and only the switch takes it back, with one ring for
    /// each time, after it has published. So whenever the word is gone, a ring has come or is coming that was not counted
    /// before the word was raised. Rings are taken only if nothing had come after it was raised (or was seen to stand there),
    /// and only those that were counted before: what they were for has been taken from the queue, and the ring for what comes later is not
    /// among them. One that comes late ends a poll for nothing, and is taken by the next call. ring/tests/model tries all interleavings.
    ///
    /// # Errors
    ///
    /// `ConnectionReset` when the switch has gone, or `Other` when it has left what cannot be.
    pub fn rest(&mut self, held: u32) -> io::Result<bool> {
        let stale = self.bell.rung()?;
        let rests = self.receiver.rest(held).map_err(io::Error::other)?;
        if rests {
            self.bell.take(stale)?;
        }
        Ok(rests)
    }

    /// For who has found no room and waits by descriptor: [`Queue::as_fd`] is not writable until the switch has looked at this queue
    /// again. That costs the switch two calls of the system, and is nothing for who tries again at once.
    ///
    /// Nobody waits for ever: the switch is rung, and reads that after the queue was found full, or closes its end.
    ///
    /// # Errors
    ///
    /// `ConnectionReset` when the switch has gone, or what the system says.
    pub fn hold(&mut self) -> io::Result<()> {
        self.bell.fill()
    }

    /// Takes rings that have come.
    ///
    /// # Errors
    ///
    /// `ConnectionReset` when the switch has gone.
    pub fn awake(&mut self) -> io::Result<()> {
        self.receiver.wake();
        Ok(self.bell.hush()?)
    }
}

/// Waits for the bell until there is nothing to wait for any more, which is true, or the time is over. `waits` says to the
/// other side that this one waits, and whether it has to.
fn sleep_on(
    bell: &Bell,
    time: Option<Duration>,
    mut waits: impl FnMut() -> io::Result<bool>,
) -> io::Result<bool> {
    // What is later than any clock is without end.
    let deadline = time.and_then(|time| Instant::now().checked_add(time));
    loop {
        if !waits()? {
            return Ok(true);
        }
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        if !bell.wait(left)? {
            return Ok(false);
        }
        bell.hush()?;
    }
}

impl AsFd for Queue {
    /// Readable when the switch has rung, or has gone.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}
