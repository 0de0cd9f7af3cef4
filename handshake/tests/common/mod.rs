//! Two handshakes that talk to each other in memory, through the engine's traits only.
#![allow(dead_code, reason = "each test binary uses a part")]

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::task::Waker;

use quicket_engine::crypto::{
    Direction, Handshake, HandshakeError, HandshakeEvent, HandshakeStart, HandshakeSummary, Level,
    Secret, TlsConfig,
};
use quicket_handshake::{
    ClientTls, ClientTlsBuilder, Identity, KeyLog, ServerTls, ServerTlsBuilder,
};

pub(crate) const CLIENT_PARAMETERS: &[u8] = &[0x01, 0x02, 0x67, 0x10];
pub(crate) const SERVER_PARAMETERS: &[u8] = &[0x03, 0x02, 0x45, 0xc0, 0x01, 0x01, 0x0a];
pub(crate) const NAME: &str = "server.test";

/// One side and all that it has said.
pub(crate) struct Party {
    pub(crate) handshake: Box<dyn Handshake>,
    pub(crate) outbox: VecDeque<(Level, Vec<u8>)>,
    pub(crate) secrets: HashMap<(Level, Direction), Secret>,
    pub(crate) parameters: Vec<Vec<u8>>,
    pub(crate) early_data: Vec<bool>,
    /// What was known of the application protocol then.
    pub(crate) alpn_with_early_data: Option<Vec<u8>>,
    pub(crate) tickets: Vec<Vec<u8>>,
    pub(crate) summary: Option<HandshakeSummary>,
    /// The order of things, in a word each.
    pub(crate) story: Vec<String>,
}

impl Party {
    pub(crate) fn new(handshake: Box<dyn Handshake>) -> Self {
        Self {
            handshake,
            outbox: VecDeque::new(),
            secrets: HashMap::new(),
            parameters: Vec::new(),
            early_data: Vec::new(),
            alpn_with_early_data: None,
            tickets: Vec::new(),
            summary: None,
            story: Vec::new(),
        }
    }

    pub(crate) fn poll(&mut self) -> Result<(), HandshakeError> {
        while let Some(call) = self.handshake.poll_deferred() {
            call(Waker::noop());
        }
        while let Some(event) = self.handshake.poll()? {
            match event {
                HandshakeEvent::Send(level, bytes) => {
                    assert!(!bytes.is_empty());
                    self.story.push(format!("send {level:?}"));
                    self.outbox.push_back((level, bytes));
                }
                HandshakeEvent::Secret(level, direction, secret) => {
                    self.story.push(format!("{direction:?} {level:?}"));
                    assert!(self.secrets.insert((level, direction), secret).is_none());
                }
                HandshakeEvent::PeerTransportParameters(bytes) => {
                    self.story.push("parameters".to_owned());
                    self.parameters.push(bytes);
                }
                HandshakeEvent::EarlyData(accepted) => {
                    self.story.push(format!("early data {accepted}"));
                    self.early_data.push(accepted);
                    self.alpn_with_early_data = self.handshake.alpn().map(<[u8]>::to_vec);
                }
                HandshakeEvent::Complete(summary) => {
                    self.story.push("complete".to_owned());
                    assert!(self.summary.replace(*summary).is_none());
                }
                HandshakeEvent::SessionTicket(bytes) => {
                    self.story.push("ticket".to_owned());
                    self.tickets.push(bytes);
                }
            }
        }
        Ok(())
    }

    pub(crate) fn summary(&self) -> &HandshakeSummary {
        self.summary.as_ref().expect("the handshake is complete")
    }

    pub(crate) fn secret(&self, level: Level, direction: Direction) -> &[u8] {
        self.secrets[&(level, direction)].as_bytes()
    }
}

/// How a pair shakes hands.
pub(crate) struct Options<'a> {
    pub(crate) name: &'a str,
    pub(crate) resume: Option<&'a [u8]>,
    pub(crate) client_early_data: bool,
    pub(crate) server_early_data: bool,
    pub(crate) client_parameters: &'a [u8],
    pub(crate) server_parameters: &'a [u8],
    /// Messages travel in pieces of this many bytes.
    pub(crate) piece: usize,
}

impl Default for Options<'_> {
    fn default() -> Self {
        Self {
            name: NAME,
            resume: None,
            client_early_data: true,
            server_early_data: true,
            client_parameters: CLIENT_PARAMETERS,
            server_parameters: SERVER_PARAMETERS,
            piece: usize::MAX,
        }
    }
}

pub(crate) struct Pair {
    pub(crate) client: Party,
    pub(crate) server: Party,
}

pub(crate) fn start_client(
    config: &dyn TlsConfig,
    options: &Options<'_>,
) -> Result<Party, HandshakeError> {
    let handshake = config.start_client(&HandshakeStart {
        server_name: options.name,
        peer: None,
        transport_parameters: options.client_parameters,
        resume: options.resume,
        early_data: options.client_early_data,
    })?;
    let mut party = Party::new(handshake);
    party.poll()?;
    Ok(party)
}

pub(crate) fn start_server(
    config: &dyn TlsConfig,
    options: &Options<'_>,
) -> Result<Party, HandshakeError> {
    let handshake = config.start_server(&HandshakeStart {
        server_name: "",
        peer: None,
        transport_parameters: options.server_parameters,
        resume: None,
        early_data: options.server_early_data,
    })?;
    let mut party = Party::new(handshake);
    party.poll()?;
    Ok(party)
}

