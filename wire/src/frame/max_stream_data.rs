//! MAX_STREAM_DATA (RFC 9000, Section 19.10).

use crate::{DecodeError, Frame, FrameEncode, Full, Reader, StreamId, Writer, varint};

/// Raises the flow control limit of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MaxStreamData {
    /// The stream.
    pub id: StreamId,
    /// The most bytes that can be sent on the stream.
    pub maximum: u64,
}

impl MaxStreamData {
    /// The frame type.
    pub const TYPE: u64 = 0x11;

    /// Reads what follows the frame type.
    ///
    /// # Errors
    /// Truncation.
    #[inline]
    pub fn decode(_type: u64, reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self { id: StreamId::decode(reader)?, maximum: reader.varint()? })
    }
}

impl FrameEncode for MaxStreamData {
    fn encode(&self, writer: &mut Writer<'_>) -> Result<(), Full> {
        writer.all_or_nothing(|writer| {
            writer.varint(Self::TYPE)?;
            writer.varint(self.id.as_u64())?;
            writer.varint(self.maximum)?;
            Ok(())
        })
    }

    fn encoded_len(&self) -> usize {
        varint::total_len([Self::TYPE, self.id.as_u64(), self.maximum])
    }

    fn to_frame(&self) -> Frame<'_> {
        Frame::MaxStreamData(*self)
    }
}
