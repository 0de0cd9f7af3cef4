//! One stream: two halves and its places in the queues.

use quicket_wire::StreamId;

use super::half::Half;
use super::recv::RecvStream;
use super::scheduler::Place;
use super::send::{SendStream, Sendable};
use super::slab::{Link, Linked};
use super::state::SendState;

/// A set of events that wait for the application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EventFlags(u8);

impl EventFlags {
    pub(super) const NONE: Self = Self(0);
    pub(super) const READABLE: Self = Self(1);
    pub(super) const WRITABLE: Self = Self(2);
    pub(super) const STOPPED: Self = Self(4);
    pub(super) const FINISHED: Self = Self(8);

    pub(super) fn insert(&mut self, other: Self) {
        self.0 |= other.0;
    }

    pub(super) const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Takes out one event.
    pub(super) fn take_first(&mut self) -> Self {
        let lowest = self.0 & self.0.wrapping_neg();
        self.0 ^= lowest;
        Self(lowest)
    }
}

/// The queues that a stream can be in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QueueKind {
    /// With data to send: a priority level's queue or that of the blocked.
    Send,
    /// With control frames to send.
    Control,
    /// With events for the application.
    Event,
    /// Waiting for room in the send buffers of all streams.
    Writer,
}

/// How near its end a stream is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// There is more to come or to hear of.
    Open,
    /// Nothing is awaited but acknowledgments.
    Closing,
    /// Both halves are in a final state, and the application has heard of everything.
    Finished,
}

/// One stream.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) id: StreamId,
    /// `None` if the stream only receives.
    pub(super) send: Option<Half<SendStream>>,
    /// `None` if the stream only sends.
    pub(super) recv: Option<Half<RecvStream>>,
    pub(super) priority: i32,
    /// Where the scheduler has the stream.
    pub(super) place: Place,
    pub(super) events: EventFlags,
    /// The application knows the stream.
    pub(super) accepted: bool,
    /// The frame that was the first of this stream came in a 0-RTT packet.
    pub(super) early: bool,
    /// The application was told that there is no room to write.
    pub(super) wants_room: bool,
    /// The peer does not permit the stream yet; see [`super::Streams::on_early_data_rejected`].
    pub(super) held_back: bool,
    /// Its opener may open another already.
    pub(super) closing: bool,
    send_link: Link,
    control_link: Link,
    event_link: Link,
    writer_link: Link,
}

impl Linked<QueueKind> for Stream {
    fn link(&mut self, kind: QueueKind) -> &mut Link {
        match kind {
            QueueKind::Send => &mut self.send_link,
            QueueKind::Control => &mut self.control_link,
            QueueKind::Event => &mut self.event_link,
            QueueKind::Writer => &mut self.writer_link,
        }
    }
}

impl Stream {
    pub(super) const fn new(
        id: StreamId,
        send: Option<Half<SendStream>>,
        recv: Option<Half<RecvStream>>,
    ) -> Self {
        Self {
            id,
            send,
            recv,
            priority: 0,
            place: Place::Idle,
            events: EventFlags::NONE,
            accepted: false,
            early: false,
            wants_room: false,
            held_back: false,
            closing: false,
            send_link: Link::new(),
            control_link: Link::new(),
            event_link: Link::new(),
            writer_link: Link::new(),
        }
    }

    /// Bytes in the send buffer.
    pub(super) fn held(&self) -> usize {
        self.send.as_ref().map_or(0, |send| send.held())
    }

    /// Where the scheduler should have the stream.
    pub(super) fn wanted_place(&self, connection_credit: u64) -> Place {
        let sendable = self.send.as_ref().map(|send| send.sendable(connection_credit));
        match sendable {
            Some(Sendable::Now) if !self.held_back => Place::Level(self.priority),
            Some(Sendable::ConnectionBlocked) if !self.held_back => Place::Blocked,
            _ => Place::Idle,
        }
    }

    /// True if the stream is in the queue of those with control frames to send.
    pub(super) const fn is_in_control(&self) -> bool {
        self.control_link.is_queued()
    }

    /// True if any control frame is to be sent.
    pub(super) fn has_control(&self) -> bool {
        let sends =
            |send: &Half<SendStream>| send.due_reset().is_some() || send.due_blocked().is_some();
        let receives = |recv: &Half<RecvStream>| recv.due_stop().is_some() || recv.window_due();
        self.send.as_ref().is_some_and(sends) || self.recv.as_ref().is_some_and(receives)
    }

    /// How near its end the stream is.
    pub(super) fn ending(&self) -> Ending {
        let received = self.recv.as_ref().is_none_or(|recv| recv.state().is_terminal());
        if !received || !self.events.is_empty() {
            return Ending::Open;
        }
        match self.send.as_ref().map(|send| send.state()) {
            None | Some(SendState::DataRecvd | SendState::ResetRecvd) => Ending::Finished,
            Some(SendState::DataSent | SendState::ResetSent) => Ending::Closing,
            Some(SendState::Ready | SendState::Send) => Ending::Open,
        }
    }
}
