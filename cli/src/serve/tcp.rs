//! HTTP/2 and HTTP/1.1 over TLS and TCP, at the port numbers of HTTP/3; and plain HTTP, which leads there.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

use http::header::{self, HeaderValue};
use http::request::Parts;
use http::{Method, Request, Response, StatusCode, Version};
use http_body_util::{BodyExt, Full};
use quicket_front::{
    Body, Limits, Polled, Tls, Watch, Watched, alt_svc, authority, hold, protocol, redirect,
};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::conversation::{Draining, PATIENCE};
use super::log::{Record, say};
use super::{Client, Counted, Site, http3};
use crate::args::Serve;

/// How long a generation that is replaced takes at most to give its TCP ports up, ...
const HANDOVER: Duration = Duration::from_secs(10);
/// ... how often to look, ...
const LOOK: Duration = Duration::from_millis(20);
/// ... and how often afterwards, where it is another program that has them.
const LATER: Duration = Duration::from_secs(1);
/// How long it may take nothing of what it asked for, as over QUIC.
const STALLED: Duration = Duration::from_secs(60);
/// Above so many bytes of an answer that wait to be sent, no more of a file is read for it.
const SEND_BUFFER: usize = 16 << 10;
/// So much of a body that nobody wants is read before the answer, in bytes.
const SMALL_BODY: usize = 64 << 10;
/// ... and for so long.
const SMALL_BODY_TIME: Duration = Duration::from_secs(1);

/// What all connections over TCP have in common.
pub(super) struct Front {
    site: Arc<Site>,
    tls: Tls,
    limits: Limits,
    /// Connections that there are, over UDP too, ...
    live: Arc<AtomicUsize>,
    /// ... and may be.
    limit: usize,
    draining: watch::Receiver<Draining>,
}

impl Front {
    pub(super) fn new(
        args: &Serve,
        site: &Arc<Site>,
        tls: Tls,
        (live, limit): (&Arc<AtomicUsize>, usize),
        draining: watch::Receiver<Draining>,
    ) -> Arc<Self> {
        let limits = Limits {
            requests: args.max_requests,
            header_bytes: http3::MAX_HEADERS as u32,
            header_timeout: PATIENCE,
            body_timeout: STALLED,
            idle_timeout: site.unasked,
            send_buffer: Some(SEND_BUFFER),
            extended_connect: false,
        };
        let (site, live) = (Arc::clone(site), Arc::clone(live));
        Arc::new(Self { site, tls, limits, live, limit, draining })
    }

    /// Waits until there are to be no more requests.
    fn drained(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut draining = self.draining.clone();
        async move {
            let _ = draining.wait_for(|draining| *draining != Draining::No).await;
        }
    }

    /// A listener at an address that the generation before has until it hears that this one has taken over.
    pub(super) async fn await_port(
        &self,
        address: SocketAddr,
        only_v6: bool,
    ) -> Option<TcpListener> {
        tokio::select! {
            listener = free(address, only_v6) => Some(listener),
            () = self.drained() => None,
        }
    }

    /// Serves files at an address, until there are to be no more requests and those under way are answered.
    pub(super) async fn serve(self: Arc<Self>, listener: TcpListener) {
        let alt_svc = listener.local_addr().ok().and_then(|address| alt_svc(address.port()));
        let this = Arc::clone(&self);
        let hold = move |stream, peer| Arc::clone(&this).converse(stream, peer, alt_svc.clone());
        self.take_all(listener, hold).await;
    }

    /// Leads clients at an address to HTTPS at a port, as long.
    pub(super) async fn redirect(self: Arc<Self>, listener: TcpListener, port: u16) {
        let hold = move |stream, peer| async move {
            let answer = |request: &Parts| {
                redirect::to_https(request, authority::of(request).ok().as_deref(), port)
            };
            if let Err(error) = redirect::serve(stream, PATIENCE, answer).await {
                log::debug!("{peer}: {error}");
            }
        };
        self.take_all(listener, hold).await;
    }

    /// Holds each connection in a task of its own.
    async fn take_all<F>(
        &self,
        listener: TcpListener,
        mut hold: impl FnMut(TcpStream, SocketAddr) -> F,
    ) where
        F: Future<Output = ()> + Send + 'static,
    {
        let mut clients = JoinSet::new();
        let take = |stream, peer| {
            while clients.try_join_next().is_some() {}
            if self.live.load(Ordering::Relaxed) >= self.limit {
                return log::debug!("{peer}: there are too many connections");
            }
            let (counted, held) = (Counted::new(&self.live), hold(stream, peer));
            clients.spawn(async move {
                held.await;
                drop(counted);
            });
        };
        quicket_front::accept_all(listener, self.drained(), take).await;
        while clients.join_next().await.is_some() {}
    }

