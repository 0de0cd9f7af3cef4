//! The most common simulation: one client, one server, one path.

use std::net::IpAddr;
use std::sync::Arc;

use quicket_engine::crypto::CryptoProvider;
use quicket_engine::time::{Duration, Time};
use quicket_engine::{
    ClientConfig, ConnectionError, ConnectionHandle, EndpointConfig, ServerConfig, TransportConfig,
};

use super::{Ended, Failure, HostOptions, Session, Sim};
use crate::app::{App, Tally, WorkApp, Workload};
use crate::clock::SimClock;
use crate::network::{HostId, PathId};
use crate::null_tls::{NullTls, NullTlsOptions};
use crate::rng::SimRng;
use crate::scenario::Scenario;
use crate::test_crypto::TestCrypto;

/// Address of the client.
pub const CLIENT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
/// Second address of the client.
pub const CLIENT_2: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 1, 1));
/// Address of the server.
pub const SERVER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
/// Second address of the server.
pub const SERVER_2: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 2));

/// The code with which simulations close.
pub const CLOSE_CODE: u64 = 0x5eed;

/// What a [`Pair`] is made of; change what the test is about.
pub struct PairOptions {
    /// The path.
    pub scenario: Scenario,
    /// A path between second addresses, which both hosts have then.
    pub second_path: Option<Scenario>,
    /// The second addresses, of the client and of the server.
    pub second_addresses: [IpAddr; 2],
    /// The client's endpoint.
    pub client_endpoint: EndpointConfig,
    /// The server's endpoint.
    pub server_endpoint: EndpointConfig,
    /// The client; its transport too.
    pub client: ClientConfig,
    /// The server; its transport too.
    pub server: ServerConfig,
    /// Packet protection of the client's side.
    pub client_crypto: Arc<dyn CryptoProvider>,
    /// Packet protection of the server's side.
    pub server_crypto: Arc<dyn CryptoProvider>,
    /// What the server's applications do by themselves.
    pub server_work: Workload,
    /// The clock, for wrappers that need it.
    pub clock: Arc<SimClock>,
}

impl PairOptions {
    /// The defaults, on a path that `scenario` describes.
    ///
    /// # Panics
    /// If `scenario` does not parse.
    pub fn new(scenario: &str) -> Self {
        let scenario = scenario.parse().unwrap_or_else(|error| panic!("{error}"));
        Self::on(scenario)
    }

    /// The defaults, on this path.
    pub fn on(scenario: Scenario) -> Self {
        let tls = |seed| Arc::new(NullTls::new(seed, NullTlsOptions::default()));
        Self {
            scenario,
            second_path: None,
            second_addresses: [CLIENT_2, SERVER_2],
            client_endpoint: EndpointConfig::new([1; 32], [2; 32]),
            server_endpoint: EndpointConfig::new([3; 32], [4; 32]),
            client: ClientConfig::new(tls(1)),
            server: ServerConfig::new(tls(2)),
            client_crypto: Arc::new(TestCrypto),
            server_crypto: Arc::new(TestCrypto),
            server_work: Workload::none(),
            clock: Arc::default(),
        }
    }

    /// Replaces the client's TLS.
    #[must_use]
    pub fn client_tls(mut self, options: NullTlsOptions) -> Self {
        self.client.tls = Arc::new(NullTls::new(1, options));
        self
    }

    /// Replaces the server's TLS.
    #[must_use]
    pub fn server_tls(mut self, options: NullTlsOptions) -> Self {
        self.server.tls = Arc::new(NullTls::new(2, options));
        self
    }

    /// Changes the client's transport.
    #[must_use]
    pub fn client_transport(mut self, change: impl FnOnce(&mut TransportConfig)) -> Self {
        change(Arc::make_mut(&mut self.client.transport));
        self
    }

    /// Changes the server's transport.
    #[must_use]
    pub fn server_transport(mut self, change: impl FnOnce(&mut TransportConfig)) -> Self {
        change(Arc::make_mut(&mut self.server.transport));
        self
    }

