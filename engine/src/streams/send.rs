//! The sending half of a stream.

use core::ops::Range;

use super::flow::SendCredit;
use super::lent::Lent;
use super::pool::{BufferPool, OutOfMemory};
use super::send_buffer::SendBuffer;
use super::state::{SendState, SendStep};

/// How far the end of the stream has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fin {
    /// The application may write more.
    Open,
    /// To be sent, for the first time or again.
    Due,
    InFlight,
    Acked,
}

/// RESET_STREAM and its way to the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reset {
    pub(crate) code: u64,
    pub(crate) final_size: u64,
    /// To be sent, for the first time or again.
    due: bool,
}

/// Data that can go into one STREAM frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    /// The data; empty for a FIN alone.
    pub(crate) range: Range<u64>,
    /// The stream ends at the end of `range`.
    pub(crate) fin: bool,
}

impl Segment {
    pub(crate) fn len(&self) -> u64 {
        self.range.end.saturating_sub(self.range.start)
    }

    /// The first `len` bytes of the segment; without FIN if anything is cut off.
    pub(crate) fn cut(self, len: u64) -> Self {
        if len >= self.len() {
            return self;
        }
        Self { range: self.range.start..self.range.start.saturating_add(len), fin: false }
    }
}

/// What keeps a stream from sending the data that it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sendable {
    /// There is something to send, and leave to send it.
    Now,
    /// There is data, but the limit of all streams together is reached.
    ConnectionBlocked,
    /// There is data, but the stream's limit is reached.
    StreamBlocked,
    /// There is nothing to send.
    Nothing,
}

/// The sending half of a stream (RFC 9000, Section 3.1).
#[derive(Debug)]
pub(crate) struct SendStream {
    state: SendState,
    buffer: SendBuffer,
    credit: SendCredit,
    fin: Fin,
    reset: Option<Reset>,
    /// The code of the peer's STOP_SENDING.
    stopped: Option<u64>,
    /// The application wants the peer to know once all credit is used.
    tell_blocked: bool,
}

impl SendStream {
    /// A half that may send up to offset `limit`.
    pub(crate) const fn new(limit: u64) -> Self {
        Self {
            state: SendState::Ready,
            buffer: SendBuffer::new(),
            credit: SendCredit::new(limit),
            fin: Fin::Open,
            reset: None,
            stopped: None,
            tell_blocked: false,
        }
    }

    /// True once the peer heard of the stream, or should have.
    pub(crate) fn was_sent(&self) -> bool {
        self.state != SendState::Ready
    }

    pub(crate) fn state(&self) -> SendState {
        self.state
    }

    /// How many bytes are held for sending or until they are acknowledged.
    pub(crate) fn held(&self) -> usize {
        self.buffer.held()
    }

    /// How many bytes were written.
    pub(crate) fn end(&self) -> u64 {
        self.buffer.end()
    }

    /// How many written bytes were never sent.
    pub(crate) fn unsent(&self) -> u64 {
        if self.state.sends_data() { self.buffer.unsent() } else { 0 }
    }

    /// What the peer lets the stream send.
    pub(crate) fn credit_available(&self) -> u64 {
        self.credit.available()
    }

    /// Code and final size of the reset, once there is one.
    pub(crate) fn reset_sent(&self) -> Option<(u64, u64)> {
        self.reset.map(|reset| (reset.code, reset.final_size))
    }

    /// Has STREAM_DATA_BLOCKED sent once all credit is used, though nothing more is written.
    pub(crate) fn tell_blocked(&mut self) {
        self.tell_blocked = true;
    }

    /// The code of the peer's STOP_SENDING, once it has come.
    pub(crate) fn stopped(&self) -> Option<u64> {
        self.stopped
    }

    /// True while the application may write and finish.
    pub(crate) fn is_open(&self) -> bool {
        self.state.sends_data() && self.fin == Fin::Open
    }

    /// What could be sent with `connection_credit` bytes of new data.
    pub(crate) fn sendable(&self, connection_credit: u64) -> Sendable {
        if !self.state.sends_data() {
            return Sendable::Nothing;
        }
        if self.buffer.first_lost().is_some() {
            return Sendable::Now;
        }
        match (self.buffer.unsent(), self.credit.available()) {
            (0, _) if self.fin == Fin::Due => Sendable::Now,
            (0, _) => Sendable::Nothing,
            (_, 0) => Sendable::StreamBlocked,
            _ if connection_credit == 0 => Sendable::ConnectionBlocked,
            _ => Sendable::Now,
        }
    }

