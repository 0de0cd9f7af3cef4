//! Keying material for applications (RFC 8446, Section 7.5).
//!
//! It comes from the exporter secret alone, so that the TLS library need not keep a connection for
//! it after the handshake.

use aws_lc_rs::digest;
use aws_lc_rs::error::Unspecified;
use aws_lc_rs::hkdf::Prk;
use quicket_engine::crypto::{Aead, Alert, HandshakeError, Secret};

use super::{hkdf, keys};

/// Length of the longest hash, in bytes.
const MAX_HASH_LEN: usize = 48;

/// A connection's exporter_secret.
pub(crate) struct Exporter(Secret);

impl Exporter {
    /// An exporter of a connection with this cipher suite; `None` if `secret` is not of its hash's
    /// length.
    pub(crate) fn new(aead: Aead, secret: &[u8]) -> Option<Self> {
        Secret::new(aead, secret).map(Self)
    }

    /// Fills `out` with `TLS-Exporter(label, context, out.len())`.
    pub(crate) fn export(
        &self,
        label: &[u8],
        context: &[u8],
        out: &mut [u8],
    ) -> Result<(), HandshakeError> {
        self.expand(label, context, out).map_err(|Unspecified| HandshakeError {
            alert: Alert::INTERNAL_ERROR,
            reason: "the label is longer than 249 bytes, or too much was asked for".to_owned(),
        })
    }

    fn expand(&self, label: &[u8], context: &[u8], out: &mut [u8]) -> Result<(), Unspecified> {
        let aead = self.0.aead();
        let hash = |data: &[u8]| digest::digest(hash_algorithm(aead), data);
        let mut bytes = [0; MAX_HASH_LEN];
        let derived = &mut bytes[..aead.secret_len()];
        hkdf::expand_label_with_context(&keys::prk(&self.0), label, hash(b"").as_ref(), derived)?;
        let derived_prk = Prk::new_less_safe(hkdf::algorithm(aead), derived);
        derived.fill(0);
        std::hint::black_box(&bytes);
        hkdf::expand_label_with_context(&derived_prk, b"exporter", hash(context).as_ref(), out)
    }
}

/// The hash of a cipher suite.
fn hash_algorithm(aead: Aead) -> &'static digest::Algorithm {
    match aead {
        Aead::Aes128Gcm | Aead::ChaCha20Poly1305 | Aead::Aes128Ccm => &digest::SHA256,
        Aead::Aes256Gcm => &digest::SHA384,
    }
}
