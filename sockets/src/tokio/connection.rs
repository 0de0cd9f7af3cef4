//! Connections.

use std::fmt;
use std::task::Poll;

use ::tokio::net::ToSocketAddrs;
use quicket_engine::{ConnectionError, WhenFull};
use quicket_wire::{Dir, StreamId};

use super::{Acceptor, Endpoint, RecvStream, SendStream, Stream};
use crate::common::{connection_methods, unspecified_for};
use crate::config::ClientConfig;
use crate::core::{ConnRef, Effect, Interest, Waiter, WaiterId};
use crate::error::{AcceptError, ConnectError, DatagramError, OpenError};
use crate::ops::now_or;
use crate::waiting::wait;

/// A QUIC connection.
///
/// Clones lead to the same connection. When the last of them and of its streams is dropped, what
/// was written is still delivered in the background and the connection then closed with code 0;
/// [`Connection::close`] does so at once.
#[derive(Clone)]
pub struct Connection {
    conn: ConnRef,
}

impl Connection {
    pub(super) const fn new(conn: ConnRef) -> Self {
        Self { conn }
    }

    /// Connects to a server from a socket of its own and waits for the handshake. Tries the
    /// addresses of `remote` in turn. `server_name` is what the server's certificate must name.
    ///
    /// To have several connections share a socket, use [`Endpoint::connect`].
    ///
    /// Not cancel safe: when the future is dropped, the attempt is given up.
    ///
    /// # Errors
    ///
    /// If there is no such address, no socket, or no good end of the handshake: that of the last
    /// address.
    pub async fn connect(
        remote: impl ToSocketAddrs,
        server_name: &str,
        config: &ClientConfig,
    ) -> Result<Self, ConnectError> {
        let mut last = ConnectError::Resolve(std::io::ErrorKind::AddrNotAvailable.into());
        for remote in ::tokio::net::lookup_host(remote).await.map_err(ConnectError::Resolve)? {
            let endpoint = Endpoint::bind(unspecified_for(remote)).await?;
            match endpoint.connect(remote, server_name, config).await {
                Ok(connection) => return Ok(connection),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Like [`Connection::connect`], without waiting for the handshake. With a session from an
    /// earlier connection ([`ClientConfig::sessions`]), streams can be opened and written at
    /// once and go out with the first packets (0-RTT). **An attacker can replay that data**
    /// (RFC 9001, Section 9.2): send only requests that may be repeated. Without such a session,
    /// opening a stream waits for the handshake.
    ///
    /// Not cancel safe: when the future is dropped, the attempt is given up.
    ///
    /// # Errors
    ///
    /// Like [`Connection::connect`], as far as the handshake is not concerned.
    pub async fn connect_early(
        remote: impl ToSocketAddrs,
        server_name: &str,
        config: &ClientConfig,
    ) -> Result<Self, ConnectError> {
        let mut last = ConnectError::Resolve(std::io::ErrorKind::AddrNotAvailable.into());
        for remote in ::tokio::net::lookup_host(remote).await.map_err(ConnectError::Resolve)? {
            let endpoint = Endpoint::bind(unspecified_for(remote)).await?;
            match endpoint.connect_early(remote, server_name, config) {
                Ok(connection) => return Ok(connection),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// The same connection for the blocking API.
    pub fn blocking(&self) -> crate::Connection {
        crate::Connection::new(self.conn.clone())
    }

    /// Waits until the handshake is complete.
    ///
    /// Cancel safe: when the future is dropped, the handshake goes on.
    ///
    /// # Errors
    ///
    /// If it comes to nothing.
    pub async fn wait_established(&self) -> Result<(), ConnectError> {
        self.wait(Interest::Established, |waiter| self.conn.poll_established(Some(waiter))).await
    }

    /// Opens a bidirectional stream; waits until the peer allows another.
    ///
    /// Cancel safe: when the future is dropped before it is ready, nothing has happened.
    ///
    /// # Errors
    ///
    /// If the connection ended.
    pub async fn open_bi(&self) -> Result<Stream, OpenError> {
        let id = self.wait_open(Dir::Bidi).await?;
        Ok(self.stream(id, false))
    }

    /// Opens a unidirectional stream; waits until the peer allows another.
    ///
    /// Cancel safe: when the future is dropped before it is ready, nothing has happened.
    ///
    /// # Errors
    ///
    /// If the connection ended.
    pub async fn open_uni(&self) -> Result<SendStream, OpenError> {
        let id = self.wait_open(Dir::Uni).await?;
        Ok(SendStream::new(self.conn.clone(), id))
    }

    /// Like [`Connection::open_bi`], without waiting.
    ///
    /// # Errors
    ///
    /// Like [`Connection::open_bi`]; [`OpenError::WouldBlock`] if the peer allows none now.
    pub fn try_open_bi(&self) -> Result<Stream, OpenError> {
        let id = now_or(self.conn.poll_open(Dir::Bidi, None), OpenError::WouldBlock)?;
        Ok(self.stream(id, false))
    }

    /// Like [`Connection::open_uni`], without waiting.
    ///
    /// # Errors
    ///
    /// Like [`Connection::open_uni`]; [`OpenError::WouldBlock`] if the peer allows none now.
    pub fn try_open_uni(&self) -> Result<SendStream, OpenError> {
        let id = now_or(self.conn.poll_open(Dir::Uni, None), OpenError::WouldBlock)?;
        Ok(SendStream::new(self.conn.clone(), id))
    }

    /// Waits for the peer to open a bidirectional stream.
    ///
    /// Cancel safe: no stream is lost when the future is dropped before it is ready.
    ///
    /// # Errors
    ///
    /// If the connection ended.
    pub async fn accept_bi(&self) -> Result<Stream, AcceptError> {
        let accepting = |waiter: Waiter<'_>| self.poll_accept_bi(waiter);
        self.wait(Interest::Accept(Dir::Bidi), accepting).await
    }

    /// Waits for the peer to open a unidirectional stream.
    ///
    /// Cancel safe: no stream is lost when the future is dropped before it is ready.
    ///
    /// # Errors
    ///
    /// If the connection ended.
    pub async fn accept_uni(&self) -> Result<RecvStream, AcceptError> {
        let accepting = |waiter: Waiter<'_>| self.poll_accept_uni(waiter);
        self.wait(Interest::Accept(Dir::Uni), accepting).await
    }

    /// Takes the streams that the peer opens, for those who poll.
    pub fn acceptor(&self) -> Acceptor {
        Acceptor::new(self.clone())
    }

    /// Sends an unreliable datagram (RFC 9221); waits while too many wait to be sent.
    ///
    /// Cancel safe: when the future is dropped before it is ready, nothing has happened.
    ///
    /// # Errors
    ///
    /// If the peer takes none, it is too large, or the connection ended.
    pub async fn send_datagram(&self, data: &[u8]) -> Result<(), DatagramError> {
        self.wait(Interest::SendDatagram, |waiter| {
            self.conn.poll_send_datagram(data, WhenFull::Block, Effect::Now, Some(waiter))
        })
        .await
    }

    /// Like [`Connection::send_datagram`], without waiting.
    ///
    /// # Errors
    ///
    /// Like [`Connection::send_datagram`]; [`DatagramError::WouldBlock`] if there is no room.
    pub fn try_send_datagram(&self, data: &[u8]) -> Result<(), DatagramError> {
        let poll = self.conn.poll_send_datagram(data, WhenFull::Block, Effect::Now, None);
        now_or(poll, DatagramError::WouldBlock)
    }

    /// Like [`Connection::try_send_datagram`], but makes room by dropping the oldest datagrams
    /// that wait to be sent, for data that is of no use when late.
    ///
    /// # Errors
    ///
    /// Like [`Connection::send_datagram`]; [`DatagramError::WouldBlock`] before the handshake.
    pub fn send_latest_datagram(&self, data: &[u8]) -> Result<(), DatagramError> {
        let poll = self.conn.poll_send_datagram(data, WhenFull::DropOldest, Effect::Now, None);
        now_or(poll, DatagramError::WouldBlock)
    }

    /// Waits for a datagram.
    ///
    /// Cancel safe: no datagram is lost when the future is dropped before it is ready.
    ///
    /// # Errors
    ///
    /// If the connection ended.
    pub async fn recv_datagram(&self) -> Result<Vec<u8>, DatagramError> {
        self.wait(Interest::ReceiveDatagram, |waiter| {
            self.conn.poll_recv_datagram(<[u8]>::to_vec, Some(waiter))
        })
        .await
    }

    /// Waits until the connection has ended, and says why.
    ///
    /// Cancel safe: when the future is dropped before it is ready, nothing has happened.
    pub async fn closed(&self) -> ConnectionError {
        self.wait(Interest::Closed, |waiter| self.conn.poll_closed(Some(waiter))).await
    }

    connection_methods!();

    fn stream(&self, id: StreamId, early: bool) -> Stream {
        Stream::new(
            SendStream::new(self.conn.clone(), id),
            RecvStream::new(self.conn.clone(), id, early),
        )
    }

    async fn wait_open(&self, dir: Dir) -> Result<StreamId, OpenError> {
        self.wait(Interest::Open(dir), |waiter| self.conn.poll_open(dir, Some(waiter))).await
    }

    pub(super) fn poll_accept_bi(&self, waiter: Waiter<'_>) -> Poll<Result<Stream, AcceptError>> {
        let accepted = self.conn.poll_accept(Dir::Bidi, Some(waiter));
        accepted.map_ok(|(id, early)| self.stream(id, early))
    }

    pub(super) fn poll_accept_uni(
        &self,
        waiter: Waiter<'_>,
    ) -> Poll<Result<RecvStream, AcceptError>> {
        let accepted = self.conn.poll_accept(Dir::Uni, Some(waiter));
        accepted.map_ok(|(id, early)| RecvStream::new(self.conn.clone(), id, early))
    }

    pub(super) fn unregister(&self, interest: Interest, id: WaiterId) {
        self.conn.unregister(interest, id);
    }

    async fn wait<T>(&self, interest: Interest, poll: impl FnMut(Waiter<'_>) -> Poll<T>) -> T {
        wait(poll, |id| self.conn.unregister(interest, id)).await
    }
}

impl From<crate::Connection> for Connection {
    fn from(connection: crate::Connection) -> Self {
        Self::new(connection.into_conn())
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.conn.fmt(f)
    }
}
