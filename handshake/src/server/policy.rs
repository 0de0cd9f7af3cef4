//! What is asked of clients by the server name and the application protocols of their ClientHello.
//!
//! rustls has one verifier for a configuration, and asks it after it has asked for the certificate. So each
//! connection gets a configuration with a [`Chosen`] of its own: it is both, and makes up its mind when the
//! ClientHello is there.

use std::fmt;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use aws_lc_rs::digest;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ClientHello, NoClientAuth, ProducesTickets, ResolvesServerCert};
use rustls::server::{VerifierBuilderError, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::{DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};

use super::{ClientAuth, ServerTls};
use crate::ConfigError;
use crate::certificates::{Roots, certificates_from_pem, revocation_lists};

/// What is asked of clients, checked: which certificates are taken, and which of them are revoked.
#[derive(Clone)]
pub struct ClientPolicy {
    verifier: Arc<dyn ClientCertVerifier>,
    /// What it was made of: equal policies have equal ones.
    context: Vec<u8>,
    id: [u8; 32],
}

impl ClientPolicy {
    /// Clients are asked for nothing.
    pub fn none() -> Self {
        Self::of(Arc::new(NoClientAuth), vec![0])
    }

    /// Checks what clients are asked for, and lists of revoked certificates (CRL, in DER). With any list, each
    /// authority of a client's chain needs one that has not ended: whoever is in none is refused.
    ///
    /// # Errors
    ///
    /// If there are no roots, or a list cannot be read.
    pub fn new(auth: &ClientAuth, revoked: &[Vec<u8>]) -> Result<Self, ConfigError> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        Self::with_provider(auth, revoked, &provider)
    }

    /// The same of the contents of files, each with its name: `authorities` are PEM, `revoked` PEM or DER.
    ///
    /// # Errors
    ///
    /// As [`ClientPolicy::new`], and if a file does not hold what it should.
    pub fn from_files(
        required: bool,
        authorities: &[(String, Vec<u8>)],
        revoked: &[(String, Vec<u8>)],
    ) -> Result<Self, ConfigError> {
        let mut roots = Vec::new();
        for (name, content) in authorities {
            let certificates = certificates_from_pem(content, name)?;
            roots.extend(certificates.into_iter().map(|certificate| certificate.to_vec()));
        }
        let mut lists = Vec::new();
        for (name, content) in revoked {
            lists.extend(revocation_lists(content, name)?);
        }
        let roots = Roots::Der(roots);
        let auth = if required { ClientAuth::Required(roots) } else { ClientAuth::Optional(roots) };
        Self::new(&auth, &lists)
    }

    pub(super) fn with_provider(
        auth: &ClientAuth,
        revoked: &[Vec<u8>],
        provider: &Arc<CryptoProvider>,
    ) -> Result<Self, ConfigError> {
        let (kind, roots) = match auth {
            ClientAuth::None => return Ok(Self::none()),
            ClientAuth::Optional(roots) => (1, roots),
            ClientAuth::Required(roots) => (2, roots),
        };
        let roots = roots.load()?;
        let mut context = vec![kind];
        for root in &roots.roots {
            context.extend_from_slice(&root.subject);
            context.extend_from_slice(&root.subject_public_key_info);
        }
        let mut builder = WebPkiClientVerifier::builder_with_provider(roots, provider.clone());
        if !revoked.is_empty() {
            for list in revoked {
                context.extend_from_slice(digest::digest(&digest::SHA256, list).as_ref());
            }
            let lists = revoked.iter().cloned().map(CertificateRevocationListDer::from);
            builder = builder.with_crls(lists).enforce_revocation_expiration();
        }
        let builder = if kind == 1 { builder.allow_unauthenticated() } else { builder };
        let verifier = builder.build().map_err(|error| match error {
            VerifierBuilderError::InvalidCrl(_) => ConfigError::RevocationList {
                origin: "list of revoked certificates".to_owned(),
                reason: error.to_string(),
            },
            error => ConfigError::NoRoots { reason: error.to_string() },
        })?;
        Ok(Self::of(verifier, context))
    }

    fn of(verifier: Arc<dyn ClientCertVerifier>, context: Vec<u8>) -> Self {
        let mut id = [0; 32];
        id.copy_from_slice(digest::digest(&digest::SHA256, &context).as_ref());
        Self { verifier, context, id }
    }

    /// Bytes that tell policies apart: a session must not carry a client over to a server that would ask more of it.
    pub(super) fn context(&self) -> &[u8] {
        &self.context
    }

    pub(super) fn verifier(&self) -> &Arc<dyn ClientCertVerifier> {
        &self.verifier
    }

    /// Tells policies apart: those that ask the same have the same one.
    pub const fn id(&self) -> &[u8; 32] {
        &self.id
    }

    /// True if clients are asked for a certificate.
    pub fn asks(&self) -> bool {
        self.verifier.offer_client_auth()
    }

    /// True if clients must send a certificate.
    pub fn requires(&self) -> bool {
        self.asks() && self.verifier.client_auth_mandatory()
    }

    /// Whether a client with this chain (in DER, its own certificate first) would be let in now; that it has the
    /// key was proven by its handshake.
    ///
    /// # Errors
    ///
    /// If the chain leads to no root, has ended or is revoked; or there is none, and one is required.
    pub fn verify(&self, chain: &[Vec<u8>]) -> Result<(), ConfigError> {
        let refused = |error: &dyn fmt::Display| ConfigError::Certificate {
            origin: "the client's certificate".to_owned(),
            reason: error.to_string(),
        };
        let all: Vec<CertificateDer<'_>> =
            chain.iter().map(|der| CertificateDer::from(der.as_slice())).collect();
        let Some((own, others)) = all.split_first() else {
            return match self.requires() {
                true => Err(refused(&"there is none, and one is required")),
                false => Ok(()),
            };
        };
        if !self.asks() {
            return Err(refused(&"it was not asked for"));
        }
        let verified = self.verifier.verify_client_cert(own, others, UnixTime::now());
        verified.map(|_| ()).map_err(|error| refused(&error))
    }
}

