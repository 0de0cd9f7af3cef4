//! Making connections and listeners.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::task::Poll;

use super::connection::source_for;
use crate::config::{ClientConfig, EndpointConfig, ServerConfig};
use crate::core::{
    ConnRef, Core, CoreRef, Interest, Link, ListenOptions, Role, Waiter, WaiterId, Wakes,
};
use crate::error::{AcceptError, ConnectError, ListenError};
use crate::session::{SessionSink, settle};
use crate::udp::{BindError, UdpStats};
use quicket_handshake::{AwsLcProvider, SystemRandom};

/// Makes an endpoint that nothing drives yet.
pub(crate) fn endpoint(address: SocketAddr, config: EndpointConfig) -> Result<CoreRef, BindError> {
    let link = Link::bind(address, &config.udp)?;
    endpoint_on(link, config).map_err(|error| BindError::new(address, error))
}

/// Makes an endpoint on a socket that is bound already.
pub(crate) fn endpoint_from(socket: UdpSocket, config: EndpointConfig) -> io::Result<CoreRef> {
    let link = Link::adopt(socket, &config.udp)?;
    endpoint_on(link, config)
}

fn endpoint_on(link: Link, config: EndpointConfig) -> io::Result<CoreRef> {
    let engine = quicket_engine::Endpoint::new(
        config.protocol,
        None,
        Arc::new(AwsLcProvider),
        Box::new(SystemRandom::new()),
    );
    Ok(CoreRef::new(Core::new(link, config.udp, engine, config.memory)?))
}

impl CoreRef {
    /// Starts a connection; the handshake is under way when this returns.
    pub(crate) fn connect(
        &self,
        remote: SocketAddr,
        server_name: &str,
        config: &ClientConfig,
        early_data: bool,
    ) -> Result<ConnRef, ConnectError> {
        if self.is_closed() {
            return Err(ConnectError::EndpointClosed);
        }
        let links = self.links();
        let link = links.current().ok_or(ConnectError::EndpointClosed)?;
        if !link.socket.reaches(remote) {
            return Err(ConnectError::AddressFamily(remote));
        }
        let bound = link.socket.local_addr();
        let local = (!bound.ip().is_unspecified()).then_some(bound);
        let server = format!("{server_name}:{}", remote.port());
        let store = config.sessions.as_ref();
        if let Some(store) = store {
            self.keep_sessions();
            settle(store);
        }
        let protocol = quicket_engine::ClientConfig {
            transport: config.transport.clone(),
            tls: config.tls.clone(),
            version: config.version,
            versions: config.versions.clone(),
            token: store.and_then(|store| store.take_token(&server)).unwrap_or_default(),
            session: store.and_then(|store| store.take_session(&server)),
            early_data,
            hold: false,
            observers: config.qlog.as_ref().map(|qlog| qlog.observers(self.clock())),
        };
        let conn = self.begin(protocol, remote, local, server_name)?;
        conn.act(|conn, _| {
            conn.sink = store.map(|store| SessionSink::new(store.clone(), &server));
        });
        Ok(conn)
    }

    /// Makes a client's connection, which sends nothing before it acts.
    pub(crate) fn begin(
        &self,
        protocol: quicket_engine::ClientConfig,
        remote: SocketAddr,
        local: Option<SocketAddr>,
        server_name: &str,
    ) -> Result<ConnRef, ConnectError> {
        let now = self.clock().now();
        let mut routing = self.routing();
        // Whoever closes it closes the connections that are in there by then.
        if self.is_closed() {
            return Err(ConnectError::EndpointClosed);
        }
        let (handle, engine) = routing
            .endpoint
            .connect(now, protocol, remote, local, server_name)
            .map_err(ConnectError::Invalid)?;
        let cell = routing.insert(handle, engine, Role::Client);
        drop(routing);
        Ok(ConnRef::new(self.clone(), cell))
    }

