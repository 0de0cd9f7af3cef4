//! Server configuration.

mod names;
mod policy;
mod promise;
mod replay;
mod tickets;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

pub use quicket_engine::crypto::APPLICATION_LIMITS;
use quicket_engine::crypto::{Aead, Alert, Handshake, HandshakeError, HandshakeStart, TlsConfig};
use quicket_wire::{Side, TransportParameters};
use rustls::quic::{Connection, ServerConnection, Version};
use rustls::server::danger::ClientCertVerifier;

pub(crate) use self::names::Certificates;
use self::names::CertificatesByName;
use self::policy::Chooser;
pub use self::policy::{ChooseClientPolicy, ClientPolicy};
use self::promise::ApplicationLimits;
pub(crate) use self::promise::Limits;
use self::promise::Promise;
use self::replay::Known;
pub use self::replay::{
    Beginning, ProcessRegister, STRIKE_WINDOW, SharedBeginning, StrikeAnswer, StrikeRegister,
    TicketId, Unasked,
};
pub(crate) use self::tickets::{EarlyData, Question, TicketIssuer};
pub use self::tickets::{TicketKey, TicketKeys};
use self::tickets::{TicketRules, Tickets};
use crate::key_log::{self, SecretTap};
use crate::offer::{self, Offer};
use crate::session::{Again, Role, Session};
use crate::{ConfigError, Identity, KeyExchange, KeyLog, Roots};

/// The longest life of a ticket (RFC 8446, Section 4.6.1).
const MAX_TICKET_LIFETIME: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// As many tickets as rustls sends at most.
const MAX_TICKETS: u8 = 8;
/// QUIC servers allow all early data or none (RFC 9001, Section 4.6.1).
const ALL_EARLY_DATA: u32 = 0xffff_ffff;

/// Whether clients are asked for certificates.
#[derive(Clone, Debug, Default)]
pub enum ClientAuth {
    /// They are not asked.
    #[default]
    None,
    /// They are asked and may decline; a certificate that they do send must lead to these roots.
    Optional(Roots),
    /// They must send a certificate that leads to these roots.
    Required(Roots),
}

/// Gathers what a [`ServerTls`] needs. By default clients are not asked for certificates, early
/// data is refused and tickets live for a day under a random key.
#[must_use]
#[derive(Clone)]
pub struct ServerTlsBuilder {
    identity: Identity,
    named: Vec<(Vec<String>, Identity)>,
    offer: Offer,
    client_auth: ClientAuth,
    chooser: Option<Arc<dyn ChooseClientPolicy>>,
    early_data: bool,
    tickets: u8,
    ticket_lifetime: Duration,
    ticket_keys: Vec<TicketKey>,
    common_keys: Option<TicketKeys>,
    strikes: Option<Arc<dyn StrikeRegister>>,
    beginning: Option<SharedBeginning>,
    trust_earlier: bool,
    key_log: Option<Arc<dyn KeyLog>>,
}

impl ServerTlsBuilder {
    /// Presents `identity` to clients that ask for one of `names`: DNS names, or `*.` and a DNS
    /// name for all of its direct subdomains. Exact names win over wildcards; clients that ask for
    /// no name or another one get the identity that the builder began with. Identities for the same name with keys
    /// of different types stand beside each other: a client gets the first of those whose signatures it
    /// verifies (RFC 8446, Section 4.2.3). Of the same type the last one counts.
    pub fn certificate_for<I, S>(mut self, names: I, identity: Identity) -> Self
    where
        I: IntoIterator<Item = S>,
        S: Into<String>,
    {
        self.named.push((names.into_iter().map(Into::into).collect(), identity));
        self
    }

    /// The application protocols spoken here, most wanted first. Clients that speak none of them
    /// are turned away (RFC 9001, Section 8.1).
    pub fn alpn<I, P>(mut self, protocols: I) -> Self
    where
        I: IntoIterator<Item = P>,
        P: AsRef<[u8]>,
    {
        self.offer.alpn = offer::protocols(protocols);
        self
    }

    /// Negotiates no application protocol, where both sides agree on it by other means
    /// (RFC 9001, Section 8.1). Clients that offer any are turned away.
    pub fn without_alpn(mut self) -> Self {
        self.offer.alpn = Some(Vec::new());
        self
    }

    /// Whether clients are asked for certificates.
    pub fn client_auth(mut self, client_auth: ClientAuth) -> Self {
        self.client_auth = client_auth;
        self
    }

