//! Connections to servers.

use std::fmt;
use std::future::{Future, poll_fn};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use quicket::tokio::{Connection, Endpoint};
use quicket::{
    ClientConfig, ClientTls, ConnectError, ConnectionError, FileSessionStore, Qlog,
    TransportErrorCode,
};
use quicket_h3::OpenStreams;
use tokio::net::lookup_host;
use tokio::task::JoinHandle;

use super::download::{Fetched, Job};
use super::report::{ConnectionReport, EarlyData};
use super::target::Authority;
use super::{Run, http3, http09};
use crate::args::{Get, Protocol};
use crate::exit::{Failure, Kind};
use crate::{places, transport};

/// How long a closed connection may take to tell the server so.
const GOODBYE: Duration = Duration::from_millis(500);
/// What HTTP/0.9 closes connections with.
const NO_ERROR: u64 = 0;

type SendRequest = h3::client::SendRequest<OpenStreams, Bytes>;

/// Makes connections.
pub(crate) struct Linker {
    h3: ClientConfig,
    hq: ClientConfig,
    qlog: Option<Qlog>,
    early_data: bool,
    connect: Option<SocketAddr>,
}

impl Linker {
    pub(crate) fn new(args: &Get) -> Result<Self, Failure> {
        transport::warn(&args.transport);
        if args.trust.insecure_no_verify {
            eprintln!("WARNING: --insecure-no-verify: whoever answers is taken for the server");
        }
        let qlog = transport::qlog(&args.transport)?;
        Ok(Self {
            h3: config(args, Protocol::H3, qlog.as_ref())?,
            hq: config(args, Protocol::HqInterop, qlog.as_ref())?,
            qlog,
            early_data: !args.no_zero_rtt && !args.no_sessions,
            connect: args.connect,
        })
    }

    /// Waits until everything that is logged is on the disk.
    pub(crate) fn flush(&self) {
        if let Some(qlog) = &self.qlog {
            qlog.flush();
        }
    }

    /// Connects to a server. With 0-RTT the handshake is still under way then.
    pub(crate) async fn connect(&self, authority: &Authority) -> Result<Link, Failure> {
        let mut last = None;
        for remote in self.addresses(authority).await? {
            match self.attempt(remote, authority).await {
                Ok(link) => return Ok(link),
                Err(error) => last = Some(failure(&error, authority, remote)),
            }
        }
        Err(last.unwrap_or_else(|| {
            Failure::new(Kind::Connection, format!("{} has no address", authority.host))
        }))
    }

    async fn addresses(&self, authority: &Authority) -> Result<Vec<SocketAddr>, Failure> {
        if let Some(address) = self.connect {
            return Ok(vec![address]);
        }
        let found = lookup_host((authority.host.as_str(), authority.port)).await;
        found.map(Iterator::collect).map_err(|error| {
            let error = error.to_string();
            // What the standard library puts before the system's words.
            let reason = error.trim_start_matches("failed to lookup address information: ");
            let host = &authority.host;
            let message = format!(
                "{host} cannot be looked up: {reason}; is the name right, and is there a network?"
            );
            Failure::new(Kind::Connection, message)
        })
    }

