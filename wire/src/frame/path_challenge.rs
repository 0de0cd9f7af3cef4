//! PATH_CHALLENGE (RFC 9000, Section 19.17).

use crate::{DecodeError, Frame, FrameEncode, Full, Reader, Writer};

/// Asks for an echo to validate a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PathChallenge {
    /// Unpredictable bytes to echo.
    pub data: [u8; 8],
}

impl PathChallenge {
    /// The frame type.
    pub const TYPE: u64 = 0x1a;

    /// Reads what follows the frame type.
    ///
    /// # Errors
    /// Truncation.
    #[inline]
    pub fn decode(_type: u64, reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self { data: *reader.array()? })
    }
}

impl FrameEncode for PathChallenge {
    fn encode(&self, writer: &mut Writer<'_>) -> Result<(), Full> {
        writer.all_or_nothing(|writer| {
            writer.varint(Self::TYPE)?;
            writer.bytes(&self.data)?;
            Ok(())
        })
    }

    fn encoded_len(&self) -> usize {
        1 + 8
    }

    fn to_frame(&self) -> Frame<'_> {
        Frame::PathChallenge(*self)
    }
}
