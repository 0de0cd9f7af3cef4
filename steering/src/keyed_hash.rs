//! HalfSipHash-1-3, a keyed hash of 32-bit additions, rotations and exclusive ors.
//!
//! A classic BPF program has 32-bit arithmetic and no loops, an extended one has no ciphers; both
//! can compute this hash over a connection ID. Linux has the same function as `hsiphash` on 32-bit
//! machines. Source: Aumasson and Bernstein, "SipHash: a fast short-input PRF", and their
//! reference implementation of the half-width variant.

use core::fmt;

/// The key of a keyed hash: 64 bits.
///
/// Shown to nobody; its `Debug` form has no digit of it.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct HashKey([u32; 2]);

impl HashKey {
    /// A key of eight octets.
    #[must_use]
    pub const fn new(octets: [u8; 8]) -> Self {
        let [a, b, c, d, e, f, g, h] = octets;
        Self([u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h])])
    }

    /// What goes into the state before the last rounds.
    pub const FINAL: u32 = 0xff;
    /// How many rounds follow the input.
    pub const FINAL_ROUNDS: usize = 3;

    /// The state before any input, which is as secret as the key: for a BPF program.
    #[must_use]
    pub const fn initial_state(&self) -> [u32; 4] {
        let [k0, k1] = self.0;
        [k0, k1, 0x6c79_6765 ^ k0, 0x7465_6462 ^ k1]
    }

    /// The hash of `input`, of which the length counts modulo 256.
    #[must_use]
    pub fn hash(&self, input: &[u8]) -> u32 {
        let mut state = State(self.initial_state());
        let mut words = input.chunks_exact(4);
        for word in words.by_ref() {
            if let Ok(word) = <[u8; 4]>::try_from(word) {
                state.absorb(u32::from_le_bytes(word));
            }
        }
        let mut last = [0; 4];
        for (to, from) in last.iter_mut().zip(words.remainder()) {
            *to = *from;
        }
        last[3] = (input.len() % 256) as u8;
        state.absorb(u32::from_le_bytes(last));
        state.finish()
    }
}

impl fmt::Debug for HashKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HashKey")
    }
}

struct State([u32; 4]);

impl State {
    fn absorb(&mut self, word: u32) {
        self.0[3] ^= word;
        self.round();
        self.0[0] ^= word;
    }

    fn finish(mut self) -> u32 {
        self.0[2] ^= HashKey::FINAL;
        for _ in 0..HashKey::FINAL_ROUNDS {
            self.round();
        }
        self.0[1] ^ self.0[3]
    }

    fn round(&mut self) {
        let [mut v0, mut v1, mut v2, mut v3] = self.0;
        v0 = v0.wrapping_add(v1);
        v1 = v1.rotate_left(5) ^ v0;
        v0 = v0.rotate_left(16);
        v2 = v2.wrapping_add(v3);
        v3 = v3.rotate_left(8) ^ v2;
        v0 = v0.wrapping_add(v3);
        v3 = v3.rotate_left(7) ^ v0;
        v2 = v2.wrapping_add(v1);
        v1 = v1.rotate_left(13) ^ v2;
        v2 = v2.rotate_left(16);
        self.0 = [v0, v1, v2, v3];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What Linux expects of `hsiphash` on 32-bit machines: entry n is the hash of the octets
    /// 0 to n - 1 under the key 00 01 .. 07.
    const KNOWN: [u32; 24] = [
        0x5814_c896,
        0xe7e8_64ca,
        0xbc4b_0e30,
        0x0153_9939,
        0x7e05_9ea6,
        0x88e3_d89b,
        0xa008_0b65,
        0x9d38_d9d6,
        0x5779_99b1,
        0xc839_caed,
        0xe4fa_32cf,
        0x9592_46ee,
        0x6b28_096c,
        0x66dd_9cd6,
        0x1665_8a7c,
        0xd025_7b04,
        0x8b31_d501,
        0x2b1c_d04b,
        0x0671_2339,
        0x522a_ca67,
        0x911b_b605,
        0x90a6_5f0e,
        0xf826_ef7b,
        0x6251_2deb,
    ];

    #[test]
    fn hashes_are_those_of_the_linux_kernel() {
        let key = HashKey::new([0, 1, 2, 3, 4, 5, 6, 7]);
        let input: [u8; 24] = core::array::from_fn(|n| n as u8);
        for (len, known) in KNOWN.iter().enumerate() {
            assert_eq!(key.hash(&input[..len]), *known, "of {len} octets");
        }
    }

    #[test]
    fn a_key_is_not_printed() {
        let printed = alloc::format!("{:?}", HashKey::new([0x5a; 8]));
        assert_eq!(printed, "HashKey");
    }
}
