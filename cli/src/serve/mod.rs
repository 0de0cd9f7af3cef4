//! `quicket serve`: serves a directory.

mod certificates;
mod conversation;
mod events;
mod http09;
mod http3;
pub(crate) mod keep;
mod limit;
mod listen;
mod listing;
mod log;
mod member;
mod memory;
mod signals;
mod site;
mod stall;

pub(crate) use limit::raise_limit;
pub(crate) use log::{flush, say};
pub(crate) use signals::stop;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use quicket::tokio::Listener;
use quicket::{
    AcceptError, Decision, EndpointConfig, Fingerprint, Qlog, RetryPolicy, ServerConfig, ServerTls,
    WorkerStats,
};
use quicket_files::{Descriptors, Entry, Options, Room, Tree};
use tokio::sync::watch;
use tokio::task::JoinSet;

use self::certificates::{Files, unusable};
use self::conversation::Draining;
use self::events::Events;
use self::listen::Place;
use self::member::Member;
use self::signals::{Hangup, Keys};
use crate::args::{Protocol, Retry, Serve};
use crate::exit::{Failure, Kind};
#[cfg(target_os = "linux")]
use crate::generations::{Next, Successor};
use crate::{heap, transport};

/// How much longer the switch waits than this server: that is for one that does not end by itself.
const DRAIN_MARGIN: Duration = Duration::from_secs(1);
/// More unfinished handshakes than this are busy times.
const BUSY: usize = 1000;

/// What is served, and how it is told of.
#[derive(Debug)]
pub(crate) struct Site {
    pub(crate) tree: Arc<Tree>,
    /// A line per request on standard error.
    pub(crate) access_log: bool,
    pub(crate) events: Events,
    pub(crate) descriptors: Descriptors,
    /// Room for what is read of files before it is sent, on all connections.
    pub(crate) room: Room,
    /// Of a site behind a balancer.
    pub(crate) member: Option<Arc<Member>>,
}

/// A client with a connection.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) remote: SocketAddr,
    pub(crate) site: Arc<Site>,
    /// How many requests came.
    pub(crate) requests: AtomicU64,
    /// Its part of the site's room.
    pub(crate) room: Room,
}

/// Runs the command.
pub(crate) fn run(args: &Serve) -> Result<(), Failure> {
    raise_limit();
    heap::keep_little();
    let dir = args.dir.display();
    let listing = (!args.no_listing).then_some(listing::page as fn(&str, &[Entry]) -> String);
    let options = Options { hidden: args.hidden, listing, ..Options::default() };
    let tree = Tree::open(&args.dir, options)
        .map_err(|error| Failure::file(format!("cannot serve {dir}"), &error))?;
    let site = Site {
        tree: Arc::new(tree),
        access_log: !args.quiet,
        events: Events::new(args.json),
        descriptors: Descriptors::default(),
        room: Room::new(memory::MAX_PIECES),
        member: Member::new(&args.behind, args.workers)?,
    };
    transport::warn(&args.transport);
    let live = Arc::new(AtomicUsize::new(0));
    let qlog = transport::qlog(&args.transport)?;
    let mut files = Files::new(args)?;
    // Before anything is bound, it says what is wrong with it.
    files.ticket_key()?;
    let (tls, pin) = tls(args, &files)?;
    let config = config(args, tls.clone(), &live, qlog.as_ref());
    let mut sockets = EndpointConfig::default().workers(args.workers);
    match files.site() {
        Some(site) => sockets = site.configure(sockets),
        None => sockets.protocol.reset_key = keep::reset_key()?,
    }
    args.port.configure(&mut sockets.udp)?;
    let place = Place::of(&args.listen)?;
    #[cfg(target_os = "linux")]
    let successor = Successor::default();
    #[cfg(target_os = "linux")]
    if let Some(switch) = args.sharing.config("quicket-serve") {
        if let [_, _, ..] = place.addresses() {
            let message = "with --switch there is one --listen: [::]:PORT stands for all addresses";
            return Err(Failure::new(Kind::Usage, message));
        }
        if place.addresses().iter().any(|address| address.port() == 0) {
            let message = "with --switch the port is one that the next generation knows, and not 0";
            return Err(Failure::new(Kind::Usage, message));
        }
        if site.member.is_some() {
            let message = "--switch gives connection IDs of its own, which no balancer knows";
            return Err(Failure::new(Kind::Usage, message));
        }
        let switch = switch.drain(Some(drain(args) + DRAIN_MARGIN));
        // A socket that was handed over is not handed on.
        let flag = place.handed().map(|address| format!("--listen={address}").into());
        let next = Next { command: "serve", flag, sockets: Vec::new() };
        let (starter, heir) = (successor.clone(), successor.clone());
        let switch = switch.on_upgrade(move || starter.start(&next));
        sockets = sockets.switch(switch.on_superseded(move || heir.has_taken_over()));
    }
    if let Some(size) = args.behind.max_udp_payload {
        sockets.protocol.max_udp_payload_size = size;
    }
    if let Some(member) = &site.member {
        sockets = member.configure(sockets);
    }
    let runtime = crate::threads()?;
    let served = runtime.block_on(async {
        let (endpoint, addresses) = place.bind(sockets).await?;
        files.heed_switch(site.member.is_none() && endpoint.site_secret().is_some());
        if let Some(key) = files.ticket_key()? {
            tls.rotate_ticket_key(key);
        }
        let hangup = Hangup::watch();
        let listener = endpoint
            .listen_early(config)
            .map_err(|error| Failure::new(Kind::Environment, error.to_string()))?;
        let workers = endpoint.worker_stats().len();
        announce(args, &site, (&addresses, workers), pin);
        let keys = Keys::new(files, tls, hangup, state(args, &addresses));
        let on_superseded = || {
            #[cfg(target_os = "linux")]
            successor.check()?;
            Ok(())
        };
        serve(&listener, Arc::new(site), &live, keys, (drain(args), &on_superseded)).await
    });
    if let Some(qlog) = qlog {
        qlog.flush();
    }
    log::flush();
    served
}

