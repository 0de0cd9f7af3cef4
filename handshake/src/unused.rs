//! Ciphers that rustls asks for and never uses.
//!
//! Over QUIC it protects no records (RFC 9001, Section 4), and the engine derives the keys of
//! packets from traffic secrets itself. rustls prepares both all the same, once for each level and
//! direction. It gets these instead; whoever does use one gets an error.

use rustls::crypto::cipher::{
    AeadKey, InboundOpaqueMessage, InboundPlainMessage, Iv, MessageDecrypter, MessageEncrypter,
    OutboundOpaqueMessage, OutboundPlainMessage, Tls13AeadAlgorithm, UnsupportedOperationError,
};
use rustls::quic::{Algorithm, HeaderProtectionKey, PacketKey, Tag};
use rustls::{ConnectionTrafficSecrets, Error};

/// The labels of the keys that [`Unused`] would be made from: those of records
/// (RFC 8446, Section 7.3) and those of packets (RFC 9001, Section 5.1).
const LABELS: [&[u8]; 5] = [b"key", b"iv", b"quic key", b"quic iv", b"quic hp"];

/// True if a derivation with this label and context yields a key for [`Unused`].
pub(crate) fn is_for_unused(label: &[u8], context: &[u8]) -> bool {
    context.is_empty() && LABELS.contains(&label)
}

/// Takes the place of an algorithm, and of all keys made with it.
pub(crate) struct Unused {
    /// Length of the algorithm's keys, in bytes.
    key_len: usize,
}

impl Unused {
    pub(crate) const fn new(key_len: usize) -> Self {
        Self { key_len }
    }
}

/// A key for nothing.
struct NoKey;

impl Tls13AeadAlgorithm for Unused {
    fn encrypter(&self, _: AeadKey, _: Iv) -> Box<dyn MessageEncrypter> {
        Box::new(NoKey)
    }

    fn decrypter(&self, _: AeadKey, _: Iv) -> Box<dyn MessageDecrypter> {
        Box::new(NoKey)
    }

    fn key_len(&self) -> usize {
        self.key_len
    }

    fn extract_keys(
        &self,
        _: AeadKey,
        _: Iv,
    ) -> Result<ConnectionTrafficSecrets, UnsupportedOperationError> {
        Err(UnsupportedOperationError)
    }
}

impl Algorithm for Unused {
    fn packet_key(&self, _: AeadKey, _: Iv) -> Box<dyn PacketKey> {
        Box::new(NoKey)
    }

    fn header_protection_key(&self, _: AeadKey) -> Box<dyn HeaderProtectionKey> {
        Box::new(NoKey)
    }

    fn aead_key_len(&self) -> usize {
        self.key_len
    }
}

impl MessageEncrypter for NoKey {
    fn encrypt(
        &mut self,
        _: OutboundPlainMessage<'_>,
        _: u64,
    ) -> Result<OutboundOpaqueMessage, Error> {
        Err(Error::EncryptError)
    }

    fn encrypted_payload_len(&self, payload_len: usize) -> usize {
        payload_len
    }
}

impl MessageDecrypter for NoKey {
    fn decrypt<'a>(
        &mut self,
        _: InboundOpaqueMessage<'a>,
        _: u64,
    ) -> Result<InboundPlainMessage<'a>, Error> {
        Err(Error::DecryptError)
    }
}

impl PacketKey for NoKey {
    fn encrypt_in_place(&self, _: u64, _: &[u8], _: &mut [u8]) -> Result<Tag, Error> {
        Err(Error::EncryptError)
    }

    fn decrypt_in_place<'a>(&self, _: u64, _: &[u8], _: &'a mut [u8]) -> Result<&'a [u8], Error> {
        Err(Error::DecryptError)
    }

    fn tag_len(&self) -> usize {
        quicket_engine::crypto::TAG_LEN
    }

    fn confidentiality_limit(&self) -> u64 {
        0
    }

    fn integrity_limit(&self) -> u64 {
        0
    }
}

impl HeaderProtectionKey for NoKey {
    fn encrypt_in_place(&self, _: &[u8], _: &mut u8, _: &mut [u8]) -> Result<(), Error> {
        Err(Error::EncryptError)
    }

    fn decrypt_in_place(&self, _: &[u8], _: &mut u8, _: &mut [u8]) -> Result<(), Error> {
        Err(Error::DecryptError)
    }

    fn sample_len(&self) -> usize {
        quicket_engine::crypto::HEADER_SAMPLE_LEN
    }
}
