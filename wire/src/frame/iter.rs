//! The frames of a packet (RFC 9000, Section 12.4).

use core::fmt;

use super::Frame;
use crate::{DecodeError, Reader, TransportErrorCode, varint};

/// A payload that is not a sequence of well-formed frames: the peer's fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FrameError {
    /// The error to close the connection with.
    pub code: TransportErrorCode,
    /// The type of the offending frame; 0 when there is none.
    pub frame_type: u64,
    /// An explanation for the CONNECTION_CLOSE frame.
    pub reason: &'static str,
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in a frame of type 0x{:x}: {}", self.code, self.frame_type, self.reason)
    }
}

impl core::error::Error for FrameError {}

/// Iterates over the frames of a decrypted payload. It ends after the first error.
#[derive(Clone, Debug)]
pub struct Frames<'a> {
    reader: Reader<'a>,
    failed: bool,
}

impl<'a> Frames<'a> {
    /// Starts at the first byte of `payload`.
    #[inline]
    #[must_use]
    pub const fn new(payload: &'a [u8]) -> Self {
        Self { reader: Reader::new(payload), failed: false }
    }

    /// The number of bytes of the payload consumed so far.
    #[inline]
    #[must_use]
    pub const fn position(&self) -> usize {
        self.reader.position()
    }

    #[inline]
    fn decode(&mut self) -> Result<Frame<'a>, FrameError> {
        let before = self.reader.remaining();
        let frame_type = self.reader.varint().map_err(|error| malformed(0, error))?;
        // RFC 9000, Section 12.4: a frame type is encoded in its shortest form.
        if before.saturating_sub(self.reader.remaining()) != varint::len(frame_type) {
            return Err(FrameError {
                code: TransportErrorCode::PROTOCOL_VIOLATION,
                frame_type,
                reason: "frame type is not encoded in its shortest form",
            });
        }
        match Frame::decode(frame_type, &mut self.reader) {
            Ok(Some(frame)) => Ok(frame),
            // RFC 9000, Section 12.4: an unknown type is a FRAME_ENCODING_ERROR.
            Ok(None) => Err(FrameError {
                code: TransportErrorCode::FRAME_ENCODING_ERROR,
                frame_type,
                reason: "unknown frame type",
            }),
            Err(error) => Err(malformed(frame_type, error)),
        }
    }
}

#[cold]
fn malformed(frame_type: u64, error: DecodeError) -> FrameError {
    let reason = match error {
        DecodeError::Truncated => "frame is truncated",
        DecodeError::InvalidValue(what) => what,
    };
    FrameError { code: TransportErrorCode::FRAME_ENCODING_ERROR, frame_type, reason }
}

impl<'a> Iterator for Frames<'a> {
    type Item = Result<Frame<'a>, FrameError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        if self.reader.is_empty() {
            if self.reader.position() > 0 {
                return None;
            }
            self.failed = true;
            // RFC 9000, Section 12.4: a packet contains at least one frame.
            return Some(Err(FrameError {
                code: TransportErrorCode::PROTOCOL_VIOLATION,
                frame_type: 0,
                reason: "packet without frames",
            }));
        }
        let frame = self.decode();
        self.failed = frame.is_err();
        Some(frame)
    }
}

impl core::iter::FusedIterator for Frames<'_> {}
