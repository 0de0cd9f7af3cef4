//! What the tests of several files use, those beside the crate among them.

use std::sync::Arc;

use quicket_steering::{Block, BlockCipher};

/// Enough of a cipher to tell keys apart; not secure.
#[derive(Debug)]
struct Toy([u8; 16]);

impl BlockCipher for Toy {
    fn encrypt(&self, block: &mut Block) {
        for (octet, key) in block.iter_mut().zip(self.0) {
            *octet = octet.wrapping_add(key).rotate_left(3);
        }
    }

    fn decrypt(&self, block: &mut Block) {
        for (octet, key) in block.iter_mut().zip(self.0) {
            *octet = octet.rotate_right(3).wrapping_sub(key);
        }
    }
}

pub(crate) fn toy_cipher(key: [u8; 16]) -> Arc<dyn BlockCipher> {
    Arc::new(Toy(key))
}

/// SplitMix64.
pub(crate) struct Rng(pub(crate) u64);

impl Rng {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, count: usize) -> usize {
        (self.next() % count as u64) as usize
    }

    pub(crate) fn fill(&mut self, out: &mut [u8]) {
        out.fill_with(|| self.next() as u8);
    }
}
