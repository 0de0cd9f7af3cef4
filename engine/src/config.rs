//! Configuration: what an endpoint, a server, a client and one connection may be told.
//!
//! Every limit that the RFCs leave to an endpoint has its name and default here.
//!
//! Times are counted in nanoseconds; more than 584 years count as 584 years. What is announced to
//! the peer (RFC 9000, Section 18.2) is rounded up to whole milliseconds, and the lifetimes of
//! tokens down to whole seconds.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::{SocketAddrV4, SocketAddrV6};
use core::time::Duration;

use quicket_wire::Version;

use crate::cid::{ConnectionIdGenerator, RandomConnectionIds};
use crate::congestion::CongestionAlgorithm;
use crate::crypto::TlsConfig;
use crate::observer::Observers;
use crate::site_keys::SiteKeys;

/// How long a server's handshake waits for the answer of somebody else, such as a strike register.
pub const ANSWER_TIME: Duration = Duration::from_millis(250);

/// The smallest UDP payload that every QUIC path carries, in bytes (RFC 9000, Section 14).
pub const MIN_UDP_PAYLOAD: u16 = 1200;
/// The largest UDP payload that a UDP header can announce over IPv4 and IPv6, in bytes.
pub const MAX_UDP_PAYLOAD: u16 = 65_527;

/// What all connections of an endpoint share.
#[derive(Clone)]
pub struct EndpointConfig {
    /// Key of the stateless reset tokens (RFC 9000, Section 10.3.2). Keep it across restarts, so
    /// that peers of lost connections hear of the loss at once.
    pub reset_key: [u8; 32],
    /// Key that seals Retry and NEW_TOKEN tokens (RFC 9000, Section 8.1.4). Servers that share
    /// an address share it.
    pub token_key: [u8; 32],
    /// The keys of both that are rotated while connections live, in place of those two; none by default.
    pub site_keys: Option<Arc<dyn SiteKeys>>,
    /// Makes the connection IDs that peers use to reach this endpoint.
    pub cid_generator: Arc<dyn ConnectionIdGenerator>,
    /// Versions that a server accepts and announces in Version Negotiation packets.
    pub versions: Vec<Version>,
    /// The largest UDP payload that the socket can receive, in bytes: 1200 to 65527.
    pub max_udp_payload_size: u16,
    /// Announces grease_quic_bit, and sends the fixed bit at random to peers that do so too
    /// (RFC 9287). Otherwise packets without the fixed bit are discarded (RFC 9000, Section 17.2).
    pub grease_quic_bit: bool,
    /// How many connection attempts may wait for [`crate::Endpoint::accept`]; more are dropped,
    /// for the client to try again.
    pub max_incoming: usize,
    /// ... and how many bytes of datagrams may wait with them.
    pub max_incoming_bytes: usize,
    /// How often strangers are answered.
    pub replies_per_second: ReplyRates,
}

/// How many answers of each kind an endpoint sends in a second to datagrams that belong to no
/// connection, all of them at once if need be; 0 sends none. Their senders' addresses may be made up:
/// without a limit, others could have the endpoint send to anybody as much as they send. Whoever
/// gets no answer tries again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyRates {
    /// Stateless resets (RFC 9000, Section 10.3.3); 1000 by default.
    pub stateless_resets: u32,
    /// Version Negotiation packets (RFC 9000, Section 6.1); 1000 by default.
    pub version_negotiations: u32,
    /// Retry packets (RFC 9000, Section 8.1.2); 20000 by default: while strangers flood a server,
    /// its clients come in by these.
    pub retries: u32,
    /// Packets that turn a client away with CONNECTION_REFUSED or INVALID_TOKEN (RFC 9000, Sections
    /// 5.2.2 and 8.1.3); 1000 by default.
    pub refusals: u32,
}

/// How many stateless resets are sent in a second by default.
const STATELESS_RESETS: u32 = 1000;
/// ... and Version Negotiation packets.
const VERSION_NEGOTIATIONS: u32 = 1000;
/// ... and Retry packets.
const RETRIES: u32 = 20_000;
/// ... and refusals.
const REFUSALS: u32 = 1000;

impl Default for ReplyRates {
    fn default() -> Self {
        Self {
            stateless_resets: STATELESS_RESETS,
            version_negotiations: VERSION_NEGOTIATIONS,
            retries: RETRIES,
            refusals: REFUSALS,
        }
    }
}

impl EndpointConfig {
    /// The defaults, with keys that the caller draws at random or keeps across restarts.
    pub fn new(reset_key: [u8; 32], token_key: [u8; 32]) -> Self {
        Self {
            reset_key,
            token_key,
            site_keys: None,
            cid_generator: Arc::new(RandomConnectionIds::default()),
            versions: Version::SUPPORTED.to_vec(),
            max_udp_payload_size: MAX_UDP_PAYLOAD,
            grease_quic_bit: true,
            max_incoming: 4096,
            max_incoming_bytes: 8 << 20,
            replies_per_second: ReplyRates::default(),
        }
    }
}

