//! QUIC as a socket: connections and streams that are used like those of TCP, encrypted, many on one
//! UDP port, over one core with a blocking API, one for tokio, and one of messages.
//!
//! # What to use for what
//!
//! | To | blocking | tokio |
//! |---|---|---|
//! | connect to a server | [`Connection::connect`] | [`tokio::Connection::connect`] |
//! | ... and send before the handshake is complete (0-RTT) | [`Connection::connect_early`] | [`tokio::Connection::connect_early`] |
//! | be a server | [`Listener::bind`] | [`tokio::Listener::bind`] |
//! | open a stream, take one of the peer | [`Connection::open_bi`], [`Connection::accept_bi`] | [`tokio::Connection::open_bi`], [`tokio::Connection::accept_bi`] |
//! | read and write | [`Stream`]: `Read`, `Write` | [`tokio::Stream`]: `AsyncRead`, `AsyncWrite` |
//! | send without retransmission (RFC 9221) | [`Connection::send_datagram`] | [`tokio::Connection::send_datagram`] |
//! | have many connections on one UDP socket, in both directions | [`Endpoint`] | [`tokio::Endpoint`] |
//! | move to another network | [`Endpoint::rebind`] | [`tokio::Endpoint::rebind`] |
//! | ... without the application's doing | [`ClientConfig::follow_network`] | [`ClientConfig::follow_network`] |
//!
//! | To | |
//! |---|---|
//! | say whom to trust | [`ClientTls`]: the system's roots, roots of your own, a pinned [`Fingerprint`] |
//! | show a certificate | [`Identity`]: from files, or made on the spot; [`ServerTls`] |
//! | set timeouts, windows, congestion control | [`TransportConfig`] in [`ClientConfig`], [`ServerConfig`] |
//! | decide who may connect | [`ServerConfig::admission`], [`ServerConfig::admission_by_hello`], [`ServerConfig::retry`] |
//! | resume sessions | [`ClientConfig::sessions`] with [`MemorySessionStore`] or [`FileSessionStore`] |
//! | see what happens | [`Qlog`]; `stats()` of connections; [`KeyLogFile`] for Wireshark |
//! | use QUIC through socket calls, as the Linux QUIC module has them | [`message`], and the crate `quicket-c` |
//!
//! # An example
//!
//! ```
//! use std::io::{Read, Write};
//! use quicket::{ClientConfig, ClientTls, Connection, Identity, Listener, ServerConfig};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // A server with a certificate that it makes for itself.
//! let identity = Identity::self_signed(["localhost"])?;
//! let pin = identity.fingerprint();
//! let listener = Listener::bind("127.0.0.1:0", ServerConfig::with_identity(identity, ["shout"])?)?;
//! let address = listener.local_addr();
//! let server = std::thread::spawn(move || {
//!     let connection = listener.accept().unwrap();
//!     let mut stream = connection.accept_bi().unwrap();
//!     let asked = stream.read_to_end(1024).unwrap();
//!     stream.write_all(&asked.to_ascii_uppercase()).unwrap();
//!     stream.finish().unwrap();
//!     // Returns when the client closes: until then what was written may be on its way.
//!     connection.closed();
//! });
//!
//! // A client that trusts exactly this certificate.
//! let tls = ClientTls::builder().pinned([pin]).alpn(["shout"]).build()?;
//! let connection = Connection::connect(address, "localhost", &ClientConfig::new(tls))?;
//! let mut stream = connection.open_bi()?;
//! stream.write_all(b"hello")?;
//! stream.finish()?;
//! let mut answer = String::new();
//! stream.read_to_string(&mut answer)?;
//! assert_eq!(answer, "HELLO");
//! connection.close(0, b"");
//! # server.join().unwrap();
//! # Ok(())
//! # }
//! ```
//!
//! # Times
//!
//! All times are [`std::time::Duration`]. They are counted in nanoseconds; more than 584 years count
//! as 584 years. What the peer is told of them is rounded up to whole milliseconds.
//!
//! # Errors
//!
//! Each operation has an error type of its own, which says what happened and what to do, and
//! becomes a [`std::io::Error`] where the traits of the standard library want one. [`blame_of`] says
//! whose fault the end of a connection is.
//!
//! # Systems
//!
//! Linux. The sockets are made of its calls, and the crate does not compile elsewhere.
#![forbid(unsafe_code)]

mod blocking;
mod capture;
mod chunk;
mod common;
mod config;
mod core;
mod error;
mod half;
pub mod message;
mod ops;
mod pass;
mod qlog;
mod session;
mod site;
pub mod steering;
mod switchable;
mod switched;
pub mod tokio;
mod unencrypted;
mod waiting;

pub use blocking::{Connection, Endpoint, Incoming, Listener, RecvStream, SendStream, Stream};
pub use capture::{Capture, Captured, Captures, Capturing};
pub use chunk::Chunk;
pub use common::{HandshakeInfo, PathInfo};
pub use config::{
    Attempt, ClientConfig, Decision, EndpointConfig, Hello, MAX_SOCKETS, MAX_WORKERS, ServerConfig,
    WorkerStats, Workers,
};
pub use error::{
    AcceptError, Blame, ConnectError, DatagramError, ListenError, MigrateError, OpenError,
    ReadError, ReadToEndError, WriteError, blame_of,
};
pub use pass::{Arrived, Outlet, PassThrough, Whose};
pub use qlog::{Qlog, QlogPlace};
pub use site::SiteKeys;
pub use switched::SwitchConfig;
pub use unencrypted::UnencryptedNetworks;

pub use quicket_switch::first_packet::HeldDatagram;
pub use quicket_udp::{BindError, Outgoing, SendOutcome, UdpConfig, UdpOption, UdpStats};
pub use session::{FileSessionStore, MemorySessionStore, SessionStore};

pub use quicket_engine::crypto::{Aead, HandshakeError};
pub use quicket_engine::{
    Congestion, CongestionAlgorithm, CongestionParameters, ConnectionError, ConnectionIdGenerator,
    Counters, EarlyData, EcnState, FrameCounts, KeyUpdateError, MigrationError, MtuDiscovery,
    PathStats, ReplyRates, RetryPolicy, Stats, TransportConfig, TransportError,
};
pub use quicket_handshake::elsewhere::RemoteKey;
pub use quicket_handshake::{
    APPLICATION_LIMITS, Beginning, ChooseClientPolicy, ClientAuth, ClientPolicy, ClientTls,
    ConfigError, Fingerprint, Identity, KeyExchange, KeyLog, KeyLogFile, KeyType, LinesTaker,
    ProcessRegister, Roots, STRIKE_WINDOW, ServerTls, SharedBeginning, StrikeAnswer,
    StrikeRegister, TicketId, TicketKey, TicketKeys, Unasked,
};
pub use quicket_steering::{SiteSecrets, secrets};
pub use quicket_wire::{
    Dir, EcnCodepoint, StreamId, TransportErrorCode, TransportParameters, Version,
};

// The examples there are tests.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;

#[cfg(doctest)]
#[doc = include_str!("../../docs/from-tcp-to-quic.md")]
struct FromTcp;
