//! Frames that a port has sent together, on their way through the switch.
//!
//! They go step by step, all of them each step: copied, checked, delivered. So the processor fetches what it needs of
//! one while it waits for another's, and what a step has written is in its cache when the next one reads it.

use quicket_ring::{Consumer, Descriptor, MAX_SLOT, Memory, Way};

use crate::counters::{Counters, Reason};
use crate::frame::{self, Ends};
use crate::registry::{Owner, Registry};

/// Frames of a port in one turn: then others have theirs.
pub const BATCH: u32 = 64;

/// Where the copy of a frame begins, its length, and to whom it goes.
#[derive(Clone, Copy, Default)]
struct Frame {
    at: u32,
    len: u16,
    owner: Owner,
}

/// The switch's own copies of frames: what is checked is what is delivered.
pub(crate) struct Batch {
    copies: Box<[u8]>,
    frames: [Frame; BATCH as usize],
    len: usize,
}

impl Batch {
    pub(crate) fn new() -> Self {
        let copies = vec![0; MAX_SLOT as usize].into();
        Self { copies, frames: [Frame::default(); BATCH as usize], len: 0 }
    }

    /// Copies frames that stand at positions of a port's ring, from `from` to `to`, as many as there is room for, and
    /// one at least. Returns the position behind them. What cannot be copied is counted.
    #[inline]
    pub(crate) fn copy(
        &mut self,
        (memory, ring): (&Memory, &Consumer),
        (from, to): (u32, u32),
        counters: &mut Counters,
    ) -> u32 {
        let lines = memory.lines(Way::Send);
        let mut used = 0;
        self.len = 0;
        for position in from..to {
            let Descriptor { slot, len } = ring.get(lines, position);
            let rest = self.copies.get_mut(used..).unwrap_or_default();
            // A frame has whole lines: so `load` copies them.
            let room = usize::from(len).next_multiple_of(64);
            if used > 0 && room > rest.len() {
                return position;
            }
            let Some(place) = self.frames.get_mut(self.len) else { return position };
            if memory.load(slot, len.into(), rest).is_none() {
                counters.drop_one(Reason::Descriptor);
                continue;
            }
            *place = Frame { at: used as u32, len, owner: 0 };
            self.len += 1;
            used += room;
        }
        to
    }

    /// Checks the copies, and finds out to whom they go. Those that a port may not send, or nobody has, are counted and
    /// left out.
    #[inline]
    pub(crate) fn check(&mut self, sender: Owner, registry: &Registry, counters: &mut Counters) {
        // Most often, neighbours are of one flow; and what is registered does not change meanwhile.
        let mut last: Option<(Ends, Owner)> = None;
        let mut kept = 0;
        for n in 0..self.len {
            let frame = self.frames[n];
            let at = frame.at as usize;
            let octets = self.copies.get(at..at + usize::from(frame.len)).unwrap_or_default();
            let found = frame::check(octets).and_then(|ends| match last {
                Some((same, owner)) if same == ends => Ok(owner),
                _ => {
                    let owner = owner(ends, sender, registry)?;
                    last = Some((ends, owner));
                    Ok(owner)
                }
            });
            match found {
                Ok(owner) => {
                    self.frames[kept] = Frame { owner, ..frame };
                    kept += 1;
                }
                Err(reason) => counters.drop_one(reason),
            }
        }
        self.len = kept;
    }

    /// How many frames there are.
    #[inline]
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// To whom the `n`th frame goes, and how many that follow one another go to the same.
    #[inline]
    pub(crate) fn run(&self, n: usize) -> Option<(Owner, usize)> {
        let frames = self.frames.get(n..self.len)?;
        let owner = frames.first()?.owner;
        let run = frames.iter().take_while(|frame| frame.owner == owner).count();
        Some((owner, run))
    }

    /// The `n`th frame's copy, with what is behind it up to whole lines, and its length.
    #[inline]
    pub(crate) fn frame(&mut self, n: usize) -> Option<(&mut [u8], u16)> {
        let Frame { at, len, .. } = *self.frames.get(n)?;
        let (at, whole) = (at as usize, usize::from(len).next_multiple_of(64));
        Some((self.copies.get_mut(at..at + whole)?, len))
    }
}

/// Who has the destination, if the source is the sender's.
#[inline]
fn owner(ends: Ends, sender: Owner, registry: &Registry) -> Result<Owner, Reason> {
    if registry.owner(ends.source) != Some(sender) {
        return Err(Reason::Source);
    }
    registry.owner(ends.destination).ok_or(Reason::Destination)
}
