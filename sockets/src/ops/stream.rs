//! Streams.

use std::task::Poll;

use quicket_engine::ReadOutcome;
use quicket_wire::{Dir, StreamId};

use super::super::core::{ConnRef, Effect, Interest, SendEnd, Waiter};
use crate::error::{AcceptError, OpenError, ReadError, WriteError};

/// With so many streams at most, the end of one is sent at once: as in one exchange after the other,
/// where the previous stream is still to be acknowledged.
const FEW_STREAMS: usize = 2;

impl ConnRef {
    /// Opens a stream.
    pub(crate) fn poll_open(
        &self,
        dir: Dir,
        waiter: Option<Waiter<'_>>,
    ) -> Poll<Result<StreamId, OpenError>> {
        self.try_later(
            |_| Effect::Later(0),
            |conn| {
                if let Some(error) = conn.lost() {
                    return Poll::Ready(Err(OpenError::Lost(error)));
                }
                match conn.engine.open(dir) {
                    Ok(id) => {
                        conn.send_ends.insert(id, None);
                        Poll::Ready(Ok(id))
                    }
                    Err(quicket_engine::OpenError::StreamLimit) => {
                        conn.wait(Interest::Open(dir), waiter);
                        Poll::Pending
                    }
                    Err(_) => Poll::Ready(Err(OpenError::OutOfMemory)),
                }
            },
        )
    }

    /// The next stream that the peer opened, and whether it came as early data.
    pub(crate) fn poll_accept(
        &self,
        dir: Dir,
        waiter: Option<Waiter<'_>>,
    ) -> Poll<Result<(StreamId, bool), AcceptError>> {
        self.try_later(
            |_| Effect::Later(0),
            |conn| match (conn.accept(dir), conn.lost()) {
                (Some(next), _) => Poll::Ready(Ok(next)),
                (None, Some(error)) => Poll::Ready(Err(AcceptError::Lost(error))),
                (None, None) => {
                    conn.wait(Interest::Accept(dir), waiter);
                    Poll::Pending
                }
            },
        )
    }

    /// Reads what has arrived.
    pub(crate) fn poll_read(
        &self,
        id: StreamId,
        out: &mut [u8],
        waiter: Option<Waiter<'_>>,
    ) -> Poll<Result<ReadOutcome, ReadError>> {
        self.try_later(after_read, |conn| match conn.engine.read(id, out) {
            Ok(outcome) => Poll::Ready(Ok(outcome)),
            Err(error) => match read_error(error) {
                Some(error) => Poll::Ready(Err(error)),
                None => match conn.lost() {
                    Some(error) => Poll::Ready(Err(ReadError::Lost(error))),
                    None => {
                        conn.wait(Interest::Readable(id), waiter);
                        Poll::Pending
                    }
                },
            },
        })
    }

    /// Shows what has arrived to `view` in its place; `view` says how much of it it took.
    pub(crate) fn poll_view(
        &self,
        id: StreamId,
        view: &mut dyn FnMut(&[u8], bool) -> usize,
        waiter: Option<Waiter<'_>>,
    ) -> Poll<Result<ReadOutcome, ReadError>> {
        self.try_later(after_read, |conn| {
            let taken = match conn.engine.peek(id) {
                Ok(peek) => {
                    let last = peek.fin && peek.second.is_empty();
                    view(peek.first, last).min(peek.first.len())
                }
                Err(error) => {
                    if matches!(error, quicket_engine::ReadError::Reset(_)) {
                        // Telling the application of a reset ends the stream (RFC 9000,
                        // Section 3.2), and makes room for another one. Looking does neither.
                        let _ = conn.engine.consume(id, 0);
                    }
                    return match (read_error(error), conn.lost()) {
                        (Some(error), _) => Poll::Ready(Err(error)),
                        (None, Some(error)) => Poll::Ready(Err(ReadError::Lost(error))),
                        (None, None) => {
                            conn.wait(Interest::Readable(id), waiter);
                            Poll::Pending
                        }
                    };
                }
            };
            let outcome = conn.engine.consume(id, taken);
            Poll::Ready(outcome.map_err(|error| read_error(error).unwrap_or(ReadError::Closed)))
        })
    }

    /// Wants no more of a stream.
    pub(crate) fn stop(&self, id: StreamId, code: u64) -> Result<(), ReadError> {
        self.act(|conn, _| match conn.engine.stop_sending(id, code) {
            Ok(()) => Ok(()),
            Err(error) => Err(read_error(error).unwrap_or(ReadError::Closed)),
        })
    }

