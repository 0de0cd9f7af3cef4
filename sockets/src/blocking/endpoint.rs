//! Endpoints and listeners.

use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs, UdpSocket};
use std::time::Duration;

use super::{Connection, deadline};
use crate::config::{ClientConfig, EndpointConfig, ServerConfig, WorkerStats};
use crate::core::{Core, CoreRef, Interest, Rank};
use crate::error::{AcceptError, ConnectError, ListenError};
use crate::ops::{self, Listening, MAX_RESTARTS, now_or};
use quicket_udp::{BindError, UdpStats};

/// A UDP socket with any number of QUIC connections on it.
///
/// Clones lead to the same endpoint. It lives as long as any of them, of its connections and of
/// their streams.
#[derive(Clone)]
pub struct Endpoint {
    core: CoreRef,
}

impl Endpoint {
    /// Binds a socket with the default configuration. Of several addresses the first is taken
    /// that can be bound.
    ///
    /// # Errors
    ///
    /// If none can be.
    pub fn bind(address: impl ToSocketAddrs) -> Result<Self, BindError> {
        Self::bind_with(address, EndpointConfig::default())
    }

    /// Binds a socket.
    ///
    /// # Errors
    ///
    /// If no socket can be made or none of the addresses can be bound.
    pub fn bind_with(
        address: impl ToSocketAddrs,
        config: EndpointConfig,
    ) -> Result<Self, BindError> {
        let nowhere = SocketAddr::from(([0, 0, 0, 0], 0));
        let addresses =
            address.to_socket_addrs().map_err(|error| BindError::new(nowhere, error))?;
        let mut last = None;
        for address in addresses {
            match ops::endpoint(address, config.clone()) {
                Ok(core) => {
                    let started = start(&core);
                    started.map_err(|error| BindError::new(address, error))?;
                    return Ok(Self { core });
                }
                Err(error) => last = Some(error),
            }
        }
        let none = || BindError::new(nowhere, io::ErrorKind::AddrNotAvailable.into());
        Err(last.unwrap_or_else(none))
    }

    /// Takes a UDP socket that is bound already, such as one that a service manager hands over.
    ///
    /// # Errors
    ///
    /// If its options cannot be set.
    pub fn from_socket(socket: UdpSocket, config: EndpointConfig) -> io::Result<Self> {
        let core = ops::endpoint_from(socket, config)?;
        start(&core)?;
        Ok(Self { core })
    }

    /// The address that the socket is bound to.
    pub fn local_addr(&self) -> SocketAddr {
        self.core.local_addr()
    }

    /// Connects to a server and waits for the handshake. `server_name` is what its certificate
    /// must name.
    ///
    /// # Errors
    ///
    /// If the handshake comes to nothing.
    pub fn connect(
        &self,
        remote: SocketAddr,
        server_name: &str,
        config: &ClientConfig,
    ) -> Result<Connection, ConnectError> {
        for _ in 0..MAX_RESTARTS {
            let conn = self.core.connect(remote, server_name, config, false)?;
            let connection = Connection::new(conn.clone());
            match connection.wait_established() {
                Err(_) if conn.is_stranded() => {}
                outcome => return outcome.map(|()| connection),
            }
        }
        Err(ConnectError::TimedOut)
    }

    /// Starts to connect, with early data if possible; see [`Connection::connect_early`].
    ///
    /// # Errors
    ///
    /// If the connection cannot be started.
    pub fn connect_early(
        &self,
        remote: SocketAddr,
        server_name: &str,
        config: &ClientConfig,
    ) -> Result<Connection, ConnectError> {
        Ok(Connection::new(self.core.connect(remote, server_name, config, true)?))
    }

    /// Listens for connections, which are handed out when their handshake is complete.
    ///
    /// # Errors
    ///
    /// If the endpoint listens already.
    pub fn listen(&self, config: ServerConfig) -> Result<Listener, ListenError> {
        self.core.listen(config, false)?;
        Ok(Listener::new(self))
    }

    /// Listens for connections, which are handed out as soon as they have early data to read
    /// ([`RecvStream::is_early_data`](super::RecvStream::is_early_data)), or else when their
    /// handshake is complete.
    ///
    /// # Errors
    ///
    /// If the endpoint listens already.
    pub fn listen_early(&self, config: ServerConfig) -> Result<Listener, ListenError> {
        self.core.listen(config, true)?;
        Ok(Listener::new(self))
    }

    /// Moves to a new socket: connections to servers migrate there (RFC 9000, Section 9), and new
    /// ones start there. The old socket receives for another ten seconds. Connections of clients
    /// to a listener here can only follow if they reach the new address.
    ///
    /// # Errors
    ///
    /// If no socket can be made.
    pub fn rebind(&self, address: SocketAddr) -> Result<(), BindError> {
        self.core.rebind(address)
    }

    /// Receives at another address as well, and returns it: for a server at several addresses, or
    /// whose [preferred address](crate::ServerConfig::preferred_address) must reach its endpoint
    /// (RFC 9000, Section 9.6). New connections to servers start at the first address still. An
    /// endpoint has [`MAX_SOCKETS`](crate::MAX_SOCKETS) at most; the oldest but the first makes room.
    ///
    /// # Errors
    ///
    /// If no socket can be made.
    pub fn also_bind(&self, address: SocketAddr) -> Result<SocketAddr, BindError> {
        self.core.also_bind(address)
    }

