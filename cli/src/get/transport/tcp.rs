//! HTTP/2 and HTTP/1.1 over TLS and TCP, for where QUIC does not get through.

use std::error::Error;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Request, Response, Uri, Version, header};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use quicket::ClientTls;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls;
use tokio_rustls::rustls::pki_types::ServerName;

use crate::exit::{Failure, Kind};
use crate::get::download::{Answered, Download, Job};
use crate::get::progress::Progress;
use crate::get::rate::Limit;
use crate::get::reply::{self, Kept, Next};
use crate::get::report::{ConnectionReport, EarlyData};
use crate::get::target::Authority;
use crate::get::{Run, complete, trace};
use crate::trust;

/// How long a connection may take to come about; as long as QUIC's.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// How much a server may send ahead, in bytes: of one file, and of all of a connection.
const STREAM_WINDOW: u64 = 4 << 20;
const WINDOW: u64 = 16 << 20;

/// Connects.
#[derive(Clone)]
pub(crate) struct Dialer {
    tls: TlsConnector,
    /// Silence after which a connection is given up.
    silence: Option<Duration>,
    rate: Option<u64>,
}

impl Dialer {
    /// Trusts whom `tls` trusts.
    pub(crate) fn new(
        tls: &ClientTls,
        silence: Duration,
        rate: Option<u64>,
    ) -> Result<Self, Failure> {
        let tls = tls.over_tcp(["h2", "http/1.1"]);
        let tls = tls.map_err(|error| Failure::environment("no TLS over TCP", error))?;
        let tls = TlsConnector::from(Arc::new(tls));
        Ok(Self { tls, silence: (!silence.is_zero()).then_some(silence), rate })
    }

    /// Connects to a server.
    pub(crate) async fn connect(
        &self,
        authority: &Authority,
        remote: SocketAddr,
    ) -> Result<Link, Failure> {
        let begun = Instant::now();
        let stream = self.dial(authority, remote).await?;
        let (_, tls) = stream.get_ref();
        let version = match tls.alpn_protocol() {
            Some(b"h2") => Version::HTTP_2,
            _ => Version::HTTP_11,
        };
        let report = report(authority, remote, tls, version, begun.elapsed());
        let sender = match version {
            Version::HTTP_2 => Sender::Two(self.http2(stream, authority).await?),
            _ => Sender::One(Mutex::new(vec![http1(stream, authority).await?])),
        };
        let dialer = self.clone();
        let authority = authority.clone();
        let shared = Shared { dialer, authority, remote, version, sender };
        Ok(Link { shared: Arc::new(shared), report })
    }

    async fn dial(
        &self,
        authority: &Authority,
        remote: SocketAddr,
    ) -> Result<TlsStream<TcpStream>, Failure> {
        let failed = |what: &dyn std::fmt::Display, kind, hint| {
            Failure::new(kind, format!("{authority} ({remote}, TCP): {what}{hint}"))
        };
        let name = ServerName::try_from(authority.host.clone())
            .map_err(|error| failed(&error, Kind::Usage, ""))?;
        let connect = async {
            let stream = TcpStream::connect(remote)
                .await
                .map_err(|error| failed(&error, Kind::Connection, ""))?;
            let _ = stream.set_nodelay(true);
            self.tls.connect(name, stream).await.map_err(|error| {
                match error.get_ref().and_then(|error| error.downcast_ref::<rustls::Error>()) {
                    Some(error @ rustls::Error::InvalidCertificate(reason)) => {
                        let words = ClientTls::explain(error, &authority.host);
                        failed(&words, Kind::Trust, trust::hint_of(is_about_dates(reason)))
                    }
                    _ => failed(&error, Kind::Connection, ""),
                }
            })
        };
        let late =
            |_| failed(&"no connection within 10 s", Kind::Connection, "; is there a server?");
        timeout(HANDSHAKE, connect).await.map_err(late)?
    }

