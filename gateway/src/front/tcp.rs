//! HTTP/2 and HTTP/1.1 over TLS and TCP (RFC 9113, RFC 9112).

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::Request;
use http::header::HeaderValue;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use quicket::{ConfigError, ServerTls};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::rustls;
use tokio_rustls::server::TlsStream;

use super::Shared;
use super::accept::accept_all;
use super::signed;
use super::stall::Progress;
use crate::BodyError;
use crate::acme::Challenges;
use crate::credentials::Credentials;
use crate::metrics::Metrics;
use crate::pass::Pass;
use crate::pass::tls::{Beginning, beginning, carry};
use crate::proxy::{self, Client};
use crate::snapshot::{Limits, Snapshot};

/// How often a client over HTTP/2 is asked whether it is there, and how long it may take to say so.
const PING: Duration = Duration::from_secs(30);
/// How long a client whose connection has just begun when the gateway stops may take to send its request: it is on
/// its way with the end of TLS' handshake, and hyper would close the connection before it comes.
const FIRST_REQUEST: Duration = Duration::from_secs(1);
/// The smallest buffer that hyper takes.
const MIN_BUFFER: usize = 8192;

/// Awaits a connection; once the gateway stops, only the requests under way. hyper has no trait for
/// connections of both versions.
macro_rules! until_drained {
    ($connection:expr, $drained:expr) => {{
        let mut connection = std::pin::pin!($connection);
        tokio::select! {
            ended = connection.as_mut() => ended,
            () = $drained => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        }
    }};
}
/// How connections over TCP are protected.
#[derive(Clone)]
pub(crate) struct Tls {
    tls: ServerTls,
    base: Arc<rustls::ServerConfig>,
}

impl Tls {
    /// With the certificates of those over QUIC.
    pub(crate) fn new(tls: &ServerTls) -> Result<Self, ConfigError> {
        let base = Arc::new(tls.over_tcp(["h2", "http/1.1"])?);
        Ok(Self { tls: tls.clone(), base })
    }

    /// For one connection: what its client is asked for is its own.
    fn config(&self) -> Result<Arc<rustls::ServerConfig>, ConfigError> {
        self.tls.for_connection(&self.base)
    }

    /// The handshake of a client. One by which an authority looks whether a name leads here is answered, and nothing
    /// comes after it (RFC 8737, Section 3).
    async fn accept(
        &self,
        stream: TcpStream,
        challenges: &Challenges,
    ) -> Result<Option<TlsStream<TcpStream>>, BodyError> {
        // Certificates may be others when the ClientHello is there: which of them has its key elsewhere is seen then.
        let begun = signed::Beginning::read(stream).await?;
        match challenges.answer(&begun.client_hello()) {
            Some(config) => {
                begun.finish(config).await?.shutdown().await?;
                Ok(None)
            }
            None => Ok(Some(begun.finish(self.config()?).await?)),
        }
    }
}

const NO_HANDSHAKE: &str = "no handshake of TLS";

fn why_no_handshake(error: &BodyError) -> &'static str {
    let io = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
    let tls = io.and_then(|error| error.downcast_ref::<rustls::Error>());
    match tls {
        Some(rustls::Error::NoCertificatesPresented) => {
            "no client certificate, and one is required"
        }
        Some(
            rustls::Error::InvalidCertificate(_) | rustls::Error::InvalidCertRevocationList(_),
        ) => "a client certificate that is not taken",
        Some(rustls::Error::General(why)) if why.starts_with("no signature") => {
            "no signature of a private key that is elsewhere"
        }
        _ => NO_HANDSHAKE,
    }
}

/// Takes connections until the gateway stops.
pub(crate) async fn listen(
    listener: TcpListener,
    tls: Tls,
    alt_svc: Option<HeaderValue>,
    shared: Arc<Shared>,
) {
    let all = Arc::clone(&shared);
    let hold =
        move |stream, client| serve(stream, client, tls.clone(), alt_svc.clone(), Arc::clone(&all));
    accept_all(listener, shared, hold).await;
}

/// Where a connection goes.
enum Way {
    /// It is ended here.
    Here,
    /// Nobody wants it.
    Nowhere,
    /// It is passed on, as it is.
    To(Arc<Pass>, Option<String>),
}

