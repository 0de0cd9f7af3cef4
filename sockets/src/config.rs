//! What endpoints, listeners and connections are told.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use quicket_engine::random::Random;
use quicket_engine::{ConnectionIdGenerator, ReplyRates, RetryPolicy, TransportConfig};
use quicket_handshake::{ClientTls, ConfigError, Identity, ServerTls, SystemRandom};
use quicket_wire::Version;

use crate::capture::Captures;
use crate::pass::PassThrough;
use crate::qlog::Qlog;
use crate::session::SessionStore;
use crate::site::{SiteKeys, server_id};
use crate::steering::RoutableConnectionIds;
use crate::switched::SwitchConfig;
use crate::unencrypted::UnencryptedNetworks;
use quicket_udp::UdpConfig;

/// What all connections of an endpoint share.
#[derive(Clone)]
pub struct EndpointConfig {
    /// The UDP socket.
    pub udp: UdpConfig,
    /// Keys, connection IDs, versions and limits.
    pub protocol: quicket_engine::EndpointConfig,
    /// How many bytes the data of streams may take on all connections together, and datagrams: what is
    /// written and not acknowledged, or not sent, and what is received and not read. As it fills up,
    /// connections get less room and credit than [`TransportConfig`] says, at least 64 KiB each: writing
    /// waits, the peers' windows stay, and datagrams that come displace older ones. When nothing is left, new
    /// connections are refused. 512 MiB by default; `usize::MAX` for no bound.
    pub memory: usize,
    /// How many workers serve the address: one by default.
    pub workers: Workers,
    /// How the address is shared with other programs; not at all by default.
    pub switch: Option<SwitchConfig>,
    /// Who may have datagrams that belong to no connection of the endpoint; nobody by default.
    pub pass_through: Option<Arc<dyn PassThrough>>,
    /// Where captures of the endpoint begin; nowhere by default. A place is for one endpoint.
    pub captures: Option<Captures>,
}

/// How many workers an endpoint has.
///
/// A worker is a socket, bound to the same address as those of the others, with a thread of its own (or
/// a task of the runtime) and connections of its own. Packets that the kernel hands to another worker
/// than the one that has their connection are passed on within the process: the connection IDs say
/// whose they are. So servers use all cores, and clients may move. Clients gain by several
/// endpoints instead: packets from one server all come to one worker.
///
/// What bounds an endpoint holds for all workers together: memory and backlog exactly, while rates of
/// replies, attempts that wait, and the handshakes above which addresses are to be proved are divided
/// among them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Workers {
    /// One.
    #[default]
    One,
    /// As many as the process may use cores at a time
    /// ([`available_parallelism`](std::thread::available_parallelism)), at most [`MAX_WORKERS`].
    PerCore,
    /// So many: 1 to [`MAX_WORKERS`].
    Count(usize),
}

/// How many workers an endpoint has at most.
pub const MAX_WORKERS: usize = 256;

/// What a worker of an endpoint has done since it began, counted in datagrams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorkerStats {
    /// The connections that it has now.
    pub connections: usize,
    /// Came to its sockets.
    pub received: u64,
    /// ... of which so many were another worker's, or another program's at the address, and passed on.
    pub handed_on: u64,
    /// Were passed on to it.
    pub taken: u64,
    /// Could not be passed on to it, because too many wait there already (4 MiB or 4096 trains), or by it to
    /// the switch.
    pub lost: u64,
    /// Were passed on to it and are not its own: dropped.
    pub stray: u64,
    /// The Retry packets among what it has sent: so often it has asked a client to prove its address
    /// ([`ServerConfig::retry`](crate::ServerConfig::retry)).
    pub retries: u64,
}

/// How many sockets an endpoint has at most, those that a move has replaced included.
pub const MAX_SOCKETS: usize = 16;

/// How much the data of streams takes on all connections by default, in bytes.
const MEMORY: usize = 512 << 20;

impl Default for EndpointConfig {
    /// The defaults, with keys drawn at random: stateless resets and tokens do not survive the
    /// process.
    fn default() -> Self {
        let mut random = SystemRandom::new();
        let mut key = || {
            let mut key = [0; 32];
            random.fill(&mut key);
            key
        };
        Self {
            udp: UdpConfig::default(),
            protocol: quicket_engine::EndpointConfig::new(key(), key()),
            memory: MEMORY,
            workers: Workers::One,
            switch: None,
            pass_through: None,
            captures: None,
        }
    }
}

