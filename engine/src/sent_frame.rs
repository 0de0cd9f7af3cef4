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

impl SentFrame {
    /// Takes in STREAM data that follows on this; false, and nothing changes, if `next` is none.
    pub(crate) fn join(&mut self, next: &SentFrame) -> bool {
        let (
            SentFrame::Stream { id, offset, len, fin },
            SentFrame::Stream { id: next_id, offset: next_offset, len: more, fin: next_fin },
        ) = (self, next)
        else {
            return false;
        };
        let follows = offset.checked_add(u64::from(*len)) == Some(*next_offset);
        let Some(joined) = len.checked_add(*more).filter(|_| follows && id == next_id && !*fin)
        else {
            return false;
        };
        *len = joined;
        *fin = *next_fin;
        true
    }
}

#[cfg(test)]
mod tests {
    use quicket_wire::{Dir, Side};

    use super::*;

    fn data(index: u64, offset: u64, len: u32, fin: bool) -> SentFrame {
        SentFrame::Stream { id: StreamId::new(Side::Client, Dir::Uni, index), offset, len, fin }
    }

    #[test]
    fn stream_data_joins_only_what_follows_on_it() {
        let mut joined = data(1, 100, 50, false);
        for other in [
            data(2, 150, 10, false),
            data(1, 151, 10, false),
            data(1, 140, 10, false),
            data(1, 150, u32::MAX, false),
            SentFrame::Ping,
        ] {
            assert!(!joined.join(&other), "{other:?}");
            assert_eq!(joined, data(1, 100, 50, false));
        }
        assert!(joined.join(&data(1, 150, 10, false)));
        assert!(joined.join(&data(1, 160, 0, true)));
        assert_eq!(joined, data(1, 100, 60, true));
        assert!(!joined.join(&data(1, 160, 0, true)), "nothing follows the end");
    }
}
