//! Connections to a server: TCP and Unix sockets, with TLS or without, and QUIC.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use quicket::ClientTls;
use quicket::tokio::Connection;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::place::{At, Place, Protocol};
use super::tls::Tls;
use crate::resolve::{Names, Resolve};
use crate::tunnel::Abort;

/// How a server is reached.
#[derive(Debug)]
pub(super) struct Dialer {
    pub(super) place: Place,
    pub(super) tls: Option<Arc<Tls>>,
    pub(super) timeout: Duration,
    /// The addresses; none for a Unix socket.
    names: Option<Arc<Names>>,
    /// How they are found.
    resolve: Resolve,
}

/// A connection that was made.
pub(super) struct Dialed {
    pub(super) link: Link,
    /// It speaks HTTP/2.
    pub(super) is_two: bool,
    /// Whom it leads to; nothing for a Unix socket.
    pub(super) address: Option<SocketAddr>,
}

/// A connection of any kind.
pub(super) struct Link {
    stream: Box<dyn Stream>,
    abort: Abort,
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {
    /// Its end is to be a reset, where it can be.
    fn reset(&self) {}
}

impl Stream for UnixStream {}

impl Stream for TcpStream {
    fn reset(&self) {
        // Of one that has ended there is nothing to be reset.
        let _ = self.set_zero_linger();
    }
}

impl Stream for TlsStream<TcpStream> {
    fn reset(&self) {
        self.get_ref().0.reset();
    }
}

#[cfg(test)]
impl Stream for tokio::io::DuplexStream {}

impl Link {
    fn new(stream: impl Stream + 'static) -> Self {
        Self { stream: Box::new(stream), abort: Abort::default() }
    }

    /// Has it end with a reset.
    pub(super) fn abort(&self) -> Abort {
        self.abort.clone()
    }

    #[cfg(test)]
    pub(super) fn of(stream: tokio::io::DuplexStream) -> Self {
        Self::new(stream)
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        if self.abort.is_set() {
            self.stream.reset();
        }
    }
}

impl Dialer {
    pub(super) fn new(
        place: &Place,
        tls: Option<&Arc<Tls>>,
        timeout: Duration,
        resolve: &Resolve,
    ) -> Self {
        let names = match &place.at {
            At::Host(host, port) => Some(Names::new(host, *port, resolve.clone())),
            At::Unix(_) => None,
        };
        Self { place: place.clone(), tls: tls.cloned(), timeout, names, resolve: resolve.clone() }
    }

    /// False for a connection to an address that the server's name leads to no more.
    pub(super) fn leads_to(&self, address: Option<SocketAddr>) -> bool {
        match (&self.names, address) {
            (Some(names), Some(address)) => names.leads_to(address),
            _ => true,
        }
    }

    /// A connection. `only_one` asks for HTTP/1.1, where there is a choice.
    pub(super) async fn dial(&self, only_one: bool) -> io::Result<Dialed> {
        self.in_time(self.connect(only_one)).await
    }

    async fn in_time<T>(&self, connecting: impl Future<Output = io::Result<T>>) -> io::Result<T> {
        let limit = self.timeout;
        tokio::time::timeout(limit, connecting).await.unwrap_or_else(|_| {
            let message = format!("no connection within {} ms", limit.as_millis());
            Err(io::Error::new(io::ErrorKind::TimedOut, message))
        })
    }

    async fn connect(&self, only_one: bool) -> io::Result<Dialed> {
        let is_two = self.is_always_two();
        let plain = |link, address| Ok(Dialed { link, is_two, address });
        let Some(names) = &self.names else {
            let At::Unix(path) = &self.place.at else {
                return Err(io::Error::other("a host without a name"));
            };
            return plain(Link::new(UnixStream::connect(path).await?), None);
        };
        let stream = names.connect().await?;
        stream.set_nodelay(true)?;
        let address = Some(stream.peer_addr()?);
        if !self.place.is_tls() {
            return plain(Link::new(stream), address);
        }
        let Some(tls) = &self.tls else {
            return Err(io::Error::other("a server over TLS without rules whom to trust"));
        };
        let (link, is_two) = self.secure(tls, stream, only_one).await?;
        Ok(Dialed { link, is_two, address })
    }

    /// A connection of QUIC to a server that speaks HTTP/3, and whom it leads to.
    pub(super) async fn dial_quic(&self) -> io::Result<(Connection, SocketAddr)> {
        let (Some(names), Some(tls)) = (&self.names, &self.tls) else {
            return Err(io::Error::other("a server of HTTP/3 without a name or TLS"));
        };
        let name = tls.server_name(self.place.host()).map_err(io::Error::other)?;
        let name: Arc<str> = name.to_str().into();
        let connecting = names.connect_by(|address| {
            let (quic, name) = (Arc::clone(&tls.quic), Arc::clone(&name));
            async move { Ok((quic.connect(address, &name).await?, address)) }
        });
        self.in_time(connecting).await
    }

    async fn secure(
        &self,
        tls: &Tls,
        stream: TcpStream,
        only_one: bool,
    ) -> io::Result<(Link, bool)> {
        let config = if only_one { &tls.only_one } else { &tls.any };
        let host = self.place.host();
        let name = tls.server_name(host).map_err(io::Error::other)?;
        let said = name.to_str().into_owned();
        let connector = TlsConnector::from(Arc::clone(config));
        let stream =
            connector.connect(name, stream).await.map_err(|error| explain(error, &said))?;
        let is_two = stream.get_ref().1.alpn_protocol() == Some(b"h2");
        Ok((Link::new(stream), is_two))
    }

    /// Whether it speaks HTTP/3 and nothing else.
    pub(super) fn is_three(&self) -> bool {
        self.place.protocol == Protocol::Three
    }

    /// Whether it speaks HTTP/2 and nothing else.
    pub(super) fn is_always_two(&self) -> bool {
        self.place.protocol == Protocol::PlainTwo
    }

    /// True if connections of the other are as good as its own.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        let is_same_tls = match (&self.tls, &other.tls) {
            (Some(tls), Some(other)) => tls.is_like(other),
            (None, None) => true,
            _ => !self.place.is_tls(),
        };
        let is_same_wait = (self.timeout, &self.resolve) == (other.timeout, &other.resolve);
        self.place == other.place && is_same_wait && is_same_tls
    }
}

/// Says what TLS found, and what can be done.
fn explain(error: io::Error, server_name: &str) -> io::Error {
    let found = error.get_ref().and_then(|error| error.downcast_ref());
    match found {
        Some(found) => io::Error::other(ClientTls::explain(found, server_name)),
        None => error,
    }
}

impl AsyncRead for Link {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Link {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }
}
