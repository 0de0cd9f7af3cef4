//! What comes to a router, and what it says of it.

use std::net::SocketAddr;
use std::ops::Range;

use quicket_steering::{Configurations, Owner, ServerId};
use quicket_wire::{ConnectionId, EcnCodepoint, Version};

use super::counters::{DropReason, Way};
use crate::first_packet::HeldDatagram;
use crate::registry::{AddressId, Place};

/// Datagrams that came together from one sender.
#[derive(Clone, Copy, Debug)]
pub struct Train<'a> {
    /// At which address of ours.
    pub address: AddressId,
    /// Who sent them.
    pub remote: SocketAddr,
    /// To which address of ours, if known.
    pub local: Option<SocketAddr>,
    /// The mark in their IP headers.
    pub ecn: EcnCodepoint,
    /// The size of each but the last, in bytes.
    pub segment_size: usize,
    /// One behind the other.
    pub bytes: &'a [u8],
}

/// What becomes of a part of a train.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Which bytes of it: whole datagrams.
    pub range: Range<usize>,
    /// What becomes of them.
    pub decision: Decision,
}

/// What becomes of a datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It goes to this worker.
    Deliver {
        /// Which one.
        place: Place,
        /// How it was found.
        way: Way,
    },
    /// It waits for the rest of the ClientHello.
    Held,
    /// Those that waited go to this worker, in this order, and this one behind them.
    Release {
        /// Which one.
        place: Place,
        /// Those that waited.
        held: Vec<HeldDatagram>,
    },
    /// Of those that waited, in this order, and this one behind them, it is not known yet whose they are: they are for a
    /// listener that may never accept, and one of its family may; or for one that is about to come; or a program may have
    /// their client past the switch, and has yet to note it ([`Router::set_quiet`](super::Router::set_quiet)). They wait
    /// and are decided about anew.
    Wait {
        /// Those that waited.
        held: Vec<HeldDatagram>,
    },
    /// Its owner is dead: it is answered with
    /// [`stateless_reset`](quicket_engine::replies::stateless_reset).
    Reset {
        /// The connection ID, which the token depends on.
        dcid: ConnectionId,
        /// Whose owner that was: reset keys are derived for users.
        uid: u32,
    },
    /// Nobody here reads its version: it is answered with
    /// [`version_negotiation`](quicket_engine::replies::version_negotiation), which lists
    /// [`Version::SUPPORTED`].
    NegotiateVersion,
    /// Nobody serves what the client asks for: it is answered with
    /// [`refusal`](quicket_engine::replies::refusal), with the alert no_application_protocol (RFC 9001,
    /// Section 8.1), or CONNECTION_REFUSED where no program is left.
    Refuse {
        /// The version of its packet.
        version: Version,
        /// The connection ID that the client chose.
        dcid: ConnectionId,
        /// The client's.
        scid: ConnectionId,
    },
    /// Nothing.
    Drop(DropReason),
}

/// How an address reads connection IDs.
#[derive(Clone, Debug)]
pub struct Reader {
    /// The formats with their keys. They have an owner of
    /// [`OWNER_BITS`](crate::registry::OWNER_BITS).
    pub configurations: Configurations,
    /// The host's ID; those of other hosts lead nowhere. `None` where no balancer tells hosts apart.
    pub server_id: Option<ServerId>,
}

impl Reader {
    /// The owner in a whole connection ID, if it is one of this host's.
    pub(super) fn owner(&self, dcid: &ConnectionId) -> Option<Owner> {
        if dcid.len() != self.configurations.id_len() {
            return None;
        }
        let place = self.configurations.of(dcid.as_slice())?.place(dcid.as_slice())?;
        let is_ours = self.server_id.is_none_or(|own| own == place.server_id);
        place.owner.filter(|_| is_ours)
    }
}
