use alloc::{string::ToString, vec, vec::Vec};
use core::net::{Ipv4Addr, Ipv6Addr};

use super::*;
use crate::{MAX_STREAMS, Side, varint};
use quicket_testing::Rng;

fn cid(len: usize) -> ConnectionId {
    ConnectionId::new(&[7; 20][..len]).unwrap()
}

fn encode(parameters: &TransportParameters, sender: Side) -> Vec<u8> {
    let mut out = Vec::new();
    parameters.encode(sender, &mut out, None);
    out
}

/// One parameter as bytes.
fn raw(id: u64, value: &[u8]) -> Vec<u8> {
    let mut buffer = [0; 2000];
    let mut writer = crate::Writer::new(&mut buffer);
    writer.varint(id).unwrap();
    writer.bytes_with_varint_len(value).unwrap();
    writer.written().to_vec()
}

fn raw_integer(id: u64, value: u64) -> Vec<u8> {
    let mut buffer = [0; 8];
    let mut writer = crate::Writer::new(&mut buffer);
    writer.varint(value).unwrap();
    raw(id, writer.written())
}

fn refused(bytes: &[u8], sender: Side) -> ParameterError {
    TransportParameters::decode(bytes, sender).unwrap_err()
}

fn preferred_address() -> PreferredAddress {
    PreferredAddress {
        ipv4: Some(SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 1), 443)),
        ipv6: Some(SocketAddrV6::new(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1), 4433, 0, 0)),
        connection_id: cid(8),
        stateless_reset_token: StatelessResetToken([9; 16]),
    }
}

fn random(rng: &mut Rng, sender: Side) -> TransportParameters {
    let max_ack_delay = rng.below(1 << 14);
    let mut parameters = TransportParameters {
        max_idle_timeout: rng.varint(),
        max_udp_payload_size: rng.varint().max(1200),
        initial_max_data: rng.varint(),
        initial_max_stream_data_bidi_local: rng.varint(),
        initial_max_stream_data_bidi_remote: rng.varint(),
        initial_max_stream_data_uni: rng.varint(),
        initial_max_streams_bidi: rng.below(MAX_STREAMS + 1),
        initial_max_streams_uni: rng.below(MAX_STREAMS + 1),
        ack_delay_exponent: rng.below(21) as u8,
        max_ack_delay,
        disable_active_migration: rng.below(2) == 0,
        active_connection_id_limit: rng.varint().max(2),
        initial_source_connection_id: Some(cid(1 + rng.below(20) as usize)),
        version_information: (rng.below(2) == 0).then(|| VersionInformation {
            chosen_version: Version::V1,
            available_versions: vec![Version::V2, Version(rng.next() as u32 | 1), Version::V1],
        }),
        max_datagram_frame_size: rng.varint(),
        grease_quic_bit: rng.below(2) == 0,
        min_ack_delay: (rng.below(2) == 0).then(|| rng.below(max_ack_delay * 1000 + 1)),
        disable_1rtt_encryption: rng.below(2) == 0,
        ..TransportParameters::default()
    };
    if sender.is_server() {
        parameters.original_destination_connection_id = Some(cid(rng.below(21) as usize));
        parameters.retry_source_connection_id = Some(cid(rng.below(21) as usize));
        parameters.stateless_reset_token = Some(StatelessResetToken([rng.next() as u8; 16]));
        parameters.preferred_address = Some(preferred_address().into());
    }
    parameters
}

#[test]
fn what_is_encoded_decodes_to_the_same() {
    let mut rng = Rng::new(30);
    for round in 0..2000 {
        let sender = if round % 2 == 0 { Side::Client } else { Side::Server };
        let parameters = random(&mut rng, sender);
        let bytes = encode(&parameters, sender);
        assert_eq!(TransportParameters::decode(&bytes, sender), Ok(parameters));
    }
}

