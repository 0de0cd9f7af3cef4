//! The blocks of a file that matter here, one after the other, in bounded memory.

use std::io::{ErrorKind, Read};
use std::time::Duration;

use pcap_parser::traits::{PcapNGPacketBlock, PcapReaderIterator};
use pcap_parser::{
    Block as Raw, InterfaceDescriptionBlock, Linktype, OptionCode, PcapBlockOwned, PcapError,
    PcapNGReader, SecretsType,
};

/// The first size of the buffer, in bytes.
const FIRST: usize = 1 << 17;
/// The longest block that is read, in bytes.
const MAX_BLOCK: usize = 1 << 24;
/// Interfaces of a section that are known.
const MAX_INTERFACES: usize = 1024;
/// `epb_flags`, whose lowest bits tell the direction.
const FLAGS: OptionCode = OptionCode(2);

/// Which way a packet went, as whoever has captured it says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    In,
    Out,
    /// It does not say.
    Unknown,
}

/// A block.
#[derive(Debug)]
pub(super) enum Block<'a> {
    /// Lines of SSLKEYLOGFILE (RFC 9850).
    Secrets(&'a [u8]),
    Packet(Packet<'a>),
    /// A packet of which neither the time nor the kind of link is known.
    Unplaced,
}

/// A packet.
#[derive(Debug)]
pub(super) struct Packet<'a> {
    /// Since 1970.
    pub(super) at: Duration,
    pub(super) way: Way,
    pub(super) link: Linktype,
    pub(super) data: &'a [u8],
}

/// What packets of an interface are like.
#[derive(Clone, Copy, Debug)]
struct Interface {
    link: Linktype,
    /// Units in a second.
    resolution: u64,
    /// Seconds to add.
    offset: i64,
}

impl Interface {
    fn of(block: &InterfaceDescriptionBlock<'_>) -> Self {
        let resolution = block.ts_resolution().filter(|units| *units > 0).unwrap_or(1_000_000);
        Self { link: block.linktype, resolution, offset: block.ts_offset() }
    }

    /// The time of a packet, since 1970; what lies before, or beyond what is counted, is cut off.
    fn time(&self, high: u32, low: u32) -> Duration {
        let units = u64::from(high) << 32 | u64::from(low);
        let seconds = units / self.resolution;
        let part =
            u128::from(units % self.resolution) * 1_000_000_000 / u128::from(self.resolution);
        let seconds = seconds.saturating_add_signed(self.offset).min(u64::from(u32::MAX) << 4);
        Duration::new(seconds, u32::try_from(part).unwrap_or(0))
    }
}

/// Gives the blocks of a file out. Returns why the file ends too early, if it does; fails if it is no capture.
pub(super) fn each(
    input: impl Read,
    mut on_block: impl FnMut(Block<'_>),
) -> Result<Option<String>, String> {
    let mut reader = PcapNGReader::new(FIRST, Filling(input)).map_err(|error| match error {
        PcapError::ReadError => "the file cannot be read",
        _ => "this begins like a capture (pcapng), and is none",
    })?;
    let (mut capacity, mut interfaces, mut number) = (FIRST, Vec::new(), 0u64);
    loop {
        let before = reader.data().len();
        let (is_full, is_incomplete) = match reader.next() {
            Ok((len, block)) => {
                number += 1;
                if let PcapBlockOwned::NG(block) = block {
                    on_raw(&block, &mut interfaces, &mut on_block);
                }
                reader.consume(len);
                continue;
            }
            Err(PcapError::Eof) => return Ok(None),
            Err(PcapError::UnexpectedEof) if before == 0 => return Ok(None),
            Err(PcapError::UnexpectedEof) => {
                return Ok(Some(format!("block {} is cut off", number + 1)));
            }
            Err(PcapError::BufferTooSmall) => (true, false),
            Err(PcapError::Incomplete(_)) => (false, true),
            Err(PcapError::ReadError) => return Err("the file cannot be read".to_owned()),
            Err(_) => {
                return Ok(Some(format!(
                    "block {} is none, and what follows is not read",
                    number + 1
                )));
            }
        };
        if is_incomplete && reader.refill().is_err() {
            return Err("the file cannot be read".to_owned());
        }
        let is_stuck = reader.data().len() == before && !reader.reader_exhausted();
        if is_full || is_stuck {
            if capacity >= MAX_BLOCK {
                return Ok(Some(format!(
                    "block {} says that it is longer than {MAX_BLOCK} bytes",
                    number + 1
                )));
            }
            capacity = (capacity * 2).min(MAX_BLOCK);
            reader.grow(capacity);
            if reader.refill().is_err() {
                return Err("the file cannot be read".to_owned());
            }
        }
    }
}

fn on_raw(block: &Raw<'_>, interfaces: &mut Vec<Interface>, on_block: &mut impl FnMut(Block<'_>)) {
    match block {
        Raw::SectionHeader(_) => interfaces.clear(),
        Raw::InterfaceDescription(description) if interfaces.len() < MAX_INTERFACES => {
            interfaces.push(Interface::of(description));
        }
        Raw::DecryptionSecrets(secrets) if secrets.secrets_type == SecretsType::TlsKeyLog => {
            let data = secrets.data;
            on_block(Block::Secrets(data.get(..secrets.secrets_len as usize).unwrap_or(data)));
        }
        Raw::EnhancedPacket(packet) => {
            let Some(interface) = interfaces.get(packet.if_id as usize) else {
                return on_block(Block::Unplaced);
            };
            let flags = packet.options.iter().find(|option| option.code == FLAGS);
            let flags = flags.and_then(|option| option.value().first_chunk::<4>());
            let flags = flags.map_or(0, |bytes| match packet.big_endian() {
                true => u32::from_be_bytes(*bytes),
                false => u32::from_le_bytes(*bytes),
            });
            on_block(Block::Packet(Packet {
                at: interface.time(packet.ts_high, packet.ts_low),
                way: match flags & 3 {
                    1 => Way::In,
                    2 => Way::Out,
                    _ => Way::Unknown,
                },
                link: interface.link,
                data: packet.packet_data(),
            }));
        }
        Raw::SimplePacket(_) => on_block(Block::Unplaced),
        _ => {}
    }
}

