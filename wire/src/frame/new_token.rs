//! NEW_TOKEN (RFC 9000, Section 19.7).

use core::fmt;

use super::ByteCount;
use crate::{DecodeError, Frame, FrameEncode, Full, Reader, Writer, varint};

/// A token for the Initial packets of a later connection.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct NewToken<'a> {
    /// The opaque token, never empty.
    pub token: &'a [u8],
}

impl<'a> NewToken<'a> {
    /// The frame type.
    pub const TYPE: u64 = 0x07;

    /// Reads what follows the frame type.
    ///
    /// # Errors
    /// An empty token, or truncation.
    #[inline]
    pub fn decode(_type: u64, reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let token = reader.bytes_with_varint_len()?;
        // RFC 9000, Section 19.7: FRAME_ENCODING_ERROR.
        if token.is_empty() {
            return Err(DecodeError::InvalidValue("NEW_TOKEN with an empty token"));
        }
        Ok(Self { token })
    }
}

impl FrameEncode for NewToken<'_> {
    fn encode(&self, writer: &mut Writer<'_>) -> Result<(), Full> {
        writer.all_or_nothing(|writer| {
            writer.varint(Self::TYPE)?;
            writer.bytes_with_varint_len(self.token)
        })
    }

    fn encoded_len(&self) -> usize {
        let len = self.token.len();
        varint::total_len([Self::TYPE, len as u64]).saturating_add(len)
    }

    fn to_frame(&self) -> Frame<'_> {
        Frame::NewToken(*self)
    }
}

impl fmt::Debug for NewToken<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewToken").field("token", &ByteCount(self.token.len())).finish()
    }
}
