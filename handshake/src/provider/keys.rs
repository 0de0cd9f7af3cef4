//! Packet and header protection keys (RFC 9001, Sections 5.3 and 5.4).

use aws_lc_rs::aead::{self, Aad, LessSafeKey, Nonce, UnboundKey, quic};
use aws_lc_rs::hkdf::Prk;
use quicket_engine::crypto::{
    Aead, CipherError, HEADER_SAMPLE_LEN, HeaderKey, OpenJob, PacketKey, SealJob, Secret, TAG_LEN,
};
use quicket_wire::Version;

use super::{hkdf, labels};

/// Length of the longest key, in bytes.
const MAX_KEY_LEN: usize = 32;
const NONCE_LEN: usize = 12;

/// The AEAD algorithm and the length of its key, which header protection shares
/// (RFC 9001, Section 5.4.1).
fn aead_algorithm(aead: Aead) -> (&'static aead::Algorithm, usize) {
    match aead {
        Aead::Aes128Gcm => (&aead::AES_128_GCM, 16),
        Aead::Aes256Gcm => (&aead::AES_256_GCM, 32),
        Aead::ChaCha20Poly1305 => (&aead::CHACHA20_POLY1305, 32),
    }
}

fn header_algorithm(aead: Aead) -> &'static quic::Algorithm {
    match aead {
        Aead::Aes128Gcm => &quic::AES_128,
        Aead::Aes256Gcm => &quic::AES_256,
        Aead::ChaCha20Poly1305 => &quic::CHACHA20,
    }
}

pub(super) fn prk(secret: &Secret) -> Prk {
    Prk::new_less_safe(hkdf::algorithm(secret.aead()), secret.as_bytes())
}

/// An AEAD key with the IV that packet numbers are mixed into.
pub(super) struct AwsLcPacketKey {
    key: LessSafeKey,
    iv: [u8; NONCE_LEN],
}

impl AwsLcPacketKey {
    pub(super) fn new(version: Version, secret: &Secret) -> Self {
        let (algorithm, key_len) = aead_algorithm(secret.aead());
        let labels = labels::of(version);
        let prk = prk(secret);
        let mut key = [0; MAX_KEY_LEN];
        let mut iv = [0; NONCE_LEN];
        hkdf::expand_label(&prk, labels.key, &mut key[..key_len]);
        hkdf::expand_label(&prk, labels.iv, &mut iv);
        let unbound =
            UnboundKey::new(algorithm, &key[..key_len]).expect("key of the AEAD's length");
        key.fill(0);
        core::hint::black_box(&key);
        Self { key: LessSafeKey::new(unbound), iv }
    }

    /// The IV combined with the packet number by exclusive or (RFC 9001, Section 5.3).
    #[inline]
    fn nonce(&self, packet_number: u64) -> Nonce {
        let mut nonce = self.iv;
        for (byte, number) in nonce[NONCE_LEN - 8..].iter_mut().zip(packet_number.to_be_bytes()) {
            *byte ^= number;
        }
        Nonce::assume_unique_for_key(nonce)
    }
}

impl PacketKey for AwsLcPacketKey {
    #[inline]
    fn seal(&self, job: &mut SealJob<'_>) -> Result<(), CipherError> {
        let nonce = self.nonce(job.packet_number);
        let (header, rest) =
            job.packet.split_at_mut_checked(job.header_len).ok_or(CipherError::Failed)?;
        let (payload, tag_out) =
            rest.split_last_chunk_mut::<TAG_LEN>().ok_or(CipherError::Failed)?;
        let tag = self
            .key
            .seal_in_place_separate_tag(nonce, Aad::from(&*header), payload)
            .map_err(|_| CipherError::Failed)?;
        tag_out.copy_from_slice(tag.as_ref());
        Ok(())
    }

    #[inline]
    fn open(&self, job: &mut OpenJob<'_>) -> Result<usize, CipherError> {
        let nonce = self.nonce(job.packet_number);
        let (header, ciphertext) =
            job.packet.split_at_mut_checked(job.header_len).ok_or(CipherError::Failed)?;
        self.key
            .open_in_place(nonce, Aad::from(&*header), ciphertext)
            .map(|plaintext| plaintext.len())
            .map_err(|_| CipherError::Failed)
    }
}

/// A header protection key.
pub(super) struct AwsLcHeaderKey(quic::HeaderProtectionKey);

impl AwsLcHeaderKey {
    pub(super) fn new(version: Version, secret: &Secret) -> Self {
        let (_, key_len) = aead_algorithm(secret.aead());
        let mut key = [0; MAX_KEY_LEN];
        hkdf::expand_label(
            &prk(secret),
            labels::of(version).header_protection,
            &mut key[..key_len],
        );
        let header_key =
            quic::HeaderProtectionKey::new(header_algorithm(secret.aead()), &key[..key_len])
                .expect("key of the cipher's length");
        key.fill(0);
        core::hint::black_box(&key);
        Self(header_key)
    }
}

impl HeaderKey for AwsLcHeaderKey {
    #[inline]
    fn mask(&self, sample: &[u8; HEADER_SAMPLE_LEN]) -> [u8; 5] {
        self.0.new_mask(sample).expect("a sample has the length that the cipher wants")
    }
}
