//! Sockets, and what runs on them.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use quicket::tokio::{Endpoint, Listener};
use quicket::{
    APPLICATION_LIMITS, AcceptError, Captures, ChooseClientPolicy, ConfigError, EndpointConfig,
    Identity, KeyLog, RetryPolicy, ServerConfig, ServerTls, SiteKeys, TransportConfig,
};
use quicket_front::{Handed, Tls, alt_svc};
use quicket_member::{Change, Member};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::acme::{self, Plan};
use crate::bind::{both, listen_tcp, only_v6};
use crate::capture;
use crate::credentials::Asking;
use crate::early::{ClusterRegister, Keeper};
use crate::front::admission::{admission, admission_by_service, counts_handshakes};
use crate::front::reception::Reception;
use crate::front::{Shared, redirect, tcp};
use crate::log_line::Log;
use crate::metrics::{self, Metrics};
use crate::pass::Relay;
use crate::presented::{Presented, Shown};
use crate::snapshot::{Limits, Snapshot, expired};
use crate::stage::{Ending, Stage, hand_over};
use crate::start_error::StartError;

/// How long the log may take in the end, spans after it, the last report to balancers, and captures.
const FLUSH: Duration = Duration::from_secs(1);
/// The name of all gateways of a site: they have the same ticket keys.
const PROGRAM: &str = "quicket-gateway";

/// A gateway that has its sockets.
pub struct Bound {
    gateway: Gateway,
    /// One, or one for each address behind the switch.
    endpoints: Vec<Endpoint>,
    /// In the same order.
    listeners: Vec<Listener>,
    addresses: Vec<SocketAddr>,
    /// At the same addresses; none without sites.
    tcp: Vec<TcpListener>,
    acceptor: Tls,
    redirects: Vec<TcpListener>,
    /// Where the counters can be read.
    reading: Option<metrics::Listener>,
    /// What asks other gateways' register of tickets.
    keeper: Option<Keeper>,
    stage: Arc<watch::Sender<Stage>>,
}

/// Why a gateway serves no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It was told to stop.
    Stopped,
    /// The next generation has taken over.
    Superseded,
}

/// A gateway, to be changed while it runs. Clones are the same one.
#[derive(Clone)]
pub struct Gateway {
    pub(crate) shared: Arc<Shared>,
    tls: ServerTls,
    wanted: Wanted,
    is_switched: bool,
    /// Its connection IDs and reports, behind a balancer.
    member: Option<Arc<Member>>,
    /// What protects tickets, if other gateways have it, too.
    keys: Option<SiteKeys>,
    /// What asks other gateways' register of tickets.
    register: Option<Arc<ClusterRegister>>,
    /// The certificates that clients get.
    presented: Arc<Presented>,
    /// Where captures begin.
    pub(crate) captures: Captures,
    pub(crate) capturing: Arc<capture::UnderWay>,
    /// What certificates are ordered.
    plan: Arc<watch::Sender<Option<Arc<Plan>>>>,
    hearer: Arc<OnceLock<acme::Hearer>>,
}

/// Addresses as the file says, which may leave the port to the system.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Wanted {
    listen: Vec<SocketAddr>,
    redirect: Vec<SocketAddr>,
    metrics: Option<metrics::Place>,
}

impl Wanted {
    fn of(snapshot: &Snapshot) -> Self {
        Self {
            listen: snapshot.listen.clone(),
            redirect: snapshot.redirect.clone(),
            metrics: snapshot.metrics.as_ref().map(|reading| reading.place.clone()),
        }
    }
}

impl Bound {
    /// Binds all addresses of a snapshot. `sockets` says how, and with how many workers.
    ///
    /// # Errors
    ///
    /// As [`Bound::bind_with`].
    pub async fn bind(snapshot: Snapshot, sockets: EndpointConfig) -> Result<Self, StartError> {
        Self::bind_with(snapshot, sockets, Handed::default()).await
    }

