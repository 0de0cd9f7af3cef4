//! Unreliable datagrams (RFC 9221).

use alloc::collections::VecDeque;
use core::fmt;

use quicket_wire::frame::{Datagram, Padding};
use quicket_wire::{FrameEncode, TransportErrorCode};

use crate::error::TransportError;
use crate::frame_sink::FrameSink;
use crate::message_queue::{MessageQueue, PushError};
use crate::sent_frame::SentFrame;

/// How many fates wait to be asked for; the oldest is forgotten for one more.
const MAX_FATES: usize = 1024;

/// What to do with a datagram for which the send queue has no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum WhenFull {
    /// Refuse it with [`DatagramError::Blocked`].
    #[default]
    Block,
    /// Drop the oldest that wait: what is late is of no use.
    DropOldest,
}

/// Why a datagram was not queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DatagramError {
    /// The peer takes no datagrams (RFC 9221, Section 3) or has not said yet that it does, or
    /// the send queue is configured to hold nothing.
    Unsupported,
    /// The datagram is larger than what the peer takes, the path carries or the queue holds.
    TooLarge {
        /// The largest datagram that can be sent now, in bytes.
        max: usize,
    },
    /// The send queue is full. Try again when there is room.
    Blocked,
    /// Memory for the datagram could not be had.
    OutOfMemory,
}

impl fmt::Display for DatagramError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsupported => f.write_str("the peer does not take datagrams"),
            Self::TooLarge { max } => write!(f, "the datagram is too large: at most {max} bytes"),
            Self::Blocked => f.write_str("the queue of datagrams is full; wait for room"),
            Self::OutOfMemory => f.write_str("out of memory for a datagram"),
        }
    }
}

impl core::error::Error for DatagramError {}

/// What became of a datagram. A lost one may still turn out to be acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DatagramFate {
    /// The peer's QUIC stack has it (RFC 9221, Section 5.2); not necessarily its application.
    Acked(u64),
    /// The packet that carried it is taken for lost. It is not repeated.
    Lost(u64),
    /// It was never sent: the path no longer carries it, or it made room for a newer one.
    Dropped(u64),
}

/// The datagrams of a connection: a queue in each direction, both bounded in bytes.
#[derive(Debug)]
pub(crate) struct Datagrams {
    to_send: MessageQueue,
    received: MessageQueue,
    /// What the two may hold at most, in bytes.
    buffers: [usize; 2],
    /// The largest frame that this side has announced to take, in bytes; 0 refuses all.
    local_max_frame: u64,
    /// The largest frame that the peer takes.
    peer_max_frame: u64,
    /// The room for frames in a packet on the current path.
    path_max_frame: usize,
    next_id: u64,
    /// The application was refused for want of room.
    refused: bool,
    follow: bool,
    fates: VecDeque<DatagramFate>,
    received_dropped: u64,
}

impl Datagrams {
    /// Queues of `send_buffer` and `receive_buffer` bytes, each datagram counted with
    /// [`MessageQueue::OVERHEAD`]. `local_max_frame` is the max_datagram_frame_size that this
    /// side announces, 0 for none.
    pub(crate) fn new(send_buffer: usize, receive_buffer: usize, local_max_frame: u64) -> Self {
        Self {
            to_send: MessageQueue::new(send_buffer),
            received: MessageQueue::new(receive_buffer),
            buffers: [send_buffer, receive_buffer],
            local_max_frame,
            peer_max_frame: 0,
            path_max_frame: 0,
            next_id: 0,
            refused: false,
            follow: false,
            fates: VecDeque::new(),
            received_dropped: 0,
        }
    }

    /// Gives back memory of empty queues.
    pub(crate) fn trim(&mut self) {
        self.to_send.trim();
        self.received.trim();
        self.fates.shrink_to_fit();
    }

    /// How many bytes of memory the queues take.
    pub(crate) fn memory(&self) -> usize {
        self.to_send.memory().saturating_add(self.received.memory())
    }

    /// How many bytes each queue may hold now, if that is less than its buffer.
    pub(crate) fn set_allowance(&mut self, bytes: usize) {
        let [send, receive] = self.buffers;
        self.to_send.set_max_cost(send.min(bytes));
        self.received.set_max_cost(receive.min(bytes));
    }

    /// The peer's max_datagram_frame_size (RFC 9221, Section 3).
    pub(crate) fn set_peer_limit(&mut self, max_datagram_frame_size: u64) {
        self.peer_max_frame = max_datagram_frame_size;
    }

