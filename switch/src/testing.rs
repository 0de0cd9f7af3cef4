//! Clients' first packets for tests; the simulation and the fuzz target include this file.

#![allow(dead_code)]

use quicket_engine::crypto::{CryptoProvider, SealJob, TAG_LEN};
use quicket_testing::Rng;
use quicket_wire::frame::Crypto;
use quicket_wire::{
    ConnectionId, FrameEncode, LongHeader, PacketKind, Side, Version, Writer, header_sample,
    protect,
};

fn with_u16_len(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u16).to_be_bytes()[..], bytes].concat()
}

fn extension(kind: u16, data: &[u8]) -> Vec<u8> {
    [&kind.to_be_bytes()[..], &with_u16_len(data)].concat()
}

/// A ClientHello (RFC 8446, Section 4.1.2), with so many bytes of padding (RFC 7685).
pub(crate) fn client_hello(server: Option<&str>, protocols: &[&str], padding: usize) -> Vec<u8> {
    let mut extensions = Vec::new();
    if padding > 0 {
        extensions.extend(extension(21, &vec![0; padding]));
    }
    if let Some(server) = server {
        let entry = [&[0][..], &with_u16_len(server.as_bytes())].concat();
        extensions.extend(extension(0, &with_u16_len(&entry)));
    }
    if !protocols.is_empty() {
        let one = |name: &&str| [&[name.len() as u8][..], name.as_bytes()].concat();
        let list: Vec<u8> = protocols.iter().flat_map(one).collect();
        extensions.extend(extension(16, &with_u16_len(&list)));
    }
    let mut body = vec![0x03, 0x03];
    body.extend([0x55; 32]);
    body.push(0);
    body.extend(with_u16_len(&[0x13, 0x01]));
    body.extend([1, 0]);
    body.extend(with_u16_len(&extensions));
    let [_, a, b, c] = (body.len() as u32).to_be_bytes();
    [&[1, a, b, c][..], &body].concat()
}

/// A client that sends its first packets.
pub(crate) struct Client {
    pub(crate) version: Version,
    pub(crate) dcid: ConnectionId,
    pub(crate) scid: ConnectionId,
    pub(crate) token: Vec<u8>,
    next: u64,
}

impl Client {
    pub(crate) fn new(rng: &mut Rng) -> Self {
        let mut ids = [0; 16];
        rng.fill(&mut ids);
        Self {
            version: Version::V1,
            dcid: ConnectionId::new(&ids[..8]).unwrap(),
            scid: ConnectionId::new(&ids[8..]).unwrap(),
            token: Vec::new(),
            next: 0,
        }
    }

    /// An Initial packet with this payload, in a datagram of at least `datagram` bytes.
    pub(crate) fn initial(
        &mut self,
        crypto: &dyn CryptoProvider,
        payload: &[u8],
        datagram: usize,
    ) -> Vec<u8> {
        let Self { version, dcid, scid, .. } = *self;
        let mut packet = vec![0; payload.len() + datagram + 200 + self.token.len()];
        let mut writer = Writer::new(&mut packet);
        let header =
            LongHeader { kind: PacketKind::Initial, version, dcid, scid, token: &self.token };
        let marks = header.encode(&mut writer, self.next, 2, true).unwrap();
        let header_len = writer.position();
        writer.bytes(payload).unwrap();
        // What is missing is PADDING, of zeros.
        let padding = datagram.saturating_sub(writer.position() + TAG_LEN);
        writer.bytes(&vec![0; padding]).unwrap();
        marks.finish(&mut writer, TAG_LEN).unwrap();
        let end = writer.position() + TAG_LEN;
        packet.truncate(end);
        let (secret, _) = crypto.initial_secrets(version, &dcid, Side::Server);
        let packet_number = self.next;
        let mut job = SealJob { packet_number, header_len, packet: &mut packet };
        crypto.packet_key(version, &secret).seal(&mut job).unwrap();
        let sample = header_sample(&packet, marks.pn_offset).unwrap();
        let mask = crypto.header_key(version, &secret).mask(sample);
        protect(&mut packet, marks.pn_offset, mask).unwrap();
        self.next += 1;
        packet
    }

    /// A ClientHello in so many datagrams, each with several CRYPTO frames, in order.
    pub(crate) fn hello(
        &mut self,
        crypto: &dyn CryptoProvider,
        message: &[u8],
        datagrams: usize,
    ) -> Vec<Vec<u8>> {
        let len = message.len().div_ceil(datagrams);
        let mut offset = 0;
        let mut all = Vec::new();
        for part in message.chunks(len) {
            let mut frames = Vec::new();
            for piece in part.chunks(400) {
                frames.push(crypto_frame(offset, piece));
                offset += piece.len();
            }
            // Browsers shuffle them.
            frames.reverse();
            all.push(self.initial(crypto, &frames.concat(), 1200));
        }
        all
    }
}

/// A CRYPTO frame (RFC 9000, Section 19.6).
pub(crate) fn crypto_frame(offset: usize, data: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; data.len() + 16];
    let mut writer = Writer::new(&mut frame);
    Crypto { offset: offset as u64, data }.encode(&mut writer).unwrap();
    let len = writer.position();
    frame.truncate(len);
    frame
}

/// A packet of 0-RTT, or of another kind or version, as far as it can be told without its keys.
pub(crate) fn long(version: Version, kind: u8, dcid: &[u8], scid: &[u8], len: usize) -> Vec<u8> {
    let mut out = vec![0xc0 | kind << 4];
    out.extend(version.0.to_be_bytes());
    out.push(dcid.len() as u8);
    out.extend(dcid);
    out.push(scid.len() as u8);
    out.extend(scid);
    if kind == 0 {
        out.push(0);
    }
    let rest = len.saturating_sub(out.len() + 2).min(0x3fff);
    out.extend((0x4000 | rest as u16).to_be_bytes());
    out.resize(out.len() + rest, 0x5a);
    out
}
