//! TLS configurations, and a way to tell a resumed session from a new one.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use quicket_workload::bench::Failure;
use quicket_workload::peer::{ClientArguments, ServerArguments};
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::aws_lc_rs::cipher_suite::{
    TLS13_AES_128_GCM_SHA256, TLS13_CHACHA20_POLY1305_SHA256,
};
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::quic::Suite;
use rustls::server::WebPkiClientVerifier;
use rustls::{
    ClientConfig, DigitallySignedStruct, Error, KeyLogFile, RootCertStore, ServerConfig,
    SignatureScheme, version,
};

pub fn server(arguments: &ServerArguments) -> Result<Arc<QuicServerConfig>, Failure> {
    let provider = Arc::new(default_provider());
    let config = ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&version::TLS13])?;
    let config = match &arguments.client_ca {
        Some(file) => {
            let roots = Arc::new(roots(file)?);
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider);
            config.with_client_cert_verifier(verifier.build()?)
        }
        None => config.with_no_client_auth(),
    };
    let key = PrivateKeyDer::from_pem_file(&arguments.key)?;
    let mut config = config.with_single_cert(chain(&arguments.cert)?, key)?;
    config.key_log = Arc::new(KeyLogFile::new());
    config.alpn_protocols = arguments.alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
    // The only value that permits early data in QUIC (RFC 9001, Section 4.6.1).
    config.max_early_data_size = u32::MAX;
    Ok(Arc::new(QuicServerConfig::try_from(config)?))
}

/// A client's configuration, and what tells whether certificates had to be verified.
pub fn client(
    arguments: &ClientArguments,
) -> Result<(Arc<QuicClientConfig>, Arc<Witness>), Failure> {
    let mut provider = default_provider();
    if arguments.chacha20 {
        provider.cipher_suites = vec![TLS13_CHACHA20_POLY1305_SHA256];
    }
    let provider = Arc::new(provider);
    let inner =
        WebPkiServerVerifier::builder_with_provider(roots(&arguments.ca)?.into(), provider.clone());
    let witness = Arc::new(Witness { inner: inner.build()?, verified: AtomicU64::new(0) });
    let config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(witness.clone());
    let mut config = match (&arguments.cert, &arguments.key) {
        (Some(file), Some(key)) => {
            config.with_client_auth_cert(chain(file)?, PrivateKeyDer::from_pem_file(key)?)?
        }
        _ => config.with_no_client_auth(),
    };
    config.alpn_protocols = vec![arguments.alpn.as_bytes().to_vec()];
    config.key_log = Arc::new(KeyLogFile::new());
    config.enable_early_data = true;
    if arguments.one_by_one {
        config.resumption = Resumption::disabled();
    }
    let crypto = QuicClientConfig::with_initial(Arc::new(config), initial_suite()?)?;
    Ok((Arc::new(crypto), witness))
}

fn chain(file: &Path) -> Result<Vec<CertificateDer<'static>>, Failure> {
    Ok(CertificateDer::pem_file_iter(file)?.collect::<Result<_, _>>()?)
}

fn roots(file: &Path) -> Result<RootCertStore, Failure> {
    let mut roots = RootCertStore::empty();
    for root in chain(file)? {
        roots.add(root)?;
    }
    Ok(roots)
}

/// The suite of Initial packets, whatever the one of the connection is (RFC 9001, Section 5.2).
pub(crate) fn initial_suite() -> Result<Suite, Failure> {
    let suite = TLS13_AES_128_GCM_SHA256.tls13().and_then(|suite| suite.quic_suite());
    suite.ok_or_else(|| "AES-128-GCM is not there for QUIC".into())
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
