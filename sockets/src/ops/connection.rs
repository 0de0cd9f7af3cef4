//! Connections: the handshake, the end, and what is known of them.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::task::Poll;

use quicket_engine::ConnectionError;

use crate::common::{HandshakeInfo, PathInfo};
use crate::core::{ConnRef, Interest, Link, Waiter, source_towards};
use crate::error::{ConnectError, MigrateError};
use quicket_udp::BindError;

impl ConnRef {
    /// Waits until the handshake is complete.
    pub(crate) fn poll_established(
        &self,
        waiter: Option<Waiter<'_>>,
    ) -> Poll<Result<(), ConnectError>> {
        self.try_act(|conn| {
            if conn.established {
                return Poll::Ready(Ok(()));
            }
            if let Some(error) = conn.lost() {
                let tls = conn.engine.handshake_error();
                let error = tls
                    .map_or(ConnectError::Lost(error), |tls| ConnectError::Handshake(tls.clone()));
                return Poll::Ready(Err(error));
            }
            conn.wait(Interest::Established, waiter);
            Poll::Pending
        })
    }

    /// Waits until the connection has ended.
    pub(crate) fn poll_closed(&self, waiter: Option<Waiter<'_>>) -> Poll<ConnectionError> {
        self.try_act(|conn| {
            if let Some(error) = conn.lost() {
                return Poll::Ready(error);
            }
            conn.wait(Interest::Closed, waiter);
            Poll::Pending
        })
    }

    /// Closes the connection.
    pub(crate) fn close(&self, code: u64, reason: &[u8]) {
        self.act(|conn, now| conn.engine.close(now, code, reason));
    }

    /// True if its handshake is to begin again, from another address.
    pub(crate) fn is_stranded(&self) -> bool {
        self.look(|conn| conn.stranded)
    }

    /// Why the connection ended; `None` while it lives.
    pub(crate) fn close_reason(&self) -> Option<ConnectionError> {
        self.look(|conn| conn.lost())
    }
}

impl ConnRef {
    /// What the handshake settled.
    pub(crate) fn handshake(&self) -> Option<HandshakeInfo> {
        self.look(|conn| {
            let summary = conn.engine.handshake_summary()?;
            Some(HandshakeInfo::new(summary, conn.engine.version()))
        })
    }

    /// The addresses in use.
    pub(crate) fn path(&self) -> PathInfo {
        self.look(|conn| PathInfo { local: conn.engine.local(), remote: conn.engine.remote() })
    }

    /// Moves the connection to a new socket.
    pub(crate) fn migrate(&self, local: SocketAddr) -> Result<(), MigrateError> {
        let link = Link::bind(local, &self.core().udp_config())?;
        let remote = self.path().remote;
        let mut local = link.socket.local_addr();
        if local.ip().is_unspecified() {
            local.set_ip(source_for(remote).map_err(|error| BindError::new(local, error))?);
        }
        self.core().change_links(|links, _| Some(links.added(link)));
        self.act(|conn, now| conn.engine.migrate(now, local)).map_err(MigrateError::Refused)
    }

    /// Gives the endpoint a socket for the address that the server prefers, if that is of the
    /// other IP family than the path: the connection moves there then. Where this host has no way
    /// there, it stays (RFC 9000, Section 9.6.1, asks for a move; what does not answer is no
    /// address to move to).
    pub(crate) fn reach_other_family(&self) {
        let wished = self.look(|conn| conn.engine.preferred_other_family());
        let Some(remote) = wished else { return };
        let Ok(source) = source_for(remote) else { return };
        let core = self.core();
        let links = core.links();
        let mut known = links.iter().map(|link| link.socket.local_addr());
        let local = match known.find(|local| local.ip() == source) {
            Some(local) => local,
            None => {
                let at = SocketAddr::new(source, 0);
                let Ok(link) = Link::bind(at, &core.udp_config()) else { return };
                let local = link.socket.local_addr();
                core.change_links(|links, _| Some(links.added(link)));
                local
            }
        };
        self.act(|conn, now| conn.engine.reach_other_family(now, local));
    }
}

/// The address of this host from which the kernel would send to `remote`. Sends nothing.
pub(crate) fn source_for(remote: SocketAddr) -> io::Result<IpAddr> {
    source_towards(remote, &[])
}
