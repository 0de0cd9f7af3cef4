//! A checked cursor over received bytes.

use crate::DecodeError;

/// Reads values from the front of a byte slice; a failed read consumes nothing.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
    len: usize,
}

impl<'a> Reader<'a> {
    /// Starts at the first byte of `bytes`.
    #[inline]
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes, len: bytes.len() }
    }

    /// The number of bytes not read yet.
    #[inline]
    #[must_use]
    pub const fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// The number of bytes read so far.
    #[inline]
    #[must_use]
    pub const fn position(&self) -> usize {
        self.len.saturating_sub(self.rest.len())
    }

    /// Whether everything has been read.
    #[inline]
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The bytes not read yet, without consuming them.
    #[inline]
    #[must_use]
    pub const fn peek(&self) -> &'a [u8] {
        self.rest
    }

    /// Consumes and returns everything that is left.
    #[inline]
    pub fn rest(&mut self) -> &'a [u8] {
        core::mem::take(&mut self.rest)
    }

    /// Consumes the next `N` bytes.
    #[inline]
    pub fn array<const N: usize>(&mut self) -> Result<&'a [u8; N], DecodeError> {
        let (head, tail) = self.rest.split_first_chunk::<N>().ok_or(DecodeError::Truncated)?;
        self.rest = tail;
        Ok(head)
    }

    /// Consumes the next `count` bytes.
    #[inline]
    pub fn bytes(&mut self, count: usize) -> Result<&'a [u8], DecodeError> {
        let (head, tail) = self.rest.split_at_checked(count).ok_or(DecodeError::Truncated)?;
        self.rest = tail;
        Ok(head)
    }

    /// Consumes a variable-length integer and as many bytes as it says.
    #[inline]
    pub fn bytes_with_varint_len(&mut self) -> Result<&'a [u8], DecodeError> {
        let before = self.rest;
        let len = self.varint()?;
        // A length that exceeds the address space exceeds the input, too.
        let bytes = usize::try_from(len).map_err(|_| DecodeError::Truncated);
        bytes.and_then(|len| self.bytes(len)).inspect_err(|_| self.rest = before)
    }

    /// Reads one byte.
    #[inline]
    pub fn u8(&mut self) -> Result<u8, DecodeError> {
        let (&head, tail) = self.rest.split_first().ok_or(DecodeError::Truncated)?;
        self.rest = tail;
        Ok(head)
    }

    /// Reads two bytes in network byte order.
    #[inline]
    pub fn u16(&mut self) -> Result<u16, DecodeError> {
        self.array().map(|bytes| u16::from_be_bytes(*bytes))
    }

    /// Reads four bytes in network byte order.
    #[inline]
    pub fn u32(&mut self) -> Result<u32, DecodeError> {
        self.array().map(|bytes| u32::from_be_bytes(*bytes))
    }

    /// Reads eight bytes in network byte order.
    #[inline]
    pub fn u64(&mut self) -> Result<u64, DecodeError> {
        self.array().map(|bytes| u64::from_be_bytes(*bytes))
    }

    /// Reads a variable-length integer (RFC 9000, Section 16), in any of its encodings.
    #[inline]
    pub fn varint(&mut self) -> Result<u64, DecodeError> {
        let (&first, tail) = self.rest.split_first().ok_or(DecodeError::Truncated)?;
        // The two most significant bits are the base 2 logarithm of the length.
        match first >> 6 {
            0 => {
                self.rest = tail;
                Ok(u64::from(first))
            }
            1 => Ok(u64::from(self.u16()? & 0x3fff)),
            2 => Ok(u64::from(self.u32()? & 0x3fff_ffff)),
            _ => Ok(self.u64()? & crate::varint::MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_read_in_network_order_and_positions_add_up() {
        let bytes: [u8; 16] = core::array::from_fn(|i| i as u8);
        let mut reader = Reader::new(&bytes);
        assert_eq!(reader.u8(), Ok(0));
        assert_eq!(reader.u16(), Ok(0x0102));
        assert_eq!(reader.u32(), Ok(0x0304_0506));
        assert_eq!(reader.u64(), Ok(0x0708_090a_0b0c_0d0e));
        assert_eq!((reader.position(), reader.remaining()), (15, 1));
        assert_eq!(reader.u16(), Err(DecodeError::Truncated));
        assert_eq!(reader.peek(), &[15]);
        assert_eq!(reader.rest(), &[15]);
        assert!(reader.is_empty());
        assert_eq!(reader.position(), 16);
    }

    #[test]
    fn a_length_beyond_the_input_consumes_nothing() {
        let mut reader = Reader::new(&[3, 1, 2]);
        assert_eq!(reader.bytes_with_varint_len(), Err(DecodeError::Truncated));
        assert_eq!(reader.position(), 0);
        assert_eq!(reader.bytes(4), Err(DecodeError::Truncated));
        assert_eq!(reader.bytes(3), Ok(&[3, 1, 2][..]));
    }
}
