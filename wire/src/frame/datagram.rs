//! DATAGRAM (RFC 9221, Section 4).

use core::fmt;

use super::ByteCount;
use crate::{DecodeError, Frame, FrameEncode, Full, Reader, Writer, varint};

/// An unreliable message.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Datagram<'a> {
    /// The message, which can be empty.
    pub data: &'a [u8],
    /// Whether the frame states its length; without, it has to be the last one of the packet.
    pub has_length: bool,
}

impl<'a> Datagram<'a> {
    /// The frame type of a datagram that extends to the end of the packet.
    pub const TYPE: u64 = 0x30;
    /// The frame type of a datagram that states its length.
    pub const TYPE_WITH_LENGTH: u64 = 0x31;

    /// Reads what follows the frame type.
    ///
    /// # Errors
    /// Truncation.
    #[inline]
    pub fn decode(frame_type: u64, reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let has_length = frame_type == Self::TYPE_WITH_LENGTH;
        let data = if has_length { reader.bytes_with_varint_len()? } else { reader.rest() };
        Ok(Self { data, has_length })
    }

    #[inline]
    pub(super) const fn frame_type(&self) -> u64 {
        if self.has_length { Self::TYPE_WITH_LENGTH } else { Self::TYPE }
    }
}

impl FrameEncode for Datagram<'_> {
    fn encode(&self, writer: &mut Writer<'_>) -> Result<(), Full> {
        writer.all_or_nothing(|writer| {
            writer.varint(self.frame_type())?;
            if self.has_length {
                writer.bytes_with_varint_len(self.data)
            } else {
                writer.bytes(self.data)
            }
        })
    }

    fn encoded_len(&self) -> usize {
        let len = self.data.len();
        let head = match self.has_length {
            true => varint::total_len([Self::TYPE_WITH_LENGTH, len as u64]),
            false => varint::len(Self::TYPE),
        };
        head.saturating_add(len)
    }

    fn to_frame(&self) -> Frame<'_> {
        Frame::Datagram(*self)
    }
}

impl fmt::Debug for Datagram<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Datagram")
            .field("data", &ByteCount(self.data.len()))
            .field("has_length", &self.has_length)
            .finish()
    }
}
