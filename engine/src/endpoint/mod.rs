//! The endpoint: whose datagram is this? Owns what connections share (routes, keys of tokens and
//! resets), never a connection itself, so that connections can be driven apart from each other.

mod incoming;
mod neighbours;
mod routes;
mod stateless;
mod waiting;

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::SocketAddr;

use quicket_wire::{ConnectionId, EcnCodepoint, Header, PacketKind, StatelessResetToken, Version};

use crate::config::{ClientConfig, EndpointConfig, MIN_UDP_PAYLOAD, RetryPolicy, ServerConfig};
use crate::connection::{ClientStart, Connection, ServerStart, Start};
use crate::crypto::{CryptoProvider, HandshakeError};
use crate::observer::DropReason;
use crate::random::Random;
use crate::time::Time;
use crate::token::{StrikeRegister, TokenLog};

use crate::reply_limit::{Reply, ReplyLimits};
use crate::stateless_reset;
pub use incoming::Incoming;
pub use neighbours::{Neighbours, Reached, Stray};
use routes::Routes;
pub(crate) use stateless::{close, version_negotiation};
use waiting::{Held, Waiting};

/// Names a connection between an [`Endpoint`] and the caller: an index that is reused after
/// [`EndpointEvent::Drained`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionHandle(pub usize);

/// A received UDP datagram.
#[derive(Debug)]
pub struct Datagram<'a> {
    /// Who sent it.
    pub remote: SocketAddr,
    /// The address of ours that it was sent to, if known; it tells sockets apart.
    pub local: Option<SocketAddr>,
    /// The mark in its IP header.
    pub ecn: EcnCodepoint,
    /// Its payload; packets are opened in place.
    pub data: &'a mut [u8],
}

/// Where a datagram belongs.
#[derive(Debug)]
pub enum Route {
    /// To this connection: hand it to [`Connection::handle_datagram`], or with those that came
    /// together with it to [`Connection::handle_train`].
    Connection(ConnectionHandle),
    /// A client wants to connect: [`Endpoint::accept`], [`Endpoint::refuse`] or
    /// [`Endpoint::retry`] it.
    Incoming(Incoming),
    /// To nobody; the bytes now in `reply` go back to its sender.
    Reply,
    /// To another endpoint at the same address ([`Neighbours`]): hand it on as it is.
    Elsewhere(usize),
    /// To an attempt that is not decided about. It is kept until then.
    Waiting,
    /// To nobody.
    Dropped(DropReason),
}

/// What a connection tells its endpoint: see [`Connection::poll_endpoint_event`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndpointEvent {
    /// Packets to this connection ID belong to the connection.
    CidAdded(ConnectionId),
    /// Packets to this connection ID no longer do.
    CidRetired(ConnectionId),
    /// A stateless reset from this address with this token ends the connection.
    ResetTokenAdded(SocketAddr, StatelessResetToken),
    /// The token is no longer of use.
    ResetTokenRemoved(SocketAddr, StatelessResetToken),
    /// A server's handshake is confirmed. One that has failed is over when the connection is drained.
    HandshakeOver,
    /// The connection is gone; its handle may be reused.
    Drained,
}

/// Why [`Endpoint::connect`] did not start.
#[derive(Debug)]
pub enum ConnectError {
    /// The remote address has port 0 or is unspecified.
    InvalidAddress(SocketAddr),
    /// None of the client's versions is known to this library.
    UnsupportedVersion(Version),
    /// TLS would not start, as for an invalid server name.
    Handshake(HandshakeError),
}

impl core::fmt::Display for ConnectError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::InvalidAddress(address) => {
                write!(f, "cannot connect to {address}: give an address and a port other than 0")
            }
            Self::UnsupportedVersion(version) => {
                write!(f, "QUIC version {version:?} is not supported")
            }
            Self::Handshake(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for ConnectError {}

/// Why [`Endpoint::accept`] made no connection.
#[derive(Debug)]
pub enum AcceptError {
    /// The endpoint is no server.
    NotListening,
    /// The first packet is no valid Initial packet; nothing is sent.
    InvalidInitial(DropReason),
}

impl core::fmt::Display for AcceptError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::NotListening => f.write_str("the endpoint has no server configuration"),
            Self::InvalidInitial(reason) => {
                write!(f, "the client's first packet is not valid: {reason:?}")
            }
        }
    }
}

