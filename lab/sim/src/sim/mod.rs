//! Endpoints of the engine on a simulated network, in virtual time, with their applications and
//! with checks of what the engine promises.

mod checks;
mod failure;
mod host;
mod pair;

use std::sync::Arc;

use quicket_engine::time::{Duration, Time};
use quicket_engine::{ClientConfig, ConnectionHandle};

pub use failure::Failure;
pub use host::{AppFactory, Ended, Host, HostOptions, HostStats, Session};
pub use pair::{CLIENT, CLIENT_2, CLOSE_CODE, Pair, PairOptions, SERVER, SERVER_2};

use crate::app::App;
use crate::clock::SimClock;
use crate::datagram::Datagram;
use crate::network::{HostId, Network, PathId};
use crate::rng::SimRng;
use crate::scenario::Scenario;

/// The seed of the environment variable `QUICKET_SIM_SEED`, or else `default`.
///
/// # Panics
/// If the variable holds no number.
pub fn seed_or(default: u64) -> u64 {
    from_env("QUICKET_SIM_SEED").unwrap_or(default)
}

/// The number in the environment variable `name`, if it is set.
///
/// # Panics
/// If the variable holds no number.
pub fn from_env(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} must be a number, not `{text}`")))
}

/// More datagrams than this at one instant are a spin.
const MAX_AT_ONE_INSTANT: usize = 1_000_000;

/// Something that a test does at a set time.
type Scripted = Box<dyn FnOnce(&mut Sim)>;

/// A simulation: hosts on a network.
pub struct Sim {
    seed: u64,
    rng: SimRng,
    clock: Arc<SimClock>,
    network: Network,
    hosts: Vec<Host>,
    scenarios: Vec<String>,
    script: Vec<(Time, Scripted)>,
    trace: bool,
    at_this_instant: usize,
}

impl Sim {
    /// An empty simulation, all of whose chances come from `seed`. With the environment variable
    /// `QUICKET_SIM_TRACE` set, connections print all that they do.
    pub fn new(seed: u64) -> Self {
        Self::with_clock(seed, Arc::default())
    }

    /// The same on a clock at its origin that others share.
    pub fn with_clock(seed: u64, clock: Arc<SimClock>) -> Self {
        let rng = SimRng::new(seed);
        Self {
            seed,
            clock,
            network: Network::new(&rng),
            hosts: Vec::new(),
            scenarios: Vec::new(),
            script: Vec::new(),
            trace: std::env::var_os("QUICKET_SIM_TRACE").is_some(),
            at_this_instant: 0,
            rng,
        }
    }

    /// Adds a host.
    pub fn add_host(&mut self, options: HostOptions) -> HostId {
        let id = self.network.add_host(options.addresses.iter().copied());
        let name = if options.server.is_some() { "server" } else { "client" };
        let trace = self.trace.then(|| format!("{name}{}", id.0));
        let rng = self.rng.stream(&format!("host {}", id.0));
        self.hosts.push(Host::new(options, rng, trace));
        id
    }

    /// Lays a path between addresses; see [`Network::add_path`]. Its times count from now.
    pub fn add_path(
        &mut self,
        near: std::net::IpAddr,
        far: std::net::IpAddr,
        scenario: &Scenario,
    ) -> PathId {
        self.scenarios.push(format!("{near} > {far}: {scenario}"));
        self.network.add_path(near, far, scenario, self.now())
    }

    /// Connects `client` to `server`.
    ///
    /// # Errors
    /// The engine's, as text.
    pub fn connect(
        &mut self,
        client: HostId,
        server: HostId,
        config: ClientConfig,
        app: Box<dyn App>,
    ) -> Result<ConnectionHandle, String> {
        let (now, remote) = (self.now(), self.host(server).address());
        self.host_mut(client).connect(now, config, remote, app)
    }

    /// Does something at a time.
    pub fn at(&mut self, time: Time, what: impl FnOnce(&mut Self) + 'static) {
        self.script.push((time, Box::new(what)));
    }

