//! HTTP/3 by h3 over Quicket's sockets.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::{Buf, Bytes};
use h3::client::SendRequest;
use http::{Request, StatusCode};
use quicket::tokio::{Connection, Endpoint};
use quicket::{ClientConfig, ClientTls, KeyExchange, TransportConfig};
use quicket_h3::OpenStreams;
use quicket_workload::bench::{Failure, Link, SERVER_NAME, WINDOW};
use tokio::task::spawn_local;

use super::{Assignment, Version};
use crate::bench::network::unspecified_for;
use crate::bench::quicket::{link, suite};

/// How long a connection may be silent, as far as this side is concerned.
const IDLE: Duration = Duration::from_secs(300);

/// Makes connections, all of them from one socket.
pub(super) struct Dialer {
    to: SocketAddr,
    endpoint: Endpoint,
    config: ClientConfig,
}

impl Dialer {
    pub(super) async fn new(assignment: &Assignment) -> Result<Self, Failure> {
        let tls = ClientTls::builder()
            .ca_file(&assignment.roots)
            .alpn([Version::Three.alpn()])
            .cipher_suites(&[suite(assignment.conditions.cipher)])
            .key_exchange(&[KeyExchange::X25519])
            .build()?;
        let window = u64::from(WINDOW);
        let config = ClientConfig::new(tls).transport(TransportConfig {
            max_idle_timeout: IDLE,
            initial_stream_window: window,
            max_stream_window: window,
            initial_receive_window: window,
            max_receive_window: window,
            ..TransportConfig::default()
        });
        let endpoint = Endpoint::bind(unspecified_for(assignment.to)).await?;
        Ok(Self { to: assignment.to, endpoint, config })
    }

    pub(super) async fn connect(&self) -> Result<Three, Failure> {
        let connection = self.endpoint.connect(self.to, SERVER_NAME, &self.config).await?;
        let transport = quicket_h3::Connection::new(connection.clone());
        let (mut session, requests) = h3::client::new(transport).await?;
        spawn_local(async move { session.wait_idle().await });
        Ok(Three { connection, requests })
    }
}

/// A handle of a connection of HTTP/3.
#[derive(Clone)]
pub(super) struct Three {
    connection: Connection,
    requests: SendRequest<OpenStreams, Bytes>,
}

impl Three {
    pub(super) async fn get(
        &mut self,
        request: Request<()>,
        came: &mut dyn FnMut(&[u8]),
    ) -> Result<StatusCode, Failure> {
        let mut stream = self.requests.send_request(request).await?;
        stream.finish().await?;
        let status = stream.recv_response().await?.status();
        while let Some(mut data) = stream.recv_data().await? {
            while data.has_remaining() {
                let chunk = data.chunk();
                came(chunk);
                let length = chunk.len();
                data.advance(length);
            }
        }
        Ok(status)
    }

    pub(super) fn is_closed(&self) -> bool {
        self.connection.close_reason().is_some()
    }

    pub(super) fn link(&self) -> Link {
        link(self.connection.handshake(), &self.connection.stats())
    }
}
