//! Frames that go to the peer, and what became of them.

use core::ops::Range;

use quicket_wire::frame::{
    DataBlocked, MaxData, MaxStreamData, MaxStreams, Padding, ResetStream, StopSending,
    StreamDataBlocked, StreamHeader, StreamsBlocked,
};
use quicket_wire::{Full, StreamId, varint};

use super::news::StreamNews;
use super::send::Segment;
use super::slab::Slot;
use super::stream::EventFlags;
use super::{DIRS, Streams};
use crate::frame_sink::FrameSink;
use crate::sent_frame::SentFrame;
use crate::time::{Duration, Time};

/// Fewer bytes of data than this are not put at the end of a packet unless they are all that
/// there is.
const MIN_FRAGMENT: u64 = 64;

/// Frames of other owners, one by one: a new one is to be sorted by whoever adds it.
macro_rules! not_of_streams {
    () => {
        SentFrame::Ack { .. }
            | SentFrame::Crypto { .. }
            | SentFrame::NewConnectionId { .. }
            | SentFrame::RetireConnectionId { .. }
            | SentFrame::PathChallenge { .. }
            | SentFrame::NewToken { .. }
            | SentFrame::HandshakeDone
            | SentFrame::AckFrequency { .. }
            | SentFrame::ImmediateAck
            | SentFrame::Ping
            | SentFrame::Datagram { .. }
    };
}

impl Streams {
    /// True if there is anything to send. It may turn out to wait for the peer's limits:
    /// [`Self::write_frames`] then leaves the packet as it was and this becomes false.
    pub(crate) fn has_pending(&self) -> bool {
        (!self.scheduler.is_empty() && !self.corked) || self.has_control()
    }

    /// True if there are frames without data to send.
    fn has_control(&self) -> bool {
        !self.control.is_empty()
            || self.window.update_due()
            || self.blocked_due()
            || self.remote.bidi.update_due()
            || self.remote.uni.update_due()
            || self.local.bidi.due_blocked().is_some()
            || self.local.uni.due_blocked().is_some()
    }

    /// Fills a packet: control frames, then data by priority. `rtt` is the smoothed round trip
    /// time of the path, by which windows are tuned.
    pub(crate) fn write_frames(&mut self, now: Time, rtt: Duration, sink: &mut impl FrameSink) {
        let control = self.write_connection_control(now, rtt, sink);
        if control.and_then(|()| self.write_stream_control(now, rtt, sink)).is_ok() {
            self.write_data(sink);
            // What has just ended makes room for more, and the frame may fit here.
            let _ = self.write_max_streams(sink);
        }
    }

    fn blocked_due(&self) -> bool {
        (self.tell_blocked || self.scheduler.has_blocked()) && self.credit.must_signal()
    }

    fn write_connection_control(
        &mut self,
        now: Time,
        rtt: Duration,
        sink: &mut impl FrameSink,
    ) -> Result<(), Full> {
        if self.window.update_due() {
            // A frame that does not fit is due again: the window remembers.
            let maximum = self.window.update(now, rtt);
            let sent = sink.frame(&MaxData { maximum }, Some(SentFrame::MaxData { maximum }));
            sent.inspect_err(|_| self.window.on_update_lost(maximum))?;
        }
        self.write_max_streams(sink)?;
        for dir in DIRS {
            let local = self.local.get_mut(dir);
            if let Some(limit) = local.due_blocked() {
                let frame = StreamsBlocked { dir, limit };
                sink.frame(&frame, Some(SentFrame::StreamsBlocked { dir, limit }))?;
                local.on_blocked_sent();
            }
        }
        if self.blocked_due() {
            let limit = self.credit.limit();
            sink.frame(&DataBlocked { limit }, Some(SentFrame::DataBlocked { limit }))?;
            self.credit.on_signalled();
            self.tell_blocked = false;
        }
        Ok(())
    }

    fn write_max_streams(&mut self, sink: &mut impl FrameSink) -> Result<(), Full> {
        for dir in DIRS {
            let remote = self.remote.get_mut(dir);
            if remote.update_due() {
                let maximum = remote.update();
                let frame = MaxStreams { dir, maximum };
                let sent = sink.frame(&frame, Some(SentFrame::MaxStreams { dir, maximum }));
                sent.inspect_err(|_| remote.on_update_lost(maximum))?;
            }
        }
        Ok(())
    }

