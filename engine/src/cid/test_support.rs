//! Randomness and cryptography for unit tests: repeatable, and weak.

use alloc::boxed::Box;

use quicket_wire::{ConnectionId, Side, Version};

use crate::crypto::{CipherError, CryptoProvider, HeaderKey, PacketKey, Secret, TAG_LEN};
use crate::random::Random;

/// SplitMix64.
pub(crate) struct TestRandom(u64);

impl TestRandom {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

impl Random for TestRandom {
    fn fill(&mut self, out: &mut [u8]) {
        for chunk in out.chunks_mut(8) {
            let bytes = self.next().to_le_bytes();
            chunk.copy_from_slice(&bytes[..chunk.len()]);
        }
    }

    fn fork(&mut self) -> Box<dyn Random> {
        Box::new(Self(self.next()))
    }
}

/// Hashes and seals by FNV-1a: enough to tell keys and contents apart, no secret of any kind.
pub(crate) struct TestCrypto;

fn hash(seed: u8, key: &[u8], data: &[u8]) -> u64 {
    let start = 0xcbf2_9ce4_8422_2325 ^ u64::from(seed);
    let mix = |h: u64, b: &u8| (h ^ u64::from(*b)).wrapping_mul(0x100_0000_01b3).rotate_left(9);
    key.iter().chain(data).fold(start, mix)
}

impl CryptoProvider for TestCrypto {
    fn initial_secrets(&self, _: Version, _: &ConnectionId, _: Side) -> (Secret, Secret) {
        unreachable!("no test here needs packet protection")
    }

    fn packet_key(&self, _: Version, _: &Secret) -> Box<dyn PacketKey> {
        unreachable!("no test here needs packet protection")
    }

    fn header_key(&self, _: Version, _: &Secret) -> Box<dyn HeaderKey> {
        unreachable!("no test here needs packet protection")
    }

    fn next_secret(&self, _: Version, _: &Secret) -> Secret {
        unreachable!("no test here needs packet protection")
    }

    fn retry_tag(&self, _: Version, _: &ConnectionId, _: &[u8]) -> [u8; TAG_LEN] {
        unreachable!("no test here needs packet protection")
    }

    fn seal_token(
        &self,
        key: &[u8; 32],
        nonce: &[u8; 12],
        buf: &mut [u8],
    ) -> Result<(), CipherError> {
        let (plain, tag) = buf.split_last_chunk_mut::<TAG_LEN>().ok_or(CipherError::Failed)?;
        let keyed = hash(1, key, nonce);
        plain.iter_mut().for_each(|b| *b ^= keyed as u8);
        tag[..8].copy_from_slice(&(hash(2, key, plain) ^ keyed).to_le_bytes());
        tag[8..].copy_from_slice(&(hash(3, key, plain) ^ keyed).to_le_bytes());
        Ok(())
    }

    fn open_token(
        &self,
        key: &[u8; 32],
        nonce: &[u8; 12],
        buf: &mut [u8],
    ) -> Result<usize, CipherError> {
        let (sealed, tag) = buf.split_last_chunk_mut::<TAG_LEN>().ok_or(CipherError::Failed)?;
        let keyed = hash(1, key, nonce);
        let good = tag[..8] == (hash(2, key, sealed) ^ keyed).to_le_bytes()
            && tag[8..] == (hash(3, key, sealed) ^ keyed).to_le_bytes();
        sealed.iter_mut().for_each(|b| *b ^= keyed as u8);
        if good { Ok(sealed.len()) } else { Err(CipherError::Failed) }
    }

    fn keyed_hash(&self, key: &[u8; 32], data: &[u8]) -> [u8; 32] {
        let mut out = [0; 32];
        for (n, chunk) in out.chunks_mut(8).enumerate() {
            chunk.copy_from_slice(&hash(n as u8 + 4, key, data).to_le_bytes());
        }
        out
    }

    fn constant_time_eq(&self, a: &[u8], b: &[u8]) -> bool {
        a == b
    }
}
