//! What the application gets to hear when it uses a stream.

use core::fmt;

use super::lent::Lent;

/// Why a stream could not be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OpenError {
    /// The peer does not permit more streams yet (RFC 9000, Section 4.6). Try again after
    /// [`StreamEvent::Available`](super::StreamEvent::Available).
    StreamLimit,
    /// Memory for the stream could not be had.
    OutOfMemory,
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::StreamLimit => "the peer permits no more streams yet; wait for Available",
            Self::OutOfMemory => "out of memory for a new stream",
        })
    }
}

impl core::error::Error for OpenError {}

/// Why nothing was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WriteError {
    /// The send buffer of the stream, or of all streams, is full. Try again after
    /// [`StreamEvent::Writable`](super::StreamEvent::Writable).
    Blocked,
    /// The peer wants no more of this stream: the application code of its STOP_SENDING
    /// (RFC 9000, Section 3.5).
    Stopped(u64),
    /// The stream was finished or reset, was never open, or only receives.
    ClosedStream,
    /// Memory for the data could not be had.
    OutOfMemory,
}

impl fmt::Display for WriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Blocked => f.write_str("the send buffer is full; wait for Writable"),
            Self::Stopped(code) => write!(f, "the peer stopped the stream with code {code:#x}"),
            Self::ClosedStream => f.write_str("the stream is not open for writing"),
            Self::OutOfMemory => f.write_str("out of memory for stream data"),
        }
    }
}

impl core::error::Error for WriteError {}

/// Why something was not taken by [`Connection::lend`](crate::Connection::lend), and what it was.
#[derive(Debug)]
pub struct NotTaken {
    /// As of a write.
    pub error: WriteError,
    /// All of it.
    pub data: Lent,
}

impl fmt::Display for NotTaken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl core::error::Error for NotTaken {}

/// Why nothing was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReadError {
    /// Nothing has arrived. Try again after
    /// [`StreamEvent::Readable`](super::StreamEvent::Readable).
    Blocked,
    /// The peer gave up the stream: the application code of its RESET_STREAM (RFC 9000,
    /// Section 3.2). Said once; afterwards the stream is closed.
    Reset(u64),
    /// The stream was read to its end or stopped, was never open, or only sends.
    ClosedStream,
    /// Memory for the stream could not be had.
    OutOfMemory,
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Blocked => f.write_str("nothing to read yet; wait for Readable"),
            Self::Reset(code) => write!(f, "the peer reset the stream with code {code:#x}"),
            Self::ClosedStream => f.write_str("the stream is not open for reading"),
            Self::OutOfMemory => f.write_str("out of memory for a stream"),
        }
    }
}

impl core::error::Error for ReadError {}

/// What was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadOutcome {
    /// The number of bytes.
    pub len: usize,
    /// They are the last ones: the stream has ended and is closed for reading.
    pub fin: bool,
}

/// Received data in its place, readable without a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peek<'a> {
    /// The next bytes.
    pub first: &'a [u8],
    /// The bytes behind `first`, which may lie elsewhere. Of much data there is more behind it.
    pub second: &'a [u8],
    /// The stream ends behind them.
    pub fin: bool,
}