    async fn attempt(
        &self,
        remote: SocketAddr,
        authority: &Authority,
    ) -> Result<Link, ConnectError> {
        let config = match authority.protocol {
            Protocol::H3 => &self.h3,
            Protocol::HqInterop => &self.hq,
        };
        let any: IpAddr = match remote {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let endpoint = Endpoint::bind((any, 0)).await?;
        let begun = Instant::now();
        if self.early_data {
            let connection = endpoint.connect_early(remote, &authority.host, config)?;
            if connection.early_data() == quicket::EarlyData::Offered {
                return Link::open(endpoint, connection, authority, remote, begun).await;
            }
            match connection.wait_established().await {
                Ok(()) => return Link::open(endpoint, connection, authority, remote, begun).await,
                Err(ConnectError::Lost(ConnectionError::VersionNegotiation { .. })) => {}
                Err(error) => return Err(error),
            }
        }
        let connection = endpoint.connect(remote, &authority.host, config).await?;
        Link::open(endpoint, connection, authority, remote, begun).await
    }
}

/// The configuration of connections that speak one protocol.
fn config(args: &Get, protocol: Protocol, qlog: Option<&Qlog>) -> Result<ClientConfig, Failure> {
    let mut tls = ClientTls::builder().alpn([protocol.alpn()]);
    let trust = &args.trust;
    if let Some(ca) = &trust.ca {
        tls = tls.ca_file(ca);
    } else if !trust.pin.is_empty() {
        tls = tls.pinned(trust.pin.iter().copied());
    } else if trust.insecure_no_verify {
        tls = tls.dangerous_no_verification();
    }
    if let Some(log) = transport::key_log(args.transport.keylog.as_deref())? {
        tls = tls.key_log(log);
    }
    let tls = tls.build().map_err(|error| Failure::new(Kind::Environment, error.to_string()))?;
    let mut config = ClientConfig::new(tls).transport(transport::config(&args.transport));
    if let Some(qlog) = qlog {
        config = config.qlog(qlog.clone());
    }
    if args.no_sessions {
        return Ok(config);
    }
    let dir = match &args.sessions {
        Some(dir) => dir.clone(),
        None => places::state()?.join("sessions"),
    };
    // A session is good for one protocol only.
    let dir = dir.join(protocol.alpn());
    let store = FileSessionStore::open(&dir).map_err(|error| {
        Failure::environment(format!("cannot keep sessions in {}", dir.display()), error)
    })?;
    Ok(config.sessions(Arc::new(store)))
}

/// A server, with its address if that says more.
struct Peer<'a>(&'a Authority, SocketAddr);

impl fmt::Display for Peer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(authority, remote) = self;
        write!(f, "{authority}")?;
        if authority.to_string() == remote.to_string() { Ok(()) } else { write!(f, " ({remote})") }
    }
}

/// Why there is no connection, and what can be done.
fn failure(error: &ConnectError, authority: &Authority, remote: SocketAddr) -> Failure {
    let (kind, hint) = match error {
        ConnectError::Bind(_) | ConnectError::AddressFamily(_) => (Kind::Environment, ""),
        ConnectError::Invalid(_) => (Kind::Usage, ""),
        ConnectError::Handshake(error) if is_distrust(error.alert.0) => (
            Kind::Trust,
            "; if you know this server, name its CA with --ca, or its own certificate with --pin",
        ),
        ConnectError::Lost(ConnectionError::PeerTransport { code, .. })
            if *code == TransportErrorCode::CONNECTION_REFUSED =>
        {
            (Kind::Connection, "; the server is there but takes no connections now, try later")
        }
        ConnectError::Lost(ConnectionError::HandshakeTimeout | ConnectionError::IdleTimeout) => {
            (Kind::Connection, "; is there a server with HTTP/3 on this UDP port?")
        }
        _ => (Kind::Connection, ""),
    };
    Failure::new(kind, format!("{}: {error}{hint}", Peer(authority, remote)))
}

/// Alerts that say that a certificate is not good enough (RFC 8446, Section 6.2): bad_certificate
/// to certificate_unknown, unknown_ca, access_denied.
const fn is_distrust(alert: u8) -> bool {
    matches!(alert, 42..=46 | 48 | 49)
}

/// A connection to a server.
pub(crate) struct Link {
    endpoint: Endpoint,
    connection: Connection,
    authority: Authority,
    remote: SocketAddr,
    /// How long the handshake took.
    handshake: JoinHandle<Duration>,
    /// For HTTP/3.
    requests: Option<SendRequest>,
}

impl Link {
    async fn open(
        endpoint: Endpoint,
        connection: Connection,
        authority: &Authority,
        remote: SocketAddr,
        begun: Instant,
    ) -> Result<Self, ConnectError> {
        let established = connection.clone();
        let handshake = tokio::spawn(async move {
            // How it came out is asked where it matters.
            let _ = established.wait_established().await;
            begun.elapsed()
        });
        let requests = match authority.protocol {
            Protocol::H3 => Some(requests(&connection).await?),
            Protocol::HqInterop => None,
        };
        let authority = authority.clone();
        Ok(Self { endpoint, connection, authority, remote, handshake, requests })
    }

