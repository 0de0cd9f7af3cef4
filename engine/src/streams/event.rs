//! What happened to streams.

use quicket_wire::{Dir, StreamId};

use super::stream::EventFlags;
use super::{DIRS, Streams};

/// Something happened to a stream.
///
/// An event is a hint, given once for any number of causes since the last one: act until the
/// call says `Blocked`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StreamEvent {
    /// The peer opened one or more streams: accept them.
    Opened {
        /// Their direction.
        dir: Dir,
    },
    /// Streams can be opened again after [`OpenError::StreamLimit`](super::OpenError).
    Available {
        /// Their direction.
        dir: Dir,
    },
    /// There is data, the end or a reset to read on an accepted stream.
    Readable {
        /// The stream.
        id: StreamId,
    },
    /// There is room to write again after [`WriteError::Blocked`](super::WriteError) or a write
    /// that took less than all.
    Writable {
        /// The stream.
        id: StreamId,
    },
    /// The peer's QUIC stack has acknowledged everything up to the end of the stream.
    Finished {
        /// The stream.
        id: StreamId,
    },
    /// The peer wants no more of what this side sends (RFC 9000, Section 3.5); the stream was
    /// reset in answer.
    Stopped {
        /// The stream.
        id: StreamId,
        /// The peer's application code.
        code: u64,
    },
}

impl Streams {
    /// The next event. Bounded without losing any: a stream waits at most once, with a set of
    /// flags.
    pub(crate) fn poll_event(&mut self) -> Option<StreamEvent> {
        for dir in DIRS {
            if self.remote.get_mut(dir).take_opened_event() {
                return Some(StreamEvent::Opened { dir });
            }
            if self.local.get_mut(dir).take_available_event() {
                return Some(StreamEvent::Available { dir });
            }
        }
        let slot = self.events.front()?;
        let stream = self.table.get_mut(slot)?;
        let id = stream.id;
        let event = match stream.events.take_first() {
            EventFlags::READABLE => StreamEvent::Readable { id },
            EventFlags::WRITABLE => StreamEvent::Writable { id },
            EventFlags::STOPPED => {
                let code = stream.send.as_ref().and_then(|send| send.stopped());
                StreamEvent::Stopped { id, code: code.unwrap_or_default() }
            }
            _ => StreamEvent::Finished { id },
        };
        if stream.events.is_empty() {
            self.events.remove(self.table.slab_mut(), slot);
            self.settle(slot);
        }
        Some(event)
    }
}
