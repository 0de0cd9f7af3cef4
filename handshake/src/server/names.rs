//! Certificates chosen by the name that the client asks for (RFC 6066, Section 3).

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use rustls::pki_types::DnsName;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use crate::{ConfigError, Identity};

/// Certificates by name, and one for everybody else.
#[derive(Debug)]
pub(super) struct CertificatesByName {
    default: Arc<CertifiedKey>,
    /// By lowercase name.
    exact: HashMap<String, Arc<CertifiedKey>>,
    /// By the lowercase name after the `*.`.
    wildcard: HashMap<String, Arc<CertifiedKey>>,
}

impl CertificatesByName {
    pub(super) fn new(
        default: &Identity,
        named: &[(Vec<String>, Identity)],
    ) -> Result<Self, ConfigError> {
        let mut this = Self {
            default: default.certified_key()?,
            exact: HashMap::new(),
            wildcard: HashMap::new(),
        };
        for (names, identity) in named {
            let key = identity.certified_key()?;
            for name in names {
                this.add(name, &key)?;
            }
        }
        Ok(this)
    }

    fn add(&mut self, name: &str, key: &Arc<CertifiedKey>) -> Result<(), ConfigError> {
        let (table, dns_name) = match name.strip_prefix("*.") {
            Some(parent) => (&mut self.wildcard, parent),
            None => (&mut self.exact, name),
        };
        if DnsName::try_from(dns_name).is_err() {
            return Err(ConfigError::InvalidServerName { name: name.to_owned() });
        }
        table.insert(dns_name.to_ascii_lowercase(), key.clone());
        Ok(())
    }

    fn find(&self, server_name: Option<&str>) -> &Arc<CertifiedKey> {
        let Some(name) = server_name else { return &self.default };
        let name = name.to_ascii_lowercase();
        let parent = || name.split_once('.').and_then(|(_, parent)| self.wildcard.get(parent));
        self.exact.get(&name).or_else(parent).unwrap_or(&self.default)
    }
}

/// The certificates of now. A handshake takes its own at the ClientHello and keeps it.
#[derive(Debug)]
pub(super) struct Certificates(RwLock<CertificatesByName>);

impl Certificates {
    pub(super) const fn new(certificates: CertificatesByName) -> Self {
        Self(RwLock::new(certificates))
    }

    /// Has handshakes from now on take others.
    pub(super) fn replace(&self, certificates: CertificatesByName) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = certificates;
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, client_hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let certificates = self.0.read().unwrap_or_else(PoisonError::into_inner);
        Some(certificates.find(client_hello.server_name()).clone())
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
        let chosen = |name| certificates.find(name).cert[0].to_vec();
        let of = |identity: &Identity| identity.chain().next().unwrap().to_vec();
        assert_eq!(chosen(Some("www.EXAMPLE.org")), of(&exact));
        assert_eq!(chosen(Some("example.org")), of(&exact));
        assert_eq!(chosen(Some("ftp.example.org")), of(&wildcard));
        assert_eq!(chosen(Some("a.ftp.example.org")), of(&default));
        assert_eq!(chosen(Some("org")), of(&default));
        assert_eq!(chosen(None), of(&default));
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