impl EndpointConfig {
    /// Where the connection IDs come from by which peers reach this endpoint: random ones of
    /// eight octets by default, or those that a load balancer routes
    /// ([`steering`](crate::steering)).
    #[must_use]
    pub fn connection_ids(mut self, generator: impl ConnectionIdGenerator + 'static) -> Self {
        self.protocol.cid_generator = Arc::new(generator);
        self
    }

    /// Serves the address with several workers. Connection IDs say then which worker they lead to:
    /// they are of twelve octets, or those of
    /// [`RoutableConnectionIds`](crate::steering::RoutableConnectionIds), whose format must have an
    /// owner with room for all workers, and whose place's worker is replaced by each of them.
    /// Binding fails with other generators.
    ///
    /// ```
    /// use quicket::{Endpoint, EndpointConfig, Workers};
    ///
    /// # fn main() -> Result<(), quicket::BindError> {
    /// let config = EndpointConfig::default().workers(Workers::Count(2));
    /// let endpoint = Endpoint::bind_with("127.0.0.1:0", config)?;
    /// assert_eq!(endpoint.worker_stats().len(), 2);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub const fn workers(mut self, workers: Workers) -> Self {
        self.workers = workers;
        self
    }

    /// Shares the address with other programs, which clients reach by other protocols or server names;
    /// see [`SwitchConfig`]. The keys of `protocol` and its connection IDs are those that the switch
    /// gives: those of a [site](Self::site), if it has one (`quicket switch --secrets FILE`), rotated as the
    /// file is. Binding and listening ask the switch and wait for its answer, for moments; for ten seconds at
    /// most. There may be 128 workers.
    #[must_use]
    pub fn switch(mut self, config: SwitchConfig) -> Self {
        self.switch = Some(config);
        self
    }

    /// Stands in for other servers of a site, with whom the endpoint has keys in common: of stateless resets,
    /// address tokens, session tickets and connection IDs. `host` is the number of this one among hosts, which
    /// its connection IDs tell a balancer. They have fourteen octets and room for 256 workers.
    ///
    /// Behind the switch ([`Self::switch`]) it is the switch that gives keys and host: `quicket switch
    /// --secrets`.
    #[must_use]
    pub fn site(mut self, keys: &SiteKeys, host: u8) -> Self {
        self.protocol.site_keys = Some(Arc::new(keys.clone()));
        let ids = RoutableConnectionIds::of_site(keys, server_id(host), 0);
        self.protocol.cid_generator = Arc::new(ids);
        self
    }

    /// How often datagrams that belong to no connection are answered: with stateless resets, Version
    /// Negotiation and Retry packets, refusals.
    #[must_use]
    pub const fn replies_per_second(mut self, rates: ReplyRates) -> Self {
        self.protocol.replies_per_second = rates;
        self
    }
}

impl fmt::Debug for EndpointConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EndpointConfig").field("udp", &self.udp).finish_non_exhaustive()
    }
}

/// How a client connects.
#[derive(Clone)]
pub struct ClientConfig {
    pub(crate) tls: Arc<ClientTls>,
    pub(crate) transport: Arc<TransportConfig>,
    pub(crate) version: Version,
    pub(crate) versions: Vec<Version>,
    pub(crate) sessions: Option<Arc<dyn SessionStore>>,
    pub(crate) qlog: Option<Qlog>,
    pub(crate) follow_network: bool,
}

impl ClientConfig {
    /// The defaults: QUIC version 1, moving to version 2 if the server prefers it; nothing is
    /// remembered for a next connection.
    pub fn new(tls: ClientTls) -> Self {
        Self {
            tls: Arc::new(tls),
            transport: Arc::new(TransportConfig::default()),
            version: Version::V1,
            versions: vec![Version::V1, Version::V2],
            sessions: None,
            qlog: None,
            follow_network: false,
        }
    }

    /// The defaults with the system's root certificates and these application protocols.
    ///
    /// # Errors
    ///
    /// If there are no roots on this system or a protocol's name is not valid.
    pub fn with_system_roots<I, P>(alpn: I) -> Result<Self, ConfigError>
    where
        I: IntoIterator<Item = P>,
        P: AsRef<[u8]>,
    {
        Ok(Self::new(ClientTls::builder().alpn(alpn).build()?))
    }

    /// Limits and behaviour of the connections.
    #[must_use]
    pub fn transport(mut self, transport: TransportConfig) -> Self {
        self.transport = Arc::new(transport);
        self
    }

