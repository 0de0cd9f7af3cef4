//! MAX_STREAMS (RFC 9000, Section 19.11).

use crate::{DecodeError, Dir, Frame, FrameEncode, Full, MAX_STREAMS, Reader, Writer, varint};

/// Raises the number of streams the peer can open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MaxStreams {
    /// The direction of the streams.
    pub dir: Dir,
    /// How many streams the peer can open over the life of the connection, at most 2^60.
    pub maximum: u64,
}

impl MaxStreams {
    /// The frame type for bidirectional streams.
    pub const TYPE_BIDI: u64 = 0x12;
    /// The frame type for unidirectional streams.
    pub const TYPE_UNI: u64 = 0x13;

    /// Reads what follows the frame type.
    ///
    /// # Errors
    /// More than 2^60 streams, or truncation.
    #[inline]
    pub fn decode(frame_type: u64, reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let dir = if frame_type == Self::TYPE_BIDI { Dir::Bidi } else { Dir::Uni };
        let maximum = reader.varint()?;
        // RFC 9000, Section 19.11: a larger number cannot be expressed as a stream ID.
        if maximum > MAX_STREAMS {
            return Err(DecodeError::InvalidValue("MAX_STREAMS exceeds 2^60"));
        }
        Ok(Self { dir, maximum })
    }

    #[inline]
    pub(super) const fn frame_type(self) -> u64 {
        match self.dir {
            Dir::Bidi => Self::TYPE_BIDI,
            Dir::Uni => Self::TYPE_UNI,
        }
    }
}

impl FrameEncode for MaxStreams {
    fn encode(&self, writer: &mut Writer<'_>) -> Result<(), Full> {
        writer.all_or_nothing(|writer| {
            writer.varint(self.frame_type())?;
            writer.varint(self.maximum)
        })
    }

    fn encoded_len(&self) -> usize {
        varint::total_len([self.frame_type(), self.maximum])
    }

    fn to_frame(&self) -> Frame<'_> {
        Frame::MaxStreams(*self)
    }
}
