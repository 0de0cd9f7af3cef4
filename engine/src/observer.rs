//! What happens inside a connection, told to whoever wants to log it (qlog and the like).

use core::net::SocketAddr;

use quicket_wire::{EcnCodepoint, Frame, PacketKind, TransportParameters, Version};

use crate::crypto::{Direction, Level};
use crate::error::ConnectionError;
use crate::time::{Duration, Time};

/// Hears of everything that a connection does. Called in the middle of packet processing: be
/// quick, and do not block.
pub trait Observer: Send {
    /// Something happened at `now`.
    fn observe(&mut self, now: Time, observation: &Observation<'_>);
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
    /// 0-RTT was refused.
    EarlyDataRejected,
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
    },
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
    /// The 1-RTT keys were updated.
    KeyUpdated {
        /// How many updates there were.
        updates: u64,
        /// True if the peer began it.
        by_peer: bool,
    },
    /// A frame was written into the packet under construction, or read from the packet just
    /// received.
    Frame {
        /// Which way it goes.
        direction: Direction,
        /// The frame.
        frame: &'a Frame<'a>,
    },
    /// A packet is complete; its frames came before. (Received: its frames come after.)
    Packet {
        /// Which way it goes.
        direction: Direction,
        /// Its type.
        kind: PacketKind,
        /// Its number.
        number: u64,
        /// Its length on the wire, in bytes.
        size: usize,
        /// The mark that its datagram carried.
        ecn: EcnCodepoint,
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
        /// Why.
        trigger: LossTrigger,
    },
    /// Recovery and congestion state after an ACK, a loss or a timeout.
    Metrics {
        /// Smoothed round trip time.
        smoothed_rtt: Duration,
        /// Smallest round trip time.
        min_rtt: Duration,
        /// Last round trip time.
        latest_rtt: Duration,
        /// Round trip time variation.
        rtt_variation: Duration,
        /// Congestion window in bytes.
        congestion_window: u64,
        /// Bytes in flight.
        bytes_in_flight: u64,
        /// Probe timeouts in a row.
        pto_count: u32,
    },
    /// The path's MTU changed.
    MtuUpdated {
        /// UDP payload in bytes.
        mtu: u16,
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
