//! A fast keyed hash for the pretended cryptography of simulations. It finds every accident and
//! withstands no attacker.

use crate::rng::mix;

const ODD: u64 = 0x9e37_79b9_7f4a_7c15;

/// Absorbs bytes and gives digests.
#[derive(Clone, Debug)]
pub(crate) struct KeyedHash {
    lanes: [u64; 2],
    len: u64,
}

impl KeyedHash {
    pub(crate) fn new(key: u64) -> Self {
        Self { lanes: [mix(key ^ ODD), mix(key.rotate_left(32).wrapping_add(ODD))], len: 0 }
    }

    /// A hash keyed by bytes, for purposes told apart by `label`.
    pub(crate) fn labelled(label: &str, key: &[u8]) -> Self {
        let mut hash = Self::new(0);
        hash.field(label.as_bytes());
        hash.field(key);
        hash
    }

    /// Absorbs `bytes`. Each step is a bijection of the state, so that one changed word always
    /// changes the digest.
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        let mut words = bytes.chunks_exact(8);
        for word in words.by_ref() {
            self.word(u64::from_le_bytes(word.try_into().unwrap_or_default()));
        }
        let rest = words.remainder();
        if !rest.is_empty() {
            let mut last = [0; 8];
            last[..rest.len()].copy_from_slice(rest);
            self.word(u64::from_le_bytes(last));
        }
        self.len += bytes.len() as u64;
    }

    /// Absorbs `bytes` with their length, so that fields cannot run into each other.
    pub(crate) fn field(&mut self, bytes: &[u8]) {
        self.word(bytes.len() as u64);
        self.add(bytes);
    }

    pub(crate) fn word(&mut self, word: u64) {
        let [a, b] = &mut self.lanes;
        *a = (*a ^ word).wrapping_mul(ODD).rotate_left(29);
        *b = b.wrapping_add(word).wrapping_mul(0xd134_2543_de82_ef95).rotate_left(37) ^ *a;
    }

    /// Fills `out` with the digest of all absorbed so far.
    pub(crate) fn fill(&self, out: &mut [u8]) {
        let [a, b] = self.lanes;
        for (i, chunk) in out.chunks_mut(8).enumerate() {
            let step = (i as u64 + 1).wrapping_mul(ODD);
            let word = mix(a ^ mix(b.wrapping_add(step) ^ self.len)).to_le_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
    }

    pub(crate) fn digest<const N: usize>(&self) -> [u8; N] {
        let mut out = [0; N];
        self.fill(&mut out);
        out
    }

    pub(crate) fn digest_u64(&self) -> u64 {
        u64::from_le_bytes(self.digest())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bit_and_the_length_count() {
        let digest = |bytes: &[u8]| {
            let mut hash = KeyedHash::new(7);
            hash.add(bytes);
            hash.digest::<16>()
        };
        let base = vec![0; 100];
        for bit in 0..800 {
            let mut other = base.clone();
            other[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(digest(&base), digest(&other), "bit {bit}");
        }
        assert_ne!(digest(&base), digest(&base[..99]));
        assert_ne!(digest(&[]), digest(&[0]));
    }

    #[test]
    fn fields_do_not_run_into_each_other() {
        let digest = |a: &[u8], b: &[u8]| {
            let mut hash = KeyedHash::labelled("x", &[]);
            hash.field(a);
            hash.field(b);
            hash.digest_u64()
        };
        assert_ne!(digest(b"ab", b"c"), digest(b"a", b"bc"));
    }
}
