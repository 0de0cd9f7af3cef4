//! What the application does with streams.

use quicket_wire::{Dir, StreamId, varint};

use super::pool::OutOfMemory;
use super::slab::Slot;
use super::stream::{EventFlags, Stream};
use super::{
    Chunk, Lent, NotTaken, OpenError, POOL_BYTES, Peek, ReadError, ReadOutcome, Streams, WriteError,
};

/// What a stream may hold of the part of the common buffer that is kept for those that hold
/// little, in bytes: a response's header section and a first piece of what follows.
pub(super) const BEGINNING: usize = 16 << 10;
/// Of a common buffer of no more bytes nothing is kept: it is hardly enough for one stream.
const LEAST: usize = 64 << 10;

impl Streams {
    /// Opens a stream.
    pub(crate) fn open(&mut self, dir: Dir) -> Result<StreamId, OpenError> {
        let local = self.local.get_mut(dir);
        let index = local.open().ok_or(OpenError::StreamLimit)?;
        let id = StreamId::new(self.side, dir, index);
        if self.create(id).is_err() {
            self.local.get_mut(dir).undo_open();
            return Err(OpenError::OutOfMemory);
        }
        Ok(id)
    }

    /// The next stream that the peer opened, in the order of numbers. Reading it may give
    /// `Blocked`: a stream is open as soon as a higher one is.
    pub(crate) fn accept(&mut self, dir: Dir) -> Option<StreamId> {
        let index = self.remote.get_mut(dir).accept()?;
        let id = StreamId::new(self.side.peer(), dir, index);
        if let Some(slot) = self.table.find(id)
            && let Some(stream) = self.table.get_mut(slot)
        {
            stream.accepted = true;
            if stream.send.as_ref().is_some_and(|send| send.stopped().is_some()) {
                // Said now, for the stream may be gone when the application writes to it.
                self.notify(slot, EventFlags::STOPPED);
            }
            self.settle(slot);
        }
        Some(id)
    }

    /// True if the peer's first frame of the stream came in a 0-RTT packet; of a stream without
    /// any, if one for a higher stream did.
    pub(crate) fn is_early_data(&mut self, id: StreamId) -> bool {
        match self.table.find(id).and_then(|slot| self.table.get(slot)) {
            Some(stream) => stream.early,
            None => id.initiator() != self.side && self.remote.get(id.dir()).is_early(id.index()),
        }
    }

    /// Copies data into the send buffer; returns how much, at least one byte unless `data` is
    /// empty.
    pub(crate) fn write(&mut self, id: StreamId, data: &[u8]) -> Result<usize, WriteError> {
        let slot = self.writable(id)?;
        let room = self.room(slot);
        let Some(send) = self.table.get_mut(slot).and_then(|stream| stream.send.as_mut()) else {
            return Err(WriteError::ClosedStream);
        };
        let (data, rest) = data.split_at(data.len().min(room));
        send.write(data, &mut self.pool).map_err(|OutOfMemory| WriteError::OutOfMemory)?;
        self.held = self.held.saturating_add(data.len());
        if !rest.is_empty() {
            self.wait_for_room(slot);
        }
        self.settle(slot);
        if data.is_empty() && !rest.is_empty() {
            return Err(WriteError::Blocked);
        }
        Ok(data.len())
    }

    /// Takes data into the send buffer as it is, all of it or nothing.
    pub(crate) fn lend(&mut self, id: StreamId, data: Lent) -> Result<(), NotTaken> {
        let slot = match self.writable(id) {
            Ok(slot) => slot,
            Err(error) => return Err(NotTaken { error, data }),
        };
        let room = self.room(slot);
        let len = data.len();
        let stream = self.table.get(slot).and_then(|stream| stream.send.as_ref());
        if len > room || stream.is_some_and(|send| send.is_full()) {
            self.wait_for_room(slot);
            if len > room {
                // Others may hold what it needs, though they have not filled all.
                self.writers.push_back(self.table.slab_mut(), slot);
            }
            return Err(NotTaken { error: WriteError::Blocked, data });
        }
        let Some(send) = self.table.get_mut(slot).and_then(|stream| stream.send.as_mut()) else {
            return Err(NotTaken { error: WriteError::ClosedStream, data });
        };
        if let Err((OutOfMemory, data)) = send.lend(data, &mut self.pool) {
            return Err(NotTaken { error: WriteError::OutOfMemory, data });
        }
        self.held = self.held.saturating_add(len);
        self.settle(slot);
        Ok(())
    }

