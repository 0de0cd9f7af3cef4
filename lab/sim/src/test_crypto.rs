//! Pretended packet protection: fast and deterministic, without secrecy, but as strict as the real
//! one. A packet that was changed, sealed with another key, number or version, or sent to another
//! connection does not open.

use quicket_engine::crypto::{
    Aead, CipherError, CryptoProvider, HEADER_SAMPLE_LEN, HeaderKey, OpenJob, PacketKey, SealJob,
    Secret, TAG_LEN,
};
use quicket_wire::{ConnectionId, Side, Version};

use crate::keyed_hash::KeyedHash;
use crate::rng::mix;

/// Packet protection for simulations: a keyed XOR stream and a keyed checksum.
#[derive(Clone, Copy, Debug, Default)]
pub struct TestCrypto;

#[derive(Clone, Copy, Debug)]
struct TestKey(u64);

impl TestKey {
    fn tag(self, nonce: u64, aad: &[u8], ciphertext: &[u8]) -> [u8; TAG_LEN] {
        let mut hash = KeyedHash::new(self.0.rotate_left(1) ^ mix(nonce));
        hash.field(aad);
        hash.field(ciphertext);
        hash.digest()
    }

    fn xor(self, nonce: u64, data: &mut [u8]) {
        let mut stream = mix(self.0 ^ mix(!nonce));
        let mut words = data.chunks_exact_mut(8);
        let mut next = || {
            stream = stream.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            stream ^ (stream >> 29)
        };
        for word in words.by_ref() {
            let plain = u64::from_le_bytes((&*word).try_into().unwrap_or_default());
            word.copy_from_slice(&(plain ^ next()).to_le_bytes());
        }
        let last = next().to_le_bytes();
        for (byte, key) in words.into_remainder().iter_mut().zip(last) {
            *byte ^= key;
        }
    }

    fn seal_at(self, nonce: u64, header_len: usize, packet: &mut [u8]) -> Result<(), CipherError> {
        let end = packet.len().checked_sub(TAG_LEN).ok_or(CipherError::Failed)?;
        let (body, tag) = packet.split_at_mut(end);
        let (header, text) = body.split_at_mut_checked(header_len).ok_or(CipherError::Failed)?;
        self.xor(nonce, text);
        tag.copy_from_slice(&self.tag(nonce, header, text));
        Ok(())
    }

    fn open_at(
        self,
        nonce: u64,
        header_len: usize,
        packet: &mut [u8],
    ) -> Result<usize, CipherError> {
        let end = packet.len().checked_sub(TAG_LEN).ok_or(CipherError::Failed)?;
        let (body, tag) = packet.split_at_mut(end);
        let (header, text) = body.split_at_mut_checked(header_len).ok_or(CipherError::Failed)?;
        if self.tag(nonce, header, text) != *tag {
            return Err(CipherError::Failed);
        }
        self.xor(nonce, text);
        Ok(text.len())
    }
}

impl PacketKey for TestKey {
    fn seal(&self, job: &mut SealJob<'_>) -> Result<(), CipherError> {
        self.seal_at(job.packet_number, job.header_len, job.packet)
    }

    fn seals_apart(&self) -> bool {
        true
    }

    fn open(&self, job: &mut OpenJob<'_>) -> Result<usize, CipherError> {
        self.open_at(job.packet_number, job.header_len, job.packet)
    }
}

impl HeaderKey for TestKey {
    fn mask(&self, sample: &[u8; HEADER_SAMPLE_LEN]) -> [u8; 5] {
        let mut hash = KeyedHash::new(self.0);
        hash.add(sample);
        hash.digest()
    }
}

fn derive(label: &str, version: Version, secret: &Secret) -> u64 {
    let mut hash = KeyedHash::labelled(label, secret.as_bytes());
    hash.word(u64::from(version.0));
    hash.digest_u64()
}

/// A secret of `aead`'s length made from all that `hash` absorbed.
pub(crate) fn secret(aead: Aead, hash: &KeyedHash) -> Secret {
    let bytes: [u8; 48] = hash.digest();
    Secret::new(aead, &bytes[..aead.secret_len()]).expect("the length is the suite's")
}

fn token_nonce(nonce: &[u8; 12]) -> u64 {
    let mut hash = KeyedHash::new(1);
    hash.add(nonce);
    hash.digest_u64()
}

fn token_key(key: &[u8; 32]) -> TestKey {
    TestKey(KeyedHash::labelled("token", key).digest_u64())
}

impl CryptoProvider for TestCrypto {
    fn initial_secrets(
        &self,
        version: Version,
        dcid: &ConnectionId,
        side: Side,
    ) -> (Secret, Secret) {
        let of = |sender: Side| {
            let label = if sender.is_client() { "client initial" } else { "server initial" };
            let mut hash = KeyedHash::labelled(label, dcid.as_slice());
            hash.word(u64::from(version.0));
            secret(Aead::Aes128Gcm, &hash)
        };
        (of(side.peer()), of(side))
    }

    fn packet_key(&self, version: Version, secret: &Secret) -> Box<dyn PacketKey> {
        Box::new(TestKey(derive("key", version, secret)))
    }

    fn header_key(&self, version: Version, secret: &Secret) -> Box<dyn HeaderKey> {
        Box::new(TestKey(derive("hp", version, secret)))
    }

