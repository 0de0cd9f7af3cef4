//! Certificates, private keys, trusted roots and fingerprints.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::SystemTime;

use aws_lc_rs::digest;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use rustls::{RootCertStore, SignatureAlgorithm};

use crate::elsewhere::{self, RemoteKey};
use crate::{ConfigError, validity};

/// The SHA-256 hash of a certificate's DER encoding; printed as `sha256:` and lowercase hex.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fingerprint(pub [u8; 32]);

impl Fingerprint {
    /// The fingerprint of a certificate in DER.
    pub fn of(certificate_der: &[u8]) -> Self {
        let mut bytes = [0; 32];
        bytes.copy_from_slice(digest::digest(&digest::SHA256, certificate_der).as_ref());
        Self(bytes)
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("sha256:")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Fingerprint {
    type Err = ConfigError;

    /// Reads 64 hex digits in either case, with or without the `sha256:` prefix and with or
    /// without colons between bytes.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let hex = text.strip_prefix("sha256:").unwrap_or(text);
        let mut bytes = [0; 32];
        let mut digits = hex.bytes().filter(|byte| *byte != b':');
        let mut nibble = || {
            let digit = digits.next().and_then(|byte| char::from(byte).to_digit(16));
            digit.map(|digit| digit as u8).ok_or(ConfigError::InvalidFingerprint)
        };
        for byte in &mut bytes {
            *byte = nibble()? << 4 | nibble()?;
        }
        match digits.next() {
            None => Ok(Self(bytes)),
            Some(_) => Err(ConfigError::InvalidFingerprint),
        }
    }
}

/// What a private key signs with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum KeyType {
    /// RSA.
    Rsa,
    /// ECDSA.
    Ecdsa,
    /// Ed25519.
    Ed25519,
    /// Something else.
    Other,
}

impl KeyType {
    pub(crate) const fn of(key: SignatureAlgorithm) -> Self {
        match key {
            SignatureAlgorithm::RSA => Self::Rsa,
            SignatureAlgorithm::ECDSA => Self::Ecdsa,
            SignatureAlgorithm::ED25519 => Self::Ed25519,
            _ => Self::Other,
        }
    }
}

/// A certificate chain with its private key.
#[derive(Clone, Debug)]
pub struct Identity {
    chain: Vec<CertificateDer<'static>>,
    key: Key,
    /// For messages: where the two came from.
    origin: String,
}

/// Where a private key is.
#[derive(Debug)]
enum Key {
    Here(PrivateKeyDer<'static>),
    Elsewhere(Arc<dyn RemoteKey>),
}

impl Clone for Key {
    fn clone(&self) -> Self {
        match self {
            Self::Here(key) => Self::Here(key.clone_key()),
            Self::Elsewhere(key) => Self::Elsewhere(Arc::clone(key)),
        }
    }
}

impl Identity {
    /// Reads a chain (the endpoint's own certificate first) and a private key from PEM files,
    /// which may be the same file.
    ///
    /// # Errors
    ///
    /// If a file cannot be read or does not hold what it should.
    pub fn from_pem_files(
        chain: impl AsRef<Path>,
        key: impl AsRef<Path>,
    ) -> Result<Self, ConfigError> {
        let (chain, key) = (chain.as_ref(), key.as_ref());
        let chain_pem = std::fs::read(chain).map_err(|error| ConfigError::file(chain, error))?;
        let key_pem = std::fs::read(key).map_err(|error| ConfigError::file(key, error))?;
        Self::parse(&chain_pem, &chain.display().to_string(), &key_pem, &key.display().to_string())
    }

    /// Reads a chain and a private key from PEM text.
    ///
    /// # Errors
    ///
    /// If either does not hold what it should.
    pub fn from_pem(chain: &[u8], key: &[u8]) -> Result<Self, ConfigError> {
        Self::parse(chain, "certificate chain", key, "private key")
    }