/// Reads as much as there is room for: the parser takes what the first call gives for all that there is of a file's first
/// block.
struct Filling<R>(R);

impl<R: Read> Read for Filling<R> {
    fn read(&mut self, room: &mut [u8]) -> std::io::Result<usize> {
        let mut len = 0;
        while let Some(rest) = room.get_mut(len..).filter(|rest| !rest.is_empty()) {
            match self.0.read(rest) {
                Ok(0) => break,
                Ok(more) => len += more,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_any_resolution_are_those_of_the_file() {
        let time = |resolution, offset, units: u64| {
            let interface = Interface { link: Linktype(101), resolution, offset };
            interface.time((units >> 32) as u32, units as u32)
        };
        assert_eq!(time(1_000_000, 0, 1_500_000), Duration::from_millis(1500));
        assert_eq!(time(1_000_000_000, 5, 1_500_000_000), Duration::from_millis(6500));
        assert_eq!(time(1 << 10, 0, 1536), Duration::from_millis(1500));
        assert_eq!(time(1, -10, 3), Duration::ZERO);
        assert!(time(1, i64::MAX, u64::MAX) < Duration::from_secs(1 << 40));
    }

    /// A section, an interface of raw IP, and a packet of it, of another one, and of none.
    fn capture() -> Vec<u8> {
        let block = |kind: u32, body: &[u8]| {
            let len = (body.len() as u32 + 12).to_le_bytes();
            [&kind.to_le_bytes()[..], &len, body, &len].concat()
        };
        let section = [&0x1a2b_3c4d_u32.to_le_bytes()[..], &[1, 0, 0, 0], &[0xff; 8]].concat();
        let enhanced = |interface: u32| {
            let words = [interface, 0, 7, 4, 4].map(u32::to_le_bytes).concat();
            block(6, &[&words[..], b"data"].concat())
        };
        let simple = block(3, &[&4u32.to_le_bytes()[..], b"data"].concat());
        let interface = block(1, &[101, 0, 0, 0, 0, 0, 0, 0]);
        [block(0x0a0d_0d0a, &section), interface, enhanced(0), enhanced(1), simple].concat()
    }

    /// Gives a byte at a time, with interruptions, and then fails or ends.
    struct Slow<'a>(&'a [u8], bool, bool);

    impl Read for Slow<'_> {
        fn read(&mut self, room: &mut [u8]) -> std::io::Result<usize> {
            self.2 = !self.2;
            if self.2 {
                return Err(ErrorKind::Interrupted.into());
            }
            match self.0.split_first() {
                None if self.1 => Err(ErrorKind::PermissionDenied.into()),
                None => Ok(0),
                Some((first, rest)) => {
                    (room[0], self.0) = (*first, rest);
                    Ok(1)
                }
            }
        }
    }

    #[test]
    fn files_come_in_pieces_and_packets_without_a_place_are_told() {
        let (mut packets, mut unplaced) = (0, 0);
        let ended = each(Slow(&capture(), false, false), |block| match block {
            Block::Packet(packet) => {
                assert_eq!((packet.data, packet.at), (&b"data"[..], Duration::from_micros(7)));
                packets += 1;
            }
            Block::Unplaced => unplaced += 1,
            Block::Secrets(_) => panic!("there are none"),
        });
        assert_eq!((ended, packets, unplaced), (Ok(None), 1, 2));
        for len in [0, 4, 40] {
            let error = each(Slow(&capture()[..len], true, false), |_| {}).unwrap_err();
            assert_eq!(error, "the file cannot be read", "{len}");
        }
    }

    #[test]
    fn what_is_no_capture_is_refused_and_what_is_cut_is_told() {
        let none = |_: Block<'_>| panic!("there is no block");
        assert!(each(&b"\x0a"[..], none).is_err());
        assert!(each(&b"\x0a\x0d\x0d\x0anonsense that goes on"[..], none).is_err());
        // A section header, and a block that is longer than the file, or than any.
        let section = b"\x0a\x0d\x0d\x0a\x1c\0\0\0\x4d\x3c\x2b\x1a\x01\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff\x1c\0\0\0";
        assert_eq!(each(&section[..], none), Ok(None));
        for len in [100u32, u32::MAX - 3] {
            let file = [&section[..], &6u32.to_le_bytes(), &len.to_le_bytes(), &[0; 20]].concat();
            let why = each(&file[..], none).unwrap().unwrap();
            assert!(why.starts_with("block 2"), "{why}");
        }
        let file = [&section[..], &6u32.to_le_bytes(), &3u32.to_le_bytes(), &[0; 20]].concat();
        assert!(each(&file[..], none).unwrap().is_some());
    }
}
