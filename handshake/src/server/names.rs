//! Certificates chosen by the name that the client asks for (RFC 6066, Section 3).

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use rustls::SignatureScheme;
use rustls::pki_types::DnsName;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use crate::certificates::KeyType;
use crate::elsewhere::{self, RemoteKey};
use crate::{ConfigError, Identity};

/// A certificate with its key.
#[derive(Clone, Debug)]
struct Own {
    key: Arc<CertifiedKey>,
    /// The key, if it is in another process.
    elsewhere: Option<Arc<dyn RemoteKey>>,
}

impl Own {
    fn new(identity: &Identity) -> Result<Self, ConfigError> {
        let (key, elsewhere) = (identity.certified_key()?, identity.remote_key().cloned());
        Ok(Self { key, elsewhere })
    }
}

/// The certificates for a name, with keys of different types; the most wanted first.
type Keys = Vec<Own>;

/// Certificates by name, and those for everybody else.
#[derive(Debug)]
pub(super) struct CertificatesByName {
    default: Keys,
    /// By lowercase name.
    exact: HashMap<String, Keys>,
    /// By the lowercase name after the `*.`.
    wildcard: HashMap<String, Keys>,
    /// A key is in another process.
    are_elsewhere: bool,
}

impl CertificatesByName {
    pub(super) fn new(
        default: &Identity,
        named: &[(Vec<String>, Identity)],
    ) -> Result<Self, ConfigError> {
        let mut this = Self {
            default: vec![Own::new(default)?],
            exact: HashMap::new(),
            wildcard: HashMap::new(),
            are_elsewhere: default.remote_key().is_some(),
        };
        let own = default.dns_names();
        for (names, identity) in named {
            let key = Own::new(identity)?;
            this.are_elsewhere |= key.elsewhere.is_some();
            for name in names {
                this.add(name, &key)?;
            }
            // The same site's with a key of another type: for those who ask for no name, too.
            let is_own = |name: &String| own.iter().any(|own| own.eq_ignore_ascii_case(name));
            let has_type = |other: &Own| key_type(other) == key_type(&key);
            if names.iter().any(is_own) && !this.default.iter().any(has_type) {
                this.default.push(key);
            }
        }
        Ok(this)
    }

    fn add(&mut self, name: &str, key: &Own) -> Result<(), ConfigError> {
        let (table, dns_name) = match name.strip_prefix("*.") {
            Some(parent) => (&mut self.wildcard, parent),
            None => (&mut self.exact, name),
        };
        if DnsName::try_from(dns_name).is_err() {
            return Err(ConfigError::InvalidServerName { name: name.to_owned() });
        }
        let keys = table.entry(dns_name.to_ascii_lowercase()).or_default();
        match keys.iter_mut().find(|other| key_type(other) == key_type(key)) {
            Some(other) => *other = key.clone(),
            None => keys.push(key.clone()),
        }
        Ok(())
    }

    fn find(&self, server_name: Option<&str>) -> &[Own] {
        let Some(name) = server_name else { return &self.default };
        let name = name.to_ascii_lowercase();
        let parent = || name.split_once('.').and_then(|(_, parent)| self.wildcard.get(parent));
        self.exact.get(&name).or_else(parent).unwrap_or(&self.default)
    }
}

fn key_type(own: &Own) -> KeyType {
    KeyType::of(own.key.key.algorithm())
}

/// The first whose signatures the client verifies (RFC 8446, Section 4.4.2.2). Where it verifies none, the first
/// one has the handshake fail as it would alone.
fn choose<'a>(keys: &'a [Own], schemes: &[SignatureScheme]) -> Option<&'a Own> {
    keys.iter().find(|own| own.key.key.choose_scheme(schemes).is_some()).or(keys.first())
}

/// The certificates of now. A handshake takes its own at the ClientHello and keeps it.
#[derive(Debug)]
pub(crate) struct Certificates(RwLock<CertificatesByName>);

impl Certificates {
    pub(super) const fn new(certificates: CertificatesByName) -> Self {
        Self(RwLock::new(certificates))
    }

