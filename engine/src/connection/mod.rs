//! One QUIC connection as a state machine without I/O.
//!
//! [`Connection`] is composed of parts that can each be read alone. They have the state, and decide
//! what can be decided by it. Streams, datagrams, connection IDs and paths (each with its congestion
//! control) are modules beside this one; here are:
//!
//! * `role`: what only clients have, and what only servers have
//! * `handshake/state`, `keys`: where the handshake stands, and what it has given
//! * `recovery`: the packet number spaces (`space`), the timer that they share, probes
//! * `reception`, `transmission`: what has come and waits, what is written and waits
//! * `idle`, `termination`: silence, and the end (`state`)
//! * `reporting`: what endpoint, application and observer are told
//!
//! The other files wire them together:
//!
//! * a datagram comes in: `receive` → `frames` → the owner of each frame; ACKs through `loss`;
//!   most of a long transfer: `receive_run` → the stream
//! * TLS is driven: `handshake`, `parameters`, `retry`
//! * datagrams go out: `transmit` → `content` → `packet_builder` → `sealing`; most of a long
//!   transfer: `transmit` → `send_run` → `sealing`
//! * time passes: `timers`; nothing happens: `quiet`; something ends: `lifecycle`

mod application;
mod close;
mod content;
mod frames;
mod handshake;
mod held;
mod idle;
mod keys;
mod lifecycle;
mod loss;
mod observing;
mod packet_builder;
mod parameters;
mod paths;
mod quiet;
mod receive;
mod receive_run;
mod reception;
mod recovery;
mod reporting;
mod retry;
mod role;
mod sealing;
mod send_run;
mod space;
mod state;
mod termination;
mod timers;
mod transmission;
mod transmit;
mod unreachable;

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::net::SocketAddr;

use quicket_wire::ConnectionId;

use crate::ack::{AckFrequencySender, AckPolicy, AckScheduler};
use crate::cid::{ConnectionIds, LocalCids, RemoteCids};
use crate::config::{ClientConfig, EndpointConfig, ServerConfig, TransportConfig};
use crate::crypto::{CryptoProvider, HandshakeError};
use crate::datagrams::Datagrams;
use crate::endpoint::Incoming;
use crate::path::Paths;
use crate::pending::Pending;
use crate::random::Random;
use crate::streams::Streams;
use crate::time::{Duration, Time};

pub use application::KeyUpdateError;
pub use handshake::EarlyData;
use handshake::{Attempt, HandshakeState};
use idle::Idle;
pub(crate) use keys::Keys;
use parameters::{HandshakeCids, Versions};
use reception::Reception;
use recovery::Recovery;
use reporting::Reporting;
use role::Role;
pub(crate) use sealing::{Draft, SealQueue, Sealing, Unsealed};
use space::{Space, SpaceId};
use termination::Termination;
use transmission::Transmission;
pub use transmit::{Transmit, TransmitStatus};
pub use unreachable::Unreachable;

/// What every connection starts with.
pub(crate) struct Start {
    pub(crate) now: Time,
    pub(crate) endpoint: Arc<EndpointConfig>,
    pub(crate) crypto: Arc<dyn CryptoProvider>,
    pub(crate) rng: Box<dyn Random>,
    /// Our first connection ID.
    pub(crate) scid: ConnectionId,
    pub(crate) remote: SocketAddr,
    pub(crate) local: Option<SocketAddr>,
}

/// What a client adds.
pub(crate) struct ClientStart<'a> {
    pub(crate) config: ClientConfig,
    pub(crate) server_name: &'a str,
    /// The version was chosen from a Version Negotiation packet: the server must confirm that it
    /// was no downgrade (RFC 9368, Section 4).
    pub(crate) negotiated: bool,
}

/// What a server adds.
pub(crate) struct ServerStart<'a> {
    pub(crate) config: Arc<ServerConfig>,
    pub(crate) incoming: &'a Incoming,
}

