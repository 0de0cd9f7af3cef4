//! Frames as they stand in packets' events.

use std::ops::RangeInclusive;

use quicket_wire::frame::{Ack, ConnectionClose};
use quicket_wire::{Dir, Frame, FrameError, Frames, TransportErrorCode};
use serde::ser::SerializeSeq;
use serde::{Serialize, Serializer};

use super::event::{Token, is_false};
use super::json::{Cid, Hex, Millis, RawInfo, Text};

/// The frames of a packet.
pub(super) struct FrameList<'a> {
    pub(super) payload: &'a [u8],
    /// Of the packet's sender.
    pub(super) ack_delay_exponent: u8,
}

impl Serialize for FrameList<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(None)?;
        for frame in Frames::new(self.payload) {
            list.serialize_element(&match &frame {
                Ok(frame) => FrameRecord::new(frame, self.ack_delay_exponent),
                Err(FrameError { frame_type, .. }) => {
                    FrameRecord::Unknown { frame_type_bytes: *frame_type }
                }
            })?;
        }
        list.end()
    }
}

/// One frame. `length` is the older name of `raw.payload_length`.
#[derive(Serialize)]
#[serde(tag = "frame_type", rename_all = "snake_case")]
enum FrameRecord<'a> {
    Padding {
        raw: RawInfo,
    },
    Ping,
    Ack(AckRecord<'a>),
    ResetStream {
        stream_id: u64,
        error: &'static str,
        error_code: u64,
        final_size: u64,
    },
    StopSending {
        stream_id: u64,
        error: &'static str,
        error_code: u64,
    },
    Crypto {
        offset: u64,
        length: usize,
        raw: RawInfo,
    },
    NewToken {
        token: Token,
    },
    Stream {
        stream_id: u64,
        offset: u64,
        length: usize,
        #[serde(skip_serializing_if = "is_false")]
        fin: bool,
        raw: RawInfo,
    },
    MaxData {
        maximum: u64,
    },
    MaxStreamData {
        stream_id: u64,
        maximum: u64,
    },
    MaxStreams {
        stream_type: &'static str,
        maximum: u64,
    },
    DataBlocked {
        limit: u64,
    },
    StreamDataBlocked {
        stream_id: u64,
        limit: u64,
    },
    StreamsBlocked {
        stream_type: &'static str,
        limit: u64,
    },
    NewConnectionId {
        sequence_number: u64,
        retire_prior_to: u64,
        connection_id_length: usize,
        connection_id: Cid,
    },
    RetireConnectionId {
        sequence_number: u64,
    },
    PathChallenge {
        data: Hex<'a>,
    },
    PathResponse {
        data: Hex<'a>,
    },
    ConnectionClose(CloseRecord<'a>),
    HandshakeDone,
    Datagram {
        length: usize,
        raw: RawInfo,
    },
    AckFrequency {
        sequence_number: u64,
        ack_eliciting_threshold: u64,
        requested_max_ack_delay: u64,
        reordering_threshold: u64,
    },
    ImmediateAck,
    Unknown {
        frame_type_bytes: u64,
    },
}

/// ACK.
#[derive(Serialize)]
struct AckRecord<'a> {
    ack_delay: Millis,
    acked_ranges: AckedRanges<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ect1: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ect0: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ce: Option<u64>,
}

/// The ranges of an ACK frame: `[first, last]`, or `[only]`.
struct AckedRanges<'a>(&'a Ack<'a>);

impl Serialize for AckedRanges<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.ranges.iter().map(AckedRange))
    }
}

struct AckedRange(RangeInclusive<u64>);

impl Serialize for AckedRange {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (first, last) = (*self.0.start(), *self.0.end());
        if first == last {
            [first].serialize(serializer)
        } else {
            [first, last].serialize(serializer)
        }
    }
}

/// CONNECTION_CLOSE.
#[derive(Serialize)]
struct CloseRecord<'a> {
    error_space: &'static str,
    error: String,
    error_code: u64,
    reason: Text<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    trigger_frame_type: Option<u64>,
}

impl<'a> FrameRecord<'a> {
    fn new(frame: &'a Frame<'a>, ack_delay_exponent: u8) -> Self {
        match frame {
            Frame::Padding(padding) => Self::Padding { raw: RawInfo::length(padding.count) },
            Frame::Ping => Self::Ping,
            Frame::Ack(ack) => Self::Ack(AckRecord::new(ack, ack_delay_exponent)),
            Frame::Crypto(crypto) => {
                let length = crypto.data.len();
                Self::Crypto { offset: crypto.offset, length, raw: RawInfo::payload(length) }
            }
            Frame::NewToken(new) => {
                Self::NewToken { token: Token { raw: RawInfo::length(new.token.len()) } }
            }
            Frame::ConnectionClose(close) => Self::ConnectionClose(CloseRecord::new(close)),
            Frame::HandshakeDone => Self::HandshakeDone,
            Frame::Datagram(datagram) => {
                let length = datagram.data.len();
                Self::Datagram { length, raw: RawInfo::payload(length) }
            }
            Frame::AckFrequency(frame) => Self::AckFrequency {
                sequence_number: frame.sequence_number,
                ack_eliciting_threshold: frame.ack_eliciting_threshold,
                requested_max_ack_delay: frame.requested_max_ack_delay,
                reordering_threshold: frame.reordering_threshold,
            },
            Frame::ImmediateAck => Self::ImmediateAck,
            Frame::NewConnectionId(_)
            | Frame::RetireConnectionId(_)
            | Frame::PathChallenge(_)
            | Frame::PathResponse(_) => Self::of_paths(frame),
            _ => Self::of_streams(frame),
        }
    }

