//! Segments as a script writes them, and as they are in a frame.

use std::fmt;

use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{IpProtocol, IpRepr, TcpPacket};

use crate::segment::{Ends, Segment, header_len};

const ETHERNET: usize = 14;
/// The first sequence number of the other side, which is 0 in scripts. Its numbers pass from 2^32 - 1 to 0 soon.
const THEIRS: u32 = u32::MAX - 499;
/// Flags, and how scripts write them.
const FLAGS: [(u8, char); 5] = [(2, 'S'), (1, 'F'), (4, 'R'), (8, 'P'), (16, '.')];
pub(super) const ACK: u8 = 16;
pub(super) const SYN: u8 = 2;

/// An octet of data at a sequence number: it depends on nothing else, so that all data can be checked.
pub(super) const fn octet(sequence: u32) -> u8 {
    (sequence % 251) as u8
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Opt {
    Mss(u16),
    Scale(u8),
    SackOk,
    Sack(Vec<(u32, u32)>),
    Timestamp { value: u32, echo: u32 },
    Nop,
    Eol,
}

/// A segment. Sequence numbers count from those that the connection has begun with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Packet {
    pub(super) flags: u8,
    pub(super) sequence: u32,
    pub(super) len: u32,
    pub(super) acknowledgment: Option<u32>,
    /// As it stands in the header. None if a script does not say.
    pub(super) window: Option<u16>,
    /// None if a script takes all.
    pub(super) options: Option<Vec<Opt>>,
}

/// Reads flags, such as `P.`, or `-` for none.
pub(super) fn flags(word: &str) -> Option<u8> {
    if word == "-" {
        return Some(0);
    }
    word.chars().try_fold(0, |flags, char| {
        let (flag, _) = FLAGS.iter().find(|(_, written)| *written == char)?;
        Some(flags | flag)
    })
}

impl Packet {
    /// Whether a segment is as this one says.
    pub(super) fn describes(&self, other: &Self) -> bool {
        let of = |packet: &Self| (packet.flags, packet.sequence, packet.len, packet.acknowledgment);
        let are_options_right = match (&self.options, &other.options) {
            (Some(expected), Some(found)) => without_padding(expected).eq(without_padding(found)),
            _ => true,
        };
        of(self) == of(other)
            && self.window.is_none_or(|window| Some(window) == other.window)
            && are_options_right
    }

    /// A frame with it, to the local end. `ours` is the first sequence number of the stack.
    pub(super) fn write(&self, ends: &Ends, ours: u32) -> Vec<u8> {
        let mut segment = vec![0; 20];
        segment[..2].copy_from_slice(&ends.remote.port().to_be_bytes());
        segment[2..4].copy_from_slice(&ends.local.port().to_be_bytes());
        segment[4..8].copy_from_slice(&THEIRS.wrapping_add(self.sequence).to_be_bytes());
        if let Some(number) = self.acknowledgment {
            segment[8..12].copy_from_slice(&ours.wrapping_add(number).to_be_bytes());
        }
        segment[13] = self.flags;
        segment[14..16].copy_from_slice(&self.window.unwrap_or_default().to_be_bytes());
        for option in self.options.iter().flatten() {
            option.write(&mut segment, ours);
        }
        segment.resize(segment.len().next_multiple_of(4), 0);
        // Words of four octets, in the upper half.
        segment[12] = (segment.len() * 4) as u8;
        segment.extend((0..self.len).map(|at| octet(self.sequence.wrapping_add(at))));
        let (source, destination) = (ends.remote.ip().into(), ends.local.ip().into());
        TcpPacket::new_unchecked(&mut segment[..]).fill_checksum(&source, &destination);
        let ip = IpRepr::new(source, destination, IpProtocol::Tcp, segment.len(), 64);
        let mut frame = vec![0; ETHERNET + ip.buffer_len()];
        let kind = if ends.local.is_ipv4() { [8, 0] } else { [0x86, 0xdd] };
        frame[12..ETHERNET].copy_from_slice(&kind);
        ip.emit(&mut frame[ETHERNET..], &ChecksumCapabilities::default());
        frame[ETHERNET + ip.header_len()..].copy_from_slice(&segment);
        frame
    }

    /// Reads a frame that the stack has sent. A SYN says in `ours` where its numbers begin.
    ///
    /// # Errors
    ///
    /// What is wrong with the frame.
    pub(super) fn read(frame: &[u8], ends: &Ends, ours: &mut u32) -> Result<Self, String> {
        quicket_packets::tuples(frame)
            .map_err(|reason| format!("the switch drops it: {reason:?}"))?;
        let Segment { packet, ends: theirs, header } =
            Segment::read(frame).ok_or("a frame is no segment")?;
        if (theirs.local, theirs.remote) != (ends.remote, ends.local) {
            return Err(format!("a segment goes from {} to {}", theirs.remote, theirs.local));
        }
        let segment = &packet[header_len(packet)..];
        let (flags, data) = (segment[13], usize::from(segment[12] >> 4) * 4);
        if flags & SYN != 0 {
            *ours = header.sequence;
        }
        let sequence = header.sequence.wrapping_sub(*ours);
        let is_right =
            |(at, found): (usize, &u8)| *found == octet(sequence.wrapping_add(at as u32));
        if !segment[data..].iter().enumerate().all(is_right) {
            return Err(format!("the data at {sequence} is not what was written"));
        }
        let acknowledgment = (flags & ACK != 0).then(|| header.acknowledgment.wrapping_sub(THEIRS));
        Ok(Self {
            flags,
            sequence,
            len: (segment.len() - data) as u32,
            acknowledgment,
            window: Some(header.window),
            options: Some(Opt::read_all(&segment[20..data])?),
        })
    }
}

