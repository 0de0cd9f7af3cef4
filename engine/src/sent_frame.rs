//! What a sent packet carried, remembered until the packet is acknowledged or lost.

use quicket_wire::{Dir, StreamId};

/// One frame of a sent packet, as little of it as its owner needs to hear of its fate.
///
/// Frames are regenerated from current state, never stored whole (RFC 9000, Section 13.3).
/// Frames that are never repeated (PADDING, PATH_RESPONSE, CONNECTION_CLOSE) are not recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SentFrame {
    /// An ACK that covered all packets up to `largest`.
    Ack {
        largest: u64,
    },
    /// CRYPTO data of the packet's own level.
    Crypto {
        offset: u64,
        len: u32,
    },
    /// STREAM data.
    Stream {
        id: StreamId,
        offset: u64,
        len: u32,
        fin: bool,
    },
    ResetStream {
        id: StreamId,
    },
    StopSending {
        id: StreamId,
    },
    MaxData {
        maximum: u64,
    },
    MaxStreamData {
        id: StreamId,
        maximum: u64,
    },
    MaxStreams {
        dir: Dir,
        maximum: u64,
    },
    DataBlocked {
        limit: u64,
    },
    StreamDataBlocked {
        id: StreamId,
        limit: u64,
    },
    StreamsBlocked {
        dir: Dir,
        limit: u64,
    },
    NewConnectionId {
        sequence: u64,
    },
    RetireConnectionId {
        sequence: u64,
    },
    PathChallenge {
        data: u64,
    },
    NewToken {
        index: u64,
    },
    HandshakeDone,
    AckFrequency {
        sequence: u64,
    },
    ImmediateAck,
    Ping,
    Datagram {
        id: u64,
    },
}
