//! Packets that came in one train become a super-packet, which the system takes in one write and
//! looks at once.

use std::ops::Range;

use quicket_gue::super_packet::{Most, Segment, SuperPacket};
use quicket_gue::vnet::{Partial, VNET_LEN, Vnet};
use quicket_gue::{Packet, pseudo_header};

use crate::inbound::{Joined, Opened};

/// Most packets of a super-packet.
const MAX_PACKETS: usize = 64;
/// Most bytes of a super-packet.
const MAX_BYTES: usize = 65_535;

const MOST: Most = Most { packets: MAX_PACKETS as u32, len: MAX_BYTES };

/// Packets that will be written together.
#[derive(Debug, Default)]
pub(crate) struct Group {
    tunnel: usize,
    /// Bytes of the Ethernet header before the first packet.
    link: usize,
    /// Headers and payload of the first packet, payloads of the others.
    parts: Vec<Range<usize>>,
    bytes: usize,
    partial: Option<Partial>,
    /// What the only packet stands for.
    joined: Option<Joined>,
    /// None if nothing may follow.
    whole: Option<SuperPacket>,
}

/// What to write to which device.
#[derive(Debug)]
pub(crate) struct Write<'a> {
    pub(crate) tunnel: usize,
    pub(crate) header: [u8; VNET_LEN],
    pub(crate) parts: &'a [Range<usize>],
    pub(crate) bytes: usize,
}

impl Group {
    /// Takes a packet in, unless it does not go with those that are there.
    pub(crate) fn push(&mut self, buffer: &[u8], opened: Opened) -> bool {
        let Opened { tunnel, range, link, partial, joined, .. } = opened;
        let packet = &buffer[range.clone()];
        let segment = if joined.is_none() { read(packet, partial.is_some()) } else { None };
        if self.parts.is_empty() {
            *self = Self {
                tunnel,
                link,
                parts: std::mem::take(&mut self.parts),
                bytes: range.len(),
                partial,
                joined,
                whole: segment.map(SuperPacket::new),
            };
            self.parts.push(range);
            return true;
        }
        let (Some(whole), Some(segment)) = (&mut self.whole, segment) else { return false };
        let first = self.parts[0].clone();
        let fits = tunnel == self.tunnel
            && buffer[first.start - self.link..first.start]
                == buffer[range.start - link..range.start]
            && whole.take(&buffer[first], &segment, packet, MOST);
        if fits {
            self.bytes = whole.octets();
            self.parts.push(range.start + segment.headers..range.end);
        }
        fits
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Makes the headers those of the whole, in place, and says what to write.
    pub(crate) fn finish(&mut self, buffer: &mut [u8]) -> Write<'_> {
        let bytes = &mut buffer[self.parts[0].clone()];
        let is_v4 = bytes[0] >> 4 == 4;
        let (header_len, vnet) = match self.whole {
            Some(whole) if self.parts.len() > 1 => {
                // Its headers are there: they were read.
                let vnet = whole.write_headers(bytes).unwrap_or_default();
                (whole.first().headers as u16, vnet)
            }
            _ => {
                let offload = self.joined.map(|joined| joined.offload);
                let header_len = self.joined.map_or(0, |joined| joined.headers);
                (header_len, Vnet { partial: self.partial, offload })
            }
        };
        let link = self.link as u16;
        let header = vnet.after(link).encode(is_v4, header_len + link);
        self.parts[0].start -= self.link;
        Write { tunnel: self.tunnel, header, parts: &self.parts, bytes: self.bytes + self.link }
    }

    pub(crate) fn clear(&mut self) {
        self.parts.clear();
    }

    pub(crate) fn packets(&self) -> usize {
        self.parts.len()
    }
}

/// Looks at a packet; none if it does not go with others, or its checksum is not right, of which the system would be told that it
/// is. `vouched`: the checksum is open, and known to be right.
fn read(bytes: &[u8], vouched: bool) -> Option<Segment> {
    let segment = Segment::read(bytes).filter(|segment| segment.end == bytes.len())?;
    let is_intact = || {
        let packet = Packet::parse(bytes).ok()?;
        let (payload, len) = (packet.payload(), packet.payload().len() as u32);
        let sum = pseudo_header(packet.source, packet.destination, packet.protocol, len);
        Some(sum.bytes(payload).is_intact())
    };
    (vouched || is_intact() == Some(true)).then_some(segment)
}

#[cfg(test)]
mod tests {
    use quicket_gue::Sum;
    use quicket_gue::vnet::Offload;

    use super::*;
    use crate::segments::segments;
    use crate::testing::{tcp, udp};

    /// Writes packets as one train; returns what a device would get, taken apart again.
    fn through(packets: &[Vec<u8>]) -> (usize, Vec<Vec<u8>>) {
        let mut buffer = packets.concat();
        let (mut group, mut writes, mut out) = (Group::default(), 0, Vec::new());
        let mut flush = |group: &mut Group, buffer: &mut [u8]| {
            let write = group.finish(buffer);
            let whole: Vec<u8> =
                write.parts.iter().flat_map(|part| buffer[part.clone()].to_vec()).collect();
            assert_eq!(whole.len(), write.bytes);
            let vnet = Vnet::decode(write.header).unwrap();
            let packet = Packet::parse(&whole).unwrap();
            segments(&packet, vnet, false, |segment| {
                out.push([segment.headers, &whole[segment.payload]].concat());
                Ok(())
            })
            .unwrap();
            writes += 1;
            group.clear();
        };
        let mut at = 0;
        for packet in packets {
            let range = at..at + packet.len();
            at = range.end;
            let opened = Opened {
                tunnel: 0,
                range,
                link: 0,
                partial: None,
                joined: None,
                suspicious: false,
            };
            if !group.push(&buffer, opened.clone()) {
                flush(&mut group, &mut buffer);
                assert!(group.push(&buffer, opened));
            }
        }
        if !group.is_empty() {
            flush(&mut group, &mut buffer);
        }
        (writes, out)
    }

