//! DATA_BLOCKED (RFC 9000, Section 19.12).

use crate::{DecodeError, Frame, FrameEncode, Full, Reader, Writer, varint};

/// The sender has data but no flow control credit of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DataBlocked {
    /// The limit, in bytes, at which sending stopped.
    pub limit: u64,
}

impl DataBlocked {
    /// The frame type.
    pub const TYPE: u64 = 0x14;

    /// Reads what follows the frame type.
    ///
    /// # Errors
    /// Truncation.
    #[inline]
    pub fn decode(_type: u64, reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self { limit: reader.varint()? })
    }
}

impl FrameEncode for DataBlocked {
    fn encode(&self, writer: &mut Writer<'_>) -> Result<(), Full> {
        writer.all_or_nothing(|writer| {
            writer.varint(Self::TYPE)?;
            writer.varint(self.limit)?;
            Ok(())
        })
    }

    fn encoded_len(&self) -> usize {
        varint::total_len([Self::TYPE, self.limit])
    }

    fn to_frame(&self) -> Frame<'_> {
        Frame::DataBlocked(*self)
    }
}
