//! What a public key is: read from its SubjectPublicKeyInfo (RFC 5280, Section 4.1.2.7).

use aws_lc_rs::digest::{SHA256, digest};
use rustls::SignatureScheme;
use rustls::pki_types::{CertificateDer, alg_id};

use crate::KeyId;

/// What a key signs with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum KeyKind {
    /// RSA: PSS, as TLS 1.3 has no other.
    Rsa,
    /// ECDSA on P-256.
    P256,
    /// ECDSA on P-384.
    P384,
    /// ECDSA on P-521.
    P521,
    /// Ed25519.
    Ed25519,
}

impl KeyKind {
    /// That of a SubjectPublicKeyInfo in DER, if it is one that TLS 1.3 signs with.
    pub fn of_spki(spki: &[u8]) -> Option<Self> {
        let (content, _) = sequence(spki)?;
        let (algorithm, _) = sequence(content)?;
        let is = |id: rustls::pki_types::AlgorithmIdentifier| algorithm == id.as_ref();
        [
            (alg_id::RSA_ENCRYPTION, Self::Rsa),
            (alg_id::ECDSA_P256, Self::P256),
            (alg_id::ECDSA_P384, Self::P384),
            (alg_id::ECDSA_P521, Self::P521),
            (alg_id::ED25519, Self::Ed25519),
        ]
        .into_iter()
        .find_map(|(id, kind)| is(id).then_some(kind))
    }

    /// The signatures that it makes in TLS 1.3, most wanted first (RFC 8446, Section 4.2.3).
    pub fn schemes(self) -> &'static [SignatureScheme] {
        match self {
            Self::Rsa => &[
                SignatureScheme::RSA_PSS_SHA256,
                SignatureScheme::RSA_PSS_SHA384,
                SignatureScheme::RSA_PSS_SHA512,
            ],
            Self::P256 => &[SignatureScheme::ECDSA_NISTP256_SHA256],
            Self::P384 => &[SignatureScheme::ECDSA_NISTP384_SHA384],
            Self::P521 => &[SignatureScheme::ECDSA_NISTP521_SHA512],
            Self::Ed25519 => &[SignatureScheme::ED25519],
        }
    }

    /// As people call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rsa => "RSA",
            Self::P256 => "ECDSA P-256",
            Self::P384 => "ECDSA P-384",
            Self::P521 => "ECDSA P-521",
            Self::Ed25519 => "Ed25519",
        }
    }
}

/// The content of a SEQUENCE, and what comes behind it.
fn sequence(der: &[u8]) -> Option<(&[u8], &[u8])> {
    let (head, rest) = der.split_first_chunk::<2>()?;
    if head[0] != 0x30 {
        return None;
    }
    let (len, rest) = match head[1] {
        short @ 0..=0x7f => (usize::from(short), rest),
        0x81 => rest.split_first().map(|(len, rest)| (usize::from(*len), rest))?,
        0x82 => rest
            .split_first_chunk::<2>()
            .map(|(len, rest)| (usize::from(u16::from_be_bytes(*len)), rest))?,
        _ => return None,
    };
    rest.split_at_checked(len)
}

/// What names a key whose SubjectPublicKeyInfo this is.
pub fn key_id(spki: &[u8]) -> KeyId {
    let mut id = [0; 32];
    id.copy_from_slice(digest(&SHA256, spki).as_ref());
    KeyId(id)
}

/// Whether a signature of a scheme is one by the key of this SubjectPublicKeyInfo.
#[cfg(feature = "pkcs11")]
pub(crate) fn verifies(
    spki: &[u8],
    scheme: SignatureScheme,
    content: &[u8],
    signature: &[u8],
) -> bool {
    // The bits of a BIT STRING, which is what follows the AlgorithmIdentifier, are whole octets.
    let key = sequence(spki).and_then(|(content, _)| sequence(content));
    let key = key.and_then(|(_, bits)| match bits {
        [0x03, 0x82, _, _, 0, key @ ..] | [0x03, 0x81, _, 0, key @ ..] => Some(key),
        [0x03, len, 0, key @ ..] if *len < 0x80 => Some(key),
        _ => None,
    });
    let Some(key) = key else { return false };
    let known = rustls::crypto::aws_lc_rs::default_provider().signature_verification_algorithms;
    let of_scheme = known.mapping.iter().filter(|(known, _)| *known == scheme);
    let mut algorithms = of_scheme.flat_map(|(_, algorithms)| algorithms.iter());
    algorithms.any(|algorithm| algorithm.verify_signature(key, content, signature).is_ok())
}

/// The SubjectPublicKeyInfo of a certificate, both in DER.
pub fn spki_of_certificate(certificate: &[u8]) -> Option<Vec<u8>> {
    let certificate = CertificateDer::from(certificate);
    let parsed = rustls::server::ParsedCertificate::try_from(&certificate).ok()?;
    Some(parsed.subject_public_key_info().to_vec())
}

/// A TLV of DER.
#[cfg(feature = "pkcs11")]
pub(crate) fn der(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let len: usize = parts.iter().map(|part| part.len()).sum();
    let mut out = vec![tag];
    match len {
        0..=0x7f => out.push(len as u8),
        0x80..=0xff => out.extend_from_slice(&[0x81, len as u8]),
        _ => {
            out.push(0x82);
            out.extend_from_slice(&(len as u16).to_be_bytes());
        }
    }
    parts.iter().for_each(|part| out.extend_from_slice(part));
    out
}

/// A positive INTEGER of big-endian bytes.
#[cfg(feature = "pkcs11")]
pub(crate) fn integer(bytes: &[u8]) -> Vec<u8> {
    let first = bytes.iter().position(|byte| *byte != 0).unwrap_or(bytes.len());
    let bytes = &bytes[first..];
    match bytes.first() {
        None | Some(0x80..) => der(0x02, &[&[0], bytes]),
        Some(_) => der(0x02, &[bytes]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_told_apart_and_garbage_is_none() {
        for (algorithm, kind) in [
            (&rcgen::PKCS_ECDSA_P256_SHA256, KeyKind::P256),
            (&rcgen::PKCS_ECDSA_P384_SHA384, KeyKind::P384),
            (&rcgen::PKCS_ED25519, KeyKind::Ed25519),
            (&rcgen::PKCS_RSA_SHA256, KeyKind::Rsa),
        ] {
            let key = rcgen::KeyPair::generate_for(algorithm).unwrap();
            let certificate = rcgen::CertificateParams::new(["a.test".to_owned()]).unwrap();
            let certificate = certificate.self_signed(&key).unwrap();
            let spki = spki_of_certificate(certificate.der()).unwrap();
            assert_eq!(KeyKind::of_spki(&spki), Some(kind));
            assert!(!kind.schemes().is_empty() && !kind.name().is_empty());
            for len in 0..30 {
                assert_eq!(KeyKind::of_spki(&spki[..len]), None);
            }
        }
        assert_eq!(spki_of_certificate(b"nothing"), None);
    }
}
