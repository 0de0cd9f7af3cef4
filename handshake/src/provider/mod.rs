//! [`CryptoProvider`] over aws-lc-rs.

mod ccm;
mod exporter;
mod hkdf;
mod keys;
mod labels;

use aws_lc_rs::aead::{self, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::hkdf::{HKDF_SHA256, Salt};
use aws_lc_rs::{constant_time, hmac};
use quicket_engine::crypto::{
    Aead, CipherError, CryptoProvider, HeaderKey, PacketKey, Secret, TAG_LEN,
};
use quicket_wire::{ConnectionId, Side, Version};

pub(crate) use self::exporter::Exporter;
use self::keys::AwsLcHeaderKey;

/// Packet protection, tokens and keyed hashes by AWS-LC.
#[derive(Clone, Copy, Debug, Default)]
pub struct AwsLcProvider;

/// A Retry pseudo-packet up to this many bytes is put together without allocation: any Retry that
/// fits an Ethernet frame, and its Original Destination Connection ID.
const RETRY_BUFFER: usize = 1_536;

fn secret(aead: Aead, bytes: &[u8]) -> Secret {
    Secret::new(aead, bytes).expect("a secret of the suite's hash length")
}

impl CryptoProvider for AwsLcProvider {
    fn initial_secrets(
        &self,
        version: Version,
        dcid: &ConnectionId,
        side: Side,
    ) -> (Secret, Secret) {
        // RFC 9001, Section 5.2: always the hash and AEAD of TLS_AES_128_GCM_SHA256.
        let initial =
            Salt::new(HKDF_SHA256, &labels::of(version).initial_salt).extract(dcid.as_slice());
        let mut bytes = [0; 32];
        hkdf::expand_label(&initial, b"client in", &mut bytes);
        let client = secret(Aead::Aes128Gcm, &bytes);
        hkdf::expand_label(&initial, b"server in", &mut bytes);
        let server = secret(Aead::Aes128Gcm, &bytes);
        if side.is_client() { (server, client) } else { (client, server) }
    }

    fn packet_key(&self, version: Version, secret: &Secret) -> Box<dyn PacketKey> {
        keys::packet_key(version, secret)
    }

    fn header_key(&self, version: Version, secret: &Secret) -> Box<dyn HeaderKey> {
        Box::new(AwsLcHeaderKey::new(version, secret))
    }

    fn next_secret(&self, version: Version, current: &Secret) -> Secret {
        let mut bytes = [0; 48];
        let next = &mut bytes[..current.aead().secret_len()];
        hkdf::expand_label(&keys::prk(current), labels::of(version).key_update, next);
        let next = secret(current.aead(), next);
        bytes.fill(0);
        core::hint::black_box(&bytes);
        next
    }

    fn retry_tag(
        &self,
        version: Version,
        original_dcid: &ConnectionId,
        packet: &[u8],
    ) -> [u8; TAG_LEN] {
        let labels = labels::of(version);
        let cid = original_dcid.as_slice();
        // The Retry Pseudo-Packet of RFC 9001, Section 5.8, is the associated data.
        let len = 1 + cid.len() + packet.len();
        let mut stack = [0; RETRY_BUFFER];
        let mut heap = Vec::new();
        let pseudo_packet = match stack.get_mut(..len) {
            Some(room) => room,
            None => {
                heap.resize(len, 0);
                &mut heap[..]
            }
        };
        pseudo_packet[0] = cid.len() as u8;
        pseudo_packet[1..1 + cid.len()].copy_from_slice(cid);
        pseudo_packet[1 + cid.len()..].copy_from_slice(packet);
        let key = UnboundKey::new(&aead::AES_128_GCM, &labels.retry_key)
            .expect("key of the AEAD's length");
        let tag = LessSafeKey::new(key)
            .seal_in_place_separate_tag(
                Nonce::assume_unique_for_key(labels.retry_nonce),
                Aad::from(&*pseudo_packet),
                &mut [],
            )
            .expect("sealing nothing cannot exceed the AEAD's limits");
        let mut out = [0; TAG_LEN];
        out.copy_from_slice(tag.as_ref());
        out
    }

    fn seal_token(
        &self,
        key: &[u8; 32],
        nonce: &[u8; 12],
        buf: &mut [u8],
    ) -> Result<(), CipherError> {
        let (plaintext, tag_out) =
            buf.split_last_chunk_mut::<TAG_LEN>().ok_or(CipherError::Failed)?;
        let tag = aes_256_gcm(key)
            .seal_in_place_separate_tag(
                Nonce::assume_unique_for_key(*nonce),
                Aad::empty(),
                plaintext,
            )
            .map_err(|_| CipherError::Failed)?;
        tag_out.copy_from_slice(tag.as_ref());
        Ok(())
    }

    fn open_token(
        &self,
        key: &[u8; 32],
        nonce: &[u8; 12],
        buf: &mut [u8],
    ) -> Result<usize, CipherError> {
        aes_256_gcm(key)
            .open_in_place(Nonce::assume_unique_for_key(*nonce), Aad::empty(), buf)
            .map(|plaintext| plaintext.len())
            .map_err(|_| CipherError::Failed)
    }

    fn keyed_hash(&self, key: &[u8; 32], data: &[u8]) -> [u8; 32] {
        let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), data);
        let mut out = [0; 32];
        out.copy_from_slice(tag.as_ref());
        out
    }

    fn constant_time_eq(&self, a: &[u8], b: &[u8]) -> bool {
        constant_time::verify_slices_are_equal(a, b).is_ok()
    }
}

fn aes_256_gcm(key: &[u8; 32]) -> LessSafeKey {
    LessSafeKey::new(UnboundKey::new(&aead::AES_256_GCM, key).expect("key of the AEAD's length"))
}
