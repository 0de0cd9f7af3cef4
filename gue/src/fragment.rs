//! Fragmentation of IPv4 packets that do not fit and may be fragmented (RFC 791, Section 3.2).

use crate::{Packet, Sum};

/// The longest header of IPv4.
pub const MAX_HEADER: usize = 60;

/// One fragment: a header of its own, and part of the packet's payload.
#[derive(Clone, Copy, Debug)]
pub struct Fragment<'a> {
    header: [u8; MAX_HEADER],
    header_len: usize,
    /// What follows the header.
    pub payload: &'a [u8],
}

impl Fragment<'_> {
    /// The header.
    #[must_use]
    pub fn header(&self) -> &[u8] {
        self.header.get(..self.header_len).unwrap_or_default()
    }
}

/// Fragments of a packet, in order.
#[derive(Clone, Debug)]
pub struct Fragments<'a> {
    header: &'a [u8],
    rest: &'a [u8],
    /// Bytes of payload in each but the last.
    step: usize,
    /// In units of 8 bytes.
    offset: usize,
    /// Whether the packet is a fragment itself that others follow.
    more: bool,
}

/// Splits an IPv4 packet into fragments of at most `mtu` bytes; none if it may not be split.
#[must_use]
pub fn fragments<'a>(packet: &Packet<'a>, mtu: usize) -> Option<Fragments<'a>> {
    if !packet.is_v4() || packet.dont_fragment {
        return None;
    }
    let (header, rest) = packet.bytes.split_at_checked(packet.transport)?;
    let step = mtu.checked_sub(header.len())? & !7;
    let [_, _, _, _, _, _, f0, f1, ..] = *header else { return None };
    let field = u16::from_be_bytes([f0, f1]);
    if step == 0 {
        return None;
    }
    let (offset, more) = (usize::from(field & 0x1fff), field & 0x2000 != 0);
    Some(Fragments { header, rest, step, offset, more })
}

impl<'a> Iterator for Fragments<'a> {
    type Item = Fragment<'a>;

    fn next(&mut self) -> Option<Fragment<'a>> {
        if self.rest.is_empty() {
            return None;
        }
        let (payload, rest) = self.rest.split_at_checked(self.step).unwrap_or((self.rest, &[]));
        self.rest = rest;
        let more = self.more || !rest.is_empty();
        let field = (self.offset & 0x1fff) as u16 | if more { 0x2000 } else { 0 };
        let mut header = [0; MAX_HEADER];
        let header_len = self.header.len();
        header.get_mut(..header_len)?.copy_from_slice(self.header);
        if self.offset > 0 {
            drop_options(header.get_mut(20..header_len)?);
        }
        let len = header_len.saturating_add(payload.len()) as u16;
        [header[2], header[3]] = len.to_be_bytes();
        [header[6], header[7]] = field.to_be_bytes();
        [header[10], header[11]] = [0, 0];
        let sum = Sum::new().bytes(header.get(..header_len)?).checksum();
        [header[10], header[11]] = sum.to_be_bytes();
        self.offset = self.offset.saturating_add(payload.len() / 8);
        Some(Fragment { header, header_len, payload })
    }
}

/// Replaces options that are for the first fragment only by "no operation".
fn drop_options(mut options: &mut [u8]) {
    const END: u8 = 0;
    const NO_OPERATION: u8 = 1;
    const COPIED: u8 = 0x80;
    while let Some(&kind) = options.first() {
        let len = match kind {
            END => return,
            NO_OPERATION => 1,
            _ => options.get(1).map_or(0, |len| usize::from(*len)),
        };
        // An option that lies about its length ends the search; the receiver will see the same.
        let Some((option, rest)) = options.split_at_mut_checked(len) else { return };
        if len == 0 || (len == 1 && kind != NO_OPERATION) {
            return;
        }
        if kind & COPIED == 0 {
            option.fill(NO_OPERATION);
        }
        options = rest;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ip::tests::v4;
    use quicket_testing::Rng;
    use std::vec::Vec;

    #[test]
    fn the_parts_are_the_whole_and_each_fits() {
        let mut rng = Rng::new(6);
        for _ in 0..500 {
            let mut bytes = v4(17, 9, 0, &rng.bytes_up_to(4000));
            bytes[6] = 0;
            let packet = Packet::parse(&bytes).unwrap();
            let mtu = 68 + rng.below(1500) as usize;
            let (mut whole, packet_len) = (Vec::<u8>::new(), packet.payload().len());
            for fragment in fragments(&packet, mtu).unwrap() {
                let mut bytes = fragment.header().to_vec();
                bytes.extend(fragment.payload);
                assert!(bytes.len() <= mtu);
                assert!(Sum::new().bytes(fragment.header()).is_intact());
                let packet = Packet::parse(&bytes).unwrap();
                assert_eq!(packet.bytes.len(), bytes.len());
                let field = u16::from_be_bytes([bytes[6], bytes[7]]);
                assert_eq!(usize::from(field & 0x1fff) * 8, whole.len());
                whole.extend(fragment.payload);
                let last = packet_len == whole.len();
                assert_eq!(field & 0x2000 == 0, last);
            }
            assert_eq!(whole, packet.payload());
        }
    }

    #[test]
    fn what_may_not_be_split_is_not() {
        let bytes = v4(17, 9, 0, &[0; 100]);
        assert!(fragments(&Packet::parse(&bytes).unwrap(), 68).is_none(), "Don't Fragment");
        let mut bytes = bytes;
        bytes[6] = 0;
        assert!(fragments(&Packet::parse(&bytes).unwrap(), 20).is_none(), "no room");
    }

    #[test]
    fn options_for_the_first_fragment_stay_there() {
        let mut options = [0x07, 3, 4, 0x88, 4, 1, 2, 1, 0x44, 9];
        drop_options(&mut options);
        assert_eq!(options, [1, 1, 1, 0x88, 4, 1, 2, 1, 0x44, 9]);
        drop_options(&mut [0x07, 0]);
    }
}
