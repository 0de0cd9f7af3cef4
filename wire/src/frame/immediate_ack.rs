//! IMMEDIATE_ACK (draft-ietf-quic-ack-frequency, Section 5).

use crate::{DecodeError, Frame, FrameEncode, Full, Reader, Writer};

/// Asks for an acknowledgment without delay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ImmediateAck;

impl ImmediateAck {
    /// The frame type.
    pub const TYPE: u64 = 0x1f;

    /// Reads what follows the frame type: nothing.
    #[inline]
    pub fn decode(_type: u64, _reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self)
    }
}

impl FrameEncode for ImmediateAck {
    #[inline]
    fn encode(&self, writer: &mut Writer<'_>) -> Result<(), Full> {
        writer.varint(Self::TYPE)
    }

    #[inline]
    fn encoded_len(&self) -> usize {
        1
    }

    fn to_frame(&self) -> Frame<'_> {
        Frame::ImmediateAck
    }
}
