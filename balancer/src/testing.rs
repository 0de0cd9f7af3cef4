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