    /// The next data to send: what was lost before what is new (RFC 9000, Section 2.3).
    pub(crate) fn next_segment(&self, connection_credit: u64) -> Option<Segment> {
        if self.sendable(connection_credit) != Sendable::Now {
            return None;
        }
        let range = self.buffer.first_lost().unwrap_or_else(|| {
            let credit = self.credit.available().min(connection_credit);
            let next = self.buffer.next();
            next..next.saturating_add(credit.min(self.buffer.unsent()))
        });
        let range = self.buffer.within_reach(range);
        let fin = self.fin == Fin::Due && range.end == self.buffer.end();
        Some(Segment { range, fin })
    }

    /// Data for packets of its own: never sent before, and if the stream ends behind it, short of
    /// that by a byte, which is left to go with the FIN.
    pub(crate) fn next_run(&self, connection_credit: u64) -> Option<Range<u64>> {
        if !self.state.sends_data() || self.buffer.first_lost().is_some() {
            return None;
        }
        let credit = self.credit.available().min(connection_credit);
        let unsent = self.buffer.unsent().saturating_sub(u64::from(self.fin == Fin::Due));
        let next = self.buffer.next();
        Some(next..next.saturating_add(credit.min(unsent)))
    }

    /// The bytes at the offsets `range`, or as many as lie in two pieces.
    pub(crate) fn data(&self, range: Range<u64>) -> (&[u8], &[u8]) {
        self.buffer.slices(range)
    }

    /// The bytes of a segment.
    pub(crate) fn slices(&self, segment: &Segment) -> (&[u8], &[u8]) {
        self.buffer.slices(segment.range.clone())
    }

    /// Notes that `segment` was sent; returns how many of its bytes were never sent before.
    pub(crate) fn on_segment_sent(&mut self, segment: &Segment) -> u64 {
        let before = self.buffer.next();
        self.buffer.on_sent(segment.range.clone());
        let new = self.buffer.next().saturating_sub(before);
        self.credit.spend(new);
        self.state = self.state.after(SendStep::SendData);
        if segment.fin {
            self.fin = Fin::InFlight;
            self.state = self.state.after(SendStep::SendFin);
        }
        new
    }

    /// Copies data in; the caller has checked the limits.
    pub(crate) fn write(&mut self, data: &[u8], pool: &mut BufferPool) -> Result<(), OutOfMemory> {
        self.buffer.write(data, pool)
    }

    /// Takes data in; the caller has checked the limits.
    pub(crate) fn lend(
        &mut self,
        data: Lent,
        pool: &mut BufferPool,
    ) -> Result<(), (OutOfMemory, Lent)> {
        self.buffer.lend(data, pool)
    }

    /// True if nothing may be lent now.
    pub(crate) fn is_full(&self) -> bool {
        self.buffer.is_full()
    }

    /// How many bytes the peer has not acknowledged.
    pub(crate) fn unacked(&self) -> usize {
        self.buffer.unacked()
    }

    /// Lets go of what is lent: nothing is sent any more.
    pub(crate) fn end_loans(&mut self, pool: &mut BufferPool) {
        self.buffer.end_loans(pool);
    }

    /// Ends the stream behind what is written.
    pub(crate) fn finish(&mut self) {
        if self.is_open() {
            self.fin = Fin::Due;
        }
    }

    /// Gives up: RESET_STREAM is sent and all data dropped. Returns how many bytes are no
    /// longer held. Does nothing once everything is acknowledged or a reset is under way.
    pub(crate) fn reset(&mut self, code: u64, pool: &mut BufferPool) -> usize {
        if !self.state.sends_data() {
            return 0;
        }
        // RFC 9000, Section 4.5: the final size counts what was sent, not what was written.
        self.reset = Some(Reset { code, final_size: self.buffer.next(), due: true });
        self.state = self.state.after(SendStep::SendReset);
        self.buffer.discard(pool)
    }