impl fmt::Debug for ClientPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientPolicy")
            .field("asks", &self.asks())
            .field("requires", &self.requires())
            .finish_non_exhaustive()
    }
}

/// Chooses what is asked of a client.
pub trait ChooseClientPolicy: Send + Sync {
    /// The policy for a client that asks for `server_name` and offers these protocols (ALPN), in its order.
    /// Called in the handshake, with its connection locked: it must not wait, nor use connections.
    fn choose(&self, server_name: Option<&str>, offered: &[&[u8]]) -> ClientPolicy;
}

/// Who chooses now; shared by all clones of a configuration.
#[derive(Clone, Default)]
pub(super) struct Chooser(Arc<RwLock<Option<Arc<dyn ChooseClientPolicy>>>>);

impl Chooser {
    pub(super) fn replace(&self, chooser: Option<Arc<dyn ChooseClientPolicy>>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = chooser;
    }

    pub(super) fn current(&self) -> Option<Arc<dyn ChooseClientPolicy>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl ServerTls {
    /// Has handshakes from now on ask for other certificates of clients ([`ServerTlsBuilder::client_auth_by`](crate::ServerTlsBuilder::client_auth_by)); `None`
    /// leaves it to what all are asked for.
    pub fn replace_client_auth_by(&self, chooser: Option<Arc<dyn ChooseClientPolicy>>) {
        self.chooser.replace(chooser);
    }

    /// What decides for one connection, and its configuration, if it depends on the ClientHello.
    pub(super) fn chosen(
        &self,
        base: &rustls::ServerConfig,
    ) -> Result<Option<(Arc<Chosen>, rustls::ServerConfig)>, rustls::Error> {
        let Some(chooser) = self.chooser.current() else { return Ok(None) };
        let provider = base.crypto_provider();
        let chosen = Chosen::new(self.certificates.clone(), chooser, provider);
        let mut config = rustls::ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_client_cert_verifier(chosen.clone())
            .with_cert_resolver(chosen.clone());
        config.alpn_protocols.clone_from(&base.alpn_protocols);
        config.send_tls13_tickets = base.send_tls13_tickets;
        config.max_tls13_tickets = base.max_tls13_tickets;
        config.key_log = base.key_log.clone();
        Ok(Some((chosen, config)))
    }

    /// The configuration of one connection over TCP; `base` is [`Self::over_tcp`]'s. It is the same one unless clients
    /// are asked for certificates by what they ask for.
    ///
    /// # Errors
    ///
    /// If the TLS library has nothing to offer.
    pub fn for_connection(
        &self,
        base: &Arc<rustls::ServerConfig>,
    ) -> Result<Arc<rustls::ServerConfig>, ConfigError> {
        let Some((chosen, mut config)) = self.chosen(base)? else { return Ok(base.clone()) };
        config.ticketer = Arc::new(Resumable { tickets: base.ticketer.clone(), chosen });
        Ok(Arc::new(config))
    }
}

/// What one connection has chosen.
pub(super) struct Chosen {
    certificates: Arc<dyn ResolvesServerCert>,
    chooser: Arc<dyn ChooseClientPolicy>,
    /// Set by the first ClientHello.
    policy: OnceLock<ClientPolicy>,
    /// Asked what signatures it verifies before there is a ClientHello.
    schemes: Vec<SignatureScheme>,
}

impl Chosen {
    pub(super) fn new(
        certificates: Arc<dyn ResolvesServerCert>,
        chooser: Arc<dyn ChooseClientPolicy>,
        provider: &CryptoProvider,
    ) -> Arc<Self> {
        let schemes = provider.signature_verification_algorithms.supported_schemes();
        Arc::new(Self { certificates, chooser, policy: OnceLock::new(), schemes })
    }