impl core::error::Error for AcceptError {}

/// Routes datagrams to connections and answers those that belong to none.
pub struct Endpoint {
    config: Arc<EndpointConfig>,
    server: Option<Arc<ServerConfig>>,
    crypto: Arc<dyn CryptoProvider>,
    rng: Box<dyn Random>,
    routes: Routes,
    replies: ReplyLimits,
    strikes: Box<dyn TokenLog>,
    /// `strikes` was told that this endpoint serves.
    strikes_begun: bool,
    /// Who else receives at the same address.
    neighbours: Option<Arc<dyn Neighbours>>,
    /// Attempts handed out as [`Incoming`] and not yet decided.
    waiting: Waiting,
    /// When a client was asked last to come again.
    last_retry: Option<Time>,
    /// How many were.
    retries: u64,
}

impl Endpoint {
    /// An endpoint without connections; a server too if `server` is given.
    pub fn new(
        config: EndpointConfig,
        server: Option<Arc<ServerConfig>>,
        crypto: Arc<dyn CryptoProvider>,
        rng: Box<dyn Random>,
    ) -> Self {
        let replies = ReplyLimits::new(config.replies_per_second);
        Self {
            config: Arc::new(config),
            server,
            crypto,
            rng,
            routes: Routes::default(),
            replies,
            strikes: Box::new(StrikeRegister::default()),
            strikes_begun: false,
            neighbours: None,
            waiting: Waiting::default(),
            last_retry: None,
            retries: 0,
        }
    }

    /// Starts or stops accepting connections; those that exist go on.
    pub fn set_server(&mut self, server: Option<Arc<ServerConfig>>) {
        self.server = server;
    }

    /// Replaces the register that makes NEW_TOKEN tokens good only once
    /// (RFC 9000, Section 8.1.4), as with one that several servers share.
    pub fn set_token_log(&mut self, log: Box<dyn TokenLog>) {
        self.strikes = log;
        self.strikes_begun = false;
    }

    /// Says who else receives at the same address: their datagrams are left to them
    /// ([`Route::Elsewhere`]).
    pub fn set_neighbours(&mut self, neighbours: Arc<dyn Neighbours>) {
        self.neighbours = Some(neighbours);
    }

    /// How long its connection IDs are, in bytes.
    pub fn cid_len(&self) -> usize {
        self.config.cid_generator.len()
    }

    /// When a client was sent a Retry last: it comes again with a connection ID of this endpoint.
    pub const fn last_retry(&self) -> Option<Time> {
        self.last_retry
    }

    /// How many Retry packets it has written (RFC 9000, Section 17.2.5).
    pub const fn retries(&self) -> u64 {
        self.retries
    }

    /// How many connections there are.
    pub fn connections(&self) -> usize {
        self.routes.connections()
    }

    /// Starts a connection to `remote`; `server_name` is verified against its certificate.
    pub fn connect(
        &mut self,
        now: Time,
        config: ClientConfig,
        remote: SocketAddr,
        local: Option<SocketAddr>,
        server_name: &str,
    ) -> Result<(ConnectionHandle, Box<Connection>), ConnectError> {
        if remote.port() == 0 || remote.ip().is_unspecified() {
            return Err(ConnectError::InvalidAddress(remote));
        }
        let mut speaks = core::iter::once(&config.version).chain(&config.versions);
        if !speaks.any(|version| version.is_supported()) {
            return Err(ConnectError::UnsupportedVersion(config.version));
        }
        let start = self.start(now, remote, local);
        let scid = start.scid;
        let connection =
            Connection::client(start, ClientStart { config, server_name, negotiated: false })
                .map_err(ConnectError::Handshake)?;
        let handle = self.routes.insert(remote);
        self.routes.add(scid, handle);
        Ok((handle, connection))
    }