    /// Asks clients for certificates by what they ask for, instead of all for the same
    /// ([`Self::client_auth`]). Where a client is asked for one, it gets no session tickets, and has none taken: each
    /// connection has the certificate verified. A connection may carry what belongs to another name than the one that
    /// it was made for: whether the policy of that is met as well, [`ClientPolicy::verify`] says.
    pub fn client_auth_by(mut self, chooser: Arc<dyn ChooseClientPolicy>) -> Self {
        self.chooser = Some(chooser);
        self
    }

    /// Whether 0-RTT is accepted. An attacker can replay what clients send early
    /// (RFC 9001, Section 9.2): within one process each ticket brings early data in once, but
    /// servers that share ticket keys do not know of each other without a common
    /// [`Self::strike_register`]. With [ticket keys](Self::ticket_keys) that are kept, tickets of an
    /// earlier process bring none in during the first two minutes
    /// ([`Self::early_data_of_earlier_tickets`]).
    pub fn early_data(mut self, accepted: bool) -> Self {
        self.early_data = accepted;
        self
    }

    /// Who remembers which tickets brought early data; for servers that share ticket keys, and for
    /// configurations that follow each other in one process. Without it each configuration has a
    /// [`ProcessRegister`] of its own.
    pub fn strike_register(mut self, register: Arc<dyn StrikeRegister>) -> Self {
        self.strikes = Some(register);
        self
    }

    /// When the [`Self::strike_register`] began, where that changes while it is asked: it is another one from then on. In
    /// place of [`StrikeRegister::beginning`].
    pub fn register_beginning(mut self, beginning: &SharedBeginning) -> Self {
        self.beginning = Some(beginning.clone());
        self
    }

    /// Whether early data is accepted at once with tickets that may have been used before the
    /// [`StrikeRegister`] began, by an earlier process or by another server with the same keys; not
    /// unless said otherwise.
    ///
    /// The register does not know of those uses: an attacker who recorded one can repeat it once
    /// here (RFC 8446, Section 8.2). So tickets from before the beginning resume, but bring no
    /// early data in, for [two minutes](STRIKE_WINDOW); tickets that a server with another register
    /// made later never do. Tickets that were made for this very register are not concerned.
    /// Say true only if early data does no harm when it is repeated, or if the server does not
    /// start again within two minutes.
    pub fn early_data_of_earlier_tickets(mut self, accepted: bool) -> Self {
        self.trust_earlier = accepted;
        self
    }

    /// How many session tickets a client gets, 0 to 8; 2 unless said otherwise.
    pub fn tickets(mut self, count: u8) -> Self {
        self.tickets = count.min(MAX_TICKETS);
        self
    }

    /// How long tickets are good for: 1 second to 7 days.
    pub fn ticket_lifetime(mut self, lifetime: Duration) -> Self {
        self.ticket_lifetime = lifetime;
        self
    }

    /// The keys that protect tickets: new ones are made with the first, all are accepted. With the
    /// same key, tickets survive a restart. Without keys a random one is made.
    pub fn ticket_keys(mut self, keys: impl IntoIterator<Item = TicketKey>) -> Self {
        self.ticket_keys = keys.into_iter().collect();
        self
    }

    /// Keys that are replaced later, in all configurations that have them
    /// ([`TicketKeys::replace`]); in place of [`Self::ticket_keys`]. Other servers may have them: without a
    /// [`Self::strike_register`] in common, tickets bring early data in only where they were made, as long as that process
    /// lives.
    pub fn common_ticket_keys(mut self, keys: &TicketKeys) -> Self {
        self.common_keys = Some(keys.clone());
        self
    }

    /// The cipher suites to accept; the client's preference decides among them.
    pub fn cipher_suites(mut self, suites: &[Aead]) -> Self {
        self.offer.suites = suites.to_vec();
        self
    }

