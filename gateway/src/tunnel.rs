//! Bytes both ways, once a request has become another protocol's.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf, copy_bidirectional};
use tokio::sync::mpsc;

use crate::metrics::TunnelMetrics;
use crate::pace::{self, Flow, Payers};
use crate::stage::Ending;

/// How long each end may take to become one.
const OPENING: Duration = Duration::from_secs(10);

/// Has a connection of TCP that has become an end of a tunnel end with a reset, once it is dropped. Clones are of the same
/// connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct Abort(Arc<AtomicBool>);

impl Abort {
    fn set(&self) {
        self.0.store(true, Ordering::Release);
    }

    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// An end of a tunnel.
pub(crate) type Link = Box<dyn Stream>;

pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// What ends a tunnel beside its ends.
#[derive(Clone)]
pub(crate) struct Stay {
    /// It counts as the client's connection, which ends when all of these are gone. None of a stream, which ends with
    /// its connection.
    pub(crate) alive: Option<mpsc::Sender<Infallible>>,
    /// Says when the gateway stops: ...
    pub(crate) ending: Ending,
    /// ... then so much time is left.
    pub(crate) drain: Duration,
}

impl Stay {
    pub(crate) fn tunnel(self, idle: Duration) -> Tunnel {
        Tunnel { idle, stay: self, payers: None, metrics: None, abort: Abort::default() }
    }
}

/// How long a tunnel lasts.
pub(crate) struct Tunnel {
    /// It ends when nothing has come from either end for so long.
    idle: Duration,
    stay: Stay,
    payers: Option<Payers>,
    metrics: Option<TunnelMetrics>,
    /// Of the server's connection.
    abort: Abort,
}

impl Tunnel {
    /// What flows is paid for.
    pub(crate) fn paid_by(self, payers: Payers) -> Self {
        Self { payers: Some(payers), ..self }
    }

    /// What flows counts there.
    pub(crate) fn counted_by(self, metrics: TunnelMetrics) -> Self {
        Self { metrics: Some(metrics), ..self }
    }

    /// The server's connection is reset by this where the client resets its own, or its stream.
    pub(crate) fn aborted_by(self, abort: Abort) -> Self {
        Self { abort, ..self }
    }

    /// Carries what comes from each end to the other. An end that has said all is told to the other one,
    /// which may go on. One that breaks off has both given up.
    pub(crate) async fn carry<E: std::fmt::Display>(
        self,
        client: impl Future<Output = Result<Link, E>>,
        server: impl Future<Output = Result<Link, E>>,
    ) {
        let both = async { tokio::try_join!(client, server) };
        let (client, server) = match tokio::time::timeout(OPENING, both).await {
            Ok(Ok(ends)) => ends,
            Ok(Err(error)) => return log::debug!("no upgrade: {error}"),
            Err(_) => return log::debug!("no upgrade within {} s", OPENING.as_secs()),
        };
        let _open = self.metrics.as_ref().map(TunnelMetrics::begin);
        let moved = Arc::new(AtomicU64::new(0));
        let mut client = Counted::new(client, &moved, self.payers.as_ref());
        client.metrics = self.metrics;
        client.may_end_bare = true;
        let mut server = Counted::new(server, &moved, None);
        let Stay { alive, mut ending, drain } = self.stay;
        let stopped = async {
            ending.stops().await;
            tokio::time::sleep(drain).await;
        };
        tokio::select! {
            ended = copy_bidirectional(&mut client, &mut server) => if let Err(error) = ended {
                log::debug!("a tunnel has ended: {error}");
                // What it was told to the end is on its way, and would be lost.
                if is_reset(&error) && !server.has_all {
                    self.abort.set();
                }
            },
            () = quiet(&moved, self.idle) => log::debug!("a tunnel was idle"),
            () = stopped => {}
        }
        drop(alive);
    }
}

/// Whether an end was reset, as who reads it hears, or who writes to it. An error of no kind is of a stream of HTTP/2.
fn is_reset(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, Other};
    matches!(error.kind(), ConnectionReset | BrokenPipe | Other)
}