    /// Talks to a client until the connection ends, or until it is drained.
    async fn converse(
        self: Arc<Self>,
        stream: TcpStream,
        remote: SocketAddr,
        alt_svc: Option<HeaderValue>,
    ) {
        let stream = match timeout(PATIENCE, self.tls.accept(stream)).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return log::debug!("{remote}: no handshake of TLS: {error}"),
            Err(_) => return log::debug!("{remote}: no handshake of TLS in time"),
        };
        let protocol = protocol(&stream);
        let kind = stream.get_ref().1.handshake_kind();
        let is_resumed = kind == Some(tokio_rustls::rustls::HandshakeKind::Resumed);
        let site = Arc::clone(&self.site);
        site.events.connected_over_tcp(remote, protocol);
        let client = Arc::new(Client {
            remote,
            site: Arc::clone(&site),
            requests: 0.into(),
            room: site.room.of_connection(),
        });
        let asked = Arc::clone(&client);
        let answer = move |request: Request<Body>| {
            let (client, alt_svc) = (Arc::clone(&client), alt_svc.clone());
            async move {
                let (head, body) = request.into_parts();
                if !head.headers.contains_key(header::EXPECT) {
                    let _ = timeout(SMALL_BODY_TIME, read_small(body)).await;
                }
                let mut answer = answer(client, protocol, &head).await;
                if let Some(alt_svc) = alt_svc {
                    answer.headers_mut().insert(header::ALT_SVC, alt_svc);
                }
                answer
            }
        };
        // Nobody is told.
        let on_malformed = || {};
        let ended = hold(stream, &self.limits, answer, self.drained(), on_malformed).await;
        let reason = ended.err().map(|fault| fault.to_string());
        if let Some(reason) = &reason {
            log::debug!("{remote}: {reason}");
        }
        let requests = asked.requests.load(Ordering::Relaxed);
        site.events.closed_over_tcp(remote, (requests, is_resumed), reason);
    }
}

/// Reads a body that nobody wants, as far as it is small: some clients take the answer for a failure if it comes while they
/// send (curl over HTTP/2, where RST_STREAM with NO_ERROR follows: RFC 9113, Section 8.1).
async fn read_small(mut body: Body) {
    let mut left = SMALL_BODY;
    while let Some(Ok(frame)) = body.frame().await {
        let Some(rest) = left.checked_sub(frame.data_ref().map_or(1, |data| data.len().max(1)))
        else {
            return;
        };
        left = rest;
    }
}

/// A listener at an address once nobody else has it.
async fn free(address: SocketAddr, only_v6: bool) -> TcpListener {
    let (begun, mut pause) = (Instant::now(), LOOK);
    loop {
        match quicket_front::listen(address, only_v6) {
            Ok(listener) => return listener,
            Err(error) if pause == LOOK && begun.elapsed() > HANDOVER => {
                pause = LATER;
                say(format_args!(
                    "Warning: TCP port {} of {} is not free yet, and is waited for: {error}",
                    address.port(),
                    address.ip()
                ));
            }
            Err(_) => {}
        }
        tokio::time::sleep(pause).await;
    }
}

/// One request and its answer.
async fn answer(client: Arc<Client>, protocol: &'static str, request: &Parts) -> Response<Body> {
    let begun = Instant::now();
    client.requests.fetch_add(1, Ordering::Relaxed);
    let (method, path) = (&request.method, request.uri.path());
    let mut told = Told {
        client: Arc::clone(&client),
        protocol,
        method: method.clone(),
        target: path.to_owned(),
        begun,
        status: None,
        error: None,
        sent: 0,
        is_whole: false,
    };
    let text = |status, said: String| text(method, status, said);
    let response = match authority::of(request) {
        // Only HTTP/1.1 demands it (RFC 9112, Section 3.2), and all names have the same files here.
        Err(why)
            if request.version >= Version::HTTP_11
                || request.headers.contains_key(header::HOST) =>
        {
            text(StatusCode::BAD_REQUEST, format!("This is no request: {why}.\n"))
        }
        _ => match client.site.ask(method, path, &request.headers, false).await {
            Ok(answer) => answer.into_response(&client.room),
            Err(error) => {
                told.error = Some(error);
                text(StatusCode::INTERNAL_SERVER_ERROR, "Something went wrong here.\n".to_owned())
            }
        },
    };
    told.status = Some(response.status());
    response.map(|body| Watched::new(body, told).boxed_unsync())
}

/// A few words; of those that answer HEAD, the length alone.
fn text(method: &Method, status: StatusCode, text: String) -> Response<Body> {
    let length = text.len();
    let text = if *method == Method::HEAD { String::new() } else { text };
    let mut response = Response::new(Full::from(text).map_err(Into::into).boxed_unsync());
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_LENGTH, length.into());
    let kind = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

/// What the access log says of a request, once it is over.
struct Told {
    client: Arc<Client>,
    protocol: &'static str,
    method: Method,
    target: String,
    begun: Instant,
    /// None as long as there is no answer.
    status: Option<StatusCode>,
    error: Option<String>,
    sent: u64,
    is_whole: bool,
}

impl Drop for Told {
    fn drop(&mut self) {
        if !self.client.site.access_log {
            return;
        }
        let error = self.error.take();
        let cut_off = || (!self.is_whole).then(|| "the client stopped it".to_owned());
        let record = Record {
            remote: self.client.remote,
            protocol: self.protocol,
            method: self.method.as_str(),
            target: &self.target,
            status: self.status.map(|status| status.as_u16()),
            sent: self.sent,
            took: self.begun.elapsed(),
            early: false,
            error: error.or_else(cut_off),
        };
        record.print();
    }
}

impl Watch for Told {
    fn on_frame(&mut self, polled: &Polled, _: bool) {
        match polled {
            Poll::Ready(Some(Ok(frame))) => {
                self.sent += frame.data_ref().map_or(0, |data| data.len() as u64);
            }
            Poll::Ready(Some(Err(error))) => self.error = Some(error.to_string()),
            _ => {}
        }
    }

    fn on_drop(&mut self, is_end: bool) {
        self.is_whole = is_end;
    }
}
