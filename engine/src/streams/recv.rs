//! The receiving half of a stream.

use quicket_wire::{TransportErrorCode, varint};

use super::assembler::{AssembleError, Assembler};
use super::chunk::Chunk;
use super::flow::RecvWindow;
use super::pool::{BufferPool, OutOfMemory};
use super::state::{RecvState, RecvStep};
use super::{Peek, ReadError, ReadOutcome};

/// The most pieces of data beyond a gap that all streams of a connection together may leave:
/// more than the packets in flight on any path, 16 bytes each (RFC 9000, Section 21.7).
pub(super) const MAX_PIECES: usize = 16_384;

/// A violation by the peer: the code to close with and the reason.
pub(crate) type Violation = (TransportErrorCode, &'static str);

/// The receiving half of a stream (RFC 9000, Section 3.2).
#[derive(Debug)]
pub(crate) struct RecvStream {
    state: RecvState,
    assembler: Assembler,
    window: RecvWindow,
    final_size: Option<u64>,
    reset_code: u64,
    stop: Option<Stop>,
}

/// STOP_SENDING and its way to the peer.
#[derive(Clone, Copy, Debug)]
struct Stop {
    code: u64,
    due: bool,
    /// The application reads what comes nevertheless.
    still_reads: bool,
}

/// What all streams of a connection share on the way in.
#[derive(Debug)]
pub(crate) struct Shared<'a> {
    /// The window of all streams together.
    pub(crate) window: &'a mut RecvWindow,
    /// How many pieces beyond a gap all streams hold.
    pub(crate) pieces: &'a mut usize,
    pub(crate) pool: &'a mut BufferPool,
}

impl RecvStream {
    /// A half with a window of `window` bytes that may grow to `max_window`.
    pub(crate) fn new(window: u64, max_window: u64) -> Self {
        Self {
            state: RecvState::Recv,
            assembler: Assembler::new(MAX_PIECES),
            window: RecvWindow::new(window, max_window),
            final_size: None,
            reset_code: 0,
            stop: None,
        }
    }

    /// Up to which offset data, or a reset, came.
    pub(crate) fn received(&self) -> u64 {
        self.window.received()
    }

    /// The final size; 0 while it is not known.
    pub(crate) fn final_size(&self) -> u64 {
        self.final_size.unwrap_or_default()
    }

    /// The code of the peer's reset.
    pub(crate) fn reset_code(&self) -> u64 {
        self.reset_code
    }

