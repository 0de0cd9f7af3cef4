//! Connections.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Mutex;
use std::sync::PoisonError;
use std::task::Poll;
use std::time::Duration;

use quicket_engine::{ConnectionError, WhenFull};
use quicket_wire::Dir;

use super::stream::Waiting;
use super::{Endpoint, RecvStream, SendStream, Stream, deadline};
use crate::common::{connection_methods, unspecified_for};
use crate::config::ClientConfig;
use crate::core::{ConnRef, Effect, Rank, Waiter};
use crate::error::{AcceptError, ConnectError, DatagramError, OpenError};
use crate::ops::now_or;

/// A QUIC connection.
///
/// Clones lead to the same connection. When the last of them and of its streams is dropped, what
/// was written is still delivered in the background and the connection then closed with code 0;
/// [`Connection::close`] does so at once.
#[derive(Clone)]
pub struct Connection {
    conn: ConnRef,
    waiting: Shared,
}

/// Settings that clones share.
#[derive(Clone, Debug, Default)]
struct Shared(std::sync::Arc<Mutex<Waiting>>);

impl Shared {
    fn get(&self) -> Waiting {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, change: impl FnOnce(&mut Waiting)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

impl Connection {
    pub(crate) fn new(conn: ConnRef) -> Self {
        Self { conn, waiting: Shared::default() }
    }

    pub(crate) fn into_conn(self) -> ConnRef {
        self.conn
    }

    /// Connects to a server from a socket of its own and waits for the handshake. Tries the
    /// addresses of `remote` in turn. `server_name` is what the server's certificate must name.
    ///
    /// To have several connections share a socket, use [`Endpoint::connect`].
    ///
    /// # Errors
    ///
    /// If there is no such address, no socket, or no good end of the handshake: that of the last
    /// address.
    pub fn connect(
        remote: impl ToSocketAddrs,
        server_name: &str,
        config: &ClientConfig,
    ) -> Result<Self, ConnectError> {
        each_address(remote, |remote| {
            Endpoint::bind(unspecified_for(remote))?.connect(remote, server_name, config)
        })
    }

    /// Like [`Connection::connect`], without waiting for the handshake. With a session from an
    /// earlier connection ([`ClientConfig::sessions`]), streams can be opened and written at
    /// once and go out with the first packets (0-RTT). **An attacker can replay that data**
    /// (RFC 9001, Section 9.2): send only requests that may be repeated. Without such a session,
    /// opening a stream waits for the handshake.
    ///
    /// # Errors
    ///
    /// Like [`Connection::connect`], as far as the handshake is not concerned.
    pub fn connect_early(
        remote: impl ToSocketAddrs,
        server_name: &str,
        config: &ClientConfig,
    ) -> Result<Self, ConnectError> {
        each_address(remote, |remote| {
            Endpoint::bind(unspecified_for(remote))?.connect_early(remote, server_name, config)
        })
    }

    /// Waits until the handshake is complete.
    ///
    /// # Errors
    ///
    /// If it comes to nothing.
    pub fn wait_established(&self) -> Result<(), ConnectError> {
        self.conn
            .core()
            .block_on_answer(None, |waiter| self.conn.poll_established(Some(waiter)))
            .unwrap_or(Err(ConnectError::TimedOut))
    }

    /// Opens a bidirectional stream; waits until the peer allows another.
    ///
    /// # Errors
    ///
    /// If the connection ended.
    pub fn open_bi(&self) -> Result<Stream, OpenError> {
        let id = self.wait_open(Dir::Bidi)?;
        Ok(self.stream(id, false))
    }

    /// Opens a unidirectional stream; waits until the peer allows another.
    ///
    /// # Errors
    ///
    /// If the connection ended.
    pub fn open_uni(&self) -> Result<SendStream, OpenError> {
        let id = self.wait_open(Dir::Uni)?;
        Ok(SendStream::new(self.conn.clone(), id, self.stream_waiting()))
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
        Ok(SendStream::new(self.conn.clone(), id, self.stream_waiting()))
    }

    /// Waits for the peer to open a bidirectional stream.
    ///
    /// # Errors
    ///
    /// If the connection ended.
    pub fn accept_bi(&self) -> Result<Stream, AcceptError> {
        let (id, early) = self.wait_accept(Dir::Bidi)?;
        Ok(self.stream(id, early))
    }

    /// Waits for the peer to open a unidirectional stream.
    ///
    /// # Errors
    ///
    /// If the connection ended.
    pub fn accept_uni(&self) -> Result<RecvStream, AcceptError> {
        let (id, early) = self.wait_accept(Dir::Uni)?;
        Ok(RecvStream::new(self.conn.clone(), id, self.stream_waiting(), early))
    }

    /// Like [`Connection::accept_bi`], without waiting.
    ///
    /// # Errors
    ///
    /// Like [`Connection::accept_bi`]; [`AcceptError::WouldBlock`] if there is none.
    pub fn try_accept_bi(&self) -> Result<Stream, AcceptError> {
        let (id, early) = now_or(self.conn.poll_accept(Dir::Bidi, None), AcceptError::WouldBlock)?;
        Ok(self.stream(id, early))
    }

    /// Like [`Connection::accept_uni`], without waiting.
    ///
    /// # Errors
    ///
    /// Like [`Connection::accept_uni`]; [`AcceptError::WouldBlock`] if there is none.
    pub fn try_accept_uni(&self) -> Result<RecvStream, AcceptError> {
        let (id, early) = now_or(self.conn.poll_accept(Dir::Uni, None), AcceptError::WouldBlock)?;
        Ok(RecvStream::new(self.conn.clone(), id, self.stream_waiting(), early))
    }

    /// Sends an unreliable datagram (RFC 9221); waits while too many wait to be sent.
    ///
    /// # Errors
    ///
    /// If the peer takes none, it is too large, or the connection ended.
    pub fn send_datagram(&self, data: &[u8]) -> Result<(), DatagramError> {
        self.wait_datagram(|waiter| {
            self.conn.poll_send_datagram(data, WhenFull::Block, Effect::Now, waiter)
        })
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
    /// # Errors
    ///
    /// If the connection ended.
    pub fn recv_datagram(&self) -> Result<Vec<u8>, DatagramError> {
        self.wait_datagram(|waiter| self.conn.poll_recv_datagram(<[u8]>::to_vec, waiter))
    }

    /// Like [`Connection::recv_datagram`], without waiting.
    ///
    /// # Errors
    ///
    /// Like [`Connection::recv_datagram`]; [`DatagramError::WouldBlock`] if there is none.
    pub fn try_recv_datagram(&self) -> Result<Vec<u8>, DatagramError> {
        now_or(self.conn.poll_recv_datagram(<[u8]>::to_vec, None), DatagramError::WouldBlock)
    }

    /// Waits until the connection has ended, and says why.
    pub fn closed(&self) -> ConnectionError {
        loop {
            let core = self.conn.core();
            let error =
                core.block_on(Rank::Patient, None, |waiter| self.conn.poll_closed(Some(waiter)));
            if let Some(error) = error {
                return error;
            }
        }
    }

    /// How long this connection's calls wait, and those of streams made from now on; `None` for
    /// as long as it takes. Clones share it.
    pub fn set_timeout(&self, timeout: Option<Duration>) {
        self.waiting.set(|waiting| waiting.timeout = timeout);
    }

    /// Lets this connection's calls answer at once, and those of streams made from now on.
    /// Clones share it.
    pub fn set_nonblocking(&self, nonblocking: bool) {
        self.waiting.set(|waiting| waiting.nonblocking = nonblocking);
    }

    connection_methods!();

    fn stream(&self, id: quicket_wire::StreamId, early: bool) -> Stream {
        let waiting = self.stream_waiting();
        Stream::new(
            SendStream::new(self.conn.clone(), id, waiting),
            RecvStream::new(self.conn.clone(), id, waiting, early),
        )
    }

    fn stream_waiting(&self) -> Waiting {
        self.waiting.get()
    }

    fn wait_open(&self, dir: Dir) -> Result<quicket_wire::StreamId, OpenError> {
        self.wait(
            |waiter| self.conn.poll_open(dir, waiter),
            OpenError::WouldBlock,
            OpenError::TimedOut,
        )
    }

    fn wait_accept(&self, dir: Dir) -> Result<(quicket_wire::StreamId, bool), AcceptError> {
        self.wait(
            |waiter| self.conn.poll_accept(dir, waiter),
            AcceptError::WouldBlock,
            AcceptError::TimedOut,
        )
    }

    fn wait_datagram<T>(
        &self,
        poll: impl FnMut(Option<Waiter<'_>>) -> Poll<Result<T, DatagramError>>,
    ) -> Result<T, DatagramError> {
        self.wait(poll, DatagramError::WouldBlock, DatagramError::TimedOut)
    }

    fn wait<T, E>(
        &self,
        mut poll: impl FnMut(Option<Waiter<'_>>) -> Poll<Result<T, E>>,
        would_block: E,
        timed_out: E,
    ) -> Result<T, E> {
        let waiting = self.waiting.get();
        if waiting.nonblocking {
            return now_or(poll(None), would_block);
        }
        self.conn
            .core()
            .block_on_answer(deadline(waiting.timeout), |waiter| poll(Some(waiter)))
            .unwrap_or(Err(timed_out))
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.conn.fmt(f)
    }
}

/// Tries addresses in turn; the error is that of the last.
fn each_address<T>(
    remote: impl ToSocketAddrs,
    mut connect: impl FnMut(SocketAddr) -> Result<T, ConnectError>,
) -> Result<T, ConnectError> {
    let mut last = None;
    for remote in remote.to_socket_addrs().map_err(ConnectError::Resolve)? {
        match connect(remote) {
            Ok(connection) => return Ok(connection),
            Err(error) => last = Some(error),
        }
    }
    let none = || ConnectError::Resolve(std::io::ErrorKind::AddrNotAvailable.into());
    Err(last.unwrap_or_else(none))
}