    /// Finds out whose datagram this is, and answers it in `reply` if it is nobody's
    /// ([`Route::Reply`]). `unix_secs` is the time of day in seconds since 1970, for tokens.
    pub fn route(
        &mut self,
        now: Time,
        unix_secs: u64,
        datagram: &mut Datagram<'_>,
        reply: &mut Vec<u8>,
    ) -> Route {
        self.route_reached(now, unix_secs, datagram, Reached::Chosen, reply)
    }

    /// The same for a datagram that has `reached` this endpoint in a way of which [`Neighbours`] are to hear.
    pub fn route_reached(
        &mut self,
        now: Time,
        unix_secs: u64,
        datagram: &mut Datagram<'_>,
        reached: Reached,
        reply: &mut Vec<u8>,
    ) -> Route {
        reply.clear();
        let cid_len = self.config.cid_generator.len();
        let Ok(header) = Header::parse(datagram.data, cid_len) else {
            return Route::Dropped(DropReason::Malformed);
        };
        if let Some(handle) = self.routes.find(&header.dcid, datagram.remote) {
            return Route::Connection(handle);
        }
        if matches!(header.kind, PacketKind::Initial | PacketKind::ZeroRtt)
            && let Some(held) =
                self.waiting.hold(header.dcid, datagram, self.config.max_incoming_bytes)
        {
            return if held { Route::Waiting } else { Route::Dropped(DropReason::Limit) };
        }
        // Before any bit is judged that a connection elsewhere may have settled otherwise.
        if let Some(route) = self.route_elsewhere(&header, datagram, reached) {
            return route;
        }
        // RFC 9000, Sections 17.2 and 17.3.1. Clients that remember a server's grease_quic_bit leave
        // it out of their first packets already (RFC 9287, Section 3.1).
        if !header.fixed_bit() && !self.takes_any_fixed_bit() && header.kind.has_fixed_bit() {
            return Route::Dropped(DropReason::Malformed);
        }
        match header.kind {
            PacketKind::UnknownVersion => self.route_unknown_version(now, datagram, reply),
            PacketKind::Initial => self.route_initial((now, unix_secs), &header, datagram, reply),
            PacketKind::OneRtt => self.route_lost(now, &header.dcid, datagram, reply),
            // Only a client's first packets start something here.
            PacketKind::ZeroRtt
            | PacketKind::Handshake
            | PacketKind::Retry
            | PacketKind::VersionNegotiation => Route::Dropped(DropReason::Unexpected),
        }
    }

    /// True if a datagram belongs to no connection of this endpoint, nor to a neighbour's: what
    /// [`Self::route`] would answer, drop or make a connection of. What cannot be read is no
    /// stranger's.
    pub fn is_stranger(&self, datagram: &Datagram<'_>, reached: Reached) -> bool {
        let Ok(header) = Header::parse(datagram.data, self.config.cid_generator.len()) else {
            return false;
        };
        if self.routes.find(&header.dcid, datagram.remote).is_some()
            || self.route_elsewhere(&header, datagram, reached).is_some()
        {
            return false;
        }
        // RFC 9000, Section 10.3: a peer's reset has any connection ID.
        header.kind != PacketKind::OneRtt
            || self.routes.find_reset(&*self.crypto, &self.config.reset_key, datagram).is_none()
    }

    /// Whether a datagram that has no route here belongs to another endpoint at this address. What
    /// ends with one of this one's reset tokens does not, whatever its connection ID looks like.
    fn route_elsewhere(
        &self,
        header: &Header,
        datagram: &Datagram<'_>,
        reached: Reached,
    ) -> Option<Route> {
        let neighbours = self.neighbours.as_ref()?;
        let key = &self.config.reset_key;
        if header.kind == PacketKind::OneRtt
            && let Some(handle) = self.routes.find_reset(&*self.crypto, key, datagram)
        {
            return Some(Route::Connection(handle));
        }
        let Datagram { remote, ref data, .. } = *datagram;
        let stray = Stray { kind: header.kind, dcid: header.dcid, remote, data, reached };
        neighbours.owner(&stray).map(Route::Elsewhere)
    }