/// How long requests under way may take in the end.
const fn drain(args: &Serve) -> Duration {
    Duration::from_secs(args.drain as u64)
}

/// The TLS configuration, and the fingerprint that clients need where they cannot know the
/// certificate otherwise.
fn tls(args: &Serve, files: &Files) -> Result<(ServerTls, Option<Fingerprint>), Failure> {
    let mut presented = files.read()?;
    let (identity, named) = presented.split()?;
    let mut tls = ServerTls::builder(identity)
        .alpn([Protocol::H3.alpn(), Protocol::HqInterop.alpn()])
        .early_data(args.early_data());
    for (names, identity) in named {
        tls = tls.certificate_for(names, identity);
    }
    if let Some(log) = transport::key_log(args.transport.keylog.as_deref())? {
        tls = tls.key_log(log);
    }
    Ok((tls.build().map_err(unusable)?, presented.pin))
}

/// The configuration of connections.
fn config(
    args: &Serve,
    tls: ServerTls,
    live: &Arc<AtomicUsize>,
    qlog: Option<&Qlog>,
) -> ServerConfig {
    let mut transport = transport::config(&args.transport);
    transport.max_streams_bidi = args.max_requests.into();
    transport.initial_stream_window = memory::REQUEST_WINDOW;
    transport.initial_receive_window = memory::REQUEST_WINDOW;
    let live = Arc::clone(live);
    let limit = args.max_connections.unwrap_or_else(memory::connections) as usize;
    let mut config = ServerConfig::new(tls)
        .transport(transport)
        .early_data(args.early_data())
        .retry(match args.retry {
            Retry::Never => RetryPolicy::Never,
            Retry::Busy => RetryPolicy::AboveHandshakes(BUSY),
            Retry::Always => RetryPolicy::Always,
        })
        .admission(move |_| match live.load(Ordering::Relaxed) < limit {
            true => Decision::Accept,
            false => Decision::Refuse,
        });
    if let Some(qlog) = qlog {
        config = config.qlog(qlog.clone());
    }
    config
}

/// What the server does, in a line.
fn state(args: &Serve, addresses: &[SocketAddr]) -> String {
    let all: Vec<String> = addresses.iter().map(SocketAddr::to_string).collect();
    format!("Serving {} on {} (UDP)", args.dir.display(), all.join(", "))
}

