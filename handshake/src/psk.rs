//! The cipher suites given to rustls, which let the keys of session tickets in and out.
//!
//! rustls keeps the pre-shared key of a client's session to itself, so that a session ends with its
//! process. Both ways around run through HKDF, which a provider may supply: a ticket's key is
//! `HKDF-Expand-Label(resumption_secret, "resumption", ticket_nonce)` (RFC 8446, Section 4.6.1).
//!
//! * Out: while [`capture`] runs, what this derivation yields is noted down.
//! * In: for a nonce made by [`nonce_for`], the derivation yields the key that the nonce carries.
//!   Such nonces begin with random bytes that never leave the process.
//!
//! Keys that nobody uses are not derived ([`unused`](crate::unused)). Everything else is passed on to
//! the library's own HKDF.

use std::cell::RefCell;
use std::sync::{LazyLock, OnceLock};

use quicket_engine::crypto::Aead;
use rustls::crypto::aws_lc_rs::cipher_suite;
use rustls::crypto::tls13::{Hkdf, HkdfExpander, OkmBlock, OutputLengthError};
use rustls::crypto::{ActiveKeyExchange, hmac};
use rustls::{CipherSuite, CipherSuiteCommon, SupportedCipherSuite, Tls13CipherSuite};

use crate::unused::{self, Unused};

/// The label of the derivation, without TLS 1.3's prefix.
const RESUMPTION: &[u8] = b"resumption";
const MARK_LEN: usize = 16;

thread_local! {
    /// Keys derived since [`capture`] began, oldest first; `None` outside of it.
    static CAPTURED: RefCell<Option<Vec<Psk>>> = const { RefCell::new(None) };
}

/// A pre-shared key; overwritten when dropped.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Psk(Vec<u8>);

