//! One connection of HTTP/2 or HTTP/1.1 (RFC 9113, RFC 9112), as a stream of requests.

use std::convert::Infallible;
use std::error::Error as _;
use std::fmt;
use std::future::{Future, pending};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use h2::Reason;
use http::header::CONTENT_LENGTH;
use http::{Method, Request, Response, StatusCode, Version};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::{HttpService, service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::sleep;
use tokio_rustls::server::TlsStream;

use crate::gathered::Gathered;
use crate::linger::{Lingering, Resets, Wanted};
use crate::stall::Progress;
use crate::{Body, BodyError, protocol};

/// How often a client over HTTP/2 is asked whether it is there, and how long it may take to say so.
const PING: Duration = Duration::from_secs(30);
/// How long a client whose connection has just begun when the server stops may take to send its request: it is on
/// its way with the end of TLS' handshake, and hyper would close the connection before it comes.
const FIRST_REQUEST: Duration = Duration::from_secs(1);
/// The smallest buffer that hyper takes.
const MIN_BUFFER: usize = 8192;

/// Awaits a connection; once it is drained, only the requests under way, until `given_up` is ready. hyper has no trait
/// for connections of both versions.
macro_rules! until_drained {
    ($connection:expr, $drained:expr, $given_up:expr) => {{
        let mut connection = std::pin::pin!($connection);
        tokio::select! {
            ended = connection.as_mut() => return Ok(ended?),
            () = $drained => connection.as_mut().graceful_shutdown(),
        }
        tokio::select! {
            ended = connection => Ok(ended?),
            () = $given_up => Err(Fault::Stalled),
        }
    }};
}

/// What a connection may take.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Requests under way, over HTTP/2.
    pub requests: u32,
    /// The header section of a request, in bytes.
    pub header_bytes: u32,
    /// How long a client may take for the header section.
    pub header_timeout: Duration,
    /// How long a client may take nothing of what it has asked for, or ask nothing at all.
    pub body_timeout: Duration,
    /// How long a connection of HTTP/2 may have no request under way, nor anything that a [`Counted`](crate::Counted) is kept for. Then it
    /// ends, as it does when there are to be no more requests, within another `body_timeout`. One of HTTP/1.1 has `header_timeout` between requests.
    pub idle_timeout: Duration,
    /// Above so many bytes that wait to be sent, no more of a body is asked for, over HTTP/2 of each request's. hyper's own
    /// limit if it is `None`.
    pub send_buffer: Option<usize>,
    /// Clients may ask for other protocols on streams of HTTP/2 (RFC 8441).
    pub extended_connect: bool,
}

/// An answer that is being made.
type Answering = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

