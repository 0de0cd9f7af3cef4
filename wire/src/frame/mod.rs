//! Frames (RFC 9000, Sections 12.4 and 19; RFC 9221; draft-ietf-quic-ack-frequency).
//!
//! Each frame is a plain value with `decode` and [`FrameEncode`]; [`Frame`] is any of them and
//! [`Frames`] iterates over the payload of a packet.

mod ack;
mod ack_frequency;
mod any;
mod connection_close;
mod crypto;
mod data_blocked;
mod datagram;
mod handshake_done;
mod immediate_ack;
mod iter;
mod max_data;
mod max_stream_data;
mod max_streams;
mod new_connection_id;
mod new_token;
mod padding;
mod path_challenge;
mod path_response;
mod ping;
mod reset_stream;
mod retire_connection_id;
mod stop_sending;
mod stream;
mod stream_data_blocked;
mod streams_blocked;
#[cfg(test)]
mod tests;

use core::fmt;

pub use ack::{Ack, AckRanges, AckRangesIter, encode_ack};
pub use ack_frequency::AckFrequency;
pub use any::Frame;
pub use connection_close::ConnectionClose;
pub use crypto::Crypto;
pub use data_blocked::DataBlocked;
pub use datagram::Datagram;
pub use handshake_done::HandshakeDone;
pub use immediate_ack::ImmediateAck;
pub use iter::{FrameError, Frames};
pub use max_data::MaxData;
pub use max_stream_data::MaxStreamData;
pub use max_streams::MaxStreams;
pub use new_connection_id::NewConnectionId;
pub use new_token::NewToken;
pub use padding::Padding;
pub use path_challenge::PathChallenge;
pub use path_response::PathResponse;
pub use ping::Ping;
pub use reset_stream::ResetStream;
pub use retire_connection_id::RetireConnectionId;
pub use stop_sending::StopSending;
pub use stream::{Stream, StreamHeader};
pub use stream_data_blocked::StreamDataBlocked;
pub use streams_blocked::StreamsBlocked;

use crate::{DecodeError, Full, Writer, varint};

/// A frame that can be written into a packet.
pub trait FrameEncode {
    /// Writes the frame, its type first.
    ///
    /// # Errors
    /// [`Full`] when it does not fit as a whole; then nothing is written.
    fn encode(&self, writer: &mut Writer<'_>) -> Result<(), Full>;

    /// The number of bytes that [`encode`](Self::encode) writes.
    fn encoded_len(&self) -> usize;

    /// Whether the peer has to acknowledge a packet with this frame: all but ACK, PADDING and
    /// CONNECTION_CLOSE (RFC 9000, Section 13.2).
    #[inline]
    fn is_ack_eliciting(&self) -> bool {
        true
    }

    /// The frame as the general type, for logging.
    fn to_frame(&self) -> Frame<'_>;
}

/// Data of a stream ends at 2^62 - 1 or before (RFC 9000, Sections 19.6 and 19.8).
#[inline]
fn check_end(offset: u64, data: &[u8], what: &'static str) -> Result<(), DecodeError> {
    if offset.saturating_add(data.len() as u64) > varint::MAX {
        return Err(DecodeError::InvalidValue(what));
    }
    Ok(())
}

/// Stands for data in debug output: logs show how much there is, not what it says.
struct ByteCount(usize);

impl fmt::Debug for ByteCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<{} bytes>", self.0)
    }
}
