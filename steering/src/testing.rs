//! What the tests of several files use.

use alloc::vec::Vec;

use aws_lc_rs::cipher::{
    AES_128, DecryptingKey, DecryptionContext, EncryptingKey, UnboundCipherKey,
};

use crate::{Block, BlockCipher};

pub(crate) fn hex(digits: &str) -> Vec<u8> {
    assert_eq!(digits.len() % 2, 0);
    (0..digits.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap())
        .collect()
}

/// AES-128 by aws-lc-rs.
#[derive(Debug)]
pub(crate) struct Aes {
    encrypting: EncryptingKey,
    decrypting: DecryptingKey,
}

impl Aes {
    pub(crate) fn new(key: &str) -> Self {
        let key = hex(key);
        let unbound = || UnboundCipherKey::new(&AES_128, &key).unwrap();
        Self {
            encrypting: EncryptingKey::ecb(unbound()).unwrap(),
            decrypting: DecryptingKey::ecb(unbound()).unwrap(),
        }
    }
}

impl BlockCipher for Aes {
    fn encrypt(&self, block: &mut Block) {
        self.encrypting.encrypt(block).unwrap();
    }

    fn decrypt(&self, block: &mut Block) {
        self.decrypting.decrypt(block, DecryptionContext::None).unwrap();
    }
}

/// A tiny xorshift generator.
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub(crate) fn fill(&mut self, out: &mut [u8]) {
        for byte in out {
            *byte = (self.next() >> 32) as u8;
        }
    }

    pub(crate) fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = alloc::vec![0; len];
        self.fill(&mut bytes);
        bytes
    }
}
