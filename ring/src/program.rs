//! The side of a program: frames where they stand.
#![allow(unsafe_code, reason = "octets of shared slots are shown to the program as slices")]

use std::sync::Arc;

use crate::descriptor::Descriptor;
use crate::layout::Way;
use crate::memory::Memory;
use crate::queue::{Consumer, Lie, Producer};

/// How many frames ahead the processor fetches: what the switch has on another core takes it as long as a few frames.
const AHEAD: u32 = 8;

/// Sends frames: fills slots in place, and publishes many at once.
///
/// This side trusts the switch, which has made the memory: it does not write to slots that are not its own at the
/// moment.
#[derive(Debug)]
pub struct Sender {
    memory: Arc<Memory>,
    ring: Producer,
    /// Positions that are known to be free.
    room: u32,
}

/// Receives frames: reads slots in place, and gives many back at once.
#[derive(Debug)]
pub struct Receiver {
    memory: Arc<Memory>,
    ring: Consumer,
    /// Positions that are known to be published.
    ready: u32,
}

/// The two halves of a port that nobody has used yet.
#[must_use]
pub fn halves(memory: Memory) -> (Sender, Receiver) {
    let memory = Arc::new(memory);
    let sender = Sender { memory: Arc::clone(&memory), ring: Producer::new(), room: 0 };
    (sender, Receiver { memory, ring: Consumer::new(), ready: 0 })
}

impl Sender {
    /// How many frames have room, at least if it is fewer than `wanted`.
    ///
    /// # Errors
    ///
    /// When the other side's index cannot be.
    #[inline]
    pub fn room(&mut self, wanted: u32) -> Result<u32, Lie> {
        self.room = self.ring.room(self.memory.lines(Way::Send), wanted)?;
        Ok(self.room)
    }

    /// The slot of the `n`th frame that has room: what stands there from an earlier frame, to be overwritten.
    #[inline]
    pub fn slot(&mut self, n: u32) -> Option<&mut [u8]> {
        if n >= self.room {
            return None;
        }
        // Position and slot belong together: nothing of shared memory is asked.
        let lines = self.memory.lines(Way::Send);
        let slot = lines.place(self.ring.count().wrapping_add(n));
        self.memory.prefetch_to_write(lines.place(slot.wrapping_add(AHEAD)));
        // SAFETY: the position is free, so that the switch does not read its slot, and never writes slots of sending.
        // Of this process, nobody else has this half, and the other half only reads slots of receiving.
        unsafe { self.memory.octets_mut(slot) }
    }

    /// Says how long the `n`th frame is, in octets.
    #[inline]
    pub fn set_len(&mut self, n: u32, len: u16) {
        if n < self.room {
            let lines = self.memory.lines(Way::Send);
            let slot = lines.place(self.ring.count().wrapping_add(n));
            self.ring.put(lines, n, Descriptor { slot, len });
        }
    }

    /// Sends the next `n` frames. Returns whether the switch sleeps, and its bell is to be rung.
    #[inline]
    #[must_use]
    pub fn publish(&mut self, n: u32) -> bool {
        let n = n.min(self.room);
        self.room -= n;
        self.ring.publish(self.memory.lines(Way::Send), n)
    }

    /// Says that this side waits for room; its bell rings when there is some. False if there is by now.
    ///
    /// # Errors
    ///
    /// When the other side's index cannot be.
    pub fn wait(&mut self) -> Result<bool, Lie> {
        self.ring.wait(self.memory.lines(Way::Send))
    }

    /// Says that this side does not wait any more.
    pub fn wake(&mut self) {
        self.ring.wake(self.memory.lines(Way::Send));
    }
}

impl Receiver {
    /// How many frames have come.
    ///
    /// # Errors
    ///
    /// When the other side's index cannot be.
    #[inline]
    pub fn ready(&mut self) -> Result<u32, Lie> {
        self.ready = self.ring.ready(self.memory.lines(Way::Receive))?;
        Ok(self.ready)
    }

    /// The `n`th frame that has come.
    #[inline]
    #[must_use]
    pub fn frame(&self, n: u32) -> Option<&[u8]> {
        if n >= self.ready {
            return None;
        }
        let lines = self.memory.lines(Way::Receive);
        let Descriptor { slot, len } = self.ring.get(lines, n);
        if n.saturating_add(AHEAD) < self.ready {
            self.memory.prefetch(self.ring.get(lines, n + AHEAD).slot);
        }
        // Slots of sending are written by the other half.
        if slot < self.memory.layout().first_slot(Way::Receive) {
            return None;
        }
        // SAFETY: the position is published, so that the switch does not write to its slot until it is
        // released, which takes this half mutably. Here it is only read, and the other half has no slots of receiving.
        let octets = unsafe { self.memory.octets(slot) }?;
        octets.get(..usize::from(len))
    }

    /// Gives the next `n` frames back.
    #[inline]
    pub fn release(&mut self, n: u32) {
        let n = n.min(self.ready);
        self.ready -= n;
        // The switch never waits for room: it drops frames.
        let _ = self.ring.release(self.memory.lines(Way::Receive), n);
    }

    /// Says that this side sleeps; its bell rings when frames come. False if some have come by now.
    ///
    /// # Errors
    ///
    /// When the other side's index cannot be.
    pub fn sleep(&mut self) -> Result<bool, Lie> {
        self.ring.sleep(self.memory.lines(Way::Receive))
    }

    /// Says that this side sleeps, and never takes that back ([`Consumer::rest`]). False if more than `held` frames have come.
    ///
    /// # Errors
    ///
    /// When the other side's index cannot be.
    pub fn rest(&mut self, held: u32) -> Result<bool, Lie> {
        self.ring.rest(self.memory.lines(Way::Receive), held)
    }

    /// Says that this side does not sleep any more.
    pub fn wake(&mut self) {
        self.ring.wake(self.memory.lines(Way::Receive));
    }
}