/// Why a pair failed: which side said what.
#[derive(Debug)]
pub(crate) enum Failure {
    Client(HandshakeError),
    Server(HandshakeError),
}

impl Failure {
    pub(crate) fn alert(&self) -> u8 {
        match self {
            Self::Client(error) | Self::Server(error) => error.alert.0,
        }
    }
}

impl Pair {
    pub(crate) fn start(
        client: &dyn TlsConfig,
        server: &dyn TlsConfig,
        options: &Options<'_>,
    ) -> Result<Self, Failure> {
        Ok(Self {
            client: start_client(client, options).map_err(Failure::Client)?,
            server: start_server(server, options).map_err(Failure::Server)?,
        })
    }

    /// Carries messages to and fro until nobody has anything to say.
    pub(crate) fn run(&mut self, piece: usize) -> Result<(), Failure> {
        loop {
            if let Some((level, bytes)) = self.client.outbox.pop_front() {
                deliver(&mut self.server, level, &bytes, piece).map_err(Failure::Server)?;
            } else if let Some((level, bytes)) = self.server.outbox.pop_front() {
                deliver(&mut self.client, level, &bytes, piece).map_err(Failure::Client)?;
            } else {
                return Ok(());
            }
        }
    }
}

fn deliver(to: &mut Party, level: Level, bytes: &[u8], piece: usize) -> Result<(), HandshakeError> {
    for piece in bytes.chunks(piece.min(bytes.len())) {
        to.handshake.read(level, piece)?;
        to.poll()?;
    }
    Ok(())
}

/// A handshake from beginning to end.
pub(crate) fn shake(
    client: &dyn TlsConfig,
    server: &dyn TlsConfig,
    options: &Options<'_>,
) -> Result<Pair, Failure> {
    let mut pair = Pair::start(client, server, options)?;
    pair.run(options.piece)?;
    Ok(pair)
}

/// As [`shake`], for handshakes that must work out: checks what always holds.
pub(crate) fn shake_well(
    client: &dyn TlsConfig,
    server: &dyn TlsConfig,
    options: &Options<'_>,
) -> Pair {
    let pair = shake(client, server, options).expect("the handshake works out");
    assert_eq!(pair.client.parameters, [options.server_parameters]);
    assert_eq!(pair.server.parameters, [options.client_parameters]);
    for level in [Level::Handshake, Level::OneRtt] {
        for (sent, received) in [(&pair.client, &pair.server), (&pair.server, &pair.client)] {
            let sent = sent.secret(level, Direction::Send);
            assert_eq!(sent, received.secret(level, Direction::Receive), "{level:?}");
        }
        let client = pair.client.secret(level, Direction::Send);
        assert_ne!(client, pair.client.secret(level, Direction::Receive), "{level:?}");
    }
    assert_eq!(pair.client.summary().alpn, pair.server.summary().alpn);
    assert_eq!(pair.client.summary().cipher_suite, pair.server.summary().cipher_suite);
    assert_eq!(pair.client.summary().resumed, pair.server.summary().resumed);
    pair
}

pub(crate) fn identity() -> Identity {
    Identity::self_signed([NAME]).unwrap()
}

pub(crate) fn client(server: &Identity) -> ClientTlsBuilder {
    ClientTls::builder().pinned([server.fingerprint()]).alpn(["test"])
}

pub(crate) fn server(identity: &Identity) -> ServerTlsBuilder {
    ServerTls::builder(identity.clone()).alpn(["test"]).early_data(true)
}

/// Keeps key log lines.
#[derive(Default)]
pub(crate) struct Lines(pub(crate) Mutex<Vec<String>>);

impl KeyLog for Lines {
    fn line(&self, line: &str) {
        self.0.lock().unwrap().push(line.to_owned());
    }
}

impl Lines {
    pub(crate) fn new() -> Arc<Self> {
        Arc::default()
    }

    pub(crate) fn sorted(&self) -> Vec<String> {
        let mut lines = self.0.lock().unwrap().clone();
        lines.sort();
        lines
    }
}

/// Where the first message of a type begins in a flight.
pub(crate) fn message_at(flight: &[u8], wanted: u8) -> usize {
    let mut at = 0;
    while flight[at] != wanted {
        let len = u32::from_be_bytes([0, flight[at + 1], flight[at + 2], flight[at + 3]]);
        at += 4 + len as usize;
    }
    at
}

/// Lets the server answer, with a bit of its signature in CertificateVerify changed, and returns
/// what the client says to it.
pub(crate) fn spoil_signature(
    client: &dyn TlsConfig,
    server: &dyn TlsConfig,
    options: &Options<'_>,
) -> HandshakeError {
    let mut pair = Pair::start(client, server, options).unwrap();
    let (level, hello) = pair.client.outbox.pop_front().unwrap();
    pair.server.handshake.read(level, &hello).unwrap();
    pair.server.poll().unwrap();
    let (_, flight) = &mut pair.server.outbox[1];
    let certificate_verify = message_at(flight, 15);
    // Past the message's header, the scheme, two lengths and the DER of an ECDSA signature's r.
    flight[certificate_verify + 20] ^= 1;
    match pair.run(usize::MAX) {
        Err(Failure::Client(error)) => error,
        other => panic!("the client should notice, not: {other:?}"),
    }
}