#[test]
fn defaults_take_no_space_and_absence_means_default() {
    assert!(encode(&TransportParameters::default(), Side::Server).is_empty());
    let parameters = TransportParameters::decode(&[], Side::Server).unwrap();
    assert_eq!(parameters, TransportParameters::default());
    // RFC 9000, Section 18.2.
    assert_eq!(parameters.max_udp_payload_size, 65527);
    assert_eq!(parameters.ack_delay_exponent, 3);
    assert_eq!(parameters.max_ack_delay, 25);
    assert_eq!(parameters.active_connection_id_limit, 2);
}

/// RFC 9000, Sections 7.4.2 and 18.1.
#[test]
fn unknown_parameters_are_ignored() {
    let mut bytes = Vec::new();
    let parameters = TransportParameters { initial_max_data: 5, ..Default::default() };
    let id = TransportParameters::reserved_id(u64::MAX);
    assert_eq!(id % 31, 27);
    parameters.encode(Side::Client, &mut bytes, Some((id, &[1, 2, 3])));
    assert_eq!(bytes, [raw_integer(4, 5), raw(id, &[1, 2, 3])].concat());
    bytes.extend(raw(id, &[4]));
    assert_eq!(TransportParameters::decode(&bytes, Side::Client), Ok(parameters));
}

/// RFC 9000, Section 7.4.
#[test]
fn repeated_parameters_are_refused() {
    let mut rng = Rng::new(32);
    let mut parameters = random(&mut rng, Side::Server);
    parameters.disable_active_migration = true;
    parameters.grease_quic_bit = true;
    parameters.disable_1rtt_encryption = true;
    parameters.min_ack_delay = Some(0);
    parameters.version_information =
        Some(VersionInformation { chosen_version: Version::V1, available_versions: vec![] });
    let once = encode(&parameters, Side::Server);
    let mut reader = crate::Reader::new(&once);
    let mut count = 0;
    while !reader.is_empty() {
        let id = reader.varint().unwrap();
        let value = reader.bytes_with_varint_len().unwrap();
        let twice = [once.clone(), raw(id, value)].concat();
        let error = refused(&twice, Side::Server);
        assert_eq!((error.id, error.reason()), (Some(id), "the parameter is repeated"));
        count += 1;
    }
    assert_eq!(count, 22, "every known parameter");
}

/// RFC 9000, Section 18.2.
#[test]
fn a_client_cannot_send_what_only_a_server_can() {
    let all = TransportParameters {
        original_destination_connection_id: Some(cid(8)),
        retry_source_connection_id: Some(cid(8)),
        stateless_reset_token: Some(StatelessResetToken([1; 16])),
        preferred_address: Some(preferred_address().into()),
        ..Default::default()
    };
    assert!(encode(&all, Side::Client).is_empty());
    let bytes = encode(&all, Side::Server);
    let mut reader = crate::Reader::new(&bytes);
    let mut ids = Vec::new();
    while !reader.is_empty() {
        let id = reader.varint().unwrap();
        let parameter = raw(id, reader.bytes_with_varint_len().unwrap());
        assert!(TransportParameters::decode(&parameter, Side::Server).is_ok());
        assert_eq!(refused(&parameter, Side::Client).id, Some(id));
        ids.push(id);
    }
    ids.sort_unstable();
    assert_eq!(ids, [0x00, 0x02, 0x0d, 0x10]);
}

/// RFC 9000, Section 18.2: the limits of each value.
#[test]
fn integers_out_of_range_are_refused() {
    let limits = [
        (0x03, 1200, varint::MAX),
        (0x08, 0, MAX_STREAMS),
        (0x09, 0, MAX_STREAMS),
        (0x0a, 0, 20),
        (0x0b, 0, (1 << 14) - 1),
        (0x0e, 2, varint::MAX),
        (0x01, 0, varint::MAX),
        (0x04, 0, varint::MAX),
        (0x05, 0, varint::MAX),
        (0x06, 0, varint::MAX),
        (0x07, 0, varint::MAX),
        (0x20, 0, varint::MAX),
    ];
    for (id, min, max) in limits {
        for value in [min, max] {
            let bytes = raw_integer(id, value);
            assert!(TransportParameters::decode(&bytes, Side::Client).is_ok(), "0x{id:x} {value}");
        }
        if min > 0 {
            assert_eq!(refused(&raw_integer(id, min - 1), Side::Client).id, Some(id));
        }
        if max < varint::MAX {
            assert_eq!(refused(&raw_integer(id, max + 1), Side::Client).id, Some(id));
        }
    }
}