/// Looks whether a connection is passed on.
async fn elsewhere(
    stream: &TcpStream,
    snapshot: &Snapshot,
    metrics: &Metrics,
) -> Result<Way, BodyError> {
    if !snapshot.passes.has_tls() {
        return Ok(Way::Here);
    }
    let begun = beginning(stream, snapshot.limits.header_timeout).await;
    if let Beginning::Hello(name) = begun.inspect_err(|_| metrics.refused(NO_HANDSHAKE))?
        && let Some(pass) = snapshot.passes.find(name.as_deref())
        && pass.tls.is_some()
    {
        return Ok(Way::To(Arc::clone(pass), name));
    }
    if snapshot.has_sites() {
        return Ok(Way::Here);
    }
    metrics.refused("nothing over TCP for this server name");
    Ok(Way::Nowhere)
}

async fn serve(
    stream: TcpStream,
    client: SocketAddr,
    tls: Tls,
    alt_svc: Option<HeaderValue>,
    shared: Arc<Shared>,
) -> Result<(), BodyError> {
    let (limits, stream) = {
        let snapshot = shared.current().0;
        let limits = snapshot.limits;
        match elsewhere(&stream, &snapshot, &shared.metrics).await? {
            Way::Here => (limits, stream),
            Way::Nowhere => return Ok(()),
            Way::To(pass, name) => {
                drop(snapshot);
                return Box::pin(carry(stream, client, name, pass, shared)).await;
            }
        }
    };
    let accepting = tls.accept(stream, &shared.challenges);
    let stream = tokio::time::timeout(limits.header_timeout, accepting).await;
    let metrics = Arc::clone(&shared.metrics);
    let stream = stream.map_err(BodyError::from).and_then(|stream| stream);
    let stream = stream.inspect_err(|error| metrics.refused(why_no_handshake(error)))?;
    let Some(stream) = stream else { return Ok(()) };
    let credentials = Credentials::of_tcp(stream.get_ref().1);
    let is_two = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    let _open = metrics.connected(if is_two { "h2" } else { "http/1.1" });
    let mut ending = shared.ending.clone();
    let (stay, mut tunnels) = shared.stay_connected();
    let progress = Progress::new();
    let followed = Arc::clone(&progress);
    let answer = move |request: Request<Incoming>| {
        let followed = Arc::clone(&followed);
        followed.asked();
        let shared = Arc::clone(&shared);
        let (alt_svc, stay) = (alt_svc.clone(), stay.clone());
        let credentials = credentials.clone();
        let client = Client { address: client, early: None, credentials, alt_svc, stay };
        let request = request.map(|body| body.map_err(BodyError::from).boxed_unsync());
        // It is large, and moved several times until it runs.
        Box::pin(async move {
            let answer = proxy::answer(&shared, client, request).await;
            Ok::<_, Infallible>(answer.map(|body| followed.follow(body)))
        })
    };
    let first = Arc::clone(&progress);
    let drained = async move {
        ending.takes_nothing_new().await;
        // HTTP/2 says by itself which requests it still takes (GOAWAY: RFC 9113, Section 6.8).
        if !is_two {
            let _ = tokio::time::timeout(FIRST_REQUEST, first.has_been_asked()).await;
        }
    };
    let stream = TokioIo::new(stream);
    let serving = async {
        if is_two {
            let connection = two(&limits).serve_connection(stream, service_fn(answer));
            until_drained!(connection, drained)
        } else {
            let connection = one(&limits).serve_connection(stream, service_fn(answer));
            until_drained!(connection.with_upgrades(), drained)
        }
    };
    let ended = tokio::select! {
        ended = serving => ended,
        () = progress.stalled(limits.body_timeout) => {
            metrics.refused("a client that asks or takes nothing");
            return Ok(());
        }
    };
    // A connection that was upgraded goes on in a tunnel.
    tunnels.recv().await;
    ended.inspect_err(|error| {
        // What hyper cannot read it answers itself, and no request of it reaches a route.
        if error.is_parse() {
            metrics.refused("malformed HTTP/1.1");
        }
    })?;
    Ok(())
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
        .enable_connect_protocol()
        .max_concurrent_streams(limits.requests)
        .max_header_list_size(limits.header_bytes)
        .keep_alive_interval(PING)
        .keep_alive_timeout(PING);
    builder
}