/// Why a connection has ended before its time.
#[derive(Debug)]
pub enum Fault {
    /// Its client has asked nothing, or taken nothing, for too long.
    Stalled,
    /// What it sent cannot be read, and hyper has answered that itself.
    Malformed(BodyError),
    /// Too much of what it sent over HTTP/2 comes to nothing, such as streams that it resets (ENHANCE_YOUR_CALM).
    Flood(BodyError),
    /// Anything else, such as the end of the connection below it.
    Other(BodyError),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stalled => f.write_str("the client asked or took nothing for too long"),
            Self::Malformed(error) | Self::Flood(error) | Self::Other(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Fault {}

/// Answers all requests of a connection until it ends or, once `draining` is ready, until those under way are answered.
/// `on_malformed` is called for each request over HTTP/2 that is malformed and goes no further; those of which only the body
/// is may have begun to be answered.
///
/// # Errors
///
/// If it ends before its time.
pub async fn hold<A, F>(
    stream: TlsStream<TcpStream>,
    limits: &Limits,
    answer: A,
    draining: impl Future<Output = ()>,
    on_malformed: impl Fn() + Send + 'static,
) -> Result<(), Fault>
where
    A: Fn(Request<Body>) -> F,
    F: Future<Output = Response<Body>> + Send + 'static,
{
    let is_two = protocol(&stream) == "h2";
    let progress = Progress::new();
    let followed = Arc::clone(&progress);
    let answer = following(followed, answer);
    let was_idle = AtomicBool::new(false);
    let drained = async {
        tokio::select! {
            () = draining => {}
            // RFC 9113, Section 9.1: it is said by GOAWAY. A client that answers PING would stay for ever otherwise.
            () = progress.under_way().idle(limits.idle_timeout), if is_two => {
                return was_idle.store(true, Ordering::Relaxed);
            }
        }
        // HTTP/2 says by itself which requests it still takes (GOAWAY: RFC 9113, Section 6.8).
        if !is_two {
            let _ = tokio::time::timeout(FIRST_REQUEST, progress.has_been_asked()).await;
        }
    };
    // What the client has no window for is with h2, and no request: it would stay for ever with that.
    let given_up = async {
        if !was_idle.load(Ordering::Relaxed) {
            return pending().await;
        }
        // Requests may have come before the client heard of the end.
        sleep(limits.body_timeout).await;
        progress.under_way().idle(limits.body_timeout).await;
    };
    let serving = async {
        if is_two {
            let stream = Gathered::new(stream, on_malformed);
            let io = TokioIo::new(stream.clone());
            let connection = two(limits).serve_connection(io, service_fn(answer));
            let ended = async { until_drained!(connection, drained, given_up) };
            stream.follow(ended).await
        } else {
            hold_one(stream, limits, &progress, service_fn(answer), drained).await
        }
    };
    tokio::select! {
        ended = serving => ended,
        () = progress.stalled(limits.body_timeout) => Err(Fault::Stalled),
    }
}

/// Requests go to `answer`, and what becomes of their bodies and of those of the answers is noted.
fn following<A, F>(progress: Arc<Progress>, answer: A) -> impl Fn(Request<Incoming>) -> Answering
where
    A: Fn(Request<Body>) -> F,
    F: Future<Output = Response<Body>> + Send + 'static,
{
    move |request| {
        let progress = Arc::clone(&progress);
        progress.asked();
        let counted = progress.under_way().count();
        let is_connect = request.method() == Method::CONNECT;
        let is_old = request.version() == Version::HTTP_10;
        let wanted = Arc::clone(&progress);
        let mut request = request.map(|body| Wanted::new(body, wanted).boxed_unsync());
        if is_connect {
            request.extensions_mut().insert(counted.clone());
        }
        let answer = answer(request);
        Box::pin(async move {
            let answer = answer.await;
            let status = answer.status();
            if status == StatusCode::SWITCHING_PROTOCOLS || (is_connect && status.is_success()) {
                progress.upgrade();
            }
            // hyper has no chunks for these (RFC 9112, Section 6.3, number 8), and says how long they are where it knows.
            let is_last = (is_old || answer.version() == Version::HTTP_10)
                && !answer.headers().contains_key(CONTENT_LENGTH)
                && http_body::Body::size_hint(answer.body()).exact().is_none();
            Ok(answer.map(|body| progress.follow(counted, body, is_last)))
        })
    }
}

/// A connection of HTTP/1.1.
async fn hold_one<I, S>(
    stream: I,
    limits: &Limits,
    progress: &Arc<Progress>,
    service: S,
    drained: impl Future<Output = ()>,
) -> Result<(), Fault>
where
    I: AsyncRead + AsyncWrite + Resets + Unpin + Send + 'static,
    S: HttpService<Incoming, ResBody = Body>,
    S::Error: Into<BodyError>,
{
    let io = TokioIo::new(Lingering::new(stream, Arc::clone(progress)));
    let connection = one(limits).serve_connection(io, service);
    until_drained!(connection.with_upgrades(), drained, pending::<()>())
}

impl From<hyper::Error> for Fault {
    fn from(error: hyper::Error) -> Self {
        match closed_for(&error) {
            Some(Reason::ENHANCE_YOUR_CALM) => Self::Flood(error.into()),
            Some(_) => Self::Malformed(error.into()),
            None if error.is_parse() => Self::Malformed(error.into()),
            None => Self::Other(error.into()),
        }
    }
}

/// What of the client's has had h2 close the connection (RFC 9113, Section 5.4.1).
fn closed_for(error: &hyper::Error) -> Option<Reason> {
    let error = error.source()?.downcast_ref::<h2::Error>()?;
    let is_ours = error.is_go_away() && error.is_library();
    error
        .reason()
        .filter(|&reason| is_ours && !matches!(reason, Reason::NO_ERROR | Reason::INTERNAL_ERROR))
}

impl From<std::io::Error> for Fault {
    fn from(error: std::io::Error) -> Self {
        Self::Other(error.into())
    }
}

/// ALPN has said which version it is: hyper need not wait to see it, without a deadline.
fn one(limits: &Limits) -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(limits.header_timeout)
        .max_buf_size((limits.header_bytes as usize).max(MIN_BUFFER));
    builder
}

fn two(limits: &Limits) -> http2::Builder<TokioExecutor> {
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(limits.requests)
        .max_header_list_size(limits.header_bytes)
        .keep_alive_interval(PING)
        .keep_alive_timeout(PING);
    if limits.extended_connect {
        builder.enable_connect_protocol();
    }
    if let Some(bytes) = limits.send_buffer {
        builder.max_send_buf_size(bytes);
    }
    builder
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use http::header::{CONNECTION, UPGRADE};
    use http_body_util::Empty;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
    use tokio::sync::mpsc;

    const LIMITS: Limits = Limits {
        requests: 1,
        header_bytes: 8192,
        header_timeout: Duration::from_secs(10),
        body_timeout: Duration::from_secs(60),
        idle_timeout: Duration::from_secs(180),
        send_buffer: None,
        extended_connect: false,
    };

    fn empty() -> Body {
        Empty::<Bytes>::new().map_err(Into::into).boxed_unsync()
    }

    /// The server's half of the tunnel ends first, and what the client still says is not lost.
    #[tokio::test]
    async fn a_tunnel_after_a_body_in_chunks_is_closed_by_halves() {
        let (near, mut far) = duplex(64 << 10);
        let (upgraded, mut tunnels) = mpsc::unbounded_channel();
        let answer = move |mut request: Request<Body>| {
            let upgraded = upgraded.clone();
            async move {
                let mut response = Response::new(empty());
                if request.headers().contains_key(UPGRADE) {
                    upgraded.send(hyper::upgrade::on(&mut request)).unwrap();
                    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
                    response.headers_mut().insert(CONNECTION, "upgrade".parse().unwrap());
                    response.headers_mut().insert(UPGRADE, "test".parse().unwrap());
                } else {
                    request.into_body().collect().await.unwrap();
                }
                response
            }
        };
        let progress = Progress::new();
        let followed = Arc::clone(&progress);
        let holding = tokio::spawn(async move {
            let service = service_fn(following(Arc::clone(&followed), answer));
            hold_one(near, &LIMITS, &followed, service, std::future::pending()).await
        });
        far.write_all(
            b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
        )
        .await
        .unwrap();
        let head = head(&mut far).await;
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        assert!(!progress.has_left_unread(), "it was read to its end");
        // However it was before.
        progress.leave_unread();
        far.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: test\r\n\r\n")
            .await
            .unwrap();
        let mut tunnel = TokioIo::new(tunnels.recv().await.unwrap().await.unwrap());
        tunnel.shutdown().await.unwrap();
        let mut head = String::new();
        far.read_to_string(&mut head).await.unwrap();
        assert!(head.starts_with("HTTP/1.1 101"), "{head}");
        far.write_all(b"still here").await.unwrap();
        drop(far);
        let mut heard = String::new();
        tunnel.read_to_string(&mut heard).await.unwrap();
        assert_eq!(heard, "still here");
        holding.await.unwrap().unwrap();
    }

    async fn head(stream: &mut (impl AsyncRead + Unpin)) -> String {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.unwrap());
        }
        String::from_utf8(head).unwrap()
    }
}
