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
