//! STREAMS_BLOCKED (RFC 9000, Section 19.14).

use crate::{DecodeError, Dir, Frame, FrameEncode, Full, MAX_STREAMS, Reader, Writer, varint};

/// The sender wants to open a stream but has reached the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StreamsBlocked {
    /// The direction of the streams.
    pub dir: Dir,
    /// The limit at which opening stopped, at most 2^60 streams.
    pub limit: u64,
}

impl StreamsBlocked {
    /// The frame type for bidirectional streams.
    pub const TYPE_BIDI: u64 = 0x16;
    /// The frame type for unidirectional streams.
    pub const TYPE_UNI: u64 = 0x17;

    /// Reads what follows the frame type.
    ///
    /// # Errors
    /// More than 2^60 streams, or truncation.
    #[inline]
    pub fn decode(frame_type: u64, reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let dir = if frame_type == Self::TYPE_BIDI { Dir::Bidi } else { Dir::Uni };
        let limit = reader.varint()?;
        // RFC 9000, Section 19.14: a larger number cannot be expressed as a stream ID.
        if limit > MAX_STREAMS {
            return Err(DecodeError::InvalidValue("STREAMS_BLOCKED exceeds 2^60"));
        }
        Ok(Self { dir, limit })
    }

    #[inline]
    pub(super) const fn frame_type(self) -> u64 {
        match self.dir {
            Dir::Bidi => Self::TYPE_BIDI,
            Dir::Uni => Self::TYPE_UNI,
        }
    }
}

impl FrameEncode for StreamsBlocked {
    fn encode(&self, writer: &mut Writer<'_>) -> Result<(), Full> {
        writer.all_or_nothing(|writer| {
            writer.varint(self.frame_type())?;
            writer.varint(self.limit)
        })
    }

    fn encoded_len(&self) -> usize {
        varint::total_len([self.frame_type(), self.limit])
    }

    fn to_frame(&self) -> Frame<'_> {
        Frame::StreamsBlocked(*self)
    }
}
