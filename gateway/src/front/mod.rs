//! Connections of clients, as streams of requests.

pub(crate) mod accept;
pub(crate) mod admission;
pub(crate) mod http3;
pub(crate) mod introduction;
pub(crate) mod reception;
pub(crate) mod redirect;
mod service;
pub(crate) mod tcp;
mod unencrypted;

use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use quicket::UnencryptedNetworks;
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, mpsc};

use crate::acme::Challenges;
use crate::clients::Clients;
use crate::log_line::Log;
use crate::metrics::Metrics;
use crate::origin::Checks;
use crate::pass::Relay;
use crate::snapshot::Snapshot;
use crate::spans::{Change, Spans};
use crate::stage::Ending;
use crate::start_error::StartError;
use crate::tunnel::Stay;

/// What all connections have in common.
pub(crate) struct Shared {
    current: RwLock<(Arc<Snapshot>, Log)>,
    /// Of the origins of the current snapshot.
    checks: Mutex<Checks>,
    runtime: Handle,
    /// One for each connection that there may be.
    pub(crate) room: Arc<Semaphore>,
    pub(crate) clients: Arc<Clients>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) ending: Ending,
    /// What authorities are answered that look whether names lead here.
    pub(crate) challenges: Arc<Challenges>,
    /// Whose connections over QUIC may go without encryption.
    pub(crate) unencrypted: UnencryptedNetworks,
    /// Where spans of requests go.
    pub(crate) spans: Spans,
    /// Who has datagrams of others.
    relay: Arc<Relay>,
}

impl Shared {
    pub(crate) fn new(
        snapshot: Snapshot,
        log: Log,
        metrics: Arc<Metrics>,
        ending: Ending,
        relay: Arc<Relay>,
    ) -> Self {
        snapshot.sites.count_by(&metrics);
        metrics.count_servers(snapshot.servers());
        let room =
            Arc::new(Semaphore::new(snapshot.limits.connections.min(Semaphore::MAX_PERMITS)));
        let runtime = Handle::current();
        let mut checks = Checks::default();
        checks.take_up(&snapshot.origins, &runtime);
        let checks = Mutex::new(checks);
        let unencrypted = UnencryptedNetworks::default();
        unencrypted::offer(&unencrypted, &snapshot.unencrypted);
        let current = RwLock::new((Arc::new(snapshot), log));
        let clients = Clients::new();
        let challenges = Arc::default();
        Self {
            current,
            checks,
            runtime,
            room,
            clients,
            metrics,
            ending,
            challenges,
            unencrypted,
            spans: Spans::default(),
            relay,
        }
    }

    pub(crate) fn relay(&self) -> Arc<Relay> {
        Arc::clone(&self.relay)
    }

    /// What counts for a request that comes now.
    pub(crate) fn current(&self) -> (Arc<Snapshot>, Log) {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What ends a tunnel that is a stream beside its ends.
    pub(crate) fn stay(&self) -> Stay {
        let drain = self.current().0.limits.drain;
        Stay { alive: None, ending: self.ending.clone(), drain }
    }

    /// What ends one that is a connection, and what is closed when all tunnels with it are gone.
    pub(crate) fn stay_connected(&self) -> (Stay, mpsc::Receiver<Infallible>) {
        let (alive, ended) = mpsc::channel(1);
        (Stay { alive: Some(alive), ..self.stay() }, ended)
    }

    /// What a snapshot demands of spans, checked.
    pub(crate) fn prepare_spans(&self, snapshot: &Snapshot) -> Result<Change, StartError> {
        let lost = self.metrics.traces_lost();
        self.spans.prepare(snapshot.traces.as_ref(), lost, &self.runtime)
    }

    /// From now on another snapshot counts. What is known of servers and sites that are the same stays.
    pub(crate) fn replace(&self, snapshot: Snapshot, log: Log) {
        snapshot.sites.count_by(&self.metrics);
        // Those who replace it at the same time take turns.
        let mut checks = self.checks.lock().unwrap_or_else(PoisonError::into_inner);
        snapshot.take_over(&self.current().0);
        checks.take_up(&snapshot.origins, &self.runtime);
        unencrypted::offer(&self.unencrypted, &snapshot.unencrypted);
        let next = (Arc::new(snapshot), log);
        let sites = Arc::clone(&next.0);
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut *current, next);
        drop(current);
        before.0.sites.forget_but(&sites.sites, &self.metrics);
        self.metrics.count_servers(sites.servers());
        self.relay.take_up(&sites);
    }
}