impl TransportConfig {
    /// True if connections announce grease_quic_bit, and so take packets without the fixed bit
    /// (RFC 9287, Section 3).
    pub(crate) fn takes_any_fixed_bit(&self, endpoint: &EndpointConfig) -> bool {
        self.announced.grease_quic_bit.unwrap_or(endpoint.grease_quic_bit)
    }
}

/// When a server asks clients to prove their address with a Retry (RFC 9000, Section 8.1.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryPolicy {
    /// Never; the limit of three times the received bytes still holds.
    Never,
    /// For every client without a valid token.
    Always,
    /// While more than this many handshakes are unfinished.
    AboveHandshakes(usize),
}

/// Unless told otherwise a server asks for proof of address while this many handshakes are
/// unfinished: addresses that are not their senders' then take nothing away from others.
pub const HANDSHAKES_WITHOUT_RETRY: usize = 512;

impl Default for RetryPolicy {
    fn default() -> Self {
        Self::AboveHandshakes(HANDSHAKES_WITHOUT_RETRY)
    }
}

/// What a server wants of its connections.
#[derive(Clone)]
pub struct ServerConfig {
    /// Limits and behaviour of each connection.
    pub transport: Arc<TransportConfig>,
    /// Certificates and ALPN.
    pub tls: Arc<dyn TlsConfig>,
    /// When to ask for proof of address.
    pub retry: RetryPolicy,
    /// How long a Retry token is good.
    pub retry_token_lifetime: Duration,
    /// How long a token from NEW_TOKEN is good (RFC 9000, Section 8.1.3).
    pub new_token_lifetime: Duration,
    /// How many tokens each client gets once its address is validated.
    pub new_tokens: u8,
    /// Accepts 0-RTT when the TLS configuration does too.
    pub early_data: bool,
    /// An IPv4 address to which clients should move (RFC 9000, Section 9.6).
    pub preferred_address_v4: Option<SocketAddrV4>,
    /// An IPv6 address to which clients should move (RFC 9000, Section 9.6).
    pub preferred_address_v6: Option<SocketAddrV6>,
    /// Lets clients move to other addresses; NAT rebinding is tolerated either way
    /// (RFC 9000, Section 9).
    pub migration: bool,
    /// A version to move to if the client can speak it (RFC 9368, Section 2.3); without one, the
    /// client's favourite among those that this side knows.
    pub preferred_version: Option<Version>,
    /// Stops after the ClientHello and reports [`crate::Event::ClientHello`]; the handshake goes
    /// on with [`crate::Connection::accept_handshake`].
    pub hold_client_hello: bool,
    /// Who hears of everything that the connections do.
    pub observers: Option<Arc<dyn Observers>>,
}

impl ServerConfig {
    /// The defaults: Retry under load, early data as TLS allows, migration allowed.
    pub fn new(tls: Arc<dyn TlsConfig>) -> Self {
        Self {
            transport: Arc::new(TransportConfig::default()),
            tls,
            retry: RetryPolicy::default(),
            retry_token_lifetime: Duration::from_secs(15),
            new_token_lifetime: Duration::from_secs(14 * 24 * 3600),
            new_tokens: 2,
            early_data: true,
            preferred_address_v4: None,
            preferred_address_v6: None,
            migration: true,
            preferred_version: None,
            hold_client_hello: false,
            observers: None,
        }
    }
}

/// What a client wants of a connection.
#[derive(Clone)]
pub struct ClientConfig {
    /// Limits and behaviour of the connection.
    pub transport: Arc<TransportConfig>,
    /// Roots, ALPN and client certificate.
    pub tls: Arc<dyn TlsConfig>,
    /// The version of the first flight. One that this client cannot speak, such as a reserved one
    /// (RFC 9000, Section 15), makes the server name its own, and costs a round trip.
    pub version: Version,
    /// The versions that this client can speak, best first, for version negotiation, compatible
    /// (RFC 9368, Section 2.3) or not (Section 2.1). The first flight's version is added if it is
    /// missing.
    pub versions: Vec<Version>,
    /// A token from an earlier connection's [`crate::Event::NewToken`].
    pub token: Vec<u8>,
    /// A session from an earlier connection's [`crate::Event::SessionTicket`].
    pub session: Option<Vec<u8>>,
    /// Offers 0-RTT when the session allows it. What is sent early can be replayed by an
    /// attacker (RFC 9001, Section 9.2).
    pub early_data: bool,
    /// Makes a connection that sends nothing until [`crate::Connection::start_handshake`], with
    /// the configuration given there.
    pub hold: bool,
    /// Who hears of everything that the connection does.
    pub observers: Option<Arc<dyn Observers>>,
}