/// Waits until nothing has moved for `limit`, within a quarter of it.
async fn quiet(moved: &AtomicU64, limit: Duration) {
    const LOOKS: u32 = 4;
    let (mut before, mut still) = (0, 0);
    while still < LOOKS {
        tokio::time::sleep(limit / LOOKS).await;
        let now = moved.load(Ordering::Relaxed);
        still = if now == before { still + 1 } else { 0 };
        before = now;
    }
}

/// An end whose progress is counted, and paid for if it is the client's.
struct Counted {
    link: Link,
    moved: Arc<AtomicU64>,
    received: Option<Toll>,
    sent: Option<Toll>,
    /// Of the client's end.
    metrics: Option<TunnelMetrics>,
    /// It was told that nothing follows.
    has_all: bool,
    /// Its connection of TCP may end without the end of TLS: what flows here has ends of its own, and what it has said
    /// until then reaches the other one.
    may_end_bare: bool,
}

impl Counted {
    fn new(link: Link, moved: &Arc<AtomicU64>, payers: Option<&Payers>) -> Self {
        let toll = |flow| payers.map(|payers| Toll::new(payers.clone(), flow, Arc::clone(moved)));
        let (received, sent) = (toll(Flow::Received), toll(Flow::Sent));
        let moved = Arc::clone(moved);
        let (metrics, has_all, may_end_bare) = (None, false, false);
        Self { link, moved, received, sent, metrics, has_all, may_end_bare }
    }
}

/// Payment for one direction.
struct Toll {
    payers: Payers,
    flow: Flow,
    moved: Arc<AtomicU64>,
    wait: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl Toll {
    fn new(payers: Payers, flow: Flow, moved: Arc<AtomicU64>) -> Self {
        let mut toll = Self { payers, flow, moved, wait: None };
        // What others have carried before is paid for first.
        toll.pay(0);
        toll
    }

    fn pay(&mut self, bytes: usize) {
        let owed = self.payers.pay(self.flow, bytes);
        if !owed.is_zero() {
            let moved = Arc::clone(&self.moved);
            // A tunnel that is slowed down is not idle.
            let still = move || {
                moved.fetch_add(1, Ordering::Relaxed);
            };
            self.wait = Some(Box::pin(pace::rest(owed, still)));
        }
    }

    /// Ready once more may flow.
    fn poll(toll: &mut Option<Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Some(toll) = toll else { return Poll::Ready(()) };
        if let Some(wait) = &mut toll.wait {
            ready!(wait.as_mut().poll(cx));
            toll.wait = None;
        }
        Poll::Ready(())
    }
}

impl AsyncRead for Counted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(Toll::poll(&mut self.received, cx));
        let before = buf.filled().len();
        let mut polled = Pin::new(&mut self.link).poll_read(cx, buf);
        if self.may_end_bare
            && matches!(&polled, Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof)
        {
            polled = Poll::Ready(Ok(()));
        }
        let read = buf.filled().len() - before;
        self.moved.fetch_add(read as u64, Ordering::Relaxed);
        if let Some(metrics) = &self.metrics {
            metrics.received.inc_by(read as u64);
        }
        if let Some(toll) = self.received.as_mut().filter(|_| read > 0) {
            toll.pay(read);
        }
        polled
    }
}

