//! Packets of one flow that are handed to the system as one: it cuts that into the packets it stands for, or never has to.
//!
//! Segments of TCP follow one another by sequence number. Datagrams of UDP do in the order in which they came. All but the last
//! have the same length, and their headers are the same but for what is different in each.

use crate::vnet::{Offload, Partial, Vnet};
use crate::{Sum, protocol};

/// Flags of TCP (RFC 9293, Section 3.1).
const FIN: u8 = 0x01;
const PSH: u8 = 0x08;
const ACK: u8 = 0x10;
/// Where they are in its header.
const FLAGS: usize = 13;

/// A packet with data of TCP or UDP, and nothing unusual: where its parts are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// What it is.
    pub offload: Offload,
    /// Whether it is IPv4.
    pub is_v4: bool,
    /// Where the header of TCP or UDP begins.
    pub transport: usize,
    /// Where the data begin: how long all headers are.
    pub headers: usize,
    /// Where the packet ends.
    pub end: usize,
    sequence: u32,
    /// None with UDP.
    flags: u8,
}

impl Segment {
    /// Of a packet, whose checksums are not looked at; none if it does not go with others. More bytes may follow the packet.
    #[inline]
    #[must_use]
    pub fn read(packet: &[u8]) -> Option<Self> {
        let (is_v4, carried, end, transport) = match *packet.first_chunk::<20>()? {
            // Without options, and never a fragment: so its identification means nothing (RFC 6864, Section 4.1).
            [0x45, _, l0, l1, _, _, 0x40, 0, _, carried, ..] => {
                (true, carried, u16::from_be_bytes([l0, l1]), 20)
            }
            [0x60..=0x6f, _, _, _, l0, l1, next, ..] => {
                (false, next, u16::from_be_bytes([l0, l1]).checked_add(40)?, 40)
            }
            _ => return None,
        };
        let end = usize::from(end);
        let segment = packet.get(transport..end)?;
        let (offload, len, sequence, flags) = match carried {
            protocol::TCP => {
                let [_, _, _, _, s0, s1, s2, s3, _, _, _, _, words, flags] =
                    *segment.first_chunk::<14>()?;
                let is_plain =
                    words & 0xf == 0 && flags & ACK != 0 && flags & !(ACK | PSH | FIN) == 0;
                let len = usize::from(words >> 4).wrapping_mul(4);
                if !is_plain || len < 20 {
                    return None;
                }
                (Offload::Tcp, len, u32::from_be_bytes([s0, s1, s2, s3]), flags)
            }
            protocol::UDP => {
                let [_, _, _, _, l0, l1, c0, c1] = *segment.first_chunk::<8>()?;
                // One without a checksum (RFC 768) would have one afterwards.
                if usize::from(u16::from_be_bytes([l0, l1])) != segment.len() || [c0, c1] == [0, 0]
                {
                    return None;
                }
                (Offload::Udp, 8, 0, 0)
            }
            _ => return None,
        };
        let headers = transport.wrapping_add(len);
        let is_whole = headers < end;
        is_whole.then_some(Self { offload, is_v4, transport, headers, end, sequence, flags })
    }

    /// Octets of data, of which there is one at least.
    #[inline]
    #[must_use]
    pub const fn payload(&self) -> usize {
        self.end.wrapping_sub(self.headers)
    }

    /// Nothing comes behind it.
    #[inline]
    const fn is_last(&self) -> bool {
        self.flags & (PSH | FIN) != 0
    }

    /// Where the checksum is, from the header of TCP or UDP on.
    const fn checksum(&self) -> usize {
        match self.offload {
            Offload::Tcp => 16,
            Offload::Udp => 6,
        }
    }

    /// Whether the headers of this packet and of another one differ only in what is different in each packet of a flow.
    #[inline]
    fn is_alike(&self, packet: &[u8], next: &Self, other: &[u8]) -> bool {
        let shape = |segment: &Self| (segment.offload, segment.is_v4, segment.headers);
        if shape(self) != shape(next) {
            return false;
        }
        let is_same = |from: usize, to: usize| match (packet.get(from..to), other.get(from..to)) {
            (Some(one), Some(other)) => one == other,
            _ => false,
        };
        let is_same_ip = match self.is_v4 {
            // Not length, identification and checksum.
            true => is_same(0, 2) && is_same(6, 10) && is_same(12, 20),
            // Not the length.
            false => is_same(0, 4) && is_same(6, 40),
        };
        let at = |offset: usize| self.transport.wrapping_add(offset);
        is_same_ip
            && is_same(at(0), at(4))
            && match self.offload {
                // Not sequence number, flags and checksum.
                Offload::Tcp => {
                    is_same(at(8), at(FLAGS))
                        && is_same(at(14), at(16))
                        && is_same(at(18), self.headers)
                }
                Offload::Udp => true,
            }
    }
}

