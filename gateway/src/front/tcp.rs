//! HTTP/2 and HTTP/1.1 over TLS and TCP (RFC 9113, RFC 9112).

use std::net::SocketAddr;
use std::sync::Arc;

use http::Request;
use http::header::HeaderValue;
use quicket_front::{Beginning, Fault, Tls, hold, protocol};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::rustls;
use tokio_rustls::server::TlsStream;

use super::Shared;
use super::accept::accept_all;
use super::service::Service;
use crate::boxed::boxed;
use crate::clients::Exceeded;
use crate::credentials::Credentials;
use crate::metrics::Metrics;
use crate::pass::Pass;
use crate::pass::tls::{Beginning as Peeked, beginning, carry};
use crate::proxy::{self, Client};
use crate::quota::Taken;
use crate::request::MALFORMED_TWO;
use crate::snapshot::{Limits, Snapshot};
use crate::{Body, BodyError};

/// Above so many bytes of an answer over HTTP/2 that wait to be sent, no more of it is asked for: a client that takes
/// nothing has as much kept for each of its requests.
const SEND_BUFFER: usize = 64 << 10;

/// The handshake of a client. One by which an authority looks whether a name leads here is answered, and nothing
/// comes after it (RFC 8737, Section 3).
async fn accept(
    tls: &Tls,
    stream: TcpStream,
    shared: &Shared,
) -> Result<Option<(TlsStream<TcpStream>, Option<Taken>)>, BodyError> {
    // Certificates may be others when the ClientHello is there: which of them has its key elsewhere is seen then.
    let begun = Beginning::read(stream).await?;
    match shared.challenges.answer(&begun.client_hello()) {
        Some(config) => {
            begun.finish(config).await?.shutdown().await?;
            Ok(None)
        }
        None => {
            let counted = {
                let (snapshot, hello) = (shared.current().0, begun.client_hello());
                let service = Service::of_http(&snapshot, hello.server_name());
                service.map_or(Ok(None), |service| service.begin())?
            };
            Ok(Some((tls.finish(begun).await?, counted)))
        }
    }
}

const NO_HANDSHAKE: &str = "no handshake of TLS";

fn why_no_handshake(error: &BodyError) -> &'static str {
    if let Some(exceeded) = error.downcast_ref::<Exceeded>() {
        return exceeded.reason;
    }
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
    if let Peeked::Hello(name) = begun.inspect_err(|_| metrics.refused(NO_HANDSHAKE))?
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
    let accepting = accept(&tls, stream, &shared);
    let stream = tokio::time::timeout(limits.header_timeout, accepting).await;
    let metrics = Arc::clone(&shared.metrics);
    let stream = stream.map_err(BodyError::from).and_then(|stream| stream);
    let stream = stream.inspect_err(|error| metrics.refused(why_no_handshake(error)))?;
    let Some((stream, _counted)) = stream else { return Ok(()) };
    let credentials = Credentials::of_tcp(stream.get_ref().1);
    let version = protocol(&stream);
    let _open = metrics.connected(version);
    let mut ending = shared.ending.clone();
    let (stay, mut tunnels) = shared.stay_connected();
    let answer = move |request: Request<Body>| {
        let shared = Arc::clone(&shared);
        let (alt_svc, stay) = (alt_svc.clone(), stay.clone());
        let credentials = credentials.clone();
        let client = Client { address: client, early: None, credentials, alt_svc, stay };
        boxed(|| async move { proxy::answer(&shared, client, request).await })
    };
    let draining = async move { ending.takes_nothing_new().await };
    let counted = Arc::clone(&metrics);
    let on_malformed = move || counted.refused(MALFORMED_TWO);
    let ended = hold(stream, &of_connection(&limits), answer, draining, on_malformed).await;
    if let Err(Fault::Stalled) = ended {
        metrics.refused("a client that asks or takes nothing");
        return Ok(());
    }
    // A connection that was upgraded goes on in a tunnel.
    tunnels.recv().await;
    // What hyper cannot read it answers itself, and no request of it reaches a route.
    match ended {
        Err(Fault::Malformed(_)) if version == "h2" => metrics.refused(MALFORMED_TWO),
        Err(Fault::Malformed(_)) => metrics.refused("malformed HTTP/1.1"),
        Err(Fault::Flood(_)) => metrics.refused("a flood of HTTP/2"),
        _ => {}
    }
    Ok(ended?)
}

const fn of_connection(limits: &Limits) -> quicket_front::Limits {
    quicket_front::Limits {
        requests: limits.requests,
        header_bytes: limits.header_bytes,
        header_timeout: limits.header_timeout,
        body_timeout: limits.body_timeout,
        idle_timeout: limits.idle_timeout,
        send_buffer: Some(SEND_BUFFER),
        extended_connect: true,
    }
}