    /// The key exchange groups to accept.
    pub fn key_exchange(mut self, groups: &[KeyExchange]) -> Self {
        self.offer.groups = groups.to_vec();
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
    /// If ALPN is missing, files cannot be read, or keys, certificates, names, roots or lifetimes
    /// do not make sense.
    pub fn build(self) -> Result<ServerTls, ConfigError> {
        if !(Duration::from_secs(1)..=MAX_TICKET_LIFETIME).contains(&self.ticket_lifetime) {
            return Err(ConfigError::InvalidTicketLifetime);
        }
        let provider = self.offer.provider()?;
        let certificates = CertificatesByName::new(&self.identity, &self.named)?;
        let certificates = Arc::new(Certificates::new(certificates));
        let policy = ClientPolicy::with_provider(&self.client_auth, &[], &provider)?;
        let mut base = rustls::ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_client_cert_verifier(policy.verifier().clone())
            .with_cert_resolver(certificates.clone());
        base.alpn_protocols = self.offer.alpn()?;
        base.send_tls13_tickets = usize::from(self.tickets);
        base.max_tls13_tickets = usize::from(self.tickets);
        let rules = TicketRules {
            lifetime: self.ticket_lifetime.as_secs() as u32,
            client_auth: policy.context().to_vec(),
            strikes: self.strikes,
            beginning: self.beginning,
            trust_earlier: self.trust_earlier,
            in_common: self.common_keys.is_some(),
        };
        let keys = self.common_keys.unwrap_or_else(|| TicketKeys::new(self.ticket_keys));
        let tickets = Arc::new(Tickets::new(keys, rules));
        let Self { early_data, key_log, .. } = self;
        let (verifier, chooser) = (policy.verifier().clone(), Chooser::default());
        chooser.replace(self.chooser);
        let application = ApplicationLimits::default();
        Ok(ServerTls {
            base,
            certificates,
            verifier,
            chooser,
            early_data,
            tickets,
            application,
            key_log,
        })
    }
}

/// A server's TLS configuration; starts any number of handshakes. Clones have certificates and
/// ticket keys in common: keep one to change them while the server runs.
#[derive(Clone)]
pub struct ServerTls {
    /// What all connections have in common.
    base: rustls::ServerConfig,
    certificates: Arc<Certificates>,
    verifier: Arc<dyn ClientCertVerifier>,
    /// Decides instead of the verifier, if there is one.
    chooser: Chooser,
    early_data: bool,
    tickets: Arc<Tickets>,
    application: ApplicationLimits,
    key_log: Option<Arc<dyn KeyLog>>,
}

impl ServerTls {
    /// Starts to gather a configuration of a server that presents `identity`.
    pub fn builder(identity: Identity) -> ServerTlsBuilder {
        ServerTlsBuilder {
            identity,
            named: Vec::new(),
            offer: Offer::default(),
            client_auth: ClientAuth::None,
            chooser: None,
            early_data: false,
            tickets: 2,
            ticket_lifetime: Duration::from_secs(24 * 60 * 60),
            ticket_keys: Vec::new(),
            common_keys: None,
            strikes: None,
            beginning: None,
            trust_earlier: false,
            key_log: None,
        }
    }

    /// The application protocols that clients can ask for, best first.
    pub fn alpn(&self) -> &[Vec<u8>] {
        &self.base.alpn_protocols
    }

    /// Makes new tickets with `key` from now on. Tickets of the keys before it stay good until they
    /// expire or four further keys have come. False if that is the key already, and nothing changes.
    pub fn rotate_ticket_key(&self, key: TicketKey) -> bool {
        self.tickets.rotate(key)
    }

    /// Connections that begin from now on announce these limits of the application's own, such as those in SETTINGS of HTTP/3;
    /// zeros before. Each has to announce those with which it began, whatever changes meanwhile:
    /// [`Handshake::application_limits`] says them. Tickets promise them, beside the limits of
    /// the transport: early data is refused where one is lower than a client remembers (RFC 9000, Section 7.4.1;
    /// RFC 9114, Section 7.2.4.2), and its session is resumed without.
    pub fn announce_application_limits(&self, limits: [u64; APPLICATION_LIMITS]) {
        self.application.set(limits);
    }

    /// The same configuration for a server among others that stand in for each other: tickets are made with their keys,
    /// and their register is asked which of them brought early data; as far as the application has given no
    /// [keys](ServerTlsBuilder::ticket_keys) and no [register](ServerTlsBuilder::strike_register). What is changed
    /// of either, certificates and keys, is changed of both.
    ///
    /// `beginning` holds when the register [began](StrikeRegister::beginning), which may change. Where servers have `keys`
    /// that ask another register, that time is never to come ([`Beginning::known`] with `u64::MAX`). For keys that the
    /// application [has in common](ServerTlsBuilder::common_ticket_keys) with others it is so in any case.
    #[must_use]
    pub fn sharing_tickets(
        &self,
        keys: &TicketKeys,
        register: Arc<dyn StrikeRegister>,
        beginning: &SharedBeginning,
    ) -> Self {
        let tickets = self.tickets.shared(keys, register, Known::Shared(beginning.clone()));
        Self { tickets: Arc::new(tickets), ..self.clone() }
    }