    async fn http2(
        &self,
        stream: TlsStream<TcpStream>,
        authority: &Authority,
    ) -> Result<http2::SendRequest<Full<Bytes>>, Failure> {
        let window = |default| {
            let window = self.rate.map_or(default, |rate| Limit::window(rate, default));
            u32::try_from(window).unwrap_or(u32::MAX)
        };
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder.initial_stream_window_size(window(STREAM_WINDOW));
        builder.initial_connection_window_size(window(WINDOW));
        let made = builder.handshake(TokioIo::new(stream)).await;
        let (sender, connection) = made.map_err(|error| no_http(authority, &error))?;
        tokio::spawn(connection);
        Ok(sender)
    }
}

async fn http1(
    stream: TlsStream<TcpStream>,
    authority: &Authority,
) -> Result<http1::SendRequest<Full<Bytes>>, Failure> {
    let made = http1::handshake(TokioIo::new(stream)).await;
    let (sender, connection) = made.map_err(|error| no_http(authority, &error))?;
    tokio::spawn(connection);
    Ok(sender)
}

fn no_http(authority: &Authority, error: &hyper::Error) -> Failure {
    Failure::new(Kind::Connection, format!("{authority}: {}", words(error)))
}

const fn is_about_dates(error: &rustls::CertificateError) -> bool {
    use rustls::CertificateError::{Expired, ExpiredContext, NotValidYet, NotValidYetContext};
    matches!(error, Expired | ExpiredContext { .. } | NotValidYet | NotValidYetContext { .. })
}

/// An error of the library with its causes.
fn words(error: &hyper::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    text
}

/// A connection to a server; with HTTP/1.1 as many as there are requests at once.
pub(crate) struct Link {
    shared: Arc<Shared>,
    report: ConnectionReport,
}

struct Shared {
    dialer: Dialer,
    authority: Authority,
    remote: SocketAddr,
    version: Version,
    sender: Sender,
}

enum Sender {
    Two(http2::SendRequest<Full<Bytes>>),
    /// Connections on which no request is under way.
    One(Mutex<Vec<http1::SendRequest<Full<Bytes>>>>),
}

impl Link {
    /// For `--verbose`: what was settled.
    pub(crate) fn described(&self) -> String {
        format!("* connected: {}", self.report)
    }

    /// Fetches a file.
    pub(crate) fn fetch(
        &self,
        job: Job,
        run: Arc<Run>,
    ) -> impl Future<Output = Result<Answered, Failure>> + Send + use<> {
        let shared = self.shared.clone();
        async move { shared.fetch(&job, &run.progress).await }
    }

    /// Closes the connection; what is to be said of it.
    pub(crate) fn close(self) -> ConnectionReport {
        self.report
    }
}

impl Shared {
    async fn fetch(&self, job: &Job, progress: &Progress) -> Result<Answered, Failure> {
        let begun = Instant::now();
        let kept = complete::kept(job);
        let request = job.order.request(&job.target, kept.as_ref())?;
        progress.trace(|| trace::request(&request, self.version));
        let request = request.map(|()| Full::new(job.order.body().unwrap_or_default()));
        match &self.sender {
            Sender::Two(sender) => {
                let mut sender = sender.clone();
                let response = self.answer(job, sender.send_request(request)).await?;
                self.take(response, job, kept.as_ref(), progress, begun).await
            }
            Sender::One(idle) => {
                let mut sender = self.free(idle).await?;
                let request = origin_form(request);
                let response = self.answer(job, sender.send_request(request)).await?;
                let taken = self.take(response, job, kept.as_ref(), progress, begun).await;
                // Where something is left of the body, the library closes the connection, and the
                // next to take it from here notices.
                idle.lock().unwrap_or_else(PoisonError::into_inner).push(sender);
                taken
            }
        }
    }

    /// A connection of HTTP/1.1 on which nothing else is under way.
    async fn free(
        &self,
        idle: &Mutex<Vec<http1::SendRequest<Full<Bytes>>>>,
    ) -> Result<http1::SendRequest<Full<Bytes>>, Failure> {
        loop {
            let next = idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let Some(mut sender) = next else { break };
            if sender.ready().await.is_ok() {
                return Ok(sender);
            }
        }
        http1(self.dialer.dial(&self.authority, self.remote).await?, &self.authority).await
    }