    /// Adds a socket beside the present ones.
    pub(crate) fn also_bind(&self, address: SocketAddr) -> Result<SocketAddr, BindError> {
        let link = Link::bind(address, &self.udp_config())?;
        let bound = link.socket.local_addr();
        self.change_links(|links, _| Some(links.added(link)));
        Ok(bound)
    }

    /// Puts another socket in the place of the present one. Client connections move there; peers
    /// of server connections find out by the packets that come from it.
    pub(crate) fn rebind(&self, address: SocketAddr) -> Result<(), BindError> {
        let link = Link::bind(address, &self.udp_config())?;
        let bound = link.socket.local_addr();
        self.change_links(|links, now| Some(links.replaced(link, now)));
        let cells = self.routing().all();
        for cell in cells {
            self.act_on(&cell, |conn, now| {
                let mut local = bound;
                if local.ip().is_unspecified()
                    && let Ok(source) = source_for(conn.engine.remote())
                {
                    local.set_ip(source);
                }
                let moved = conn.engine.migrate(now, local);
                if let Err(error) = moved {
                    log::debug!("a connection does not move to {local}: {error}");
                }
                ((), true)
            });
        }
        Ok(())
    }

    /// Closes all connections, for good.
    pub(crate) fn close_all(&self, code: u64, reason: &[u8]) {
        self.close_endpoint();
        let cells = self.routing().all();
        for cell in cells {
            self.act_on(&cell, |conn, now| (conn.engine.close(now, code, reason), true));
        }
    }

    /// What the operating system refused to send, on all sockets.
    pub(crate) fn udp_stats(&self) -> UdpStats {
        let mut sum = UdpStats::default();
        for link in self.links().iter() {
            sum += link.sender.stats();
        }
        sum
    }

    /// Starts to listen.
    pub(crate) fn listen(&self, config: ServerConfig, early: bool) -> Result<(), ListenError> {
        let ServerConfig { mut protocol, backlog, qlog, admission } = config;
        if let Some(qlog) = qlog {
            protocol.observers = Some(qlog.observers(self.clock()));
        }
        self.open(ListenOptions { backlog, admission, early, greeter: None }, protocol)
    }

    /// Stops listening and closes the connections that nobody has accepted.
    pub(crate) fn stop_listening(&self) {
        let mut wakes = Wakes::default();
        let left = self.routing().stop_listening(&mut wakes);
        wakes.fire();
        for cell in left {
            drop(ConnRef::new(self.clone(), cell));
        }
    }

    /// The next connection of the listener.
    pub(crate) fn poll_accept_connection(
        &self,
        waiter: Option<Waiter<'_>>,
    ) -> Poll<Result<ConnRef, AcceptError>> {
        if self.is_closed() {
            return Poll::Ready(Err(AcceptError::EndpointClosed));
        }
        match self.routing().accept(waiter) {
            Some(cell) => Poll::Ready(Ok(ConnRef::new(self.clone(), cell))),
            // Whoever closes it wakes those who wait by then.
            None if self.is_closed() => Poll::Ready(Err(AcceptError::EndpointClosed)),
            None => Poll::Pending,
        }
    }

    /// Waits until there is no connection left.
    pub(crate) fn poll_idle(&self, waiter: Waiter<'_>) -> Poll<()> {
        if self.routing().is_idle(waiter) || self.is_over() {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }

    /// Somebody who waited for a connection, or for the end of all, gives up.
    pub(crate) fn unregister(&self, interest: Interest, id: WaiterId) {
        let mut wakes = Wakes::default();
        self.routing().unregister(interest, id, &mut wakes);
        wakes.fire();
    }
}

impl Core {
    /// Lets clients in.
    pub(crate) fn open(
        &self,
        options: ListenOptions,
        protocol: quicket_engine::ServerConfig,
    ) -> Result<(), ListenError> {
        let mut routing = self.routing();
        if self.is_closed() {
            return Err(ListenError::EndpointClosed);
        }
        if !routing.listen(options) {
            return Err(ListenError::AlreadyListening);
        }
        routing.endpoint.set_server(Some(Arc::new(protocol)));
        Ok(())
    }
}
