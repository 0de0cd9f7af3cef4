//! Answers that need no state: Version Negotiation (RFC 9000, Section 6).

use alloc::vec::Vec;

use quicket_wire::{InvariantHeader, Version, Writer, encode_version_negotiation};

use crate::random::Random;

/// Room for two connection IDs of the greatest length that any version may use, and versions.
const MAX_REPLY: usize = 1200;

/// Writes a Version Negotiation packet that answers `datagram`. `None` if that is no long header
/// packet, or is itself one of these (RFC 9000, Section 6.1).
pub(super) fn version_negotiation(
    datagram: &[u8],
    versions: &[Version],
    rng: &mut dyn Random,
    reply: &mut Vec<u8>,
) -> Option<()> {
    let header = InvariantHeader::parse(datagram).ok()?;
    if header.version == Version::NEGOTIATION {
        return None;
    }
    // RFC 9000, Section 6.3: a reserved version keeps clients honest.
    let noise = rng.next_u64();
    let reserved = Version((noise as u32 & 0xf0f0_f0f0) | 0x0a0a_0a0a);
    let all = versions.iter().copied().chain(core::iter::once(reserved));
    reply.clear();
    reply.resize(MAX_REPLY, 0);
    let mut writer = Writer::new(reply);
    let unused = (noise >> 32) as u8;
    encode_version_negotiation(&mut writer, unused, header.scid, header.dcid, all).ok()?;
    let len = writer.position();
    reply.truncate(len);
    Some(())
}