    async fn answer(
        &self,
        job: &Job,
        answer: impl Future<Output = hyper::Result<Response<Incoming>>>,
    ) -> Result<Response<Incoming>, Failure> {
        self.unless_silent(job, answer).await?.map_err(|error| lost(job, &words(&error)))
    }

    async fn take(
        &self,
        response: Response<Incoming>,
        job: &Job,
        kept: Option<&Kept>,
        progress: &Progress,
        begun: Instant,
    ) -> Result<Answered, Failure> {
        let (parts, mut body) = response.into_parts();
        let response = Response::from_parts(parts, ());
        progress.trace(|| trace::response(&response));
        let head = match reply::next(&response, job, kept, begun).await? {
            Next::Take(head) => head,
            Next::Done(answered) => return Ok(answered),
        };
        let mut download = Download::begin(job, head, progress, begun);
        let outcome = match download.is_complete() {
            true => Ok(()),
            false => self.receive(&mut body, &mut download, job).await,
        };
        download.end(outcome).await.map(Answered::Fetched)
    }

    async fn receive(
        &self,
        body: &mut Incoming,
        download: &mut Download,
        job: &Job,
    ) -> Result<(), Failure> {
        while let Some(frame) = download.upcoming(self.unless_silent(job, body.frame())).await? {
            let frame = frame.map_err(|error| lost(job, &words(&error)))?;
            if let Ok(data) = frame.into_data()
                && download.take(data).await.is_err()
            {
                // The disk takes no more; the download's end says why.
                break;
            }
        }
        Ok(())
    }

    /// Waits as long as a server may be silent.
    async fn unless_silent<T>(
        &self,
        job: &Job,
        coming: impl Future<Output = T>,
    ) -> Result<T, Failure> {
        let Some(silence) = self.dialer.silence else { return Ok(coming.await) };
        let late = |_| lost(job, "nothing was heard from the server");
        let coming: Pin<Box<_>> = Box::pin(coming);
        timeout(silence, coming).await.map_err(late)
    }
}

fn lost(job: &Job, reason: &str) -> Failure {
    let url = &job.target.url;
    Failure::new(Kind::Connection, format!("{url}: {reason}; try again with --continue"))
}

/// HTTP/1.1 names the host in a field of its own (RFC 9112, Section 3.2).
fn origin_form<T>(mut request: Request<T>) -> Request<T> {
    let uri = request.uri().clone();
    let host = uri.authority().map_or("", |authority| authority.as_str());
    if let Ok(host) = header::HeaderValue::try_from(host) {
        request.headers_mut().insert(header::HOST, host);
    }
    let path = uri.path_and_query().cloned();
    *request.uri_mut() = path.map_or_else(Uri::default, Uri::from);
    request
}

fn report(
    authority: &Authority,
    remote: SocketAddr,
    tls: &rustls::ClientConnection,
    version: Version,
    handshake_seconds: Duration,
) -> ConnectionReport {
    let suite = tls.negotiated_cipher_suite().and_then(|suite| suite.suite().as_str());
    let group = tls.negotiated_key_exchange_group().and_then(|group| group.name().as_str());
    ConnectionReport {
        server: authority.to_string(),
        remote: remote.to_string(),
        transport: "tcp",
        quic_version: String::new(),
        alpn: if version == Version::HTTP_2 { "h2" } else { "http/1.1" }.to_owned(),
        cipher_suite: suite.unwrap_or_default(),
        key_exchange: group.unwrap_or_default(),
        resumed: false,
        early_data: EarlyData::NotOffered,
        encrypted: true,
        handshake_seconds,
        rtt_seconds: Duration::ZERO,
        mtu: 0,
        packets_sent: 0,
        packets_received: 0,
        packets_lost: 0,
        bytes_lost: 0,
        path_changes: 0,
        congestion_controller: "",
    }
}