/// What a router quotes of a segment of the stack (RFC 792).
pub(super) fn quote(sequence: u32, ours: u32) -> [u8; 8] {
    let mut quoted = [0; 8];
    quoted[4..].copy_from_slice(&ours.wrapping_add(sequence).to_be_bytes());
    quoted
}

fn without_padding(options: &[Opt]) -> impl Iterator<Item = &Opt> {
    options.iter().filter(|option| !matches!(option, Opt::Nop | Opt::Eol))
}

impl Opt {
    /// How long options are.
    pub(super) fn octets(options: &[Self]) -> usize {
        let mut octets = Vec::new();
        options.iter().for_each(|option| option.write(&mut octets, 0));
        octets.len()
    }

    fn write(&self, segment: &mut Vec<u8>, ours: u32) {
        let two = |high: u32, low: u32| [high.to_be_bytes(), low.to_be_bytes()].concat();
        let (kind, value) = match self {
            Self::Nop => return segment.push(1),
            Self::Eol => return segment.push(0),
            Self::Mss(octets) => (2, octets.to_be_bytes().to_vec()),
            Self::Scale(shift) => (3, vec![*shift]),
            Self::SackOk => (4, vec![]),
            Self::Sack(blocks) => {
                let number = |number: u32| ours.wrapping_add(number);
                let blocks = blocks.iter().flat_map(|(from, to)| two(number(*from), number(*to)));
                (5, blocks.collect())
            }
            Self::Timestamp { value, echo } => (8, two(*value, *echo)),
        };
        segment.extend([kind, value.len() as u8 + 2]);
        segment.extend(value);
    }

    fn read_all(mut octets: &[u8]) -> Result<Vec<Self>, String> {
        let mut options = Vec::new();
        while let [kind, behind @ ..] = octets {
            let word = |at: usize, value: &[u8]| {
                value.get(at..at + 4).map_or(0, |octets| {
                    octets.iter().fold(0, |word, octet| word << 8 | u32::from(*octet))
                })
            };
            if *kind < 2 {
                options.push(if *kind == 0 { Self::Eol } else { Self::Nop });
                octets = behind;
                continue;
            }
            let len = usize::from(*behind.first().ok_or("an option is cut off")?);
            let value = octets.get(2..len).ok_or("an option is cut off")?;
            let number = |at: usize| word(at, value).wrapping_sub(THEIRS);
            options.push(match (kind, value) {
                (2, [high, low]) => Self::Mss(u16::from_be_bytes([*high, *low])),
                (3, [shift]) => Self::Scale(*shift),
                (4, []) => Self::SackOk,
                (5, _) => {
                    let blocks = (0..value.len() / 8).map(|n| (number(n * 8), number(n * 8 + 4)));
                    Self::Sack(blocks.collect())
                }
                (8, _) => Self::Timestamp { value: word(0, value), echo: word(4, value) },
                _ => return Err(format!("option {kind} is not known")),
            });
            octets = &octets[len..];
        }
        Ok(options)
    }
}

impl fmt::Display for Opt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mss(octets) => write!(f, "mss {octets}"),
            Self::Scale(shift) => write!(f, "wscale {shift}"),
            Self::SackOk => f.write_str("sackOK"),
            Self::Sack(blocks) => {
                f.write_str("sack")?;
                blocks.iter().try_for_each(|(from, to)| write!(f, " {from}:{to}"))
            }
            Self::Timestamp { value, echo } => write!(f, "TS val {value} ecr {echo}"),
            Self::Nop => f.write_str("nop"),
            Self::Eol => f.write_str("eol"),
        }
    }
}

/// As scripts write it.
impl fmt::Display for Packet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.flags == 0 {
            f.write_str("-")?;
        }
        for (_, char) in FLAGS.iter().filter(|(flag, _)| self.flags & flag != 0) {
            write!(f, "{char}")?;
        }
        let end = self.sequence.wrapping_add(self.len);
        write!(f, " {}:{end}({})", self.sequence, self.len)?;
        if let Some(number) = self.acknowledgment {
            write!(f, " ack {number}")?;
        }
        if let Some(window) = self.window {
            write!(f, " win {window}")?;
        }
        match &self.options {
            None => f.write_str(" <...>"),
            Some(options) if options.is_empty() => Ok(()),
            Some(options) => {
                let options: Vec<_> = options.iter().map(Opt::to_string).collect();
                write!(f, " <{}>", options.join(","))
            }
        }
    }
}
