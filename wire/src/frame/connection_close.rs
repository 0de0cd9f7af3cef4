//! CONNECTION_CLOSE (RFC 9000, Section 19.19).

use core::fmt;

use crate::{DecodeError, Frame, FrameEncode, Full, Reader, TransportErrorCode, Writer, varint};

/// The connection is over.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub enum ConnectionClose<'a> {
    /// Closed by the transport, type 0x1c.
    Transport {
        /// Why.
        error_code: TransportErrorCode,
        /// The type of the frame that caused the error; 0 when unknown.
        frame_type: u64,
        /// A human-readable explanation, which ought to be UTF-8; can be empty.
        reason: &'a [u8],
    },
    /// Closed by the application, type 0x1d.
    Application {
        /// Why, as defined by the application protocol.
        error_code: u64,
        /// A human-readable explanation, which ought to be UTF-8; can be empty.
        reason: &'a [u8],
    },
}

impl<'a> ConnectionClose<'a> {
    /// The frame type for errors of the transport.
    pub const TYPE_TRANSPORT: u64 = 0x1c;
    /// The frame type for errors of the application.
    pub const TYPE_APPLICATION: u64 = 0x1d;

    /// Reads what follows the frame type.
    ///
    /// # Errors
    /// Truncation.
    pub fn decode(frame_type: u64, reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let error_code = reader.varint()?;
        if frame_type == Self::TYPE_APPLICATION {
            return Ok(Self::Application { error_code, reason: reader.bytes_with_varint_len()? });
        }
        Ok(Self::Transport {
            error_code: TransportErrorCode(error_code),
            frame_type: reader.varint()?,
            reason: reader.bytes_with_varint_len()?,
        })
    }

    /// The explanation.
    #[inline]
    #[must_use]
    pub const fn reason(&self) -> &'a [u8] {
        match *self {
            Self::Transport { reason, .. } | Self::Application { reason, .. } => reason,
        }
    }

    /// The same frame with the explanation cut, between UTF-8 characters, so that the frame
    /// takes at most `max_len` bytes or has no explanation (RFC 9000, Section 19.19: it can be
    /// truncated to the size of the packet).
    #[must_use]
    pub fn shortened_to(self, max_len: usize) -> Self {
        let excess = self.encoded_len().saturating_sub(max_len);
        let bytes = self.reason();
        let mut keep = bytes.len().saturating_sub(excess);
        // A byte with the top bits 10 continues a character: cut before its first byte.
        while excess > 0 && bytes.get(keep).is_some_and(|byte| byte & 0xc0 == 0x80) && keep > 0 {
            keep = keep.saturating_sub(1);
        }
        let kept = bytes.get(..keep).unwrap_or_default();
        match self {
            Self::Transport { error_code, frame_type, .. } => {
                Self::Transport { error_code, frame_type, reason: kept }
            }
            Self::Application { error_code, .. } => Self::Application { error_code, reason: kept },
        }
    }

    #[inline]
    pub(super) const fn frame_type(&self) -> u64 {
        match self {
            Self::Transport { .. } => Self::TYPE_TRANSPORT,
            Self::Application { .. } => Self::TYPE_APPLICATION,
        }
    }
}

impl FrameEncode for ConnectionClose<'_> {
    fn encode(&self, writer: &mut Writer<'_>) -> Result<(), Full> {
        writer.all_or_nothing(|writer| {
            writer.varint(ConnectionClose::frame_type(self))?;
            match *self {
                Self::Transport { error_code, frame_type, .. } => {
                    writer.varint(error_code.0)?;
                    writer.varint(frame_type)?;
                }
                Self::Application { error_code, .. } => writer.varint(error_code)?,
            }
            writer.bytes_with_varint_len(self.reason())
        })
    }

    fn encoded_len(&self) -> usize {
        let reason = self.reason().len();
        let head = match *self {
            Self::Transport { error_code, frame_type, .. } => {
                varint::total_len([Self::TYPE_TRANSPORT, error_code.0, frame_type, reason as u64])
            }
            Self::Application { error_code, .. } => {
                varint::total_len([Self::TYPE_APPLICATION, error_code, reason as u64])
            }
        };
        head.saturating_add(reason)
    }

    #[inline]
    fn is_ack_eliciting(&self) -> bool {
        false
    }

    fn to_frame(&self) -> Frame<'_> {
        Frame::ConnectionClose(*self)
    }
}

impl fmt::Debug for ConnectionClose<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("ConnectionClose");
        match self {
            Self::Transport { error_code, frame_type, .. } => {
                out.field("error_code", error_code).field("frame_type", frame_type)
            }
            Self::Application { error_code, .. } => out.field("application_error_code", error_code),
        };
        match core::str::from_utf8(self.reason()) {
            Ok(reason) => out.field("reason", &reason),
            Err(_) => out.field("reason", &self.reason()),
        };
        out.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_reason_is_cut_between_characters() {
        let close = ConnectionClose::Application { error_code: 1, reason: "aé€z".as_bytes() };
        assert_eq!(close.encoded_len(), 3 + 7);
        assert_eq!(close.shortened_to(10), close);
        assert_eq!(close.shortened_to(9).reason(), "aé€".as_bytes());
        assert_eq!(close.shortened_to(8).reason(), "aé".as_bytes());
        assert_eq!(close.shortened_to(6).reason(), "aé".as_bytes());
        assert_eq!(close.shortened_to(5).reason(), b"a");
        assert_eq!(close.shortened_to(0).reason(), b"");
        let continuation = ConnectionClose::Application { error_code: 1, reason: &[0x80; 9] };
        assert_eq!(continuation.shortened_to(6).reason(), b"");
    }
}
