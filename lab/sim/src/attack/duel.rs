//! The attacker against one victim.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use quicket_engine::crypto::{CryptoProvider, Level};
use quicket_engine::time::{Duration, Time};
use quicket_engine::{ClientConfig, Connection, EndpointConfig, ServerConfig};
use quicket_wire::{ConnectionId, EcnCodepoint, Header, Side};

use super::forge::{Forge, Opened};
use super::party::{Party, Sent};
use super::payload::Payload;
use super::tap::{Secrets, TappedTls};
use crate::null_tls::{NullTls, NullTlsOptions};
use crate::rng::SimRng;
use crate::test_crypto::TestCrypto;

/// Where the client is.
const CLIENT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), 50_000);
/// Where the server is.
const SERVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 443);
/// More rounds than any handshake takes.
const MAX_ROUNDS: usize = 1_000;
/// How long an established connection is left alone, for what follows a handshake.
const SETTLE: Duration = Duration::from_millis(500);

/// How far the handshake has come when the attack begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// One flight of the client, and no more. The attacker has Initial keys, and those of 0-RTT
    /// if it resumes a session.
    First,
    /// The attacker has Handshake keys, and the victim's handshake is not complete.
    Handshake,
    /// The handshake is confirmed on both sides.
    Confirmed,
}

impl Stage {
    /// All of them, in order.
    pub const ALL: [Self; 3] = [Self::First, Self::Handshake, Self::Confirmed];
}

/// What a [`Duel`] is made of; change what the test is about.
pub struct DuelOptions {
    /// The role of the attacker.
    pub attacker: Side,
    /// The victim's endpoint.
    pub endpoint: EndpointConfig,
    /// The client, whoever is it.
    pub client: ClientConfig,
    /// The server, whoever is it.
    pub server: ServerConfig,
    /// Packet protection of both.
    pub crypto: Arc<dyn CryptoProvider>,
    /// Where chance begins.
    pub seed: u64,
}

impl DuelOptions {
    /// The defaults, with pretended TLS and packet protection. No search for an MTU.
    pub fn new(attacker: Side) -> Self {
        let tls = |seed| Arc::new(NullTls::new(seed, NullTlsOptions::default()));
        let mut options = Self {
            attacker,
            endpoint: EndpointConfig::new([3; 32], [4; 32]),
            client: ClientConfig::new(tls(1)),
            server: ServerConfig::new(tls(2)),
            crypto: Arc::new(TestCrypto),
            seed: 1,
        };
        Arc::make_mut(&mut options.client.transport).mtu_discovery = None;
        Arc::make_mut(&mut options.server.transport).mtu_discovery = None;
        options
    }
}

/// The attacker, the victim, and the time.
pub struct Duel {
    /// The present.
    pub now: Time,
    /// What the attacker seals and opens packets with.
    pub forge: Forge,
    /// The client's first Destination Connection ID.
    pub original_dcid: ConnectionId,
    /// Where the attacker's datagrams come from.
    pub address: SocketAddr,
    /// The victim.
    pub victim: Party,
    /// The attacker while it still behaves: it makes the handshake.
    puppet: Party,
    secrets: Secrets,
    known_secrets: usize,
    side: Side,
}

impl Duel {
    /// Two endpoints whose handshake has come as far as `stage`.
    ///
    /// # Panics
    /// If the handshake does not come that far.
    pub fn new(options: DuelOptions, stage: Stage) -> Self {
        Self::attempt(options, stage).expect("the handshake comes to the stage")
    }

