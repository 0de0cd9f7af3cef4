//! Verifiers of server certificates beside the one that follows chains to roots.
//!
//! All of them check that the server owns the certificate's key; they differ in which certificates
//! they take.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustls::RootCertStore;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, OtherError, SignatureScheme,
};

use crate::Fingerprint;

/// The methods that any verifier which does check signatures shares.
macro_rules! check_signatures {
    ($algorithms:ident) => {
        fn verify_tls12_signature(
            &self,
            message: &[u8],
            cert: &CertificateDer<'_>,
            dss: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            verify_tls12_signature(message, cert, dss, &self.$algorithms)
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            cert: &CertificateDer<'_>,
            dss: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            verify_tls13_signature(message, cert, dss, &self.$algorithms)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            self.$algorithms.supported_schemes()
        }
    };
}

/// Takes certificates with one of the given fingerprints.
#[derive(Debug)]
pub(super) struct Pinned {
    fingerprints: Vec<Fingerprint>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl Pinned {
    pub(super) fn new(
        fingerprints: Vec<Fingerprint>,
        algorithms: WebPkiSupportedAlgorithms,
    ) -> Self {
        Self { fingerprints, algorithms }
    }
}

/// The server's certificate is not a pinned one.
#[derive(Debug)]
struct NotPinned(Fingerprint);

impl fmt::Display for NotPinned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the server's certificate has the fingerprint {}, which is not pinned", self.0)
    }
}

impl std::error::Error for NotPinned {}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let fingerprint = Fingerprint::of(end_entity);
        if self.fingerprints.contains(&fingerprint) {
            return Ok(ServerCertVerified::assertion());
        }
        let reason = OtherError(Arc::new(NotPinned(fingerprint)));
        Err(Error::InvalidCertificate(CertificateError::Other(reason)))
    }

    check_signatures!(algorithms);
}

/// Takes certificates that lead to a root; and one that *is* a root, which the chain's verifier
/// would not take for a server: a self-signed certificate as `openssl req -x509` makes it says that
/// it is one of a certificate authority. Its owner trusts exactly this one, and means it.
#[derive(Debug)]
pub(super) struct Rooted {
    chains: Arc<WebPkiServerVerifier>,
    roots: Arc<RootCertStore>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl Rooted {
    pub(super) const fn new(
        chains: Arc<WebPkiServerVerifier>,
        roots: Arc<RootCertStore>,
        algorithms: WebPkiSupportedAlgorithms,
    ) -> Self {
        Self { chains, roots, algorithms }
    }

    /// It has the name and key of a root: only who has the root's private key can use it, and who
    /// has that could issue any certificate anyway.
    fn is_root(&self, certificate: &CertificateDer<'_>) -> bool {
        webpki::anchor_from_trusted_cert(certificate).is_ok_and(|own| {
            self.roots.roots.iter().any(|root| {
                root.subject == own.subject
                    && root.subject_public_key_info == own.subject_public_key_info
            })
        })
    }
}

impl ServerCertVerifier for Rooted {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let verified = self.chains.verify_server_cert(
            end_entity,
            intermediates,
            server_name,
            ocsp_response,
            now,
        );
        // Dates are looked at before this is said; what is left is the name.
        match &verified {
            Err(Error::InvalidCertificate(CertificateError::Other(error)))
                if matches!(error.0.downcast_ref(), Some(webpki::Error::CaUsedAsEndEntity))
                    && self.is_root(end_entity) =>
            {
                verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
                Ok(ServerCertVerified::assertion())
            }
            _ => verified,
        }
    }

    check_signatures!(algorithms);
}

/// Takes any certificate.
#[derive(Debug)]
pub(super) struct AcceptAny {
    algorithms: WebPkiSupportedAlgorithms,
}

impl AcceptAny {
    pub(super) fn new(algorithms: WebPkiSupportedAlgorithms) -> Self {
        Self { algorithms }
    }
}

impl ServerCertVerifier for AcceptAny {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    check_signatures!(algorithms);
}

/// The verifier of one connection that resumes a session.
///
/// rustls ties sessions to the verifier object that they began with. This one sees the session
/// being rebuilt first, where the certificate is verified anew but nobody can sign for it, and then
/// the real handshake, where it is the configured verifier and nothing else.
#[derive(Debug)]
pub(super) struct ResumptionVerifier {
    inner: Arc<dyn ServerCertVerifier>,
    restoring: AtomicBool,
}

impl ResumptionVerifier {
    pub(super) fn new(inner: Arc<dyn ServerCertVerifier>) -> Self {
        Self { inner, restoring: AtomicBool::new(true) }
    }

    /// From now on signatures are checked.
    pub(super) fn restored(&self) {
        self.restoring.store(false, Ordering::SeqCst);
    }

    fn is_restoring(&self) -> bool {
        self.restoring.load(Ordering::SeqCst)
    }
}

impl ServerCertVerifier for ResumptionVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        // The rebuilding runs at the time when the ticket came; trust is a matter of today.
        let now = if self.is_restoring() { UnixTime::now() } else { now };
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
        if self.is_restoring() {
            return Ok(HandshakeSignatureValid::assertion());
        }
        self.inner.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }

    fn requires_raw_public_keys(&self) -> bool {
        self.inner.requires_raw_public_keys()
    }

    fn root_hint_subjects(&self) -> Option<&[DistinguishedName]> {
        self.inner.root_hint_subjects()
    }
}