    /// Whether packets without the fixed bit may be of use to new connections.
    fn takes_any_fixed_bit(&self) -> bool {
        match &self.server {
            Some(server) => server.transport.takes_any_fixed_bit(&self.config),
            None => self.config.grease_quic_bit,
        }
    }

    /// RFC 9000, Section 6.1: answer unknown versions, if the datagram is large enough for a
    /// client's first and was not itself a reply.
    fn route_unknown_version(
        &mut self,
        now: Time,
        datagram: &Datagram<'_>,
        reply: &mut Vec<u8>,
    ) -> Route {
        if self.server.is_none() {
            return Route::Dropped(DropReason::UnexpectedVersion);
        }
        if datagram.data.len() < usize::from(MIN_UDP_PAYLOAD) {
            return Route::Dropped(DropReason::Malformed);
        }
        if !self.replies.take(now, Reply::VersionNegotiation) {
            return Route::Dropped(DropReason::Limit);
        }
        let rng = &mut *self.rng;
        match stateless::version_negotiation(datagram.data, &self.config.versions, rng, reply) {
            Some(()) => Route::Reply,
            None => Route::Dropped(DropReason::Malformed),
        }
    }

    /// RFC 9000, Section 10.3: a packet of a connection that we do not know (any more), or the
    /// peer telling us so.
    fn route_lost(
        &mut self,
        now: Time,
        dcid: &ConnectionId,
        datagram: &Datagram<'_>,
        reply: &mut Vec<u8>,
    ) -> Route {
        if let Some(handle) =
            self.routes.find_reset(&*self.crypto, &self.config.reset_key, datagram)
        {
            return Route::Connection(handle);
        }
        if !self.replies.take(now, Reply::StatelessReset) {
            return Route::Dropped(DropReason::Limit);
        }
        let key = self.config.reset_key_of(dcid);
        let token = stateless_reset::token(&*self.crypto, &key, dcid);
        match stateless_reset::datagram(datagram.data.len(), &token, &mut *self.rng) {
            Some(reset) => {
                *reply = reset;
                Route::Reply
            }
            None => Route::Dropped(DropReason::Unexpected),
        }
    }

    fn route_initial(
        &mut self,
        (now, unix_secs): (Time, u64),
        header: &Header,
        datagram: &mut Datagram<'_>,
        reply: &mut Vec<u8>,
    ) -> Route {
        let Some(server) = self.server.clone() else {
            return Route::Dropped(DropReason::Unexpected);
        };
        if !self.config.versions.contains(&header.version) {
            return self.route_unknown_version(now, datagram, reply);
        }
        // RFC 9000, Section 14.1: servers discard Initial packets in smaller datagrams; Section
        // 7.2: the client's first Destination Connection ID has at least 8 bytes.
        if datagram.data.len() < usize::from(MIN_UDP_PAYLOAD) || header.dcid.len() < 8 {
            return Route::Dropped(DropReason::Malformed);
        }
        let (most, most_bytes) = (self.config.max_incoming, self.config.max_incoming_bytes);
        if !self.waiting.has_room(datagram.data.len(), most, most_bytes) {
            return self.route_overflow((now, unix_secs), &server, header, datagram, reply);
        }
        let mut incoming = match self.incoming(unix_secs, &server, header, datagram) {
            Ok(incoming) => incoming,
            Err(refused) => return self.refuse_token(now, &refused, reply),
        };
        if !incoming.address_validated() && self.wants_retry(&server) {
            return self.route_retry(now, &incoming, reply);
        }
        incoming.data = datagram.data.to_vec();
        self.waiting.begin(&incoming);
        Route::Incoming(incoming)
    }

    /// A client's first packet when there is no room for it. One without a token may be asked to
    /// come again; no other token is looked at, for it would be used up.
    fn route_overflow(
        &mut self,
        (now, unix_secs): (Time, u64),
        server: &ServerConfig,
        header: &Header,
        datagram: &Datagram<'_>,
        reply: &mut Vec<u8>,
    ) -> Route {
        if !header.token.is_empty() || !self.wants_retry(server) {
            return Route::Dropped(DropReason::Limit);
        }
        match self.incoming(unix_secs, server, header, datagram) {
            Ok(incoming) => self.route_retry(now, &incoming, reply),
            Err(_) => Route::Dropped(DropReason::Limit),
        }
    }

