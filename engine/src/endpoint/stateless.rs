//! Answers that need no state: Version Negotiation (RFC 9000, Section 6), and a close for clients
//! whose first packet leads to no connection (Section 5.2.2).

use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use quicket_wire::frame::ConnectionClose;
use quicket_wire::{
    ConnectionId, FrameEncode, InvariantHeader, LongHeader, PacketKind, Side, TransportErrorCode,
    Version, Writer, encode_version_negotiation,
};

use crate::connection::{Draft, Keys, SealQueue, Sealing, Unsealed};
use crate::crypto::{CryptoProvider, Level, TAG_LEN};
use crate::random::Random;

/// Room for two connection IDs of the greatest length that any version may use, and versions.
const MAX_REPLY: usize = 1200;
/// Room for an Initial packet with a CONNECTION_CLOSE without words.
const MAX_CLOSE: usize = 128;

/// Writes a Version Negotiation packet that answers `datagram`. `None` if that is no long header
/// packet, or is itself one of these (RFC 9000, Section 6.1).
pub(crate) fn version_negotiation(
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

/// An Initial packet with CONNECTION_CLOSE and nothing else, in answer to a client's Initial with these
/// connection IDs. Shorter than any datagram that it can answer.
pub(crate) fn close(
    crypto: Arc<dyn CryptoProvider>,
    version: Version,
    dcid: &ConnectionId,
    scid: &ConnectionId,
    code: TransportErrorCode,
) -> Option<Vec<u8>> {
    let mut keys = Keys::new(crypto, version, u64::MAX);
    keys.derive_initial(version, dcid, Side::Server);
    let mut reply = vec![0; MAX_CLOSE];
    let mut writer = Writer::new(&mut reply);
    let header =
        LongHeader { kind: PacketKind::Initial, version, dcid: *scid, scid: *dcid, token: &[] };
    let marks = header.encode(&mut writer, 0, 1, true).ok()?;
    let payload = writer.position();
    let close = ConnectionClose::Transport { error_code: code, frame_type: 0, reason: b"" };
    close.encode(&mut writer).ok()?;
    marks.finish(&mut writer, TAG_LEN).ok()?;
    let end = writer.position().saturating_add(TAG_LEN);
    let mut queue = SealQueue::default();
    queue.push(Unsealed {
        level: Level::Initial,
        packet_number: 0,
        start: 0,
        pn_offset: marks.pn_offset,
        payload,
        end,
    });
    match queue.finish(&keys, &mut reply, Draft::new(end)) {
        Sealing::Done(end) => {
            reply.truncate(end);
            Some(reply)
        }
        Sealing::NotYet(_) | Sealing::Discarded | Sealing::Failed => None,
    }
}
