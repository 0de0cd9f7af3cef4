//! Version Negotiation packets (RFC 8999, Section 6; RFC 9000, Section 17.2.1).

use super::{FIXED, FORM_LONG, InvariantHeader, encode::write_connection_ids};
use crate::{DecodeError, Full, Version, Writer};

/// A Version Negotiation packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VersionNegotiation<'a> {
    /// The Destination Connection ID: the Source Connection ID of the packet it answers.
    pub dcid: &'a [u8],
    /// The Source Connection ID: the Destination Connection ID of the packet it answers.
    pub scid: &'a [u8],
    versions: &'a [[u8; 4]],
}

impl<'a> VersionNegotiation<'a> {
    /// Parses the packet, which takes up its whole datagram.
    ///
    /// # Errors
    /// Another kind of packet, an empty or incomplete list of versions, or truncation. The
    /// packet is to be ignored then.
    pub fn parse(packet: &'a [u8]) -> Result<Self, DecodeError> {
        let InvariantHeader { version, dcid, scid, rest, .. } = InvariantHeader::parse(packet)?;
        if version != Version::NEGOTIATION {
            return Err(DecodeError::InvalidValue("not a Version Negotiation packet"));
        }
        // RFC 8999, Section 6: no version, or part of one, makes the packet void.
        match rest.as_chunks::<4>() {
            ([], _) => Err(DecodeError::InvalidValue("Version Negotiation without versions")),
            (versions, []) => Ok(Self { dcid, scid, versions }),
            _ => Err(DecodeError::Truncated),
        }
    }

    /// The versions the server supports, in its order.
    #[must_use]
    pub fn versions(&self) -> Versions<'a> {
        Versions { versions: self.versions.iter() }
    }
}

/// Iterates over the versions of a Version Negotiation packet.
#[derive(Clone, Debug)]
pub struct Versions<'a> {
    versions: core::slice::Iter<'a, [u8; 4]>,
}

impl Iterator for Versions<'_> {
    type Item = Version;

    fn next(&mut self) -> Option<Version> {
        self.versions.next().map(|bytes| Version(u32::from_be_bytes(*bytes)))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.versions.size_hint()
    }
}

impl ExactSizeIterator for Versions<'_> {}

/// Writes a Version Negotiation packet.
///
/// `dcid` and `scid` (at most 255 bytes) are those of the packet to answer, exchanged; the low
/// six bits of `unused`, which ought to be random, go into the first byte.
///
/// # Errors
/// [`Full`] when it does not fit; nothing is written.
pub fn encode_version_negotiation(
    writer: &mut Writer<'_>,
    unused: u8,
    dcid: &[u8],
    scid: &[u8],
    versions: impl IntoIterator<Item = Version>,
) -> Result<(), Full> {
    writer.all_or_nothing(|writer| {
        // RFC 9000, Section 17.2.1: setting 0x40 keeps the packet apart from other protocols.
        writer.u8(FORM_LONG | FIXED | unused & 0x3f)?;
        writer.u32(Version::NEGOTIATION.0)?;
        write_connection_ids(writer, dcid, scid)?;
        versions.into_iter().try_for_each(|version| writer.u32(version.0))
    })
}