    /// Fetches a file.
    pub(crate) fn fetch(
        &self,
        job: Job,
        run: Arc<Run>,
    ) -> impl Future<Output = Result<Fetched, Failure>> + Send + use<> {
        let (connection, requests) = (self.connection.clone(), self.requests.clone());
        let (authority, remote) = (self.authority.clone(), self.remote);
        async move {
            let fetched = match requests {
                Some(mut requests) => http3::fetch(&mut requests, &job, &run.progress).await,
                None => match connection.open_bi().await {
                    Ok(stream) => {
                        let (mut send, mut recv) = stream.split();
                        http09::fetch(&mut send, &mut recv, &job, &run.progress).await
                    }
                    Err(error) => Err(Failure::new(Kind::Connection, error.to_string())),
                },
            };
            match fetched {
                Err(failure) if failure.kind == Kind::Connection => {
                    Err(cause(&connection, &authority, remote, &job).await.unwrap_or(failure))
                }
                fetched => fetched,
            }
        }
    }

    /// Closes the connection; what is to be said of it.
    pub(crate) async fn close(mut self) -> ConnectionReport {
        // It is over by now, for better or worse.
        let handshake = (&mut self.handshake).await.unwrap_or_default();
        let report = self.report(handshake);
        let code = match self.authority.protocol {
            Protocol::H3 => h3::error::Code::H3_NO_ERROR.value(),
            Protocol::HqInterop => NO_ERROR,
        };
        self.connection.close(code, b"");
        // Where the server does not hear it, it will notice by itself.
        let _ = tokio::time::timeout(GOODBYE, self.endpoint.wait_idle()).await;
        report
    }

    fn report(&self, handshake_seconds: Duration) -> ConnectionReport {
        let connection = &self.connection;
        let stats = connection.stats();
        let handshake = connection.handshake();
        let handshake = handshake.as_ref();
        ConnectionReport {
            server: self.authority.to_string(),
            remote: self.remote.to_string(),
            quic_version: connection.version().to_string(),
            alpn: handshake.map_or_else(String::new, |it| it.alpn.escape_ascii().to_string()),
            cipher_suite: handshake.map_or("", |it| it.cipher_suite),
            key_exchange: handshake.map_or("", |it| it.key_exchange),
            resumed: handshake.is_some_and(|it| it.resumed),
            early_data: match connection.early_data() {
                quicket::EarlyData::Accepted => EarlyData::Accepted,
                quicket::EarlyData::Rejected => EarlyData::Rejected,
                _ => EarlyData::NotOffered,
            },
            encrypted: !connection.is_encryption_disabled(),
            handshake_seconds,
            rtt_seconds: stats.path.smoothed_rtt,
            mtu: stats.path.mtu,
            packets_sent: stats.counters.packets_sent,
            packets_received: stats.counters.packets_received,
            packets_lost: stats.counters.packets_lost,
            bytes_lost: stats.counters.bytes_lost,
            congestion_controller: stats.path.congestion_controller,
        }
    }
}

impl Drop for Link {
    /// The server hears it at once when this program is interrupted, and in so many words.
    fn drop(&mut self) {
        // Without effect where it is closed already.
        self.connection.close(h3::error::Code::H3_REQUEST_CANCELLED.value(), b"interrupted");
    }
}

/// Starts HTTP/3 on a connection.
async fn requests(connection: &Connection) -> Result<SendRequest, ConnectError> {
    let transport = quicket_h3::Connection::new(connection.clone());
    let (mut driver, requests) =
        h3::client::builder().build(transport).await.map_err(|_| ended(connection))?;
    tokio::spawn(async move { poll_fn(|cx| driver.poll_close(cx)).await });
    Ok(requests)
}

/// The end of a connection on which nothing more can be done.
fn ended(connection: &Connection) -> ConnectError {
    connection.close_reason().map_or(ConnectError::EndpointClosed, ConnectError::Lost)
}

/// Why a download failed, if that is because the connection ended: the connection knows better
/// than the stream.
async fn cause(
    connection: &Connection,
    authority: &Authority,
    remote: SocketAddr,
    job: &Job,
) -> Option<Failure> {
    let reason = connection.close_reason()?;
    if let Err(error) = connection.wait_established().await {
        return Some(failure(&error, authority, remote));
    }
    let url = &job.target.url;
    Some(Failure::new(Kind::Connection, format!("{url}: {reason}; try again with --continue")))
}