    /// Changes both transports.
    #[must_use]
    pub fn transport(self, change: impl Fn(&mut TransportConfig)) -> Self {
        self.client_transport(&change).server_transport(&change)
    }
}

/// A client and a server.
pub struct Pair {
    /// The simulation.
    pub sim: Sim,
    /// The client's host.
    pub client: HostId,
    /// The server's host.
    pub server: HostId,
    /// The path between their first addresses.
    pub path: PathId,
    config: ClientConfig,
}

impl Pair {
    /// Two hosts, not yet connected.
    pub fn new(seed: u64, options: PairOptions) -> Self {
        let mut sim = Sim::with_clock(seed, options.clock);
        let second = options.second_path.is_some();
        let [client_2, server_2] = options.second_addresses;
        let addresses =
            |first, other| std::iter::once(first).chain(second.then_some(other)).collect();
        let client = sim.add_host(HostOptions {
            addresses: addresses(CLIENT, client_2),
            port: 50_000,
            endpoint: options.client_endpoint,
            server: None,
            crypto: options.client_crypto,
            apps: Box::new(|| Box::new(WorkApp::new(Workload::none()))),
        });
        let work = options.server_work;
        let server = sim.add_host(HostOptions {
            addresses: addresses(SERVER, server_2),
            port: 443,
            endpoint: options.server_endpoint,
            server: Some(options.server),
            crypto: options.server_crypto,
            apps: Box::new(move || Box::new(WorkApp::new(work.clone()))),
        });
        let path = sim.add_path(CLIENT, SERVER, &options.scenario);
        if let Some(second) = &options.second_path {
            sim.add_path(client_2, SERVER, second);
            sim.add_path(CLIENT, server_2, second);
            sim.add_path(client_2, server_2, second);
        }
        Self { sim, client, server, path, config: options.client }
    }

    /// Connects with an application that does `work`.
    ///
    /// # Panics
    /// If the engine refuses to start.
    pub fn connect(&mut self, work: Workload) -> ConnectionHandle {
        self.connect_with(self.config.clone(), Box::new(WorkApp::new(work)))
    }

    /// Connects with another configuration and application.
    ///
    /// # Panics
    /// If the engine refuses to start.
    pub fn connect_with(&mut self, config: ClientConfig, app: Box<dyn App>) -> ConnectionHandle {
        let handle = self.sim.connect(self.client, self.server, config, app);
        handle.unwrap_or_else(|error| panic!("{}", self.sim.failure(error)))
    }

    /// The client's configuration, to connect again with a change.
    pub fn config(&self) -> ClientConfig {
        self.config.clone()
    }

    /// The client's only connection.
    pub fn at_client(&mut self) -> &mut Session {
        self.sim.host_mut(self.client).session()
    }

    /// The server's only connection.
    pub fn at_server(&mut self) -> &mut Session {
        self.sim.host_mut(self.server).session()
    }

    /// Runs until all applications on both sides are done.
    ///
    /// # Errors
    /// A broken promise of the engine, a connection that ended before, or `limit` passed.
    pub fn run(&mut self, limit: Duration) -> Result<(), Failure> {
        let hosts = [self.client, self.server];
        let mut lost = None;
        self.sim.run_until(limit, "waiting for the applications", |sim| {
            lost = hosts.iter().find_map(|host| lost_connection(sim, *host));
            lost.is_some() || hosts.iter().all(|host| is_done(sim, *host))
        })?;
        lost.map_or(Ok(()), |error| Err(self.sim.failure(error)))
    }

    /// Runs until the handshakes of the client's connections are confirmed.
    ///
    /// # Errors
    /// A broken promise of the engine, or `limit` passed.
    pub fn run_to_handshake(&mut self, limit: Duration) -> Result<(), Failure> {
        let client = self.client;
        self.sim.run_until(limit, "waiting for the handshake", |sim| {
            sim.host(client).sessions().all(|(_, session)| session.connection.is_confirmed())
        })
    }