impl AsyncWrite for Counted {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(Toll::poll(&mut self.sent, cx));
        let polled = Pin::new(&mut self.link).poll_write(cx, buf);
        if let Poll::Ready(Ok(written)) = &polled {
            self.moved.fetch_add(*written as u64, Ordering::Relaxed);
            if let Some(metrics) = &self.metrics {
                metrics.sent.inc_by(*written as u64);
            }
            if let Some(toll) = self.sent.as_mut().filter(|_| *written > 0) {
                toll.pay(*written);
            }
        }
        polled
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.link).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let ended = ready!(Pin::new(&mut self.link).poll_shutdown(cx));
        self.has_all |= ended.is_ok();
        Poll::Ready(ended)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stage::Stage;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
    use tokio::sync::watch;

    async fn ready(stream: DuplexStream) -> Result<Link, io::Error> {
        Ok(Box::new(stream))
    }

    fn tunnel(idle: Duration) -> (Tunnel, watch::Sender<Stage>) {
        let (stage, ending) = Ending::new();
        let (alive, _) = mpsc::channel(1);
        let stay = Stay { alive: Some(alive), ending, drain: Duration::from_secs(5) };
        (stay.tunnel(idle), stage)
    }

    #[tokio::test(start_paused = true)]
    async fn an_end_that_has_said_all_can_still_listen() {
        let (tunnel, _drain) = tunnel(Duration::from_secs(60));
        let ((mut near, client), (server, mut far)) = (duplex(16), duplex(16));
        let carried = tokio::spawn(tunnel.carry(ready(client), ready(server)));
        near.write_all(b"ask").await.unwrap();
        near.shutdown().await.unwrap();
        let mut asked = String::new();
        far.read_to_string(&mut asked).await.unwrap();
        far.write_all(b"answer, longer than the pipe").await.unwrap();
        drop(far);
        let mut answered = String::new();
        near.read_to_string(&mut answered).await.unwrap();
        assert_eq!((asked.as_str(), answered.as_str()), ("ask", "answer, longer than the pipe"));
        carried.await.unwrap();
    }

    /// Says something, and fails.
    struct Failing(&'static [u8], io::ErrorKind);

    impl AsyncRead for Failing {
        fn poll_read(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            buf: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            if self.0.is_empty() {
                return Poll::Ready(Err(self.1.into()));
            }
            buf.put_slice(std::mem::take(&mut self.0));
            Poll::Ready(Ok(()))
        }
    }

    impl AsyncWrite for Failing {
        fn poll_write(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            buf: &[u8],
        ) -> Poll<io::Result<usize>> {
            Poll::Ready(Ok(buf.len()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_whose_tls_has_no_end_has_one_and_one_that_resets_has_the_server_reset() {
        use io::ErrorKind::{ConnectionReset, TimedOut, UnexpectedEof};
        for (kind, is_set) in [(UnexpectedEof, false), (TimedOut, false), (ConnectionReset, true)] {
            let (tunnel, _drain) = tunnel(Duration::from_secs(60));
            let abort = Abort::default();
            let (server, mut far) = duplex(4);
            let client =
                async move { Ok::<Link, io::Error>(Box::new(Failing(b"all of it", kind))) };
            let tunnel = tunnel.aborted_by(abort.clone());
            let carried = tokio::spawn(tunnel.carry(client, ready(server)));
            let mut heard = String::new();
            far.read_to_string(&mut heard).await.unwrap();
            // Nothing of it is lost where it may have been all.
            assert_eq!(heard == "all of it", kind == UnexpectedEof, "{kind}: {heard}");
            drop(far);
            carried.await.unwrap();
            assert_eq!(abort.is_set(), is_set, "{kind}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn silence_ends_a_tunnel_and_so_does_the_end_of_the_gateway() {
        let (limited, _drain) = tunnel(Duration::from_secs(60));
        let ((mut near, client), (server, mut far)) = (duplex(16), duplex(16));
        let begun = tokio::time::Instant::now();
        let carried = tokio::spawn(limited.carry(ready(client), ready(server)));
        for _ in 0..5 {
            tokio::time::sleep(Duration::from_secs(40)).await;
            far.write_all(b"a").await.unwrap();
            near.read_exact(&mut [0]).await.unwrap();
        }
        carried.await.unwrap();
        let took = begun.elapsed().as_secs();
        assert!((260..=290).contains(&took), "{took} s");

        let (limited, stage) = tunnel(Duration::from_secs(60));
        let ((_near, client), (server, _far)) = (duplex(16), duplex(16));
        let begun = tokio::time::Instant::now();
        let carried = tokio::spawn(limited.carry(ready(client), ready(server)));
        // The next generation takes what is new, and this goes on.
        stage.send_replace(Stage::Superseded);
        tokio::time::sleep(Duration::from_secs(20)).await;
        assert!(!carried.is_finished());
        stage.send_replace(Stage::Stops);
        carried.await.unwrap();
        assert_eq!(begun.elapsed(), Duration::from_secs(25));
    }
}
