//! One flow's socket to its origin.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use quicket::{EcnCodepoint, Outgoing, Outlet, SendOutcome};
use quicket_udp::{Batch, Sender, UdpConfig, UdpSocket};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::Notify;

use super::Pass;
use super::flows::{FlowId, Heard, Path};
use super::hello::{any_port, source_id};
use super::record::Record;
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
/// A flow whose client may be made up ends when that has said nothing for so long.
const DOUBT: Duration = Duration::from_secs(15);
/// So many times what a client has sent goes to it as long as it may be made up (RFC 9000, Section 8.1).
const FACTOR: u64 = 3;
/// So many errors of earlier packets in a row, and nothing else, end a flow.
const MAX_ERRORS: u32 = 64;

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
    /// When something came last, in milliseconds of the relay: of the client alone while that may be made up.
    last: AtomicU64,
    /// The client is there: it has shown that it gets what the origin sends.
    proven: AtomicBool,
    credit: Credit,
    /// Until when the client has used up what it may send.
    paid_until: AtomicU64,
    /// Who knows what a client's address may have.
    shared: std::sync::Weak<Shared>,
    over: Notify,
    /// Why it is over, if others have ended it.
    why: OnceLock<&'static str>,
    begun: Instant,
    /// What counts for the client's address, once that is proven.
    counted: OnceLock<Option<Held>>,
    _open: Open,
}

/// What a client whose address may be made up has sent, and was sent, in bytes.
///
/// Origins have rules of their own for that, but know only the gateway's address: tokens that they have given to one
/// client (RFC 9000, Section 8.1.3) would do for any.
#[derive(Debug, Default)]
struct Credit {
    came: AtomicU64,
    given: AtomicU64,
    /// A long header was among it, so that it may begin a connection, with a token.
    begins: AtomicBool,
}

impl Credit {
    fn take_in(&self, segment_size: usize, bytes: &[u8]) {
        let mut datagrams = bytes.chunks(segment_size.max(1));
        if datagrams.any(|datagram| datagram.first().is_some_and(|first| first & 0x80 != 0)) {
            self.begins.store(true, Ordering::Relaxed);
        }
        self.came.fetch_add(bytes.len() as u64, Ordering::Relaxed);
    }

    /// How many of so many bytes in datagrams of `each` the client may be sent.
    fn spend(&self, len: usize, each: usize) -> usize {
        if !self.begins.load(Ordering::Relaxed) {
            self.given.fetch_add(len as u64, Ordering::Relaxed);
            return len;
        }
        let most = self.came.load(Ordering::Relaxed).saturating_mul(FACTOR);
        let left = most.saturating_sub(self.given.load(Ordering::Relaxed));
        let left = usize::try_from(left).unwrap_or(usize::MAX);
        let sent = if len <= left { len } else { left - left % each.max(1) };
        self.given.fetch_add(sent as u64, Ordering::Relaxed);
        sent
    }

    /// The origin has validated the client's address, which has gone on with a connection there: so much it sends nobody else
    /// (RFC 9000, Section 9.3).
    fn is_exceeded(&self) -> bool {
        let came = self.came.load(Ordering::Relaxed);
        let given = self.given.load(Ordering::Relaxed);
        !self.begins.load(Ordering::Relaxed) && given > came.saturating_mul(FACTOR)
    }
}

/// True for what the system says of a packet that was sent before: an ICMP message has come (RFC 9000, Section 14.2.1). The
/// socket is as good as before.
fn is_of_a_packet(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let errno = Errno::from_io_error(error);
    let all = [
        Errno::MSGSIZE,
        Errno::HOSTDOWN,
        Errno::NOPROTOOPT,
        Errno::NONET,
        Errno::CONNREFUSED,
        Errno::CONNRESET,
        Errno::HOSTUNREACH,
        Errno::NETUNREACH,
        Errno::PROTO,
        Errno::OPNOTSUPP,
    ];
    errno.is_some_and(|errno| all.contains(&errno))
}

