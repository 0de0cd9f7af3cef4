//! What the application does with streams.

use alloc::boxed::Box;

use quicket_wire::{Dir, Side, StreamId};

use crate::config::TransportConfig;
use crate::connection::Connection;
use crate::random::Random;
use crate::streams::{
    Chunk, Lent, NotTaken, OpenError, Peek, ReadError, ReadOutcome, SendRoom, StreamCounts,
    StreamNews, StreamStatus, Streams, WriteError,
};

#[inline(never)] // keeps it out of the frame of `Connection::new`
pub(in crate::connection) fn new_streams(
    side: Side,
    config: &TransportConfig,
    rng: &mut dyn Random,
) -> Box<Streams> {
    let seed = rng.next_u64();
    Box::new(Streams::new(side, config.into(), seed))
}

/// Streams (RFC 9000, Section 2).
impl Connection {
    /// Opens a stream.
    pub fn open(&mut self, dir: Dir) -> Result<StreamId, OpenError> {
        self.streams.open(dir)
    }

    /// The next stream that the peer has opened.
    pub fn accept(&mut self, dir: Dir) -> Option<StreamId> {
        self.streams.accept(dir)
    }

    /// True if the stream began as early data, which an attacker can repeat (RFC 9001, Section
    /// 9.2): its first frame came in a 0-RTT packet. Ask when it is accepted; of a stream that is
    /// over, nothing is known for sure.
    pub fn is_early_data(&mut self, id: StreamId) -> bool {
        self.streams.is_early_data(id)
    }

    /// Takes as much of `data` as there is room for; returns how many bytes.
    pub fn write(&mut self, id: StreamId, data: &[u8]) -> Result<usize, WriteError> {
        self.streams.write(id, data)
    }

    /// The same without a copy: `data` is sent from where it is, and [taken back](Self::take_back) later. All of it is
    /// taken or nothing, so that no more than [`Connection::send_capacity`] fits.
    ///
    /// It pays for large pieces: each is looked for when it is sent, and kept as a whole until the peer has all of it.
    ///
    /// # Errors
    ///
    /// As of [`Connection::write`], with the data.
    pub fn lend(&mut self, id: StreamId, data: Lent) -> Result<(), NotTaken> {
        if self.is_closed() {
            return Err(NotTaken { error: WriteError::ClosedStream, data });
        }
        self.streams.lend(id, data)
    }

    /// Something [lent](Self::lend) that is needed no more: the peer has it, or the stream has been reset, or the
    /// connection has ended and [`Connection::end_loans`] was called. To be asked whenever packets have come.
    pub fn take_back(&mut self) -> Option<Lent> {
        self.streams.take_back()
    }

    /// Has everything that is [lent](Self::lend) taken back, once the connection has ended: nothing more is sent on streams.
    pub fn end_loans(&mut self) {
        if self.is_closed() {
            self.streams.end_loans();
        }
    }

    /// Ends the stream behind what was written.
    pub fn finish(&mut self, id: StreamId) -> Result<(), WriteError> {
        self.streams.finish(id)
    }

    /// Gives the stream up; what was not delivered may be lost (RFC 9000, Section 3.1).
    pub fn reset(&mut self, id: StreamId, code: u64) -> Result<(), WriteError> {
        self.streams.reset(id, code)
    }

    /// Streams of higher priority are sent first; 0 is the default.
    pub fn set_priority(&mut self, id: StreamId, priority: i32) -> Result<(), WriteError> {
        self.streams.set_priority(id, priority)
    }

    /// Lets the peer hear of a bidirectional stream before anything is sent on it, by MAX_STREAM_DATA
    /// (RFC 9000, Section 3.2).
    ///
    /// # Errors
    ///
    /// If the stream is closed.
    pub fn announce(&mut self, id: StreamId) -> Result<(), WriteError> {
        self.streams.announce(id)
    }

    /// How many bytes [`Connection::write`] would take now.
    pub fn send_capacity(&mut self, id: StreamId) -> Result<usize, WriteError> {
        self.streams.send_capacity(id)
    }

    /// How many bytes of the stream the peer has not acknowledged.
    pub fn bytes_unacked(&mut self, id: StreamId) -> Result<usize, WriteError> {
        self.streams.bytes_unacked(id)
    }

    /// How many streams are open or have something to be acknowledged.
    pub fn stream_count(&self) -> usize {
        self.streams.len()
    }

    /// How many bytes of memory the data of streams takes: what is written and not acknowledged,
    /// received and not read, and buffers that are kept for the next.
    pub const fn stream_memory(&self) -> usize {
        self.streams.footprint()
    }

    /// How many bytes of memory datagrams take: what waits to be sent or to be received, and
    /// buffers that are kept for the next. At most about twice what the queues may hold.
    pub fn datagram_memory(&self) -> usize {
        self.datagrams.memory()
    }