    fn write_stream_control(
        &mut self,
        now: Time,
        rtt: Duration,
        sink: &mut impl FrameSink,
    ) -> Result<(), Full> {
        while let Some(slot) = self.control.front() {
            self.write_send_control(slot, sink)?;
            self.write_recv_control(slot, now, rtt, sink)?;
            self.control.remove(self.table.slab_mut(), slot);
            self.settle(slot);
        }
        Ok(())
    }

    fn write_send_control(&mut self, slot: Slot, sink: &mut impl FrameSink) -> Result<(), Full> {
        let Some(stream) = self.table.get_mut(slot) else { return Ok(()) };
        let id = stream.id;
        let Some(send) = &mut stream.send else { return Ok(()) };
        if let Some(reset) = send.due_reset() {
            let (error_code, final_size) = (reset.code, reset.final_size);
            let frame = ResetStream { id, error_code, final_size };
            sink.frame(&frame, Some(SentFrame::ResetStream { id }))?;
            send.set_reset_due(false);
        }
        if let Some(limit) = send.due_blocked() {
            let frame = StreamDataBlocked { id, limit };
            sink.frame(&frame, Some(SentFrame::StreamDataBlocked { id, limit }))?;
            send.on_blocked_sent();
        }
        Ok(())
    }

    fn write_recv_control(
        &mut self,
        slot: Slot,
        now: Time,
        rtt: Duration,
        sink: &mut impl FrameSink,
    ) -> Result<(), Full> {
        let Some(stream) = self.table.get_mut(slot) else { return Ok(()) };
        let id = stream.id;
        let Some(recv) = &mut stream.recv else { return Ok(()) };
        if let Some(error_code) = recv.due_stop() {
            sink.frame(&StopSending { id, error_code }, Some(SentFrame::StopSending { id }))?;
            recv.set_stop_due(false);
        }
        if let Some(window) = recv.open_window().filter(|window| window.update_due()) {
            let maximum = window.update(now, rtt);
            let sent = Some(SentFrame::MaxStreamData { id, maximum });
            let result = sink.frame(&MaxStreamData { id, maximum }, sent);
            // One stream alone can fill its window only if that of all streams is larger.
            self.window.grow_to(window.size().saturating_add(window.size() / 2));
            result.inspect_err(|_| window.on_update_lost(maximum))?;
        }
        Ok(())
    }

    fn write_data(&mut self, sink: &mut impl FrameSink) {
        if self.corked {
            return;
        }
        while let Some(slot) = self.scheduler.front() {
            if !self.write_segment(slot, sink) {
                return;
            }
            self.settle(slot);
            self.scheduler.rotate(self.table.slab_mut(), slot);
        }
    }

    /// Writes one STREAM frame of the stream. False if the packet has no room for one.
    fn write_segment(&mut self, slot: Slot, sink: &mut impl FrameSink) -> bool {
        let Some(stream) = self.table.get_mut(slot) else { return false };
        let id = stream.id;
        let Some(send) = &mut stream.send else { return false };
        // Without anything to send now the stream is settled elsewhere, and the next one tried.
        let Some(segment) = send.next_segment(self.credit.available()) else { return true };
        let Some(fit) = Fit::new(id, segment, sink.remaining()) else { return false };
        if fit.padding > 0 && sink.frame(&Padding { count: fit.padding }, None).is_err() {
            return false;
        }
        let segment = fit.segment;
        let sent = SentFrame::Stream {
            id,
            offset: segment.range.start,
            len: u32::try_from(segment.len()).unwrap_or(u32::MAX),
            fin: segment.fin,
        };
        if sink.stream_data(fit.header, send.slices(&segment), sent).is_err() {
            return false;
        }
        let new = send.on_segment_sent(&segment);
        self.credit.spend(new);
        true
    }

