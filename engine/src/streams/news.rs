//! What happens to streams step by step, for applications that follow their states.
//!
//! [`StreamEvent`](super::StreamEvent)s are hints to act; news tell each step of Figures 2 and 3
//! of RFC 9000 that the peer takes, with its numbers, and each raised limit.

use alloc::collections::VecDeque;

use quicket_wire::{Dir, StreamId};

use super::recv::RecvStream;
use super::state::{RecvState, SendState};
use super::{OutOfMemory, Streams};

/// How many news wait to be asked for; more are dropped.
const MAX_NEWS: usize = 4096;

/// One step of a stream. Offsets and sizes are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StreamNews {
    /// The first frame of the peer's half came.
    Receiving {
        /// The stream.
        id: StreamId,
    },
    /// The final size is known, and data is missing.
    SizeKnown {
        /// The stream.
        id: StreamId,
        /// The final size.
        final_size: u64,
    },
    /// All data is here.
    Received {
        /// The stream.
        id: StreamId,
        /// The final size.
        final_size: u64,
    },
    /// The peer gave its half up.
    ResetReceived {
        /// The stream.
        id: StreamId,
        /// The peer's application code.
        code: u64,
        /// The final size.
        final_size: u64,
    },
    /// The peer has all data and the end of it.
    Acked {
        /// The stream.
        id: StreamId,
    },
    /// The peer wants no more, and a reset answers it.
    Stopped {
        /// The stream.
        id: StreamId,
        /// The peer's application code.
        code: u64,
        /// The final size.
        final_size: u64,
    },
    /// The peer knows of the reset.
    ResetAcked {
        /// The stream.
        id: StreamId,
        /// The code of the reset.
        code: u64,
        /// The final size.
        final_size: u64,
    },
    /// The peer takes more of a stream (RFC 9000, Section 19.10).
    MaxStreamData {
        /// The stream.
        id: StreamId,
        /// Up to which offset.
        limit: u64,
    },
    /// The peer takes more streams (RFC 9000, Section 19.11).
    MaxStreams {
        /// Their direction.
        dir: Dir,
        /// How many since the connection began.
        limit: u64,
    },
}

/// News that wait, if anybody wants them.
#[derive(Debug, Default)]
pub(super) struct News {
    followed: bool,
    queue: VecDeque<StreamNews>,
}

impl News {
    /// Adds news, unless nobody wants them or they only repeat the last ones.
    pub(super) fn push(&mut self, news: StreamNews) {
        if self.followed && self.queue.len() < MAX_NEWS && self.queue.back() != Some(&news) {
            self.queue.push_back(news);
        }
    }
}

impl News {
    /// Gives back memory without news.
    pub(super) fn trim(&mut self) {
        self.queue.shrink_to_fit();
    }
}

/// A receiving half before a frame, to be compared with what it is after.
#[derive(Clone, Copy, Debug)]
pub(super) struct Before {
    state: RecvState,
    received: u64,
}

impl Before {
    pub(super) fn of(recv: &RecvStream) -> Self {
        Self { state: recv.state(), received: recv.received() }
    }
}

impl News {
    /// What a STREAM or RESET_STREAM frame changed.
    pub(super) fn on_received(&mut self, id: StreamId, before: Before, recv: &RecvStream) {
        if !self.followed {
            return;
        }
        let (state, final_size) = (recv.state(), recv.final_size());
        let is_reset = matches!(state, RecvState::ResetRecvd | RecvState::ResetRead);
        if before.state == RecvState::Recv && before.received == 0 && !is_reset {
            self.push(StreamNews::Receiving { id });
        }
        if state == before.state {
            return;
        }
        self.push(match state {
            RecvState::Recv => return,
            RecvState::SizeKnown => StreamNews::SizeKnown { id, final_size },
            RecvState::DataRecvd | RecvState::DataRead => StreamNews::Received { id, final_size },
            RecvState::ResetRecvd | RecvState::ResetRead => {
                StreamNews::ResetReceived { id, code: recv.reset_code(), final_size }
            }
        });
    }
}

/// Where the halves of a stream stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamStatus {
    /// The sending half; `None` if this side only receives.
    pub send: Option<SendStatus>,
    /// The receiving half; `None` if this side only sends.
    pub recv: Option<RecvStatus>,
}

/// Where a sending half stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendStatus {
    /// Its state, as the peer could know it.
    pub state: SendState,
    /// The application has written something.
    pub written: bool,
    /// The application has ended it.
    pub finished: bool,
}

/// Where a receiving half stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecvStatus {
    /// Its state.
    pub state: RecvState,
    /// Up to which offset data, or a reset, came.
    pub received: u64,
    /// The peer was asked to stop.
    pub stopped: bool,
}

