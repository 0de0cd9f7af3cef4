//! Packet headers (RFC 8999, Section 5; RFC 9000, Section 17).
//!
//! [`Header::parse`] finds the packets of a datagram one by one and tells where their parts
//! are by offsets, so that the datagram stays free to be decrypted in place.

mod encode;
mod invariant;
mod kind;
mod protection;
mod retry;
#[cfg(test)]
mod tests;
mod version_negotiation;

use core::ops::Range;

pub use encode::{LongHeader, LongHeaderMarks, ShortHeader};
pub use invariant::InvariantHeader;
pub use kind::PacketKind;
pub use protection::{
    SAMPLE_LEN, fixed_bit, header_sample, key_phase, protect, reserved_bits_are_zero, spin,
    unprotect,
};
pub use retry::{RETRY_TAG_LEN, RetryHeader, RetryPacket};
pub use version_negotiation::{VersionNegotiation, Versions, encode_version_negotiation};

use crate::{ConnectionId, DecodeError, Reader, Version};

/// Set in the first byte of a long header.
const FORM_LONG: u8 = 0x80;
/// The fixed bit, also called the QUIC bit (RFC 9000, Section 17.2; RFC 9287).
const FIXED: u8 = 0x40;
/// Set in the first byte of a short header when the spin bit is.
const SPIN: u8 = 0x20;
/// Set in the first byte of a short header when the key phase is 1.
const KEY_PHASE: u8 = 0x04;
/// The length of the packet number less one, in the first byte.
const PN_LEN: u8 = 0x03;

/// The unprotected part of a packet header, with offsets into the parsed slice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// What the packet is.
    pub kind: PacketKind,
    /// The first byte as received: its low bits are still protected where the kind has
    /// header protection.
    pub first_byte: u8,
    /// The version; [`Version::NEGOTIATION`] for a short header, which has none.
    pub version: Version,
    /// The Destination Connection ID. For an unknown version with one of more than 20 bytes
    /// it is empty: see [`InvariantHeader`].
    pub dcid: ConnectionId,
    /// The Source Connection ID, likewise; empty for a short header.
    pub scid: ConnectionId,
    /// The token of an Initial; empty for other kinds (of Retry, too: see [`RetryPacket`]).
    pub token: Range<usize>,
    /// Where the protected packet number starts; for Retry, Version Negotiation and unknown
    /// versions, which have no packet number, where their own content starts.
    pub pn_offset: usize,
    /// Where the packet ends and the next coalesced one begins (RFC 9000, Section 12.2).
    pub end: usize,
}

impl Header {
    /// Parses the header of the first packet in `datagram_rest`. Connection IDs of this
    /// endpoint are `local_cid_len` bytes long: a short header does not tell.
    ///
    /// The fixed bit can have either value (RFC 9287): see [`fixed_bit`](Self::fixed_bit).
    ///
    /// # Errors
    /// Truncation; a Length beyond the datagram; a connection ID of more than 20 bytes in a
    /// version that does not allow that, or in a Version Negotiation packet, which then does
    /// not answer any packet of this endpoint. All mean that the rest of the datagram cannot
    /// be used.
    #[inline]
    pub fn parse(datagram_rest: &[u8], local_cid_len: usize) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(datagram_rest);
        let first_byte = reader.u8()?;
        if first_byte & FORM_LONG != 0 {
            return Self::parse_long(first_byte, reader, datagram_rest.len());
        }
        let dcid = ConnectionId::new(reader.bytes(local_cid_len)?)
            .ok_or(DecodeError::InvalidValue("local connection IDs have at most 20 bytes"))?;
        Ok(Self {
            kind: PacketKind::OneRtt,
            first_byte,
            version: Version::NEGOTIATION,
            dcid,
            scid: ConnectionId::EMPTY,
            token: 0..0,
            pn_offset: reader.position(),
            end: datagram_rest.len(),
        })
    }

    fn parse_long(
        first_byte: u8,
        mut reader: Reader<'_>,
        datagram_len: usize,
    ) -> Result<Self, DecodeError> {
        let version = Version(reader.u32()?);
        let kind = PacketKind::from_long_type(version, first_byte);
        let dcid = connection_id(kind, &mut reader)?;
        let scid = connection_id(kind, &mut reader)?;
        let mut token = 0..0;
        let mut end = datagram_len;
        if kind == PacketKind::Initial {
            let len = reader.bytes_with_varint_len()?.len();
            token = reader.position().saturating_sub(len)..reader.position();
        }
        if kind.carries_frames() {
            let len = reader.varint()?;
            let len = usize::try_from(len).map_err(|_| DecodeError::Truncated)?;
            if len > reader.remaining() {
                return Err(DecodeError::Truncated);
            }
            end = reader.position().saturating_add(len);
        }
        let pn_offset = reader.position();
        Ok(Self { kind, first_byte, version, dcid, scid, token, pn_offset, end })
    }

    /// Whether the packet has a long header.
    #[inline]
    #[must_use]
    pub const fn is_long(&self) -> bool {
        self.first_byte & FORM_LONG != 0
    }

    /// Whether the fixed bit is set. A packet without it is to be discarded unless this
    /// endpoint sent grease_quic_bit (RFC 9000, Section 17.2; RFC 9287, Section 3). It means
    /// nothing in Version Negotiation packets and unknown versions.
    #[inline]
    #[must_use]
    pub const fn fixed_bit(&self) -> bool {
        fixed_bit(self.first_byte)
    }
}

/// RFC 9000, Section 17.2: a packet of version 1 with a longer connection ID is dropped; other
/// versions can have longer ones.
fn connection_id(kind: PacketKind, reader: &mut Reader<'_>) -> Result<ConnectionId, DecodeError> {
    if kind != PacketKind::UnknownVersion {
        return ConnectionId::decode_with_len(reader);
    }
    let len = usize::from(reader.u8()?);
    Ok(ConnectionId::new(reader.bytes(len)?).unwrap_or_default())
}
