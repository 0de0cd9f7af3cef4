//! By what both sides of a connection over TCP know each other: TLS 1.3, with a certificate on either side.

use std::path::Path;
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};

use crate::{KeyId, key_id, spki_of_certificate};

/// How clients over TCP are known: TLS 1.3, with a certificate on either side.
#[derive(Clone, Debug)]
pub struct ServerTls {
    pub(crate) config: Arc<ServerConfig>,
    key: KeyId,
}

impl ServerTls {
    /// The own certificate chain and key, and the authorities of clients: files of PEM.
    ///
    /// # Errors
    ///
    /// If a file cannot be read, or is not what it should be.
    pub fn of_files(chain: &Path, key: &Path, client_ca: &Path) -> Result<Self, String> {
        let (chain, key, roots) = (certificates(chain)?, private_key(key)?, roots(client_ca)?);
        let own = chain.first().and_then(|own| spki_of_certificate(own));
        let own = own.ok_or("the own certificate is none that can be read")?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone());
        let verifier = verifier.build().map_err(|error| error.to_string())?;
        let config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map(|builder| builder.with_client_cert_verifier(verifier))
            .and_then(|builder| builder.with_single_cert(chain, key));
        let mut config = config.map_err(|error| error.to_string())?;
        // A session that is resumed has its certificate looked at no more (RFC 8446, Section 2.2): there are none.
        config.send_tls13_tickets = 0;
        Ok(Self { config: Arc::new(config), key: key_id(&own) })
    }

    /// What names the key of the own certificate. It is none to sign handshakes of others with.
    pub fn key(&self) -> KeyId {
        self.key
    }
}

/// By what both sides of a connection over TCP know each other: files of PEM.
#[derive(Clone, Debug)]
pub struct MutualTls(pub(crate) Arc<ClientConfig>);

impl MutualTls {
    /// The client's certificate chain and key, and the authorities of the key process.
    ///
    /// # Errors
    ///
    /// If a file cannot be read, or is not what it should be.
    pub fn of_files(chain: &Path, key: &Path, ca: &Path) -> Result<Self, String> {
        let (chain, key, roots) = (certificates(chain)?, private_key(key)?, roots(ca)?);
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map(|builder| builder.with_root_certificates(roots))
            .and_then(|builder| builder.with_client_auth_cert(chain, key));
        let mut config = config.map_err(|error| error.to_string())?;
        config.resumption = Resumption::disabled();
        Ok(Self(Arc::new(config)))
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
    let all: Vec<_> = read.map_err(|error| format!("{}: {error}", path.display()))?;
    match all.is_empty() {
        true => Err(format!("{}: there is no certificate", path.display())),
        false => Ok(all),
    }
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, String> {
    PrivateKeyDer::from_pem_file(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn roots(path: &Path) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots.add(certificate).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(roots)
}
