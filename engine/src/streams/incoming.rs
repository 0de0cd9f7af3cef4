//! Frames that the peer sent (RFC 9000, Sections 19.4 to 19.14).

use quicket_wire::frame::{
    DataBlocked, MaxData, MaxStreamData, MaxStreams, ResetStream, StopSending, Stream,
    StreamDataBlocked, StreamsBlocked,
};
use quicket_wire::{Dir, StreamId, TransportErrorCode};

use super::Streams;
use super::news::{Before, StreamNews};
use super::pool::OutOfMemory;
use super::slab::Slot;
use super::stream::EventFlags;
use crate::error::TransportError;

/// Which half of this side's stream a frame is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Half {
    Send,
    Recv,
}

/// STREAM frames of one stream that come one after the other.
#[derive(Debug)]
pub(crate) struct ReceiveRun {
    id: StreamId,
    slot: Slot,
    /// What the stream was before the first.
    before: Before,
    /// There is more to read than before.
    readable: bool,
}

impl Streams {
    /// The frames that come next are those of a 0-RTT packet, or not.
    pub(crate) fn receive_early(&mut self, early: bool) {
        self.early = early;
    }

    /// STREAM (RFC 9000, Section 19.8).
    pub(crate) fn on_stream(&mut self, frame: &Stream<'_>) -> Result<(), TransportError> {
        let mut run = None;
        self.on_stream_of_run(&mut run, frame)?;
        self.end_run(run);
        Ok(())
    }

    /// STREAM among others of one stream: what concerns the stream as a whole is left for
    /// [`Self::end_run`].
    #[inline]
    pub(crate) fn on_stream_of_run(
        &mut self,
        run: &mut Option<ReceiveRun>,
        frame: &Stream<'_>,
    ) -> Result<(), TransportError> {
        let frame_type = frame.header().frame_type();
        if run.as_ref().is_none_or(|run| run.id != frame.id) {
            self.end_run(run.take());
            *run = self.begin_run(frame.id, frame_type)?;
        }
        let Some(run) = run else { return Ok(()) };
        let Some((recv, mut shared)) = self.receiving(run.slot) else { return Ok(()) };
        run.readable |= recv
            .on_data(frame.offset, frame.data, frame.fin, &mut shared)
            .map_err(|(code, reason)| TransportError::at(code, frame_type, reason))?;
        Ok(())
    }

    fn begin_run(
        &mut self,
        id: StreamId,
        frame_type: u64,
    ) -> Result<Option<ReceiveRun>, TransportError> {
        let Some(slot) = self.addressed(id, Half::Recv, frame_type)? else { return Ok(None) };
        let Some((recv, _)) = self.receiving(slot) else { return Ok(None) };
        Ok(Some(ReceiveRun { id, slot, before: Before::of(recv), readable: false }))
    }

    /// Draws the conclusions from the STREAM frames of a run.
    pub(crate) fn end_run(&mut self, run: Option<ReceiveRun>) {
        if let Some(ReceiveRun { slot, before, readable, .. }) = run {
            self.tell_received(slot, before);
            self.after_receiving(slot, readable);
        }
    }

    /// RESET_STREAM (RFC 9000, Section 19.4).
    pub(crate) fn on_reset_stream(&mut self, frame: &ResetStream) -> Result<(), TransportError> {
        let frame_type = ResetStream::TYPE;
        let Some(slot) = self.addressed(frame.id, Half::Recv, frame_type)? else { return Ok(()) };
        let Some((recv, mut shared)) = self.receiving(slot) else { return Ok(()) };
        let before = Before::of(recv);
        let readable = recv
            .on_reset(frame.error_code, frame.final_size, &mut shared)
            .map_err(|(code, reason)| TransportError::at(code, frame_type, reason))?;
        self.tell_received(slot, before);
        self.after_receiving(slot, readable);
        Ok(())
    }

    /// STOP_SENDING (RFC 9000, Section 19.5).
    pub(crate) fn on_stop_sending(&mut self, frame: &StopSending) -> Result<(), TransportError> {
        let found = self.addressed(frame.id, Half::Send, StopSending::TYPE)?;
        let Some(slot) = found else { return Ok(()) };
        let Some(stream) = self.table.get_mut(slot) else { return Ok(()) };
        let Some(send) = &mut stream.send else { return Ok(()) };
        if let Some(freed) = send.on_stop_sending(frame.error_code, &mut self.pool) {
            let (id, code) = (stream.id, frame.error_code);
            let final_size = send.reset_sent().map_or(0, |(_, final_size)| final_size);
            self.news.push(StreamNews::Stopped { id, code, final_size });
            self.notify(slot, EventFlags::STOPPED);
            self.on_freed(slot, freed);
            self.settle(slot);
        }
        Ok(())
    }

    /// MAX_DATA (RFC 9000, Section 19.9).
    pub(crate) fn on_max_data(&mut self, frame: &MaxData) -> Result<(), TransportError> {
        if self.credit.raise(frame.maximum) {
            self.tell_blocked = false;
            self.release_blocked();
            self.tell_writers();
        }
        Ok(())
    }