    /// Does something after a time.
    pub fn after(&mut self, delay: Duration, what: impl FnOnce(&mut Self) + 'static) {
        self.at(self.now() + delay, what);
    }

    /// The present.
    pub fn now(&self) -> Time {
        self.clock.now()
    }

    /// The clock, for wrappers that need it.
    pub fn clock(&self) -> &Arc<SimClock> {
        &self.clock
    }

    /// The seed.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// A host.
    pub fn host(&self, id: HostId) -> &Host {
        &self.hosts[id.0]
    }

    /// A host.
    pub fn host_mut(&mut self, id: HostId) -> &mut Host {
        &mut self.hosts[id.0]
    }

    /// The network.
    pub fn network(&self) -> &Network {
        &self.network
    }

    /// The network, to set taps or rebind NATs.
    pub fn network_mut(&mut self) -> &mut Network {
        &mut self.network
    }

    /// Runs until `until` says so.
    ///
    /// # Errors
    /// A broken promise of the engine, or nothing left to happen, or `limit` passed before.
    pub fn run_until(
        &mut self,
        limit: Duration,
        what: &str,
        mut until: impl FnMut(&mut Self) -> bool,
    ) -> Result<(), Failure> {
        let deadline = self.now() + limit;
        loop {
            self.settle()?;
            if until(self) {
                return Ok(());
            }
            let Some(next) = self.next_time() else {
                return Err(self.failure(format!("{what}: nothing is left to happen")));
            };
            if next > deadline {
                return Err(self.failure(format!("{what}: not within {limit:?}")));
            }
            self.advance_to(next);
        }
    }

    /// Runs for a time, or until nothing is left to happen.
    ///
    /// # Errors
    /// A broken promise of the engine.
    pub fn run_for(&mut self, time: Duration) -> Result<(), Failure> {
        let end = self.now() + time;
        loop {
            self.settle()?;
            match self.next_time().filter(|next| *next <= end) {
                Some(next) => self.advance_to(next),
                None => {
                    self.advance_to(end);
                    return Ok(());
                }
            }
        }
    }

    /// A failure that tells how to repeat this run.
    pub fn failure(&self, what: impl Into<String>) -> Failure {
        Failure::new(self, what.into())
    }

    fn advance_to(&mut self, time: Time) {
        if time > self.now() {
            self.at_this_instant = 0;
            self.clock.advance_to(time);
        }
    }

    fn next_time(&self) -> Option<Time> {
        let hosts = self.hosts.iter().filter_map(Host::next_time);
        let script = self.script.iter().map(|(at, _)| *at);
        hosts
            .chain(script)
            .chain(self.network.next_delivery_time())
            .chain(self.clock.next_wake())
            .min()
            .map(|at| at.max(self.now()))
    }

    /// Lets everything happen that happens now.
    fn settle(&mut self) -> Result<(), Failure> {
        let now = self.now();
        let mut out = Vec::new();
        self.run_script(now);
        for delivery in self.network.poll(now) {
            let host = &mut self.hosts[delivery.host.0];
            let result = host.receive(now, delivery.datagram, &mut out);
            result.map_err(|error| self.failure(error))?;
            self.at_this_instant += 1;
        }
        let woken = self.clock.take_wakes();
        for index in 0..self.hosts.len() {
            let host = &mut self.hosts[index];
            if woken {
                host.wake(now);
            }
            let result = host.handle_timeouts(now).and_then(|()| host.settle(now, &mut out));
            result.map_err(|error| self.failure(error))?;
        }
        if self.at_this_instant > MAX_AT_ONE_INSTANT {
            return Err(self.failure("spin: datagrams go to and fro without time passing"));
        }
        self.send(now, out);
        Ok(())
    }

    fn send(&mut self, now: Time, out: Vec<Datagram>) {
        for datagram in out {
            self.network.send(now, datagram);
        }
    }

    fn run_script(&mut self, now: Time) {
        while let Some(index) = self.script.iter().position(|(at, _)| *at <= now) {
            let (_, what) = self.script.remove(index);
            what(self);
        }
    }
}
