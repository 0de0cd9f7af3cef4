//! Packet and header protection keys (RFC 9001, Sections 5.3 and 5.4).

use aws_lc_rs::aead::{self, Aad, LessSafeKey, Nonce, UnboundKey, quic};
use aws_lc_rs::hkdf::Prk;
use quicket_engine::crypto::{
    Aead, CipherError, HEADER_SAMPLE_LEN, HeaderKey, OpenJob, PacketKey, SealJob, Secret, TAG_LEN,
};
use quicket_wire::Version;

use super::ccm::CcmPacketKey;
use super::{hkdf, labels};

/// Length of the longest key, in bytes.
const MAX_KEY_LEN: usize = 32;
pub(super) const NONCE_LEN: usize = 12;

/// Length of the key of an AEAD, which header protection shares (RFC 9001, Section 5.4.1).
const fn key_len(aead: Aead) -> usize {
    match aead {
        Aead::Aes128Gcm | Aead::Aes128Ccm => 16,
        Aead::Aes256Gcm | Aead::ChaCha20Poly1305 => 32,
    }
}

fn header_algorithm(aead: Aead) -> &'static quic::Algorithm {
    match aead {
        Aead::Aes128Gcm | Aead::Aes128Ccm => &quic::AES_128,
        Aead::Aes256Gcm => &quic::AES_256,
        Aead::ChaCha20Poly1305 => &quic::CHACHA20,
    }
}

pub(super) fn prk(secret: &Secret) -> Prk {
    Prk::new_less_safe(hkdf::algorithm(secret.aead()), secret.as_bytes())
}

/// The AEAD key of a traffic secret.
pub(super) fn packet_key(version: Version, secret: &Secret) -> Box<dyn PacketKey> {
    let labels = labels::of(version);
    let prk = prk(secret);
    let mut key = [0; MAX_KEY_LEN];
    let mut iv = [0; NONCE_LEN];
    let bytes = &mut key[..key_len(secret.aead())];
    hkdf::expand_label(&prk, labels.key, bytes);
    hkdf::expand_label(&prk, labels.iv, &mut iv);
    let aws_lc =
        |algorithm| -> Box<dyn PacketKey> { Box::new(AwsLcPacketKey::new(algorithm, bytes, iv)) };
    let made = match secret.aead() {
        Aead::Aes128Gcm => aws_lc(&aead::AES_128_GCM),
        Aead::Aes256Gcm => aws_lc(&aead::AES_256_GCM),
        Aead::ChaCha20Poly1305 => aws_lc(&aead::CHACHA20_POLY1305),
        Aead::Aes128Ccm => Box::new(CcmPacketKey::new(bytes, iv)),
    };
    key.fill(0);
    core::hint::black_box(&key);
    made
}

/// The IV combined with the packet number by exclusive or (RFC 9001, Section 5.3).
#[inline]
pub(super) fn nonce(iv: &[u8; NONCE_LEN], packet_number: u64) -> [u8; NONCE_LEN] {
    let mut nonce = *iv;
    for (byte, number) in nonce[NONCE_LEN - 8..].iter_mut().zip(packet_number.to_be_bytes()) {
        *byte ^= number;
    }
    nonce
}

/// An AEAD key with the IV that packet numbers are mixed into.
struct AwsLcPacketKey {
    key: LessSafeKey,
    iv: [u8; NONCE_LEN],
}

impl AwsLcPacketKey {
    fn new(algorithm: &'static aead::Algorithm, key: &[u8], iv: [u8; NONCE_LEN]) -> Self {
        let unbound = UnboundKey::new(algorithm, key).expect("key of the AEAD's length");
        Self { key: LessSafeKey::new(unbound), iv }
    }

    #[inline]
    fn nonce(&self, packet_number: u64) -> Nonce {
        Nonce::assume_unique_for_key(nonce(&self.iv, packet_number))
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

    fn seals_apart(&self) -> bool {
        self.key.algorithm() != &aead::CHACHA20_POLY1305
    }

    fn seal_apart(&self, job: &mut SealJob<'_>, body: &[u8]) -> Result<(), CipherError> {
        let nonce = self.nonce(job.packet_number);
        let (header, rest) =
            job.packet.split_at_mut_checked(job.header_len).ok_or(CipherError::Failed)?;
        let first = rest.len().checked_sub(body.len() + TAG_LEN).ok_or(CipherError::Failed)?;
        let (first, body_and_tag) = rest.split_at_mut(first);
        self.key
            .seal_in_place_scatter(nonce, Aad::from(&*header), first, body, body_and_tag)
            .map_err(|_| CipherError::Failed)
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
        let key_len = key_len(secret.aead());
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