    /// True if the peer was asked to stop.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.is_some()
    }

    /// True if nobody will read what comes.
    fn is_unwanted(&self) -> bool {
        self.stop.is_some_and(|stop| !stop.still_reads)
    }

    pub(crate) fn state(&self) -> RecvState {
        self.state
    }

    /// True if the peer may send more and has not done so, or has said that there is more.
    pub(crate) fn awaits_data(&self) -> bool {
        let open = self.state == RecvState::Recv && self.window.available() > 0;
        self.stop.is_none() && (open || self.state == RecvState::SizeKnown)
    }

    /// How much memory the data takes.
    #[cfg(test)]
    pub(crate) fn capacity(&self) -> usize {
        self.assembler.allocated()
    }

    /// Takes in a STREAM frame; true if the application has something new to read.
    pub(crate) fn on_data(
        &mut self,
        offset: u64,
        data: &[u8],
        fin: bool,
        shared: &mut Shared<'_>,
    ) -> Result<bool, Violation> {
        // RFC 9000, Section 19.8: the largest offset is bounded like any varint.
        let end = offset.checked_add(data.len() as u64).filter(|end| *end <= varint::MAX);
        let end = end.ok_or((
            TransportErrorCode::FRAME_ENCODING_ERROR,
            "stream data beyond offset 2^62-1",
        ))?;
        self.check_final_size(end, fin)?;
        let new = self.charge(end, shared)?;
        if fin && self.final_size.is_none() {
            self.final_size = Some(end);
            self.state = self.state.after(RecvStep::RecvFin);
        }
        if self.is_unwanted() {
            self.drop_unwanted(new, shared);
            return Ok(false);
        }
        if !matches!(self.state, RecvState::Recv | RecvState::SizeKnown) {
            return Ok(false);
        }
        let before = self.assembler.pieces_ahead();
        let readable = self.assembler.insert(offset, data, shared.pool).map_err(refusal)?;
        self.count_pieces(before, shared)?;
        if self.final_size == Some(self.assembler.ready()) {
            self.state = self.state.after(RecvStep::RecvAllData);
            return Ok(true);
        }
        Ok(readable)
    }

    /// Takes in a RESET_STREAM frame; true if the application has to learn of it.
    pub(crate) fn on_reset(
        &mut self,
        code: u64,
        final_size: u64,
        shared: &mut Shared<'_>,
    ) -> Result<bool, Violation> {
        self.check_final_size(final_size, true)?;
        let new = self.charge(final_size, shared)?;
        if !matches!(self.state, RecvState::Recv | RecvState::SizeKnown) {
            return Ok(false);
        }
        self.final_size = Some(final_size);
        self.reset_code = code;
        self.state = self.state.after(RecvStep::RecvReset);
        if self.is_unwanted() {
            self.drop_unwanted(new, shared);
            return Ok(false);
        }
        // Nobody will read what was received: it frees the window of all streams.
        self.discard(shared);
        Ok(true)
    }

    /// RFC 9000, Section 4.5: the final size never changes, and no data lies beyond it.
    fn check_final_size(&self, end: u64, is_final: bool) -> Result<(), Violation> {
        let violation = match self.final_size {
            Some(size) if end > size => "data beyond the final size of the stream",
            Some(size) if is_final && end != size => "the final size of the stream changed",
            None if is_final && end < self.window.received() => {
                "the final size is below what was received before"
            }
            _ => return Ok(()),
        };
        Err((TransportErrorCode::FINAL_SIZE_ERROR, violation))
    }

    /// RFC 9000, Section 4.1: charges both windows for what lies beyond the highest offset.
    /// Returns how much that is.
    fn charge(&mut self, end: u64, shared: &mut Shared<'_>) -> Result<u64, Violation> {
        let new = end.saturating_sub(self.window.received());
        if new > self.window.available() {
            let reason = "data beyond the limit of the stream";
            return Err((TransportErrorCode::FLOW_CONTROL_ERROR, reason));
        }
        if new > shared.window.available() {
            let reason = "data beyond the limit of the connection";
            return Err((TransportErrorCode::FLOW_CONTROL_ERROR, reason));
        }
        self.window.receive(new);
        shared.window.receive(new);
        Ok(new)
    }

    fn count_pieces(&self, before: usize, shared: &mut Shared<'_>) -> Result<(), Violation> {
        let sum = shared.pieces.saturating_sub(before);
        *shared.pieces = sum.saturating_add(self.assembler.pieces_ahead());
        if *shared.pieces > MAX_PIECES {
            return Err(refusal(AssembleError::TooManyGaps));
        }
        Ok(())
    }

    /// Data of a stopped stream: counted as read at once. With the final size it is over.
    fn drop_unwanted(&mut self, new: u64, shared: &mut Shared<'_>) {
        shared.window.consume(new);
        self.state = self.state.after(RecvStep::Discard);
    }

    /// Drops all data and frees the window of all streams of it.
    fn discard(&mut self, shared: &mut Shared<'_>) {
        let unread = self.window.received().saturating_sub(self.assembler.consumed());
        shared.window.consume(unread);
        *shared.pieces = shared.pieces.saturating_sub(self.assembler.pieces_ahead());
        self.assembler.discard(shared.pool);
    }

    /// Copies data out.
    pub(crate) fn read(
        &mut self,
        out: &mut [u8],
        shared: &mut Shared<'_>,
    ) -> Result<ReadOutcome, ReadError> {
        self.check_readable()?;
        let len = self.assembler.read(out, shared.pool);
        let fin = self.on_consumed(len, shared);
        if len == 0 && !fin && !out.is_empty() {
            return Err(ReadError::Blocked);
        }
        Ok(ReadOutcome { len, fin })
    }

    /// Shows data without taking it.
    pub(crate) fn peek(&self) -> Result<Peek<'_>, ReadError> {
        self.check_open()?;
        let (first, second) = self.assembler.peek();
        let shown = first.len().saturating_add(second.len());
        let fin = self.state == RecvState::DataRecvd && shown == self.assembler.readable();
        if self.state == RecvState::ResetRecvd {
            return Err(ReadError::Reset(self.reset_code));
        }
        if first.is_empty() && !fin {
            return Err(ReadError::Blocked);
        }
        Ok(Peek { first, second, fin })
    }

    /// Takes up to `len` bytes of what [`Self::peek`] shows.
    pub(crate) fn consume(
        &mut self,
        len: usize,
        shared: &mut Shared<'_>,
    ) -> Result<ReadOutcome, ReadError> {
        self.check_readable()?;
        let len = self.assembler.consume(len, shared.pool);
        let fin = self.on_consumed(len, shared);
        Ok(ReadOutcome { len, fin })
    }

    /// Takes data out in its buffer.
    pub(crate) fn take(&mut self, shared: &mut Shared<'_>) -> Result<Chunk, ReadError> {
        self.check_readable()?;
        let taken = self.assembler.take(shared.pool).map_err(|OutOfMemory| ReadError::OutOfMemory);
        let chunk = taken?;
        let fin = self.on_consumed(chunk.len(), shared);
        if chunk.is_empty() && !fin { Err(ReadError::Blocked) } else { Ok(chunk.with_fin(fin)) }
    }

    /// Tells the application of a reset, which ends the half.
    fn check_readable(&mut self) -> Result<(), ReadError> {
        self.check_open()?;
        if self.state == RecvState::ResetRecvd {
            self.state = self.state.after(RecvStep::ReadReset);
            return Err(ReadError::Reset(self.reset_code));
        }
        Ok(())
    }

    fn check_open(&self) -> Result<(), ReadError> {
        if self.is_unwanted() || self.state.is_terminal() {
            return Err(ReadError::ClosedStream);
        }
        Ok(())
    }

    /// Moves the windows; true if the end of the stream is reached.
    fn on_consumed(&mut self, len: usize, shared: &mut Shared<'_>) -> bool {
        self.window.consume(len as u64);
        shared.window.consume(len as u64);
        if self.state != RecvState::DataRecvd || self.assembler.is_readable() {
            return false;
        }
        self.state = self.state.after(RecvStep::ReadAllData);
        true
    }

    /// The application wants no more: STOP_SENDING is sent unless all has arrived (RFC 9000,
    /// Section 3.5), and what comes is dropped.
    pub(crate) fn stop(&mut self, code: u64, shared: &mut Shared<'_>) -> Result<(), ReadError> {
        self.check_open()?;
        let due = matches!(self.state, RecvState::Recv | RecvState::SizeKnown);
        if self.state != RecvState::ResetRecvd {
            self.discard(shared);
        }
        self.stop = Some(Stop { code, due, still_reads: false });
        self.state = self.state.after(RecvStep::Discard);
        Ok(())
    }

    /// Asks the peer to stop, and lets the application read what comes until it does.
    pub(crate) fn request_stop(&mut self, code: u64) -> Result<(), ReadError> {
        self.check_open()?;
        let due = matches!(self.state, RecvState::Recv | RecvState::SizeKnown);
        self.stop = Some(Stop { code, due, still_reads: true });
        Ok(())
    }

    /// The code of STOP_SENDING, if it is to be sent.
    pub(crate) fn due_stop(&self) -> Option<u64> {
        // Once the final size is known the stream is over for both sides.
        let stop = self.stop.filter(|stop| stop.due && !self.state.is_terminal());
        stop.map(|stop| stop.code)
    }

    /// Notes that STOP_SENDING was sent (false) or lost (true).
    pub(crate) fn set_stop_due(&mut self, due: bool) {
        if let Some(stop) = &mut self.stop {
            stop.due = due;
        }
    }

    /// The stream's window, while it matters: MAX_STREAM_DATA is of no use once the final size
    /// is known (RFC 9000, Section 3.2) or the data is not wanted.
    pub(crate) fn open_window(&mut self) -> Option<&mut RecvWindow> {
        let open = self.state == RecvState::Recv && self.stop.is_none();
        open.then_some(&mut self.window)
    }

    /// True if MAX_STREAM_DATA is to be sent.
    pub(crate) fn window_due(&self) -> bool {
        self.state == RecvState::Recv && self.stop.is_none() && self.window.update_due()
    }
}