    /// How many bytes of frames fit into a 1-RTT packet on the current path. What waits and does
    /// not fit any more is dropped when its turn comes.
    pub(crate) fn set_path_limit(&mut self, room: usize) {
        self.path_max_frame = room;
    }

    /// Reports what becomes of datagrams through [`Self::poll_fate`], or stops to.
    pub(crate) fn follow_fates(&mut self, follow: bool) {
        self.follow = follow;
        self.fates.clear();
    }

    /// The largest datagram that can be sent now, in bytes; `None` if the peer takes none or
    /// there is no send queue.
    pub(crate) fn max_size(&self) -> Option<usize> {
        let queue = self.to_send.max_len()?;
        let peer = usize::try_from(self.peer_max_frame).unwrap_or(usize::MAX);
        // Only the type: a datagram alone in its packet needs no length.
        let frame = peer.min(self.path_max_frame);
        (peer > 0).then(|| frame.saturating_sub(1).min(queue))
    }

    /// Queues a datagram; returns the ID by which its fate is reported.
    pub(crate) fn send(&mut self, data: &[u8], full: WhenFull) -> Result<u64, DatagramError> {
        let max = self.max_size().ok_or(DatagramError::Unsupported)?;
        if data.len() > max {
            return Err(DatagramError::TooLarge { max });
        }
        if full == WhenFull::DropOldest {
            while !self.to_send.has_room(data.len()) {
                let Some(id) = self.to_send.pop() else { break };
                self.report(DatagramFate::Dropped(id));
            }
        }
        let id = self.next_id;
        match self.to_send.push(id, data) {
            Ok(()) => {}
            Err(PushError::Full) => {
                self.refused = true;
                return Err(DatagramError::Blocked);
            }
            Err(PushError::OutOfMemory) => return Err(DatagramError::OutOfMemory),
        }
        self.next_id = self.next_id.wrapping_add(1);
        Ok(id)
    }

    /// True once for each time that there is room again after [`DatagramError::Blocked`].
    pub(crate) fn take_unblocked(&mut self) -> bool {
        let unblocked = self.refused && self.to_send.is_half_empty();
        self.refused &= !unblocked;
        unblocked
    }

    /// How many bytes of datagrams wait to be sent.
    pub(crate) fn bytes_unsent(&self) -> usize {
        self.to_send.bytes()
    }

    /// True if datagrams wait to be sent.
    pub(crate) fn has_pending(&self) -> bool {
        !self.to_send.is_empty()
    }

    /// Writes as many datagrams as fit into a packet, in order, each whole.
    pub(crate) fn write_frames(&mut self, sink: &mut impl FrameSink) {
        while let Some((id, data)) = self.to_send.front() {
            let bare = Datagram { data, has_length: false }.encoded_len();
            if bare > self.path_max_frame || bare as u64 > self.peer_max_frame {
                self.to_send.pop();
                self.report(DatagramFate::Dropped(id));
                continue;
            }
            let whole = Datagram { data, has_length: true }.encoded_len();
            let has_length = whole <= sink.remaining() && whole as u64 <= self.peer_max_frame;
            let frame = Datagram { data, has_length };
            let size = frame.encoded_len();
            // A frame without a length must end the packet, so it must fill it.
            if !has_length && size < sink.remaining() {
                let count = sink.remaining().saturating_sub(size);
                if sink.frame(&Padding { count }, None).is_err() {
                    return;
                }
            }
            if sink.frame(&frame, Some(SentFrame::Datagram { id })).is_err() {
                return;
            }
            self.to_send.pop();
        }
    }

    /// Takes in a DATAGRAM frame. One that does not fit into the receive queue displaces the
    /// oldest that the application has not taken.
    pub(crate) fn on_frame(&mut self, frame: &Datagram<'_>) -> Result<(), TransportError> {
        // RFC 9221, Section 3: the limit is on the whole frame, its type and length included.
        if frame.encoded_len() as u64 > self.local_max_frame {
            return Err(TransportError::at(
                TransportErrorCode::PROTOCOL_VIOLATION,
                Datagram::TYPE,
                "a datagram larger than announced",
            ));
        }
        let len = frame.data.len();
        while self.received.max_len() >= Some(len) && !self.received.has_room(len) {
            self.received.pop();
            self.received_dropped = self.received_dropped.saturating_add(1);
        }
        if self.received.push(0, frame.data).is_err() {
            self.received_dropped = self.received_dropped.saturating_add(1);
        }
        Ok(())
    }

