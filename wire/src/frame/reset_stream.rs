//! RESET_STREAM (RFC 9000, Section 19.4).

use crate::{DecodeError, Frame, FrameEncode, Full, Reader, StreamId, Writer, varint};

/// The sender gives up sending on a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ResetStream {
    /// The stream.
    pub id: StreamId,
    /// The reason, as defined by the application protocol.
    pub error_code: u64,
    /// The final size of the stream in bytes.
    pub final_size: u64,
}

impl ResetStream {
    /// The frame type.
    pub const TYPE: u64 = 0x04;

    /// Reads what follows the frame type.
    ///
    /// # Errors
    /// Truncation.
    #[inline]
    pub fn decode(_type: u64, reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            id: StreamId::decode(reader)?,
            error_code: reader.varint()?,
            final_size: reader.varint()?,
        })
    }
}

impl FrameEncode for ResetStream {
    fn encode(&self, writer: &mut Writer<'_>) -> Result<(), Full> {
        writer.all_or_nothing(|writer| {
            writer.varint(Self::TYPE)?;
            writer.varint(self.id.as_u64())?;
            writer.varint(self.error_code)?;
            writer.varint(self.final_size)?;
            Ok(())
        })
    }

    fn encoded_len(&self) -> usize {
        varint::total_len([Self::TYPE, self.id.as_u64(), self.error_code, self.final_size])
    }

    fn to_frame(&self) -> Frame<'_> {
        Frame::ResetStream(*self)
    }
}
