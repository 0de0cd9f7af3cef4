//! STREAM_DATA_BLOCKED (RFC 9000, Section 19.13).

use crate::{DecodeError, Frame, FrameEncode, Full, Reader, StreamId, Writer, varint};

/// The sender has data but no flow control credit of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StreamDataBlocked {
    /// The stream.
    pub id: StreamId,
    /// The limit, in bytes, at which sending stopped.
    pub limit: u64,
}

impl StreamDataBlocked {
    /// The frame type.
    pub const TYPE: u64 = 0x15;

    /// Reads what follows the frame type.
    ///
    /// # Errors
    /// Truncation.
    #[inline]
    pub fn decode(_type: u64, reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self { id: StreamId::decode(reader)?, limit: reader.varint()? })
    }
}

impl FrameEncode for StreamDataBlocked {
    fn encode(&self, writer: &mut Writer<'_>) -> Result<(), Full> {
        writer.all_or_nothing(|writer| {
            writer.varint(Self::TYPE)?;
            writer.varint(self.id.as_u64())?;
            writer.varint(self.limit)?;
            Ok(())
        })
    }

    fn encoded_len(&self) -> usize {
        varint::total_len([Self::TYPE, self.id.as_u64(), self.limit])
    }

    fn to_frame(&self) -> Frame<'_> {
        Frame::StreamDataBlocked(*self)
    }
}
