//! Packet protection (RFC 9001, Section 5) as an in-place, batchable trait.

use alloc::boxed::Box;
use core::fmt;

use quicket_wire::{ConnectionId, Side, Version};

/// Length of the authentication tag of every AEAD that QUIC uses, in bytes
/// (RFC 9001, Section 5.3).
pub const TAG_LEN: usize = 16;
/// Length of the ciphertext sample for header protection, in bytes (RFC 9001, Section 5.4.2).
pub const HEADER_SAMPLE_LEN: usize = 16;

/// The AEADs of TLS 1.3 that QUIC permits (RFC 9001, Section 5.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Aead {
    /// TLS_AES_128_GCM_SHA256
    Aes128Gcm,
    /// TLS_AES_256_GCM_SHA384
    Aes256Gcm,
    /// TLS_CHACHA20_POLY1305_SHA256
    ChaCha20Poly1305,
    /// TLS_AES_128_CCM_SHA256
    Aes128Ccm,
}

/// 2^21.5, rounded down.
const CCM_LIMIT: u64 = 2_965_820;

impl Aead {
    /// All of them.
    pub const ALL: [Self; 4] =
        [Self::Aes128Gcm, Self::Aes256Gcm, Self::ChaCha20Poly1305, Self::Aes128Ccm];

    /// The IANA name of the cipher suite.
    pub const fn cipher_suite(self) -> &'static str {
        match self {
            Self::Aes128Gcm => "TLS_AES_128_GCM_SHA256",
            Self::Aes256Gcm => "TLS_AES_256_GCM_SHA384",
            Self::ChaCha20Poly1305 => "TLS_CHACHA20_POLY1305_SHA256",
            Self::Aes128Ccm => "TLS_AES_128_CCM_SHA256",
        }
    }

    /// The number of packets that one key may seal: 2^23 for AES-GCM, 2^21.5 for AES-CCM,
    /// practically unlimited for ChaCha20-Poly1305 (RFC 9001, Section 6.6).
    pub const fn confidentiality_limit(self) -> u64 {
        match self {
            Self::Aes128Gcm | Self::Aes256Gcm => 1 << 23,
            Self::ChaCha20Poly1305 => 1 << 62,
            Self::Aes128Ccm => CCM_LIMIT,
        }
    }

    /// The number of packets that may fail to open before the connection must close
    /// (RFC 9001, Section 6.6).
    pub const fn integrity_limit(self) -> u64 {
        match self {
            Self::Aes128Gcm | Self::Aes256Gcm => 1 << 52,
            Self::ChaCha20Poly1305 => 1 << 36,
            Self::Aes128Ccm => CCM_LIMIT,
        }
    }

    /// Length of a traffic secret of the cipher suite, in bytes: the output of its hash.
    pub const fn secret_len(self) -> usize {
        match self {
            Self::Aes128Gcm | Self::ChaCha20Poly1305 | Self::Aes128Ccm => 32,
            Self::Aes256Gcm => 48,
        }
    }
}

/// A TLS 1.3 traffic secret with the cipher suite that it belongs to. `Debug` hides the bytes;
/// dropping it overwrites them.
#[derive(Clone)]
pub struct Secret {
    aead: Aead,
    bytes: [u8; 48],
}

impl Secret {
    /// A secret of the suite's hash length; `None` if `bytes` has another length.
    pub fn new(aead: Aead, bytes: &[u8]) -> Option<Self> {
        if bytes.len() != aead.secret_len() {
            return None;
        }
        let mut all = [0; 48];
        all.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(Self { aead, bytes: all })
    }

    /// The cipher suite.
    pub const fn aead(&self) -> Aead {
        self.aead
    }

    /// The secret itself.
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.aead.secret_len()).unwrap_or(&[])
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        self.bytes.fill(0);
        // Keeps the store from being optimised away without `unsafe`.
        core::hint::black_box(&self.bytes);
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secret").field("aead", &self.aead).finish_non_exhaustive()
    }
}

/// Why a packet was not sealed or opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CipherError {
    /// The cipher has taken the work but is not done: ask again later with the same arguments.
    /// Ciphers that run on another processor answer so; those in software never do.
    NotYet,
    /// Authentication failed, or (when sealing) the buffer has no room for the tag.
    Failed,
}

/// One packet to seal: `packet` holds header, plaintext and [`TAG_LEN`] spare bytes.
#[derive(Debug)]
pub struct SealJob<'a> {
    /// The full packet number, part of the nonce (RFC 9001, Section 5.3).
    pub packet_number: u64,
    /// Where the plaintext begins; all before is associated data.
    pub header_len: usize,
    /// Header, plaintext and room for the tag.
    pub packet: &'a mut [u8],
}

/// One packet to open: `packet` holds the unprotected header, ciphertext and tag.
#[derive(Debug)]
pub struct OpenJob<'a> {
    /// The full packet number, part of the nonce (RFC 9001, Section 5.3).
    pub packet_number: u64,
    /// Where the ciphertext begins; all before is associated data.
    pub header_len: usize,
    /// Header, ciphertext and tag; after success the plaintext stands where the ciphertext was.
    pub packet: &'a mut [u8],
}

