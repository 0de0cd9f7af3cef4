//! Retry packets (RFC 9000, Section 17.2.5).

use super::{FIXED, FORM_LONG, Header, PacketKind, encode::write_connection_ids};
use crate::{ConnectionId, DecodeError, Full, Version, Writer};

/// The length of the Retry Integrity Tag in bytes (RFC 9001, Section 5.8).
pub const RETRY_TAG_LEN: usize = 16;

/// The content of a Retry packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPacket<'a> {
    /// The token to repeat in the next Initial, never empty.
    pub token: &'a [u8],
    /// The Retry Integrity Tag.
    pub tag: &'a [u8; RETRY_TAG_LEN],
    /// The packet up to the tag, which the tag protects.
    pub before_tag: &'a [u8],
}

impl<'a> RetryPacket<'a> {
    /// Splits a received Retry packet, of which `header` is the parsed header.
    ///
    /// # Errors
    /// Another kind of packet, an empty token, or truncation.
    pub fn parse(packet: &'a [u8], header: &Header) -> Result<Self, DecodeError> {
        if header.kind != PacketKind::Retry {
            return Err(DecodeError::InvalidValue("not a Retry packet"));
        }
        let packet = packet.get(..header.end).ok_or(DecodeError::Truncated)?;
        let (before_tag, tag) =
            packet.split_last_chunk::<RETRY_TAG_LEN>().ok_or(DecodeError::Truncated)?;
        let token = before_tag.get(header.pn_offset..).ok_or(DecodeError::Truncated)?;
        // RFC 9000, Section 17.2.5.2: the client discards a Retry with an empty token.
        if token.is_empty() {
            return Err(DecodeError::InvalidValue("Retry with an empty token"));
        }
        Ok(Self { token, tag, before_tag })
    }
}

/// A Retry packet to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryHeader<'a> {
    /// The version of the Initial that is answered, a supported one.
    pub version: Version,
    /// The Source Connection ID of the Initial.
    pub dcid: &'a ConnectionId,
    /// The connection ID the server chose.
    pub scid: &'a ConnectionId,
    /// The token, not empty.
    pub token: &'a [u8],
    /// Arbitrary; the low four bits go into the first byte.
    pub unused: u8,
}

impl RetryHeader<'_> {
    /// Writes the packet up to the Retry Integrity Tag, which the caller computes over what
    /// was written and appends.
    ///
    /// # Errors
    /// [`Full`] when it does not fit or the version is not supported; nothing is written.
    pub fn encode(&self, writer: &mut Writer<'_>) -> Result<(), Full> {
        let long_type = PacketKind::Retry.long_type(self.version).ok_or(Full)?;
        writer.all_or_nothing(|writer| {
            writer.u8(FORM_LONG | FIXED | long_type | self.unused & 0x0f)?;
            writer.u32(self.version.0)?;
            write_connection_ids(writer, self.dcid.as_slice(), self.scid.as_slice())?;
            writer.bytes(self.token)
        })
    }
}