impl ClientConfig {
    /// The defaults: QUIC v1, compatible with v2, no early data.
    pub fn new(tls: Arc<dyn TlsConfig>) -> Self {
        Self {
            transport: Arc::new(TransportConfig::default()),
            tls,
            version: Version::V1,
            versions: alloc::vec![Version::V1, Version::V2],
            token: Vec::new(),
            session: None,
            early_data: false,
            hold: false,
            observers: None,
        }
    }
}

/// Transport parameters (RFC 9000, Section 18.2) for applications that choose each themselves;
/// `None` leaves a parameter to the rest of the configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Announced {
    /// The first windows of streams.
    pub stream_windows: StreamWindows,
    /// max_udp_payload_size, in bytes: 1200 to 65527. Says what peers may send, and has no
    /// influence on what is received.
    pub max_udp_payload_size: Option<u16>,
    /// max_datagram_frame_size, in bytes (RFC 9221, Section 3), if datagrams are taken at all.
    pub max_datagram_frame_size: Option<u16>,
    /// ack_delay_exponent: 0 to 20.
    pub ack_delay_exponent: Option<u8>,
    /// grease_quic_bit (RFC 9287, Section 3).
    pub grease_quic_bit: Option<bool>,
    /// disable_active_migration: the peer must not move (RFC 9000, Section 9). A server that
    /// says so follows nobody: see [`ServerConfig::migration`].
    pub disable_active_migration: Option<bool>,
    /// Server: stateless_reset_token of the first connection ID.
    pub stateless_reset: Option<bool>,
    /// version_information (RFC 9368, Section 3); without it the version cannot change.
    pub version_information: Option<bool>,
}

/// The first windows of streams by their kind, in bytes, in place of
/// [`TransportConfig::initial_stream_window`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamWindows {
    /// Of bidirectional streams that this side opens.
    pub bidi_local: Option<u64>,
    /// Of bidirectional streams that the peer opens.
    pub bidi_remote: Option<u64>,
    /// Of unidirectional streams.
    pub uni: Option<u64>,
}

/// Path MTU discovery (RFC 8899; RFC 9000, Section 14.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MtuDiscovery {
    /// The largest UDP payload to try, in bytes. The peer's max_udp_payload_size lowers it.
    pub upper_bound: u16,
    /// How long after a finished search to search again.
    pub interval: Duration,
}

impl Default for MtuDiscovery {
    fn default() -> Self {
        Self { upper_bound: MAX_UDP_PAYLOAD, interval: Duration::from_secs(600) }
    }
}

