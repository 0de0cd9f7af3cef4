//! Properties of all frames.

use alloc::{string::ToString, vec, vec::Vec};

use super::*;
use crate::{
    ConnectionId, Dir, EcnCounts, MAX_STREAMS, PacketKind, StatelessResetToken, StreamId,
    TransportErrorCode,
};
use quicket_testing::Rng;

fn stream_id(rng: &mut Rng) -> StreamId {
    StreamId::from_u64(rng.varint()).unwrap()
}

fn dir(rng: &mut Rng) -> Dir {
    if rng.below(2) == 0 { Dir::Bidi } else { Dir::Uni }
}

/// One valid frame of each variant with random content.
fn samples<'a>(rng: &mut Rng, data: &'a [u8]) -> Vec<Frame<'a>> {
    let id = stream_id(rng);
    let end = rng.varint();
    let sequence_number = rng.varint();
    let code = rng.varint();
    let largest = rng.varint();
    vec![
        Frame::Padding(Padding { count: 1 + rng.below(50) as usize }),
        Frame::Ping,
        Frame::Ack(Ack {
            largest,
            delay: rng.varint(),
            ranges: AckRanges::single(rng.below(largest + 1)..=largest).unwrap(),
            ecn: (rng.below(2) == 0).then_some(EcnCounts { ect0: 7, ect1: rng.varint(), ce: end }),
        }),
        Frame::ResetStream(ResetStream { id, error_code: code, final_size: rng.varint() }),
        Frame::StopSending(StopSending { id, error_code: code }),
        Frame::Crypto(Crypto { offset: end.saturating_sub(data.len() as u64), data }),
        Frame::NewToken(NewToken { token: data }),
        Frame::Stream(Stream {
            id,
            offset: end.saturating_sub(data.len() as u64),
            fin: rng.below(2) == 0,
            data,
        }),
        Frame::MaxData(MaxData { maximum: rng.varint() }),
        Frame::MaxStreamData(MaxStreamData { id, maximum: rng.varint() }),
        Frame::MaxStreams(MaxStreams { dir: dir(rng), maximum: rng.below(MAX_STREAMS + 1) }),
        Frame::DataBlocked(DataBlocked { limit: rng.varint() }),
        Frame::StreamDataBlocked(StreamDataBlocked { id, limit: rng.varint() }),
        Frame::StreamsBlocked(StreamsBlocked { dir: dir(rng), limit: rng.below(MAX_STREAMS + 1) }),
        Frame::NewConnectionId(NewConnectionId {
            sequence_number,
            retire_prior_to: rng.below(sequence_number + 1),
            connection_id: ConnectionId::new(&[5; 20][..1 + rng.below(20) as usize]).unwrap(),
            stateless_reset_token: StatelessResetToken(
                rng.next().to_be_bytes().repeat(2)[..].try_into().unwrap(),
            ),
        }),
        Frame::RetireConnectionId(RetireConnectionId { sequence_number }),
        Frame::PathChallenge(PathChallenge { data: rng.next().to_be_bytes() }),
        Frame::PathResponse(PathResponse { data: rng.next().to_be_bytes() }),
        Frame::ConnectionClose(ConnectionClose::Transport {
            error_code: TransportErrorCode(code),
            frame_type: rng.varint(),
            reason: data,
        }),
        Frame::ConnectionClose(ConnectionClose::Application { error_code: code, reason: data }),
        Frame::HandshakeDone,
        Frame::Datagram(Datagram { data, has_length: true }),
        Frame::AckFrequency(AckFrequency {
            sequence_number,
            ack_eliciting_threshold: rng.varint(),
            requested_max_ack_delay: rng.varint(),
            reordering_threshold: rng.varint(),
        }),
        Frame::ImmediateAck,
        // Extends to the end of the packet, so it comes last.
        Frame::Datagram(Datagram { data, has_length: false }),
    ]
}

#[test]
fn what_is_encoded_decodes_to_the_same_and_has_the_announced_length() {
    let mut rng = Rng::new(10);
    for _ in 0..500 {
        let mut data = rng.bytes_up_to(100);
        data.insert(0, rng.next() as u8);
        for frame in samples(&mut rng, &data) {
            let mut buffer = [0; 512];
            let mut writer = Writer::new(&mut buffer);
            frame.encode(&mut writer).unwrap();
            assert_eq!(writer.position(), frame.encoded_len(), "{frame:?}");
            let mut frames = Frames::new(writer.written());
            assert_eq!(frames.next(), Some(Ok(frame)));
            assert_eq!(frames.next(), None);
            assert_eq!(frame.to_frame(), frame);
        }
    }
}

