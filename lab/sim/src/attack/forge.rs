//! Seals and opens packets of one connection with the attacker's keys.

use std::ops::RangeInclusive;
use std::sync::Arc;

use quicket_engine::crypto::{
    CryptoProvider, Direction, HeaderKey, Level, OpenJob, PacketKey, SealJob, Secret, TAG_LEN,
};
use quicket_wire::{
    ConnectionId, Header, LongHeader, PacketKind, ShortHeader, Side, Version, Writer,
    header_sample, key_phase, packet_number, protect, unprotect,
};

/// The first packet number that is forged: far above those of the handshake that came before, so
/// that the victim takes both.
const FIRST_NUMBER: u64 = 10_000;
/// Room for header and tag.
const OVERHEAD: usize = 128;
/// Bytes of a packet number, always.
const NUMBER_LEN: usize = 4;
/// Ranges of opened packets that are remembered.
const MAX_OPENED: usize = 32;
/// What an Initial datagram is padded to (RFC 9000, Section 14.1).
const MIN_INITIAL: usize = 1_200;

/// A packet of the victim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opened {
    /// Its level.
    pub level: Level,
    /// Its number.
    pub number: u64,
    /// Its frames.
    pub payload: Vec<u8>,
}

struct Keys {
    packet: Box<dyn PacketKey>,
    header: Box<dyn HeaderKey>,
    secret: Secret,
}

/// Keys, connection IDs and packet numbers with which packets are forged.
pub struct Forge {
    crypto: Arc<dyn CryptoProvider>,
    /// The version of long headers, and of keys to come.
    pub version: Version,
    side: Side,
    send: [Option<Keys>; 4],
    receive: [Option<Keys>; 4],
    /// The Destination Connection ID.
    pub dcid: ConnectionId,
    /// The Source Connection ID of long headers.
    pub scid: ConnectionId,
    /// The token of Initial packets.
    pub token: Vec<u8>,
    /// The next packet number of each packet number space.
    pub next_number: [u64; 3],
    /// The key phase of 1-RTT packets.
    pub key_phase: bool,
    /// The fixed bit of all packets.
    pub fixed_bit: bool,
    /// The largest packet number that was opened in each space.
    pub largest_opened: [u64; 3],
    /// The last packet numbers of application data that were opened, in ranges, ascending.
    pub opened: Vec<RangeInclusive<u64>>,
}

const fn slot(level: Level) -> usize {
    match level {
        Level::Initial => 0,
        Level::EarlyData => 1,
        Level::Handshake => 2,
        Level::OneRtt => 3,
    }
}

/// The packet number space of a level: Initial, Handshake, application data.
const fn space(level: Level) -> usize {
    match level {
        Level::Initial => 0,
        Level::Handshake => 1,
        Level::EarlyData | Level::OneRtt => 2,
    }
}

impl Forge {
    /// For an attacker in the role of `side`, with nothing but Initial keys, which come from the
    /// client's first Destination Connection ID (RFC 9001, Section 5.2).
    pub fn new(
        crypto: Arc<dyn CryptoProvider>,
        version: Version,
        side: Side,
        original_dcid: &ConnectionId,
    ) -> Self {
        let (receive, send) = crypto.initial_secrets(version, original_dcid, side);
        let mut forge = Self {
            crypto,
            version,
            side,
            send: Default::default(),
            receive: Default::default(),
            dcid: *original_dcid,
            scid: ConnectionId::EMPTY,
            token: Vec::new(),
            next_number: [FIRST_NUMBER; 3],
            key_phase: false,
            fixed_bit: true,
            largest_opened: [0; 3],
            opened: Vec::new(),
        };
        forge.install(Level::Initial, Direction::Receive, receive);
        forge.install(Level::Initial, Direction::Send, send);
        forge
    }

    /// Takes a secret of the attacker's side.
    pub fn install(&mut self, level: Level, direction: Direction, secret: Secret) {
        let keys = Keys {
            packet: self.crypto.packet_key(self.version, &secret),
            header: self.crypto.header_key(self.version, &secret),
            secret,
        };
        let slots = match direction {
            Direction::Send => &mut self.send,
            Direction::Receive => &mut self.receive,
        };
        slots[slot(level)] = Some(keys);
    }

    /// True if packets of this level can be sealed.
    pub fn can_seal(&self, level: Level) -> bool {
        self.send[slot(level)].is_some()
    }

    /// Moves to the next key phase (RFC 9001, Section 6), whatever the victim thinks of it.
    pub fn update_keys(&mut self) {
        for keys in [&mut self.send, &mut self.receive] {
            if let Some(keys) = &mut keys[slot(Level::OneRtt)] {
                keys.secret = self.crypto.next_secret(self.version, &keys.secret);
                keys.packet = self.crypto.packet_key(self.version, &keys.secret);
            }
        }
        self.key_phase = !self.key_phase;
    }