    fn route_retry(&mut self, now: Time, incoming: &Incoming, reply: &mut Vec<u8>) -> Route {
        if !self.replies.take(now, Reply::Retry) {
            return Route::Dropped(DropReason::Limit);
        }
        match self.write_retry(now, incoming, reply) {
            Some(()) => Route::Reply,
            None => Route::Dropped(DropReason::Malformed),
        }
    }

    fn wants_retry(&self, server: &ServerConfig) -> bool {
        match server.retry {
            RetryPolicy::Never => false,
            RetryPolicy::Always => true,
            RetryPolicy::AboveHandshakes(limit) => self.routes.handshakes() > limit,
        }
    }

    /// Makes a connection of an attempt. `config` replaces the endpoint's server configuration
    /// for this one. The first datagram is processed at once.
    pub fn accept(
        &mut self,
        now: Time,
        incoming: Incoming,
        config: Option<Arc<ServerConfig>>,
    ) -> Result<(ConnectionHandle, Box<Connection>), AcceptError> {
        let since = self.decided(&incoming);
        let server = config.or_else(|| self.server.clone()).ok_or(AcceptError::NotListening)?;
        // The same attempt may have been accepted meanwhile.
        if self.routes.find(&incoming.dcid, incoming.remote).is_some() {
            return Err(AcceptError::InvalidInitial(DropReason::Duplicate));
        }
        let start = self.start(now, incoming.remote, incoming.local);
        let scid = start.scid;
        let (remote, dcid) = (incoming.remote, incoming.dcid);
        let mut connection =
            Connection::server(start, ServerStart { config: server, incoming: &incoming });
        let mut data = incoming.data;
        connection.handle_datagram(
            now,
            &mut Datagram { remote, local: incoming.local, ecn: incoming.ecn, data: &mut data },
        );
        if !connection.has_received() {
            // Nothing authenticated: RFC 9000, Section 5.2.2, forget the attempt.
            return Err(AcceptError::InvalidInitial(DropReason::Undecryptable));
        }
        for Held { ecn, mut data } in since {
            let mut datagram = Datagram { remote, local: incoming.local, ecn, data: &mut data };
            connection.handle_datagram(now, &mut datagram);
        }
        let handle = self.routes.insert(remote);
        self.routes.begin_handshake(handle);
        self.routes.add(scid, handle);
        self.routes.add(dcid, handle);
        Ok((handle, connection))
    }

    fn start(&mut self, now: Time, remote: SocketAddr, local: Option<SocketAddr>) -> Start {
        let mut rng = self.rng.fork();
        let scid = self.config.cid_generator.generate(&mut *rng);
        Start {
            now,
            endpoint: self.config.clone(),
            crypto: self.crypto.clone(),
            rng,
            scid,
            remote,
            local,
        }
    }

    /// Takes note of what a connection says of itself.
    pub fn handle_event(&mut self, handle: ConnectionHandle, event: EndpointEvent) {
        let (crypto, key) = (&*self.crypto, &self.config.reset_key);
        match event {
            EndpointEvent::CidAdded(cid) => self.routes.add(cid, handle),
            EndpointEvent::CidRetired(cid) => self.routes.remove(&cid, handle),
            EndpointEvent::ResetTokenAdded(remote, token) => {
                self.routes.add_reset(crypto, key, remote, &token, handle);
            }
            EndpointEvent::ResetTokenRemoved(remote, token) => {
                self.routes.remove_reset(crypto, key, remote, &token, handle);
            }
            EndpointEvent::HandshakeOver => self.routes.end_handshake(handle),
            EndpointEvent::Drained => self.routes.remove_all(handle),
        }
    }
}

impl core::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Endpoint")
            .field("server", &self.server.is_some())
            .field("connections", &self.connections())
            .finish_non_exhaustive()
    }
}