/// Says where to find what.
fn announce(
    args: &Serve,
    site: &Site,
    (addresses, workers): (&[SocketAddr], usize),
    pin: Option<Fingerprint>,
) {
    #[cfg(target_os = "linux")]
    crate::notify::ready(&state(args, addresses));
    for address in addresses {
        site.events.listening(*address, workers, pin);
    }
    if args.json {
        // Another program started this one.
        return;
    }
    let with = if workers > 1 { format!(", with {workers} workers") } else { String::new() };
    eprintln!("{}, HTTP/3 and hq-interop{with}", state(args, addresses));
    if let (Some(pin), Some(address)) = (pin, addresses.first()) {
        // Nobody can connect to "any address".
        let shown = match address.ip().is_unspecified() {
            true => format!("localhost:{}", address.port()),
            false => address.to_string(),
        };
        eprintln!(
            "The certificate is self-signed. A client trusts exactly this one with:\n\n  quicket \
             get --pin {pin} https://{shown}/\n"
        );
    }
}

/// Accepts connections until Ctrl-C, then lets requests under way end.
async fn serve(
    listener: &Listener,
    site: Arc<Site>,
    live: &Arc<AtomicUsize>,
    keys: Keys,
    (grace, on_superseded): (Duration, &dyn Fn() -> Result<(), Failure>),
) -> Result<(), Failure> {
    let (drain, draining) = watch::channel(Draining::No);
    if let Some(member) = &site.member {
        tokio::spawn(Arc::clone(member).report(draining.clone()));
    }
    let mut clients = JoinSet::new();
    let mut stop = std::pin::pin!(signals::stop());
    let mut left = std::pin::pin!(keys.watch(Arc::clone(&site)));
    let connections = || live.load(Ordering::Relaxed);
    let mut ebb = std::pin::pin!(memory::give_back(listener.endpoint(), connections));
    let why = loop {
        tokio::select! {
            accepted = listener.accept() => {
                let connection = match accepted {
                    Ok(connection) => connection,
                    Err(AcceptError::Superseded) => {
                        on_superseded()?;
                        say(format_args!("The next generation has taken over"));
                        break Draining::Superseded;
                    }
                    Err(error) => {
                        return Err(Failure::environment("cannot accept connections", error));
                    }
                };
                let (site, draining) = (Arc::clone(&site), draining.clone());
                let counted = Counted::new(live);
                clients.spawn(async move {
                    conversation::hold(connection, site, draining).await;
                    drop(counted);
                });
            }
            Some(_) = clients.join_next() => {}
            () = &mut stop => break Draining::Stopping,
            () = &mut left => break Draining::Stopping,
            () = &mut ebb => {}
        }
    };
    #[cfg(target_os = "linux")]
    crate::notify::stopping("connections finish their requests");
    if site.access_log {
        let open = live.load(Ordering::Relaxed);
        say(format_args!(
            "Stopping: no new requests; {open} connections have up to {} s to finish theirs (once more \
             to stop at once)",
            grace.as_secs()
        ));
    }
    drain.send_replace(why);
    let all = async { while clients.join_next().await.is_some() {} };
    tokio::select! {
        () = all => {}
        () = tokio::time::sleep(grace) => {}
        () = signals::stop() => {}
    }
    let cut_off = live.load(Ordering::Relaxed);
    // Whoever is left is told that the server ends, and why nothing more comes.
    listener.endpoint().close(h3::error::Code::H3_NO_ERROR.value(), b"the server was stopped");
    let _ = tokio::time::timeout(Duration::from_millis(500), listener.endpoint().wait_idle()).await;
    if site.access_log {
        tell_of_workers(&listener.endpoint().worker_stats());
        match cut_off {
            0 => say(format_args!("Stopped: all connections had come to their end")),
            _ => say(format_args!(
                "Stopped: {cut_off} connections were closed before they were done"
            )),
        }
    }
    Ok(())
}

/// Says what several workers did.
fn tell_of_workers(workers: &[WorkerStats]) {
    let sum = |of: fn(&WorkerStats) -> u64| workers.iter().map(of).sum::<u64>();
    if workers.len() > 1 {
        let each: Vec<_> = workers.iter().map(|worker| worker.received.to_string()).collect();
        say(format_args!(
            "Workers received {} datagrams; {} were handed to another worker, {} lost on the way, {} \
             strayed",
            each.join(" + "),
            sum(|worker| worker.handed_on),
            sum(|worker| worker.lost),
            sum(|worker| worker.stray)
        ));
    }
}

/// Counts a connection as long as it lives.
struct Counted(Arc<AtomicUsize>);

impl Counted {
    fn new(live: &Arc<AtomicUsize>) -> Self {
        live.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(live))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
