//! What streams carry in a simulation: bytes that follow from their position, so that a receiver
//! can check them without the sender.

use crate::rng::mix;

/// The content of one direction of one stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pattern(u64);

impl Pattern {
    /// The content named by `name`, such as the stream's ID and who sends.
    pub const fn new(name: u64) -> Self {
        Self(mix(name.wrapping_add(0x5eed)))
    }

    fn word(self, index: u64) -> [u8; 8] {
        mix(self.0.wrapping_add(index.wrapping_mul(0x9e37_79b9_7f4a_7c15))).to_le_bytes()
    }

    /// Writes the bytes from `offset` on.
    pub fn fill(self, offset: u64, out: &mut [u8]) {
        self.walk(offset, out.len(), |place, bytes| out[place].copy_from_slice(bytes));
    }

    /// Where `data`, which stands at `offset`, first differs from the content.
    pub fn first_difference(self, offset: u64, data: &[u8]) -> Option<u64> {
        let mut found = None;
        self.walk(offset, data.len(), |place, bytes| {
            if found.is_none() && data[place.clone()] != *bytes {
                let inner = data[place.clone()].iter().zip(bytes).position(|(a, b)| a != b);
                found = inner.map(|i| offset + (place.start + i) as u64);
            }
        });
        found
    }

    /// Calls `visit` with successive places of a buffer and the content there.
    fn walk(self, offset: u64, len: usize, mut visit: impl FnMut(std::ops::Range<usize>, &[u8])) {
        let mut place = 0;
        while place < len {
            let at = offset + place as u64;
            let inner = (at % 8) as usize;
            let take = (8 - inner).min(len - place);
            let word = self.word(at / 8);
            visit(place..place + take, &word[inner..inner + take]);
            place += take;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_does_not_depend_on_how_it_is_cut() {
        let pattern = Pattern::new(4);
        let mut whole = [0; 100];
        pattern.fill(0, &mut whole);
        for start in 0..20 {
            for end in start..100 {
                let mut piece = vec![0; end - start];
                pattern.fill(start as u64, &mut piece);
                assert_eq!(piece, whole[start..end]);
            }
        }
        assert_ne!(Pattern::new(5), pattern);
    }

    #[test]
    fn first_difference_is_found() {
        let pattern = Pattern::new(4);
        let mut data = [0; 50];
        pattern.fill(13, &mut data);
        assert_eq!(pattern.first_difference(13, &data), None);
        data[30] ^= 1;
        data[40] ^= 1;
        assert_eq!(pattern.first_difference(13, &data), Some(43));
        assert_eq!(pattern.first_difference(14, &data[1..]), Some(43));
    }
}