    /// Says how many bytes of stream data the connection may hold now in each direction, and how many of
    /// datagrams, where many share the memory; at first as many as [`TransportConfig`](crate::TransportConfig)
    /// allows. Where it holds more, nothing of streams is lost: nothing can be written until the peer has
    /// acknowledged enough, and the peer gets no credit beyond what it was promised. A datagram that comes
    /// displaces older ones.
    pub fn set_memory_allowance(&mut self, bytes: usize) {
        self.streams.set_allowance(bytes);
        self.datagrams.set_allowance(bytes);
    }

    /// True if the peer has acknowledged everything that was written, finished or reset on any
    /// stream: closing the connection loses nothing then.
    pub fn is_delivered(&self) -> bool {
        self.streams.is_delivered()
    }

    /// Reads what has arrived, in order.
    pub fn read(&mut self, id: StreamId, out: &mut [u8]) -> Result<ReadOutcome, ReadError> {
        self.streams.read(id, out)
    }

    /// Shows what has arrived without a copy; [`Connection::consume`] follows.
    pub fn peek(&mut self, id: StreamId) -> Result<Peek<'_>, ReadError> {
        self.streams.peek(id)
    }

    /// Takes what has arrived out in its buffer, or as much as lies in one, and gives `spent` back;
    /// nothing is copied unless data of this stream behind a gap shares the buffer.
    pub fn take_chunk(&mut self, id: StreamId, spent: Option<Chunk>) -> Result<Chunk, ReadError> {
        spent.into_iter().for_each(|spent| self.give_back(spent));
        self.streams.take_chunk(id)
    }

    /// Takes the buffer of a chunk back.
    pub fn give_back(&mut self, chunk: Chunk) {
        self.streams.give_back(chunk);
    }

    /// True if the peer should hear of a larger window of all streams together, as it may even
    /// after a call that found nothing to read: [`Connection::poll_transmit`] tells it.
    pub fn is_window_update_due(&self) -> bool {
        self.streams.window_due()
    }

    /// Marks `len` bytes of what [`Connection::peek`] showed as read.
    pub fn consume(&mut self, id: StreamId, len: usize) -> Result<ReadOutcome, ReadError> {
        self.streams.consume(id, len)
    }

    /// Asks the peer to stop sending on the stream (RFC 9000, Section 3.5), and still reads what
    /// comes until it does.
    pub fn request_stop(&mut self, id: StreamId, code: u64) -> Result<(), ReadError> {
        self.streams.request_stop(id, code)
    }

    /// Asks the peer to stop sending on the stream (RFC 9000, Section 3.5). What came and comes
    /// is dropped.
    pub fn stop_sending(&mut self, id: StreamId, code: u64) -> Result<(), ReadError> {
        self.streams.stop_sending(id, code)
    }
}

/// What streams do, for applications that follow it step by step.
impl Connection {
    /// Collects [`StreamNews`] from now on, or no more.
    pub fn follow_streams(&mut self, follow: bool) {
        self.streams.follow(follow);
    }

    /// The next news.
    pub fn poll_stream_news(&mut self) -> Option<StreamNews> {
        self.streams.poll_news()
    }

    /// Where the halves of a stream stand; `None` if it is closed or was never open.
    pub fn stream_status(&mut self, id: StreamId) -> Option<StreamStatus> {
        self.streams.status(id)
    }

    /// How many streams of one direction there were.
    pub fn stream_counts(&self, dir: Dir) -> StreamCounts {
        self.streams.counts(dir)
    }

    /// What can be written to a stream now; `None` if nothing ever again.
    pub fn send_room(&mut self, id: StreamId) -> Option<SendRoom> {
        self.streams.send_room(id).ok().flatten()
    }

    /// What can be written now to streams that have no limit of their own in the way.
    pub fn shared_send_room(&self) -> SendRoom {
        SendRoom { credit: self.streams.credit_left(), buffer: self.streams.buffer_left() }
    }

    /// How many bytes written to streams were never sent.
    pub fn bytes_unsent(&self) -> u64 {
        self.streams.unsent()
    }

    /// Holds stream data back, whatever else is sent, until this is called again or data is lost:
    /// for applications that know that more follows.
    pub fn cork_streams(&mut self, corked: bool) {
        self.streams.cork(corked);
    }

    /// How many bytes written to streams are not acknowledged.
    pub fn bytes_held(&self) -> usize {
        self.streams.held()
    }

    /// Has the peer told that it permits too few streams (RFC 9000, Section 4.6).
    pub fn tell_streams_blocked(&mut self, dir: Dir) {
        self.streams.tell_streams_blocked(dir);
    }

    /// Has the peer told of limits that keep this side from writing to a stream
    /// (RFC 9000, Section 4.1).
    pub fn tell_blocked(&mut self, id: StreamId) {
        self.streams.tell_blocked(id);
    }
}