    /// What packets that carry nothing but data of one stream may carry next; `None` if there is
    /// anything else to send.
    pub(crate) fn run(&self) -> Option<StreamRun> {
        let slot = self.scheduler.front()?;
        if self.corked || self.has_control() {
            return None;
        }
        let stream = self.table.get(slot)?;
        let range = stream.send.as_ref()?.next_run(self.credit.available())?;
        let takes_turns = !self.scheduler.is_undisturbed();
        Some(StreamRun { slot, id: stream.id, range, takes_turns })
    }

    /// `len` bytes of a run from `offset` on, or as many as lie in two pieces.
    pub(crate) fn run_data(&self, run: &StreamRun, offset: u64, len: usize) -> (&[u8], &[u8]) {
        let send = self.table.get(run.slot).and_then(|stream| stream.send.as_ref());
        send.map_or((&[], &[]), |send| send.data(offset..offset.saturating_add(len as u64)))
    }

    /// Notes that what is left of a run is on its way.
    pub(crate) fn on_run_sent(&mut self, run: StreamRun) {
        let Some(stream) = self.table.get_mut(run.slot) else { return };
        let Some(send) = &mut stream.send else { return };
        let new = send.on_segment_sent(&Segment { range: run.range, fin: false });
        self.credit.spend(new);
        self.settle(run.slot);
        self.scheduler.rotate(self.table.slab_mut(), run.slot);
    }

    /// A packet with this frame was acknowledged.
    pub(crate) fn on_acked(&mut self, frame: &SentFrame) {
        match *frame {
            SentFrame::Stream { id, offset, len, fin } => {
                self.on_segment_acked(id, segment(offset, len, fin));
            }
            SentFrame::ResetStream { id } => {
                let Some(slot) = self.table.find(id) else { return };
                if let Some(send) = self.table.get_mut(slot).and_then(|stream| stream.send.as_mut())
                {
                    send.on_reset_acked();
                    if let Some((code, final_size)) = send.reset_sent() {
                        self.news.push(StreamNews::ResetAcked { id, code, final_size });
                    }
                    self.settle(slot);
                }
            }
            // Of the others only the loss matters, if they are the streams' at all.
            SentFrame::StopSending { .. }
            | SentFrame::MaxData { .. }
            | SentFrame::MaxStreamData { .. }
            | SentFrame::MaxStreams { .. }
            | SentFrame::DataBlocked { .. }
            | SentFrame::StreamDataBlocked { .. }
            | SentFrame::StreamsBlocked { .. }
            | not_of_streams!() => {}
        }
    }

    fn on_segment_acked(&mut self, id: StreamId, segment: Segment) {
        let Some(slot) = self.table.find(id) else { return };
        let Some(stream) = self.table.get_mut(slot) else { return };
        let Some(send) = &mut stream.send else { return };
        let was_terminal = send.state().is_terminal();
        let freed = send.on_acked(segment, &mut self.pool);
        if send.state().is_terminal() && !was_terminal {
            self.news.push(StreamNews::Acked { id });
            self.notify(slot, EventFlags::FINISHED);
        }
        if freed > 0 {
            self.on_freed(slot, freed);
        }
        self.settle(slot);
    }

    /// A packet with this frame was lost: what still matters is sent again (RFC 9000,
    /// Section 13.3).
    pub(crate) fn on_lost(&mut self, frame: &SentFrame) {
        match *frame {
            SentFrame::MaxData { maximum } => self.window.on_update_lost(maximum),
            SentFrame::MaxStreams { dir, maximum } => {
                self.remote.get_mut(dir).on_update_lost(maximum);
            }
            SentFrame::DataBlocked { limit } => self.credit.signal_again(limit),
            SentFrame::StreamsBlocked { dir, limit } => {
                self.local.get_mut(dir).signal_blocked_again(limit);
            }
            SentFrame::Stream { id, .. }
            | SentFrame::ResetStream { id }
            | SentFrame::StopSending { id }
            | SentFrame::MaxStreamData { id, .. }
            | SentFrame::StreamDataBlocked { id, .. } => self.on_stream_frame_lost(id, frame),
            not_of_streams!() => {}
        }
    }