#[test]
fn a_payload_of_all_frames_is_read_in_order() {
    let mut rng = Rng::new(11);
    let data = [7; 30];
    let sent = samples(&mut rng, &data);
    let mut buffer = [0; 4096];
    let mut writer = Writer::new(&mut buffer);
    sent.iter().for_each(|frame| frame.encode(&mut writer).unwrap());
    let received: Result<Vec<_>, _> = Frames::new(writer.written()).collect();
    assert_eq!(received.unwrap(), sent);
}

#[test]
fn encoding_writes_all_or_nothing() {
    let mut rng = Rng::new(12);
    let data = [7; 30];
    for frame in samples(&mut rng, &data) {
        for size in 0..frame.encoded_len() {
            let mut buffer = vec![0; size];
            let mut writer = Writer::new(&mut buffer);
            assert_eq!(frame.encode(&mut writer), Err(Full), "{frame:?}");
            assert_eq!(writer.position(), 0);
        }
    }
}

#[test]
fn every_truncation_is_a_frame_encoding_error() {
    let mut rng = Rng::new(13);
    let data = [7; 30];
    for frame in samples(&mut rng, &data) {
        if matches!(frame, Frame::Padding(_) | Frame::Datagram(Datagram { has_length: false, .. }))
        {
            continue;
        }
        let mut buffer = [0; 512];
        let mut writer = Writer::new(&mut buffer);
        frame.encode(&mut writer).unwrap();
        for size in 1..writer.position() {
            let error = Frames::new(&writer.written()[..size]).next().unwrap().unwrap_err();
            assert_eq!(error.code, TransportErrorCode::FRAME_ENCODING_ERROR, "{frame:?}");
            if size >= varint::len(frame.frame_type()) {
                assert_eq!(error.frame_type, frame.frame_type());
            }
        }
    }
}

/// RFC 9000, Section 12.4.
#[test]
fn an_empty_payload_is_a_protocol_violation() {
    let mut frames = Frames::new(&[]);
    let error = frames.next().unwrap().unwrap_err();
    assert_eq!(error.code, TransportErrorCode::PROTOCOL_VIOLATION);
    assert_eq!(frames.next(), None);
}

/// RFC 9000, Section 12.4.
#[test]
fn a_frame_type_in_a_longer_form_is_a_protocol_violation() {
    for payload in [&[0x40, 0x01][..], &[0x80, 0, 0, 0xaf, 1, 1, 1, 1]] {
        let error = Frames::new(payload).next().unwrap().unwrap_err();
        assert_eq!(error.code, TransportErrorCode::PROTOCOL_VIOLATION);
    }
    assert!(Frames::new(&[0x40, 0xaf, 1, 1, 1, 1]).next().unwrap().is_ok());
}

/// RFC 9000, Section 12.4.
#[test]
fn an_unknown_frame_type_is_a_frame_encoding_error_and_ends_the_iteration() {
    let mut frames = Frames::new(&[0x01, 0x20, 0x01]);
    assert_eq!(frames.next(), Some(Ok(Frame::Ping)));
    let error = frames.next().unwrap().unwrap_err();
    assert_eq!(error.code, TransportErrorCode::FRAME_ENCODING_ERROR);
    assert_eq!(error.frame_type, 0x20);
    assert_eq!(
        error.to_string(),
        "FRAME_ENCODING_ERROR in a frame of type 0x20: unknown frame type"
    );
    assert_eq!(frames.next(), None);
}

fn assert_malformed(payload: &[u8]) {
    let error = Frames::new(payload).next().unwrap().unwrap_err();
    assert_eq!(error.code, TransportErrorCode::FRAME_ENCODING_ERROR);
    assert_eq!(error.frame_type, u64::from(payload[0]));
    assert_ne!(error.reason, "frame is truncated");
}

/// RFC 9000, Section 19.7.
#[test]
fn an_empty_token_is_refused() {
    assert_malformed(&[0x07, 0x00]);
}

