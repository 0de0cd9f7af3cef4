//! Connection IDs (RFC 9000, Section 5.1).

use core::{fmt, hash};

use crate::{DecodeError, Reader};

/// A connection ID of QUIC version 1 or 2: 0 to 20 bytes, stored inline.
// Unused bytes are always zero, so that the derived comparisons see only the identifier.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConnectionId {
    len: u8,
    bytes: [u8; Self::MAX_LEN],
}

impl ConnectionId {
    /// The longest connection ID in bytes (RFC 9000, Section 17.2).
    pub const MAX_LEN: usize = 20;

    /// The zero-length connection ID.
    pub const EMPTY: Self = Self { len: 0, bytes: [0; Self::MAX_LEN] };

    /// Copies `bytes`; `None` when there are more than [`MAX_LEN`](Self::MAX_LEN).
    #[inline]
    #[must_use]
    pub fn new(bytes: &[u8]) -> Option<Self> {
        let mut id = Self::EMPTY;
        id.bytes.get_mut(..bytes.len())?.copy_from_slice(bytes);
        id.len = u8::try_from(bytes.len()).ok()?;
        Some(id)
    }

    /// Reads a one-byte length and the connection ID it announces.
    ///
    /// # Errors
    /// A length above 20 (RFC 9000, Section 17.2), or truncation.
    #[inline]
    pub fn decode_with_len(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let len = usize::from(reader.u8()?);
        if len > Self::MAX_LEN {
            return Err(DecodeError::InvalidValue("connection ID is longer than 20 bytes"));
        }
        Self::new(reader.bytes(len)?).ok_or(DecodeError::Truncated)
    }

    /// The bytes of the identifier.
    #[inline]
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        self.bytes.get(..self.len()).unwrap_or_default()
    }

    /// The length in bytes, 0 to 20.
    #[inline]
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether this is the zero-length connection ID.
    #[inline]
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl Default for ConnectionId {
    fn default() -> Self {
        Self::EMPTY
    }
}

impl hash::Hash for ConnectionId {
    /// Feeds only the bytes in use: routing tables hash one identifier per datagram.
    #[inline]
    fn hash<H: hash::Hasher>(&self, state: &mut H) {
        state.write_u8(self.len);
        state.write(self.as_slice());
    }
}

impl fmt::Display for ConnectionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_slice().iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for ConnectionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ConnectionId({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;

    #[test]
    fn holds_0_to_20_bytes() {
        let bytes = [7; 21];
        for len in 0..=20 {
            let id = ConnectionId::new(&bytes[..len]).unwrap();
            assert_eq!(id.as_slice(), &bytes[..len]);
            assert_eq!(id.len(), len);
            assert_eq!(id.is_empty(), len == 0);
        }
        assert_eq!(ConnectionId::new(&bytes), None);
    }

    #[test]
    fn a_trailing_zero_makes_a_different_identifier() {
        let short = ConnectionId::new(&[1]).unwrap();
        let long = ConnectionId::new(&[1, 0]).unwrap();
        assert_ne!(short, long);
        assert!(short < long);
        assert_eq!(ConnectionId::default(), ConnectionId::EMPTY);
    }

    #[test]
    fn prints_as_hex() {
        let id = ConnectionId::new(&[0x0a, 0xff]).unwrap();
        assert_eq!(format!("{id:?} {id}"), "ConnectionId(0aff) 0aff");
    }

    /// RFC 9000, Section 17.2.
    #[test]
    fn an_announced_length_above_20_is_refused() {
        let mut bytes = [1; 22];
        bytes[0] = 21;
        assert!(matches!(
            ConnectionId::decode_with_len(&mut Reader::new(&bytes)),
            Err(DecodeError::InvalidValue(_))
        ));
        bytes[0] = 20;
        let id = ConnectionId::decode_with_len(&mut Reader::new(&bytes)).unwrap();
        assert_eq!(id.len(), 20);
        assert_eq!(
            ConnectionId::decode_with_len(&mut Reader::new(&bytes[..20])),
            Err(DecodeError::Truncated)
        );
    }
}
