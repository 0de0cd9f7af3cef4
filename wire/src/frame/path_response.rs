//! PATH_RESPONSE (RFC 9000, Section 19.18).

use crate::{DecodeError, Frame, FrameEncode, Full, Reader, Writer};

/// Answers a PATH_CHALLENGE.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PathResponse {
    /// The bytes of the challenge.
    pub data: [u8; 8],
}

impl PathResponse {
    /// The frame type.
    pub const TYPE: u64 = 0x1b;

    /// Reads what follows the frame type.
    ///
    /// # Errors
    /// Truncation.
    #[inline]
    pub fn decode(_type: u64, reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self { data: *reader.array()? })
    }
}

impl FrameEncode for PathResponse {
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
        Frame::PathResponse(*self)
    }
}
