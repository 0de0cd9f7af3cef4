//! Writing headers of packets with a packet number (RFC 9000, Sections 17.2 and 17.3.1).

use super::{FIXED, FORM_LONG, KEY_PHASE, PacketKind, SPIN};
use crate::{ConnectionId, Full, Version, Writer, packet_number, varint};

/// The header of an Initial, 0-RTT or Handshake packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LongHeader<'a> {
    /// Initial, 0-RTT or Handshake.
    pub kind: PacketKind,
    /// A supported version.
    pub version: Version,
    /// The Destination Connection ID.
    pub dcid: ConnectionId,
    /// The Source Connection ID.
    pub scid: ConnectionId,
    /// The token of an Initial; not written for other kinds.
    pub token: &'a [u8],
}

/// Where the parts of a long header are that need to be known later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "without `finish` the packet has no length"]
pub struct LongHeaderMarks {
    /// Where the two-byte Length field is.
    pub length_offset: usize,
    /// Where the packet number is.
    pub pn_offset: usize,
}

impl LongHeader<'_> {
    /// Writes the header, the Length field being left for [`LongHeaderMarks::finish`], and the
    /// `pn_len` (1 to 4) lowest bytes of packet number `pn`.
    ///
    /// `fixed_bit` is to be true unless the peer sent grease_quic_bit (RFC 9287, Section 3).
    ///
    /// # Errors
    /// [`Full`] when it does not fit, and for kinds and versions without such a header; nothing
    /// is written.
    pub fn encode(
        &self,
        writer: &mut Writer<'_>,
        pn: u64,
        pn_len: usize,
        fixed_bit: bool,
    ) -> Result<LongHeaderMarks, Full> {
        if !self.kind.carries_frames() {
            return Err(Full);
        }
        let long_type = self.kind.long_type(self.version).ok_or(Full)?;
        writer.all_or_nothing(|writer| {
            writer.u8(FORM_LONG | fixed(fixed_bit) | long_type | pn_len_bits(pn_len))?;
            writer.u32(self.version.0)?;
            write_connection_ids(writer, self.dcid.as_slice(), self.scid.as_slice())?;
            if self.kind == PacketKind::Initial {
                writer.bytes_with_varint_len(self.token)?;
            }
            let length_offset = writer.position();
            writer.varint_2(0)?;
            let pn_offset = writer.position();
            packet_number::encode(writer, pn, pn_len)?;
            Ok(LongHeaderMarks { length_offset, pn_offset })
        })
    }

    /// The number of bytes that [`encode`](Self::encode) writes.
    #[must_use]
    pub const fn encoded_len(&self, pn_len: usize) -> usize {
        let token = match self.kind {
            PacketKind::Initial => {
                varint::len(self.token.len() as u64).saturating_add(self.token.len())
            }
            _ => 0,
        };
        // First byte, version, lengths of both connection IDs, and Length.
        (1_usize + 4 + 1 + 1 + 2)
            .saturating_add(self.dcid.len())
            .saturating_add(self.scid.len())
            .saturating_add(token)
            .saturating_add(pn_len)
    }
}

impl LongHeaderMarks {
    /// Sets the Length field once the payload is written, to end `tag_len` bytes (those of the
    /// AEAD tag to come) after the writer's position.
    ///
    /// # Errors
    /// [`Full`] when the packet is longer than the Length field can tell, 16383 bytes.
    pub fn finish(&self, writer: &mut Writer<'_>, tag_len: usize) -> Result<(), Full> {
        let end = writer.position().saturating_add(tag_len);
        let length = end.checked_sub(self.pn_offset).ok_or(Full)?;
        writer.patch_varint_2(self.length_offset, length as u64)
    }
}

/// The header of a 1-RTT packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShortHeader {
    /// The Destination Connection ID.
    pub dcid: ConnectionId,
    /// The latency spin bit (RFC 9000, Section 17.4).
    pub spin: bool,
    /// The key phase (RFC 9001, Section 6).
    pub key_phase: bool,
    /// True unless the peer sent grease_quic_bit (RFC 9287, Section 3).
    pub fixed_bit: bool,
}

impl ShortHeader {
    /// Writes the header with the `pn_len` (1 to 4) lowest bytes of packet number `pn`, and
    /// returns the position of the latter.
    ///
    /// # Errors
    /// [`Full`] when it does not fit; nothing is written.
    #[inline]
    pub fn encode(&self, writer: &mut Writer<'_>, pn: u64, pn_len: usize) -> Result<usize, Full> {
        let spin = if self.spin { SPIN } else { 0 };
        let key_phase = if self.key_phase { KEY_PHASE } else { 0 };
        writer.all_or_nothing(|writer| {
            writer.u8(fixed(self.fixed_bit) | spin | key_phase | pn_len_bits(pn_len))?;
            writer.bytes(self.dcid.as_slice())?;
            let pn_offset = writer.position();
            packet_number::encode(writer, pn, pn_len)?;
            Ok(pn_offset)
        })
    }

    /// The number of bytes that [`encode`](Self::encode) writes.
    #[inline]
    #[must_use]
    pub const fn encoded_len(&self, pn_len: usize) -> usize {
        self.dcid.len().saturating_add(1).saturating_add(pn_len)
    }
}

#[inline]
const fn fixed(fixed_bit: bool) -> u8 {
    if fixed_bit { FIXED } else { 0 }
}

/// RFC 9000, Sections 17.2 and 17.3.1: the two lowest bits are the length less one.
#[inline]
fn pn_len_bits(pn_len: usize) -> u8 {
    pn_len.clamp(1, 4).saturating_sub(1) as u8
}

pub(super) fn write_connection_ids(
    writer: &mut Writer<'_>,
    dcid: &[u8],
    scid: &[u8],
) -> Result<(), Full> {
    for id in [dcid, scid] {
        writer.u8(u8::try_from(id.len()).map_err(|_| Full)?)?;
        writer.bytes(id)?;
    }
    Ok(())
}