/// A peer that scatters its data, or a host without memory, ends the connection: data that was
/// dropped in silence would have to stay unacknowledged packet by packet.
fn refusal(error: AssembleError) -> Violation {
    let reason = match error {
        AssembleError::TooManyGaps => "too many gaps in the data of streams",
        AssembleError::OutOfMemory => "out of memory for received data",
    };
    (TransportErrorCode::INTERNAL_ERROR, reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Peer {
        window: RecvWindow,
        pieces: usize,
        pool: BufferPool,
    }

    impl Peer {
        fn new(window: u64) -> Self {
            let pool = BufferPool::new(1 << 16);
            Self { window: RecvWindow::new(window, window), pieces: 0, pool }
        }

        fn shared(&mut self) -> Shared<'_> {
            let Self { window, pieces, pool } = self;
            Shared { window, pieces, pool }
        }
    }

    fn code(result: Result<bool, Violation>) -> TransportErrorCode {
        result.unwrap_err().0
    }

    #[test]
    fn data_and_fin_are_read_to_the_end() {
        let (mut stream, mut peer) = (RecvStream::new(100, 100), Peer::new(100));
        let mut out = [0; 4];
        assert_eq!(stream.read(&mut out, &mut peer.shared()), Err(ReadError::Blocked));
        assert_eq!(stream.on_data(2, b"llo", true, &mut peer.shared()), Ok(false));
        assert_eq!(stream.state(), RecvState::SizeKnown);
        assert_eq!(stream.on_data(0, b"he", false, &mut peer.shared()), Ok(true));
        assert_eq!(stream.state(), RecvState::DataRecvd);
        let read = stream.read(&mut out, &mut peer.shared());
        assert_eq!(read, Ok(ReadOutcome { len: 4, fin: false }));
        assert_eq!(stream.peek().unwrap().first, b"o");
        let read = stream.read(&mut out, &mut peer.shared());
        assert_eq!(read, Ok(ReadOutcome { len: 1, fin: true }));
        assert_eq!(stream.state(), RecvState::DataRead);
        assert_eq!(stream.read(&mut out, &mut peer.shared()), Err(ReadError::ClosedStream));
    }

    #[test]
    fn the_end_of_an_empty_stream_is_readable() {
        let (mut stream, mut peer) = (RecvStream::new(100, 100), Peer::new(100));
        assert_eq!(stream.on_data(0, b"", true, &mut peer.shared()), Ok(true));
        assert!(stream.peek().unwrap().fin);
        let end = stream.consume(0, &mut peer.shared());
        assert_eq!(end, Ok(ReadOutcome { len: 0, fin: true }));
    }

    #[test]
    fn the_final_size_must_not_change() {
        // RFC 9000, Section 4.5
        let error = TransportErrorCode::FINAL_SIZE_ERROR;
        let mut peer = Peer::new(100);
        let mut stream = RecvStream::new(100, 100);
        stream.on_data(1, b"abcd", true, &mut peer.shared()).unwrap();
        assert_eq!(code(stream.on_data(3, b"xyz", false, &mut peer.shared())), error);
        assert_eq!(code(stream.on_data(1, b"abc", true, &mut peer.shared())), error);
        assert_eq!(code(stream.on_reset(0, 4, &mut peer.shared())), error);
        assert_eq!(code(stream.on_reset(0, 6, &mut peer.shared())), error);
        assert_eq!(stream.on_reset(0, 5, &mut peer.shared()), Ok(true));
        let mut stream = RecvStream::new(100, 100);
        stream.on_data(0, b"abcd", false, &mut peer.shared()).unwrap();
        assert_eq!(code(stream.on_data(0, b"abc", true, &mut peer.shared())), error);
        assert_eq!(code(stream.on_reset(0, 3, &mut peer.shared())), error);
    }

    #[test]
    fn the_final_size_holds_after_all_data_has_come() {
        let (mut stream, mut peer) = (RecvStream::new(100, 100), Peer::new(100));
        stream.on_data(0, b"abc", true, &mut peer.shared()).unwrap();
        let late = stream.on_data(0, b"abcd", false, &mut peer.shared());
        assert_eq!(code(late), TransportErrorCode::FINAL_SIZE_ERROR);
        assert_eq!(stream.on_reset(1, 3, &mut peer.shared()), Ok(false), "ignored: Section 3.2");
        assert_eq!(stream.state(), RecvState::DataRecvd);
    }

    #[test]
    fn both_limits_hold_for_data_and_for_resets() {
        // RFC 9000, Sections 4.1 and 4.5
        let error = TransportErrorCode::FLOW_CONTROL_ERROR;
        let mut peer = Peer::new(100);
        let mut stream = RecvStream::new(10, 10);
        assert_eq!(code(stream.on_data(10, b"x", false, &mut peer.shared())), error);
        assert_eq!(code(stream.on_reset(0, 11, &mut peer.shared())), error);
        stream.on_data(9, b"x", false, &mut peer.shared()).unwrap();
        let mut peer = Peer::new(5);
        let mut stream = RecvStream::new(10, 10);
        assert_eq!(code(stream.on_data(5, b"x", false, &mut peer.shared())), error);
        assert_eq!(code(stream.on_reset(0, 6, &mut peer.shared())), error);
        stream.on_data(4, b"x", false, &mut peer.shared()).unwrap();
    }

    #[test]
    fn data_beyond_the_largest_offset_is_refused() {
        // RFC 9000, Section 19.8
        let (mut stream, mut peer) = (RecvStream::new(100, 100), Peer::new(100));
        for offset in [varint::MAX, u64::MAX] {
            let result = stream.on_data(offset, b"x", false, &mut peer.shared());
            assert_eq!(code(result), TransportErrorCode::FRAME_ENCODING_ERROR);
        }
    }

    #[test]
    fn a_reset_frees_the_shared_window_and_ends_reading() {
        let (mut stream, mut peer) = (RecvStream::new(100, 100), Peer::new(100));
        stream.on_data(0, b"abc", false, &mut peer.shared()).unwrap();
        assert_eq!(stream.on_reset(9, 60, &mut peer.shared()), Ok(true));
        assert!(peer.window.update_due(), "all 60 bytes count as read");
        assert_eq!(stream.peek().unwrap_err(), ReadError::Reset(9));
        let read = stream.read(&mut [0; 4], &mut peer.shared());
        assert_eq!(read, Err(ReadError::Reset(9)));
        assert_eq!(stream.state(), RecvState::ResetRead);
    }

    #[test]
    fn after_stop_sending_data_is_dropped_until_the_final_size() {
        let (mut stream, mut peer) = (RecvStream::new(100, 100), Peer::new(100));
        stream.on_data(5, b"abc", false, &mut peer.shared()).unwrap();
        stream.stop(3, &mut peer.shared()).unwrap();
        assert_eq!((stream.due_stop(), peer.pieces), (Some(3), 0));
        stream.set_stop_due(false);
        assert_eq!(stream.on_data(8, &[0; 52], false, &mut peer.shared()), Ok(false));
        assert!(peer.window.update_due(), "unwanted data frees the shared window");
        assert_eq!(stream.on_reset(3, 60, &mut peer.shared()), Ok(false));
        assert_eq!(stream.state(), RecvState::ResetRead);
    }

    #[test]
    fn stop_sending_is_not_sent_once_all_has_come() {
        // RFC 9000, Section 3.5
        let (mut stream, mut peer) = (RecvStream::new(100, 100), Peer::new(100));
        stream.on_data(0, b"abc", true, &mut peer.shared()).unwrap();
        stream.stop(3, &mut peer.shared()).unwrap();
        assert_eq!((stream.due_stop(), stream.state()), (None, RecvState::DataRead));
    }

    #[test]
    fn pieces_are_counted_over_all_streams() {
        // RFC 9000, Section 21.7
        let mut peer = Peer::new(1 << 20);
        let mut streams = [RecvStream::new(1 << 20, 1 << 20), RecvStream::new(1 << 20, 1 << 20)];
        for at in 0..MAX_PIECES as u64 {
            let stream = &mut streams[at as usize % 2];
            stream.on_data(1 + 2 * at, b"x", false, &mut peer.shared()).unwrap();
        }
        assert_eq!(peer.pieces, MAX_PIECES);
        let result = streams[0].on_data(1 << 19, b"x", false, &mut peer.shared());
        assert_eq!(code(result), TransportErrorCode::INTERNAL_ERROR);
    }
}