    /// Segmentation counts identifications up; give packets such.
    fn numbered(mut packets: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
        for (index, packet) in packets.iter_mut().enumerate() {
            if packet[0] >> 4 == 4 {
                packet[4..6].copy_from_slice(&(7 + index as u16).to_be_bytes());
                packet[10..12].fill(0);
                let sum = Sum::new().bytes(&packet[..20]).checksum();
                packet[10..12].copy_from_slice(&sum.to_be_bytes());
            }
        }
        packets
    }

    #[test]
    fn segments_in_sequence_are_one_write_and_come_out_as_they_were() {
        for v4 in [true, false] {
            let start = u32::MAX - 2500;
            let packets: Vec<_> = (0..10u32)
                .map(|index| {
                    let (flags, len) = if index == 9 { (0x19, 700) } else { (0x10, 1000) };
                    tcp(v4, start.wrapping_add(index * 1000), flags, &vec![index as u8; len])
                })
                .collect();
            let packets = numbered(packets);
            assert_eq!(through(&packets), (1, packets));
        }
    }

    #[test]
    fn datagrams_of_one_size_are_one_write() {
        for v4 in [true, false] {
            let packets = numbered((0..5).map(|index| udp(v4, &[index; 900])).collect());
            assert_eq!(through(&packets), (1, packets));
        }
    }

    #[test]
    fn what_does_not_go_together_is_written_apart_and_unchanged() {
        let plain = |sequence| tcp(true, sequence, 0x10, &[1; 100]);
        let mut corrupt = plain(101);
        corrupt[60] ^= 1;
        let mut other_flow = plain(101);
        other_flow[12] ^= 1;
        let mut window = tcp(true, 101, 0x10, &[1; 100]);
        window[35] ^= 1;
        for second in [
            plain(102),
            tcp(true, 101, 0x14, &[1; 100]),
            tcp(true, 101, 0x10, &[1; 101]),
            tcp(true, 101, 0x10, &[]),
            tcp(false, 101, 0x10, &[1; 100]),
            udp(true, &[1; 100]),
            corrupt,
            other_flow,
            window,
        ] {
            let packets = vec![plain(1), second];
            assert_eq!(through(&packets), (2, packets));
        }
        for last in [0x18, 0x11] {
            let packets = vec![tcp(true, 1, last, &[1; 100]), plain(101)];
            assert_eq!(through(&packets), (2, packets));
        }
    }

    #[test]
    fn what_the_system_has_joined_is_a_super_packet_of_its_own() {
        let mut buffer = tcp(true, 1, 0x18, &[1; 3000]);
        let len = buffer.len();
        let partial = Some(Partial { start: 20, offset: 16 });
        let joined = Some(Joined { headers: 40, offload: (Offload::Tcp, 1440) });
        let opened =
            Opened { tunnel: 0, range: 0..len, link: 0, partial, joined, suspicious: false };
        buffer.extend(tcp(true, 3001, 0x10, &[1; 100]));
        let next =
            Opened { range: len..buffer.len(), partial: None, joined: None, ..opened.clone() };
        let mut group = Group::default();
        assert!(group.push(&buffer, opened) && !group.push(&buffer, next));
        let write = group.finish(&mut buffer);
        assert_eq!(write.bytes, len);
        let vnet = Vnet::decode(write.header).unwrap();
        assert_eq!(vnet, Vnet { partial, offload: Some((Offload::Tcp, 1440)) });
    }

    #[test]
    fn frames_have_one_header_if_theirs_are_the_same() {
        let packets = numbered((0..2u32).map(|n| tcp(true, n * 100, 0x10, &[1; 100])).collect());
        for (second, together) in [([1; 14], true), ([2; 14], false)] {
            let mut buffer = [&[1; 14][..], &packets[0], &second, &packets[1]].concat();
            let len = packets[0].len();
            let at = |start| {
                let range = start..start + len;
                Opened {
                    tunnel: 0,
                    range,
                    link: 14,
                    partial: None,
                    joined: None,
                    suspicious: false,
                }
            };
            let mut group = Group::default();
            assert!(group.push(&buffer, at(14)));
            assert_eq!(group.push(&buffer, at(28 + len)), together);
            let write = group.finish(&mut buffer);
            assert_eq!(write.parts[0], 0..14 + len);
            assert_eq!(write.bytes, if together { 14 + len + 100 } else { 14 + len });
            let start = Vnet::decode(write.header).unwrap().partial.map(|partial| partial.start);
            assert_eq!(start, together.then_some(34));
        }
    }

    #[test]
    fn super_packets_are_bounded() {
        let packets: Vec<_> = (0..200u32).map(|n| tcp(true, n * 1400, 0x10, &[1; 1400])).collect();
        let (writes, out) = through(&numbered(packets.clone()));
        assert_eq!((writes, out.len()), (5, 200));
        let small: Vec<_> = (0..130u32).map(|n| tcp(true, n * 10, 0x10, &[1; 10])).collect();
        assert_eq!(through(&numbered(small)).0, 3);
    }
}