/// Streams of one direction, counted since the connection began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamCounts {
    /// How many this side has opened.
    pub opened: u64,
    /// How many the peer lets this side open.
    pub permitted: u64,
    /// How many the peer has opened.
    pub opened_by_peer: u64,
}

/// What can be written now, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendRoom {
    /// What the peer's limits leave beyond what was written already.
    pub credit: u64,
    /// The room in the send buffers.
    pub buffer: usize,
}

impl Streams {
    /// Collects [`StreamNews`] from now on, or no more.
    pub(crate) fn follow(&mut self, follow: bool) {
        self.news.followed = follow;
        if !follow {
            self.news.queue.clear();
        }
    }

    /// True if news are collected.
    pub(crate) fn is_followed(&self) -> bool {
        self.news.followed
    }

    /// The next news.
    pub(crate) fn poll_news(&mut self) -> Option<StreamNews> {
        self.news.queue.pop_front()
    }

    /// Where the halves of a stream stand; `None` if it is closed or was never open.
    pub(crate) fn status(&mut self, id: StreamId) -> Option<StreamStatus> {
        let Some(slot) = self.table.find(id) else { return self.untouched_status(id) };
        self.table.get(slot).map(|stream| StreamStatus {
            send: stream.send.as_ref().map(|send| SendStatus {
                state: send.state(),
                written: send.state() != SendState::Ready || send.end() > 0,
                finished: !send.is_open(),
            }),
            recv: stream.recv.as_ref().map(|recv| RecvStatus {
                state: recv.state(),
                received: recv.received(),
                stopped: recv.is_stopped(),
            }),
        })
    }

    /// The status of a stream that a higher one opened and nobody has used.
    fn untouched_status(&self, id: StreamId) -> Option<StreamStatus> {
        let open =
            id.initiator() != self.side && self.remote.get(id.dir()).is_untouched(id.index());
        let send = SendStatus { state: SendState::Ready, written: false, finished: false };
        let recv = RecvStatus { state: RecvState::Recv, received: 0, stopped: false };
        open.then(|| StreamStatus {
            send: (id.dir() == Dir::Bidi).then_some(send),
            recv: Some(recv),
        })
    }

    /// How many streams there were.
    pub(crate) fn counts(&self, dir: Dir) -> StreamCounts {
        let local = self.local.get(dir);
        StreamCounts {
            opened: local.opened(),
            permitted: local.limit(),
            opened_by_peer: self.remote.get(dir).opened(),
        }
    }

    /// How many written bytes were never sent, on all streams.
    pub(crate) fn unsent(&self) -> u64 {
        let halves = self.table.slots().filter_map(|slot| self.table.get(slot)?.send.as_ref());
        halves.map(|send| send.unsent()).fold(0, u64::saturating_add)
    }

    /// What the peer lets all streams send beyond what was written.
    pub(crate) fn credit_left(&self) -> u64 {
        let credit = self.credit.available();
        // All that is held bounds what is unsent, and is cheaper to know.
        if credit >= (self.held as u64).saturating_mul(2) && credit > 0 {
            return credit.saturating_sub(self.held as u64);
        }
        credit.saturating_sub(self.unsent())
    }

    /// What can be written to a stream now; `None` if nothing ever again.
    pub(crate) fn send_room(&mut self, id: StreamId) -> Result<Option<SendRoom>, OutOfMemory> {
        let Some(slot) = self.find(id)? else { return Ok(None) };
        let credit_left = self.credit_left();
        let buffer = self.room(slot);
        let send = self.table.get(slot).and_then(|stream| stream.send.as_ref());
        Ok(send.filter(|send| send.is_open()).map(|send| {
            let of_stream = send.credit_available().saturating_sub(send.unsent());
            SendRoom { credit: of_stream.min(credit_left), buffer }
        }))
    }

    /// The room that all streams share in the send buffers, in bytes.
    pub(crate) fn buffer_left(&self) -> usize {
        self.send_limit().saturating_sub(self.held)
    }

    /// Holds data back, or no more.
    pub(crate) fn cork(&mut self, corked: bool) {
        self.corked = corked;
    }

    /// Has the peer told that it permits too few streams (RFC 9000, Section 4.6).
    pub(crate) fn tell_streams_blocked(&mut self, dir: Dir) {
        self.local.get_mut(dir).refuse();
    }

    /// Has the peer told of limits that keep the application from writing to a stream, once they
    /// are used up (RFC 9000, Section 4.1).
    pub(crate) fn tell_blocked(&mut self, id: StreamId) {
        if self.credit_left() == 0 {
            self.tell_blocked = true;
        }
        let Some(slot) = self.table.find(id) else { return };
        if let Some(send) = self.table.get_mut(slot).and_then(|stream| stream.send.as_mut()) {
            send.tell_blocked();
            self.settle(slot);
        }
    }
}
