//! What the authority is answered while it looks whether names lead here.
//!
//! There is an answer for as long as an order waits for it, and for nothing else: without one, who asks is treated as
//! if there were no ACME.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use rcgen::{CertificateParams, CustomExtension, DistinguishedName, KeyPair};
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::ClientHello;
use tokio_rustls::rustls::sign::{CertifiedKey, SingleCertAndKey};

/// The application protocol of the challenge tls-alpn-01 (RFC 8737, Section 6.2).
const ACME_TLS: &[u8] = b"acme-tls/1";
/// Where the challenge http-01 is looked for (RFC 8555, Section 8.3).
const WELL_KNOWN: &str = "/.well-known/acme-challenge/";

/// All answers of a gateway.
#[derive(Default)]
pub(crate) struct Challenges {
    answers: RwLock<Answers>,
    /// How many are there over TLS: most of the time nobody looks at a ClientHello for them.
    over_tls: AtomicUsize,
}

#[derive(Default)]
struct Answers {
    /// By token.
    http: HashMap<String, String>,
    /// By name, in lower case.
    tls: HashMap<String, Arc<ServerConfig>>,
}

/// An answer that is given until this is dropped.
pub(crate) struct Given {
    challenges: Arc<Challenges>,
    key: Key,
}

enum Key {
    Token(String),
    Name(String),
}

impl Challenges {
    /// Answers a token with a key authorization.
    pub(crate) fn over_http(self: &Arc<Self>, token: &str, authorization: &str) -> Given {
        let mut answers = self.answers.write().unwrap_or_else(PoisonError::into_inner);
        answers.http.insert(token.to_owned(), authorization.to_owned());
        Given { challenges: Arc::clone(self), key: Key::Token(token.to_owned()) }
    }

    /// Answers handshakes for a name with a certificate that has the hash of the key authorization.
    ///
    /// # Errors
    ///
    /// If no such certificate can be made.
    pub(crate) fn over_tls(self: &Arc<Self>, name: &str, hash: &[u8]) -> Result<Given, String> {
        let (name, config) = (name.to_ascii_lowercase(), Arc::new(config(name, hash)?));
        let mut answers = self.answers.write().unwrap_or_else(PoisonError::into_inner);
        answers.tls.insert(name.clone(), config);
        self.over_tls.store(answers.tls.len(), Ordering::Relaxed);
        Ok(Given { challenges: Arc::clone(self), key: Key::Name(name) })
    }

    /// The key authorization for a path, if one is awaited there.
    pub(crate) fn find(&self, path: &str) -> Option<String> {
        let token = path.strip_prefix(WELL_KNOWN)?;
        let answers = self.answers.read().unwrap_or_else(PoisonError::into_inner);
        answers.http.get(token).cloned()
    }

    /// True if handshakes have to be looked at.
    fn are_over_tls(&self) -> bool {
        self.over_tls.load(Ordering::Relaxed) > 0
    }

    /// What a handshake is answered with that asks for this protocol alone (RFC 8737, Section 3), and for a name that
    /// is awaited.
    pub(crate) fn answer(&self, hello: &ClientHello<'_>) -> Option<Arc<ServerConfig>> {
        if !self.are_over_tls() {
            return None;
        }
        let mut protocols = hello.alpn()?;
        if protocols.next() != Some(ACME_TLS) || protocols.next().is_some() {
            return None;
        }
        let name = hello.server_name()?.to_ascii_lowercase();
        let answers = self.answers.read().unwrap_or_else(PoisonError::into_inner);
        answers.tls.get(&name).cloned()
    }
}

impl Drop for Given {
    fn drop(&mut self) {
        let challenges = &self.challenges;
        let mut answers = challenges.answers.write().unwrap_or_else(PoisonError::into_inner);
        match &self.key {
            Key::Token(token) => {
                answers.http.remove(token);
            }
            Key::Name(name) => {
                answers.tls.remove(name);
                challenges.over_tls.store(answers.tls.len(), Ordering::Relaxed);
            }
        }
    }
}

/// TLS with the certificate of the challenge, for this name and nothing else (RFC 8737, Section 3).
fn config(name: &str, hash: &[u8]) -> Result<ServerConfig, String> {
    // The library panics at another length.
    if hash.len() != 32 {
        return Err("the hash of a key authorization has 32 bytes".to_owned());
    }
    let make = || {
        let key = KeyPair::generate()?;
        let mut parameters = CertificateParams::new([name.to_owned()])?;
        parameters.distinguished_name = DistinguishedName::new();
        parameters.custom_extensions = vec![CustomExtension::new_acme_identifier(hash)];
        let certificate = parameters.self_signed(&key)?;
        Ok((certificate.der().to_vec(), key.serialize_der()))
    };
    let made: Result<_, rcgen::Error> = make();
    let (certificate, key) = made.map_err(|error| error.to_string())?;
    let provider = Arc::new(aws_lc_rs::default_provider());
    let key = PrivateKeyDer::Pkcs8(key.into());
    let key = provider.key_provider.load_private_key(key).map_err(|error| error.to_string())?;
    // Whether key and certificate belong together is not looked at: nobody but the authority reads one that has the
    // extension, which is critical.
    let own = CertifiedKey::new(vec![CertificateDer::from(certificate)], key);
    let config =
        ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.map_err(|error| error.to_string())?.with_no_client_auth();
    let mut config = config.with_cert_resolver(Arc::new(SingleCertAndKey::from(own)));
    config.alpn_protocols = vec![ACME_TLS.to_vec()];
    // There is nothing to resume.
    config.send_tls13_tickets = 0;
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_there_as_long_as_they_are_awaited() {
        let challenges = Arc::new(Challenges::default());
        assert!(!challenges.are_over_tls());
        let token = challenges.over_http("token", "token.thumb");
        let name = challenges.over_tls("a.example", &[7; 32]).unwrap();
        assert!(challenges.are_over_tls());
        let find = |path: &str| challenges.find(path);
        assert_eq!(find("/.well-known/acme-challenge/token").as_deref(), Some("token.thumb"));
        for other in
            ["/.well-known/acme-challenge/", "/.well-known/acme-challenge/t", "/token", "/"]
        {
            assert_eq!(find(other), None, "{other}");
        }
        drop((token, name));
        assert!(!challenges.are_over_tls());
        assert_eq!(challenges.find("/.well-known/acme-challenge/token"), None);
        assert!(challenges.over_tls("a.example", &[7; 31]).is_err());
    }
}