/// Limits and behaviour of one connection.
///
/// Sizes are in bytes. The defaults suit a host with ordinary memory on the open internet; what
/// a peer can make a connection hold is bounded by `receive_window`, `crypto_buffer`,
/// `datagram_receive_buffer` and the stream counts.
#[derive(Clone, Debug)]
pub struct TransportConfig {
    /// Silence after which the connection ends (RFC 9000, Section 10.1); zero turns it off. The
    /// smaller of both sides' values holds.
    pub max_idle_timeout: Duration,
    /// Sends a PING after this much silence; zero turns it off.
    pub keep_alive: Duration,
    /// After how much silence a peer that owes an answer is asked for a sign of life: one of which a
    /// stream that this side opened and sent on waits for data. If it has lost the connection, its
    /// stateless reset comes then (RFC 9000, Section 10.3) instead of the idle timeout. Counts from
    /// three probe timeouts on; zero turns it off. After twice as long each time, three times at
    /// most until more than acknowledgments comes; only what the peer acknowledges puts the idle
    /// timeout off.
    pub answer_probe: Duration,
    /// How long a handshake may take.
    pub handshake_timeout: Duration,
    /// The first window of a stream that the peer fills.
    pub initial_stream_window: u64,
    /// What auto-tuning may raise a stream's window to.
    pub max_stream_window: u64,
    /// The first window of all streams together.
    pub initial_receive_window: u64,
    /// What auto-tuning may raise the window of all streams together to.
    pub max_receive_window: u64,
    /// How many bidirectional streams the peer may have open at once; at most 2^60.
    pub max_streams_bidi: u64,
    /// How many unidirectional streams the peer may have open at once; at most 2^60.
    pub max_streams_uni: u64,
    /// How many closed streams it takes until the peer hears that it may open others
    /// (RFC 9000, Section 4.6); `None` for an eighth of those that may be open, or a 32nd while the
    /// peer has less than half left. One that says it is blocked hears of the next. A stream that
    /// waits for nothing but acknowledgments of what this side sent counts as closed, as long as
    /// no more than another `max_streams_bidi` do so.
    pub max_streams_step: Option<u64>,
    /// How much unacknowledged and unsent data one stream holds.
    pub stream_send_buffer: usize,
    /// How much unacknowledged and unsent data all streams together hold. An eighth is kept for
    /// streams that hold less than 16 KiB each, so that a few that the peer does not read keep none
    /// from beginning.
    pub send_buffer: usize,
    /// How much of a stream's data may wait for the peer's flow control (RFC 9000, Section 4.1), in bytes. What the peer does
    /// not let go stays with the application, so that peers that read nothing take little memory. A stream then holds no more
    /// than twice the congestion window and eight times this (128 KiB at least), either: more would only wait. By default
    /// `usize::MAX`, which bounds neither: `stream_send_buffer` bytes are taken whether the peer reads or not, which suits
    /// programs that write before anybody reads. 16 KiB suit servers of many clients.
    pub send_ahead: usize,
    /// Streams of equal priority take turns (true) or one ends before the next (false). Turns are
    /// of one packet, or of up to 8 where dozens leave at once.
    pub send_fairness: bool,
    /// How far ahead of what TLS has read CRYPTO data may come (RFC 9000, Section 7.5: at least
    /// 4096).
    pub crypto_buffer: usize,
    /// How much received DATAGRAM data may wait; zero refuses datagrams (RFC 9221).
    pub datagram_receive_buffer: usize,
    /// How much DATAGRAM data may wait to be sent.
    pub datagram_send_buffer: usize,
    /// The congestion controller.
    pub congestion: CongestionAlgorithm,
    /// The round trip time before it is measured (RFC 9002, Section 6.2.2).
    pub initial_rtt: Duration,
    /// The UDP payload that a new path is trusted to carry: 1200 to 65527.
    pub initial_udp_payload_size: u16,
    /// Searches for a larger UDP payload.
    pub mtu_discovery: Option<MtuDiscovery>,
    /// Marks packets ECT(0) as long as the path keeps the marks (RFC 9000, Section 13.4).
    pub ecn: bool,
    /// Spreads packets over the round trip (RFC 9002, Section 7.7).
    pub pacing: bool,
    /// Packets received before an ACK is sent, while they come in order
    /// (RFC 9000, Section 13.2.2).
    pub ack_eliciting_threshold: u64,
    /// The longest that an ACK is held back; less than 2^14 ms (RFC 9000, Section 18.2).
    pub max_ack_delay: Duration,
    /// Understands ACK_FREQUENCY and asks peers that understand it for fewer ACKs.
    pub ack_frequency: bool,
    /// How many of the peer's connection IDs to keep (RFC 9000, Section 5.1.1): 2 to 8.
    pub active_connection_id_limit: u64,
    /// Shows the spin bit (RFC 9000, Section 17.4) on all but one in sixteen paths.
    pub spin_bit: bool,
    /// Sends a reserved transport parameter (RFC 9000, Section 18.1).
    pub grease: bool,
    /// Asks the peer not to encrypt 1-RTT packets. **Everybody on the path can read and change
    /// what is sent**: for trusted links only. Holds when both sides ask. The peer then stays at its IP address: what
    /// comes from another one is dropped.
    pub disable_1rtt_encryption: bool,
    /// What is announced in place of what follows from the rest.
    pub announced: Announced,
    /// Starts a key update after this many sealed packets; never more than the AEAD's limit
    /// (RFC 9001, Section 6.6).
    pub key_update_after: u64,
}

impl Default for TransportConfig {
    fn default() -> Self {
        Self {
            max_idle_timeout: Duration::from_secs(30),
            keep_alive: Duration::ZERO,
            answer_probe: Duration::from_secs(2),
            handshake_timeout: Duration::from_secs(10),
            initial_stream_window: 256 << 10,
            max_stream_window: 16 << 20,
            initial_receive_window: 1 << 20,
            max_receive_window: 24 << 20,
            max_streams_bidi: 100,
            max_streams_uni: 100,
            max_streams_step: None,
            stream_send_buffer: 4 << 20,
            send_buffer: 16 << 20,
            send_ahead: usize::MAX,
            send_fairness: true,
            crypto_buffer: 64 << 10,
            datagram_receive_buffer: 1 << 20,
            datagram_send_buffer: 1 << 20,
            congestion: CongestionAlgorithm::Cubic,
            initial_rtt: Duration::from_millis(333),
            initial_udp_payload_size: MIN_UDP_PAYLOAD,
            mtu_discovery: Some(MtuDiscovery::default()),
            ecn: true,
            pacing: true,
            ack_eliciting_threshold: 2,
            max_ack_delay: Duration::from_millis(25),
            ack_frequency: true,
            active_connection_id_limit: 4,
            spin_bit: true,
            grease: true,
            disable_1rtt_encryption: false,
            announced: Announced::default(),
            key_update_after: 1 << 22,
        }
    }
}