/// A QUIC connection.
///
/// # The contract
///
/// The caller brings time, datagrams and a buffer, and asks in a loop:
///
/// * in: [`handle_datagram`](Self::handle_datagram), [`handle_train`](Self::handle_train),
///   [`handle_timeout`](Self::handle_timeout)
/// * out: [`poll_transmit`](Self::poll_transmit) until idle, then
///   [`poll_timeout`](Self::poll_timeout) for when to call again
/// * news: [`poll_event`](Self::poll_event) for the application,
///   [`poll_endpoint_event`](Self::poll_endpoint_event) for the endpoint, which must know before it
///   gets the answer to a datagram
///
/// After any call that takes `&mut self` there may be something new to transmit.
///
/// # For the application
///
/// * streams: [`open`](Self::open), [`accept`](Self::accept), [`write`](Self::write),
///   [`finish`](Self::finish), [`reset`](Self::reset), [`read`](Self::read),
///   [`stop_sending`](Self::stop_sending), [`set_priority`](Self::set_priority)
/// * datagrams: [`send_datagram`](Self::send_datagram),
///   [`peek_datagram`](Self::peek_datagram)
/// * the end: [`close`](Self::close), [`is_drained`](Self::is_drained),
///   [`close_reason`](Self::close_reason)
/// * the handshake: [`is_established`](Self::is_established),
///   [`handshake_summary`](Self::handshake_summary), [`early_data`](Self::early_data)
/// * the path: [`remote`](Self::remote), [`migrate`](Self::migrate)
/// * what it costs: [`stats`](Self::stats), [`set_observer`](Self::set_observer)
// Its larger parts are boxes and it is one itself: no function needs a large frame to make it.
pub struct Connection {
    config: Arc<TransportConfig>,
    endpoint: Arc<EndpointConfig>,
    rng: Box<dyn Random>,

    role: Role,
    termination: Termination,
    keys: Box<Keys>,
    handshake: Box<HandshakeState>,
    recovery: Recovery,

    streams: Box<Streams>,
    datagrams: Datagrams,
    pending: Pending,
    cids: ConnectionIds,
    paths: Box<Paths>,
    idle: Idle,

    reception: Reception,
    transmission: Transmission,
    reporting: Reporting,
}

/// The owners of frames, apart from the packet number space at hand.
struct Parts<'a> {
    streams: &'a mut Streams,
    datagrams: &'a mut Datagrams,
    pending: &'a mut Pending,
    cids: &'a mut ConnectionIds,
    ack_frequency: &'a mut AckFrequencySender,
    paths: &'a mut Paths,
    reporting: &'a mut Reporting,
}

impl Connection {
    /// A client's connection, its first flight ready to be transmitted.
    pub(crate) fn client(
        start: Start,
        client: ClientStart<'_>,
    ) -> Result<Box<Self>, HandshakeError> {
        let mut start = start;
        let now = start.now;
        // RFC 9000, Section 7.2: unpredictable and at least 8 bytes long.
        let mut bytes = [0; 8];
        start.rng.fill(&mut bytes);
        let dcid = ConnectionId::new(&bytes).unwrap_or(ConnectionId::EMPTY);
        let ClientStart { config, server_name, negotiated } = client;
        let mut available = config.versions.clone();
        if !available.contains(&config.version) {
            available.push(config.version);
        }
        available.retain(|version| version.is_supported());
        let cids = HandshakeCids {
            original_dcid: dcid,
            initial_dcid: dcid,
            local_scid: start.scid,
            ..HandshakeCids::default()
        };
        let versions =
            Versions { original: config.version, current: config.version, available, negotiated };
        let transport = config.transport.clone();
        let mut this = Self::new(start, Role::client(), transport, true, cids, versions);
        this.role.set_token(config.token.clone());
        this.begin_observing(now, config.observers.as_deref());
        if config.hold {
            this.handshake.held = true;
            return Ok(this);
        }
        this.start_client_handshake(
            now,
            &*config.tls,
            server_name,
            config.session.as_deref(),
            config.early_data,
        )?;
        if !negotiated {
            this.handshake.keep_attempt(Attempt { config, server_name: server_name.into() });
        }
        Ok(this)
    }