    /// The same for handshakes that may fail: `None` if this one does.
    ///
    /// # Panics
    /// If the client cannot even start.
    pub fn attempt(options: DuelOptions, stage: Stage) -> Option<Self> {
        let DuelOptions { attacker, endpoint, mut client, mut server, crypto, seed } = options;
        let secrets = Secrets::default();
        match attacker {
            Side::Client => client.tls = tapped(client.tls, &secrets),
            Side::Server => server.tls = tapped(server.tls, &secrets),
        }
        let (puppet_address, address) = match attacker {
            Side::Client => (CLIENT, SERVER),
            Side::Server => (SERVER, CLIENT),
        };
        let puppet_endpoint = EndpointConfig::new([5; 32], [6; 32]);
        let mut server = Some(server);
        let mut party = |address, endpoint, is_server: bool, seed| {
            let server = if is_server { server.take() } else { None };
            Party::new(address, endpoint, server, crypto.clone(), seed)
        };
        let puppet_serves = attacker == Side::Server;
        let mut puppet = party(puppet_address, puppet_endpoint, puppet_serves, seed);
        let mut victim = party(address, endpoint, !puppet_serves, seed ^ 0xdead);

        let now = Time::from_nanos(1_000_000_000);
        let starter = if puppet_serves { &mut victim } else { &mut puppet };
        let started = starter.endpoint.connect(now, client, SERVER, Some(CLIENT), "sim.example");
        let (handle, connection) = started.expect("the client starts");
        starter.connections.insert(handle, connection);
        starter.settle(handle);
        let first = starter.transmit(now);
        let header = first_header(&first);
        let mut forge = Forge::new(crypto.clone(), header.version, attacker, &header.dcid);
        if attacker == Side::Client {
            forge.scid = header.scid;
        }
        let mut duel = Self {
            now,
            forge,
            original_dcid: header.dcid,
            address: puppet_address,
            victim,
            puppet,
            secrets,
            known_secrets: 0,
            side: attacker,
        };
        duel.shake_hands(first, stage).then_some(duel)
    }

    fn shake_hands(&mut self, first: Vec<Sent>, stage: Stage) -> bool {
        match self.side {
            Side::Client => self.reach_victim(first),
            Side::Server => self.reach_puppet(first),
        }
        self.learn();
        if self.side == Side::Server {
            // The answer is held back, but its connection ID is known.
            let answer = self.puppet.transmit(self.now);
            self.forge.scid = first_header(&answer).scid;
            if stage == Stage::First {
                return true;
            }
            if stage == Stage::Handshake {
                // ServerHello arrives, and nothing else.
                let mut hello = answer;
                let end = first_header(&hello).end;
                hello.truncate(1);
                hello[0].data.truncate(end);
                self.reach_victim(hello);
                return true;
            }
            self.reach_victim(answer);
        } else if stage == Stage::First {
            return true;
        } else if stage == Stage::Handshake {
            let answer = self.victim.transmit(self.now);
            self.reach_puppet(answer);
            self.learn();
            return true;
        }
        self.complete()
    }

    /// Goes on by the rules until the handshake is confirmed; false if it fails.
    fn complete(&mut self) -> bool {
        for _ in 0..MAX_ROUNDS {
            let (a, b) = (self.puppet.transmit(self.now), self.victim.transmit(self.now));
            let quiet = a.is_empty() && b.is_empty();
            self.reach_victim(a);
            self.reach_puppet(b);
            self.learn();
            if !quiet {
                continue;
            }
            let confirmed = |party: &Party| party.connections.values().all(|c| c.is_confirmed());
            if confirmed(&self.puppet) && confirmed(&self.victim) {
                self.settle();
                return true;
            }
            let next = self.puppet.next_timeout().into_iter().chain(self.victim.next_timeout());
            let Some(next) = next.min() else { return false };
            self.now = self.now.max(next);
            self.puppet.handle_timeouts(self.now);
            self.victim.handle_timeouts(self.now);
        }
        false
    }

    /// The attacker sends what it would by the rules, as to end the handshake.
    pub fn finish(&mut self) {
        let flight = self.puppet.transmit(self.now);
        self.learn();
        self.reach_victim(flight);
    }

    /// Lets tokens, tickets, connection IDs and late ACKs come to rest.
    fn settle(&mut self) {
        let end = self.now + SETTLE;
        loop {
            let (a, b) = (self.puppet.transmit(self.now), self.victim.transmit(self.now));
            if a.is_empty() && b.is_empty() {
                let next = self.puppet.next_timeout().into_iter().chain(self.victim.next_timeout());
                match next.min().filter(|at| *at <= end) {
                    Some(at) => self.now = self.now.max(at),
                    None => break,
                }
                self.puppet.handle_timeouts(self.now);
                self.victim.handle_timeouts(self.now);
            }
            self.reach_victim(a);
            self.reach_puppet(b);
        }
        self.now = end;
    }

    fn reach_victim(&mut self, datagrams: Vec<Sent>) {
        for mut sent in datagrams {
            self.victim.receive(self.now, self.address, sent.ecn, &mut sent.data);
        }
    }

