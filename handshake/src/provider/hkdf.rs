//! HKDF-Expand-Label (RFC 8446, Section 7.1).

use aws_lc_rs::error::Unspecified;
use aws_lc_rs::hkdf::{self, KeyType, Prk};
use quicket_engine::crypto::Aead;

/// The prefix of every label of TLS 1.3.
const PREFIX: &[u8] = b"tls13 ";
/// Room for the HkdfLabel structure with the longest label that QUIC uses.
const INFO_CAPACITY: usize = 32;

struct OutputLen(usize);

impl KeyType for OutputLen {
    fn len(&self) -> usize {
        self.0
    }
}

/// The HKDF of a cipher suite.
pub(super) fn algorithm(aead: Aead) -> hkdf::Algorithm {
    match aead {
        Aead::Aes128Gcm | Aead::ChaCha20Poly1305 | Aead::Aes128Ccm => hkdf::HKDF_SHA256,
        Aead::Aes256Gcm => hkdf::HKDF_SHA384,
    }
}

/// Fills `out` with `HKDF-Expand-Label(secret, label, "", out.len())`, for QUIC's own labels.
///
/// # Panics
///
/// If `label` or `out` is longer than anything in QUIC's key schedule: a defect of this crate.
pub(super) fn expand_label(secret: &Prk, label: &[u8], out: &mut [u8]) {
    let label_len = PREFIX.len() + label.len();
    let info_len = 2 + 1 + label_len + 1;
    let mut info = [0; INFO_CAPACITY];
    info[..2].copy_from_slice(&(out.len() as u16).to_be_bytes());
    info[2] = label_len as u8;
    info[3..3 + PREFIX.len()].copy_from_slice(PREFIX);
    info[3 + PREFIX.len()..3 + label_len].copy_from_slice(label);
    secret
        .expand(&[&info[..info_len]], OutputLen(out.len()))
        .and_then(|okm| okm.fill(out))
        .expect("QUIC's outputs are far below 255 hash lengths");
}

/// Fills `out` with `HKDF-Expand-Label(secret, label, context, out.len())`, for labels of the
/// application. Fails if label, context or output is longer than the function can take.
pub(super) fn expand_label_with_context(
    secret: &Prk,
    label: &[u8],
    context: &[u8],
    out: &mut [u8],
) -> Result<(), Unspecified> {
    let len = u16::try_from(out.len()).map_err(|_| Unspecified)?.to_be_bytes();
    let label_len = [u8::try_from(PREFIX.len() + label.len()).map_err(|_| Unspecified)?];
    let context_len = [u8::try_from(context.len()).map_err(|_| Unspecified)?];
    let info: [&[u8]; 6] = [&len, &label_len, PREFIX, label, &context_len, context];
    secret.expand(&info, OutputLen(out.len()))?.fill(out)
}