    fn next_secret(&self, version: Version, current: &Secret) -> Secret {
        let mut hash = KeyedHash::labelled("ku", current.as_bytes());
        hash.word(u64::from(version.0));
        secret(current.aead(), &hash)
    }

    fn retry_tag(
        &self,
        version: Version,
        original_dcid: &ConnectionId,
        packet: &[u8],
    ) -> [u8; TAG_LEN] {
        let mut hash = KeyedHash::labelled("retry", original_dcid.as_slice());
        hash.word(u64::from(version.0));
        hash.field(packet);
        hash.digest()
    }

    fn seal_token(
        &self,
        key: &[u8; 32],
        nonce: &[u8; 12],
        buf: &mut [u8],
    ) -> Result<(), CipherError> {
        token_key(key).seal_at(token_nonce(nonce), 0, buf)
    }

    fn open_token(
        &self,
        key: &[u8; 32],
        nonce: &[u8; 12],
        buf: &mut [u8],
    ) -> Result<usize, CipherError> {
        token_key(key).open_at(token_nonce(nonce), 0, buf)
    }

    fn keyed_hash(&self, key: &[u8; 32], data: &[u8]) -> [u8; 32] {
        let mut hash = KeyedHash::labelled("hash", key);
        hash.field(data);
        hash.digest()
    }

    fn constant_time_eq(&self, a: &[u8], b: &[u8]) -> bool {
        a.len() == b.len() && a.iter().zip(b).fold(0, |acc, (x, y)| acc | (x ^ y)) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(version: Version, dcid: &[u8]) -> Box<dyn PacketKey> {
        let dcid = ConnectionId::new(dcid).unwrap();
        let (_, send) = TestCrypto.initial_secrets(version, &dcid, Side::Client);
        TestCrypto.packet_key(version, &send)
    }

    fn sealed(key: &dyn PacketKey, number: u64) -> Vec<u8> {
        let mut packet: Vec<u8> = (0..117).collect();
        key.seal(&mut SealJob { packet_number: number, header_len: 20, packet: &mut packet })
            .unwrap();
        packet
    }

    fn open(key: &dyn PacketKey, number: u64, packet: &mut [u8]) -> Result<usize, CipherError> {
        key.open(&mut OpenJob { packet_number: number, header_len: 20, packet })
    }

    #[test]
    fn sealed_packets_open_and_changed_ones_do_not() {
        let key = key(Version::V1, b"12345678");
        let packet = sealed(&*key, 5);
        let mut whole = packet.clone();
        assert_eq!(open(&*key, 5, &mut whole), Ok(81));
        assert!(whole[..101].iter().copied().eq(0..101));
        assert_ne!(packet[20..101], whole[20..101], "the text is hidden");
        for bit in 0..packet.len() * 8 {
            let mut changed = packet.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(open(&*key, 5, &mut changed), Err(CipherError::Failed), "bit {bit}");
        }
        assert!(open(&*key, 6, &mut packet.clone()).is_err(), "another packet number");
        assert!(open(&*key, 5, &mut packet.clone()[..100]).is_err(), "cut off");
        assert!(open(&*key, 5, &mut [0; 20]).is_err(), "shorter than header and tag");
    }

    #[test]
    fn keys_depend_on_connection_version_side_and_phase() {
        let packet = sealed(&*key(Version::V1, b"12345678"), 0);
        for (version, dcid) in [(Version::V1, b"12345679"), (Version::V2, b"12345678")] {
            assert!(open(&*key(version, dcid), 0, &mut packet.clone()).is_err());
        }
        let dcid = ConnectionId::new(b"12345678").unwrap();
        let (server_receive, server_send) =
            TestCrypto.initial_secrets(Version::V1, &dcid, Side::Server);
        let received = TestCrypto.packet_key(Version::V1, &server_receive);
        assert!(open(&*received, 0, &mut packet.clone()).is_ok());
        for other in [server_send, TestCrypto.next_secret(Version::V1, &server_receive)] {
            let key = TestCrypto.packet_key(Version::V1, &other);
            assert!(open(&*key, 0, &mut packet.clone()).is_err());
        }
    }

    #[test]
    fn tokens_open_with_their_key_and_nonce_only() {
        let mut token = *b"token plaintext ----------------";
        TestCrypto.seal_token(&[1; 32], &[2; 12], &mut token).unwrap();
        assert!(TestCrypto.open_token(&[9; 32], &[2; 12], &mut token.clone()).is_err());
        assert!(TestCrypto.open_token(&[1; 32], &[9; 12], &mut token.clone()).is_err());
        assert_eq!(TestCrypto.open_token(&[1; 32], &[2; 12], &mut token), Ok(16));
        assert_eq!(&token[..16], b"token plaintext ");
    }

    #[test]
    fn masks_depend_on_the_sample() {
        let (secret, _) =
            TestCrypto.initial_secrets(Version::V1, &ConnectionId::EMPTY, Side::Client);
        let key = TestCrypto.header_key(Version::V1, &secret);
        assert_ne!(key.mask(&[0; 16]), key.mask(&[1; 16]));
        assert_eq!(key.mask(&[3; 16]), key.mask(&[3; 16]));
    }
}
