//! QUIC to servers of HTTP/3: where connections start, and what they may hold.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use quicket::tokio::{Connection, Endpoint};
use quicket::{ClientConfig, ClientTls, TransportConfig};
use tokio::sync::OnceCell;

/// What a server may send ahead on one request, in bytes.
const STREAM_WINDOW: u64 = 256 << 10;
/// ... and on all requests of a connection: as much as a hundred that are taken slowly hold.
const CONNECTION_WINDOW: u64 = 25 << 20;
/// What of a request's body waits to be sent or acknowledged, in bytes.
const SEND_BUFFER: usize = 1 << 20;
/// ... and of all of a connection.
const CONNECTION_SEND_BUFFER: usize = 16 << 20;
/// Streams of a server beside its answers: control, two of QPACK, and some that mean nothing.
const MAX_STREAMS: u64 = 8;
/// A server that is silent so long is gone ...
const MAX_SILENCE: Duration = Duration::from_secs(20);
/// ... and is asked so often whether it is there.
const KEEP_ALIVE: Duration = Duration::from_secs(8);

/// How servers of an origin are reached over QUIC. The endpoints are shared by all of them.
pub(super) struct Quic {
    config: ClientConfig,
    v4: OnceCell<Endpoint>,
    v6: OnceCell<Endpoint>,
}

impl Quic {
    pub(super) fn new(tls: ClientTls) -> Self {
        let transport = TransportConfig {
            max_idle_timeout: MAX_SILENCE,
            keep_alive: KEEP_ALIVE,
            initial_stream_window: STREAM_WINDOW,
            max_stream_window: STREAM_WINDOW,
            // All of it from the beginning: it grows with what is taken, and slow clients would take that from others.
            initial_receive_window: CONNECTION_WINDOW,
            max_receive_window: CONNECTION_WINDOW,
            max_streams_bidi: 0,
            max_streams_uni: MAX_STREAMS,
            stream_send_buffer: SEND_BUFFER,
            send_buffer: CONNECTION_SEND_BUFFER,
            ..TransportConfig::default()
        };
        let config = ClientConfig::new(tls).transport(transport);
        Self { config, v4: OnceCell::new(), v6: OnceCell::new() }
    }

    /// A connection to a server that proves to have this name.
    pub(super) async fn connect(&self, remote: SocketAddr, name: &str) -> io::Result<Connection> {
        let (endpoint, any): (_, SocketAddr) = match remote {
            SocketAddr::V4(_) => (&self.v4, (Ipv4Addr::UNSPECIFIED, 0).into()),
            SocketAddr::V6(_) => (&self.v6, (Ipv6Addr::UNSPECIFIED, 0).into()),
        };
        let endpoint = endpoint.get_or_try_init(|| Endpoint::bind(any)).await;
        let connecting = endpoint.map_err(io::Error::other)?.connect(remote, name, &self.config);
        // The sources of the error say less than it does.
        connecting.await.map_err(|error| io::Error::other(error.to_string()))
    }
}