    /// A packet with the next number. Initial packets are padded to a datagram of 1200 bytes.
    ///
    /// # Panics
    /// If there are no keys.
    pub fn seal(&mut self, level: Level, payload: &[u8]) -> Vec<u8> {
        let number = self.next_number[space(level)];
        self.next_number[space(level)] += 1;
        self.seal_as(level, number, payload)
    }

    /// A packet with this number.
    ///
    /// # Panics
    /// If there are no keys.
    pub fn seal_as(&self, level: Level, number: u64, payload: &[u8]) -> Vec<u8> {
        let mut packet = vec![0; OVERHEAD + self.token.len() + payload.len() + MIN_INITIAL];
        let mut writer = Writer::new(&mut packet);
        let (pn_offset, header_len, len) = match level {
            Level::OneRtt => {
                let header = ShortHeader {
                    dcid: self.dcid,
                    spin: false,
                    key_phase: self.key_phase,
                    fixed_bit: self.fixed_bit,
                };
                let pn_offset = header.encode(&mut writer, number, NUMBER_LEN).expect("it fits");
                let header_len = writer.position();
                writer.bytes(payload).expect("it fits");
                (pn_offset, header_len, writer.position() + TAG_LEN)
            }
            _ => self.write_long(&mut writer, level, number, payload),
        };
        packet.truncate(len);
        let keys = self.send[slot(level)].as_ref().expect("there are keys of this level");
        let mut job = SealJob { packet_number: number, header_len, packet: &mut packet };
        keys.packet.seal(&mut job).expect("sealing works");
        let sample = header_sample(&packet, pn_offset).expect("the packet is long enough");
        let mask = keys.header.mask(sample);
        protect(&mut packet, pn_offset, mask).expect("the packet is long enough");
        packet
    }

    fn write_long(
        &self,
        writer: &mut Writer<'_>,
        level: Level,
        number: u64,
        payload: &[u8],
    ) -> (usize, usize, usize) {
        let kind = match level {
            Level::Initial => PacketKind::Initial,
            Level::EarlyData => PacketKind::ZeroRtt,
            _ => PacketKind::Handshake,
        };
        let token = if self.side == Side::Client { &self.token[..] } else { &[] };
        let header =
            LongHeader { kind, version: self.version, dcid: self.dcid, scid: self.scid, token };
        let marks = header.encode(writer, number, NUMBER_LEN, self.fixed_bit).expect("it fits");
        let header_len = writer.position();
        writer.bytes(payload).expect("it fits");
        let missing = MIN_INITIAL.saturating_sub(writer.position() + TAG_LEN);
        if level == Level::Initial {
            writer.bytes(&vec![0; missing]).expect("it fits");
        }
        marks.finish(writer, TAG_LEN).expect("it is not too long");
        (marks.pn_offset, header_len, writer.position() + TAG_LEN)
    }

    /// The victim's packets in a datagram, as far as there are keys for them.
    pub fn open(&mut self, datagram: &[u8]) -> Vec<Opened> {
        let mut datagram = datagram.to_vec();
        let mut rest = &mut datagram[..];
        let mut opened = Vec::new();
        while let Ok(header) = Header::parse(rest, self.scid.len()) {
            let (packet, tail) = std::mem::take(&mut rest).split_at_mut(header.end);
            opened.extend(self.open_packet(&header, packet));
            rest = tail;
        }
        opened
    }

    fn open_packet(&mut self, header: &Header, packet: &mut [u8]) -> Option<Opened> {
        let level = match header.kind {
            PacketKind::Initial => Level::Initial,
            PacketKind::ZeroRtt => Level::EarlyData,
            PacketKind::Handshake => Level::Handshake,
            PacketKind::OneRtt => Level::OneRtt,
            _ => return None,
        };
        let keys = self.receive[slot(level)].as_ref()?;
        let mask = keys.header.mask(header_sample(packet, header.pn_offset)?);
        let (pn_len, truncated) = unprotect(packet, header.pn_offset, mask)?;
        let expected = self.largest_opened[space(level)] + 1;
        let number = packet_number::decode(truncated, pn_len, expected);
        let header_len = header.pn_offset + pn_len;
        let phase = level == Level::OneRtt && key_phase(packet[0]);
        let followed;
        let key = if phase == self.key_phase || level != Level::OneRtt {
            &*keys.packet
        } else {
            let secret = self.crypto.next_secret(self.version, &keys.secret);
            followed = self.crypto.packet_key(self.version, &secret);
            &*followed
        };
        let mut job = OpenJob { packet_number: number, header_len, packet };
        let len = key.open(&mut job).ok()?;
        let payload = packet[header_len..header_len + len].to_vec();
        self.largest_opened[space(level)] = self.largest_opened[space(level)].max(number);
        if space(level) == 2 {
            self.remember(number);
        }
        Some(Opened { level, number, payload })
    }

    fn remember(&mut self, number: u64) {
        match self.opened.last_mut() {
            Some(last) if *last.end() + 1 == number => *last = *last.start()..=number,
            Some(last) if *last.end() >= number => {}
            _ => self.opened.push(number..=number),
        }
        if self.opened.len() > MAX_OPENED {
            self.opened.remove(0);
        }
    }
}