    /// Binds all addresses of a snapshot for which no socket was handed over.
    ///
    /// # Errors
    ///
    /// If one of them cannot be had, a certificate cannot be used, or a socket was handed over that the
    /// snapshot has no use for.
    pub async fn bind_with(
        mut snapshot: Snapshot,
        mut sockets: EndpointConfig,
        mut handed: Handed,
    ) -> Result<Self, StartError> {
        let member = member(&snapshot, &mut sockets)?;
        let is_switched = sockets.switch.is_some();
        check_passes(&snapshot, is_switched)?;
        let (stage, ending) = Ending::new();
        let stage = Arc::new(stage);
        // The gateway has ended when nobody can set the stage any more.
        let handing_over = Arc::downgrade(&stage);
        sockets.switch = sockets.switch.map(|switch| {
            switch.on_superseded(move || handing_over.upgrade().iter().for_each(|it| hand_over(it)))
        });
        let relay = Relay::new();
        sockets.pass_through = Some(Arc::clone(&relay) as _);
        let captures = Captures::default();
        sockets.captures = Some(captures.clone());
        snapshot.limits.bound(&mut sockets);
        let metrics = Metrics::new();
        let log = open_log(&snapshot, &metrics)?;
        let mut shown = shown(&mut snapshot, &Shown::default())?;
        let keys = snapshot.secrets.as_ref().map(|secrets| SiteKeys::new(secrets, PROGRAM));
        let register = snapshot.register.clone();
        let (register, keeper) =
            register.map(|place| ClusterRegister::new(place, metrics.register())).unzip();
        let key_log = captures.key_log();
        let tls = tls(&snapshot, &shown, keys.as_ref(), register.clone(), key_log)?;
        tls.announce_application_limits(announced(&snapshot));
        shown.count(&metrics);
        let acceptor = Tls::new(&tls).map_err(StartError::Tls)?;
        let (endpoints, addresses, tcp) = both(&snapshot, sockets, &mut handed).await?;
        let only_v6 = only_v6(&snapshot.redirect);
        let redirects =
            snapshot.redirect.iter().map(|&address| listen_tcp(address, only_v6, &mut handed));
        let redirects = redirects.collect::<Result<_, _>>()?;
        let config = server(tls.clone(), &snapshot);
        let wanted = Wanted::of(&snapshot);
        let reading = match &wanted.metrics {
            Some(place) => Some(reader(place, &mut handed).await?),
            None => None,
        };
        if let Some(left) = handed.left() {
            return Err(StartError::Unwanted(left));
        }
        let counts_handshakes = counts_handshakes(&snapshot);
        let shared = Shared::new(snapshot, log, metrics, ending, Arc::clone(&relay));
        let spans = shared.prepare_spans(&shared.current().0)?;
        shared.spans.take_up(spans);
        let shared = Arc::new(shared);
        relay.serve(&shared);
        ask_clients(&tls, &shared);
        let config = match counts_handshakes {
            true => config.admission(admission(&shared)),
            false => config,
        };
        let config = config.admission_by_hello(admission_by_service(&shared));
        let config = config.unencrypted_for(&shared.unencrypted);
        // Behind the switch each takes the place of one of the generation before.
        let mut listeners = Vec::with_capacity(endpoints.len());
        for endpoint in &endpoints {
            match endpoint.listen_early(config.clone()) {
                Ok(listener) => listeners.push(listener),
                // It has taken over at the first one: if it ended now, nobody would serve there.
                Err(error) if !listeners.is_empty() => {
                    log::error!("{}: {error}: nobody is served there", endpoint.local_addr());
                }
                Err(error) => return Err(StartError::Listen(error)),
            }
        }
        let (plan, hearer) = (shared.current().0.acme.clone(), Arc::default());
        let (plan, presented) =
            (Arc::new(watch::Sender::new(plan)), Arc::new(Presented::new(shown)));
        let gateway = Gateway {
            shared,
            tls,
            wanted,
            is_switched,
            member,
            keys,
            register,
            presented,
            captures,
            capturing: Arc::default(),
            plan,
            hearer,
        };
        Ok(Self {
            gateway,
            endpoints,
            listeners,
            addresses,
            tcp,
            acceptor,
            redirects,
            reading,
            keeper,
            stage,
        })
    }

    /// The gateway, for what is to change later.
    pub fn gateway(&self) -> Gateway {
        self.gateway.clone()
    }