    /// Closes all connections as [`Connection::close`] does. New ones are neither accepted nor
    /// made from then on.
    pub fn close(&self, code: u64, reason: &[u8]) {
        self.core.close_all(code, reason);
    }

    /// How many bytes the data of streams, and datagrams, take on all connections now, of
    /// [`EndpointConfig::memory`](crate::EndpointConfig::memory).
    pub fn memory_held(&self) -> usize {
        self.core.memory_held()
    }

    /// What the operating system refused to send.
    pub fn udp_stats(&self) -> UdpStats {
        self.core.udp_stats()
    }

    /// What each worker did ([`EndpointConfig::workers`](crate::EndpointConfig::workers)).
    pub fn worker_stats(&self) -> Vec<WorkerStats> {
        self.core.all_worker_stats()
    }

    /// The number of the current secret of the endpoint's site, which counts rotations; none of an endpoint
    /// whose keys are its own, or those of one switch ([`EndpointConfig::site`](crate::EndpointConfig::site)).
    pub fn site_secret(&self) -> Option<u32> {
        self.core.site_secret()
    }

    /// What is below it.
    #[cfg(test)]
    pub(crate) const fn core(&self) -> &CoreRef {
        &self.core
    }

    /// Waits until all connections have ended, their peers told.
    pub fn wait_idle(&self) {
        self.core.block_on(Rank::Patient, None, |waiter| self.core.poll_idle(waiter));
    }
}

/// Has a thread drive each worker.
fn start(core: &CoreRef) -> io::Result<()> {
    core.workers().iter().try_for_each(Core::start_thread)
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint").field("local_addr", &self.local_addr()).finish_non_exhaustive()
    }
}

/// Accepts connections. Dropping it stops that; connections that were accepted go on.
#[derive(Debug)]
pub struct Listener {
    endpoint: Endpoint,
    listening: Listening,
    timeout: Option<Duration>,
    nonblocking: bool,
}

impl Listener {
    fn new(endpoint: &Endpoint) -> Self {
        let listening = Listening::new(endpoint.core.clone());
        Self { endpoint: endpoint.clone(), listening, timeout: None, nonblocking: false }
    }

    /// Binds a socket with the default configuration and listens on it.
    ///
    /// # Errors
    ///
    /// If no socket can be made or none of the addresses can be bound.
    pub fn bind(address: impl ToSocketAddrs, config: ServerConfig) -> Result<Self, ListenError> {
        Endpoint::bind(address)?.listen(config)
    }

    /// The endpoint on which it listens.
    pub const fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// The address that the socket is bound to.
    pub fn local_addr(&self) -> SocketAddr {
        self.endpoint.local_addr()
    }

    /// Waits for the next connection. Handshakes that fail are not heard of.
    ///
    /// # Errors
    ///
    /// If the listener or the endpoint was closed, or (non-blocking or with a timeout) none comes in time.
    pub fn accept(&self) -> Result<Connection, AcceptError> {
        if self.nonblocking {
            return self.try_accept();
        }
        let core = &self.endpoint.core;
        let deadline = deadline(self.timeout);
        let mut registered = None;
        let accepted = core.block_on(Rank::Patient, deadline, |waiter| {
            let answer = self.listening.poll_accept(Some(waiter));
            if answer.is_pending() {
                registered = Some(waiter.id);
            }
            answer
        });
        if let Some(id) = registered {
            core.unregister(Interest::Incoming, id);
        }
        accepted.unwrap_or(Err(AcceptError::TimedOut)).map(Connection::new)
    }

    /// Like [`Listener::accept`], without waiting.
    ///
    /// # Errors
    ///
    /// Like [`Listener::accept`]; [`AcceptError::WouldBlock`] if there is none.
    pub fn try_accept(&self) -> Result<Connection, AcceptError> {
        now_or(self.listening.poll_accept(None), AcceptError::WouldBlock).map(Connection::new)
    }

    /// Stops listening: who waits in [`Listener::accept`] gets [`AcceptError::EndpointClosed`],
    /// and clients that were not accepted yet are turned away. Connections that were accepted go
    /// on, and the endpoint can listen anew. Dropping the listener does the same.
    pub fn close(&self) {
        self.listening.close();
    }

    /// Connections as they come.
    pub const fn incoming(&self) -> Incoming<'_> {
        Incoming { listener: self }
    }

    /// How long [`Listener::accept`] waits; `None` for as long as it takes.
    pub const fn set_timeout(&mut self, timeout: Option<Duration>) {
        self.timeout = timeout;
    }

    /// Lets [`Listener::accept`] answer at once.
    pub const fn set_nonblocking(&mut self, nonblocking: bool) {
        self.nonblocking = nonblocking;
    }
}

/// Connections of a [`Listener`] as they come; ends when the listener or the
/// endpoint is closed, or a newer generation has taken over.
#[derive(Debug)]
pub struct Incoming<'a> {
    listener: &'a Listener,
}

impl Iterator for Incoming<'_> {
    type Item = Result<Connection, AcceptError>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.listener.accept() {
            Err(AcceptError::EndpointClosed | AcceptError::Superseded) => None,
            result => Some(result),
        }
    }
}
