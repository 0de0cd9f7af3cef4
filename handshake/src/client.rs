//! Client configuration.

mod restore;
mod sessions;
mod ticket;
mod verify;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use quicket_engine::crypto::{Aead, Alert, Handshake, HandshakeError, HandshakeStart, TlsConfig};
use rustls::client::danger::ServerCertVerifier;
use rustls::client::{Resumption, Tls13ClientSessionValue, WebPkiServerVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::ServerName;
use rustls::quic::{ClientConnection, Connection, Version};
use rustls::{NamedGroup, RootCertStore};

use self::sessions::{ConnectionSessions, Sessions};
pub(crate) use self::ticket::TicketReceiver;
use self::ticket::{Checksum, SessionBinding, Ticket};
use self::verify::{AcceptAny, Pinned, Rooted};
use crate::key_log::{self, SecretTap};
use crate::offer::{self, Offer};
use crate::session::{Role, Session};
use crate::words;
use crate::{ConfigError, Fingerprint, Identity, KeyExchange, KeyLog, Roots};

/// How a client knows its server.
#[derive(Clone, Debug)]
enum Trust {
    Roots(Roots),
    Pinned(Vec<Fingerprint>),
    Anyone,
}

/// Gathers what a [`ClientTls`] needs. By default it trusts the system's roots, presents no
/// certificate and allows early data; only ALPN must be given.
#[must_use]
#[derive(Clone)]
pub struct ClientTlsBuilder {
    trust: Trust,
    offer: Offer,
    identity: Option<Identity>,
    early_data: bool,
    key_log: Option<Arc<dyn KeyLog>>,
}

impl ClientTlsBuilder {
    /// Trusts servers whose certificate leads to one of these roots and names the server.
    pub fn roots(mut self, roots: Roots) -> Self {
        self.trust = Trust::Roots(roots);
        self
    }

    /// Trusts the roots of a PEM file.
    pub fn ca_file(self, path: impl Into<PathBuf>) -> Self {
        self.roots(Roots::PemFile(path.into()))
    }

    /// Trusts only servers that prove to own a certificate with one of these fingerprints, whoever
    /// issued it, whatever it names and whenever it expires.
    pub fn pinned(mut self, fingerprints: impl IntoIterator<Item = Fingerprint>) -> Self {
        self.trust = Trust::Pinned(fingerprints.into_iter().collect());
        self
    }

    /// Trusts anyone: whoever answers is taken for the server. For experiments only.
    pub fn dangerous_no_verification(mut self) -> Self {
        self.trust = Trust::Anyone;
        self
    }

    /// The application protocols to offer, most wanted first (RFC 9001, Section 8.1).
    pub fn alpn<I, P>(mut self, protocols: I) -> Self
    where
        I: IntoIterator<Item = P>,
        P: AsRef<[u8]>,
    {
        self.offer.alpn = offer::protocols(protocols);
        self
    }

    /// Offers no application protocol, where both sides agree on it by other means
    /// (RFC 9001, Section 8.1).
    pub fn without_alpn(mut self) -> Self {
        self.offer.alpn = Some(Vec::new());
        self
    }

    /// Presents this certificate to servers that ask for one.
    pub fn client_certificate(mut self, identity: Identity) -> Self {
        self.identity = Some(identity);
        self
    }

    /// The cipher suites to offer, most wanted first.
    pub fn cipher_suites(mut self, suites: &[Aead]) -> Self {
        self.offer.suites = suites.to_vec();
        self
    }

    /// The key exchange groups to offer, most wanted first: the ClientHello carries a key of the
    /// first.
    pub fn key_exchange(mut self, groups: &[KeyExchange]) -> Self {
        self.offer.groups = groups.to_vec();
        self
    }

    /// Whether 0-RTT may be offered at all; each connection decides for itself beyond that.
    pub fn early_data(mut self, allowed: bool) -> Self {
        self.early_data = allowed;
        self
    }

    /// Writes the connections' secrets to `log`, for debugging.
    pub fn key_log(mut self, log: Arc<dyn KeyLog>) -> Self {
        self.key_log = Some(log);
        self
    }

    /// Checks everything and loads what was named.
    ///
    /// # Errors
    ///
    /// If ALPN is missing, files cannot be read, roots or keys do not make sense, or nothing is
    /// left to offer.
    pub fn build(self) -> Result<ClientTls, ConfigError> {
        let provider = self.offer.provider()?;
        let algorithms = provider.signature_verification_algorithms;
        let verifier: Arc<dyn ServerCertVerifier> = match &self.trust {
            Trust::Roots(roots) => rooted(&roots.load()?, &provider)?,
            Trust::Pinned(pins) if pins.is_empty() => return Err(ConfigError::NoFingerprints),
            Trust::Pinned(pins) => Arc::new(Pinned::new(pins.clone(), algorithms)),
            Trust::Anyone => Arc::new(AcceptAny::new(algorithms)),
        };
        let builder = rustls::ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(verifier.clone());
        let identity = self.identity.as_ref().map(Identity::fingerprint);
        let mut base = match &self.identity {
            Some(identity) => builder.with_client_cert_resolver(Arc::new(
                rustls::sign::SingleCertAndKey::from(identity.certified_key()?),
            )),
            None => builder.with_no_client_auth(),
        };
        base.alpn_protocols = self.offer.alpn()?;
        base.resumption = Resumption::disabled();
        Ok(ClientTls {
            base,
            verifier,
            suites: self.offer.suites,
            identity,
            early_data: self.early_data,
            key_log: self.key_log,
            sessions: Arc::default(),
        })
    }
}

fn rooted(
    roots: &Arc<RootCertStore>,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ServerCertVerifier>, ConfigError> {
    let chains = WebPkiServerVerifier::builder_with_provider(roots.clone(), provider.clone())
        .build()
        .map_err(|error| ConfigError::NoRoots { reason: error.to_string() })?;
    Ok(Arc::new(Rooted::new(chains, roots.clone(), provider.signature_verification_algorithms)))
}

/// A client's TLS configuration; starts any number of handshakes.
pub struct ClientTls {
    /// What all connections have in common.
    base: rustls::ClientConfig,
    verifier: Arc<dyn ServerCertVerifier>,
    suites: Vec<Aead>,
    /// Of the client's own certificate.
    identity: Option<Fingerprint>,
    early_data: bool,
    key_log: Option<Arc<dyn KeyLog>>,
    /// What later connections may resume without further ado.
    sessions: Arc<Sessions>,
}

impl ClientTls {
    /// Starts to gather a configuration.
    pub fn builder() -> ClientTlsBuilder {
        ClientTlsBuilder {
            trust: Trust::Roots(Roots::System),
            offer: Offer::default(),
            identity: None,
            early_data: true,
            key_log: None,
        }
    }

    /// The same trust for TLS over TCP, where QUIC does not get through: TLS 1.3 with these
    /// application protocols, most wanted first, and the client's certificate if there is one.
    /// Sessions are not kept.
    ///
    /// # Errors
    ///
    /// If the TLS library has nothing to offer.
    pub fn over_tcp<I, P>(&self, alpn: I) -> Result<rustls::ClientConfig, ConfigError>
    where
        I: IntoIterator<Item = P>,
        P: Into<Vec<u8>>,
    {
        self.over_tcp_as(&[&rustls::version::TLS13], alpn)
    }

    /// As [`Self::over_tcp`], and TLS 1.2 for servers that have nothing newer.
    ///
    /// # Errors
    ///
    /// If the TLS library has nothing to offer.
    pub fn over_tcp_since_1_2<I, P>(&self, alpn: I) -> Result<rustls::ClientConfig, ConfigError>
    where
        I: IntoIterator<Item = P>,
        P: Into<Vec<u8>>,
    {
        self.over_tcp_as(&[&rustls::version::TLS13, &rustls::version::TLS12], alpn)
    }

    fn over_tcp_as<I, P>(
        &self,
        versions: &[&'static rustls::SupportedProtocolVersion],
        alpn: I,
    ) -> Result<rustls::ClientConfig, ConfigError>
    where
        I: IntoIterator<Item = P>,
        P: Into<Vec<u8>>,
    {
        // The suites of QUIC's connections protect no records: packets are sealed elsewhere.
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = rustls::ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)?
            .dangerous()
            .with_custom_certificate_verifier(self.verifier.clone())
            .with_no_client_auth();
        config.client_auth_cert_resolver = self.base.client_auth_cert_resolver.clone();
        config.alpn_protocols = alpn.into_iter().map(Into::into).collect();
        config.key_log = key_log::over_tcp(self.key_log.as_ref());
        config.resumption = Resumption::disabled();
        Ok(config)
    }

    /// Says in words why a handshake of [`ClientTls::over_tcp`] with `server_name` failed, and what
    /// can be done.
    pub fn explain(error: &rustls::Error, server_name: &str) -> String {
        words::of(error, Some(server_name))
    }

    /// Puts an earlier session into `config`. A ticket that does not fit (garbled, expired, of
    /// another server, of a server that would not be trusted now) is left aside: the handshake is
    /// then a full one.
    fn resume(
        &self,
        config: &mut rustls::ClientConfig,
        binding: &SessionBinding,
        bytes: &[u8],
    ) -> Option<Resumed> {
        let ticket = Ticket::decode(bytes)?;
        if !ticket.fits(binding, &self.suites, &config.alpn_protocols) {
            return None;
        }
        let known = Checksum::of(bytes).and_then(|checksum| self.sessions.take(checksum));
        let is_restored = known.is_none();
        let session = known.or_else(|| restore::session(config, &self.verifier, &ticket))?;
        Some(Resumed { session, group: ticket.group, is_restored })
    }
}

/// An earlier session, to be resumed.
struct Resumed {
    session: Tls13ClientSessionValue,
    group: NamedGroup,
    /// It was rebuilt for one configuration, which alone can resume what follows from it.
    is_restored: bool,
}

impl fmt::Debug for ClientTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientTls")
            .field("alpn_protocols", &self.base.alpn_protocols)
            .field("identity", &self.identity)
            .field("early_data", &self.early_data)
            .finish_non_exhaustive()
    }
}

