//! Which stream sends next.

use alloc::vec::Vec;

use super::slab::{Queue, Slab, Slot};
use super::stream::{QueueKind, Stream};

/// Where a stream waits to send data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Nowhere: nothing to send, or no leave to.
    Idle,
    /// Among those of its priority.
    Level(i32),
    /// For the peer to raise the limit of all streams together.
    Blocked,
}

#[derive(Debug)]
struct Level {
    priority: i32,
    queue: Queue<QueueKind>,
}

/// Streams with data to send: higher priorities first, and among equals either by turns or one
/// to its end before the next.
#[derive(Debug)]
pub(super) struct Scheduler {
    /// By descending priority; none is empty.
    levels: Vec<Level>,
    blocked: Queue<QueueKind>,
    fair: bool,
}

impl Scheduler {
    pub(super) const fn new(fair: bool) -> Self {
        Self { levels: Vec::new(), blocked: Queue::new(QueueKind::Send), fair }
    }

    /// Gives back memory without streams.
    pub(super) fn trim(&mut self) {
        self.levels.shrink_to_fit();
    }

    /// True if no stream can send.
    pub(super) fn is_empty(&self) -> bool {
        self.levels.is_empty()
    }

    /// True if streams wait for the limit of all streams together.
    pub(super) fn has_blocked(&self) -> bool {
        !self.blocked.is_empty()
    }

    /// The stream whose turn it is.
    pub(super) fn front(&self) -> Option<Slot> {
        self.levels.first()?.queue.front()
    }

    /// True if the stream whose turn it is has it as long as it can send.
    pub(super) fn is_undisturbed(&self) -> bool {
        !self.fair || self.levels.first().is_some_and(|level| level.queue.has_one())
    }

    /// Moves a stream to `place`, at its end; one that is there already keeps its turn.
    #[inline]
    pub(super) fn put(&mut self, slab: &mut Slab<Stream>, slot: Slot, place: Place) {
        let Some(stream) = slab.get_mut(slot) else { return };
        let from = core::mem::replace(&mut stream.place, place);
        if from != place {
            self.leave(slab, slot, from);
            self.enter(slab, slot, place);
        }
    }

    /// The stream has had its turn.
    pub(super) fn rotate(&mut self, slab: &mut Slab<Stream>, slot: Slot) {
        let Some(stream) = slab.get_mut(slot) else { return };
        let place = stream.place;
        let Place::Level(priority) = place else { return };
        if !self.fair {
            return;
        }
        if let Ok(at) = self.find(priority)
            && let Some(level) = self.levels.get_mut(at)
        {
            level.queue.remove(slab, slot);
            level.queue.push_back(slab, slot);
        }
    }

    /// Takes the first of those that wait for the limit of all streams together.
    pub(super) fn pop_blocked(&mut self, slab: &mut Slab<Stream>) -> Option<Slot> {
        let slot = self.blocked.pop_front(slab)?;
        if let Some(stream) = slab.get_mut(slot) {
            stream.place = Place::Idle;
        }
        Some(slot)
    }

    fn leave(&mut self, slab: &mut Slab<Stream>, slot: Slot, place: Place) {
        match place {
            Place::Idle => {}
            Place::Blocked => self.blocked.remove(slab, slot),
            Place::Level(priority) => {
                let Ok(at) = self.find(priority) else { return };
                let Some(level) = self.levels.get_mut(at) else { return };
                level.queue.remove(slab, slot);
                if level.queue.is_empty() {
                    self.levels.remove(at);
                }
            }
        }
    }

    fn enter(&mut self, slab: &mut Slab<Stream>, slot: Slot, place: Place) {
        match place {
            Place::Idle => {}
            Place::Blocked => self.blocked.push_back(slab, slot),
            Place::Level(priority) => {
                let at = match self.find(priority) {
                    Ok(at) => at,
                    Err(at) => {
                        let queue = Queue::new(QueueKind::Send);
                        self.levels.insert(at, Level { priority, queue });
                        at
                    }
                };
                if let Some(level) = self.levels.get_mut(at) {
                    level.queue.push_back(slab, slot);
                }
            }
        }
    }

    fn find(&self, priority: i32) -> Result<usize, usize> {
        self.levels.binary_search_by(|level| priority.cmp(&level.priority))
    }
}