    /// The oldest received datagram.
    pub(crate) fn peek(&self) -> Option<&[u8]> {
        self.received.front().map(|(_, data)| data)
    }

    /// Drops the oldest received datagram.
    pub(crate) fn pop(&mut self) {
        self.received.pop();
    }

    /// How many received datagrams were dropped before the application took them.
    pub(crate) fn received_dropped(&self) -> u64 {
        self.received_dropped
    }

    /// The packet with datagram `id` was acknowledged.
    pub(crate) fn on_acked(&mut self, id: u64) {
        self.report(DatagramFate::Acked(id));
    }

    /// The packet with datagram `id` was lost.
    pub(crate) fn on_lost(&mut self, id: u64) {
        self.report(DatagramFate::Lost(id));
    }

    /// What became of a datagram, while this is followed.
    pub(crate) fn poll_fate(&mut self) -> Option<DatagramFate> {
        self.fates.pop_front()
    }

    fn report(&mut self, fate: DatagramFate) {
        if !self.follow {
            return;
        }
        if self.fates.len() >= MAX_FATES {
            self.fates.pop_front();
        }
        if self.fates.try_reserve(1).is_ok() {
            self.fates.push_back(fate);
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use quicket_wire::Frame;

    use super::*;
    use crate::testing::TestPacket;

    const COST: usize = MessageQueue::OVERHEAD;

    /// Room for `send` and `receive` datagrams of 100 bytes.
    fn datagrams(send: usize, receive: usize) -> Datagrams {
        let mut datagrams =
            Datagrams::new(send * (100 + COST), receive * (100 + COST), u64::from(u16::MAX));
        datagrams.set_peer_limit(1200);
        datagrams.set_path_limit(1150);
        datagrams.follow_fates(true);
        datagrams
    }

    fn sent_in(datagrams: &mut Datagrams, room: usize) -> (Vec<Vec<u8>>, Vec<u64>) {
        let mut packet = TestPacket::new(room);
        datagrams.write_frames(&mut packet);
        let data = packet.frames().into_iter().filter_map(|frame| match frame {
            Frame::Datagram(datagram) => Some(datagram.data.to_vec()),
            _ => None,
        });
        let ids = packet.sent.iter().map(|sent| match sent {
            SentFrame::Datagram { id } => *id,
            other => panic!("{other:?}"),
        });
        (data.collect(), ids.collect())
    }

    /// What they take is counted where many connections share the memory.
    #[test]
    fn an_allowance_bounds_both_queues_below_their_buffers() {
        let mut datagrams = Datagrams::new(1 << 20, 1 << 20, 65_535);
        datagrams.set_peer_limit(65_535);
        datagrams.set_path_limit(1_200);
        let data = [7; 1_000];
        let fill = |datagrams: &mut Datagrams| {
            for _ in 0..2_000 {
                let _ = datagrams.send(&data, WhenFull::Block);
                datagrams.on_frame(&Datagram { data: &data, has_length: true }).unwrap();
            }
            datagrams.memory()
        };
        datagrams.set_allowance(64 << 10);
        let little = fill(&mut datagrams);
        assert!((128 << 10..=2 * (136 << 10)).contains(&little), "{little}");
        datagrams.set_allowance(usize::MAX);
        let much = fill(&mut datagrams);
        assert!((2 << 20..=2 * (2 << 20) + (1 << 18)).contains(&much), "{much}");
    }

    #[test]
    fn nothing_is_sent_before_the_peer_agrees() {
        // RFC 9221, Section 3
        let mut datagrams = Datagrams::new(10_000, 10_000, 65_535);
        datagrams.set_path_limit(1150);
        assert_eq!(datagrams.send(b"x", WhenFull::Block), Err(DatagramError::Unsupported));
        datagrams.set_peer_limit(500);
        assert_eq!(datagrams.max_size(), Some(499));
        let too_large = datagrams.send(&[0; 500], WhenFull::Block);
        assert_eq!(too_large, Err(DatagramError::TooLarge { max: 499 }));
        datagrams.set_peer_limit(65_535);
        assert_eq!(datagrams.max_size(), Some(1149), "the path's limit");
    }

    #[test]
    fn datagrams_go_out_whole_and_in_order() {
        let mut datagrams = datagrams(4, 1);
        for n in 0..4 {
            datagrams.send(&[n; 100], WhenFull::Block).unwrap();
        }
        let (data, ids) = sent_in(&mut datagrams, 250);
        assert_eq!((data.len(), ids), (2, alloc::vec![0, 1]));
        assert_eq!(data[1], [1; 100]);
        assert!(datagrams.has_pending());
        let (data, _) = sent_in(&mut datagrams, 102);
        assert_eq!(data, [[2; 100]], "padded by a byte for want of room for the length");
        let (data, _) = sent_in(&mut datagrams, 100);
        assert!(data.is_empty());
        let (data, _) = sent_in(&mut datagrams, 101);
        assert_eq!((data, datagrams.has_pending()), (alloc::vec![alloc::vec![3; 100]], false));
    }

    #[test]
    fn a_full_queue_blocks_until_it_is_half_empty() {
        let mut datagrams = datagrams(2, 1);
        datagrams.send(&[0; 100], WhenFull::Block).unwrap();
        datagrams.send(&[1; 100], WhenFull::Block).unwrap();
        assert!(!datagrams.take_unblocked());
        assert_eq!(datagrams.send(&[2; 100], WhenFull::Block), Err(DatagramError::Blocked));
        assert!(!datagrams.take_unblocked());
        sent_in(&mut datagrams, 120);
        assert!(datagrams.take_unblocked() && !datagrams.take_unblocked());
    }

    #[test]
    fn a_full_queue_can_drop_the_oldest_instead() {
        let mut datagrams = datagrams(2, 1);
        for n in 0..4 {
            datagrams.send(&[n; 100], WhenFull::DropOldest).unwrap();
        }
        assert_eq!(datagrams.poll_fate(), Some(DatagramFate::Dropped(0)));
        assert_eq!(datagrams.poll_fate(), Some(DatagramFate::Dropped(1)));
        assert_eq!(sent_in(&mut datagrams, 1150).1, [2, 3]);
    }

    #[test]
    fn what_the_path_no_longer_carries_is_dropped_at_its_turn() {
        let mut datagrams = datagrams(9, 1);
        datagrams.send(&[0; 500], WhenFull::Block).unwrap();
        datagrams.send(&[0; 100], WhenFull::Block).unwrap();
        datagrams.set_path_limit(300);
        assert_eq!(sent_in(&mut datagrams, 300).1, [1]);
        assert_eq!(datagrams.poll_fate(), Some(DatagramFate::Dropped(0)));
    }

    #[test]
    fn fates_are_reported_while_followed_and_bounded() {
        let mut datagrams = datagrams(1, 1);
        datagrams.on_lost(5);
        datagrams.on_acked(5);
        assert_eq!(datagrams.poll_fate(), Some(DatagramFate::Lost(5)));
        assert_eq!(datagrams.poll_fate(), Some(DatagramFate::Acked(5)));
        for id in 0..2 * MAX_FATES as u64 {
            datagrams.on_acked(id);
        }
        assert_eq!(datagrams.fates.len(), MAX_FATES);
        datagrams.follow_fates(false);
        datagrams.on_acked(1);
        assert_eq!(datagrams.poll_fate(), None);
    }

    #[test]
    fn a_frame_larger_than_announced_is_a_violation() {
        // RFC 9221, Section 3: type, length and data count.
        let mut datagrams = Datagrams::new(0, 10_000, 100);
        let ok = Datagram { data: &[0; 99], has_length: false };
        assert_eq!(datagrams.on_frame(&ok), Ok(()));
        for (len, has_length) in [(100, false), (99, true)] {
            let frame = Datagram { data: &[0; 100][..len], has_length };
            let error = datagrams.on_frame(&frame).unwrap_err();
            assert_eq!(error.code, TransportErrorCode::PROTOCOL_VIOLATION);
        }
        let mut refusing = Datagrams::new(0, 0, 0);
        assert!(refusing.on_frame(&Datagram { data: b"", has_length: false }).is_err());
    }

    #[test]
    fn the_receive_queue_drops_the_oldest_and_counts() {
        let mut datagrams = datagrams(1, 2);
        for n in 0..3 {
            datagrams.on_frame(&Datagram { data: &[n; 100], has_length: true }).unwrap();
        }
        assert_eq!((datagrams.peek(), datagrams.received_dropped()), (Some(&[1; 100][..]), 1));
        datagrams.pop();
        datagrams.on_frame(&Datagram { data: &[9; 1000], has_length: true }).unwrap();
        assert_eq!(datagrams.received_dropped(), 2, "what can never fit displaces nothing");
        assert_eq!(datagrams.peek(), Some(&[2; 100][..]));
        datagrams.pop();
        assert_eq!(datagrams.peek(), None);
    }
}
