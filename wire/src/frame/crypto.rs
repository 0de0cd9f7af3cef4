//! CRYPTO (RFC 9000, Section 19.6).

use core::fmt;

use super::{ByteCount, check_end};
use crate::{DecodeError, Frame, FrameEncode, Full, Reader, Writer, varint};

/// Bytes of the TLS handshake.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Crypto<'a> {
    /// The position of `data` in the CRYPTO stream of its encryption level, in bytes.
    pub offset: u64,
    /// The bytes.
    pub data: &'a [u8],
}

impl<'a> Crypto<'a> {
    /// The frame type.
    pub const TYPE: u64 = 0x06;

    /// Reads what follows the frame type.
    ///
    /// # Errors
    /// Data beyond offset 2^62 - 1, or truncation.
    #[inline]
    pub fn decode(_type: u64, reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let offset = reader.varint()?;
        let data = reader.bytes_with_varint_len()?;
        // RFC 9000, Section 19.6: FRAME_ENCODING_ERROR is one of the two codes allowed here.
        check_end(offset, data, "CRYPTO data ends beyond 2^62-1")?;
        Ok(Self { offset, data })
    }

    /// The length of the frame without its data.
    #[inline]
    #[must_use]
    pub const fn header_len(offset: u64, data_len: usize) -> usize {
        varint::total_len([Self::TYPE, offset, data_len as u64])
    }
}

impl FrameEncode for Crypto<'_> {
    fn encode(&self, writer: &mut Writer<'_>) -> Result<(), Full> {
        writer.all_or_nothing(|writer| {
            writer.varint(Self::TYPE)?;
            writer.varint(self.offset)?;
            writer.bytes_with_varint_len(self.data)
        })
    }

    fn encoded_len(&self) -> usize {
        Self::header_len(self.offset, self.data.len()).saturating_add(self.data.len())
    }

    fn to_frame(&self) -> Frame<'_> {
        Frame::Crypto(*self)
    }
}

impl fmt::Debug for Crypto<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Crypto")
            .field("offset", &self.offset)
            .field("data", &ByteCount(self.data.len()))
            .finish()
    }
}
