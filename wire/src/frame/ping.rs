//! PING (RFC 9000, Section 19.2).

use crate::{DecodeError, Frame, FrameEncode, Full, Reader, Writer};

/// Asks for an acknowledgment and nothing else.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Ping;

impl Ping {
    /// The frame type.
    pub const TYPE: u64 = 0x01;

    /// Reads what follows the frame type: nothing.
    #[inline]
    pub fn decode(_type: u64, _reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self)
    }
}

impl FrameEncode for Ping {
    #[inline]
    fn encode(&self, writer: &mut Writer<'_>) -> Result<(), Full> {
        writer.varint(Self::TYPE)
    }

    #[inline]
    fn encoded_len(&self) -> usize {
        1
    }

    fn to_frame(&self) -> Frame<'_> {
        Frame::Ping
    }
}
