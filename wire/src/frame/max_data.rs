//! MAX_DATA (RFC 9000, Section 19.9).

use crate::{DecodeError, Frame, FrameEncode, Full, Reader, Writer, varint};

/// Raises the flow control limit of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MaxData {
    /// The most bytes that can be sent on all streams together.
    pub maximum: u64,
}

impl MaxData {
    /// The frame type.
    pub const TYPE: u64 = 0x10;

    /// Reads what follows the frame type.
    ///
    /// # Errors
    /// Truncation.
    #[inline]
    pub fn decode(_type: u64, reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self { maximum: reader.varint()? })
    }
}

impl FrameEncode for MaxData {
    fn encode(&self, writer: &mut Writer<'_>) -> Result<(), Full> {
        writer.all_or_nothing(|writer| {
            writer.varint(Self::TYPE)?;
            writer.varint(self.maximum)?;
            Ok(())
        })
    }

    fn encoded_len(&self) -> usize {
        varint::total_len([Self::TYPE, self.maximum])
    }

    fn to_frame(&self) -> Frame<'_> {
        Frame::MaxData(*self)
    }
}
