//! `quicket serve`: serves a directory.

mod announce;
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
mod tcp;

pub(crate) use limit::raise_limit;
pub(crate) use log::{Lines, flush, say};
pub(crate) use signals::{hung_up, stop};

use std::future::Future;
use std::net::SocketAddr;
#[cfg(target_os = "linux")]
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use http::{HeaderMap, Method};
use quicket::tokio::Listener;
use quicket::{
    AcceptError, Decision, EndpointConfig, Fingerprint, Qlog, RetryPolicy, ServerConfig, ServerTls,
    WorkerStats,
};
use quicket_files::{Answer, Asked, Descriptors, Entry, Options, Room, Tree, ask};
use quicket_front::Tls;
use tokio::sync::watch;
use tokio::task::JoinSet;

use self::announce::Announcement;
use self::certificates::{Files, unusable};
use self::conversation::Draining;
use self::events::Events;
use self::listen::{Bound, Place, What};
use self::member::Member;
use self::signals::{Hangup, Keys};
use self::tcp::Front;
use crate::args::{Protocol, Retry, Serve};
use crate::exit::{Failure, Kind};
#[cfg(target_os = "linux")]
use crate::generations::Heirs;
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
    /// How long a connection may have no request.
    pub(crate) unasked: Duration,
    /// Of a site behind a balancer.
    pub(crate) member: Option<Arc<Member>>,
}

impl Site {
    /// What a question is answered with, or why there is no answer.
    pub(crate) async fn ask(
        &self,
        method: &Method,
        path: &str,
        headers: &HeaderMap,
        early: bool,
    ) -> Result<Answer, String> {
        let (method, path, headers) = (method.clone(), path.to_owned(), headers.clone());
        let asked = Asked { method, path, headers, early };
        ask(&self.tree, &self.descriptors, asked).await.map_err(|error| error.to_string())
    }
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
        unasked: Duration::from_secs(args.unasked.into()),
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
    let place = Place::of(args)?;
    #[cfg(target_os = "linux")]
    let heirs = Heirs::new("serve", place.flags());
    #[cfg(target_os = "linux")]
    if let Some(switch) = args.sharing.config("quicket-serve") {
        if let [_, _, ..] = place.addresses() {
            let message = "with --switch there is one --listen: [::]:PORT stands for all addresses";
            return Err(Failure::new(Kind::Usage, message));
        }
        if place.addresses().iter().chain(&args.redirect).any(|address| address.port() == 0) {
            let message = "with --switch the port is one that the next generation knows, and not 0";
            return Err(Failure::new(Kind::Usage, message));
        }
        if site.member.is_some() {
            let message = "--switch gives connection IDs of its own, which no balancer knows";
            return Err(Failure::new(Kind::Usage, message));
        }
        let switch = switch.drain(Some(drain(args) + DRAIN_MARGIN));
        sockets = sockets.switch(heirs.heed(switch));
    }
    if let Some(size) = args.behind.max_udp_payload {
        sockets.protocol.max_udp_payload_size = size;
    }
    if let Some(member) = &site.member {
        sockets = member.configure(sockets);
    }
    let runtime = crate::threads()?;
    let served = runtime.block_on(async {
        let bound = place.bind(sockets).await?;
        files.heed_switch(site.member.is_none() && bound.endpoint.site_secret().is_some());
        if let Some(key) = files.ticket_key()? {
            tls.rotate_ticket_key(key);
        }
        let hangup = Hangup::watch();
        // Whoever is told that the server listens may end it at once.
        let stop = signals::stop();
        let listener = bound
            .endpoint
            .listen_early(config)
            .map_err(|error| Failure::new(Kind::Environment, error.to_string()))?;
        let site = Arc::new(site);
        let announcement = Announcement::new(args, &site, &bound, pin);
        announcement.all(args, &bound.warnings);
        let keys = Keys::new(files, tls.clone(), hangup, Arc::clone(&announcement));
        let (drain, draining) = watch::channel(Draining::No);
        let on_tcp = (&live, limit(args));
        let front = Front::new(args, &site, Tls::new(&tls).map_err(unusable)?, on_tcp, draining);
        let mut clients = JoinSet::new();
        #[cfg(target_os = "linux")]
        heirs.leave(bound.heritage()?);
        over_tcp(
            bound,
            &front,
            &mut clients,
            &announcement,
            #[cfg(target_os = "linux")]
            &heirs,
        );
        let on_end = |why| {
            #[cfg(target_os = "linux")]
            {
                if why == Draining::Superseded {
                    heirs.successor.check()?;
                }
                heirs.leave_nothing();
            }
            #[cfg(not(target_os = "linux"))]
            let _: Draining = why;
            Ok(())
        };
        let grace = (self::drain(args), &on_end as &dyn Fn(_) -> _);
        serve(&listener, (site, keys, stop), &live, (clients, drain), grace).await
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
    let (live, limit) = (Arc::clone(live), limit(args));
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

/// How many connections there may be.
fn limit(args: &Serve) -> usize {
    args.max_connections.unwrap_or_else(memory::connections) as usize
}

/// Serves over TCP, in tasks among those of clients.
fn over_tcp(
    bound: Bound,
    front: &Arc<Front>,
    clients: &mut JoinSet<()>,
    announcement: &Arc<Announcement>,
    #[cfg(target_os = "linux")] heirs: &Heirs,
) {
    let port = bound.addresses.first().map_or(0, SocketAddr::port);
    for listener in bound.tcp {
        clients.spawn(Arc::clone(front).serve(listener));
    }
    for listener in bound.redirects {
        clients.spawn(Arc::clone(front).redirect(listener, port));
    }
    for (address, only_v6, what) in bound.awaited {
        let (front, announcement) = (Arc::clone(front), Arc::clone(announcement));
        #[cfg(target_os = "linux")]
        let heirs = heirs.clone();
        clients.spawn(async move {
            let Some(listener) = front.await_port(address, only_v6).await else { return };
            #[cfg(target_os = "linux")]
            heirs.leave(listener.as_fd().try_clone_to_owned());
            match what {
                What::Files => {
                    announcement.has_tcp(address);
                    front.serve(listener).await;
                }
                What::Redirect => {
                    announcement.has_redirect(address);
                    front.redirect(listener, port).await;
                }
            }
        });
    }
}

/// Accepts connections until Ctrl-C, then lets requests under way end.
async fn serve(
    listener: &Listener,
    (site, keys, stop): (Arc<Site>, Keys, impl Future<Output = ()>),
    live: &Arc<AtomicUsize>,
    (mut clients, drain): (JoinSet<()>, watch::Sender<Draining>),
    (grace, on_end): (Duration, &dyn Fn(Draining) -> Result<(), Failure>),
) -> Result<(), Failure> {
    let draining = drain.subscribe();
    if let Some(member) = &site.member {
        tokio::spawn(Arc::clone(member).report(draining.clone()));
    }
    let mut stop = std::pin::pin!(stop);
    let mut left = std::pin::pin!(keys.watch(Arc::clone(&site)));
    let connections = || live.load(Ordering::Relaxed);
    let mut ebb = std::pin::pin!(memory::give_back(listener.endpoint(), connections));
    let why = loop {
        tokio::select! {
            accepted = listener.accept() => {
                let connection = match accepted {
                    Ok(connection) => connection,
                    Err(AcceptError::Superseded) => {
                        on_end(Draining::Superseded)?;
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
    if why == Draining::Stopping {
        on_end(why)?;
    }
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