    fn reach_puppet(&mut self, datagrams: Vec<Sent>) {
        let victim = self.victim.address;
        for mut sent in datagrams {
            self.note(&sent.data);
            self.puppet.receive(self.now, victim, sent.ecn, &mut sent.data);
        }
    }

    /// Learns the victim's version and connection ID, and the numbers of its packets.
    fn note(&mut self, datagram: &[u8]) {
        self.learn();
        if let Ok(header) = Header::parse(datagram, self.forge.scid.len())
            && header.is_long()
        {
            self.forge.dcid = header.scid;
            self.forge.version = header.version;
        }
        self.forge.open(datagram);
    }

    /// Takes over new secrets.
    fn learn(&mut self) {
        let secrets = self.secrets.lock().expect("nobody panicked");
        for (level, direction, secret) in secrets.iter().skip(self.known_secrets) {
            self.forge.install(*level, *direction, secret.clone());
        }
        self.known_secrets = secrets.len();
    }

    /// The victim's connection.
    ///
    /// # Panics
    /// If there is not exactly one.
    pub fn connection(&mut self) -> &mut Connection {
        self.victim.connection()
    }

    /// Seals a packet and lets it arrive.
    ///
    /// # Panics
    /// If there are no keys of this level.
    pub fn attack(&mut self, level: Level, payload: &Payload) {
        let mut packet = self.forge.seal(level, payload.bytes());
        self.deliver(&mut packet);
    }

    /// Lets a datagram of the attacker arrive.
    pub fn deliver(&mut self, datagram: &mut [u8]) {
        self.deliver_from(self.address, datagram);
    }

    /// Lets a datagram arrive from elsewhere.
    pub fn deliver_from(&mut self, from: SocketAddr, datagram: &mut [u8]) {
        self.victim.receive(self.now, from, EcnCodepoint::NotEct, datagram);
    }

    /// Lets datagrams of the attacker arrive together, of which the first has `stride` bytes.
    pub fn deliver_train(&mut self, train: &mut [u8], stride: usize) {
        let from = (self.address, EcnCodepoint::NotEct);
        self.victim.receive_train(self.now, from, train, stride);
    }

    /// What the victim sends now.
    pub fn answers(&mut self) -> Vec<Sent> {
        self.victim.transmit(self.now)
    }

    /// What the victim sends now, opened.
    pub fn opened_answers(&mut self) -> Vec<Opened> {
        let answers = self.answers();
        answers.iter().flat_map(|sent| self.forge.open(&sent.data)).collect()
    }

    /// Lets time pass, with the victim's timers; returns what it sends meanwhile.
    ///
    /// # Panics
    /// If a timer is due for ever.
    pub fn pass(&mut self, duration: Duration) -> Vec<Sent> {
        let end = self.now + duration;
        let mut out = self.answers();
        let mut rounds = 0;
        while let Some(at) = self.victim.next_timeout().filter(|at| *at <= end) {
            rounds = if at > self.now { 0 } else { rounds + 1 };
            assert!(rounds < MAX_ROUNDS, "a timer is due again and again");
            self.now = self.now.max(at);
            self.victim.handle_timeouts(self.now);
            out.append(&mut self.answers());
        }
        self.now = end;
        out
    }

    /// Acknowledges what the victim has sent and the attacker has opened, as a peer must that
    /// wants it to go on.
    pub fn acknowledge(&mut self) {
        let ranges: Vec<_> = self.forge.opened.iter().rev().cloned().collect();
        if !ranges.is_empty() {
            self.attack(Level::OneRtt, &Payload::new().ack(0, &ranges, None));
        }
    }

    /// What the victim sends now is opened and acknowledged.
    pub fn follow(&mut self) {
        self.opened_answers();
        self.acknowledge();
    }

    /// A generator for what a test draws itself.
    pub fn rng(&self) -> SimRng {
        SimRng::new(7).stream("attack")
    }
}

fn tapped(
    inner: Arc<dyn quicket_engine::crypto::TlsConfig>,
    secrets: &Secrets,
) -> Arc<dyn quicket_engine::crypto::TlsConfig> {
    Arc::new(TappedTls { inner, secrets: secrets.clone() })
}

fn first_header(datagrams: &[Sent]) -> Header {
    let first = datagrams.first().expect("something is sent");
    Header::parse(&first.data, ConnectionId::MAX_LEN).expect("it is a packet")
}