impl Psk {
    pub(crate) fn new(bytes: &[u8]) -> Self {
        Self(bytes.to_vec())
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Psk {
    fn drop(&mut self) {
        self.0.fill(0);
        std::hint::black_box(&self.0);
    }
}

/// Runs `work` and returns the ticket keys that rustls derived on this thread meanwhile, in order.
pub(crate) fn capture<T>(work: impl FnOnce() -> T) -> (T, Vec<Psk>) {
    CAPTURED.set(Some(Vec::new()));
    let result = work();
    (result, CAPTURED.take().unwrap_or_default())
}

/// Bytes that no peer can know and with which the nonces of [`nonce_for`] begin.
fn mark() -> &'static [u8; MARK_LEN] {
    static MARK: OnceLock<[u8; MARK_LEN]> = OnceLock::new();
    MARK.get_or_init(|| {
        let mut mark = [0; MARK_LEN];
        crate::random::fill(&mut mark);
        mark
    })
}

/// A ticket nonce from which the suites of this module derive `psk`.
pub(crate) fn nonce_for(psk: &Psk) -> Vec<u8> {
    [&mark()[..], psk.as_bytes()].concat()
}

struct TicketHkdf(&'static dyn Hkdf);

impl Hkdf for TicketHkdf {
    fn extract_from_zero_ikm(&self, salt: Option<&[u8]>) -> Box<dyn HkdfExpander> {
        self.0.extract_from_zero_ikm(salt)
    }

    fn extract_from_secret(&self, salt: Option<&[u8]>, secret: &[u8]) -> Box<dyn HkdfExpander> {
        self.0.extract_from_secret(salt, secret)
    }

    fn extract_from_kx_shared_secret(
        &self,
        salt: Option<&[u8]>,
        kx: Box<dyn ActiveKeyExchange>,
        peer_pub_key: &[u8],
    ) -> Result<Box<dyn HkdfExpander>, rustls::Error> {
        self.0.extract_from_kx_shared_secret(salt, kx, peer_pub_key)
    }

    fn expander_for_okm(&self, okm: &OkmBlock) -> Box<dyn HkdfExpander> {
        Box::new(TicketExpander(self.0.expander_for_okm(okm)))
    }

    fn hmac_sign(&self, key: &OkmBlock, message: &[u8]) -> hmac::Tag {
        self.0.hmac_sign(key, message)
    }

    fn fips(&self) -> bool {
        self.0.fips()
    }
}

struct TicketExpander(Box<dyn HkdfExpander>);

impl HkdfExpander for TicketExpander {
    fn expand_slice(&self, info: &[&[u8]], output: &mut [u8]) -> Result<(), OutputLengthError> {
        if let [_, _, _, label, _, context] = info
            && unused::is_for_unused(label, context)
        {
            output.fill(0);
            return Ok(());
        }
        self.0.expand_slice(info, output)
    }

    fn expand_block(&self, info: &[&[u8]]) -> OkmBlock {
        // The parts of an HkdfLabel: length, label's length, prefix, label, context's length,
        // context (RFC 8446, Section 7.1).
        let [_, _, _, RESUMPTION, _, nonce] = info else {
            return self.0.expand_block(info);
        };
        if let Some(psk) = nonce.strip_prefix(mark())
            && psk.len() == self.0.hash_len()
        {
            return OkmBlock::new(psk);
        }
        let derived = self.0.expand_block(info);
        CAPTURED.with_borrow_mut(|captured| {
            if let Some(captured) = captured {
                captured.push(Psk::new(derived.as_ref()));
            }
        });
        derived
    }

    fn hash_len(&self) -> usize {
        self.0.hash_len()
    }
}

fn wrap(suite: SupportedCipherSuite) -> Tls13CipherSuite {
    let suite = suite.tls13().expect("a suite of TLS 1.3");
    let unused: &Unused = Box::leak(Box::new(Unused::new(suite.aead_alg.key_len())));
    Tls13CipherSuite {
        common: CipherSuiteCommon {
            suite: suite.common.suite,
            hash_provider: suite.common.hash_provider,
            confidentiality_limit: suite.common.confidentiality_limit,
        },
        hkdf_provider: Box::leak(Box::new(TicketHkdf(suite.hkdf_provider))),
        aead_alg: unused,
        quic: Some(unused),
    }
}

/// The cipher suite of an AEAD, made once per process; `None` if the TLS library does not have it.
pub(crate) fn suite(aead: Aead) -> Option<SupportedCipherSuite> {
    static AES_128: LazyLock<Tls13CipherSuite> =
        LazyLock::new(|| wrap(cipher_suite::TLS13_AES_128_GCM_SHA256));
    static AES_256: LazyLock<Tls13CipherSuite> =
        LazyLock::new(|| wrap(cipher_suite::TLS13_AES_256_GCM_SHA384));
    static CHACHA20: LazyLock<Tls13CipherSuite> =
        LazyLock::new(|| wrap(cipher_suite::TLS13_CHACHA20_POLY1305_SHA256));
    Some(SupportedCipherSuite::Tls13(match aead {
        Aead::Aes128Gcm => &AES_128,
        Aead::Aes256Gcm => &AES_256,
        Aead::ChaCha20Poly1305 => &CHACHA20,
        Aead::Aes128Ccm => return None,
    }))
}

/// The AEAD of a cipher suite.
pub(crate) fn aead(suite: CipherSuite) -> Option<Aead> {
    match suite {
        CipherSuite::TLS13_AES_128_GCM_SHA256 => Some(Aead::Aes128Gcm),
        CipherSuite::TLS13_AES_256_GCM_SHA384 => Some(Aead::Aes256Gcm),
        CipherSuite::TLS13_CHACHA20_POLY1305_SHA256 => Some(Aead::ChaCha20Poly1305),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expander(aead: Aead, secret: &[u8]) -> Box<dyn HkdfExpander> {
        let suite = suite(aead).unwrap().tls13().unwrap();
        suite.hkdf_provider.expander_for_okm(&OkmBlock::new(secret))
    }

    fn derive(expander: &dyn HkdfExpander, label: &[u8], nonce: &[u8]) -> Vec<u8> {
        let parts: [&[u8]; 6] = [&[0, 32], &[0], b"tls13 ", label, &[0], nonce];
        expander.expand_block(&parts).as_ref().to_vec()
    }

    #[test]
    fn keys_are_captured_only_on_request_and_only_of_tickets() {
        let expander = expander(Aead::Aes128Gcm, &[7; 32]);
        derive(&*expander, RESUMPTION, b"before");
        let (psk, captured) = capture(|| {
            derive(&*expander, b"c hs traffic", b"nonce");
            derive(&*expander, RESUMPTION, b"nonce")
        });
        assert_eq!(captured.len(), 1);
        assert_eq!(captured[0].as_bytes(), psk);
        let (_, captured) = capture(|| ());
        assert!(captured.is_empty());
    }

    /// A label of the application's, as of an exporter, may be one of those.
    #[test]
    fn keys_for_nothing_are_not_derived_and_all_else_is() {
        let expander = expander(Aead::Aes128Gcm, &[7; 32]);
        let slice = |label: &[u8], context: &[u8]| {
            let mut output = [1; 16];
            let parts: [&[u8]; 6] = [&[0, 16], &[0], b"tls13 ", label, &[0], context];
            expander.expand_slice(&parts, &mut output).unwrap();
            output
        };
        for label in [&b"quic key"[..], b"quic iv", b"quic hp", b"key", b"iv"] {
            assert_eq!(slice(label, b""), [0; 16]);
            assert_ne!(slice(label, b"context"), [0; 16]);
            assert_ne!(derive(&*expander, label, b""), [0; 32]);
        }
        assert_ne!(slice(b"exporter", b""), [0; 16]);
    }

    #[test]
    fn a_marked_nonce_yields_the_key_it_carries() {
        for (aead, len) in [(Aead::ChaCha20Poly1305, 32), (Aead::Aes256Gcm, 48)] {
            let expander = expander(aead, &vec![7; len]);
            let psk = Psk::new(&vec![9; len]);
            assert_eq!(derive(&*expander, RESUMPTION, &nonce_for(&psk)), psk.as_bytes());
            assert_ne!(derive(&*expander, RESUMPTION, psk.as_bytes()), psk.as_bytes());
            // A mark with a key of another length is an ordinary nonce.
            let short = Psk::new(&[9; 5]);
            assert_eq!(derive(&*expander, RESUMPTION, &nonce_for(&short)).len(), len);
        }
    }
}