#[test]
fn the_length_of_an_integer_has_to_match() {
    for id in [0x01, 0x03, 0x04, 0x08, 0x0a, 0x0b, 0x0e, 0x20, 0xff04_de1b] {
        for value in [&[][..], &[0x40], &[0x44, 0xb0, 0x00], &[0x05, 0x05]] {
            let error = refused(&raw(id, value), Side::Client);
            assert_eq!(error.reason(), "the length does not match the integer");
        }
    }
}

/// RFC 9000, Section 18.2; RFC 9287, Section 3.
#[test]
fn flags_have_no_content() {
    for id in [0x0c, 0x2ab2, 0xbaad] {
        assert!(TransportParameters::decode(&raw(id, &[]), Side::Client).is_ok());
        assert_eq!(refused(&raw(id, &[0]), Side::Client).id, Some(id));
    }
}

#[test]
fn connection_ids_and_tokens_have_their_lengths() {
    for id in [0x00, 0x0f, 0x10] {
        assert!(TransportParameters::decode(&raw(id, &[]), Side::Server).is_ok());
        assert!(TransportParameters::decode(&raw(id, &[1; 20]), Side::Server).is_ok());
        assert_eq!(refused(&raw(id, &[1; 21]), Side::Server).id, Some(id));
    }
    for len in [0, 15, 17] {
        assert_eq!(refused(&raw(0x02, &[1; 17][..len]), Side::Server).id, Some(0x02));
    }
}

/// RFC 9000, Section 18.2.
#[test]
fn a_preferred_address_is_whole_and_has_a_connection_id() {
    let mut parameters = TransportParameters {
        preferred_address: Some(preferred_address().into()),
        ..Default::default()
    };
    let bytes = encode(&parameters, Side::Server);
    let value = &bytes[2..];
    for len in 0..value.len() {
        assert_eq!(refused(&raw(0x0d, &value[..len]), Side::Server).id, Some(0x0d));
    }
    let longer = [value, &[0]].concat();
    assert_eq!(refused(&raw(0x0d, &longer), Side::Server).id, Some(0x0d));
    let mut without_cid = value[..24].to_vec();
    without_cid.extend([0; 17]);
    assert_eq!(refused(&raw(0x0d, &without_cid), Side::Server).id, Some(0x0d));
    let mut long_cid = value[..24].to_vec();
    long_cid.push(21);
    long_cid.extend([1; 21 + 16]);
    assert_eq!(refused(&raw(0x0d, &long_cid), Side::Server).id, Some(0x0d));
    // A server that uses zero-length connection IDs.
    parameters.initial_source_connection_id = Some(ConnectionId::EMPTY);
    assert_eq!(refused(&encode(&parameters, Side::Server), Side::Server).id, Some(0x0d));
}

#[test]
fn a_preferred_address_can_be_of_one_family() {
    for (ipv4, ipv6) in [(true, false), (false, true), (false, false)] {
        let all = preferred_address();
        let address = PreferredAddress {
            ipv4: all.ipv4.filter(|_| ipv4),
            ipv6: all.ipv6.filter(|_| ipv6),
            ..all
        };
        let parameters =
            TransportParameters { preferred_address: Some(address.into()), ..Default::default() };
        let bytes = encode(&parameters, Side::Server);
        assert_eq!(TransportParameters::decode(&bytes, Side::Server), Ok(parameters));
    }
}

