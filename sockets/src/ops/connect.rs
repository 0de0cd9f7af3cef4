//! Making connections and listeners.

use std::net::SocketAddr;
use std::sync::Arc;
use std::task::Poll;

use super::connection::source_for;
use super::workers::{attach, bind, divided};
use crate::config::{ClientConfig, ServerConfig, WorkerStats};
use crate::core::{
    ConnRef, Core, CoreRef, Follow, Interest, Link, ListenOptions, Role, Waiter, WaiterId, Wakes,
};
use crate::error::{AcceptError, ConnectError, ListenError};
use crate::session::{SessionSink, settle};
use crate::unencrypted::Unencrypted;
use quicket_udp::{BindError, UdpStats};

impl CoreRef {
    /// Starts a connection; the handshake is under way when this returns.
    pub(crate) fn connect(
        &self,
        remote: SocketAddr,
        server_name: &str,
        config: &ClientConfig,
        early_data: bool,
    ) -> Result<ConnRef, ConnectError> {
        let worker = self.next_worker().ok_or(ConnectError::EndpointClosed)?;
        Self::new(worker).connect_here(remote, server_name, config, early_data)
    }

    /// The same on this worker.
    fn connect_here(
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
        // Who binds an address of his choice stays there; behind a switch there is but one.
        let follows = config.follow_network
            && bound.ip().is_unspecified()
            && self.switch_config().is_none()
            && self.hears_of_network();
        let local = match follows {
            true => self.source_of(remote, bound.port()),
            false => (!bound.ip().is_unspecified()).then_some(bound),
        };
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
        // What was written as early data cannot be begun again by anybody but the program.
        let follow = follows.then(|| Follow::new(!early_data));
        let conn = self.begin(protocol, remote, local, server_name, follow)?;
        // What has changed between the look and now was not heard of by this connection.
        if follows && (self.source_of(remote, bound.port()) != local || link.held().is_some()) {
            self.look_at_network_again();
        }
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
        follow: Option<Follow>,
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
        let cell = routing.insert_following(handle, engine, Role::Client, follow);
        drop(routing);
        Ok(ConnRef::new(self.clone(), cell))
    }

    /// Adds a socket beside the present ones, for each worker.
    pub(crate) fn also_bind(&self, address: SocketAddr) -> Result<SocketAddr, BindError> {
        let workers = self.workers();
        let mut bound = address;
        for (core, link) in workers.iter().zip(self.bind_all(address)?) {
            bound = link.socket.local_addr();
            core.change_links(|links, _| Some(links.added(link)));
        }
        Ok(bound)
    }

    /// Binds a socket for each worker to another address.
    fn bind_all(&self, address: SocketAddr) -> Result<Vec<Link>, BindError> {
        bind(address, &self.udp_config(), self.workers().len(), self.kernel_choice())
    }

    /// Puts other sockets in the place of the present ones. Client connections move there; peers
    /// of server connections find out by the packets that come from it.
    pub(crate) fn rebind(&self, address: SocketAddr) -> Result<(), BindError> {
        let workers = self.workers();
        for (core, link) in workers.iter().zip(self.bind_all(address)?) {
            let bound = link.socket.local_addr();
            core.change_links(|links, now| Some(links.replaced(link, now)));
            core.follow(bound);
        }
        Ok(())
    }

    /// Closes all connections, for good.
    pub(crate) fn close_all(&self, code: u64, reason: &[u8]) {
        let workers = self.workers();
        workers.iter().for_each(|core| core.close_endpoint());
        self.close_connections(code, reason);
    }

    /// What the operating system refused to send, on all sockets.
    pub(crate) fn udp_stats(&self) -> UdpStats {
        let mut sum = UdpStats::default();
        for core in self.workers() {
            for link in core.links().iter() {
                sum += link.sender.stats();
            }
        }
        sum
    }

    /// What each worker did.
    pub(crate) fn all_worker_stats(&self) -> Vec<WorkerStats> {
        self.workers().iter().map(|core| core.worker_stats()).collect()
    }

    /// The number of the current secret of its site.
    pub(crate) fn site_secret(&self) -> Option<u32> {
        self.site_keys()?.number().filter(|number| *number != 0)
    }