    /// The addresses with QUIC, and HTTPS if there are sites.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.addresses.clone()
    }

    /// Where the counters can be read, if anywhere.
    pub fn metrics(&self) -> Option<metrics::Place> {
        self.reading.as_ref().and_then(metrics::Listener::place)
    }

    /// Other descriptors of all listeners, for the next generation. The UDP sockets reach it by the
    /// [switch](quicket::SwitchConfig).
    ///
    /// # Errors
    ///
    /// If the process has no descriptors left.
    pub fn heritage(&self) -> io::Result<Vec<OwnedFd>> {
        let listeners = self.tcp.iter().chain(&self.redirects);
        let shared = listeners.map(|listener| listener.as_fd().try_clone_to_owned());
        shared.chain(self.reading.iter().map(metrics::Listener::share)).collect()
    }

    /// Serves until `stop` is ready, or the next generation has taken over; then lets requests under way end,
    /// as long as the file says.
    ///
    /// # Errors
    ///
    /// If the endpoint ends by itself.
    pub async fn run(self, stop: impl Future<Output = ()>) -> Result<Ended, AcceptError> {
        self.run_with(stop, || Ok(())).await
    }

    /// The same; when the next generation has taken over, `serves` says whether it is well, before anything ends.
    ///
    /// # Errors
    ///
    /// If the endpoint ends by itself; or what `serves` says.
    pub async fn run_with<E: From<AcceptError>>(
        self,
        stop: impl Future<Output = ()>,
        serves: impl Fn() -> Result<(), E>,
    ) -> Result<Ended, E> {
        let Self {
            gateway,
            endpoints,
            listeners,
            addresses,
            tcp,
            acceptor,
            redirects,
            reading,
            keeper,
            stage,
        } = self;
        let (shared, limits) = (&gateway.shared, gateway.shared.current().0.limits);
        let port = addresses.first().map_or(0, SocketAddr::port);
        let mut tasks = JoinSet::new();
        for listener in tcp {
            let alt_svc = listener.local_addr().ok().and_then(|address| alt_svc(address.port()));
            tasks.spawn(tcp::listen(listener, acceptor.clone(), alt_svc, Arc::clone(shared)));
        }
        for listener in redirects {
            tasks.spawn(redirect::listen(listener, port, Arc::clone(shared)));
        }
        let reading = reading.map(|listener| {
            tasks.spawn(metrics::serve::serve(listener, Arc::clone(shared), endpoints.clone()))
        });
        if let Some(keeper) = keeper {
            tasks.spawn(keeper.run());
        }
        tasks.spawn(acme::keep(gateway.plan.subscribe(), gateway.context(), shared.ending.clone()));
        let reporting = gateway.member.clone().map(|member| {
            let drains = |stage: &Stage| *stage != Stage::Serves;
            tokio::spawn(member.report(stage.subscribe(), drains))
        });
        let mut stop = std::pin::pin!(stop);
        let mut reception = Reception::new(listeners, shared);
        let ended = tokio::select! {
            superseded = reception.take_all() => {
                superseded?;
                serves()?;
                Ended::Superseded
            }
            () = &mut stop => Ended::Stopped,
        };
        reception.rest().await;
        // All permits are back when all connections have ended.
        let all = limits.connections.min(tokio::sync::Semaphore::MAX_PERMITS);
        let all = u32::try_from(all).unwrap_or(u32::MAX);
        if ended == Ended::Superseded {
            if let Some(reading) = reading {
                reading.abort();
            }
            stage.send_replace(Stage::Superseded);
            tokio::select! {
                _ = tokio::time::timeout(limits.handover, shared.room.acquire_many(all)) => {}
                () = &mut stop => {}
            }
        }
        stage.send_replace(Stage::Stops);
        let _ = tokio::time::timeout(limits.drain, shared.room.acquire_many(all)).await;
        for endpoint in &endpoints {
            endpoint.close(h3::error::Code::H3_NO_ERROR.value(), b"the gateway was stopped");
        }
        let all_idle = async {
            for endpoint in &endpoints {
                endpoint.wait_idle().await;
            }
        };
        let _ = tokio::time::timeout(Duration::from_millis(500), all_idle).await;
        tasks.shutdown().await;
        // Balancers hear of the end even if nothing was under way.
        drop(stage);
        // Captures have the end of connections, and whoever has asked hears of it.
        let _ = tokio::time::timeout(FLUSH, gateway.capturing.all_ended()).await;
        if let Some(reporting) = reporting {
            let _ = tokio::time::timeout(FLUSH, reporting).await;
        }
        let (log, shared) = (gateway.shared.current().1, Arc::clone(shared));
        let flushing = move || {
            log.flush(FLUSH);
            shared.spans.end(FLUSH);
        };
        let _ = tokio::task::spawn_blocking(flushing).await;
        Ok(ended)
    }
}

impl Gateway {
    /// Takes another snapshot for the requests and connections to come. What is under way keeps the
    /// one that it began with.
    ///
    /// # Errors
    ///
    /// If something of it cannot be used: all stays as it was.
    pub fn replace(&self, snapshot: Snapshot) -> Result<(), StartError> {
        let taken = self.take(snapshot);
        self.shared.metrics.reloaded(taken.is_ok());
        taken
    }

    /// Counts a configuration that could not even be read.
    pub fn refused(&self) {
        self.shared.metrics.reloaded(false);
    }

    /// Has a function told what becomes of certificates that are ordered, once; the log is told instead as long as there
    /// is none. It must not wait.
    pub fn hear(&self, hear: impl Fn(&str) + Send + Sync + 'static) {
        let _ = self.hearer.set(Box::new(hear));
    }

