//! `quicket serve`: serves a directory.

mod answer;
mod chunks;
mod conversation;
mod descriptors;
mod events;
mod http09;
mod http3;
mod keep;
mod listing;
mod log;
mod range;
mod stall;
mod tree;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use quicket::tokio::{Endpoint, Listener};
use quicket::{
    BindError, Decision, EndpointConfig, Fingerprint, Qlog, RetryPolicy, ServerConfig, ServerTls,
};
use tokio::sync::watch;
use tokio::task::JoinSet;

use self::descriptors::Descriptors;
use self::events::Events;
use self::tree::Tree;
use crate::args::{Protocol, Retry, Serve};
use crate::exit::{Failure, Kind};
use crate::transport;

/// How long requests under way may take after Ctrl-C.
const GRACE: Duration = Duration::from_secs(10);
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
}

/// A client with a connection.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) remote: SocketAddr,
    pub(crate) site: Arc<Site>,
    /// How many requests came.
    pub(crate) requests: AtomicU64,
    /// Room for what is read of files before it is sent.
    pub(crate) room: chunks::Room,
}

/// Runs the command.
pub(crate) fn run(args: &Serve) -> Result<(), Failure> {
    descriptors::raise_limit();
    let dir = args.dir.display();
    let tree = Tree::open(&args.dir, args.hidden, !args.no_listing)
        .map_err(|error| Failure::file(format!("cannot serve {dir}"), &error))?;
    let site = Site {
        tree: Arc::new(tree),
        access_log: !args.quiet,
        events: Events::new(args.json),
        descriptors: Descriptors::default(),
    };
    transport::warn(&args.transport);
    let live = Arc::new(AtomicUsize::new(0));
    let qlog = transport::qlog(&args.transport)?;
    let (config, pin) = config(args, &live, qlog.as_ref())?;
    let mut sockets = EndpointConfig::default();
    sockets.protocol.reset_key = keep::reset_key()?;
    let runtime = crate::threads()?;
    let served = runtime.block_on(async {
        let bound = Endpoint::bind_with(args.listen, sockets).await;
        let endpoint = bound.map_err(|error| cannot_bind(&error))?;
        let listener = endpoint
            .listen_early(config)
            .map_err(|error| Failure::new(Kind::Environment, error.to_string()))?;
        announce(args, &site, listener.local_addr(), pin);
        serve(&listener, Arc::new(site), &live).await
    });
    if let Some(qlog) = qlog {
        qlog.flush();
    }
    served
}

/// The configuration, and the fingerprint that clients need where they cannot know the
/// certificate otherwise.
fn config(
    args: &Serve,
    live: &Arc<AtomicUsize>,
    qlog: Option<&Qlog>,
) -> Result<(ServerConfig, Option<Fingerprint>), Failure> {
    let (identity, self_signed) = keep::identity(args)?;
    let pin = self_signed.then(|| identity.fingerprint());
    let mut tls = ServerTls::builder(identity)
        .alpn([Protocol::H3.alpn(), Protocol::HqInterop.alpn()])
        .early_data(args.early_data())
        .ticket_keys([keep::ticket_key(args)?]);
    if let Some(log) = transport::key_log(args.transport.keylog.as_deref())? {
        tls = tls.key_log(log);
    }
    let tls = tls.build().map_err(|error| Failure::new(Kind::Environment, error.to_string()))?;
    let mut transport = transport::config(&args.transport);
    transport.max_streams_bidi = args.max_requests.into();
    let (live, limit) = (Arc::clone(live), args.max_connections as usize);
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
    Ok((config, pin))
}

/// Why there is no socket, and what can be done.
fn cannot_bind(error: &BindError) -> Failure {
    let (ip, port) = (error.address().ip(), error.address().port());
    let message = match error.io_error().kind() {
        io::ErrorKind::AddrInUse => format!(
            "UDP port {port} of {ip} is in use, perhaps by another quicket serve; ss -lunp 'sport = \
             :{port}' says by which program. Choose another port with --listen (0 stands for any \
             free one)",
        ),
        io::ErrorKind::PermissionDenied => format!(
            "UDP port {port} of {ip} is not for everybody: ports below 1024 need root, or the \
             capability CAP_NET_BIND_SERVICE; or choose another with --listen",
        ),
        io::ErrorKind::AddrNotAvailable => format!(
            "{ip} is no address of this machine; ip address lists those that are, and --listen \
             '[::]:{port}' takes all",
        ),
        _ => error.to_string(),
    };
    Failure::new(Kind::Environment, message)
}

/// Says where to find what.
fn announce(args: &Serve, site: &Site, address: SocketAddr, pin: Option<Fingerprint>) {
    site.events.listening(address, pin);
    if args.json {
        // Another program started this one.
        return;
    }
    // Nobody can connect to "any address".
    let shown = match address.ip().is_unspecified() {
        true => format!("localhost:{}", address.port()),
        false => address.to_string(),
    };
    eprintln!("Serving {} on {address} (UDP), HTTP/3 and hq-interop", args.dir.display());
    if let Some(pin) = pin {
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
) -> Result<(), Failure> {
    let (drain, draining) = watch::channel(false);
    let mut clients = JoinSet::new();
    let mut stop = std::pin::pin!(stop_signal());
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let connection = accepted
                    .map_err(|error| Failure::environment("cannot accept connections", error))?;
                let (site, draining) = (Arc::clone(&site), draining.clone());
                let counted = Counted::new(live);
                clients.spawn(async move {
                    conversation::hold(connection, site, draining).await;
                    drop(counted);
                });
            }
            Some(_) = clients.join_next() => {}
            () = &mut stop => break,
        }
    }
    if site.access_log {
        let (open, grace) = (live.load(Ordering::Relaxed), GRACE.as_secs());
        eprintln!(
            "Stopping: no new requests; {open} connections have up to {grace} s to finish theirs \
             (once more to stop at once)"
        );
    }
    drain.send_replace(true);
    let all = async { while clients.join_next().await.is_some() {} };
    tokio::select! {
        () = all => {}
        () = tokio::time::sleep(GRACE) => {}
        () = stop_signal() => {}
    }
    let cut_off = live.load(Ordering::Relaxed);
    // Whoever is left is told that the server ends, and why nothing more comes.
    listener.endpoint().close(h3::error::Code::H3_NO_ERROR.value(), b"the server was stopped");
    let _ = tokio::time::timeout(Duration::from_millis(500), listener.endpoint().wait_idle()).await;
    if site.access_log {
        match cut_off {
            0 => eprintln!("Stopped: all connections had come to their end"),
            _ => eprintln!("Stopped: {cut_off} connections were closed before they were done"),
        }
    }
    Ok(())
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

/// Ctrl-C, or the wish of a service manager.
async fn stop_signal() {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        if let Ok(mut terminate) = signal(SignalKind::terminate()) {
            tokio::select! {
                _ = tokio::signal::ctrl_c() => {}
                _ = terminate.recv() => {}
            }
            return;
        }
    }
    let _ = tokio::signal::ctrl_c().await;
}