/// How long a super-packet may be.
#[derive(Clone, Copy, Debug)]
pub struct Most {
    /// Packets.
    pub packets: u32,
    /// Octets, with headers: 65,535, which fit into a length of IP, or less.
    pub len: usize,
}

/// What packets that follow one another become.
#[derive(Clone, Copy, Debug)]
pub struct SuperPacket {
    first: Segment,
    packets: u32,
    len: usize,
    /// The sequence number of the next one.
    next: u32,
    /// Flags of all.
    flags: u8,
    is_closed: bool,
}

impl SuperPacket {
    /// Begins with a packet.
    #[inline]
    #[must_use]
    pub const fn new(first: Segment) -> Self {
        let next = first.sequence.wrapping_add(first.payload() as u32);
        let (flags, is_closed) = (first.flags, first.is_last());
        Self { first, packets: 1, len: first.end, next, flags, is_closed }
    }

    /// The packet that it begins with.
    #[must_use]
    pub const fn first(&self) -> &Segment {
        &self.first
    }

    /// How many there are.
    #[must_use]
    pub const fn packets(&self) -> u32 {
        self.packets
    }

    /// Octets of the whole.
    #[must_use]
    pub const fn octets(&self) -> usize {
        self.len
    }

    /// Takes the next packet in, if it goes behind those that are there. `first` are the headers of the first one, `packet` is
    /// what `next` was read from. Returns whether it was.
    #[inline]
    #[must_use]
    pub fn take(&mut self, first: &[u8], next: &Segment, packet: &[u8], most: Most) -> bool {
        let len = self.len.saturating_add(next.payload());
        let follows = !self.is_closed
            && (next.sequence == self.next || next.offload == Offload::Udp)
            && next.payload() <= self.first.payload()
            && self.packets < most.packets
            && len <= most.len;
        if !follows || !self.first.is_alike(first, next, packet) {
            return false;
        }
        self.len = len;
        self.packets = self.packets.saturating_add(1);
        self.next = self.next.wrapping_add(next.payload() as u32);
        self.flags |= next.flags;
        self.is_closed = next.is_last() || next.payload() < self.first.payload();
        true
    }

    /// Makes the headers of the first packet those of the whole; the checksum of TCP or UDP stays open. Returns what the system is told
    /// of it; none, and `first` may be anything then, if these are not those headers.
    #[must_use]
    pub fn write_headers(&self, first: &mut [u8]) -> Option<Vnet> {
        let Segment { offload, is_v4, transport, headers, .. } = self.first;
        let (ip, rest) = first.get_mut(..headers)?.split_at_mut_checked(transport)?;
        let len = self.len.checked_sub(transport)?;
        let addresses = if is_v4 {
            ip.get_mut(2..4)?.copy_from_slice(&(self.len as u16).to_be_bytes());
            ip.get_mut(10..12)?.fill(0);
            let sum = Sum::new().bytes(ip).checksum();
            ip.get_mut(10..12)?.copy_from_slice(&sum.to_be_bytes());
            12..20
        } else {
            ip.get_mut(4..6)?.copy_from_slice(&(len as u16).to_be_bytes());
            8..40
        };
        let carried = match offload {
            Offload::Tcp => {
                // What stands in the header for all is said by the last one.
                *rest.get_mut(FLAGS)? |= self.flags;
                protocol::TCP
            }
            Offload::Udp => {
                rest.get_mut(4..6)?.copy_from_slice(&(len as u16).to_be_bytes());
                protocol::UDP
            }
        };
        // The sum of the pseudo-header alone: the rest is added by who completes it.
        let sum = Sum::new().bytes(ip.get(addresses)?).add_u16(carried.into());
        let sum = sum.add_u32(len as u32).folded();
        let offset = self.first.checksum();
        rest.get_mut(offset..)?.first_chunk_mut::<2>()?.copy_from_slice(&sum.to_be_bytes());
        let partial = Partial { start: transport as u16, offset: offset as u16 };
        let size = self.first.payload() as u16;
        Some(Vnet { partial: Some(partial), offload: Some((offload, size)) })
    }
}

#[cfg(test)]
#[path = "super_packet_tests.rs"]
mod tests;
