//! TLS configurations, and a way to tell a resumed session from a new one.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use quicket_workload::bench::Failure;
use quicket_workload::peer::ClientArguments;
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::aws_lc_rs::cipher_suite::TLS13_CHACHA20_POLY1305_SHA256;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    ClientConfig, DigitallySignedStruct, Error, KeyLogFile, RootCertStore, ServerConfig,
    SignatureScheme, version,
};

use crate::bench;

pub fn server(
    certificate: &Path,
    key: &Path,
    alpn: &[String],
) -> Result<Arc<QuicServerConfig>, Failure> {
    let chain = CertificateDer::pem_file_iter(certificate)?.collect::<Result<Vec<_>, _>>()?;
    let key = PrivateKeyDer::from_pem_file(key)?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_protocol_versions(&[&version::TLS13])?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    config.key_log = Arc::new(KeyLogFile::new());
    config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
    // The only value that permits early data in QUIC (RFC 9001, Section 4.6.1).
    config.max_early_data_size = u32::MAX;
    Ok(Arc::new(QuicServerConfig::try_from(config)?))
}

/// A client's configuration, and what tells whether certificates had to be verified.
pub fn client(
    arguments: &ClientArguments,
) -> Result<(Arc<QuicClientConfig>, Arc<Witness>), Failure> {
    let mut roots = RootCertStore::empty();
    for root in CertificateDer::pem_file_iter(&arguments.ca)? {
        roots.add(root?)?;
    }
    let mut provider = default_provider();
    if arguments.chacha20 {
        provider.cipher_suites = vec![TLS13_CHACHA20_POLY1305_SHA256];
    }
    let provider = Arc::new(provider);
    let inner = WebPkiServerVerifier::builder_with_provider(roots.into(), provider.clone());
    let witness = Arc::new(Witness { inner: inner.build()?, verified: AtomicU64::new(0) });
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(witness.clone())
        .with_no_client_auth();
    config.alpn_protocols = vec![arguments.alpn.as_bytes().to_vec()];
    config.key_log = Arc::new(KeyLogFile::new());
    config.enable_early_data = true;
    if arguments.one_by_one {
        config.resumption = Resumption::disabled();
    }
    let crypto = QuicClientConfig::with_initial(Arc::new(config), bench::initial_suite()?)?;
    Ok((Arc::new(crypto), witness))
}

/// Verifies as usual and counts: a resumed session has no certificate to verify.
#[derive(Debug)]
pub struct Witness {
    inner: Arc<WebPkiServerVerifier>,
    verified: AtomicU64,
}

impl Witness {
    /// Certificates verified so far.
    pub fn verified(&self) -> u64 {
        self.verified.load(Ordering::Relaxed)
    }
}

impl ServerCertVerifier for Witness {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.verified.fetch_add(1, Ordering::Relaxed);
        self.inner.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}