    /// Has handshakes from now on take others.
    pub(super) fn replace(&self, certificates: CertificatesByName) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = certificates;
    }

    /// One of the keys for a name, if all of them are in other processes, and wait for their signatures in common: which
    /// of them a client verifies is not known yet, and the threads of one would have to do without another.
    pub(crate) fn elsewhere(&self, server_name: Option<&str>) -> Option<Arc<dyn RemoteKey>> {
        let certificates = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let (first, others) = certificates.find(server_name).split_first()?;
        let first = first.elsewhere.as_ref()?;
        let threads = first.threads();
        let is_in_common = |own: &Own| {
            let other = own.elsewhere.as_ref().and_then(|key| key.threads());
            other.is_some() && other == threads
        };
        others.iter().all(is_in_common).then(|| Arc::clone(first))
    }

    /// Whether a key of them is in another process.
    pub(super) fn are_elsewhere(&self) -> bool {
        self.0.read().unwrap_or_else(PoisonError::into_inner).are_elsewhere
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, client_hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let certificates = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let keys = certificates.find(client_hello.server_name());
        let own = choose(keys, client_hello.signature_schemes())?;
        let goes_on = own.elsewhere.as_ref().is_none_or(elsewhere::may_go_on_with);
        goes_on.then(|| Arc::clone(&own.key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exact_names_come_before_wildcards_and_wildcards_before_the_default() {
        let identity = |name: &str| Identity::self_signed([name]).unwrap();
        let (default, exact, wildcard) =
            (identity("a.test"), identity("b.test"), identity("c.test"));
        let named = [
            (vec!["*.example.org".to_owned()], wildcard.clone()),
            (vec!["WWW.example.org".to_owned(), "example.org".to_owned()], exact.clone()),
        ];
        let certificates = CertificatesByName::new(&default, &named).unwrap();
        let chosen = |name| certificates.find(name)[0].key.cert[0].to_vec();
        let of = |identity: &Identity| identity.chain().next().unwrap().to_vec();
        assert_eq!(chosen(Some("www.EXAMPLE.org")), of(&exact));
        assert_eq!(chosen(Some("example.org")), of(&exact));
        assert_eq!(chosen(Some("ftp.example.org")), of(&wildcard));
        assert_eq!(chosen(Some("a.ftp.example.org")), of(&default));
        assert_eq!(chosen(Some("org")), of(&default));
        assert_eq!(chosen(None), of(&default));
    }

    /// An Ed25519 key beside the ECDSA key of `self_signed`.
    fn ed25519(name: &str) -> Identity {
        let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
        let parameters = rcgen::CertificateParams::new([name.to_owned()]).unwrap();
        let certificate = parameters.self_signed(&key).unwrap();
        Identity::from_der(vec![certificate.der().to_vec()], key.serialize_der()).unwrap()
    }

    #[test]
    fn the_client_gets_the_first_key_whose_signatures_it_verifies() {
        const ECDSA: SignatureScheme = SignatureScheme::ECDSA_NISTP256_SHA256;
        const ED25519: SignatureScheme = SignatureScheme::ED25519;
        const RSA: SignatureScheme = SignatureScheme::RSA_PSS_SHA256;
        let (one, two, other) =
            (Identity::self_signed(["a.test"]).unwrap(), ed25519("a.test"), ed25519("b.test"));
        let named = [&one, &two, &other].map(|identity| (identity.dns_names(), identity.clone()));
        let certificates = CertificatesByName::new(&one, &named).unwrap();
        let of = |identity: &Identity| identity.chain().next().unwrap().to_vec();
        for name in [Some("a.test"), None, Some("c.test")] {
            let chosen = |schemes: &[SignatureScheme]| {
                choose(certificates.find(name), schemes).unwrap().key.cert[0].to_vec()
            };
            assert_eq!(chosen(&[ED25519, ECDSA]), of(&one), "the order is the server's");
            assert_eq!(chosen(&[ED25519]), of(&two), "{name:?}");
            assert_eq!(chosen(&[RSA]), of(&one), "none is right, and it will fail");
        }
        let named = certificates.find(Some("b.test"));
        assert_eq!(choose(named, &[ECDSA]).unwrap().key.cert[0].to_vec(), of(&other));
        // Of one type the last one counts, as for one name alone.
        let again = Identity::self_signed(["a.test"]).unwrap();
        let named = [&one, &two, &again].map(|identity| (identity.dns_names(), identity.clone()));
        let certificates = CertificatesByName::new(&one, &named).unwrap();
        let keys = certificates.find(Some("a.test"));
        assert_eq!((keys.len(), keys[0].key.cert[0].to_vec()), (2, of(&again)));
    }

    /// A key of a process, by the number of its threads.
    #[derive(Debug)]
    struct Away(Option<usize>);

    impl RemoteKey for Away {
        fn sign(&self, _: u16, _: &[u8]) -> Result<Vec<u8>, String> {
            Err("nobody is there".to_owned())
        }

        fn run(&self, _: Box<dyn FnOnce() + Send>) -> Result<(), String> {
            Err("nobody is there".to_owned())
        }

        fn threads(&self) -> Option<usize> {
            self.0
        }
    }

    #[test]
    fn a_key_is_foreseen_only_if_all_of_the_name_wait_in_common() {
        let away = |identity: &Identity, threads| {
            let chain = identity.chain_pem();
            let key = |_: &[u8]| Arc::new(Away(threads)) as Arc<dyn RemoteKey>;
            Identity::from_pem_with_key_elsewhere(chain.as_bytes(), key).unwrap()
        };
        let (ecdsa, ed) = (Identity::self_signed(["a.test"]).unwrap(), ed25519("a.test"));
        let foresees = |first: &Identity, second: Option<&Identity>| {
            let named: Vec<_> = [Some(first), second]
                .into_iter()
                .flatten()
                .map(|identity| (vec!["a.test".to_owned()], identity.clone()))
                .collect();
            let certificates = CertificatesByName::new(&ecdsa, &named).unwrap();
            Certificates::new(certificates).elsewhere(Some("a.test")).is_some()
        };
        let one = away(&ecdsa, Some(1));
        assert!(foresees(&one, None) && foresees(&one, Some(&away(&ed, Some(1)))));
        assert!(foresees(&away(&ecdsa, None), None));
        assert!(!foresees(&one, Some(&away(&ed, Some(2)))), "another process");
        assert!(!foresees(&away(&ecdsa, None), Some(&away(&ed, None))), "who knows");
        assert!(!foresees(&one, Some(&ed)) && !foresees(&ecdsa, None), "one is here");
    }

    #[test]
    fn a_name_that_no_client_can_ask_for_is_refused() {
        let identity = Identity::self_signed(["a.test"]).unwrap();
        for name in ["", "*.", "bad name", "*.*.org"] {
            let named = [(vec![name.to_owned()], identity.clone())];
            let error = CertificatesByName::new(&identity, &named).unwrap_err();
            assert!(matches!(error, ConfigError::InvalidServerName { .. }), "{name:?}");
        }
    }
}