impl Heard for Arc<Wire> {
    fn heard(&self) -> u64 {
        self.last.load(Ordering::Relaxed)
    }
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
        shared: &Arc<Shared>,
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
            proven: AtomicBool::new(false),
            credit: Credit::default(),
            paid_until: AtomicU64::new(0),
            shared: Arc::downgrade(shared),
            over: Notify::new(),
            why: OnceLock::new(),
            begun: Instant::now(),
            counted: OnceLock::new(),
            _open: shared.metrics.passed(&pass.name, "quic"),
        })
    }

    /// Sends what a client has sent.
    pub(super) fn to_origin(&self, now: u64, ecn: EcnCodepoint, segment_size: usize, bytes: &[u8]) {
        self.last.fetch_max(now, Ordering::Relaxed);
        if !self.is_proven() {
            self.credit.take_in(segment_size, bytes);
        }
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

    fn is_proven(&self) -> bool {
        self.proven.load(Ordering::Relaxed)
    }

    /// The client is there: from now on the flow counts among the connections of its address. Fails if that has as
    /// many as it may have.
    pub(super) fn prove(&self) -> Result<(), &'static str> {
        let Some(shared) = self.shared.upgrade() else { return Ok(()) };
        let allowed = shared.current().0.limits.client;
        let counted = shared.clients.connect(self.path.0.ip(), &allowed, true);
        let counted = counted.map_err(|exceeded| exceeded.reason)?;
        // Only the first is kept, and only one is there.
        let _ = self.counted.set(counted);
        self.proven.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// How long the client's address owes for bytes, in milliseconds.
    fn pay(&self, flow: Flow, len: usize) -> u64 {
        let Some(shared) = self.shared.upgrade() else { return 0 };
        let Some(rate) = shared.current().0.limits.client.bytes_per_second else { return 0 };
        let owed = shared.clients.pay(self.path.0.ip(), flow, len, rate, self.is_proven());
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

    /// How long it lives on if nothing more comes.
    fn left(&self, now: u64) -> Duration {
        let silent = Duration::from_millis(now.saturating_sub(self.last.load(Ordering::Relaxed)));
        let idle = if self.is_proven() { self.idle } else { self.idle.min(DOUBT) };
        idle.saturating_sub(silent)
    }

    /// Ends it.
    pub(super) fn end(&self, why: &'static str) {
        let _ = self.why.set(why);
        self.over.notify_one();
    }

    fn ended(&self) -> io::Error {
        io::Error::other(self.why.get().copied().unwrap_or("others have ended it"))
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
        let mut errors = 0;
        loop {
            let left = self.left(relay.now());
            if left.is_zero() {
                return Ok(());
            }
            tokio::select! {
                ready = readable.readable() => {
                    let mut ready = ready?;
                    let (is_empty, owed) = self.receive(id, relay, &mut errors)?;
                    if is_empty {
                        ready.clear_ready();
                    }
                    drop(ready);
                    if owed == 0 {
                        tokio::task::yield_now().await;
                        continue;
                    }
                    // What comes meanwhile and finds no room is lost, as on a slow network.
                    tokio::select! {
                        () = tokio::time::sleep(Duration::from_millis(owed)) => {}
                        () = self.over.notified() => return Err(self.ended()),
                    }
                }
                () = tokio::time::sleep(left) => {}
                () = self.over.notified() => return Err(self.ended()),
            }
        }
    }

    /// Sends on what is there; true if that is all, and how long the client owes for it. `errors` counts those of
    /// earlier packets since anything else came.
    fn receive(&self, id: FlowId, relay: &Relay, errors: &mut u32) -> io::Result<(bool, u64)> {
        relay.with_buffers(|buffers| {
            let mut bytes = 0;
            for _ in 0..BATCHES {
                match self.socket.receive(buffers) {
                    Ok(mut batch) => bytes += self.to_client(id, relay, &mut batch)?,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        *errors = 0;
                        return Ok((true, self.pay(Flow::Sent, bytes)));
                    }
                    Err(error) if is_of_a_packet(&error) && *errors < MAX_ERRORS => {
                        *errors += 1;
                        continue;
                    }
                    Err(error) => return Err(error),
                }
                *errors = 0;
            }
            Ok((false, self.pay(Flow::Sent, bytes)))
        })
    }

    fn to_client(&self, id: FlowId, relay: &Relay, batch: &mut Batch<'_>) -> io::Result<usize> {
        let mut all = 0;
        for train in batch.trains() {
            let each = train.stride.max(1);
            if let Some(scid) = train.bytes.chunks(each).find_map(source_id) {
                relay.flows().answered(id, scid);
            }
            let len = self.allowed(id, relay, train.bytes.len(), each)?;
            if len == 0 {
                continue;
            }
            let burst = Outgoing {
                remote: self.path.0,
                local: None,
                ecn: train.ecn,
                segment_size: each,
                bytes: &train.bytes[..len],
            };
            let count = |sent: usize| {
                self.metrics.sent.inc_by(sent as u64);
                self.sent.fetch_add(sent as u64, Ordering::Relaxed);
            };
            match self.outlet.send(self.path.1, &burst) {
                Some(SendOutcome::Done) => count(len),
                Some(SendOutcome::TooLarge) => self.lose(&self.metrics.too_large, len, each),
                Some(SendOutcome::Blocked { sent }) => {
                    count(sent.min(len));
                    self.lose(&self.metrics.dropped, len.saturating_sub(sent), each);
                }
                None => return Err(io::Error::other("the gateway has stopped")),
            }
            all += len;
        }
        // Nobody who may be made up is waited for because an origin says it again and again.
        if self.is_proven() {
            self.last.fetch_max(relay.now(), Ordering::Relaxed);
        }
        Ok(all)
    }

    /// How many bytes of an origin's datagrams go to the client; the others are lost, as it may be made up.
    fn allowed(&self, id: FlowId, relay: &Relay, len: usize, each: usize) -> io::Result<usize> {
        if self.is_proven() {
            return Ok(len);
        }
        let sent = self.credit.spend(len, each);
        if sent < len {
            self.lose(&self.metrics.unvalidated, len - sent, each);
        }
        if self.credit.is_exceeded() && relay.flows().prove(id) {
            self.prove().map_err(|reason| {
                relay.refused(reason);
                io::Error::other(reason)
            })?;
        }
        Ok(sent)
    }

    /// A line of the access log.
    fn record(&self, error: Option<String>) -> Record {
        Record {
            host: self.name.clone(),
            received: self.received.load(Ordering::Relaxed),
            sent: self.sent.load(Ordering::Relaxed),
            datagrams_lost: Some(self.lost.load(Ordering::Relaxed)),
            error,
            ..Record::new(self.path.0, self.passed_to.clone(), self.begun)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_begins_is_sent_three_times_as_much_until_it_is_proven() {
        let credit = Credit::default();
        credit.take_in(1200, &[0xc0; 1200]);
        assert_eq!(credit.spend(2400, 1200), 2400);
        assert_eq!(credit.spend(2500, 1250), 0, "no part of a datagram");
        assert_eq!(credit.spend(2400, 1200), 1200);
        assert_eq!(credit.spend(1, 1200), 0);
        assert!(!credit.is_exceeded(), "with a token of somebody the origin would send all");
        credit.take_in(40, &[0x40; 40]);
        assert_eq!(credit.spend(121, 121), 0);
        assert_eq!(credit.spend(120, 120), 120);
    }

    #[test]
    fn who_goes_on_is_there_when_the_origin_sends_more_than_three_times_as_much() {
        let credit = Credit::default();
        credit.take_in(100, &[0x40; 100]);
        // Stateless resets, and a path challenge: anybody gets them.
        assert_eq!((credit.spend(300, 100), credit.is_exceeded()), (300, false));
        assert_eq!((credit.spend(1, 1), credit.is_exceeded()), (1, true));
        // One that begins may be behind one that goes on.
        credit.take_in(50, &[[0x40; 50], [0xc0; 50]].concat());
        assert!(!credit.is_exceeded());
        assert_eq!(credit.spend(1200, 1200), 0);
    }

    #[test]
    fn what_icmp_says_of_a_packet_is_no_error_of_the_socket() {
        use rustix::io::Errno;
        let error = |errno: Errno| io::Error::from(errno);
        // Fragmentation needed, host isolated, protocol unreachable, host unknown (RFC 1122, Section 3.2.2.1).
        for errno in [Errno::MSGSIZE, Errno::NONET, Errno::NOPROTOOPT, Errno::HOSTDOWN] {
            assert!(is_of_a_packet(&error(errno)), "{errno}");
        }
        for errno in [Errno::BADF, Errno::NOMEM, Errno::INVAL] {
            assert!(!is_of_a_packet(&error(errno)), "{errno}");
        }
        assert!(!is_of_a_packet(&io::ErrorKind::WouldBlock.into()));
    }
}