    fn parse(
        chain: &[u8],
        chain_origin: &str,
        key: &[u8],
        key_origin: &str,
    ) -> Result<Self, ConfigError> {
        let chain = certificates_from_pem(chain, chain_origin)?;
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| ConfigError::PrivateKey {
            origin: key_origin.to_owned(),
            reason: match error {
                pem::Error::NoItemsFound => "no private key found".to_owned(),
                other => other.to_string(),
            },
        })?;
        Ok(Self { chain, key: Key::Here(key), origin: key_origin.to_owned() })
    }

    /// Takes a chain and a private key (PKCS #8, PKCS #1 or SEC 1) in DER.
    ///
    /// # Errors
    ///
    /// If the chain is empty or the key is in none of these forms.
    pub fn from_der(chain: Vec<Vec<u8>>, key: Vec<u8>) -> Result<Self, ConfigError> {
        if chain.is_empty() {
            return Err(ConfigError::Certificate {
                origin: "certificate chain".to_owned(),
                reason: "it is empty".to_owned(),
            });
        }
        let key = PrivateKeyDer::try_from(key).map_err(|reason| ConfigError::PrivateKey {
            origin: "private key".to_owned(),
            reason: reason.to_owned(),
        })?;
        let chain = chain.into_iter().map(CertificateDer::from).collect();
        Ok(Self { chain, key: Key::Here(key), origin: "private key".to_owned() })
    }

    /// Generates an ECDSA P-256 key and a certificate for `names` (DNS names or IP addresses)
    /// signed with it. Peers trust it by its [`Identity::fingerprint`].
    ///
    /// # Errors
    ///
    /// If a name is neither a DNS name nor an address.
    pub fn self_signed<I, S>(names: I) -> Result<Self, ConfigError>
    where
        I: IntoIterator<Item = S>,
        S: Into<String>,
    {
        let names: Vec<String> = names.into_iter().map(Into::into).collect();
        let generated = rcgen::generate_simple_self_signed(names).map_err(ConfigError::Generate)?;
        let key = PrivateKeyDer::Pkcs8(generated.signing_key.serialize_der().into());
        Ok(Self {
            chain: vec![generated.cert.der().clone()],
            key: Key::Here(key),
            origin: "self-signed certificate".to_owned(),
        })
    }

    /// The endpoint's own certificate and those that lead to a root, in DER.
    pub fn chain(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.chain.iter().map(AsRef::as_ref)
    }

    /// The DNS names of the endpoint's own certificate (its subject alternative names), `*.`
    /// included; none if it has only addresses, or a common name, for which no client asks.
    pub fn dns_names(&self) -> Vec<String> {
        let own = self.chain.first().map(webpki::EndEntityCert::try_from);
        let Some(Ok(own)) = own else { return Vec::new() };
        own.valid_dns_names().map(str::to_owned).collect()
    }

    /// When the endpoint's own certificate ends; `None` if it does not say.
    pub fn not_after(&self) -> Option<SystemTime> {
        validity::not_after(self.chain.first()?)
    }

    /// When the endpoint's own certificate begins; `None` if it does not say.
    pub fn not_before(&self) -> Option<SystemTime> {
        validity::not_before(self.chain.first()?)
    }

    /// What the key signs with. A server may have a certificate of each type for a name.
    ///
    /// # Errors
    ///
    /// If the key cannot be used.
    pub fn key_type(&self) -> Result<KeyType, ConfigError> {
        Ok(KeyType::of(self.certified_key()?.key.algorithm()))
    }

    pub(crate) fn of_remote(
        chain: Vec<CertificateDer<'static>>,
        key: Arc<dyn RemoteKey>,
        origin: String,
    ) -> Self {
        Self { chain, key: Key::Elsewhere(key), origin }
    }

    /// The key, if it is elsewhere.
    pub(crate) fn remote_key(&self) -> Option<&Arc<dyn RemoteKey>> {
        match &self.key {
            Key::Here(_) => None,
            Key::Elsewhere(key) => Some(key),
        }
    }

    /// The private key in DER; empty if it is [elsewhere](Identity::with_key_elsewhere).
    pub fn key(&self) -> &[u8] {
        match &self.key {
            Key::Here(key) => key.secret_der(),
            Key::Elsewhere(_) => &[],
        }
    }

