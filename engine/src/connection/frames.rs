//! Hands the frames of a packet to their owners.

use quicket_wire::frame::ConnectionClose;
use quicket_wire::{Frame, FrameEncode, Frames, Header, Side, TransportErrorCode};

use super::receive::Arrival;
use super::{Connection, SpaceId};
use crate::crypto::Level;
use crate::error::{ConnectionError, TransportError};
use crate::event::Event;
use crate::recovery::PathKey;
use crate::time::Time;

/// What the frames of a packet were, taken together.
#[derive(Clone, Copy, Debug)]
pub(super) struct FrameSummary {
    pub(super) ack_eliciting: bool,
    /// Only probing frames (RFC 9000, Section 9.1).
    pub(super) probing_only: bool,
}

impl Connection {
    /// Processes all frames of an authenticated packet.
    pub(super) fn process_frames(
        &mut self,
        arrival: &Arrival,
        header: &Header,
        (level, path): (Level, PathKey),
        payload: &[u8],
    ) -> Result<FrameSummary, TransportError> {
        let mut summary = FrameSummary { ack_eliciting: false, probing_only: true };
        self.streams.receive_early(level == Level::EarlyData);
        for frame in Frames::new(payload) {
            let frame = frame.map_err(|error| TransportError {
                code: error.code,
                frame_type: error.frame_type,
                reason: error.reason,
            })?;
            // RFC 9000, Section 12.4, Table 3.
            if !frame.allowed_in(header.kind) {
                return Err(TransportError::at(
                    TransportErrorCode::PROTOCOL_VIOLATION,
                    frame.frame_type(),
                    "the frame is not allowed in packets of this type",
                ));
            }
            summary.ack_eliciting |= frame.is_ack_eliciting();
            summary.probing_only &= frame.is_probing();
            self.reporting.counters.count().frames_received.add(frame.frame_type(), 1);
            if let Frame::ConnectionClose(close) = &frame {
                self.on_connection_close(arrival.now, level, close);
                break;
            }
            self.process_frame(arrival.now, header, (level, path), &frame)?;
            if !self.termination.is_open() {
                break;
            }
        }
        Ok(summary)
    }

    fn process_frame(
        &mut self,
        now: Time,
        header: &Header,
        (level, path): (Level, PathKey),
        frame: &Frame<'_>,
    ) -> Result<(), TransportError> {
        match frame {
            // The packet's last frame is not for here.
            Frame::Padding(_) | Frame::Ping | Frame::ConnectionClose(_) => Ok(()),
            Frame::Ack(ack) => self.on_ack(now, SpaceId::of(level), ack),
            Frame::Crypto(crypto) => {
                self.reception.on_crypto();
                let space = self.recovery.spaces.of_level_mut(level);
                space.map_or(Ok(()), |space| space.crypto.on_frame(crypto))
            }
            Frame::Stream(stream) => self.streams.on_stream(stream),
            Frame::ResetStream(frame) => self.streams.on_reset_stream(frame),
            Frame::StopSending(frame) => self.streams.on_stop_sending(frame),
            Frame::MaxData(frame) => self.streams.on_max_data(frame),
            Frame::MaxStreamData(frame) => self.streams.on_max_stream_data(frame),
            Frame::MaxStreams(frame) => self.streams.on_max_streams(frame),
            Frame::DataBlocked(frame) => self.streams.on_data_blocked(frame),
            Frame::StreamDataBlocked(frame) => self.streams.on_stream_data_blocked(frame),
            Frame::StreamsBlocked(frame) => self.streams.on_streams_blocked(frame),
            Frame::Datagram(datagram) => {
                self.datagrams.on_frame(datagram)?;
                self.reporting.events.push(Event::DatagramReceived);
                Ok(())
            }
            Frame::NewToken(frame) => self.on_new_token(frame.token),
            Frame::NewConnectionId(frame) => {
                self.cids.remote.on_new_connection_id(frame)?;
                self.reporting.events.push(Event::ConnectionIdsChanged);
                Ok(())
            }
            Frame::RetireConnectionId(frame) => {
                let linger = self.pto().times(3);
                self.cids.local.on_retire(now, frame, &header.dcid, linger)?;
                self.issue_cids(now);
                self.reporting.events.push(Event::ConnectionIdsChanged);
                Ok(())
            }
            Frame::PathChallenge(frame) => {
                self.on_path_challenge(path, frame);
                Ok(())
            }
            Frame::PathResponse(frame) => self.on_path_response(now, frame),
            Frame::HandshakeDone => self.on_handshake_done(now),
            Frame::AckFrequency(frame) => self.recovery.spaces.data.acks.on_ack_frequency(frame),
            Frame::ImmediateAck => self.recovery.spaces.data.acks.on_immediate_ack(),
        }
    }

    fn on_new_token(&mut self, token: &[u8]) -> Result<(), TransportError> {
        // RFC 9000, Section 19.7.
        if self.role.side() == Side::Server {
            return Err(TransportError::at(
                TransportErrorCode::PROTOCOL_VIOLATION,
                quicket_wire::frame::NewToken::TYPE,
                "a client sent NEW_TOKEN",
            ));
        }
        self.reporting.events.push(Event::NewToken(token.to_vec()));
        Ok(())
    }

    fn on_handshake_done(&mut self, now: Time) -> Result<(), TransportError> {
        // RFC 9000, Section 19.20.
        if self.role.side() == Side::Server {
            return Err(TransportError::at(
                TransportErrorCode::PROTOCOL_VIOLATION,
                quicket_wire::frame::HandshakeDone::TYPE,
                "a client sent HANDSHAKE_DONE",
            ));
        }
        if self.handshake.complete {
            self.confirm_handshake(now);
        }
        Ok(())
    }

    fn on_connection_close(&mut self, now: Time, level: Level, close: &ConnectionClose<'_>) {
        let error = match close {
            ConnectionClose::Transport { error_code, frame_type, reason } => {
                ConnectionError::PeerTransport {
                    code: *error_code,
                    frame_type: *frame_type,
                    reason: reason.to_vec(),
                }
            }
            ConnectionClose::Application { error_code, reason } => {
                ConnectionError::PeerApplication { code: *error_code, reason: reason.to_vec() }
            }
        };
        if let Some(error) = self.termination.on_close_received(level, error) {
            self.drain(now, error);
        }
    }
}
