//! TLS configurations, and a way to tell a resumed session from a new one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use quicket_peer_common::tls;
use quicket_workload::bench::Failure;
use quicket_workload::peer::{ClientArguments, ServerArguments};
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::quic::Suite;
use rustls::{DigitallySignedStruct, Error, SignatureScheme};

pub fn server(arguments: &ServerArguments) -> Result<Arc<QuicServerConfig>, Failure> {
    let mut config = tls::server(arguments)?;
    // The only value that permits early data in QUIC (RFC 9001, Section 4.6.1).
    config.max_early_data_size = u32::MAX;
    Ok(Arc::new(QuicServerConfig::try_from(config)?))
}

/// A client's configuration, and what tells whether certificates had to be verified.
pub fn client(
    arguments: &ClientArguments,
) -> Result<(Arc<QuicClientConfig>, Arc<Witness>), Failure> {
    let mut config = tls::client(arguments)?;
    let roots = Arc::new(tls::roots(&arguments.ca)?);
    let provider = config.crypto_provider().clone();
    let inner = WebPkiServerVerifier::builder_with_provider(roots, provider).build()?;
    let witness = Arc::new(Witness { inner, verified: AtomicU64::new(0) });
    config.dangerous().set_certificate_verifier(witness.clone());
    config.enable_early_data = true;
    if arguments.one_by_one {
        config.resumption = Resumption::disabled();
    }
    let crypto = QuicClientConfig::with_initial(Arc::new(config), initial_suite()?)?;
    Ok((Arc::new(crypto), witness))
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
