//! Looks into a client's Initial packets, whose keys everybody can derive (RFC 9001, Section 5.2).

use quicket_engine::crypto::{CryptoProvider, HeaderKey, OpenJob, PacketKey};
use quicket_wire::{
    ConnectionId, Frame, Frames, Header, PacketKind, Side, Version, header_sample, packet_number,
    unprotect,
};

use super::Unread;
use super::assembly::Assembly;

/// How many packets of a datagram are looked at.
pub const MAX_COALESCED: usize = 8;

/// The keys of a client's Initial packets.
pub(super) struct Keys {
    version: Version,
    dcid: ConnectionId,
    packet: Box<dyn PacketKey>,
    header: Box<dyn HeaderKey>,
    expected: u64,
}

impl Keys {
    pub(super) fn new(crypto: &dyn CryptoProvider, version: Version, dcid: ConnectionId) -> Self {
        let (secret, _) = crypto.initial_secrets(version, &dcid, Side::Server);
        let packet = crypto.packet_key(version, &secret);
        let header = crypto.header_key(version, &secret);
        Self { version, dcid, packet, header, expected: 0 }
    }

    /// Takes the CRYPTO frames out of a datagram, which stays as it is.
    pub(super) fn read(
        &mut self,
        datagram: &[u8],
        scratch: &mut Vec<u8>,
        hello: &mut Assembly,
    ) -> Result<(), Unread> {
        let (mut rest, mut opened) = (datagram, false);
        for _ in 0..MAX_COALESCED {
            if rest.is_empty() {
                break;
            }
            // Packets with a short header end the datagram, whatever the length of their IDs.
            let Ok(header) = Header::parse(rest, 0) else { break };
            let Some((packet, behind)) = rest.split_at_checked(header.end) else { break };
            rest = behind;
            let is_of_client = header.kind == PacketKind::Initial
                && header.version == self.version
                && header.dcid == self.dcid;
            if is_of_client {
                scratch.clear();
                scratch.extend_from_slice(packet);
                let Some(payload) = self.open(scratch, header.pn_offset) else { continue };
                opened = true;
                read_frames(payload, hello)?;
            }
        }
        if opened { Ok(()) } else { Err(Unread::Undecryptable) }
    }

    /// Opens a packet in place.
    fn open<'p>(&mut self, packet: &'p mut [u8], pn_offset: usize) -> Option<&'p [u8]> {
        let mask = self.header.mask(header_sample(packet, pn_offset)?);
        let (pn_len, truncated) = unprotect(packet, pn_offset, mask)?;
        let packet_number = packet_number::decode(truncated, pn_len, self.expected);
        let header_len = pn_offset + pn_len;
        let len = self.packet.open(&mut OpenJob { packet_number, header_len, packet }).ok()?;
        self.expected = self.expected.max(packet_number.saturating_add(1));
        packet.get(header_len..header_len + len)
    }
}

/// Whether the frames are allowed is for the program to judge.
fn read_frames(payload: &[u8], hello: &mut Assembly) -> Result<(), Unread> {
    for frame in Frames::new(payload) {
        match frame {
            Ok(Frame::Crypto(crypto)) => hello.add(crypto.offset, crypto.data)?,
            Ok(_) => {}
            Err(_) => return Err(Unread::Malformed),
        }
    }
    Ok(())
}