    /// What the task works on that has certificates ordered.
    fn context(&self) -> acme::Context {
        acme::Context {
            tls: self.tls.clone(),
            presented: Arc::clone(&self.presented),
            challenges: Arc::clone(&self.shared.challenges),
            metrics: Arc::clone(&self.shared.metrics),
            hearer: Arc::clone(&self.hearer),
        }
    }

    /// Opens the access log anew, after it was moved aside.
    pub fn reopen_log(&self) {
        self.shared.current().1.reopen();
    }

    fn take(&self, mut snapshot: Snapshot) -> Result<(), StartError> {
        if Wanted::of(&snapshot) != self.wanted {
            return Err(StartError::OtherAddresses);
        }
        if fixed(&snapshot) != fixed(&self.shared.current().0) {
            return Err(StartError::OtherLimits);
        }
        if !self.tls.alpn().iter().eq(snapshot.alpn().iter().map(String::as_bytes)) {
            return Err(StartError::OtherProtocols);
        }
        if snapshot.has_tcp() != self.shared.current().0.has_tcp() {
            return Err(StartError::OtherProtocols);
        }
        if !has_same_in_common(&snapshot, &self.shared.current().0) {
            return Err(StartError::OtherRegister);
        }
        check_passes(&snapshot, self.is_switched)?;
        let place = self.place(&snapshot)?;
        let mut presented = self.presented.lock();
        // One that has ended while it was in use is no reason to refuse all else of the file.
        let fresh = |identity: &Identity| !presented.has(identity);
        let mut fresh = snapshot.certificates.iter().filter(|(_, identity)| fresh(identity));
        if let Some(what) = fresh.find_map(|(names, identity)| expired(names, identity)) {
            return Err(StartError::Expired(what));
        }
        let log = open_log(&snapshot, &self.shared.metrics)?;
        let spans = self.shared.prepare_spans(&snapshot)?;
        let next = shown(&mut snapshot, &presented)?;
        presented.replace(next, &self.tls).map_err(StartError::Tls)?;
        presented.count(&self.shared.metrics);
        if let Some((member, change)) = place {
            member.take_up(change).map_err(StartError::Balancer)?;
        }
        if snapshot.asks_clients() {
            // Until then it asks by the snapshot before.
            self.tls.replace_client_auth_by(Some(Arc::new(Asking(Arc::clone(&self.shared)))));
        }
        if let Some((keys, secrets)) = self.keys.as_ref().zip(snapshot.secrets.as_ref()) {
            keys.replace(secrets);
        }
        if let Some((register, place)) = self.register.as_ref().zip(snapshot.register.as_ref()) {
            register.change_credentials(place);
        }
        self.shared.spans.take_up(spans);
        let plan = snapshot.acme.clone();
        self.tls.announce_application_limits(announced(&snapshot));
        self.shared.replace(snapshot, log);
        ask_clients(&self.tls, &self.shared);
        drop(presented);
        // An order that is under way goes on, if it is one still.
        self.plan.send_if_modified(|before| {
            let is_new = *before != plan;
            if is_new {
                *before = plan;
            }
            is_new
        });
        Ok(())
    }

    /// What the file says of the place behind a balancer, checked, for whom it concerns.
    fn place(&self, snapshot: &Snapshot) -> Result<Option<(&Member, Change)>, StartError> {
        let before = self.shared.current().0;
        // The server ID is in all connection IDs that clients have; the payload was said in handshakes.
        let fixed =
            |snapshot: &Snapshot| snapshot.balancer.as_ref().map(|it| (it.id, it.max_udp_payload));
        if fixed(snapshot) != fixed(&before) {
            return Err(StartError::OtherPlace);
        }
        let Some((member, now)) = self.member.as_deref().zip(snapshot.balancer.as_ref()) else {
            return Ok(None);
        };
        let change = member.prepare(&now.site, &now.report_to).map_err(StartError::Balancer)?;
        Ok(Some((member, change)))
    }
}

/// The switch knows its programs' connection IDs, and hands on nothing else.
fn check_passes(snapshot: &Snapshot, is_switched: bool) -> Result<(), StartError> {
    match is_switched && snapshot.passes_quic() {
        true => Err(StartError::PassesBehindSwitch),
        false => Ok(()),
    }
}