    /// The certificates as PEM text, as [`Identity::from_pem`] reads it.
    pub fn chain_pem(&self) -> String {
        self.chain().map(|der| ::pem::encode(&::pem::Pem::new("CERTIFICATE", der))).collect()
    }

    /// The private key as PEM text, unencrypted; empty if it is [elsewhere](Identity::with_key_elsewhere).
    pub fn key_pem(&self) -> String {
        let label = match &self.key {
            Key::Elsewhere(_) => return String::new(),
            Key::Here(PrivateKeyDer::Pkcs1(_)) => "RSA PRIVATE KEY",
            Key::Here(PrivateKeyDer::Sec1(_)) => "EC PRIVATE KEY",
            Key::Here(_) => "PRIVATE KEY",
        };
        ::pem::encode(&::pem::Pem::new(label, self.key()))
    }

    /// The fingerprint of the endpoint's own certificate.
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(self.chain.first().map_or(&[][..], AsRef::as_ref))
    }

    /// Checks the key and joins it with its chain.
    pub(crate) fn certified_key(&self) -> Result<Arc<CertifiedKey>, ConfigError> {
        let unusable =
            |reason: String| ConfigError::PrivateKey { origin: self.origin.clone(), reason };
        let key = match &self.key {
            Key::Here(key) => {
                let provider = rustls::crypto::aws_lc_rs::default_provider();
                CertifiedKey::from_der(self.chain.clone(), key.clone_key(), &provider)
                    .map_err(|error| unusable(error.to_string()))?
            }
            Key::Elsewhere(key) => elsewhere::certified_key(&self.chain, key)
                .ok_or_else(|| unusable("the certificate has no key for TLS 1.3".to_owned()))?,
        };
        Ok(Arc::new(key))
    }
}

/// Lists of revoked certificates (RFC 5280, Section 5), as PEM or DER.
pub(crate) fn revocation_lists(content: &[u8], origin: &str) -> Result<Vec<Vec<u8>>, ConfigError> {
    let failed = |reason: String| ConfigError::RevocationList { origin: origin.to_owned(), reason };
    let is_pem = content.windows(11).any(|bytes| bytes == b"-----BEGIN ");
    let lists = match is_pem {
        true => CertificateRevocationListDer::pem_slice_iter(content)
            .map(|list| list.map(|list| list.to_vec()))
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| failed(error.to_string()))?,
        false => vec![content.to_vec()],
    };
    if lists.is_empty() {
        return Err(failed("no list found".to_owned()));
    }
    for list in &lists {
        webpki::BorrowedCertRevocationList::from_der(list)
            .map_err(|error| failed(error.to_string()))?;
    }
    Ok(lists)
}

pub(crate) fn certificates_from_pem(
    pem: &[u8],
    origin: &str,
) -> Result<Vec<CertificateDer<'static>>, ConfigError> {
    let failed = |reason: String| ConfigError::Certificate { origin: origin.to_owned(), reason };
    let certificates = CertificateDer::pem_slice_iter(pem)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| failed(error.to_string()))?;
    if certificates.is_empty() {
        return Err(failed("no certificate found".to_owned()));
    }
    Ok(certificates)
}

/// Whom to trust.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub enum Roots {
    /// The operating system's store.
    #[default]
    System,
    /// The certificates of a PEM file.
    PemFile(PathBuf),
    /// These certificates in DER.
    Der(Vec<Vec<u8>>),
}

impl Roots {
    pub(crate) fn load(&self) -> Result<Arc<RootCertStore>, ConfigError> {
        let mut store = RootCertStore::empty();
        match self {
            Self::System => load_system(&mut store)?,
            Self::PemFile(path) => {
                let pem = std::fs::read(path).map_err(|error| ConfigError::file(path, error))?;
                let origin = path.display().to_string();
                for certificate in certificates_from_pem(&pem, &origin)? {
                    add_root(&mut store, certificate, &origin)?;
                }
            }
            Self::Der(certificates) => {
                for certificate in certificates {
                    add_root(&mut store, certificate.clone().into(), "root certificate")?;
                }
            }
        }
        if store.is_empty() {
            return Err(ConfigError::NoRoots { reason: "the list is empty".to_owned() });
        }
        Ok(Arc::new(store))
    }
}