    /// The version of the first flight, and all that the server may choose from, best first
    /// (RFC 9368).
    #[must_use]
    pub fn versions(
        mut self,
        first: Version,
        acceptable: impl IntoIterator<Item = Version>,
    ) -> Self {
        self.version = first;
        self.versions = acceptable.into_iter().collect();
        self
    }

    /// Has connections follow this host from network to network, without the application's doing:
    /// when an address, a device or a route goes or comes, and the system would send to the server
    /// from another address than before, the connection takes a new socket and moves (RFC 9000,
    /// Section 9). While the old address works, that is when the server has answered at the new
    /// one, and the connection stays if it does not; otherwise at once. While there is no network,
    /// connections live until their idle timeout, and go on as soon as there is one again. An
    /// attempt to connect whose address goes before its handshake is complete begins again
    /// (`connect`, not `connect_early`, which goes on from another address). Off by default.
    ///
    /// It takes a socket for any address (`0.0.0.0`, `[::]`), not behind a
    /// [switch](EndpointConfig::switch): elsewhere, and on systems that tell nothing of changes,
    /// it does nothing. IPv4 and IPv6 are not exchanged for each other: the server's address stays.
    #[must_use]
    pub const fn follow_network(mut self, follow: bool) -> Self {
        self.follow_network = follow;
        self
    }

    /// Remembers sessions and tokens there, for faster connections to the same server.
    #[must_use]
    pub fn sessions(mut self, store: Arc<dyn SessionStore>) -> Self {
        self.sessions = Some(store);
        self
    }

    /// Logs the connections in the qlog format. To log their secrets too, so that captured
    /// traffic can be decrypted, see [`quicket_handshake::ClientTlsBuilder::key_log`].
    #[must_use]
    pub fn qlog(mut self, log: Qlog) -> Self {
        self.qlog = Some(log);
        self
    }
}

impl fmt::Debug for ClientConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientConfig")
            .field("tls", &self.tls)
            .field("transport", &self.transport)
            .finish_non_exhaustive()
    }
}

/// How a server accepts connections.
#[derive(Clone)]
pub struct ServerConfig {
    pub(crate) protocol: quicket_engine::ServerConfig,
    pub(crate) backlog: usize,
    pub(crate) qlog: Option<Qlog>,
    pub(crate) admission: Admission,
    /// Who decides again, once it is known what a client asks for.
    pub(crate) hello: Option<DecideByHello>,
    pub(crate) unencrypted: Option<UnencryptedNetworks>,
    /// Which protocols clients can ask for, and the tickets that they get.
    pub(crate) tls: ServerTls,
}

/// How many connections may wait to be accepted by default, handshakes under way included.
const BACKLOG: usize = 1024;

impl ServerConfig {
    /// The defaults: clients must prove their address while more than 512 handshakes are unfinished
    /// ([`RetryPolicy::default`]), everybody is admitted, 1024 connections may wait.
    pub fn new(tls: ServerTls) -> Self {
        Self {
            protocol: quicket_engine::ServerConfig::new(Arc::new(tls.clone())),
            tls,
            backlog: BACKLOG,
            qlog: None,
            admission: Admission::default(),
            hello: None,
            unencrypted: None,
        }
    }

    /// The defaults with a certificate and these application protocols.
    ///
    /// # Errors
    ///
    /// If the certificate or a protocol's name is not valid.
    pub fn with_identity<I, P>(identity: Identity, alpn: I) -> Result<Self, ConfigError>
    where
        I: IntoIterator<Item = P>,
        P: AsRef<[u8]>,
    {
        Ok(Self::new(ServerTls::builder(identity).alpn(alpn).build()?))
    }

    /// Limits and behaviour of the connections.
    #[must_use]
    pub fn transport(mut self, transport: TransportConfig) -> Self {
        self.protocol.transport = Arc::new(transport);
        self
    }

    /// When clients must prove their address first (RFC 9000, Section 8.1.2); by default while
    /// more than 512 handshakes are unfinished.
    #[must_use]
    pub const fn retry(mut self, policy: RetryPolicy) -> Self {
        self.protocol.retry = policy;
        self
    }

    /// Whether 0-RTT is accepted, if TLS accepts it too.
    #[must_use]
    pub const fn early_data(mut self, accepted: bool) -> Self {
        self.protocol.early_data = accepted;
        self
    }

    /// Whether clients may move to other addresses (RFC 9000, Section 9). To a preferred address, and on from
    /// there, they always may (Section 18.2).
    #[must_use]
    pub const fn migration(mut self, allowed: bool) -> Self {
        self.protocol.migration = allowed;
        self
    }