/// The gateway as one of the servers behind a balancer, if it is one. Its connection IDs lead to it.
fn member(
    snapshot: &Snapshot,
    sockets: &mut EndpointConfig,
) -> Result<Option<Arc<Member>>, StartError> {
    let Some(behind) = &snapshot.balancer else { return Ok(None) };
    let member = Member::new(&behind.site, behind.id, &behind.report_to, sockets.workers);
    let member = member.map_err(StartError::Balancer)?;
    *sockets = member.configure(sockets.clone());
    if let Some(payload) = behind.max_udp_payload {
        sockets.protocol.max_udp_payload_size = payload;
    }
    Ok(Some(Arc::new(member)))
}

/// Has clients asked for certificates as the snapshot says that counts.
fn ask_clients(tls: &ServerTls, shared: &Arc<Shared>) {
    let asks = shared.current().0.asks_clients();
    let asking = || Arc::new(Asking(Arc::clone(shared))) as Arc<dyn ChooseClientPolicy>;
    tls.replace_client_auth_by(asks.then(asking));
}

/// The certificates of a snapshot, in whose place there are none afterwards, and those that are ordered, as far as they
/// are here or `before` had them.
fn shown(snapshot: &mut Snapshot, before: &Shown) -> Result<Shown, StartError> {
    let ordered = snapshot.acme.as_ref().map(|plan| acme::begin(plan, before.ordered()));
    let ordered = ordered.transpose().map_err(StartError::Acme)?.unwrap_or_default();
    Ok(Shown::new(std::mem::take(&mut snapshot.certificates), ordered))
}

/// What sockets and semaphores were made with.
fn fixed(snapshot: &Snapshot) -> (usize, u32, usize, Option<usize>, bool) {
    let limits = &snapshot.limits;
    let Limits { connections, requests, handshakes_without_retry, memory, .. } = *limits;
    (connections, requests, handshakes_without_retry, memory, counts_handshakes(snapshot))
}

/// What SETTINGS of HTTP/3 say and clients remember for their early data (RFC 9114, Section 7.2.4.2).
fn announced(snapshot: &Snapshot) -> [u64; APPLICATION_LIMITS] {
    [snapshot.limits.header_bytes.into(), 0, 0, 0]
}

/// What gateways have in common from the start; of the register, all but the password and certificates.
fn has_same_in_common(one: &Snapshot, other: &Snapshot) -> bool {
    let is_like = match (&one.register, &other.register) {
        (Some(one), Some(other)) => one.is_like(other),
        (one, other) => one.is_none() && other.is_none(),
    };
    is_like && one.secrets.is_some() == other.secrets.is_some()
}

async fn reader(
    place: &metrics::Place,
    handed: &mut Handed,
) -> Result<metrics::Listener, StartError> {
    let listener = metrics::Listener::bind(place, handed).await;
    listener.map_err(|error| StartError::Metrics(place.clone(), error))
}

fn tls(
    snapshot: &Snapshot,
    shown: &Shown,
    keys: Option<&SiteKeys>,
    register: Option<Arc<ClusterRegister>>,
    key_log: Arc<dyn KeyLog>,
) -> Result<ServerTls, StartError> {
    // A snapshot has a certificate at least, or one is ordered.
    let tls = shown.tls(snapshot.alpn(), |tls| {
        let mut tls = tls.key_log(key_log);
        if let Some(keys) = keys {
            tls = tls.common_ticket_keys(&keys.ticket_keys());
        }
        match register {
            Some(register) => tls
                .register_beginning(register.shared_beginning())
                .strike_register(register.clone()),
            None => tls,
        }
    });
    let none = || {
        let (origin, reason) = ("certificate".to_owned(), "there is none".to_owned());
        StartError::Tls(ConfigError::Certificate { origin, reason })
    };
    tls.ok_or_else(none)?.map_err(StartError::Tls)
}

/// The log of requests, where the file wants one.
fn open_log(snapshot: &Snapshot, metrics: &Metrics) -> Result<Log, StartError> {
    let path = snapshot.access_log.as_deref();
    let log = Log::open(path, metrics.lines_lost());
    log.map_err(|error| StartError::Log(path.unwrap_or(Path::new("-")).to_owned(), error))
}

/// What of an answer may wait for its client to let it come, in bytes of each stream: the rest stays with the origin.
const SEND_AHEAD: usize = 16 << 10;

fn server(tls: ServerTls, snapshot: &Snapshot) -> ServerConfig {
    let transport = TransportConfig {
        max_streams_bidi: snapshot.limits.requests.into(),
        send_ahead: SEND_AHEAD,
        ..TransportConfig::default()
    };
    let retry = match snapshot.limits.handshakes_without_retry {
        0 => RetryPolicy::Always,
        handshakes => RetryPolicy::AboveHandshakes(handshakes),
    };
    ServerConfig::new(tls).transport(transport).early_data(true).retry(retry)
}