    fn policy(&self) -> Option<&ClientPolicy> {
        self.policy.get().filter(|policy| policy.asks())
    }

    /// False if the client is asked for a certificate: then it shows it at each connection, that it has neither ended
    /// nor been revoked meanwhile.
    pub(super) fn may_resume(&self) -> bool {
        self.policy().is_none()
    }

    fn verifier(&self) -> Result<&Arc<dyn ClientCertVerifier>, Error> {
        let policy = self.policy();
        policy.map(|policy| &policy.verifier).ok_or(Error::General("nothing was asked for".into()))
    }
}

impl fmt::Debug for Chosen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Chosen").field("policy", &self.policy).finish_non_exhaustive()
    }
}

impl ResolvesServerCert for Chosen {
    fn resolve(&self, client_hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let offered: Vec<&[u8]> = client_hello.alpn().into_iter().flatten().collect();
        let choose = || self.chooser.choose(client_hello.server_name(), &offered);
        // After a HelloRetryRequest the first ClientHello counts on.
        self.policy.get_or_init(choose);
        self.certificates.resolve(client_hello)
    }
}

impl ClientCertVerifier for Chosen {
    fn offer_client_auth(&self) -> bool {
        self.policy().is_some()
    }

    fn client_auth_mandatory(&self) -> bool {
        self.policy().is_some_and(ClientPolicy::requires)
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.policy().map(|policy| policy.verifier.root_hint_subjects()).unwrap_or_default()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.verifier()?.verify_client_cert(end_entity, intermediates, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verifier()?.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verifier()?.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.schemes.clone()
    }
}

/// Tickets for those who may resume.
#[derive(Debug)]
pub(super) struct Resumable {
    pub(super) tickets: Arc<dyn ProducesTickets>,
    pub(super) chosen: Arc<Chosen>,
}

impl ProducesTickets for Resumable {
    fn enabled(&self) -> bool {
        self.tickets.enabled()
    }

    fn lifetime(&self) -> u32 {
        self.tickets.lifetime()
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        self.tickets.encrypt(plain).filter(|_| self.chosen.may_resume())
    }

    fn decrypt(&self, cipher: &[u8]) -> Option<Vec<u8>> {
        if self.chosen.may_resume() { self.tickets.decrypt(cipher) } else { None }
    }
}
