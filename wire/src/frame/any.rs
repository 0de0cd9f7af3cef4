//! Any frame, and the rules that depend on its type (RFC 9000, Section 12.4, Table 3).

use super::{
    Ack, AckFrequency, ConnectionClose, Crypto, DataBlocked, Datagram, HandshakeDone, ImmediateAck,
    MaxData, MaxStreamData, MaxStreams, NewConnectionId, NewToken, Padding, PathChallenge,
    PathResponse, Ping, ResetStream, RetireConnectionId, StopSending, Stream, StreamDataBlocked,
    StreamHeader, StreamsBlocked,
};
use crate::{DecodeError, FrameEncode, Full, PacketKind, Reader, Writer};

/// Any frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    /// A run of PADDING frames.
    Padding(Padding),
    /// PING.
    Ping,
    /// ACK.
    Ack(Ack<'a>),
    /// RESET_STREAM.
    ResetStream(ResetStream),
    /// STOP_SENDING.
    StopSending(StopSending),
    /// CRYPTO.
    Crypto(Crypto<'a>),
    /// NEW_TOKEN.
    NewToken(NewToken<'a>),
    /// STREAM.
    Stream(Stream<'a>),
    /// MAX_DATA.
    MaxData(MaxData),
    /// MAX_STREAM_DATA.
    MaxStreamData(MaxStreamData),
    /// MAX_STREAMS.
    MaxStreams(MaxStreams),
    /// DATA_BLOCKED.
    DataBlocked(DataBlocked),
    /// STREAM_DATA_BLOCKED.
    StreamDataBlocked(StreamDataBlocked),
    /// STREAMS_BLOCKED.
    StreamsBlocked(StreamsBlocked),
    /// NEW_CONNECTION_ID.
    NewConnectionId(NewConnectionId),
    /// RETIRE_CONNECTION_ID.
    RetireConnectionId(RetireConnectionId),
    /// PATH_CHALLENGE.
    PathChallenge(PathChallenge),
    /// PATH_RESPONSE.
    PathResponse(PathResponse),
    /// CONNECTION_CLOSE.
    ConnectionClose(ConnectionClose<'a>),
    /// HANDSHAKE_DONE.
    HandshakeDone,
    /// DATAGRAM.
    Datagram(Datagram<'a>),
    /// ACK_FREQUENCY.
    AckFrequency(AckFrequency),
    /// IMMEDIATE_ACK.
    ImmediateAck,
}

/// Runs `$body` with `$frame` bound to the value in `$self`, whatever its type.
macro_rules! each {
    ($self:expr, $frame:ident => $body:expr) => {
        match $self {
            Frame::Padding($frame) => $body,
            Frame::Ping => {
                let $frame = &Ping;
                $body
            }
            Frame::Ack($frame) => $body,
            Frame::ResetStream($frame) => $body,
            Frame::StopSending($frame) => $body,
            Frame::Crypto($frame) => $body,
            Frame::NewToken($frame) => $body,
            Frame::Stream($frame) => $body,
            Frame::MaxData($frame) => $body,
            Frame::MaxStreamData($frame) => $body,
            Frame::MaxStreams($frame) => $body,
            Frame::DataBlocked($frame) => $body,
            Frame::StreamDataBlocked($frame) => $body,
            Frame::StreamsBlocked($frame) => $body,
            Frame::NewConnectionId($frame) => $body,
            Frame::RetireConnectionId($frame) => $body,
            Frame::PathChallenge($frame) => $body,
            Frame::PathResponse($frame) => $body,
            Frame::ConnectionClose($frame) => $body,
            Frame::HandshakeDone => {
                let $frame = &HandshakeDone;
                $body
            }
            Frame::Datagram($frame) => $body,
            Frame::AckFrequency($frame) => $body,
            Frame::ImmediateAck => {
                let $frame = &ImmediateAck;
                $body
            }
        }
    };
}

impl<'a> Frame<'a> {
    /// Reads what follows `frame_type`; `None` for a type this crate does not know.
    ///
    /// # Errors
    /// What the `decode` of the frame finds wrong.
    #[inline]
    pub fn decode(frame_type: u64, reader: &mut Reader<'a>) -> Result<Option<Self>, DecodeError> {
        let frame = match frame_type {
            // The frames of bulk transfers come first.
            Stream::TYPE_FIRST..=Stream::TYPE_LAST => {
                Self::Stream(Stream::decode(frame_type, reader)?)
            }
            Ack::TYPE | Ack::TYPE_ECN => Self::Ack(Ack::decode(frame_type, reader)?),
            _ => return Self::decode_less_frequent(frame_type, reader),
        };
        Ok(Some(frame))
    }

    fn decode_less_frequent(ty: u64, reader: &mut Reader<'a>) -> Result<Option<Self>, DecodeError> {
        Ok(Some(match ty {
            Padding::TYPE => Self::Padding(Padding::decode(ty, reader)?),
            Ping::TYPE => Self::Ping,
            ResetStream::TYPE => Self::ResetStream(ResetStream::decode(ty, reader)?),
            StopSending::TYPE => Self::StopSending(StopSending::decode(ty, reader)?),
            Crypto::TYPE => Self::Crypto(Crypto::decode(ty, reader)?),
            NewToken::TYPE => Self::NewToken(NewToken::decode(ty, reader)?),
            MaxData::TYPE => Self::MaxData(MaxData::decode(ty, reader)?),
            MaxStreamData::TYPE => Self::MaxStreamData(MaxStreamData::decode(ty, reader)?),
            MaxStreams::TYPE_BIDI | MaxStreams::TYPE_UNI => {
                Self::MaxStreams(MaxStreams::decode(ty, reader)?)
            }
            DataBlocked::TYPE => Self::DataBlocked(DataBlocked::decode(ty, reader)?),
            StreamDataBlocked::TYPE => {
                Self::StreamDataBlocked(StreamDataBlocked::decode(ty, reader)?)
            }
            StreamsBlocked::TYPE_BIDI | StreamsBlocked::TYPE_UNI => {
                Self::StreamsBlocked(StreamsBlocked::decode(ty, reader)?)
            }
            NewConnectionId::TYPE => Self::NewConnectionId(NewConnectionId::decode(ty, reader)?),
            RetireConnectionId::TYPE => {
                Self::RetireConnectionId(RetireConnectionId::decode(ty, reader)?)
            }
            PathChallenge::TYPE => Self::PathChallenge(PathChallenge::decode(ty, reader)?),
            PathResponse::TYPE => Self::PathResponse(PathResponse::decode(ty, reader)?),
            ConnectionClose::TYPE_TRANSPORT | ConnectionClose::TYPE_APPLICATION => {
                Self::ConnectionClose(ConnectionClose::decode(ty, reader)?)
            }
            HandshakeDone::TYPE => Self::HandshakeDone,
            Datagram::TYPE | Datagram::TYPE_WITH_LENGTH => {
                Self::Datagram(Datagram::decode(ty, reader)?)
            }
            AckFrequency::TYPE => Self::AckFrequency(AckFrequency::decode(ty, reader)?),
            ImmediateAck::TYPE => Self::ImmediateAck,
            _ => return Ok(None),
        }))
    }

    /// The frame type that [`encode`](FrameEncode::encode) writes.
    #[must_use]
    pub const fn frame_type(&self) -> u64 {
        match self {
            Self::Padding(_) => Padding::TYPE,
            Self::Ping => Ping::TYPE,
            Self::Ack(ack) => ack.frame_type(),
            Self::ResetStream(_) => ResetStream::TYPE,
            Self::StopSending(_) => StopSending::TYPE,
            Self::Crypto(_) => Crypto::TYPE,
            Self::NewToken(_) => NewToken::TYPE,
            Self::Stream(stream) => StreamHeader::frame_type(&stream.header()),
            Self::MaxData(_) => MaxData::TYPE,
            Self::MaxStreamData(_) => MaxStreamData::TYPE,
            Self::MaxStreams(frame) => frame.frame_type(),
            Self::DataBlocked(_) => DataBlocked::TYPE,
            Self::StreamDataBlocked(_) => StreamDataBlocked::TYPE,
            Self::StreamsBlocked(frame) => frame.frame_type(),
            Self::NewConnectionId(_) => NewConnectionId::TYPE,
            Self::RetireConnectionId(_) => RetireConnectionId::TYPE,
            Self::PathChallenge(_) => PathChallenge::TYPE,
            Self::PathResponse(_) => PathResponse::TYPE,
            Self::ConnectionClose(close) => close.frame_type(),
            Self::HandshakeDone => HandshakeDone::TYPE,
            Self::Datagram(datagram) => datagram.frame_type(),
            Self::AckFrequency(_) => AckFrequency::TYPE,
            Self::ImmediateAck => ImmediateAck::TYPE,
        }
    }

    /// The name in the RFC.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Padding(_) => "PADDING",
            Self::Ping => "PING",
            Self::Ack(_) => "ACK",
            Self::ResetStream(_) => "RESET_STREAM",
            Self::StopSending(_) => "STOP_SENDING",
            Self::Crypto(_) => "CRYPTO",
            Self::NewToken(_) => "NEW_TOKEN",
            Self::Stream(_) => "STREAM",
            Self::MaxData(_) => "MAX_DATA",
            Self::MaxStreamData(_) => "MAX_STREAM_DATA",
            Self::MaxStreams(_) => "MAX_STREAMS",
            Self::DataBlocked(_) => "DATA_BLOCKED",
            Self::StreamDataBlocked(_) => "STREAM_DATA_BLOCKED",
            Self::StreamsBlocked(_) => "STREAMS_BLOCKED",
            Self::NewConnectionId(_) => "NEW_CONNECTION_ID",
            Self::RetireConnectionId(_) => "RETIRE_CONNECTION_ID",
            Self::PathChallenge(_) => "PATH_CHALLENGE",
            Self::PathResponse(_) => "PATH_RESPONSE",
            Self::ConnectionClose(_) => "CONNECTION_CLOSE",
            Self::HandshakeDone => "HANDSHAKE_DONE",
            Self::Datagram(_) => "DATAGRAM",
            Self::AckFrequency(_) => "ACK_FREQUENCY",
            Self::ImmediateAck => "IMMEDIATE_ACK",
        }
    }

    /// Whether a packet of this kind can carry the frame (RFC 9000, Section 12.4, Table 3);
    /// in any other packet it is a PROTOCOL_VIOLATION.
    #[inline]
    #[must_use]
    pub const fn allowed_in(&self, kind: PacketKind) -> bool {
        use PacketKind::{Handshake, Initial, OneRtt, ZeroRtt};
        match self {
            // RFC 9000, Section 12.5: the application cannot close in Initial or Handshake.
            Self::ConnectionClose(ConnectionClose::Application { .. }) => {
                matches!(kind, ZeroRtt | OneRtt)
            }
            Self::Padding(_) | Self::Ping | Self::ConnectionClose(_) => kind.carries_frames(),
            Self::Ack(_) | Self::Crypto(_) => matches!(kind, Initial | Handshake | OneRtt),
            Self::NewToken(_) | Self::PathResponse(_) | Self::HandshakeDone => {
                matches!(kind, OneRtt)
            }
            // draft-ietf-quic-ack-frequency, Section 3: min_ack_delay is not remembered, so
            // these cannot be sent in 0-RTT.
            Self::AckFrequency(_) | Self::ImmediateAck => matches!(kind, OneRtt),
            Self::ResetStream(_)
            | Self::StopSending(_)
            | Self::Stream(_)
            | Self::MaxData(_)
            | Self::MaxStreamData(_)
            | Self::MaxStreams(_)
            | Self::DataBlocked(_)
            | Self::StreamDataBlocked(_)
            | Self::StreamsBlocked(_)
            | Self::NewConnectionId(_)
            | Self::RetireConnectionId(_)
            | Self::PathChallenge(_)
            | Self::Datagram(_) => matches!(kind, ZeroRtt | OneRtt),
        }
    }

    /// Whether the frame can be in a packet that probes a path (RFC 9000, Section 9.1).
    #[inline]
    #[must_use]
    pub const fn is_probing(&self) -> bool {
        matches!(
            self,
            Self::PathChallenge(_)
                | Self::PathResponse(_)
                | Self::NewConnectionId(_)
                | Self::Padding(_)
        )
    }
}

impl FrameEncode for Frame<'_> {
    fn encode(&self, writer: &mut Writer<'_>) -> Result<(), Full> {
        each!(self, frame => frame.encode(writer))
    }

    fn encoded_len(&self) -> usize {
        each!(self, frame => frame.encoded_len())
    }

    #[inline]
    fn is_ack_eliciting(&self) -> bool {
        !matches!(self, Self::Ack(_) | Self::Padding(_) | Self::ConnectionClose(_))
    }

    fn to_frame(&self) -> Frame<'_> {
        *self
    }
}
