//! AES-128 on single blocks, for connection IDs that load balancers route.

use std::fmt;

use aws_lc_rs::cipher::{
    AES_128, DecryptingKey, DecryptionContext, EncryptingKey, UnboundCipherKey,
};
use quicket_steering::{Block, BlockCipher};

/// AES-128 with a key, by AWS-LC. It shows its key to nobody.
pub struct Aes128 {
    encrypting: EncryptingKey,
    decrypting: DecryptingKey,
}

impl Aes128 {
    /// A cipher with this key.
    #[must_use]
    pub fn new(key: &[u8; 16]) -> Self {
        let unbound = || UnboundCipherKey::new(&AES_128, key).expect("a key of 16 octets");
        Self {
            encrypting: EncryptingKey::ecb(unbound()).expect("AES-128 has this mode"),
            decrypting: DecryptingKey::ecb(unbound()).expect("AES-128 has this mode"),
        }
    }
}

impl fmt::Debug for Aes128 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Aes128")
    }
}

impl BlockCipher for Aes128 {
    fn encrypt(&self, block: &mut Block) {
        self.encrypting.encrypt(block).expect("one whole block");
    }

    fn decrypt(&self, block: &mut Block) {
        self.decrypting.decrypt(block, DecryptionContext::None).expect("one whole block");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// FIPS 197, Appendix C.1.
    #[test]
    fn blocks_are_enciphered_as_fips_197_shows() {
        let key: [u8; 16] = std::array::from_fn(|n| n as u8);
        let plain: Block = std::array::from_fn(|n| (n * 0x11) as u8);
        let mut block = plain;
        let cipher = Aes128::new(&key);
        cipher.encrypt(&mut block);
        assert_eq!(u128::from_be_bytes(block), 0x69c4_e0d8_6a7b_0430_d8cd_b780_70b4_c55a);
        cipher.decrypt(&mut block);
        assert_eq!(block, plain);
    }

    #[test]
    fn a_key_is_not_printed() {
        assert_eq!(format!("{:?}", Aes128::new(&[7; 16])), "Aes128");
    }
}