    /// Closes the client's connections and runs until nothing is left of any.
    ///
    /// # Errors
    /// A broken promise of the engine, or connections that do not end.
    pub fn close(&mut self) -> Result<(), Failure> {
        let now = self.sim.now();
        let client = self.sim.host_mut(self.client);
        let handles: Vec<ConnectionHandle> = client.sessions().map(|(handle, _)| handle).collect();
        for handle in handles {
            if let Some(session) = client.session_mut(handle) {
                session.connection.close(now, CLOSE_CODE, b"done");
            }
        }
        self.run_to_end(Duration::from_secs(300))
    }

    /// Runs until no connection is left.
    ///
    /// # Errors
    /// A broken promise of the engine, or connections that do not end within `limit`.
    pub fn run_to_end(&mut self, limit: Duration) -> Result<(), Failure> {
        let hosts = [self.client, self.server];
        self.sim.run_until(limit, "waiting for the connections to end", |sim| {
            hosts.iter().all(|host| sim.host(*host).sessions().next().is_none())
        })
    }

    /// Runs `work` from the connection's start to its end, and returns what both sides did.
    ///
    /// # Panics
    /// With the whole report if anything is not as it should be.
    pub fn transfer(&mut self, work: Workload, limit: Duration) -> (Tally, Tally) {
        self.connect(work);
        let result = self.run(limit).and_then(|()| self.close());
        result.unwrap_or_else(|failure| panic!("{failure}"));
        self.check_sums().unwrap_or_else(|failure| panic!("{failure}"));
        (self.ended(self.client).tally, self.ended(self.server).tally)
    }

    /// Makes sure, once the only connection has ended, that what one side sent and never took
    /// back has arrived at the other.
    ///
    /// # Errors
    /// If bytes are missing.
    ///
    /// # Panics
    /// If not exactly one connection ended on each side.
    pub fn check_sums(&self) -> Result<(), Failure> {
        let (client, server) = (self.ended(self.client).tally, self.ended(self.server).tally);
        let given_up = client.streams_given_up + server.streams_given_up;
        let arrived = client.sent == server.received && server.sent == client.received;
        if given_up == 0 && !arrived {
            return Err(self.sim.failure(format!("bytes are missing: {client:?} {server:?}")));
        }
        Ok(())
    }

    /// The connection of a host, which is over. Attempts that came to nothing do not count if
    /// there was another: a late copy of a client's first packet starts one.
    ///
    /// # Panics
    /// If there is none.
    pub fn ended(&self, host: HostId) -> &Ended {
        let all = self.sim.host(host).ended();
        let mut done = all.iter().filter(|ended| ended.is_complete());
        match (done.next(), done.next(), all) {
            (Some(ended), None, _) => ended,
            (None, _, [ended]) => ended,
            _ => panic!("{}", self.sim.failure("not exactly one connection ended")),
        }
    }

    /// A generator for what a test draws itself.
    pub fn rng(&self) -> SimRng {
        SimRng::new(self.sim.seed()).stream("test")
    }

    /// The present.
    pub fn now(&self) -> Time {
        self.sim.now()
    }
}

fn is_done(sim: &Sim, host: HostId) -> bool {
    sim.host(host).sessions().all(|(_, session)| session.app.is_done())
}

/// A connection that ended with its application not done. A server's that never completed its
/// handshake does not count: a late copy of a client's first packet starts such a one.
fn lost_connection(sim: &Sim, host: HostId) -> Option<String> {
    let host = sim.host(host);
    let open = host.sessions().filter(|(_, s)| !s.app.is_done());
    let open = open.filter_map(|(_, session)| session.error.clone());
    let counts = |ended: &&Ended| !ended.done && (!host.is_server() || ended.is_complete());
    let ended = host.ended().iter().filter(counts).filter_map(|e| e.error.clone());
    open.chain(ended).next().map(|error: ConnectionError| format!("the connection ended: {error}"))
}