/// RFC 9368, Section 4.
#[test]
fn version_information_follows_its_rules() {
    let v1 = [0, 0, 0, 1];
    let v2 = [0x6b, 0x33, 0x43, 0xcf];
    let decode = |words: &[[u8; 4]], sender| {
        TransportParameters::decode(&raw(0x11, words.as_flattened()), sender)
    };
    assert!(decode(&[v1, v2, v1], Side::Client).is_ok());
    for sender in [Side::Client, Side::Server] {
        assert!(decode(&[], sender).is_err(), "no chosen version");
        assert!(decode(&[[0; 4], v1], sender).is_err(), "chosen version 0");
        assert!(decode(&[v1, v1, [0; 4]], sender).is_err(), "available version 0");
        assert_eq!(refused(&raw(0x11, &[0, 0, 0, 1, 0, 0, 0, 1, 9]), sender).id, Some(0x11));
        assert!(decode(&[v1; 257], sender).is_ok());
        assert!(decode(&[v1; 258], sender).is_err(), "more than are kept");
    }
    assert!(decode(&[v1, v2], Side::Client).is_err(), "the client chose what it does not offer");
    assert!(decode(&[v1, v2], Side::Server).is_ok());
    assert!(decode(&[v1], Side::Server).is_ok());
}

/// draft-ietf-quic-ack-frequency, Section 3.
#[test]
fn min_ack_delay_does_not_exceed_max_ack_delay() {
    for (min, max, valid) in [(25_000, 25, true), (25_001, 25, false), (1, 0, false), (0, 0, true)]
    {
        let min_first = [raw_integer(0xff04_de1b, min), raw_integer(0x0b, max)].concat();
        let max_first = [raw_integer(0x0b, max), raw_integer(0xff04_de1b, min)].concat();
        for bytes in [min_first, max_first] {
            assert_eq!(TransportParameters::decode(&bytes, Side::Client).is_ok(), valid);
        }
    }
    assert!(TransportParameters::decode(&raw_integer(0xff04_de1b, 25_001), Side::Client).is_err());
}

#[test]
fn values_beyond_the_format_are_sent_as_the_largest_possible() {
    let parameters = TransportParameters {
        initial_max_data: u64::MAX,
        initial_max_streams_uni: u64::MAX,
        ack_delay_exponent: u8::MAX,
        max_ack_delay: u64::MAX,
        ..Default::default()
    };
    let bytes = encode(&parameters, Side::Client);
    let decoded = TransportParameters::decode(&bytes, Side::Client).unwrap();
    assert_eq!(decoded.initial_max_data, varint::MAX);
    assert_eq!(decoded.initial_max_streams_uni, MAX_STREAMS);
    assert_eq!(decoded.ack_delay_exponent, 20);
    assert_eq!(decoded.max_ack_delay, 16_383);
}

#[test]
fn truncations_never_panic_and_leave_whole_parameters_only() {
    let mut rng = Rng::new(32);
    let bytes = encode(&random(&mut rng, Side::Server), Side::Server);
    let mut whole = 0;
    for len in 0..bytes.len() {
        whole += usize::from(TransportParameters::decode(&bytes[..len], Side::Server).is_ok());
    }
    assert!((1..=22).contains(&whole), "valid only between parameters, not at {whole} places");
}

#[test]
fn garbage_is_decoded_or_refused_without_panic() {
    let mut rng = Rng::new(33);
    let mut valid = 0;
    for _ in 0..40_000 {
        let mut bytes = rng.bytes_up_to(40);
        // Small identifiers and lengths get further.
        bytes.iter_mut().step_by(3).for_each(|byte| *byte &= 0x1f);
        for sender in [Side::Client, Side::Server] {
            let Ok(parameters) = TransportParameters::decode(&bytes, sender) else { continue };
            let again = encode(&parameters, sender);
            assert_eq!(TransportParameters::decode(&again, sender), Ok(parameters));
            valid += 1;
        }
    }
    assert!(valid > 1000, "only {valid} decoded: the test lost its point");
}

#[test]
fn errors_name_the_parameter() {
    let error = refused(&raw_integer(0x0a, 21), Side::Client);
    assert_eq!(error.to_string(), "transport parameter 0x0a: the value is out of range");
    assert_eq!(refused(&[0x40], Side::Client).id, None);
}
