//! What happens inside a connection, told to whoever wants to log it (qlog and the like).

use alloc::boxed::Box;
use core::fmt;
use core::net::SocketAddr;

use quicket_wire::{
    ConnectionId, EcnCodepoint, Frames, PacketKind, Side, TransportParameters, Version,
};

use crate::crypto::{Direction, HandshakeSummary, Level};
use crate::error::ConnectionError;
use crate::stats::PathStats;
use crate::time::{Duration, Time};

/// Hears of everything that a connection does. Called in the middle of packet processing: be
/// quick, and do not block.
pub trait Observer: Send {
    /// Something happened at `now`.
    fn observe(&mut self, now: Time, observation: &Observation<'_>);

    /// True once it wants to hear no more: it may be forgotten
    /// ([`Connection::forget_observer_that_is_done`](crate::Connection::forget_observer_that_is_done)).
    fn is_done(&self) -> bool {
        false
    }
}

/// Decides which connections are observed, from their first moment on.
pub trait Observers: Send + Sync {
    /// Somebody to hear of this connection, or `None` if nobody wants to.
    fn observer(&self, connection: &NewConnection) -> Option<Box<dyn Observer>>;
}

/// A connection that begins.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct NewConnection {
    /// The present moment.
    pub now: Time,
    /// Which side of it this is.
    pub side: Side,
    /// The peer's address.
    pub remote: SocketAddr,
    /// The Destination Connection ID of the client's very first packet, which names the
    /// connection on both sides.
    pub original_dcid: ConnectionId,
}

/// The plaintext of a packet. It has authenticated, or is still to be sealed.
#[derive(Clone, Copy)]
pub struct PacketContent<'a> {
    /// The header with its packet number, without header protection; all of a packet that has no
    /// packet number.
    pub header: &'a [u8],
    /// The frames.
    pub payload: &'a [u8],
}

impl<'a> PacketContent<'a> {
    /// The frames; those of a received packet may turn out to be malformed.
    pub const fn frames(&self) -> Frames<'a> {
        Frames::new(self.payload)
    }
}

impl fmt::Debug for PacketContent<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.frames()).finish()
    }
}

/// Why a packet was dropped without being processed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropReason {
    /// The header or payload could not be parsed.
    Malformed,
    /// No keys for its level: not yet and no room to keep it, or no longer.
    KeysUnavailable,
    /// It did not authenticate.
    Undecryptable,
    /// Its number was seen before.
    Duplicate,
    /// A version that this connection does not use.
    UnexpectedVersion,
    /// Not for this connection, or not allowed in its state.
    Unexpected,
    /// A coalesced packet with another Destination Connection ID (RFC 9000, Section 12.2).
    ConnectionIdMismatch,
    /// A bound on memory or rate was reached.
    Limit,
}

/// Why packets were declared lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossTrigger {
    /// By packet number or time threshold (RFC 9002, Section 6.1).
    Threshold,
    /// 0-RTT was refused, or the server asked for a Retry.
    EarlyDataRejected,
    /// The peer sends much and acknowledges nothing.
    Silence,
}

/// With what loss detection and congestion control begin (RFC 9002, Appendix A and B).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecoveryParameters {
    /// How many packets later one must have been sent for a packet to count as lost; grows on
    /// paths that reorder.
    pub packet_threshold: u64,
    /// The loss delay in eighths of the round trip time; grows on paths that reorder.
    pub time_threshold_eighths: u64,
    /// The granularity of timers.
    pub granularity: Duration,
    /// The round trip time before it is measured.
    pub initial_rtt: Duration,
    /// UDP payload of the first datagrams, in bytes.
    pub max_datagram_size: u16,
    /// The first congestion window, in bytes.
    pub initial_window: u64,
    /// The smallest congestion window, in bytes.
    pub minimum_window: u64,
    /// PTOs of loss that make congestion persistent (RFC 9002, Section 7.6.1).
    pub persistent_congestion_threshold: u64,
}

/// One thing that happened.
#[derive(Debug)]
#[non_exhaustive]
pub enum Observation<'a> {
    /// The connection began.
    Started {
        /// This side's address, if known.
        local: Option<SocketAddr>,
        /// The peer's address.
        remote: SocketAddr,
        /// This side's first connection ID.
        source_cid: ConnectionId,
        /// Where a client sends its first packet, or a server got it.
        destination_cid: ConnectionId,
    },
    /// How recovery is set up.
    Recovery(RecoveryParameters),
    /// A version was settled.
    Version(Version),
    /// Transport parameters of one side.
    Parameters {
        /// `Send` for ours, `Receive` for the peer's.
        direction: Direction,
        /// The values.
        parameters: &'a TransportParameters,
    },
    /// A key is in use.
    KeyInstalled {
        /// Its level.
        level: Level,
        /// Its direction.
        direction: Direction,
    },
    /// The keys of a level are of no more use (RFC 9001, Section 4.9).
    KeysDiscarded {
        /// The level.
        level: Level,
    },
    /// TLS is done.
    HandshakeComplete(&'a HandshakeSummary),
    /// The handshake is confirmed (RFC 9001, Section 4.1.2).
    HandshakeConfirmed,
    /// The 1-RTT keys were updated.
    KeyUpdated {
        /// How many updates there were.
        updates: u64,
        /// True if the peer began it.
        by_peer: bool,
    },
    /// A packet goes out, or was received and is processed next.
    Packet {
        /// Which way it goes.
        direction: Direction,
        /// Its type.
        kind: PacketKind,
        /// Its number; 0 for Retry and Version Negotiation, which have none.
        number: u64,
        /// Its length on the wire, in bytes.
        size: usize,
        /// The mark that its datagram carries.
        ecn: EcnCodepoint,
        /// A probe for a larger MTU that this side sends.
        mtu_probe: bool,
        /// What it says.
        content: PacketContent<'a>,
    },
    /// A packet was dropped.
    PacketDropped {
        /// Its type, if known.
        kind: Option<PacketKind>,
        /// Its length, in bytes.
        size: usize,
        /// Why.
        reason: DropReason,
    },
    /// A packet is kept until it can be opened.
    PacketBuffered {
        /// Its type.
        kind: PacketKind,
        /// Its length, in bytes.
        size: usize,
    },
    /// A sent packet is taken for lost.
    PacketLost {
        /// The level of its packet number space.
        level: Level,
        /// Its number.
        number: u64,
        /// A probe for a larger MTU, whose loss is no sign of congestion.
        mtu_probe: bool,
        /// Why.
        trigger: LossTrigger,
    },
    /// The active path after an ACK, a loss or a timeout.
    Metrics {
        /// Round trip times, congestion control, MTU and ECN.
        path: &'a PathStats,
        /// Probe timeouts in a row.
        pto_count: u32,
    },
    /// Packets go to another path now.
    PathChanged {
        /// This side's address, if known.
        local: Option<SocketAddr>,
        /// The peer's address.
        remote: SocketAddr,
    },
    /// The connection ended.
    Closed(&'a ConnectionError),
}
