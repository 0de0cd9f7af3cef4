//! Clients' connections that follow this host from network to network (RFC 9000, Section 9).
//!
//! `watcher` is the thread that hears of changes, `schedule` says when it looks, `system` what the system would do now,
//! `decision` what that means for a connection, and `look` does it for all of an endpoint.

mod decision;
mod look;
mod schedule;
mod system;
mod watcher;

use std::net::SocketAddr;

use super::handle::CoreRef;

pub(crate) use decision::Follow;
pub(super) use system::System;
pub(crate) use system::source_towards;
pub(crate) use watcher::WatchHold;

impl CoreRef {
    /// Has the endpoint hear of changes of the network; false if nothing is heard of them.
    pub(crate) fn hears_of_network(&self) -> bool {
        watcher::enroll(self.core())
            .inspect_err(|error| {
                log::warn!("connections do not follow changes of the network: {error}");
            })
            .is_ok()
    }

    /// Has the network looked at soon, although no change is heard of.
    pub(crate) fn look_at_network_again(&self) {
        watcher::look_again();
    }

    /// The address and port from which a socket for any address sends to `remote` now, if there is a way there.
    pub(crate) fn source_of(&self, remote: SocketAddr, port: u16) -> Option<SocketAddr> {
        let options = self.udp_config().options;
        source_towards(remote, &options).ok().map(|source| SocketAddr::new(source, port))
    }
}
