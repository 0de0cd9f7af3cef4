//! A pretended TLS 1.3 for simulations: messages, levels, secrets, ALPN, tickets and 0-RTT as the
//! real one, without cryptography, certificates or clock. Sizes can be chosen, failures ordered.

mod client;
mod common;
mod messages;
mod server;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicU64, Ordering};

use quicket_engine::crypto::{
    Aead, Alert, Handshake, HandshakeError, HandshakeStart, Level, TlsConfig,
};
use quicket_engine::random::Random;

pub use messages::MessageKind;

use crate::rng::SimRng;

/// Whether a server asks for the client's certificate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClientAuth {
    /// It does not.
    #[default]
    None,
    /// It does, and goes on without one.
    Optional,
    /// It does, and fails without one.
    Required,
}

/// What one side does wrong, on purpose, at a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Misbehaviour {
    /// When the message is received: fails with this alert.
    Refuse(Alert),
    /// Never sends the message, nor anything after it.
    Withhold,
    /// Sends it with its last byte changed.
    Garble,
    /// Sends it at this level.
    At(Level),
    /// Sends this many bytes that begin a message which never ends.
    Flood(usize),
    /// Sends this message before it, at the same level.
    Before(MessageKind),
}

/// A [`Misbehaviour`] and the message that it is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The message.
    pub message: MessageKind,
    /// What is wrong with it.
    pub what: Misbehaviour,
}

/// How transport parameters are sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ParameterFault {
    /// As the engine wrote them.
    #[default]
    None,
    /// Not at all.
    Omit,
    /// These bytes instead.
    Replace(Vec<u8>),
}

/// How a [`NullTls`] behaves. The same type serves clients and servers.
#[derive(Clone, Debug)]
pub struct NullTlsOptions {
    /// Application protocols, best first; empty turns ALPN off.
    pub alpn: Vec<Vec<u8>>,
    /// The cipher suite that a server chooses.
    pub aead: Aead,
    /// Client: least length of the ClientHello, in bytes.
    pub client_hello_len: usize,
    /// Server: length of its certificates, in bytes.
    pub certificate_len: usize,
    /// Client: length of its certificates, in bytes, if it has any.
    pub client_certificate_len: Option<usize>,
    /// Server: whether it asks for the client's.
    pub client_auth: ClientAuth,
    /// Server: how many session tickets it sends.
    pub tickets: usize,
    /// Server: whether its tickets allow 0-RTT, and whether it accepts 0-RTT.
    pub early_data: bool,
    /// Server: key of its tickets; those of another key are ignored.
    pub ticket_key: u64,
    /// Server: asks every client for a second ClientHello.
    pub hello_retry: bool,
    /// What this side does wrong.
    pub fault: Option<Fault>,
    /// What this side does to its transport parameters.
    pub parameters: ParameterFault,
}

impl Default for NullTlsOptions {
    fn default() -> Self {
        Self {
            alpn: vec![b"sim".to_vec()],
            aead: Aead::Aes128Gcm,
            client_hello_len: 300,
            certificate_len: 900,
            client_certificate_len: None,
            client_auth: ClientAuth::None,
            tickets: 2,
            early_data: true,
            ticket_key: 1,
            hello_retry: false,
            fault: None,
            parameters: ParameterFault::None,
        }
    }
}

/// A pretended TLS configuration. Randomness comes from a seed and the number of handshakes
/// started so far.
#[derive(Debug)]
pub struct NullTls {
    options: NullTlsOptions,
    seed: u64,
    started: AtomicU64,
}

impl NullTls {
    /// A configuration with its own seed.
    pub fn new(seed: u64, options: NullTlsOptions) -> Self {
        Self { options, seed, started: AtomicU64::new(0) }
    }

    fn random(&self, role: &str) -> [u8; 32] {
        let count = self.started.fetch_add(1, Ordering::Relaxed);
        let mut out = [0; 32];
        SimRng::new(self.seed ^ (count << 32)).stream(role).fill(&mut out);
        out
    }
}

impl TlsConfig for NullTls {
    fn start_client(
        &self,
        start: &HandshakeStart<'_>,
    ) -> Result<Box<dyn Handshake>, HandshakeError> {
        let client = client::Client::start(&self.options, start, self.random("client"));
        Ok(Box::new(common::Running(client)))
    }

    fn start_server(
        &self,
        start: &HandshakeStart<'_>,
    ) -> Result<Box<dyn Handshake>, HandshakeError> {
        let server = server::Server::start(&self.options, start, self.random("server"));
        Ok(Box::new(common::Running(server)))
    }
}