    /// Starts to listen.
    pub(crate) fn listen(&self, config: ServerConfig, early: bool) -> Result<(), ListenError> {
        let ServerConfig { mut protocol, backlog, qlog, admission, hello, unencrypted, tls } =
            config;
        protocol.hold_client_hello |= hello.is_some();
        let captured = self.captures().map(|captures| captures.observers(self.clock()));
        let logged = qlog.map(|qlog| qlog.observers(self.clock()));
        protocol.observers = logged.or(protocol.observers).or(captured);
        if let Some(tls) = self.sharing_tickets(&tls) {
            protocol.tls = Arc::new(tls);
        }
        let unencrypted =
            unencrypted.map(|networks| Arc::new(Unencrypted::new(networks, &protocol)));
        let options =
            ListenOptions { backlog, admission, hello, early, greeter: None, unencrypted };
        self.open(options, protocol)?;
        if let Err(error) = self.register(tls.alpn(), false) {
            self.stop_listening();
            return Err(ListenError::Switch(error));
        }
        Ok(())
    }

    /// Stops listening and closes the connections that nobody has accepted.
    pub(crate) fn stop_listening(&self) {
        self.cease_through_switch();
        // First nobody takes clients any more; then somebody else may listen, and it is his to begin.
        for core in self.workers() {
            core.routing().endpoint.set_server(None);
        }
        let mut wakes = Wakes::default();
        let left = self.routing().stop_listening(&mut wakes);
        wakes.fire();
        for (worker, cell) in left {
            if let Some(core) = self.worker(worker) {
                drop(ConnRef::new(Self::new(core), cell));
            }
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
        match self.accept(waiter) {
            Some((core, cell)) => Poll::Ready(Ok(ConnRef::new(Self::new(core), cell))),
            // Whoever closes it wakes those who wait by then.
            None if self.is_closed() => Poll::Ready(Err(AcceptError::EndpointClosed)),
            None if self.is_retired() => Poll::Ready(Err(AcceptError::Superseded)),
            None => Poll::Pending,
        }
    }

    /// Waits until there is no connection left.
    pub(crate) fn poll_idle(&self, waiter: Waiter<'_>) -> Poll<()> {
        // With the first that has one; when that is idle, all are looked at again.
        let busy = |core: &Arc<Core>| !core.routing().is_idle(waiter) && !core.is_over();
        if self.workers().iter().any(busy) { Poll::Pending } else { Poll::Ready(()) }
    }

    /// Somebody who waited for a connection, or for the end of all, gives up.
    pub(crate) fn unregister(&self, interest: Interest, id: WaiterId) {
        if interest == Interest::Incoming {
            self.unregister_accept(id);
        } else {
            self.workers().iter().for_each(|core| core.routing().unregister_idle(id));
        }
    }
}

impl Core {
    /// The keys of its site were replaced: the kernel reads connection IDs by the new ones, and all connections
    /// get new ones, since those of keys that are rotated again are read no more (RFC 9000, Section 5.1.2).
    pub(crate) fn take_up_site_keys(&self) {
        if let Some(choice) = self.kernel_choice() {
            self.links().iter().for_each(|link| attach(choice, link));
        }
        for core in self.workers() {
            let cells = core.routing().all();
            for cell in cells {
                core.act_on(&cell, |conn, now| ((), conn.engine.rotate_local_cids(now)));
            }
        }
    }

    /// Closes the connections that there are.
    pub(crate) fn close_connections(&self, code: u64, reason: &[u8]) {
        for core in self.workers() {
            let cells = core.routing().all();
            for cell in cells {
                core.act_on(&cell, |conn, now| (conn.engine.close(now, code, reason), true));
            }
        }
    }

    /// Moves connections to a socket of this worker.
    fn follow(&self, bound: SocketAddr) {
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
    }
}

impl Core {
    /// Lets clients in, on all workers.
    pub(crate) fn open(
        &self,
        options: ListenOptions,
        mut protocol: quicket_engine::ServerConfig,
    ) -> Result<(), ListenError> {
        let workers = self.workers();
        protocol.retry = divided(protocol.retry, workers.len());
        let protocol = Arc::new(protocol);
        let mut first = self.routing();
        if self.is_closed() {
            return Err(ListenError::EndpointClosed);
        }
        if !first.listen(options) {
            return Err(ListenError::AlreadyListening);
        }
        drop(first);
        for core in workers {
            let mut routing = core.routing();
            if !core.is_closed() {
                routing.endpoint.set_server(Some(Arc::clone(&protocol)));
            }
        }
        Ok(())
    }
}
