//! One flow's socket to its origin.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use quicket::{EcnCodepoint, Outgoing, Outlet, SendOutcome};
use quicket_udp::{Batch, Sender, UdpConfig, UdpSocket};
use serde::Serialize;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::Notify;

use super::Pass;
use super::flows::{FlowId, Path};
use super::hello::{any_port, source_id};
use super::relay::Relay;
use crate::clients::Held;
use crate::front::Shared;
use crate::metrics::{Open, PassMetrics};
use crate::pace::Flow;

/// What the system keeps of an origin's datagrams, in bytes, until the gateway has sent them on.
const RECEIVE_BUFFER: usize = 1 << 20;
/// ... and of a client's on their way to the origin.
const SEND_BUFFER: usize = 1 << 20;
/// How many batches of an origin are read before others have their turn.
const BATCHES: usize = 4;

/// A flow of datagrams between a client and an origin.
#[derive(Debug)]
pub(super) struct Wire {
    path: Path,
    to: SocketAddr,
    idle: Duration,
    /// What the access log says of it.
    passed_to: String,
    name: Option<String>,
    socket: Arc<UdpSocket>,
    sender: Sender,
    outlet: Outlet,
    metrics: PassMetrics,
    received: AtomicU64,
    sent: AtomicU64,
    lost: AtomicU64,
    /// When something came last, in milliseconds of the relay.
    last: AtomicU64,
    /// Until when the client has used up what it may send.
    paid_until: AtomicU64,
    /// Who knows what a client's address may have.
    shared: std::sync::Weak<Shared>,
    over: Notify,
    begun: Instant,
    _counted: Option<Held>,
    _open: Open,
}

/// For the runtime, which wants something of its own.
struct Readable(Arc<UdpSocket>);

impl AsRawFd for Readable {
    fn as_raw_fd(&self) -> RawFd {
        self.0.readable().as_raw_fd()
    }
}

// The newer functions are unsafe, for descriptors that are not what they say; one whose socket is kept is.
#[allow(deprecated)]
fn register(socket: &Arc<UdpSocket>) -> io::Result<AsyncFd<Readable>> {
    AsyncFd::with_interest(Readable(Arc::clone(socket)), Interest::READABLE)
}

impl Wire {
    /// A flow with a socket that hears of nobody but the origin.
    pub(super) fn new(
        pass: &Pass,
        name: Option<String>,
        (path, to): (Path, SocketAddr),
        outlet: &Outlet,
        (shared, counted): (&Arc<Shared>, Option<Held>),
        now: u64,
    ) -> io::Result<Self> {
        let config = UdpConfig {
            receive_buffer: RECEIVE_BUFFER,
            send_buffer: SEND_BUFFER,
            ..UdpConfig::default()
        };
        let socket = std::net::UdpSocket::bind(any_port(to))?;
        socket.connect(to)?;
        let socket = Arc::new(UdpSocket::adopt(socket, &config)?);
        let sender = Sender::new(Arc::clone(&socket), &config)?;
        let passed_to = pass.quic.as_ref().map(|at| format!("udp://{}", at.authority()));
        Ok(Self {
            path,
            to,
            idle: pass.idle,
            passed_to: passed_to.unwrap_or_default(),
            name,
            socket,
            sender,
            outlet: outlet.clone(),
            metrics: shared.metrics.pass(&pass.name, "quic"),
            received: AtomicU64::new(0),
            sent: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            last: AtomicU64::new(now),
            paid_until: AtomicU64::new(0),
            shared: Arc::downgrade(shared),
            over: Notify::new(),
            begun: Instant::now(),
            _counted: counted,
            _open: shared.metrics.passed(&pass.name, "quic"),
        })
    }

    /// Sends what a client has sent.
    pub(super) fn to_origin(&self, now: u64, ecn: EcnCodepoint, segment_size: usize, bytes: &[u8]) {
        self.last.fetch_max(now, Ordering::Relaxed);
        if self.paid_until.load(Ordering::Relaxed) > now {
            return self.lose(&self.metrics.too_fast, bytes.len(), segment_size);
        }
        let burst = Outgoing { remote: self.to, local: None, ecn, segment_size, bytes };
        match self.sender.send(&burst) {
            SendOutcome::Done => {
                self.metrics.received.inc_by(bytes.len() as u64);
                self.received.fetch_add(bytes.len() as u64, Ordering::Relaxed);
                let owed = self.pay(Flow::Received, bytes.len());
                self.paid_until.store(now.saturating_add(owed), Ordering::Relaxed);
            }
            SendOutcome::TooLarge => self.lose(&self.metrics.too_large, bytes.len(), segment_size),
            SendOutcome::Blocked { sent } => {
                self.lose(&self.metrics.dropped, bytes.len().saturating_sub(sent), segment_size);
            }
        }
    }

