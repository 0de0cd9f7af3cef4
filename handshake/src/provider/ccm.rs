//! AES-128-CCM (RFC 5116, Section 5.3), which aws-lc-rs does not offer. TLS libraries of programs
//! that perform handshakes themselves have it; Quicket's own does not choose it.

use aes::Aes128;
use ccm::aead::{AeadInOut, KeyInit};
use ccm::consts::{U12, U16};
use ccm::{Ccm, Tag};
use quicket_engine::crypto::{CipherError, OpenJob, PacketKey, SealJob, TAG_LEN};

use super::keys::{NONCE_LEN, nonce};

/// An AEAD key with the IV that packet numbers are mixed into.
pub(super) struct CcmPacketKey {
    cipher: Ccm<Aes128, U16, U12>,
    iv: [u8; NONCE_LEN],
}

impl CcmPacketKey {
    pub(super) fn new(key: &[u8], iv: [u8; NONCE_LEN]) -> Self {
        Self { cipher: Ccm::new_from_slice(key).expect("key of the AEAD's length"), iv }
    }
}

impl PacketKey for CcmPacketKey {
    fn seal(&self, job: &mut SealJob<'_>) -> Result<(), CipherError> {
        let nonce = nonce(&self.iv, job.packet_number);
        let (header, rest) =
            job.packet.split_at_mut_checked(job.header_len).ok_or(CipherError::Failed)?;
        let (payload, tag_out) =
            rest.split_last_chunk_mut::<TAG_LEN>().ok_or(CipherError::Failed)?;
        let tag = self
            .cipher
            .encrypt_inout_detached(&nonce.into(), header, payload.into())
            .map_err(|_| CipherError::Failed)?;
        tag_out.copy_from_slice(&tag);
        Ok(())
    }

    fn open(&self, job: &mut OpenJob<'_>) -> Result<usize, CipherError> {
        let nonce = nonce(&self.iv, job.packet_number);
        let (header, rest) =
            job.packet.split_at_mut_checked(job.header_len).ok_or(CipherError::Failed)?;
        let (ciphertext, tag) =
            rest.split_last_chunk_mut::<TAG_LEN>().ok_or(CipherError::Failed)?;
        let tag: Tag<U16> = (*tag).into();
        let len = ciphertext.len();
        self.cipher
            .decrypt_inout_detached(&nonce.into(), header, ciphertext.into(), &tag)
            .map_err(|_| CipherError::Failed)?;
        Ok(len)
    }
}
