//! RETIRE_CONNECTION_ID (RFC 9000, Section 19.16).

use crate::{DecodeError, Frame, FrameEncode, Full, Reader, Writer, varint};

/// The sender will not use a connection ID any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RetireConnectionId {
    /// The sequence number of the connection ID.
    pub sequence_number: u64,
}

impl RetireConnectionId {
    /// The frame type.
    pub const TYPE: u64 = 0x19;

    /// Reads what follows the frame type.
    ///
    /// # Errors
    /// Truncation.
    #[inline]
    pub fn decode(_type: u64, reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self { sequence_number: reader.varint()? })
    }
}

impl FrameEncode for RetireConnectionId {
    fn encode(&self, writer: &mut Writer<'_>) -> Result<(), Full> {
        writer.all_or_nothing(|writer| {
            writer.varint(Self::TYPE)?;
            writer.varint(self.sequence_number)?;
            Ok(())
        })
    }

    fn encoded_len(&self) -> usize {
        varint::total_len([Self::TYPE, self.sequence_number])
    }

    fn to_frame(&self) -> Frame<'_> {
        Frame::RetireConnectionId(*self)
    }
}