    /// The peer wants no more: answers with RESET_STREAM of the same code, as RFC 9000,
    /// Section 3.5 requires. Returns how many bytes are no longer held, or `None` if the stream
    /// had no use for the request.
    pub(crate) fn on_stop_sending(&mut self, code: u64, pool: &mut BufferPool) -> Option<usize> {
        if !self.state.sends_data() || self.stopped.is_some() {
            return None;
        }
        self.stopped = Some(code);
        Some(self.reset(code, pool))
    }

    /// RESET_STREAM, if it is to be sent.
    pub(crate) fn due_reset(&self) -> Option<Reset> {
        self.reset.filter(|reset| reset.due && self.state == SendState::ResetSent)
    }

    /// Notes that RESET_STREAM was sent (false) or lost (true).
    pub(crate) fn set_reset_due(&mut self, due: bool) {
        if let Some(reset) = &mut self.reset {
            reset.due = due;
        }
    }

    /// Notes that the peer has RESET_STREAM.
    pub(crate) fn on_reset_acked(&mut self) {
        self.state = self.state.after(SendStep::RecvResetAck);
    }

    /// Notes that the peer has this STREAM frame; returns how many bytes are no longer held.
    pub(crate) fn on_acked(&mut self, segment: Segment, pool: &mut BufferPool) -> usize {
        if !self.state.sends_data() {
            return 0;
        }
        if segment.fin {
            self.fin = Fin::Acked;
        }
        let freed = self.buffer.on_acked(segment.range, pool);
        if self.fin == Fin::Acked && self.buffer.is_all_acked() {
            self.state = self.state.after(SendStep::RecvAllAcks);
        }
        freed
    }

    /// Notes that this STREAM frame was lost.
    pub(crate) fn on_lost(&mut self, segment: Segment) {
        if !self.state.sends_data() {
            return;
        }
        self.buffer.on_lost(segment.range);
        if segment.fin && self.fin == Fin::InFlight {
            self.fin = Fin::Due;
        }
    }

    /// MAX_STREAM_DATA, or a higher initial limit.
    pub(crate) fn raise_limit(&mut self, limit: u64) {
        self.credit.raise(limit);
    }

    /// The limit for STREAM_DATA_BLOCKED, if it is to be sent.
    pub(crate) fn due_blocked(&self) -> Option<u64> {
        let has_more = self.state.sends_data() && self.buffer.unsent() > 0;
        let told = self.is_open() && self.tell_blocked;
        let blocked = (has_more || told) && self.credit.must_signal();
        blocked.then(|| self.credit.limit())
    }

    /// Notes that STREAM_DATA_BLOCKED was sent.
    pub(crate) fn on_blocked_sent(&mut self) {
        self.tell_blocked = false;
        self.credit.on_signalled();
        self.state = self.state.after(SendStep::SendData);
    }

    /// Has STREAM_DATA_BLOCKED sent again if `limit` still holds.
    pub(crate) fn signal_blocked_again(&mut self, limit: u64) {
        self.credit.signal_again(limit);
    }

    /// The stream's limit.
    pub(crate) fn limit(&self) -> u64 {
        self.credit.limit()
    }