    /// The same configuration with ticket keys that are common to servers that stand in for each other, as far as the
    /// application has given none. Each has a register of its own: early data comes in with tickets of the server
    /// that made them alone.
    #[must_use]
    pub fn sharing_ticket_keys(&self, keys: &TicketKeys) -> Self {
        Self { tickets: Arc::new(self.tickets.with_common(keys)), ..self.clone() }
    }

    /// Presents other certificates from now on: `identity` unless a client asks for one of the names
    /// of `named` ([`ServerTlsBuilder::certificate_for`]). Handshakes that have begun, connections
    /// and tickets stay as they are: a session that is resumed presents no certificate.
    ///
    /// # Errors
    ///
    /// If a key does not belong to its certificate, or a name is not a DNS name; the certificates
    /// are the former ones then.
    pub fn replace_certificates(
        &self,
        identity: &Identity,
        named: &[(Vec<String>, Identity)],
    ) -> Result<(), ConfigError> {
        self.certificates.replace(CertificatesByName::new(identity, named)?);
        Ok(())
    }
}

impl ServerTls {
    /// Whether a private key of one of the certificates is [elsewhere](Identity::with_key_elsewhere).
    pub fn has_keys_elsewhere(&self) -> bool {
        self.certificates.are_elsewhere()
    }

    /// The same certificates for TLS over TCP beside QUIC: TLS 1.3 with these application protocols,
    /// most wanted first. Certificates that are replaced here are replaced there, too. Clients are asked
    /// for certificates as they are here. Sessions are resumed with tickets of the process's own; early
    /// data is refused.
    ///
    /// # Errors
    ///
    /// If the TLS library has nothing to offer.
    pub fn over_tcp<I, P>(&self, alpn: I) -> Result<rustls::ServerConfig, ConfigError>
    where
        I: IntoIterator<Item = P>,
        P: Into<Vec<u8>>,
    {
        // The suites of QUIC's connections protect no records: packets are sealed elsewhere.
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_client_cert_verifier(self.verifier.clone())
            .with_cert_resolver(self.certificates.clone());
        config.alpn_protocols = alpn.into_iter().map(Into::into).collect();
        config.key_log = key_log::over_tcp(self.key_log.as_ref());
        config.ticketer = rustls::crypto::aws_lc_rs::Ticketer::new()?;
        Ok(config)
    }
}

impl fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerTls")
            .field("alpn_protocols", &self.base.alpn_protocols)
            .field("early_data", &self.early_data)
            .finish_non_exhaustive()
    }
}

fn internal(reason: String) -> HandshakeError {
    HandshakeError { alert: Alert::INTERNAL_ERROR, reason }
}

impl TlsConfig for ServerTls {
    fn start_client(&self, _: &HandshakeStart<'_>) -> Result<Box<dyn Handshake>, HandshakeError> {
        Err(internal("a server's TLS configuration cannot connect; use ClientTls".to_owned()))
    }

    fn start_server(
        &self,
        start: &HandshakeStart<'_>,
    ) -> Result<Box<dyn Handshake>, HandshakeError> {
        let early_data = self.early_data && start.early_data;
        let tap = SecretTap::new(key_log::log_of(self.key_log.as_ref(), start.peer));
        let parameters = TransportParameters::decode(start.transport_parameters, Side::Server)
            .map_err(|error| internal(format!("our own transport parameters: {error}")))?;
        let chosen = self.chosen(&self.base).map_err(|error| internal(error.to_string()))?;
        let (chosen, mut config) = match chosen {
            Some((chosen, config)) => (Some(chosen), config),
            None => (None, self.base.clone()),
        };
        let application = self.application.get();
        let promise = Promise::of(&parameters, *application);
        let tickets = self.tickets.clone();
        let tickets = TicketIssuer::new(tickets, early_data, promise, application, chosen);
        let tickets = Arc::new(tickets);
        config.key_log = tap.clone();
        config.session_storage = tickets.clone();
        config.max_early_data_size = if early_data { ALL_EARLY_DATA } else { 0 };
        // The version matters to rustls only for keys that are not used here; the transport
        // parameters have the same codepoint in both.
        let (config, parameters) = (Arc::new(config), start.transport_parameters.to_vec());
        let again = self.has_keys_elsewhere().then(|| {
            let (config, certificates) = (Arc::clone(&config), Arc::clone(&self.certificates));
            Box::new(Again::new(config, parameters.clone(), certificates))
        });
        let tls = ServerConnection::new(config, Version::V1, parameters)
            .map_err(|error| internal(error.to_string()))?;
        let role = Role::Server { tickets, receive_secret: None, again };
        Ok(Box::new(Session::new(Connection::Server(tls), role, tap)))
    }
}
