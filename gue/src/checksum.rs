//! The Internet checksum (RFC 1071).

use core::net::IpAddr;

/// A one's complement sum of 16-bit words under construction.
///
/// Parts are added in any order, as long as each begins at an even distance from the others.
///
/// Words are added as the machine holds them and swapped once in the end, which RFC 1071,
/// Section 2(B) allows. 2^30 words can be added before it overflows, which no packet has.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sum(u64);

impl Sum {
    /// The sum of nothing.
    #[must_use]
    pub const fn new() -> Self {
        Self(0)
    }

    /// Adds bytes; an odd one at the end counts as if a zero byte followed.
    #[inline]
    #[must_use]
    pub fn bytes(self, bytes: &[u8]) -> Self {
        let (blocks, rest) = bytes.as_chunks::<32>();
        let mut sum = self.0;
        if !blocks.is_empty() {
            // Sums that do not wait for each other; each word adds less than 2^32.
            let mut sums = [0u64; 8];
            for block in blocks {
                let (words, _) = block.as_chunks::<4>();
                for (sum, word) in sums.iter_mut().zip(words) {
                    *sum = sum.wrapping_add(u64::from(u32::from_ne_bytes(*word)));
                }
            }
            sum = sums.iter().fold(sum, |all, sum| all.wrapping_add(*sum));
        }
        // Less than 32, without loops: most headers, and the shortest packets, have no more.
        let mut rest = rest;
        if let Some((longs, tail)) = rest.split_first_chunk::<16>() {
            let [first @ .., _, _, _, _, _, _, _, _] = *longs;
            let [_, _, _, _, _, _, _, _, second @ ..] = *longs;
            sum = add_long(add_long(sum, first), second);
            rest = tail;
        }
        if let Some((long, tail)) = rest.split_first_chunk() {
            sum = add_long(sum, *long);
            rest = tail;
        }
        if let Some((word, tail)) = rest.split_first_chunk() {
            sum = sum.wrapping_add(u64::from(u32::from_ne_bytes(*word)));
            rest = tail;
        }
        if let Some((pair, tail)) = rest.split_first_chunk() {
            sum = sum.wrapping_add(u64::from(u16::from_ne_bytes(*pair)));
            rest = tail;
        }
        if let [last] = rest {
            sum = sum.wrapping_add(u64::from(u16::from_ne_bytes([*last, 0])));
        }
        Self(sum)
    }

    /// Adds a word.
    #[inline]
    #[must_use]
    pub const fn add_u16(self, word: u16) -> Self {
        Self(self.0.wrapping_add(word.to_be() as u64))
    }

    /// Adds two words.
    #[inline]
    #[must_use]
    pub const fn add_u32(self, words: u32) -> Self {
        Self(self.0.wrapping_add(words.to_be() as u64))
    }

    /// Adds another sum.
    #[inline]
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self(self.0.wrapping_add(fold(other.0) as u64))
    }

    /// Takes a word out that was added before.
    #[inline]
    #[must_use]
    pub const fn without(self, word: u16) -> Self {
        self.add_u16(!word)
    }

    /// The sum in 16 bits.
    #[inline]
    #[must_use]
    pub const fn folded(self) -> u16 {
        fold(self.0).to_be()
    }

    /// The checksum: the complement of the sum.
    #[inline]
    #[must_use]
    pub const fn checksum(self) -> u16 {
        !self.folded()
    }

    /// Whether the sum of data that include their checksum says that they are intact.
    #[inline]
    #[must_use]
    pub const fn is_intact(self) -> bool {
        // The same in both orders.
        fold(self.0) == 0xffff
    }
}

/// Adds both halves: less than 2^33.
#[inline]
const fn add_long(sum: u64, long: [u8; 8]) -> u64 {
    let long = u64::from_ne_bytes(long);
    sum.wrapping_add(long >> 32).wrapping_add(long & 0xffff_ffff)
}

/// The same sum in 16 bits: carries are added to what they are carried out of.
///
/// Adding both halves to each other at once has the carry of the lower sum in the upper one, where it belongs.
const fn fold(sum: u64) -> u16 {
    let sum = (sum.wrapping_add(sum.rotate_right(32)) >> 32) as u32;
    (sum.wrapping_add(sum.rotate_right(16)) >> 16) as u16
}

/// The sum of the pseudo-header of TCP and UDP (RFC 9293, Section 3.1; RFC 8200, Section 8.1).
#[must_use]
pub fn pseudo_header(source: IpAddr, destination: IpAddr, protocol: u8, len: u32) -> Sum {
    let sum = Sum::new().add_u16(u16::from(protocol)).add_u32(len);
    [source, destination].iter().fold(sum, |sum, address| match address {
        IpAddr::V4(address) => sum.bytes(&address.octets()),
        IpAddr::V6(address) => sum.bytes(&address.octets()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use quicket_testing::Rng;

    /// Word by word, as RFC 1071 has it.
    fn plain(bytes: &[u8]) -> u16 {
        let mut sum = 0u32;
        for pair in bytes.chunks(2) {
            sum += u32::from(u16::from_be_bytes([pair[0], *pair.get(1).unwrap_or(&0)]));
            sum = (sum & 0xffff) + (sum >> 16);
        }
        sum as u16
    }

    #[test]
    fn the_example_of_rfc_1071_comes_out() {
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(Sum::new().bytes(&bytes).folded(), 0xddf2);
        assert_eq!(Sum::new().bytes(&bytes).checksum(), 0x220d);
    }

    #[test]
    fn wide_words_add_up_to_what_words_do() {
        let mut rng = Rng::new(1);
        for _ in 0..2000 {
            let bytes = rng.bytes_up_to(3000);
            assert_eq!(Sum::new().bytes(&bytes).folded(), plain(&bytes));
            let at = (rng.below(bytes.len() as u64 + 1) & !1) as usize;
            let (a, b) = bytes.split_at(at);
            assert_eq!(Sum::new().bytes(b).bytes(a).folded(), plain(&bytes));
        }
        assert_eq!(Sum::new().bytes(&[0xff; 65536]).folded(), 0xffff);
    }

    #[test]
    fn what_was_added_can_be_taken_out() {
        let sum = Sum::new().bytes(&[0x12, 0x34, 0x56, 0x78]);
        assert_eq!(sum.without(0x5678).folded(), 0x1234);
        assert!(sum.add_u16(sum.checksum()).is_intact());
    }
}