    /// Writes as much as there is room for.
    pub(crate) fn poll_write(
        &self,
        id: StreamId,
        data: &[u8],
        waiter: Option<Waiter<'_>>,
    ) -> Poll<Result<usize, WriteError>> {
        self.try_later(
            |written: &Result<usize, WriteError>| Effect::Written(*written.as_ref().unwrap_or(&0)),
            |conn| {
                if let Some(error) = conn.lost() {
                    return Poll::Ready(Err(WriteError::Lost(error)));
                }
                match conn.engine.write(id, data) {
                    Ok(written) => Poll::Ready(Ok(written)),
                    Err(quicket_engine::WriteError::Blocked) => {
                        conn.wait(Interest::Writable(id), waiter);
                        Poll::Pending
                    }
                    Err(error) => Poll::Ready(Err(write_error(conn.send_end(id), error))),
                }
            },
        )
    }

    /// Ends a stream.
    pub(crate) fn finish(&self, id: StreamId) -> Result<(), WriteError> {
        self.act_as(|conn, _| {
            let finished = match (conn.lost(), conn.engine.finish(id)) {
                (_, Ok(())) => Ok(()),
                (Some(error), _) => Err(WriteError::Lost(error)),
                (None, Err(error)) => Err(write_error(conn.send_end(id), error)),
            };
            // Where few streams are open, little is likely to follow.
            let few = conn.engine.stream_count() <= FEW_STREAMS;
            (finished, if few { Effect::Now } else { Effect::Written(0) })
        })
    }

    /// Gives a stream up.
    pub(crate) fn reset(&self, id: StreamId, code: u64) -> Result<(), WriteError> {
        self.act(|conn, _| match conn.engine.reset(id, code) {
            Ok(()) => Ok(()),
            Err(error) => Err(write_error(conn.send_end(id), error)),
        })
    }

    /// Sets a stream's priority.
    pub(crate) fn set_priority(&self, id: StreamId, priority: i32) -> Result<(), WriteError> {
        self.act(|conn, _| match conn.engine.set_priority(id, priority) {
            Ok(()) => Ok(()),
            Err(error) => Err(write_error(conn.send_end(id), error)),
        })
    }

    /// Waits until the peer has everything (`None`) or wants no more (its code).
    pub(crate) fn poll_send_done(
        &self,
        id: StreamId,
        waiter: Option<Waiter<'_>>,
    ) -> Poll<Result<Option<u64>, WriteError>> {
        self.try_later(
            |_| Effect::Later(0),
            |conn| match (conn.send_end(id), conn.lost()) {
                (Some(SendEnd::Finished), _) => Poll::Ready(Ok(None)),
                (Some(SendEnd::Stopped(code)), _) => Poll::Ready(Ok(Some(code))),
                (None, Some(error)) => Poll::Ready(Err(WriteError::Lost(error))),
                (None, None) => {
                    conn.wait(Interest::SendDone(id), waiter);
                    Poll::Pending
                }
            },
        )
    }

    /// The application lets go of a sending half: ends the stream if that was not done yet, or
    /// gives it up if the application is unwinding.
    pub(crate) fn release_send(&self, id: StreamId, ended: bool) {
        self.later(|conn| {
            conn.send_ends.remove(&id);
            if !ended && std::thread::panicking() {
                let _ = conn.engine.reset(id, 0);
            } else if !ended {
                let _ = conn.engine.finish(id);
            }
        });
    }

    /// The application lets go of a receiving half.
    pub(crate) fn release_receive(&self, id: StreamId, ended: bool) {
        if !ended {
            self.later(|conn| {
                let _ = conn.engine.stop_sending(id, 0);
            });
        }
    }
}

/// The window has room for as much as was read.
fn after_read(read: &Result<ReadOutcome, ReadError>) -> Effect {
    Effect::Later(read.as_ref().map_or(0, |outcome| outcome.len))
}

/// The engine's error as the application hears it; `None` for "not yet".
fn read_error(error: quicket_engine::ReadError) -> Option<ReadError> {
    Some(match error {
        quicket_engine::ReadError::Blocked => return None,
        quicket_engine::ReadError::Reset(code) => ReadError::Reset(code),
        quicket_engine::ReadError::OutOfMemory => ReadError::OutOfMemory,
        _ => ReadError::Closed,
    })
}

/// The engine's error as the application hears it. The engine forgets a stopped stream once its
/// reset is acknowledged; `end` does not.
fn write_error(end: Option<SendEnd>, error: quicket_engine::WriteError) -> WriteError {
    match (end, error) {
        (Some(SendEnd::Stopped(code)), _) => WriteError::Stopped(code),
        (_, quicket_engine::WriteError::Stopped(code)) => WriteError::Stopped(code),
        (_, quicket_engine::WriteError::Blocked) => WriteError::WouldBlock,
        (_, quicket_engine::WriteError::OutOfMemory) => WriteError::OutOfMemory,
        _ => WriteError::Closed,
    }
}