    /// Addresses to which clients should move after the handshake (RFC 9000, Section 9.6).
    #[must_use]
    pub const fn preferred_address(mut self, address: SocketAddr) -> Self {
        match address {
            SocketAddr::V4(v4) => self.protocol.preferred_address_v4 = Some(v4),
            SocketAddr::V6(v6) => self.protocol.preferred_address_v6 = Some(v6),
        }
        self
    }

    /// How many connections may wait to be accepted, handshakes under way included; more are
    /// refused.
    #[must_use]
    pub const fn backlog(mut self, connections: usize) -> Self {
        self.backlog = connections;
        self
    }

    /// Logs the connections in the qlog format. To log their secrets too, so that captured
    /// traffic can be decrypted, see [`quicket_handshake::ServerTlsBuilder::key_log`].
    #[must_use]
    pub fn qlog(mut self, log: Qlog) -> Self {
        self.qlog = Some(log);
        self
    }

    /// Asks `decide` about each attempt, before anything is spent on it. It runs on a thread that
    /// does nothing else, for one attempt after the other, while the endpoint goes on. If it
    /// panics, the client is refused.
    #[must_use]
    pub fn admission(
        mut self,
        decide: impl Fn(&Attempt) -> Decision + Send + Sync + 'static,
    ) -> Self {
        self.admission = Admission { decide: Some(Arc::new(decide)), is_the_applications: true };
        self
    }

    /// Asks `decide` about each client when its ClientHello is there, before TLS spends anything on it; false has it told
    /// CONNECTION_REFUSED. Called with the connection locked: it must not wait, nor use connections.
    #[must_use]
    pub fn admission_by_hello(
        mut self,
        decide: impl Fn(&Hello<'_>) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.hello = Some(Arc::new(decide));
        self
    }

    /// Offers clients of these networks, and nobody else, 1-RTT packets without encryption
    /// ([`TransportConfig::disable_1rtt_encryption`]). **Everybody on the way can read and change what is sent**: name
    /// networks only where nobody is on the way whom you do not trust. A client gets them if it asks for them, and keeps
    /// them for the connection, whatever becomes of the list; it must stay at its IP address.
    #[must_use]
    pub fn unencrypted_for(mut self, networks: &UnencryptedNetworks) -> Self {
        self.unencrypted = Some(networks.clone());
        self
    }

    /// Everything else that the protocol lets a server choose.
    pub const fn protocol_mut(&mut self) -> &mut quicket_engine::ServerConfig {
        &mut self.protocol
    }
}

impl fmt::Debug for ServerConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerConfig")
            .field("transport", &self.protocol.transport)
            .field("backlog", &self.backlog)
            .finish_non_exhaustive()
    }
}

/// A client that wants to connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Attempt {
    /// Its address, which it may have made up unless `validated`.
    pub remote: SocketAddr,
    /// It has proved its address with a token (RFC 9000, Section 8.1).
    pub validated: bool,
}

/// What a client asks for that wants to connect.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Hello<'a> {
    /// Its address, which it may have made up.
    pub remote: SocketAddr,
    /// The server name, if there is one.
    pub server_name: Option<&'a str>,
    /// The application protocols that it offers (ALPN), in its order.
    pub alpn: &'a [Vec<u8>],
}

/// Who decides by that.
pub(crate) type DecideByHello = Arc<dyn Fn(&Hello<'_>) -> bool + Send + Sync>;

/// What becomes of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Decision {
    /// The handshake begins.
    Accept,
    /// The client is told CONNECTION_REFUSED.
    Refuse,
    /// The client is asked to prove its address; refused if it did already.
    Retry,
    /// The client hears nothing and may try again.
    Ignore,
}

/// Who decides about attempts; everybody is admitted without one.
#[derive(Clone, Default)]
pub(crate) struct Admission {
    decide: Option<Arc<Decide>>,
    is_the_applications: bool,
}

type Decide = dyn Fn(&Attempt) -> Decision + Send + Sync;

impl Admission {
    /// Decides by code of ours, which is quick.
    pub(crate) fn new(decide: impl Fn(&Attempt) -> Decision + Send + Sync + 'static) -> Self {
        Self { decide: Some(Arc::new(decide)), is_the_applications: false }
    }

    /// True if the application's code decides: not while anything of ours is held.
    pub(crate) const fn is_the_applications(&self) -> bool {
        self.is_the_applications
    }

    pub(crate) fn decide(&self, remote: SocketAddr, validated: bool) -> Decision {
        self.decide
            .as_ref()
            .map_or(Decision::Accept, |decide| decide(&Attempt { remote, validated }))
    }
}