/// The AEAD key of one direction and key phase.
pub trait PacketKey: Send + Sync {
    /// Seals one packet in place and writes the tag into its last [`TAG_LEN`] bytes.
    fn seal(&self, job: &mut SealJob<'_>) -> Result<(), CipherError>;

    /// Seals several packets, from the first on; returns how many are done. Fewer than all, with
    /// `Ok`, means that the next one answered [`CipherError::NotYet`].
    fn seal_batch(&self, jobs: &mut [SealJob<'_>]) -> Result<usize, CipherError> {
        for (done, job) in jobs.iter_mut().enumerate() {
            match self.seal(job) {
                Ok(()) => {}
                Err(CipherError::NotYet) => return Ok(done),
                Err(error) => return Err(error),
            }
        }
        Ok(jobs.len())
    }

    /// True if [`PacketKey::seal_apart`] spares a copy and never answers [`CipherError::NotYet`].
    fn seals_apart(&self) -> bool {
        false
    }

    /// Seals one packet whose plaintext ends with `body`, which is elsewhere: there is room for it before that for the tag.
    fn seal_apart(&self, job: &mut SealJob<'_>, body: &[u8]) -> Result<(), CipherError> {
        let end = job.packet.len().checked_sub(TAG_LEN).ok_or(CipherError::Failed)?;
        let start = end.checked_sub(body.len()).ok_or(CipherError::Failed)?;
        job.packet.get_mut(start..end).ok_or(CipherError::Failed)?.copy_from_slice(body);
        self.seal(job)
    }

    /// Opens one packet in place; the plaintext has the length of the ciphertext less
    /// [`TAG_LEN`]. On failure the payload's bytes are unspecified, unless the answer was
    /// [`CipherError::NotYet`], which leaves them as they were.
    fn open(&self, job: &mut OpenJob<'_>) -> Result<usize, CipherError>;
}

/// The header protection key of one direction (RFC 9001, Section 5.4).
pub trait HeaderKey: Send + Sync {
    /// The first five bytes of the mask for one ciphertext sample.
    fn mask(&self, sample: &[u8; HEADER_SAMPLE_LEN]) -> [u8; 5];

    /// Masks for several samples at once: `masks[i]` for `samples[i]`.
    fn masks(&self, samples: &[[u8; HEADER_SAMPLE_LEN]], masks: &mut [[u8; 5]]) {
        for (sample, mask) in samples.iter().zip(masks) {
            *mask = self.mask(sample);
        }
    }
}

/// Makes keys and keyed hashes. One value serves a whole endpoint.
///
/// The engine derives nothing itself: key schedules differ by version only in labels and salts
/// (RFC 9001, Section 5; RFC 9369, Section 3.3), which live behind this trait.
pub trait CryptoProvider: Send + Sync {
    /// The Initial secrets (receive, send) of `side` for the client's first Destination
    /// Connection ID (RFC 9001, Section 5.2).
    fn initial_secrets(
        &self,
        version: Version,
        dcid: &ConnectionId,
        side: Side,
    ) -> (Secret, Secret);

    /// The AEAD key of a traffic secret ("quic key", "quic iv").
    fn packet_key(&self, version: Version, secret: &Secret) -> Box<dyn PacketKey>;

    /// The header protection key of a traffic secret ("quic hp").
    fn header_key(&self, version: Version, secret: &Secret) -> Box<dyn HeaderKey>;

    /// The secret of the next key phase ("quic ku", RFC 9001, Section 6.1).
    fn next_secret(&self, version: Version, secret: &Secret) -> Secret;

    /// The integrity tag of a Retry packet whose bytes before the tag are `packet`
    /// (RFC 9001, Section 5.8).
    fn retry_tag(
        &self,
        version: Version,
        original_dcid: &ConnectionId,
        packet: &[u8],
    ) -> [u8; TAG_LEN];

    /// Seals an address validation token or other state with the endpoint's own key:
    /// `buf` holds the plaintext followed by [`TAG_LEN`] spare bytes.
    fn seal_token(
        &self,
        key: &[u8; 32],
        nonce: &[u8; 12],
        buf: &mut [u8],
    ) -> Result<(), CipherError>;

    /// Opens what [`CryptoProvider::seal_token`] made; returns the plaintext's length.
    fn open_token(
        &self,
        key: &[u8; 32],
        nonce: &[u8; 12],
        buf: &mut [u8],
    ) -> Result<usize, CipherError>;

    /// A keyed hash (HMAC-SHA256), for stateless reset tokens (RFC 9000, Section 10.3.2).
    fn keyed_hash(&self, key: &[u8; 32], data: &[u8]) -> [u8; 32];

    /// True if `a` equals `b`, in time that does not depend on where they differ
    /// (RFC 9000, Section 10.3.1).
    fn constant_time_eq(&self, a: &[u8], b: &[u8]) -> bool;
}
