//! Where streams and datagrams go.

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{UdpSocket, UnixStream};
use tokio::runtime::Handle;
use tokio::time::timeout;

use super::QuicOrigin;
use crate::carry::Socket;
use crate::resolve::{Names, Resolve, Resolver};

/// A host and a port.
#[derive(Clone, Debug)]
pub(crate) struct Authority {
    /// A name or an address, without brackets.
    pub(crate) host: String,
    pub(crate) port: u16,
    names: Arc<Names>,
}

impl PartialEq for Authority {
    fn eq(&self, other: &Self) -> bool {
        (&self.host, self.port) == (&other.host, other.port)
    }
}

impl Eq for Authority {}

impl Authority {
    /// Reads `SCHEME://HOST:PORT`.
    pub(crate) fn parse(text: &str, scheme: &str, resolver: &Arc<Resolver>) -> Option<Self> {
        let rest = text.strip_prefix(scheme)?.strip_prefix("://")?;
        let (host, port) = rest.rsplit_once(':')?;
        let port = port.parse().ok().filter(|&port| port > 0)?;
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let host = match bare {
            Some(bare) => bare.parse::<Ipv6Addr>().ok()?.to_string(),
            None => host.to_owned(),
        };
        let is_host = bare.is_some()
            || (!host.is_empty()
                && host.len() <= 253
                && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte)));
        is_host.then(|| {
            let resolve = Resolve { resolver: Arc::clone(resolver), most: None };
            let names = Names::new(&host, port, resolve);
            Self { host, port, names }
        })
    }

    /// Its addresses. Over UDP nothing tells whether somebody is there: all flows go to the same one.
    pub(super) async fn resolve(&self) -> io::Result<Vec<SocketAddr>> {
        self.names.in_order().await
    }

    /// A connection to one of them.
    pub(super) async fn connect_by<T, F>(&self, connect: impl Fn(SocketAddr) -> F) -> io::Result<T>
    where
        T: Send + 'static,
        F: Future<Output = io::Result<T>> + Send + 'static,
    {
        self.names.connect_by(connect).await
    }

    /// Those that are known now. Names are asked for by a task of `runtime`.
    pub(crate) fn known(&self, runtime: &Handle) -> Vec<SocketAddr> {
        self.names.now(runtime)
    }
}

impl fmt::Display for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port, .. } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

/// A server with sockets of streams.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Tcp(Authority),
    Unix(PathBuf),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(authority) => write!(f, "tcp://{authority}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl Place {
    /// Connects within `limit`.
    pub(crate) async fn connect(&self, limit: Duration) -> io::Result<Socket> {
        let connecting = async {
            Ok(match self {
                Self::Tcp(at) => Socket::from(at.names.connect().await?),
                Self::Unix(path) => Socket::from(UnixStream::connect(path).await?),
            })
        };
        timeout(limit, connecting).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }
}

/// A UDP socket that hears of nobody else.
pub(super) async fn connected_udp(to: &Authority, limit: Duration) -> io::Result<UdpSocket> {
    let connecting = async {
        let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
        for remote in to.resolve().await? {
            let any: SocketAddr = match remote {
                SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
                SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
            };
            let socket = UdpSocket::bind(any).await?;
            match socket.connect(remote).await {
                Ok(()) => {
                    // The runtime knows no earlier that there is room, and the first datagram would be lost.
                    socket.writable().await?;
                    return Ok(socket);
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    };
    timeout(limit, connecting).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

/// Where the connections of a protocol go.
#[derive(Debug)]
pub(crate) enum Origin {
    /// Streams and datagrams, each if there is somebody for them.
    Sockets { streams: Option<Place>, datagrams: Option<Authority> },
    /// Another connection of QUIC, for all of it.
    Quic(QuicOrigin),
}

impl Origin {
    /// True if the other is at the same place.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        match (self, other) {
            (
                Self::Sockets { streams, datagrams },
                Self::Sockets { streams: other_streams, datagrams: other_datagrams },
            ) => (streams, datagrams) == (other_streams, other_datagrams),
            (Self::Quic(origin), Self::Quic(other)) => origin.is_at(other),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn authorities_are_read() {
        let resolver = Resolve::default().resolver;
        let parse = |text| Authority::parse(text, "tcp", &resolver).map(|at| at.to_string());
        assert_eq!(parse("tcp://a.example:80").as_deref(), Some("a.example:80"));
        assert_eq!(parse("tcp://[::1]:80").as_deref(), Some("[::1]:80"));
        for wrong in [
            "",
            "tcp://a",
            "tcp://a:0",
            "udp://a:1",
            "tcp://:1",
            "tcp://a:x",
            "tcp://[a]:1",
            "tcp://a/b:1",
        ] {
            assert_eq!(parse(wrong), None, "{wrong:?}");
        }
    }
}