fn internal(reason: String) -> HandshakeError {
    HandshakeError { alert: Alert::INTERNAL_ERROR, reason }
}

impl TlsConfig for ClientTls {
    fn start_client(
        &self,
        start: &HandshakeStart<'_>,
    ) -> Result<Box<dyn Handshake>, HandshakeError> {
        let name = ServerName::try_from(start.server_name)
            .map_err(|_| {
                internal(format!("{:?} is neither a DNS name nor an IP address", start.server_name))
            })?
            .to_owned();
        let binding =
            SessionBinding { server_name: start.server_name.to_owned(), identity: self.identity };
        let tap = SecretTap::new(key_log::log_of(self.key_log.as_ref(), start.peer));
        let mut config = self.base.clone();
        config.key_log = tap.clone();
        config.enable_early_data = self.early_data && start.early_data;
        let resumed = start.resume.and_then(|ticket| self.resume(&mut config, &binding, ticket));
        let kept = resumed.as_ref().is_none_or(|resumed| !resumed.is_restored);
        let store = resumed.map_or_else(Arc::default, |resumed| {
            ConnectionSessions::offering(resumed.session, resumed.group)
        });
        config.resumption = Resumption::store(store.clone());
        let tickets = TicketReceiver::new(binding, store, kept.then(|| self.sessions.clone()));
        // The version matters to rustls only for keys that are not used here; the transport
        // parameters have the same codepoint in both.
        let tls = ClientConnection::new(
            Arc::new(config),
            Version::V1,
            name,
            start.transport_parameters.to_vec(),
        )
        .map_err(|error| internal(error.to_string()))?;
        let role = Role::Client {
            early_data_pending: false,
            hello_sent: false,
            tickets,
            server_name: start.server_name.to_owned(),
        };
        Ok(Box::new(Session::new(Connection::Client(tls), role, tap)))
    }

    fn start_server(&self, _: &HandshakeStart<'_>) -> Result<Box<dyn Handshake>, HandshakeError> {
        Err(internal("a client's TLS configuration cannot serve; use ServerTls".to_owned()))
    }
}