    /// Something lent that nobody needs any more.
    pub(crate) fn take_back(&mut self) -> Option<Lent> {
        self.pool.take_back()
    }

    /// Nothing is sent any more: all that is lent is to be taken back.
    pub(crate) fn end_loans(&mut self) {
        for slot in self.table.slots() {
            if let Some(send) = self.table.get_mut(slot).and_then(|stream| stream.send.as_mut()) {
                send.end_loans(&mut self.pool);
            }
        }
    }

    /// Ends the stream: the peer's reader finds the end behind what was written.
    pub(crate) fn finish(&mut self, id: StreamId) -> Result<(), WriteError> {
        let slot = self.writable(id)?;
        if let Some(send) = self.table.get_mut(slot).and_then(|stream| stream.send.as_mut()) {
            send.finish();
        }
        self.settle(slot);
        Ok(())
    }

    /// Gives the stream up: the peer gets `code` instead of what it has not read. Also after
    /// [`Self::finish`], as long as not all is acknowledged. Codes end at 2^62-1, and larger ones
    /// are sent as that.
    pub(crate) fn reset(&mut self, id: StreamId, code: u64) -> Result<(), WriteError> {
        let slot = self.sending(id)?;
        let Some(send) = self.table.get_mut(slot).and_then(|stream| stream.send.as_mut()) else {
            return Err(WriteError::ClosedStream);
        };
        if !send.state().sends_data() {
            return Err(closed_by(send.stopped()));
        }
        let freed = send.reset(code.min(varint::MAX), &mut self.pool);
        self.on_freed(slot, freed);
        self.settle(slot);
        Ok(())
    }

    /// Sets the priority, 0 at first: data of higher ones goes first.
    pub(crate) fn set_priority(&mut self, id: StreamId, priority: i32) -> Result<(), WriteError> {
        let slot = self.sending(id)?;
        if let Some(stream) = self.table.get_mut(slot) {
            stream.priority = priority;
        }
        self.settle(slot);
        Ok(())
    }

    /// Lets the peer hear of a bidirectional stream before anything is sent on it: MAX_STREAM_DATA opens it
    /// there (RFC 9000, Section 3.2). Without effect on others.
    pub(crate) fn announce(&mut self, id: StreamId) -> Result<(), WriteError> {
        let slot = self.sending(id)?;
        if let Some(recv) = self.table.get_mut(slot).and_then(|stream| stream.recv.as_mut())
            && let Some(window) = recv.open_window()
        {
            window.send_again();
        }
        self.settle(slot);
        Ok(())
    }

    /// How many bytes [`Self::write`] would take now.
    pub(crate) fn send_capacity(&mut self, id: StreamId) -> Result<usize, WriteError> {
        let slot = self.writable(id)?;
        Ok(self.room(slot))
    }

    /// How many written bytes are not acknowledged.
    pub(crate) fn bytes_unacked(&mut self, id: StreamId) -> Result<usize, WriteError> {
        let slot = self.sending(id)?;
        let send = self.table.get(slot).and_then(|stream| stream.send.as_ref());
        Ok(send.map_or(0, |send| send.unacked()))
    }

    /// Copies received data out; at least one byte, or the end, unless `out` is empty.
    pub(crate) fn read(&mut self, id: StreamId, out: &mut [u8]) -> Result<ReadOutcome, ReadError> {
        let slot = self.readable(id)?;
        let (recv, mut shared) = self.receiving(slot).ok_or(ReadError::ClosedStream)?;
        let result = recv.read(out, &mut shared);
        self.window.on_read(matches!(result, Err(ReadError::Blocked)));
        self.settle(slot);
        result
    }

