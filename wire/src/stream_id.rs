//! Stream identifiers (RFC 9000, Section 2.1).

use core::fmt;

use crate::{DecodeError, Reader, varint};

/// The number of streams of one type a connection can ever have: 2^60 (RFC 9000, Section 4.6).
pub const MAX_STREAMS: u64 = 1 << 60;

/// A role in the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Side {
    /// The endpoint that started the connection.
    Client,
    /// The endpoint that accepted it.
    Server,
}

impl Side {
    /// Whether this is the client.
    #[inline]
    #[must_use]
    pub const fn is_client(self) -> bool {
        matches!(self, Self::Client)
    }

    /// Whether this is the server.
    #[inline]
    #[must_use]
    pub const fn is_server(self) -> bool {
        matches!(self, Self::Server)
    }

    /// The other side.
    #[inline]
    #[must_use]
    pub const fn peer(self) -> Self {
        match self {
            Self::Client => Self::Server,
            Self::Server => Self::Client,
        }
    }
}

/// Whether data flows one way or both ways on a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Dir {
    /// Both endpoints can send.
    Bidi,
    /// Only the initiator can send.
    Uni,
}

/// A stream ID: initiator in the lowest bit, direction in the next, then the index.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(u64);

impl StreamId {
    /// The `index`-th stream (from 0) that `initiator` opens in direction `dir`.
    ///
    /// An index beyond the last one, [`MAX_STREAMS`] - 1, is taken as the last one.
    #[inline]
    #[must_use]
    pub const fn new(initiator: Side, dir: Dir, index: u64) -> Self {
        let index = if index < MAX_STREAMS { index } else { MAX_STREAMS - 1 };
        let initiator = match initiator {
            Side::Client => 0,
            Side::Server => 1,
        };
        let dir = match dir {
            Dir::Bidi => 0,
            Dir::Uni => 2,
        };
        Self(index << 2 | dir | initiator)
    }

    /// The stream with this ID; `None` above 2^62 - 1.
    #[inline]
    #[must_use]
    pub const fn from_u64(id: u64) -> Option<Self> {
        if id <= varint::MAX { Some(Self(id)) } else { None }
    }

    #[inline]
    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        // A variable-length integer cannot exceed the largest stream ID.
        reader.varint().map(Self)
    }

    /// The side that opened the stream.
    #[inline]
    #[must_use]
    pub const fn initiator(self) -> Side {
        if self.0 & 1 == 0 { Side::Client } else { Side::Server }
    }

    /// Whether the stream is bidirectional or unidirectional.
    #[inline]
    #[must_use]
    pub const fn dir(self) -> Dir {
        if self.0 & 2 == 0 { Dir::Bidi } else { Dir::Uni }
    }

    /// The position among the streams of the same type, from 0 to [`MAX_STREAMS`] - 1.
    #[inline]
    #[must_use]
    pub const fn index(self) -> u64 {
        self.0 >> 2
    }

    /// The stream ID as it appears in frames.
    #[inline]
    #[must_use]
    pub const fn as_u64(self) -> u64 {
        self.0
    }
}

impl From<StreamId> for u64 {
    #[inline]
    fn from(id: StreamId) -> Self {
        id.0
    }
}

impl TryFrom<u64> for StreamId {
    type Error = InvalidStreamId;

    #[inline]
    fn try_from(id: u64) -> Result<Self, InvalidStreamId> {
        Self::from_u64(id).ok_or(InvalidStreamId)
    }
}

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Debug for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StreamId({}: {:?} {:?} {})", self.0, self.initiator(), self.dir(), self.index())
    }
}

/// The number exceeds the largest stream ID, 2^62 - 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidStreamId;

impl fmt::Display for InvalidStreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a stream ID must be below 2^62")
    }
}

impl core::error::Error for InvalidStreamId {}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 9000, Section 2.1, Table 1.
    #[test]
    fn the_two_lowest_bits_are_the_type() {
        let types = [
            (0, Side::Client, Dir::Bidi),
            (1, Side::Server, Dir::Bidi),
            (2, Side::Client, Dir::Uni),
            (3, Side::Server, Dir::Uni),
        ];
        for (bits, initiator, dir) in types {
            for index in [0, 1, 77, MAX_STREAMS - 1] {
                let id = StreamId::new(initiator, dir, index);
                assert_eq!(u64::from(id), index * 4 + bits);
                assert_eq!((id.initiator(), id.dir(), id.index()), (initiator, dir, index));
                assert_eq!(StreamId::try_from(u64::from(id)), Ok(id));
            }
        }
    }

    #[test]
    fn numbers_beyond_62_bits_are_not_stream_ids() {
        assert_eq!(StreamId::try_from(varint::MAX + 1), Err(InvalidStreamId));
        assert_eq!(
            StreamId::new(Side::Server, Dir::Uni, u64::MAX).as_u64(),
            varint::MAX,
            "an index out of range stays within the format"
        );
    }
}