/// RFC 9000, Sections 19.11 and 19.14.
#[test]
fn more_than_2_to_the_60_streams_are_refused() {
    for frame_type in [0x12, 0x13, 0x16, 0x17] {
        assert_malformed(&[frame_type, 0xd0, 0, 0, 0, 0, 0, 0, 1]);
        assert!(Frames::new(&[frame_type, 0xd0, 0, 0, 0, 0, 0, 0, 0]).next().unwrap().is_ok());
    }
}

/// RFC 9000, Section 19.6.
#[test]
fn crypto_data_beyond_the_last_offset_is_refused() {
    assert_malformed(&[0x06, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 0]);
}

/// RFC 9000, Section 12.4, Table 3: one letter per packet kind.
#[test]
fn frames_are_allowed_in_the_packets_of_table_3() {
    let mut rng = Rng::new(14);
    for frame in samples(&mut rng, &[1]) {
        let expected = match frame.name() {
            "PADDING" | "PING" => "IH01",
            "ACK" | "CRYPTO" => "IH_1",
            "NEW_TOKEN" | "PATH_RESPONSE" | "HANDSHAKE_DONE" => "___1",
            "ACK_FREQUENCY" | "IMMEDIATE_ACK" => "___1",
            "CONNECTION_CLOSE" if frame.frame_type() == 0x1c => "IH01",
            _ => "__01",
        };
        let kinds = [
            (PacketKind::Initial, 'I'),
            (PacketKind::Handshake, 'H'),
            (PacketKind::ZeroRtt, '0'),
            (PacketKind::OneRtt, '1'),
        ];
        for (kind, letter) in kinds {
            assert_eq!(frame.allowed_in(kind), expected.contains(letter), "{frame:?} in {kind:?}");
        }
        for kind in [PacketKind::Retry, PacketKind::VersionNegotiation, PacketKind::UnknownVersion]
        {
            assert!(!frame.allowed_in(kind));
        }
    }
}

/// RFC 9000, Sections 9.1 and 13.2.
#[test]
fn ack_eliciting_and_probing_frames_are_those_of_the_rfc() {
    let mut rng = Rng::new(15);
    for frame in samples(&mut rng, &[1]) {
        let name = frame.name();
        let silent = ["ACK", "PADDING", "CONNECTION_CLOSE"].contains(&name);
        assert_eq!(frame.is_ack_eliciting(), !silent, "{name}");
        let probing =
            ["PATH_CHALLENGE", "PATH_RESPONSE", "NEW_CONNECTION_ID", "PADDING"].contains(&name);
        assert_eq!(frame.is_probing(), probing, "{name}");
    }
    assert!(Ping.is_ack_eliciting());
    assert!(!Padding { count: 1 }.is_ack_eliciting());
    assert!(!ConnectionClose::Application { error_code: 0, reason: b"" }.is_ack_eliciting());
}

/// Whatever decodes from garbage encodes and decodes to the same frame again.
#[test]
fn garbage_is_decoded_or_refused_without_panic() {
    let mut rng = Rng::new(16);
    let mut decoded = 0;
    for round in 0..60_000 {
        let mut payload = rng.bytes_up_to(80);
        if let (Some(first), true) = (payload.first_mut(), round % 2 == 0) {
            *first &= 0x3f;
        }
        for frame in Frames::new(&payload).map_while(Result::ok) {
            decoded += 1;
            let mut buffer = [0; 200];
            let mut writer = Writer::new(&mut buffer);
            frame.encode(&mut writer).unwrap();
            assert_eq!(writer.position(), frame.encoded_len());
            assert_eq!(Frames::new(writer.written()).next(), Some(Ok(frame)));
        }
    }
    assert!(decoded > 10_000, "only {decoded} frames decoded: the test lost its point");
}

#[test]
fn single_bit_errors_in_valid_frames_never_panic() {
    let mut rng = Rng::new(17);
    let data = [7; 30];
    for frame in samples(&mut rng, &data) {
        let mut buffer = [0; 512];
        let mut writer = Writer::new(&mut buffer);
        frame.encode(&mut writer).unwrap();
        let mut bytes = writer.written().to_vec();
        for bit in 0..bytes.len() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            let mut frames = Frames::new(&bytes);
            while let Some(Ok(_)) = frames.next() {}
            assert_eq!(frames.next(), None, "the iteration ends with the first error");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
    }
}

/// Engines keep frames on the stack.
#[test]
fn a_frame_is_small() {
    assert!(size_of::<Frame<'_>>() <= 96, "{}", size_of::<Frame<'_>>());
}