    /// Shows received data in its place. [`Self::consume`] takes it.
    pub(crate) fn peek(&mut self, id: StreamId) -> Result<Peek<'_>, ReadError> {
        let slot = self.readable(id)?;
        let (recv, shared) = self.receiving(slot).ok_or(ReadError::ClosedStream)?;
        let shown = recv.peek();
        shared.window.on_read(matches!(shown, Err(ReadError::Blocked)));
        shown
    }

    /// True if the peer should hear of a new limit of all streams together.
    pub(crate) fn window_due(&self) -> bool {
        self.window.update_due()
    }

    /// Takes up to `len` bytes of what [`Self::peek`] shows; the end is taken with the last of
    /// them, and a reset with any number.
    pub(crate) fn consume(&mut self, id: StreamId, len: usize) -> Result<ReadOutcome, ReadError> {
        let slot = self.readable(id)?;
        let (recv, mut shared) = self.receiving(slot).ok_or(ReadError::ClosedStream)?;
        let result = recv.consume(len, &mut shared);
        self.settle(slot);
        result
    }

    /// Takes out what lies in one buffer.
    pub(crate) fn take_chunk(&mut self, id: StreamId) -> Result<Chunk, ReadError> {
        let slot = self.readable(id)?;
        let (recv, mut shared) = self.receiving(slot).ok_or(ReadError::ClosedStream)?;
        let result = recv.take(&mut shared);
        self.window.on_read(matches!(result, Err(ReadError::Blocked)));
        self.settle(slot);
        result
    }

    /// Takes a buffer back.
    pub(crate) fn give_back(&mut self, chunk: Chunk) {
        self.pool.give(chunk.into_buffer());
    }

    /// Wants no more of the stream: what came and comes is dropped, and the peer is asked with
    /// `code` to stop. Codes end at 2^62-1, and larger ones are sent as that.
    pub(crate) fn stop_sending(&mut self, id: StreamId, code: u64) -> Result<(), ReadError> {
        let slot = self.readable(id)?;
        let (recv, mut shared) = self.receiving(slot).ok_or(ReadError::ClosedStream)?;
        let result = recv.stop(code.min(varint::MAX), &mut shared);
        self.settle(slot);
        result
    }

    /// Asks the peer with `code` to stop; what comes until it does can be read.
    pub(crate) fn request_stop(&mut self, id: StreamId, code: u64) -> Result<(), ReadError> {
        let slot = self.readable(id)?;
        let (recv, _) = self.receiving(slot).ok_or(ReadError::ClosedStream)?;
        let result = recv.request_stop(code.min(varint::MAX));
        self.settle(slot);
        result
    }

    /// The place of a stream that has a sending half.
    fn sending(&mut self, id: StreamId) -> Result<Slot, WriteError> {
        let found = self.find(id).map_err(|OutOfMemory| WriteError::OutOfMemory)?;
        let slot = found.ok_or(WriteError::ClosedStream)?;
        match self.table.get(slot) {
            Some(stream) if stream.send.is_some() => Ok(slot),
            _ => Err(WriteError::ClosedStream),
        }
    }

    /// The place of a stream that can be written to.
    fn writable(&mut self, id: StreamId) -> Result<Slot, WriteError> {
        let slot = self.sending(id)?;
        match self.table.get(slot).and_then(|stream| stream.send.as_ref()) {
            Some(send) if send.is_open() => Ok(slot),
            Some(send) => Err(closed_by(send.stopped())),
            None => Err(WriteError::ClosedStream),
        }
    }

    /// The place of a stream that may be read.
    fn readable(&mut self, id: StreamId) -> Result<Slot, ReadError> {
        let found = self.find(id).map_err(|OutOfMemory| ReadError::OutOfMemory)?;
        found.ok_or(ReadError::ClosedStream)
    }

    /// How much all streams together may hold of what is to be sent.
    pub(super) fn send_limit(&self) -> usize {
        self.config.send_buffer.min(self.allowance)
    }

    /// How much a stream may hold of what is to be sent.
    pub(super) fn stream_limit(&self) -> usize {
        self.ahead.limit(self.config.stream_send_buffer)
    }

    /// Says how much may be in flight.
    pub(crate) fn set_congestion_window(&mut self, bytes: u64) {
        self.ahead.set_window(usize::try_from(bytes).unwrap_or(usize::MAX));
    }

    /// How many bytes of memory the data of all streams takes, in both directions, with what is
    /// kept for the next.
    pub(crate) const fn footprint(&self) -> usize {
        self.pool.footprint()
    }

    /// Says how many bytes may be held now in each direction. Nothing is dropped where it is less
    /// than before: there is no room for more, and the window of all streams moves no further.
    pub(crate) fn set_allowance(&mut self, bytes: usize) {
        if bytes == self.allowance {
            return;
        }
        self.allowance = bytes;
        self.pool.restrict(u32::try_from(bytes).map_or(POOL_BYTES, |bytes| bytes.min(POOL_BYTES)));
        self.window.restrict(bytes as u64);
        self.tell_writers();
    }

    /// Room for the stream in the send buffers.
    pub(super) fn room(&self, slot: Slot) -> usize {
        let Some(stream) = self.table.get(slot) else { return 0 };
        let held = stream.held();
        let of_stream = self.stream_limit().saturating_sub(held).min(self.room_ahead(stream));
        let left = self.send_limit().saturating_sub(self.held);
        let of_all = left.saturating_sub(self.reserve());
        of_stream.min(of_all.max(left.min(BEGINNING.saturating_sub(held))))
    }

    /// Room for the stream beside what waits for credit.
    fn room_ahead(&self, stream: &Stream) -> usize {
        let Some(send) = &stream.send else { return 0 };
        self.ahead.room(send.credit_available().min(self.credit.available()), send.unsent())
    }

    /// True if the credit of all streams together leaves this one no room.
    pub(super) fn is_held_up(&self, slot: Slot) -> bool {
        let send = self.table.get(slot).and_then(|stream| stream.send.as_ref());
        send.is_some_and(|send| self.ahead.room(self.credit.available(), send.unsent()) == 0)
    }

    /// Tells the writer of a stream that more credit has come, once it is worth it. What else holds the writer up has it
    /// wait with the others.
    pub(super) fn tell_credited(&mut self, slot: Slot) {
        if !self.ahead.is_bounded() {
            return;
        }
        let is_worth_it = self.room(slot) >= self.ahead.worth().max(1);
        let Some(stream) = self.table.get_mut(slot).filter(|stream| stream.wants_room) else {
            return;
        };
        if is_worth_it {
            stream.wants_room = false;
            self.notify(slot, EventFlags::WRITABLE);
        } else {
            self.writers.push_back(self.table.slab_mut(), slot);
        }
    }

    /// What is kept of the common buffer for streams that hold little: where a few that the peer
    /// does not read fill the rest, others begin all the same. Nothing of the least that a
    /// connection has.
    pub(super) fn reserve(&self) -> usize {
        self.send_limit().saturating_sub(LEAST) / 8
    }

    /// Has the application told when there is room again.
    fn wait_for_room(&mut self, slot: Slot) {
        let all_full = self.held.saturating_add(self.reserve()) >= self.send_limit();
        let held_up = self.is_held_up(slot);
        if let Some(stream) = self.table.get_mut(slot) {
            stream.wants_room = true;
        }
        if all_full || held_up {
            self.writers.push_back(self.table.slab_mut(), slot);
        }
    }
}

/// Why nothing more can be written.
fn closed_by(stopped: Option<u64>) -> WriteError {
    stopped.map_or(WriteError::ClosedStream, WriteError::Stopped)
}
