//! Endpoints that receive at one address: whose is a datagram that this one does not know?

use core::fmt;
use core::net::SocketAddr;

use quicket_wire::{ConnectionId, PacketKind};

/// What an endpoint knows of others that receive at the same address.
///
/// The network, or the kernel, may hand a datagram to any of them: a client that moves to another
/// address looks like a new one to whoever chooses by addresses (RFC 9000, Section 9).
pub trait Neighbours: Send + Sync + fmt::Debug {
    /// The number of the other endpoint to which a datagram belongs, as the implementation counts
    /// them; `None` if it is nobody's, or to be treated by this one.
    ///
    /// Asked only about datagrams that no connection of this endpoint takes. Whoever is named gets
    /// it, and nobody answers it here.
    fn owner(&self, stray: &Stray<'_>) -> Option<usize>;
}

/// A datagram that no connection of an endpoint takes.
#[derive(Clone, Copy, Debug)]
pub struct Stray<'a> {
    /// What its first packet is.
    pub kind: PacketKind,
    /// That packet's Destination Connection ID.
    pub dcid: ConnectionId,
    /// Who sent it.
    pub remote: SocketAddr,
    /// Its payload.
    pub data: &'a [u8],
    /// How it got here.
    pub reached: Reached,
}

/// How a datagram got to an endpoint that shares its address with others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reached {
    /// Whoever chooses among those who receive at the address has looked at it, and chosen this endpoint.
    #[default]
    Chosen,
    /// It came behind another datagram, which was looked at in its place.
    Behind,
    /// Somebody else has received it and handed it to this endpoint.
    HandedOn,
}
