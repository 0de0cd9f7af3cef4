//! Generic Routing Encapsulation (RFC 2784) with key and sequence number (RFC 2890).

use crate::{DecodeError, Full, Sum};

/// The longest header.
pub const MAX_GRE_LEN: usize = 16;

const CHECKSUM: u16 = 0x8000;
const KEY: u16 = 0x2000;
const SEQUENCE: u16 = 0x1000;
/// Bits 1, 4 and 5: of the first five reserved bits those that RFC 2890 does not use. A receiver
/// discards what has them set (RFC 2784, Section 2.3).
const FORBIDDEN: u16 = 0x4c00;
const VERSION: u16 = 0x0007;

/// A header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gre {
    /// The EtherType of what follows.
    pub protocol: u16,
    /// Whether there is a checksum of header and payload.
    pub checksum: bool,
    /// The key: which tunnel of the two hosts.
    pub key: Option<u32>,
    /// The sequence number.
    pub sequence: Option<u32>,
}

impl Gre {
    /// EtherType of IPv4.
    pub const IPV4: u16 = 0x0800;
    /// EtherType of IPv6.
    pub const IPV6: u16 = 0x86dd;
    /// EtherType of frames of Ethernet (transparent Ethernet bridging).
    pub const ETHERNET: u16 = 0x6558;

    /// Reads a header; a checksum that is there is verified. Returns what follows, too.
    pub fn decode(bytes: &[u8]) -> Result<(Self, &[u8]), DecodeError> {
        let (first, mut rest) = bytes.split_first_chunk::<4>().ok_or(DecodeError::Truncated)?;
        let [f0, f1, p0, p1] = *first;
        let flags = u16::from_be_bytes([f0, f1]);
        if flags & VERSION != 0 {
            return Err(DecodeError::InvalidValue("unknown version of GRE"));
        }
        if flags & FORBIDDEN != 0 {
            return Err(DecodeError::InvalidValue("GRE with source routing or reserved bits"));
        }
        let mut word = || {
            let (word, tail) = rest.split_first_chunk::<4>().ok_or(DecodeError::Truncated)?;
            rest = tail;
            Ok(u32::from_be_bytes(*word))
        };
        let checksum = flags & CHECKSUM != 0;
        if checksum {
            word()?;
        }
        let key = if flags & KEY != 0 { Some(word()?) } else { None };
        let sequence = if flags & SEQUENCE != 0 { Some(word()?) } else { None };
        if checksum && !Sum::new().bytes(bytes).is_intact() {
            return Err(DecodeError::Checksum);
        }
        Ok((Self { protocol: u16::from_be_bytes([p0, p1]), checksum, key, sequence }, rest))
    }

    /// The header's length in bytes.
    #[must_use]
    pub const fn len(&self) -> usize {
        let checksum = if self.checksum { 4usize } else { 0 };
        let key = if self.key.is_some() { 4 } else { 0 };
        let sequence = if self.sequence.is_some() { 4 } else { 0 };
        checksum.saturating_add(key).saturating_add(sequence).saturating_add(4)
    }

    /// Whether the header has no bytes, which is never so.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        false
    }

    /// Writes the header to the front of `out`, and returns its length. `payload` is the sum of
    /// what follows; it is used if there is a checksum.
    pub fn encode(&self, out: &mut [u8], payload: Sum) -> Result<usize, Full> {
        let mut flags = 0;
        let mut words = [0u32; 3];
        let mut free = words.iter_mut();
        if self.checksum {
            flags |= CHECKSUM;
            // Filled in below.
            free.next();
        }
        for (value, flag) in [(self.key, KEY), (self.sequence, SEQUENCE)] {
            if let (Some(value), Some(word)) = (value, value.and_then(|_| free.next())) {
                flags |= flag;
                *word = value;
            }
        }
        let first = u32::from(flags) << 16 | u32::from(self.protocol);
        if self.checksum {
            let sum = words.iter().fold(payload.add_u32(first), |sum, word| sum.add_u32(*word));
            if let Some(word) = words.first_mut() {
                *word = u32::from(sum.checksum()) << 16;
            }
        }
        let out = out.get_mut(..self.len()).ok_or(Full)?;
        let (chunks, _) = out.as_chunks_mut::<4>();
        for (chunk, word) in chunks.iter_mut().zip(core::iter::once(&first).chain(&words)) {
            *chunk = word.to_be_bytes();
        }
        Ok(self.len())
    }
}

/// What a tunnel demands of received headers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GreRules {
    /// The key that must be there; without one none may be.
    pub key: Option<u32>,
    /// Whether there must be a checksum.
    pub checksum: bool,
    /// Whether packets out of sequence, and those without a number, are dropped.
    pub sequence: bool,
}