    /// Streams and flow control.
    fn of_streams(frame: &'a Frame<'a>) -> Self {
        match frame {
            Frame::Stream(stream) => {
                let (stream_id, length) = (stream.id.as_u64(), stream.data.len());
                let (offset, fin, raw) = (stream.offset, stream.fin, RawInfo::payload(length));
                Self::Stream { stream_id, offset, length, fin, raw }
            }
            Frame::ResetStream(reset) => Self::ResetStream {
                stream_id: reset.id.as_u64(),
                error: UNKNOWN,
                error_code: reset.error_code,
                final_size: reset.final_size,
            },
            Frame::StopSending(stop) => Self::StopSending {
                stream_id: stop.id.as_u64(),
                error: UNKNOWN,
                error_code: stop.error_code,
            },
            Frame::MaxData(max) => Self::MaxData { maximum: max.maximum },
            Frame::MaxStreamData(max) => {
                Self::MaxStreamData { stream_id: max.id.as_u64(), maximum: max.maximum }
            }
            Frame::MaxStreams(max) => {
                Self::MaxStreams { stream_type: stream_type(max.dir), maximum: max.maximum }
            }
            Frame::DataBlocked(blocked) => Self::DataBlocked { limit: blocked.limit },
            Frame::StreamDataBlocked(blocked) => {
                Self::StreamDataBlocked { stream_id: blocked.id.as_u64(), limit: blocked.limit }
            }
            Frame::StreamsBlocked(blocked) => {
                Self::StreamsBlocked { stream_type: stream_type(blocked.dir), limit: blocked.limit }
            }
            other => Self::Unknown { frame_type_bytes: other.frame_type() },
        }
    }

    /// Connection IDs and paths. Stateless reset tokens are left out: who has one can end the
    /// connection.
    fn of_paths(frame: &'a Frame<'a>) -> Self {
        match frame {
            Frame::NewConnectionId(new) => Self::NewConnectionId {
                sequence_number: new.sequence_number,
                retire_prior_to: new.retire_prior_to,
                connection_id_length: new.connection_id.len(),
                connection_id: Cid(new.connection_id),
            },
            Frame::RetireConnectionId(retire) => {
                Self::RetireConnectionId { sequence_number: retire.sequence_number }
            }
            Frame::PathChallenge(challenge) => Self::PathChallenge { data: Hex(&challenge.data) },
            Frame::PathResponse(response) => Self::PathResponse { data: Hex(&response.data) },
            other => Self::Unknown { frame_type_bytes: other.frame_type() },
        }
    }
}

impl<'a> AckRecord<'a> {
    fn new(ack: &'a Ack<'a>, ack_delay_exponent: u8) -> Self {
        let factor = 1u64.checked_shl(ack_delay_exponent.into()).unwrap_or(u64::MAX);
        Self {
            ack_delay: Millis(ack.delay.saturating_mul(factor).saturating_mul(1000)),
            acked_ranges: AckedRanges(ack),
            ect1: ack.ecn.map(|ecn| ecn.ect1),
            ect0: ack.ecn.map(|ecn| ecn.ect0),
            ce: ack.ecn.map(|ecn| ecn.ce),
        }
    }
}

impl<'a> CloseRecord<'a> {
    fn new(close: &ConnectionClose<'a>) -> Self {
        match *close {
            ConnectionClose::Transport { error_code, frame_type, reason } => Self {
                error_space: "transport",
                error: transport_error(error_code),
                error_code: error_code.0,
                reason: Text(reason),
                trigger_frame_type: Some(frame_type).filter(|frame_type| *frame_type != 0),
            },
            ConnectionClose::Application { error_code, reason } => Self {
                error_space: "application",
                error: UNKNOWN.into(),
                error_code,
                reason: Text(reason),
                trigger_frame_type: None,
            },
        }
    }
}

/// qlog's word for codes without a name, such as those of an application that it does not know.
pub(super) const UNKNOWN: &str = "unknown";

/// A transport error's name.
pub(super) fn transport_error(code: TransportErrorCode) -> String {
    match (code.name(), code.crypto_alert()) {
        (Some(name), _) => name.to_ascii_lowercase(),
        (None, Some(alert)) => format!("crypto_error_0x1{alert:02x}"),
        (None, None) => UNKNOWN.into(),
    }
}

const fn stream_type(dir: Dir) -> &'static str {
    match dir {
        Dir::Bidi => "bidirectional",
        Dir::Uni => "unidirectional",
    }
}
