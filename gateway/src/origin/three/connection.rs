//! A connection of HTTP/3 to a server.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use h3::client::SendRequest;
use h3::error::Code;
use quicket::tokio::Connection;
use quicket_h3::{Acceptance, OpenStreams};
use tokio::sync::SetOnce;
use tokio::time::Instant;

use crate::origin::MAX_ANSWER_HEADERS;

/// A server that acknowledges nothing for so long while requests wait, and through so many probes, may be another
/// one by now: what it had is gone with it, and nobody is there to say so (RFC 9000, Section 10.3).
const SILENCE: Duration = Duration::from_secs(3);
const PROBES: u64 = 3;
/// How often to look for that.
const LOOK: Duration = Duration::from_millis(500);

/// What a server was heard to say, and how often it was asked in vain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Heard {
    packets: u64,
    probes: u64,
}

impl Heard {
    fn of(connection: &Connection) -> Self {
        let counters = connection.stats().counters;
        Self { packets: counters.packets_received, probes: counters.probe_timeouts }
    }

    /// Nothing has come since, though the server was asked whether it is there.
    pub(super) const fn is_silence_since(self, before: Self) -> bool {
        self.packets == before.packets && self.probes > before.probes
    }
}

/// A connection of HTTP/3.
pub(super) struct Three {
    sender: SendRequest<OpenStreams, Bytes>,
    connection: Connection,
    address: SocketAddr,
    acceptance: Acceptance,
    /// Requests under way, those that wait for a stream included.
    active: AtomicUsize,
    /// Those that have a stream.
    streams: AtomicUsize,
    /// How many have got one so far.
    granted: AtomicU64,
    /// The server allowed no more requests, and no stream has ended since.
    is_full: AtomicBool,
    /// It takes no more requests.
    is_spent: AtomicBool,
    /// The server seems to be gone.
    silent: Arc<SetOnce<()>>,
}

impl Three {
    /// `open` is kept until the connection has ended.
    pub(super) async fn new(
        connection: Connection,
        address: SocketAddr,
        open: Arc<()>,
    ) -> io::Result<Self> {
        let transport = quicket_h3::Connection::client(connection.clone(), MAX_ANSWER_HEADERS);
        let transport = transport.with_websocket();
        let acceptance = transport.acceptance();
        let mut builder = h3::client::builder();
        // Each clone of the sender would send its own.
        builder.max_field_section_size(MAX_ANSWER_HEADERS as u64).send_grease(false);
        let (mut driver, sender) = builder.build(transport).await.map_err(io::Error::other)?;
        let silent = Arc::new(SetOnce::new());
        let (driven, found) = (connection.clone(), Arc::clone(&silent));
        // It ends when the last of senders and requests is gone, or the server is.
        tokio::spawn(async move {
            let mut watching = std::pin::pin!(silence(&driven));
            let closed = std::future::poll_fn(|cx| driver.poll_close(cx));
            let mut closed = std::pin::pin!(closed);
            let error = tokio::select! {
                error = &mut closed => error,
                () = &mut watching => {
                    log::debug!("{address}: nothing is acknowledged any more");
                    let _ = found.set(());
                    closed.await
                }
            };
            if !error.is_h3_no_error() {
                log::debug!("a connection of HTTP/3 to an origin has ended: {error}");
            }
            driven.close(Code::H3_NO_ERROR.value(), b"");
            drop(open);
        });
        Ok(Self {
            sender,
            connection,
            address,
            acceptance,
            active: AtomicUsize::new(0),
            streams: AtomicUsize::new(0),
            granted: AtomicU64::new(0),
            is_full: AtomicBool::new(false),
            is_spent: AtomicBool::new(false),
            silent,
        })
    }

    pub(super) fn is_open(&self) -> bool {
        !self.is_spent.load(Ordering::Relaxed)
            && !self.silent.initialized()
            && !self.acceptance.is_over()
            && self.connection.close_reason().is_none()
    }

    /// Whether the server may allow another request.
    pub(super) fn has_room(&self) -> bool {
        !self.is_full.load(Ordering::Relaxed)
    }

    /// The server allows no more requests at the moment.
    pub(super) fn fill(&self) {
        self.is_full.store(true, Ordering::Relaxed);
    }

    /// Nothing is known of what the server allows.
    pub(super) fn unfill(&self) {
        self.is_full.store(false, Ordering::Relaxed);
    }

    /// Takes no more requests.
    pub(super) fn spend(&self) {
        self.is_spent.store(true, Ordering::Relaxed);
    }

    pub(super) fn active(&self) -> usize {
        self.active.load(Ordering::Relaxed)
    }

    /// Requests that have a stream.
    pub(super) fn streams(&self) -> usize {
        self.streams.load(Ordering::Relaxed)
    }

    /// How many requests have got a stream so far.
    pub(super) fn granted(&self) -> u64 {
        self.granted.load(Ordering::Relaxed)
    }

    pub(super) const fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) fn sender(&self) -> SendRequest<OpenStreams, Bytes> {
        self.sender.clone()
    }

    pub(super) const fn acceptance(&self) -> &Acceptance {
        &self.acceptance
    }

    /// Waits for the server's SETTINGS, and says whether extended CONNECT may be used (RFC 9220, Section 3). `None` if the
    /// connection ends before: that is for the request to find. For ever where neither comes to pass.
    pub(super) async fn takes_extended_connect(&self) -> Option<bool> {
        tokio::select! {
            biased;
            takes = self.acceptance.takes_extended_connect() => Some(takes),
            _ = self.connection.closed() => None,
            () = self.is_silent() => None,
        }
    }

    /// Asks the server whether it is there. One that owes nothing is silent for other reasons.
    pub(super) fn ping(&self) {
        self.connection.ping();
    }

    /// What was heard of the server so far.
    pub(super) fn heard(&self) -> Heard {
        Heard::of(&self.connection)
    }

    /// Waits until the server seems to be gone.
    pub(super) async fn is_silent(&self) {
        self.silent.wait().await;
    }
}

/// Waits until the server acknowledges nothing any more.
async fn silence(connection: &Connection) {
    let (mut last, mut since) = (Heard::of(connection), Instant::now());
    loop {
        tokio::time::sleep(LOOK).await;
        let now = Heard::of(connection);
        if now.packets != last.packets {
            (last, since) = (now, Instant::now());
        } else if since.elapsed() >= SILENCE && now.probes.saturating_sub(last.probes) >= PROBES {
            return;
        }
    }
}

/// A request on a connection, as long as it is under way. Clones are of the same request.
#[derive(Clone)]
pub(super) struct Share(Arc<Held>);

struct Held {
    three: Arc<Three>,
    has_stream: AtomicBool,
}

impl Share {
    pub(super) fn new(three: &Arc<Three>) -> Self {
        three.active.fetch_add(1, Ordering::Relaxed);
        let has_stream = AtomicBool::new(false);
        Self(Arc::new(Held { three: Arc::clone(three), has_stream }))
    }

    pub(super) fn connection(&self) -> &Arc<Three> {
        &self.0.three
    }

    /// It has got a stream.
    pub(super) fn grant(&self) {
        if !self.0.has_stream.swap(true, Ordering::Relaxed) {
            self.0.three.streams.fetch_add(1, Ordering::Relaxed);
            self.0.three.granted.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Held {
    /// Where a stream ends, the server may allow another one; who only waited for one knows nothing of that.
    fn drop(&mut self) {
        self.three.active.fetch_sub(1, Ordering::Relaxed);
        if *self.has_stream.get_mut() {
            self.three.streams.fetch_sub(1, Ordering::Relaxed);
            self.three.unfill();
        }
    }
}