    /// MAX_STREAM_DATA (RFC 9000, Section 19.10).
    pub(crate) fn on_max_stream_data(
        &mut self,
        frame: &MaxStreamData,
    ) -> Result<(), TransportError> {
        let found = self.addressed(frame.id, Half::Send, MaxStreamData::TYPE)?;
        let Some(slot) = found else { return Ok(()) };
        if let Some(send) = self.table.get_mut(slot).and_then(|stream| stream.send.as_mut()) {
            let before = send.limit();
            send.raise_limit(frame.maximum);
            if send.limit() > before {
                let (id, limit) = (frame.id, frame.maximum);
                self.news.push(StreamNews::MaxStreamData { id, limit });
            }
            self.settle(slot);
            self.tell_credited(slot);
        }
        Ok(())
    }

    /// MAX_STREAMS (RFC 9000, Section 19.11).
    pub(crate) fn on_max_streams(&mut self, frame: &MaxStreams) -> Result<(), TransportError> {
        let was_overdrawn = self.local.get(frame.dir).is_overdrawn();
        if self.local.get_mut(frame.dir).raise(frame.maximum) {
            let (dir, limit) = (frame.dir, self.local.get(frame.dir).limit());
            self.news.push(StreamNews::MaxStreams { dir, limit });
            if was_overdrawn {
                self.release_held_back();
            }
        }
        Ok(())
    }

    /// DATA_BLOCKED (RFC 9000, Section 19.12).
    pub(crate) fn on_data_blocked(&mut self, frame: &DataBlocked) -> Result<(), TransportError> {
        self.window.on_peer_blocked_at(frame.limit);
        Ok(())
    }

    /// STREAM_DATA_BLOCKED (RFC 9000, Section 19.13).
    pub(crate) fn on_stream_data_blocked(
        &mut self,
        frame: &StreamDataBlocked,
    ) -> Result<(), TransportError> {
        let found = self.addressed(frame.id, Half::Recv, StreamDataBlocked::TYPE)?;
        let Some(slot) = found else { return Ok(()) };
        if let Some((recv, _)) = self.receiving(slot)
            && let Some(window) = recv.open_window()
        {
            window.on_peer_blocked();
            self.settle(slot);
        }
        Ok(())
    }

    /// STREAMS_BLOCKED (RFC 9000, Section 19.14).
    pub(crate) fn on_streams_blocked(
        &mut self,
        frame: &StreamsBlocked,
    ) -> Result<(), TransportError> {
        self.remote.get_mut(frame.dir).on_peer_blocked(frame.limit);
        Ok(())
    }

    /// The stream that a frame is about, opened if the peer may open it; `None` if it is closed.
    #[inline]
    fn addressed(
        &mut self,
        id: StreamId,
        half: Half,
        frame_type: u64,
    ) -> Result<Option<Slot>, TransportError> {
        let state_error = |reason| {
            Err(TransportError::at(TransportErrorCode::STREAM_STATE_ERROR, frame_type, reason))
        };
        let is_local = id.initiator() == self.side;
        // RFC 9000, Sections 19.4, 19.5, 19.8, 19.10 and 19.13.
        match (id.dir(), is_local, half) {
            (Dir::Uni, true, Half::Recv) => {
                return state_error(
                    "a sender's frame for a stream that only the receiver sends on",
                );
            }
            (Dir::Uni, false, Half::Send) => {
                return state_error(
                    "a receiver's frame for a stream that only its sender sends on",
                );
            }
            _ => {}
        }
        if let Some(slot) = self.table.find(id) {
            return Ok(Some(slot));
        }
        if is_local {
            // RFC 9000, Sections 19.5, 19.8 and 19.10.
            if !self.local.get(id.dir()).is_opened(id.index()) {
                return state_error("this side has not opened the stream");
            }
            return Ok(None);
        }
        let remote = self.remote.get_mut(id.dir());
        // RFC 9000, Section 4.6.
        if !remote.permits(id.index()) {
            let (code, reason) = (TransportErrorCode::STREAM_LIMIT_ERROR, "too many streams");
            return Err(TransportError::at(code, frame_type, reason));
        }
        let opened = remote.open_up_to(id.index(), self.early).and_then(|()| self.find(id));
        let found = opened.map_err(|OutOfMemory| {
            let reason = "out of memory for a new stream";
            TransportError::at(TransportErrorCode::INTERNAL_ERROR, frame_type, reason)
        })?;
        if let Some(stream) = found.and_then(|slot| self.table.get_mut(slot)) {
            stream.early = self.early;
        }
        Ok(found)
    }

    /// Tells followers what a frame changed in a receiving half.
    fn tell_received(&mut self, slot: Slot, before: Before) {
        if let Some(stream) = self.table.get(slot)
            && let Some(recv) = &stream.recv
        {
            self.news.on_received(stream.id, before, recv);
        }
    }

    fn after_receiving(&mut self, slot: Slot, readable: bool) {
        if readable {
            self.notify(slot, EventFlags::READABLE);
        }
        self.settle(slot);
    }

    /// Sends what waited for the peer to permit more streams.
    fn release_held_back(&mut self) {
        for slot in self.table.slots() {
            let Some(stream) = self.table.get_mut(slot) else { continue };
            if stream.held_back {
                stream.held_back = super::is_held_back(self.side, &self.local, stream.id);
                self.settle(slot);
            }
        }
    }
}
