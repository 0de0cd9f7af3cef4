//! What was on the wire: captured datagrams taken apart into packets of QUIC, and decrypted with the secrets that the
//! ends have logged.
//!
//! [`headers`] writes and reads what is around the payload of a datagram. [`Observer`] takes payloads apart, one datagram
//! after the other. What files and peers can make grow is bounded: connections, their connection IDs, the TLS messages that
//! are kept of them, and sessions of a log.
#![forbid(unsafe_code)]

mod connection;
mod crypto_data;
pub mod headers;
mod key_log;
mod keys;
mod observer;
pub mod tls;

pub use crypto_data::CryptoData;
pub use headers::Datagram;
pub use key_log::KeyLog;
pub use observer::{MAX_CONNECTIONS, Observer, is_first_of_client};

use std::net::SocketAddr;
use std::time::Duration;

use quicket_wire::frame::Frames;
use quicket_wire::{ConnectionId, EcnCodepoint, Frame, PacketKind, Version};

/// A QUIC packet on its way.
#[derive(Clone, Debug)]
pub struct Packet {
    /// When it was seen, since 1970.
    pub at: Duration,
    /// Whether the client has sent it.
    pub from_client: bool,
    /// The client's address.
    pub client: SocketAddr,
    /// The server's address.
    pub server: SocketAddr,
    /// The ECN field of the datagram.
    pub ecn: EcnCodepoint,
    /// Bytes of UDP payload of the datagram, counted with its first packet.
    pub datagram_len: usize,
    /// Bytes of the packet itself.
    pub len: usize,
    /// The type of the packet.
    pub kind: PacketKind,
    /// The version that a long header has.
    pub version: Version,
    /// Destination Connection ID.
    pub dcid: ConnectionId,
    /// Source Connection ID of a long header.
    pub scid: ConnectionId,
    /// The token of an Initial or Retry packet.
    pub token: Vec<u8>,
    /// What it holds, if it could be opened.
    pub content: Option<Content>,
}

/// What a packet holds.
#[derive(Clone, Debug)]
pub struct Content {
    /// Which connection, in the order in which they began.
    pub connection: usize,
    /// The packet number.
    pub number: u64,
    /// The Key Phase bit of a short header.
    pub key_phase: bool,
    /// The frames, as they are encoded; empty if the packet is not all there.
    pub payload: Vec<u8>,
}

impl Content {
    pub(crate) fn of(connection: usize, opened: keys::Opened) -> Self {
        let keys::Opened { number, key_phase, payload } = opened;
        Self { connection, number, key_phase, payload }
    }
}

impl Packet {
    /// Its frames, up to the first that is not known.
    pub fn frames(&self) -> impl Iterator<Item = Frame<'_>> {
        let payload = self.content.as_ref().map_or(&[][..], |content| &content.payload);
        Frames::new(payload).map_while(Result::ok)
    }
}
