//! Datagrams that lead to no connection of an endpoint, and who may have them instead.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Weak;

use quicket_switch::first_packet::HeldDatagram;
use quicket_udp::{Outgoing, SendOutcome};
use quicket_wire::EcnCodepoint;

use crate::core::Core;

/// Somebody who passes datagrams on that come to the address of an endpoint and are for another server
/// ([`EndpointConfig::pass_through`](crate::EndpointConfig::pass_through)).
pub trait PassThrough: Send + Sync + fmt::Debug {
    /// False while nothing is passed on. Then nobody is asked.
    fn is_active(&self) -> bool {
        true
    }

    /// Looks at datagrams that belong to no connection of the endpoint: first packets of clients, and packets of
    /// connections that others have. `outlet` sends from the address that they came to, now and later.
    ///
    /// Called by whoever receives, who may hold up all connections of a worker: it must not wait, nor call the endpoint.
    /// Workers ask at the same time.
    fn look(&self, stray: &Arrived<'_>, outlet: &Outlet) -> Whose;
}

/// Datagrams of one size, of which the last may be smaller, from one address.
#[derive(Clone, Copy, Debug)]
pub struct Arrived<'a> {
    /// Who sent them.
    pub remote: SocketAddr,
    /// To which address of the endpoint, if it is known.
    pub local: Option<SocketAddr>,
    /// The mark in their IP headers (RFC 3168).
    pub ecn: EcnCodepoint,
    /// The size of each but the last, in bytes.
    pub segment_size: usize,
    /// All of them. There is one at least. Where there are several, they have short headers and are alike in as many
    /// bytes behind the first as the endpoint's own connection IDs have.
    pub bytes: &'a [u8],
}

/// Whose datagrams are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Whose {
    /// Somebody else's: they were passed on, held or dropped.
    Others,
    /// The endpoint's, which does with them what it would have done; and, before them, with those that were held.
    Own {
        /// What was held, in order.
        held: Vec<HeldDatagram>,
    },
}

/// Sends from the sockets of an endpoint, as long as it is there.
#[derive(Clone)]
pub struct Outlet(pub(crate) Weak<Core>);

impl Outlet {
    /// Sends a burst to `remote` from the address `local` of the endpoint. Nothing is kept of what cannot be sent at once.
    /// `None` once the endpoint has ended.
    pub fn send(&self, local: Option<SocketAddr>, burst: &Outgoing<'_>) -> Option<SendOutcome> {
        let core = self.0.upgrade()?;
        let links = core.links();
        let local_ip = local.map(|local| local.ip());
        let link = links.for_path(local)?;
        Some(core.send_by(link, &Outgoing { local: local_ip, ..*burst }))
    }
}

impl fmt::Debug for Outlet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outlet").finish_non_exhaustive()
    }
}
