//! What an endpoint offers: cipher suites, key exchange groups, application protocols.

use std::sync::Arc;

use quicket_engine::crypto::Aead;
use rustls::NamedGroup;
use rustls::SupportedCipherSuite;
use rustls::crypto::aws_lc_rs::{default_provider, kx_group};
use rustls::crypto::{CryptoProvider, SupportedKxGroup};

use crate::{ConfigError, psk};

/// Groups for the key exchange (RFC 8446, Section 4.2.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum KeyExchange {
    /// Curve25519
    X25519,
    /// Curve25519 and ML-KEM-768 together: safe against later quantum computers, but a
    /// client that offers it first sends a ClientHello of two datagrams.
    X25519MlKem768,
    /// NIST P-256
    Secp256r1,
    /// NIST P-384
    Secp384r1,
}

impl KeyExchange {
    fn group(self) -> &'static dyn SupportedKxGroup {
        match self {
            Self::X25519 => kx_group::X25519,
            Self::X25519MlKem768 => kx_group::X25519MLKEM768,
            Self::Secp256r1 => kx_group::SECP256R1,
            Self::Secp384r1 => kx_group::SECP384R1,
        }
    }
}

/// The IANA name of a group, for people.
pub(crate) fn group_name(group: NamedGroup) -> &'static str {
    match group {
        NamedGroup::X25519MLKEM768 => "X25519MLKEM768",
        other => other.as_str().unwrap_or(""),
    }
}

/// Cipher suites, groups and protocols in order of preference.
#[derive(Clone, Debug)]
pub(crate) struct Offer {
    pub(crate) suites: Vec<Aead>,
    pub(crate) groups: Vec<KeyExchange>,
    /// `None`: not given; `Some` of an empty list: ALPN is switched off.
    pub(crate) alpn: Option<Vec<Vec<u8>>>,
}

impl Default for Offer {
    fn default() -> Self {
        let suites = if aes_in_hardware() {
            vec![Aead::Aes128Gcm, Aead::Aes256Gcm, Aead::ChaCha20Poly1305]
        } else {
            vec![Aead::ChaCha20Poly1305, Aead::Aes128Gcm, Aead::Aes256Gcm]
        };
        // A client sends a share for the first group only: the small one, so that its ClientHello
        // fits one datagram.
        let groups = vec![
            KeyExchange::X25519,
            KeyExchange::Secp256r1,
            KeyExchange::Secp384r1,
            KeyExchange::X25519MlKem768,
        ];
        Self { suites, groups, alpn: None }
    }
}

impl Offer {
    /// The TLS library's provider for this offer.
    pub(crate) fn provider(&self) -> Result<Arc<CryptoProvider>, ConfigError> {
        if self.suites.is_empty() {
            return Err(ConfigError::NothingToOffer { what: "cipher suite" });
        }
        if self.groups.is_empty() {
            return Err(ConfigError::NothingToOffer { what: "key exchange group" });
        }
        Ok(Arc::new(CryptoProvider {
            cipher_suites: self.cipher_suites()?,
            kx_groups: self.groups.iter().copied().map(KeyExchange::group).collect(),
            ..default_provider()
        }))
    }

    fn cipher_suites(&self) -> Result<Vec<SupportedCipherSuite>, ConfigError> {
        let suite = |&aead: &Aead| {
            psk::suite(aead).ok_or(ConfigError::CipherSuite { name: aead.cipher_suite() })
        };
        self.suites.iter().map(suite).collect()
    }

    /// The application protocols; empty if ALPN is switched off.
    pub(crate) fn alpn(&self) -> Result<Vec<Vec<u8>>, ConfigError> {
        let protocols = self.alpn.clone().ok_or(ConfigError::NoAlpn)?;
        if protocols.iter().any(|name| !(1..=255).contains(&name.len())) {
            return Err(ConfigError::InvalidAlpn);
        }
        Ok(protocols)
    }
}

/// Collects protocol names; an empty list counts as not given.
pub(crate) fn protocols<I, P>(names: I) -> Option<Vec<Vec<u8>>>
where
    I: IntoIterator<Item = P>,
    P: AsRef<[u8]>,
{
    let names: Vec<Vec<u8>> = names.into_iter().map(|name| name.as_ref().to_vec()).collect();
    (!names.is_empty()).then_some(names)
}

#[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
fn aes_in_hardware() -> bool {
    std::arch::is_x86_feature_detected!("aes") && std::arch::is_x86_feature_detected!("pclmulqdq")
}

#[cfg(target_arch = "aarch64")]
fn aes_in_hardware() -> bool {
    std::arch::is_aarch64_feature_detected!("aes")
        && std::arch::is_aarch64_feature_detected!("pmull")
}

#[cfg(not(any(target_arch = "x86", target_arch = "x86_64", target_arch = "aarch64")))]
fn aes_in_hardware() -> bool {
    false
}