fn add_root(
    store: &mut RootCertStore,
    certificate: CertificateDer<'static>,
    origin: &str,
) -> Result<(), ConfigError> {
    store.add(certificate).map_err(|error| ConfigError::Certificate {
        origin: origin.to_owned(),
        reason: error.to_string(),
    })
}

/// A system's store often holds certificates that the library cannot use: they are skipped.
fn load_system(store: &mut RootCertStore) -> Result<(), ConfigError> {
    let found = rustls_native_certs::load_native_certs();
    let (added, _skipped) = store.add_parsable_certificates(found.certs);
    if added > 0 {
        return Ok(());
    }
    let errors: Vec<String> = found.errors.iter().map(ToString::to_string).collect();
    let reason = if errors.is_empty() {
        "the system's certificate store is empty".to_owned()
    } else {
        format!("the system's certificate store cannot be read ({})", errors.join("; "))
    };
    Err(ConfigError::NoRoots { reason })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fingerprints_are_printed_and_read_back() {
        let fingerprint = Fingerprint::of(b"abc");
        let text = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(fingerprint.to_string(), text);
        assert_eq!(text.parse::<Fingerprint>().unwrap(), fingerprint);
        let bare = text.strip_prefix("sha256:").unwrap().to_uppercase();
        assert_eq!(bare.parse::<Fingerprint>().unwrap(), fingerprint);
        let colons: Vec<&str> = (0..32).map(|at| &bare[2 * at..2 * at + 2]).collect();
        assert_eq!(colons.join(":").parse::<Fingerprint>().unwrap(), fingerprint);
        for wrong in ["", "sha256:", &text[..text.len() - 1], &format!("{text}0"), "sha256:zz"] {
            assert!(wrong.parse::<Fingerprint>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_self_signed_identity_is_usable_and_has_its_own_fingerprint() {
        let one = Identity::self_signed(["localhost", "127.0.0.1"]).unwrap();
        let other = Identity::self_signed(["localhost"]).unwrap();
        assert!(one.certified_key().is_ok());
        assert_ne!(one.fingerprint(), other.fingerprint());
        assert_eq!(one.dns_names(), ["localhost"]);
        let wild = Identity::self_signed(["*.a.test", "a.test", "::1"]).unwrap();
        assert_eq!(wild.dns_names(), ["*.a.test", "a.test"]);
        let again =
            Identity::from_der(one.chain().map(<[u8]>::to_vec).collect(), one.key().to_vec());
        assert_eq!(again.unwrap().fingerprint(), one.fingerprint());
        let (chain, key) = (one.chain_pem(), one.key_pem());
        let again = Identity::from_pem(chain.as_bytes(), key.as_bytes()).unwrap();
        assert_eq!(again.fingerprint(), one.fingerprint());
        assert_eq!(again.key(), one.key());
        assert!(again.certified_key().is_ok());
    }

    #[test]
    fn a_key_of_another_certificate_is_refused() {
        let one = Identity::self_signed(["a.test"]).unwrap();
        let other = Identity::self_signed(["b.test"]).unwrap();
        let mixed =
            Identity::from_der(one.chain().map(<[u8]>::to_vec).collect(), other.key().to_vec())
                .unwrap();
        assert!(matches!(mixed.certified_key(), Err(ConfigError::PrivateKey { .. })));
    }

    #[test]
    fn pem_without_the_wanted_items_says_what_is_missing() {
        let error = Identity::from_pem(b"nothing here", b"nor here").unwrap_err();
        assert!(error.to_string().contains("no certificate found"), "{error}");
        let missing = Identity::from_pem_files("/nonexistent/cert.pem", "/nonexistent/key.pem");
        assert!(missing.unwrap_err().to_string().contains("/nonexistent/cert.pem"));
    }

    #[test]
    fn empty_or_broken_roots_are_refused() {
        assert!(matches!(Roots::Der(Vec::new()).load(), Err(ConfigError::NoRoots { .. })));
        let broken = Roots::Der(vec![vec![1, 2, 3]]);
        assert!(matches!(broken.load(), Err(ConfigError::Certificate { .. })));
    }
}
