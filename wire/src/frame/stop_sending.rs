//! STOP_SENDING (RFC 9000, Section 19.5).

use crate::{DecodeError, Frame, FrameEncode, Full, Reader, StreamId, Writer, varint};

/// The receiver does not want the rest of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StopSending {
    /// The stream.
    pub id: StreamId,
    /// The reason, as defined by the application protocol.
    pub error_code: u64,
}

impl StopSending {
    /// The frame type.
    pub const TYPE: u64 = 0x05;

    /// Reads what follows the frame type.
    ///
    /// # Errors
    /// Truncation.
    #[inline]
    pub fn decode(_type: u64, reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self { id: StreamId::decode(reader)?, error_code: reader.varint()? })
    }
}

impl FrameEncode for StopSending {
    fn encode(&self, writer: &mut Writer<'_>) -> Result<(), Full> {
        writer.all_or_nothing(|writer| {
            writer.varint(Self::TYPE)?;
            writer.varint(self.id.as_u64())?;
            writer.varint(self.error_code)?;
            Ok(())
        })
    }

    fn encoded_len(&self) -> usize {
        varint::total_len([Self::TYPE, self.id.as_u64(), self.error_code])
    }

    fn to_frame(&self) -> Frame<'_> {
        Frame::StopSending(*self)
    }
}