    /// How long the client's address owes for bytes, in milliseconds.
    fn pay(&self, flow: Flow, len: usize) -> u64 {
        let Some(shared) = self.shared.upgrade() else { return 0 };
        let Some(rate) = shared.current().0.limits.client.bytes_per_second else { return 0 };
        let owed = shared.clients.pay(self.path.0.ip(), flow, len, rate);
        u64::try_from(owed.as_millis()).unwrap_or(u64::MAX)
    }

    fn lose(
        &self,
        counter: &prometheus_client::metrics::counter::Counter,
        len: usize,
        each: usize,
    ) {
        let datagrams = len.div_ceil(each.max(1)) as u64;
        counter.inc_by(datagrams);
        self.lost.fetch_add(datagrams, Ordering::Relaxed);
    }

    /// How long nothing has come either way.
    pub(super) fn silent(&self, now: u64) -> Duration {
        Duration::from_millis(now.saturating_sub(self.last.load(Ordering::Relaxed)))
    }

    /// Ends it.
    pub(super) fn end(&self) {
        self.over.notify_one();
    }

    /// Carries what the origin sends until nothing has come for long enough, either way.
    pub(super) async fn serve(self: Arc<Self>, id: FlowId, relay: Arc<Relay>, shared: Arc<Shared>) {
        let ended = self.carry(id, &relay).await;
        relay.flows().remove(id);
        let log = shared.current().1;
        log.note(&self.record(ended.err().map(|error| error.to_string())));
    }

    async fn carry(&self, id: FlowId, relay: &Relay) -> io::Result<()> {
        let readable = register(&self.socket)?;
        loop {
            let left = self.idle.saturating_sub(self.silent(relay.now()));
            if left.is_zero() {
                return Ok(());
            }
            tokio::select! {
                ready = readable.readable() => {
                    let mut ready = ready?;
                    let (is_empty, owed) = self.receive(id, relay)?;
                    if is_empty {
                        ready.clear_ready();
                    }
                    drop(ready);
                    match owed {
                        0 => tokio::task::yield_now().await,
                        // What comes meanwhile and finds no room is lost, as on a slow network.
                        owed => tokio::time::sleep(Duration::from_millis(owed)).await,
                    }
                }
                () = tokio::time::sleep(left) => {}
                () = self.over.notified() => return Err(io::Error::other("others needed the room")),
            }
        }
    }

    /// Sends on what is there; true if that is all, and how long the client owes for it.
    fn receive(&self, id: FlowId, relay: &Relay) -> io::Result<(bool, u64)> {
        relay.with_buffers(|buffers| {
            let mut bytes = 0;
            for _ in 0..BATCHES {
                match self.socket.receive(buffers) {
                    Ok(mut batch) => bytes += self.to_client(id, relay, &mut batch)?,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        return Ok((true, self.pay(Flow::Sent, bytes)));
                    }
                    Err(error) => return Err(error),
                }
            }
            Ok((false, self.pay(Flow::Sent, bytes)))
        })
    }

    fn to_client(&self, id: FlowId, relay: &Relay, batch: &mut Batch<'_>) -> io::Result<usize> {
        let mut all = 0;
        for train in batch.trains() {
            let (len, each) = (train.bytes.len(), train.stride);
            let long = train.bytes.chunks(each).find(|datagram| datagram[0] & 0x80 != 0);
            let datagrams = u32::try_from(len.div_ceil(each)).unwrap_or(u32::MAX);
            relay.flows().answered(id, datagrams, long.and_then(source_id));
            let burst = Outgoing {
                remote: self.path.0,
                local: None,
                ecn: train.ecn,
                segment_size: each,
                bytes: train.bytes,
            };
            match self.outlet.send(self.path.1, &burst) {
                Some(SendOutcome::Done) => {
                    self.metrics.sent.inc_by(len as u64);
                    self.sent.fetch_add(len as u64, Ordering::Relaxed);
                }
                Some(SendOutcome::TooLarge) => self.lose(&self.metrics.too_large, len, each),
                Some(SendOutcome::Blocked { sent }) => {
                    self.lose(&self.metrics.dropped, len.saturating_sub(sent), each);
                }
                None => return Err(io::Error::other("the gateway has stopped")),
            }
            all += len;
        }
        self.last.fetch_max(relay.now(), Ordering::Relaxed);
        Ok(all)
    }

    /// A line of the access log.
    fn record(&self, error: Option<String>) -> impl Serialize {
        #[derive(Serialize)]
        struct Record {
            time: String,
            client: SocketAddr,
            passed_to: String,
            host: Option<String>,
            received: u64,
            sent: u64,
            datagrams_lost: u64,
            took_ms: f64,
            #[serde(skip_serializing_if = "Option::is_none")]
            error: Option<String>,
        }
        Record {
            time: httpdate::fmt_http_date(SystemTime::now()),
            client: self.path.0,
            passed_to: self.passed_to.clone(),
            host: self.name.clone(),
            received: self.received.load(Ordering::Relaxed),
            sent: self.sent.load(Ordering::Relaxed),
            datagrams_lost: self.lost.load(Ordering::Relaxed),
            took_ms: self.begun.elapsed().as_micros() as f64 / 1000.0,
            error,
        }
    }
}