    fn on_stream_frame_lost(&mut self, id: StreamId, frame: &SentFrame) {
        let Some(slot) = self.table.find(id) else { return };
        let Some(stream) = self.table.get_mut(slot) else { return };
        let (send, recv) = (stream.send.as_mut(), stream.recv.as_mut());
        match *frame {
            SentFrame::Stream { offset, len, fin, .. } => {
                if let Some(send) = send {
                    send.on_lost(segment(offset, len, fin));
                    // What is repeated does not wait.
                    self.corked = false;
                }
            }
            SentFrame::ResetStream { .. } => {
                if let Some(send) = send {
                    send.set_reset_due(true);
                }
            }
            SentFrame::StreamDataBlocked { limit, .. } => {
                if let Some(send) = send {
                    send.signal_blocked_again(limit);
                }
            }
            SentFrame::StopSending { .. } => {
                if let Some(recv) = recv {
                    recv.set_stop_due(true);
                }
            }
            SentFrame::MaxStreamData { maximum, .. } => {
                if let Some(window) = recv.and_then(|recv| recv.open_window()) {
                    window.on_update_lost(maximum);
                }
            }
            SentFrame::MaxData { .. }
            | SentFrame::MaxStreams { .. }
            | SentFrame::DataBlocked { .. }
            | SentFrame::StreamsBlocked { .. }
            | not_of_streams!() => {}
        }
        self.settle(slot);
    }

    /// Tells the peer once more of every limit that blocks us. For connections that would
    /// otherwise fall silent (RFC 9000, Section 4.1).
    pub(crate) fn repeat_blocked(&mut self) {
        self.credit.signal_again(self.credit.limit());
        for dir in DIRS {
            let local = self.local.get_mut(dir);
            local.signal_blocked_again(local.limit());
        }
        for slot in self.table.slots() {
            if let Some(send) = self.table.get_mut(slot).and_then(|stream| stream.send.as_mut()) {
                let limit = send.limit();
                send.signal_blocked_again(limit);
                self.settle(slot);
            }
        }
    }
}

/// Unsent data of one stream that no other frame interrupts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StreamRun {
    slot: Slot,
    id: StreamId,
    /// The offsets of the data. It never ends the stream: the FIN goes the usual way.
    pub(crate) range: Range<u64>,
    /// Other streams of the same priority wait for their turn.
    pub(crate) takes_turns: bool,
}

impl StreamRun {
    /// The header of the first frame. Each frame ends its packet (RFC 9000, Section 19.8).
    pub(crate) fn header(&self) -> StreamHeader {
        StreamHeader { id: self.id, offset: self.range.start, len: None, fin: false }
    }
}

fn segment(offset: u64, len: u32, fin: bool) -> Segment {
    Segment { range: offset..offset.saturating_add(u64::from(len)), fin }
}

/// A STREAM frame cut to the room in a packet.
#[derive(Debug, PartialEq, Eq)]
struct Fit {
    segment: Segment,
    header: StreamHeader,
    /// PADDING that goes in front, so that a frame without a length ends the packet.
    padding: usize,
}

impl Fit {
    /// As much of `segment` as fits into `room` bytes.
    ///
    /// The length is left out where the frame fills the packet. Where the data would fit but for
    /// its length, padding in front spares a cut of a byte or two.
    fn new(id: StreamId, segment: Segment, room: usize) -> Option<Self> {
        let offset = segment.range.start;
        let header = StreamHeader { id, offset, len: None, fin: segment.fin };
        let room = u64::try_from(room.checked_sub(header.encoded_len())?).unwrap_or(0);
        let whole = segment.len();
        let with_length = whole.saturating_add(varint::len(whole) as u64);
        if with_length <= room {
            let header = StreamHeader { len: usize::try_from(whole).ok(), ..header };
            return Some(Self { segment, header, padding: 0 });
        }
        if whole <= room {
            let padding = usize::try_from(room.saturating_sub(whole)).unwrap_or(0);
            return Some(Self { segment, header, padding });
        }
        if room < MIN_FRAGMENT {
            return None;
        }
        let segment = segment.cut(room);
        let header = StreamHeader { fin: segment.fin, ..header };
        Some(Self { segment, header, padding: 0 })
    }
}
