//! The TLS handshake as the engine sees it: messages and secrets.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::net::SocketAddr;
use core::task::Waker;

use super::{Direction, Level, Secret};

/// A TLS alert description (RFC 8446, Section 6); sent as CRYPTO_ERROR 0x0100 + alert
/// (RFC 9001, Section 4.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Alert(pub u8);

impl Alert {
    /// handshake_failure
    pub const HANDSHAKE_FAILURE: Self = Self(40);
    /// internal_error
    pub const INTERNAL_ERROR: Self = Self(80);
    /// missing_extension, for absent transport parameters (RFC 9001, Section 8.2)
    pub const MISSING_EXTENSION: Self = Self(109);
    /// no_application_protocol (RFC 9001, Section 8.1)
    pub const NO_APPLICATION_PROTOCOL: Self = Self(120);
    /// unexpected_message
    pub const UNEXPECTED_MESSAGE: Self = Self(10);
}

/// Why a handshake failed: the alert for the peer and a sentence for the log.
#[derive(Clone)]
pub struct HandshakeError {
    /// The alert to send.
    pub alert: Alert,
    /// What went wrong, for people.
    pub reason: String,
}

/// In words, for it is what a `main` that returns the error shows.
impl fmt::Debug for HandshakeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self} (HandshakeError)")
    }
}

impl fmt::Display for HandshakeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TLS handshake failed (alert {}): {}", self.alert.0, self.reason)
    }
}

impl core::error::Error for HandshakeError {}

/// What a handshake wants done next.
#[derive(Debug)]
pub enum HandshakeEvent {
    /// These bytes go to the peer in CRYPTO frames of the level.
    Send(Level, Vec<u8>),
    /// A traffic secret is ready. Bytes already given to `Send` at earlier levels stay there. A
    /// secret to receive with also says that TLS reads at its level from now on, and at earlier
    /// ones no more (RFC 9001, Section 4.1.3); 0-RTT apart, which carries no CRYPTO data.
    Secret(Level, Direction, Secret),
    /// The peer's transport parameters, still encoded; authenticated once the handshake
    /// completes (RFC 9001, Section 8.2). Given at most once.
    PeerTransportParameters(Vec<u8>),
    /// Server: early data will be read (true) or was refused. Client: the server's answer.
    /// Not given when the client offered none (RFC 9001, Section 4.6.2).
    EarlyData(bool),
    /// The handshake is complete (RFC 9001, Section 4.1.1): Finished sent, and received and
    /// verified.
    Complete(Box<HandshakeSummary>),
    /// Client: a session ticket arrived; opaque bytes from which
    /// [`HandshakeStart::resume`] can start again.
    SessionTicket(Vec<u8>),
}

/// What the handshake settled.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HandshakeSummary {
    /// The application protocol (RFC 7301); empty if none was negotiated.
    pub alpn: Vec<u8>,
    /// The name of the cipher suite, such as `TLS_AES_128_GCM_SHA256`.
    pub cipher_suite: &'static str,
    /// The name of the key exchange group, such as `X25519`; empty if the library does not say.
    pub key_exchange: &'static str,
    /// The peer's certificates as DER, its own first; those of the first session if this one is
    /// resumed. Empty if it sent none.
    pub peer_certificates: Vec<Vec<u8>>,
    /// The server name that the client asked for.
    pub server_name: Option<String>,
    /// True if a pre-shared key from an earlier session was used.
    pub resumed: bool,
}

/// How many limits of its own an application has clients remember with a ticket.
pub const APPLICATION_LIMITS: usize = 4;

/// One TLS handshake in progress.
pub trait Handshake: Send {
    /// Takes CRYPTO bytes of a level, in order and without gaps. Called at
    /// [`Level::OneRtt`] too: for NewSessionTicket on clients.
    fn read(&mut self, level: Level, data: &[u8]) -> Result<(), HandshakeError>;

    /// How many bytes [`Self::read`] would take now. If more come, the connection ends with
    /// CRYPTO_BUFFER_EXCEEDED (RFC 9000, Section 7.5).
    fn room(&self) -> usize {
        usize::MAX
    }

    /// The next thing to do; `Ok(None)` when there is nothing (perhaps only for now: a
    /// handshake that waits for someone else has the connection polled again through
    /// `Connection::handshake_progressed`).
    fn poll(&mut self) -> Result<Option<HandshakeEvent>, HandshakeError>;

    /// The application protocol as far as it is settled: servers know it as soon as they have read
    /// the ClientHello, and so before early data is read. Empty if none was negotiated.
    fn alpn(&self) -> Option<&[u8]> {
        None
    }

    /// The server name that the client asks for, on servers, as soon as they know [`Self::alpn`]; `None` if it asks for none.
    fn server_name(&self) -> Option<&str> {
        None
    }

    /// The limits of the application's own that this connection has to announce, such as in SETTINGS of HTTP/3: those that
    /// tickets promise which are made here. Servers know them as soon as they know [`Self::alpn`]; `None` where nothing is
    /// promised.
    fn application_limits(&self) -> Option<[u64; APPLICATION_LIMITS]> {
        None
    }

    /// Keying material for the application (RFC 8446, Section 7.5); fails before completion.
    fn export_keying_material(
        &self,
        label: &[u8],
        context: &[u8],
        out: &mut [u8],
    ) -> Result<(), HandshakeError>;

    /// What is to be done for the application as soon as it may use the connection, such as handing
    /// secrets to its log; `None` if there is nothing.
    fn poll_deferred(&mut self) -> Option<Deferred> {
        None
    }

    /// Whether the handshake waits for the answer of somebody else, who may never give it.
    fn waits(&self) -> bool {
        false
    }

    /// Goes on without that answer.
    fn stop_waiting(&mut self) {}
}

/// A call of something that belongs to the application. The waker has the connection polled again through
/// `Connection::handshake_progressed`, whenever that is.
pub type Deferred = Box<dyn FnOnce(&Waker) + Send>;

/// What a handshake needs to start.
#[derive(Debug)]
pub struct HandshakeStart<'a> {
    /// Client: the server's name, for SNI and verification. Unused on servers.
    pub server_name: &'a str,
    /// The address of the peer when the handshake starts, if it is known.
    pub peer: Option<SocketAddr>,
    /// Our transport parameters, encoded, for the quic_transport_parameters extension.
    pub transport_parameters: &'a [u8],
    /// Client: an earlier session's ticket to resume from.
    pub resume: Option<&'a [u8]>,
    /// Client: offer 0-RTT if the ticket allows it. Server: accept it if the configuration does.
    pub early_data: bool,
}

/// Starts handshakes: certificates, roots, ALPN lists and the like live behind it.
pub trait TlsConfig: Send + Sync {
    /// Starts a client's handshake; its first flight is ready from `poll` at once.
    fn start_client(
        &self,
        start: &HandshakeStart<'_>,
    ) -> Result<Box<dyn Handshake>, HandshakeError>;

    /// Starts a server's handshake; `read` gets the ClientHello next.
    fn start_server(
        &self,
        start: &HandshakeStart<'_>,
    ) -> Result<Box<dyn Handshake>, HandshakeError>;

    /// True if TLS runs in the application, whose word on the peer's transport parameters counts
    /// ([`HandshakeEvent::PeerTransportParameters`]). Those in a ClientHello then say which versions
    /// the client speaks, and are not judged before the application has seen them.
    fn is_application(&self) -> bool {
        false
    }
}