    /// A server's connection; the client's first datagram comes next.
    pub(crate) fn server(start: Start, server: ServerStart<'_>) -> Box<Self> {
        let incoming = server.incoming;
        let cids = HandshakeCids {
            original_dcid: incoming.original_dcid,
            initial_dcid: incoming.dcid,
            local_scid: start.scid,
            retry_scid: incoming.retry_scid,
            remote_scid: None,
        };
        let versions = Versions {
            original: incoming.version,
            current: incoming.version,
            available: start.endpoint.versions.clone(),
            negotiated: false,
        };
        let transport = server.config.transport.clone();
        let migration = server.config.migration;
        let now = start.now;
        let role = Role::server(now, incoming.unix_secs);
        let mut this = Self::new(start, role, transport, migration, cids, versions);
        if incoming.address_validated() {
            this.paths.active_mut().set_validated();
        }
        this.begin_observing(now, server.config.observers.as_deref());
        this.handshake.listen(server.config);
        this
    }

    fn new(
        start: Start,
        role: Role,
        config: Arc<TransportConfig>,
        peer_may_migrate: bool,
        cids: HandshakeCids,
        versions: Versions,
    ) -> Box<Self> {
        let Start { now, endpoint, crypto, mut rng, scid, remote, local } = start;
        let side = role.side();
        let initial_dcid = cids.initial_dcid;
        let mut keys = Box::new(Keys::new(crypto, versions.current, config.key_update_after));
        keys.derive_initial(versions.current, &initial_dcid, side);
        let deadline = now + config.handshake_timeout.into();
        let tuple = paths::four_tuple(local, remote);
        let paths = paths::first_path(side, now, &config, tuple, peer_may_migrate, &mut *rng);
        let first = paths.active().key();
        let limit = config.active_connection_id_limit;
        let connection_ids = ConnectionIds {
            local: LocalCids::new(scid),
            remote: RemoteCids::new(initial_dcid, first, limit),
        };
        let acks = AckScheduler::new(ack_policy(&config));
        let recovery = Recovery::new(now, side.is_client(), acks, config.crypto_buffer);
        Box::new(Self {
            role,
            termination: Termination::new(),
            keys,
            handshake: Box::new(HandshakeState::new(cids, versions, deadline)),
            recovery,
            streams: application::new_streams(side, &config, &mut *rng),
            datagrams: application::new_datagrams(&config),
            pending: Pending::default(),
            cids: connection_ids,
            paths,
            idle: Idle::new(
                now,
                config.max_idle_timeout.into(),
                config.keep_alive.into(),
                config.answer_probe.into(),
            ),
            reception: Reception::new(config.takes_any_fixed_bit(&endpoint)),
            transmission: Transmission::default(),
            reporting: Reporting::default(),
            config,
            endpoint,
            rng,
        })
    }

    /// A packet number space and, apart from it, everybody who owns frames; `None` if the space
    /// was discarded.
    fn split(&mut self, id: SpaceId) -> Option<(&mut Space, Parts<'_>)> {
        let parts = Parts {
            streams: &mut self.streams,
            datagrams: &mut self.datagrams,
            pending: &mut self.pending,
            cids: &mut self.cids,
            ack_frequency: &mut self.recovery.ack_frequency,
            paths: &mut self.paths,
            reporting: &mut self.reporting,
        };
        Some((self.recovery.spaces.get_mut(id)?, parts))
    }
}

/// When packets of the application data space are acknowledged.
fn ack_policy(config: &TransportConfig) -> AckPolicy {
    AckPolicy {
        threshold: config.ack_eliciting_threshold,
        train_threshold: config.ack_eliciting_threshold.max(TRAIN_ACK_THRESHOLD),
        max_ack_delay: config.max_ack_delay.into(),
        min_ack_delay: config
            .ack_frequency
            .then_some(Duration::from_micros(parameters::MIN_ACK_DELAY_MICROS)),
    }
}

/// Packets per ACK for bulk transfers that arrive in trains.
const TRAIN_ACK_THRESHOLD: u64 = 10;

impl core::fmt::Debug for Connection {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Connection")
            .field("side", &self.role.side())
            .field("remote", &self.remote())
            .field("state", self.termination.state())
            .finish_non_exhaustive()
    }
}
