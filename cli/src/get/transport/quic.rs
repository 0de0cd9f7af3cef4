//! HTTP over QUIC: HTTP/3, and HTTP/0.9 as in interoperability tests.

use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use quicket::tokio::{Connection, Endpoint};
use quicket::{ConnectError, ConnectionError, TransportErrorCode};
use quicket_client::http3::Http3;
use tokio::task::JoinHandle;

use crate::args::Protocol;
use crate::exit::{Failure, Kind};
use crate::get::download::{Answered, Job};
use crate::get::report::{ConnectionReport, EarlyData};
use crate::get::target::Authority;
use crate::get::{Run, http3, http09};
use crate::trust;

/// How long a closed connection waits at most for packets that cross its goodbye.
const GOODBYE: Duration = Duration::from_millis(500);
/// ... and at least.
const SHORT_GOODBYE: Duration = Duration::from_millis(1);
/// What HTTP/0.9 closes connections with.
const NO_ERROR: u64 = 0;

/// A connection to a server.
pub(crate) struct Link {
    endpoint: Endpoint,
    connection: Connection,
    authority: Authority,
    remote: SocketAddr,
    /// How long the handshake took.
    handshake: JoinHandle<Duration>,
    /// For HTTP/3.
    requests: Option<Http3>,
}

impl Link {
    /// The handshake is complete.
    pub(crate) fn is_established(&self) -> bool {
        self.connection.handshake().is_some()
    }

    /// For `--verbose`: what was settled, as far as it is known.
    pub(crate) fn described(&self) -> String {
        let connection = &self.connection;
        let version = connection.version();
        match connection.handshake() {
            None => format!("* {version}: sending requests as 0-RTT data"),
            Some(handshake) => format!(
                "* connected: {version}, TLS 1.3, {}, {}, ALPN {}, {}",
                handshake.cipher_suite,
                handshake.key_exchange,
                handshake.alpn.escape_ascii(),
                if handshake.resumed { "session resumed" } else { "new session" },
            ),
        }
    }

    pub(in crate::get) async fn open(
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
            Protocol::H3 => Some(Http3::open(connection.clone()).await?),
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
    ) -> impl Future<Output = Result<Answered, Failure>> + Send + use<> {
        let (connection, requests) = (self.connection.clone(), self.requests.clone());
        let (authority, remote) = (self.authority.clone(), self.remote);
        async move {
            if !job.order.is_safe() {
                // What changes something must not be sent as 0-RTT data, which can be repeated
                // (RFC 8470, Section 4). How it came out is asked below.
                let _ = connection.wait_established().await;
            }
            let fetched = match requests {
                Some(requests) => http3::fetch(&requests, &job, &run.progress).await,
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
        // It is out by now. What the server sends before it hears of it is answered the same way
        // (RFC 9000, Section 10.2.1), and comes within a round trip; the three probe timeouts
        // that an endpoint waits otherwise would be most of what a small file takes. Where the
        // server hears nothing, it will notice by itself.
        let _ = tokio::time::timeout(goodbye(report.rtt_seconds), self.endpoint.wait_idle()).await;
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
            transport: "quic",
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
            path_changes: stats.counters.path_changes,
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

/// How long to stay after closing a connection whose round trip takes `rtt`.
fn goodbye(rtt: Duration) -> Duration {
    (rtt * 2).clamp(SHORT_GOODBYE, GOODBYE)
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
    let url = job.target.shown();
    Some(Failure::new(Kind::Connection, format!("{url}: {reason}; try again with --continue")))
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
pub(in crate::get) fn failure(
    error: &ConnectError,
    authority: &Authority,
    remote: SocketAddr,
) -> Failure {
    let (kind, hint) = match error {
        ConnectError::Bind(_) | ConnectError::AddressFamily(_) => (Kind::Environment, ""),
        ConnectError::Invalid(_) => (Kind::Usage, ""),
        ConnectError::Handshake(error) => match trust::hint(error.alert.0) {
            Some(hint) => (Kind::Trust, hint),
            None => (Kind::Connection, ""),
        },
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_goodbye_takes_as_long_as_answers_are_on_their_way() {
        let millis = Duration::from_millis;
        assert_eq!(goodbye(Duration::from_micros(50)), SHORT_GOODBYE);
        assert_eq!(goodbye(millis(30)), millis(60));
        assert_eq!(goodbye(Duration::from_secs(3)), GOODBYE);
    }
}