/// Why a header is not for a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GreMismatch {
    /// Another key, or none.
    Key,
    /// No checksum.
    Checksum,
    /// No sequence number, or one of the past.
    Sequence,
}

impl GreRules {
    /// Checks a header; `expected` is the sequence number that should come next.
    pub fn check(&self, gre: &Gre, expected: u32) -> Result<(), GreMismatch> {
        if gre.key != self.key {
            return Err(GreMismatch::Key);
        }
        if self.checksum && !gre.checksum {
            return Err(GreMismatch::Checksum);
        }
        if self.sequence && !gre.sequence.is_some_and(|number| in_sequence(number, expected)) {
            return Err(GreMismatch::Sequence);
        }
        Ok(())
    }
}

/// Whether a number is not of the past: at most 2^31 ahead (RFC 2890, Section 2.2).
#[must_use]
pub const fn in_sequence(number: u32, expected: u32) -> bool {
    number.wrapping_sub(expected) < 1 << 31
}

#[cfg(test)]
mod tests {
    use super::*;
    use quicket_testing::Rng;

    #[test]
    fn the_plain_header_is_four_bytes() {
        let gre = Gre { protocol: Gre::IPV4, checksum: false, key: None, sequence: None };
        let mut out = [0xee; 5];
        assert_eq!(gre.encode(&mut out, Sum::new()), Ok(4));
        assert_eq!(out, [0, 0, 8, 0, 0xee]);
        assert_eq!(Gre::decode(&out), Ok((gre, &[0xee][..])));
    }

    #[test]
    fn fields_come_in_the_order_of_rfc_2890() {
        let gre = Gre { protocol: Gre::IPV6, checksum: true, key: Some(7), sequence: Some(9) };
        let mut out = [0; 18];
        let payload = [0x60, 1];
        assert_eq!(gre.encode(&mut out, Sum::new().bytes(&payload)), Ok(16));
        out[16..].copy_from_slice(&payload);
        assert_eq!(out[..4], [0xb0, 0, 0x86, 0xdd]);
        assert_eq!(out[6..16], [0, 0, 0, 0, 0, 7, 0, 0, 0, 9]);
        assert_eq!(Gre::decode(&out), Ok((gre, &payload[..])));
        out[17] ^= 1;
        assert_eq!(Gre::decode(&out), Err(DecodeError::Checksum));
    }

    #[test]
    fn headers_survive_writing_and_reading_and_nothing_panics() {
        let mut rng = Rng::new(5);
        for _ in 0..20_000 {
            let payload = rng.bytes_up_to(60);
            let gre = Gre {
                protocol: rng.next() as u16,
                checksum: rng.below(2) == 0,
                key: (rng.below(2) == 0).then(|| rng.next() as u32),
                sequence: (rng.below(2) == 0).then(|| rng.next() as u32),
            };
            let mut out = [0; 80];
            let room = rng.below(17) as usize;
            let sum = Sum::new().bytes(&payload);
            assert_eq!(gre.encode(&mut out[..room], sum).is_ok(), room >= gre.len());
            let len = gre.encode(&mut out, sum).unwrap();
            out[len..len + payload.len()].copy_from_slice(&payload);
            assert_eq!(Gre::decode(&out[..len + payload.len()]), Ok((gre, &payload[..])));
            let _ = Gre::decode(&rng.bytes_up_to(30));
        }
    }

    #[test]
    fn reserved_bits_are_refused_or_ignored_as_rfc_2784_says() {
        for bit in 0..16 {
            let flags = (0x8000u16 >> bit).to_be_bytes();
            let header = [flags[0], flags[1], 8, 0, 0xff, 0xff, 0, 0, 0, 0, 0, 0];
            let refused = matches!(Gre::decode(&header), Err(DecodeError::InvalidValue(_)));
            assert_eq!(refused, matches!(bit, 1 | 4 | 5 | 13 | 14 | 15), "bit {bit}");
        }
    }

    #[test]
    fn a_tunnel_takes_only_what_it_was_told_to() {
        let gre = Gre { protocol: 0x800, checksum: false, key: Some(1), sequence: Some(5) };
        let rules = |key, checksum, sequence| GreRules { key, checksum, sequence };
        assert_eq!(rules(Some(1), false, true).check(&gre, 5), Ok(()));
        assert_eq!(rules(Some(1), false, true).check(&gre, 6), Err(GreMismatch::Sequence));
        assert_eq!(rules(None, false, false).check(&gre, 0), Err(GreMismatch::Key));
        assert_eq!(rules(Some(1), true, false).check(&gre, 0), Err(GreMismatch::Checksum));
        assert!(in_sequence(3, u32::MAX), "numbers wrap");
    }
}