    /// Starts over after rejected 0-RTT: nothing was sent, and there is no credit.
    pub(crate) fn rewind(&mut self) {
        self.credit.reset();
        match &mut self.reset {
            // Nothing reached the peer, so nothing counts towards the final size.
            Some(reset) => *reset = Reset { final_size: 0, due: true, ..*reset },
            None => {
                self.buffer.rewind();
                self.state = SendState::Ready;
                if self.fin != Fin::Open {
                    self.fin = Fin::Due;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool() -> BufferPool {
        BufferPool::new(1 << 16)
    }

    fn sent(stream: &mut SendStream, len: u64) -> Segment {
        let segment = stream.next_segment(u64::MAX).unwrap().cut(len);
        stream.on_segment_sent(&segment);
        segment
    }

    #[test]
    fn fin_rides_on_the_last_data_and_completes_with_the_last_acknowledgment() {
        let (mut stream, mut pool) = (SendStream::new(100), pool());
        stream.write(b"hello", &mut pool).unwrap();
        stream.finish();
        let first = sent(&mut stream, 3);
        assert_eq!(first, Segment { range: 0..3, fin: false });
        assert_eq!(stream.state(), SendState::Send);
        let last = sent(&mut stream, 3);
        assert_eq!(last, Segment { range: 3..5, fin: true });
        assert_eq!(stream.state(), SendState::DataSent);
        stream.on_acked(last, &mut pool);
        assert_eq!(stream.state(), SendState::DataSent);
        assert_eq!(stream.on_acked(first, &mut pool), 5);
        assert_eq!(stream.state(), SendState::DataRecvd);
    }

    #[test]
    fn an_empty_stream_is_a_fin_alone_and_needs_no_credit() {
        let (mut stream, mut pool) = (SendStream::new(0), pool());
        assert_eq!(stream.sendable(0), Sendable::Nothing);
        stream.finish();
        assert_eq!(stream.sendable(0), Sendable::Now);
        let fin = sent(&mut stream, 0);
        assert_eq!(fin, Segment { range: 0..0, fin: true });
        stream.on_lost(fin);
        let fin = sent(&mut stream, 0);
        stream.on_acked(fin, &mut pool);
        assert_eq!(stream.state(), SendState::DataRecvd);
    }

    #[test]
    fn lost_data_goes_before_new_data_and_needs_no_credit() {
        let (mut stream, mut pool) = (SendStream::new(6), pool());
        stream.write(b"abcdefgh", &mut pool).unwrap();
        let first = sent(&mut stream, 4);
        stream.on_lost(first);
        assert_eq!(stream.next_segment(0).unwrap().range, 0..4);
        sent(&mut stream, 4);
        assert_eq!(stream.sendable(0), Sendable::ConnectionBlocked);
        assert_eq!(stream.next_segment(9).unwrap().range, 4..6);
        sent(&mut stream, 9);
        assert_eq!(stream.sendable(9), Sendable::StreamBlocked);
        assert_eq!(stream.due_blocked(), Some(6));
        stream.on_blocked_sent();
        assert_eq!(stream.due_blocked(), None);
        stream.raise_limit(7);
        assert_eq!(stream.next_segment(9).unwrap().range, 6..7);
    }

    #[test]
    fn reset_drops_data_and_counts_only_what_was_sent() {
        let (mut stream, mut pool) = (SendStream::new(100), pool());
        stream.write(b"abcdefgh", &mut pool).unwrap();
        let early = sent(&mut stream, 3);
        assert_eq!(stream.reset(42, &mut pool), 8);
        let reset = stream.due_reset().unwrap();
        assert_eq!((reset.code, reset.final_size), (42, 3));
        stream.set_reset_due(false);
        assert_eq!(stream.due_reset(), None);
        stream.on_lost(early);
        assert_eq!(stream.sendable(9), Sendable::Nothing);
        stream.on_reset_acked();
        assert_eq!(stream.state(), SendState::ResetRecvd);
    }

    #[test]
    fn stop_sending_is_answered_with_a_reset_of_the_same_code() {
        // RFC 9000, Section 3.5
        let (mut stream, mut pool) = (SendStream::new(100), pool());
        stream.write(b"abc", &mut pool).unwrap();
        assert_eq!(stream.on_stop_sending(7, &mut pool), Some(3));
        assert_eq!(stream.due_reset().map(|reset| reset.code), Some(7));
        assert_eq!(stream.on_stop_sending(8, &mut pool), None);
        assert_eq!(stream.stopped(), Some(7));
    }

    #[test]
    fn stop_sending_after_everything_is_acknowledged_changes_nothing() {
        let (mut stream, mut pool) = (SendStream::new(100), pool());
        stream.finish();
        let fin = sent(&mut stream, 0);
        stream.on_acked(fin, &mut pool);
        assert_eq!(stream.on_stop_sending(7, &mut pool), None);
        assert_eq!(stream.state(), SendState::DataRecvd);
    }

    #[test]
    fn rejected_early_data_is_sent_again_from_the_start() {
        let (mut stream, mut pool) = (SendStream::new(100), pool());
        stream.write(b"abc", &mut pool).unwrap();
        stream.finish();
        sent(&mut stream, 9);
        stream.rewind();
        assert_eq!((stream.state(), stream.limit()), (SendState::Ready, 0));
        stream.raise_limit(10);
        assert_eq!(sent(&mut stream, 9), Segment { range: 0..3, fin: true });
    }
}
