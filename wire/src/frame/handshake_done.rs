//! HANDSHAKE_DONE (RFC 9000, Section 19.20).

use crate::{DecodeError, Frame, FrameEncode, Full, Reader, Writer};

/// The server tells that the handshake is confirmed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct HandshakeDone;

impl HandshakeDone {
    /// The frame type.
    pub const TYPE: u64 = 0x1e;

    /// Reads what follows the frame type: nothing.
    #[inline]
    pub fn decode(_type: u64, _reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self)
    }
}

impl FrameEncode for HandshakeDone {
    #[inline]
    fn encode(&self, writer: &mut Writer<'_>) -> Result<(), Full> {
        writer.varint(Self::TYPE)
    }

    #[inline]
    fn encoded_len(&self) -> usize {
        1
    }

    fn to_frame(&self) -> Frame<'_> {
        Frame::HandshakeDone
    }
}
