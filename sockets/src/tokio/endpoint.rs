//! Endpoints and listeners.

use std::fmt;
use std::io;
use std::net::{SocketAddr, UdpSocket};

use ::tokio::net::{ToSocketAddrs, lookup_host};

use super::Connection;
use crate::config::{ClientConfig, EndpointConfig, ServerConfig, WorkerStats};
use crate::core::{CoreRef, Driver, Interest};
use crate::error::{AcceptError, ConnectError, ListenError};
use crate::ops::{self, Listening, MAX_RESTARTS, now_or};
use crate::waiting::wait;
use quicket_udp::{BindError, UdpStats};

/// A UDP socket with any number of QUIC connections on it, driven by a task of the runtime.
///
/// Clones lead to the same endpoint. It lives as long as any of them, of its connections and of
/// their streams.
#[derive(Clone)]
pub struct Endpoint {
    core: CoreRef,
}

/// Makes an endpoint. A switch may have to be started, which is not waited for on a thread of the runtime.
async fn made(address: SocketAddr, config: EndpointConfig) -> Result<CoreRef, BindError> {
    if config.switch.is_none() {
        return ops::endpoint(address, config);
    }
    let made = ::tokio::task::spawn_blocking(move || ops::endpoint(address, config));
    made.await.unwrap_or_else(|error| Err(BindError::new(address, io::Error::other(error))))
}

impl Endpoint {
    /// Binds a socket with the default configuration. Of several addresses the first is taken
    /// that can be bound.
    ///
    /// Cancel safe: when the future is dropped before it is ready, nothing has happened.
    ///
    /// # Errors
    ///
    /// If none can be.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime with I/O and time enabled.
    pub async fn bind(address: impl ToSocketAddrs) -> Result<Self, BindError> {
        Self::bind_with(address, EndpointConfig::default()).await
    }

    /// Binds a socket.
    ///
    /// Cancel safe: when the future is dropped before it is ready, nothing has happened. With
    /// [a switch](EndpointConfig::switch), the address is given up as soon as that answers.
    ///
    /// # Errors
    ///
    /// If no socket can be made or none of the addresses can be bound.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime with I/O and time enabled.
    pub async fn bind_with(
        address: impl ToSocketAddrs,
        config: EndpointConfig,
    ) -> Result<Self, BindError> {
        let nowhere = SocketAddr::from(([0, 0, 0, 0], 0));
        let addresses = lookup_host(address).await;
        let addresses = addresses.map_err(|error| BindError::new(nowhere, error))?;
        let mut last = BindError::new(nowhere, io::ErrorKind::AddrNotAvailable.into());
        for address in addresses {
            match made(address, config.clone()).await {
                Ok(core) => {
                    start(&core).map_err(|error| BindError::new(address, error))?;
                    return Ok(Self { core });
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Takes a UDP socket that is bound already, such as one that a service manager hands over.
    ///
    /// Cancel safe: when the future is dropped before it is ready, nothing has happened but that the
    /// socket is closed; with [a switch](EndpointConfig::switch), as soon as that answers.
    ///
    /// # Errors
    ///
    /// If its options cannot be set; with [a switch](EndpointConfig::switch), if there is none and none
    /// can be started, or if it refuses.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime with I/O and time enabled.
    pub async fn from_socket(socket: UdpSocket, config: EndpointConfig) -> io::Result<Self> {
        let core = if config.switch.is_none() {
            ops::endpoint_from(socket, config)?
        } else {
            let made = ::tokio::task::spawn_blocking(move || ops::endpoint_from(socket, config));
            made.await.map_err(io::Error::other)??
        };
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
    /// Not cancel safe: when the future is dropped, the attempt is given up.
    ///
    /// # Errors
    ///
    /// If the handshake comes to nothing.
    pub async fn connect(
        &self,
        remote: SocketAddr,
        server_name: &str,
        config: &ClientConfig,
    ) -> Result<Connection, ConnectError> {
        for _ in 0..MAX_RESTARTS {
            let conn = self.core.connect(remote, server_name, config, false)?;
            let connection = Connection::new(conn.clone());
            match connection.wait_established().await {
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

    /// Moves all connections to a new socket, and new ones start there; see
    /// [`crate::Endpoint::rebind`].
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

    /// Waits until all connections have ended, their peers told.
    ///
    /// Cancel safe: when the future is dropped before it is ready, nothing has happened.
    pub async fn wait_idle(&self) {
        let core = &self.core;
        wait(|waiter| core.poll_idle(waiter), |id| core.unregister(Interest::Idle, id)).await;
    }
}

/// Has a task drive each worker.
fn start(core: &CoreRef) -> io::Result<()> {
    let drivers: io::Result<Vec<_>> = core.workers().into_iter().map(Driver::new).collect();
    drivers?.into_iter().for_each(|driver| drop(::tokio::spawn(driver)));
    Ok(())
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
}

impl Listener {
    fn new(endpoint: &Endpoint) -> Self {
        Self { endpoint: endpoint.clone(), listening: Listening::new(endpoint.core.clone()) }
    }

    /// Binds a socket with the default configuration and listens on it.
    ///
    /// Cancel safe: when the future is dropped before it is ready, nothing has happened.
    ///
    /// # Errors
    ///
    /// If no socket can be made or none of the addresses can be bound.
    pub async fn bind(
        address: impl ToSocketAddrs,
        config: ServerConfig,
    ) -> Result<Self, ListenError> {
        Endpoint::bind(address).await?.listen(config)
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
    /// Cancel safe: no connection is lost when the future is dropped before it is ready.
    ///
    /// # Errors
    ///
    /// If the listener or the endpoint was closed.
    pub async fn accept(&self) -> Result<Connection, AcceptError> {
        let core = &self.endpoint.core;
        wait(
            |waiter| self.listening.poll_accept(Some(waiter)),
            |id| core.unregister(Interest::Incoming, id),
        )
        .await
        .map(Connection::new)
    }

    /// Stops listening: who waits in [`Listener::accept`] gets [`AcceptError::EndpointClosed`],
    /// and clients that were not accepted yet are turned away. Connections that were accepted go
    /// on, and the endpoint can listen anew. Dropping the listener does the same.
    pub fn close(&self) {
        self.listening.close();
    }

    /// Like [`Listener::accept`], without waiting.
    ///
    /// # Errors
    ///
    /// Like [`Listener::accept`]; [`AcceptError::WouldBlock`] if there is none.
    pub fn try_accept(&self) -> Result<Connection, AcceptError> {
        now_or(self.listening.poll_accept(None), AcceptError::WouldBlock).map(Connection::new)
    }
}
