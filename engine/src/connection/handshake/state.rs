//! Where the handshake stands.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::SocketAddr;

use quicket_wire::TransportParameters;

use super::EarlyData;
use crate::config::{ClientConfig, ServerConfig};
use crate::connection::parameters::{HandshakeCids, Kept, Versions};
use crate::crypto::{Deferred, Handshake, HandshakeError, HandshakeSummary, Level, TlsConfig};
use crate::error::TransportError;
use crate::time::Time;

/// A server before TLS starts: collects the ClientHello, which may span packets, to choose the
/// version by it.
pub(super) struct Listening {
    pub(super) config: Arc<ServerConfig>,
    pub(super) hello: Vec<u8>,
    /// Waiting for [`crate::Connection::accept_handshake`].
    pub(super) held: bool,
}

/// A client before it has heard of the server: what it needs to begin anew with another version.
pub(in crate::connection) struct Attempt {
    pub(in crate::connection) config: ClientConfig,
    pub(in crate::connection) server_name: String,
}

/// What is over with the peer's first message.
pub(super) enum Opening {
    Server(Listening),
    Client(Attempt),
}

/// The TLS side of a connection.
pub(in crate::connection) struct HandshakeState {
    pub(super) tls: Option<Box<dyn Handshake>>,
    pub(super) opening: Option<Box<Opening>>,
    /// Client: waits for [`crate::Connection::start_handshake`].
    pub(in crate::connection) held: bool,
    pub(in crate::connection) cids: HandshakeCids,
    pub(in crate::connection) versions: Versions,
    /// `None` until they are sent.
    pub(in crate::connection) local_parameters: Option<Kept>,
    pub(in crate::connection) remote_parameters: Option<Kept>,
    /// Client: where the connection can be of the IP family that its path does not have.
    pub(in crate::connection) other_family: Option<Box<SocketAddr>>,
    /// Client: those of the session that is resumed, until the handshake is complete.
    pub(super) remembered: Option<Box<TransportParameters>>,
    pub(in crate::connection) summary: Option<Box<HandshakeSummary>>,
    error: Option<Box<HandshakeError>>,
    pub(in crate::connection) early_data: EarlyData,
    pub(in crate::connection) complete: bool,
    /// The level that TLS reads at.
    pub(super) read_level: Level,
    /// RFC 9001, Section 4.1.2.
    pub(in crate::connection) confirmed: bool,
    /// When the handshake is given up.
    pub(in crate::connection) deadline: Time,
    /// When TLS goes on without the answer that it waits for.
    pub(in crate::connection) waits_until: Option<Time>,
}

impl HandshakeState {
    pub(in crate::connection) fn new(
        cids: HandshakeCids,
        versions: Versions,
        deadline: Time,
    ) -> Self {
        Self {
            tls: None,
            opening: None,
            held: false,
            cids,
            versions,
            local_parameters: None,
            remote_parameters: None,
            other_family: None,
            remembered: None,
            summary: None,
            error: None,
            early_data: EarlyData::None,
            complete: false,
            read_level: Level::Initial,
            confirmed: false,
            deadline,
            waits_until: None,
        }
    }

    pub(in crate::connection) fn listen(&mut self, config: Arc<ServerConfig>) {
        let listening = Listening { config, hello: Vec::new(), held: false };
        self.opening = Some(Box::new(Opening::Server(listening)));
    }

    pub(super) fn listening(&mut self) -> Option<&mut Listening> {
        match self.opening.as_deref_mut() {
            Some(Opening::Server(listening)) => Some(listening),
            _ => None,
        }
    }

    /// Keeps what a client begins anew with.
    pub(in crate::connection) fn keep_attempt(&mut self, attempt: Attempt) {
        self.opening = Some(Box::new(Opening::Client(attempt)));
    }

    /// What a client begins anew with, once.
    pub(in crate::connection) fn take_attempt(&mut self) -> Option<Attempt> {
        match *self.opening.take()? {
            Opening::Client(attempt) => Some(attempt),
            Opening::Server(_) => None,
        }
    }

    /// The ClientHello that waits for the application.
    pub(in crate::connection) fn held_hello(&self) -> Option<&[u8]> {
        match self.opening.as_deref() {
            Some(Opening::Server(listening)) if listening.held => Some(&listening.hello),
            _ => None,
        }
    }

    /// What a handshake that waits for the application was to go on with.
    pub(in crate::connection) fn held_tls(&self) -> Option<Arc<dyn TlsConfig>> {
        match self.opening.as_deref() {
            Some(Opening::Server(listening)) if listening.held => {
                Some(listening.config.tls.clone())
            }
            _ => None,
        }
    }

    /// Puts another configuration in the place of the present one; false once TLS has started.
    pub(in crate::connection) fn replace_config(&mut self, config: Arc<ServerConfig>) -> bool {
        self.listening().map(|listening| listening.config = config).is_some()
    }

    /// Remembers the parameters of a session that is resumed.
    pub(in crate::connection) fn remember(&mut self, parameters: TransportParameters) {
        self.remembered = Some(Box::new(parameters));
    }

    /// True until TLS has read the peer's first message.
    pub(in crate::connection) fn awaits_hello(&self) -> bool {
        self.read_level == Level::Initial
    }

    /// Gives back memory that only the choice of a version needed.
    pub(in crate::connection) fn trim(&mut self) {
        self.versions.available = Vec::new();
    }

    /// TLS failed on this side; returns what that is to the connection.
    pub(super) fn fail(&mut self, error: HandshakeError) -> TransportError {
        let transport = TransportError::from(error.clone());
        self.error = Some(Box::new(error));
        transport
    }

    /// What TLS said when it failed on this side.
    pub(in crate::connection) fn error(&self) -> Option<&HandshakeError> {
        self.error.as_deref()
    }

    pub(in crate::connection) fn tls(&self) -> Option<&dyn Handshake> {
        self.tls.as_deref()
    }

    pub(in crate::connection) fn poll_deferred(&mut self) -> Option<Deferred> {
        self.tls.as_mut()?.poll_deferred()
    }
}
