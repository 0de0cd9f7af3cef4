//! Connections to the server.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use quicket::tokio::{Connection, Endpoint};
use quicket::{ClientConfig, ConnectError, EarlyData};
use tokio::net::lookup_host;

use super::{Error, Event, Say};

/// The server, and how it is known.
#[derive(Clone, Debug)]
pub struct Server {
    /// A name, resolved for each connection, or an address without brackets.
    pub host: String,
    /// Its UDP port.
    pub port: u16,
    /// What its certificate must name.
    pub name: String,
    /// Whom to trust, the protocol to ask for, and timeouts.
    pub config: ClientConfig,
    /// Streams may begin before the handshake is complete, as 0-RTT data, which an attacker can repeat.
    pub early_data: bool,
}

impl Server {
    /// Connects to the first of the server's addresses that answers.
    pub(super) async fn connect(&self, early: bool, say: &Say) -> Result<Connection, Error> {
        let mut remote = None;
        let tried = self.try_all(early, &mut remote).await;
        let connection =
            tried.map_err(|error| Error::Connect { server: self.to_string(), remote, error })?;
        // What comes from sockets goes in the pieces in which it was sent.
        connection.set_nodelay(true);
        let early = connection.handshake().is_none();
        say(&Event::Connected { remote: connection.remote_addr(), early });
        Ok(connection)
    }

    async fn try_all(
        &self,
        early: bool,
        tried: &mut Option<SocketAddr>,
    ) -> Result<Connection, ConnectError> {
        let mut last = ConnectError::Resolve(std::io::ErrorKind::AddrNotAvailable.into());
        let found = lookup_host((self.host.as_str(), self.port)).await;
        for remote in found.map_err(ConnectError::Resolve)? {
            *tried = Some(remote);
            match self.attempt(remote, early && self.early_data).await {
                Ok(connection) => return Ok(connection),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    async fn attempt(&self, remote: SocketAddr, early: bool) -> Result<Connection, ConnectError> {
        let any: SocketAddr = match remote {
            SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
            SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
        };
        let endpoint = Endpoint::bind(any).await?;
        if !early {
            return endpoint.connect(remote, &self.name, &self.config).await;
        }
        let connection = endpoint.connect_early(remote, &self.name, &self.config)?;
        if connection.early_data() != EarlyData::Offered {
            connection.wait_established().await?;
        }
        Ok(connection)
    }
}

impl std::fmt::Display for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { host, port, .. } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}
