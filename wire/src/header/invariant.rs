//! What all versions of QUIC have in common (RFC 8999).

use super::{FORM_LONG, PacketKind};
use crate::{DecodeError, Reader, Version};

/// A long header as every version of QUIC has it (RFC 8999, Section 5.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvariantHeader<'a> {
    /// The first byte; all bits but the most significant one depend on the version.
    pub first_byte: u8,
    /// The version.
    pub version: Version,
    /// The Destination Connection ID, 0 to 255 bytes.
    pub dcid: &'a [u8],
    /// The Source Connection ID, 0 to 255 bytes.
    pub scid: &'a [u8],
    /// What follows; its meaning depends on the version.
    pub rest: &'a [u8],
}

impl<'a> InvariantHeader<'a> {
    /// Parses the long header at the front of `datagram`.
    ///
    /// # Errors
    /// A short header, of which nothing but the form is invariant, or truncation.
    pub fn parse(datagram: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(datagram);
        let first_byte = reader.u8()?;
        if first_byte & FORM_LONG == 0 {
            return Err(DecodeError::InvalidValue("short header where a long one is needed"));
        }
        let version = Version(reader.u32()?);
        let len = usize::from(reader.u8()?);
        let dcid = reader.bytes(len)?;
        let len = usize::from(reader.u8()?);
        let scid = reader.bytes(len)?;
        Ok(Self { first_byte, version, dcid, scid, rest: reader.rest() })
    }

    /// What the packet is, as far as the version is known.
    #[must_use]
    pub const fn kind(&self) -> PacketKind {
        PacketKind::from_long_type(self.version, self.first_byte)
    }
}
