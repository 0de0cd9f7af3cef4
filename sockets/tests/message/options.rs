//! Options by number, and parameters on their way to the peer.

use quicket::message::raw::{
    Config, ConnectionClose, ConnectionIdInfo, ErrInfo, EventOption, Raw, StreamInfo,
    TransportParam,
};
use quicket::message::{Errno, EventType, OptionName, Socket, StreamFlags};

use crate::pair::{NEW, listener, pair, pair_with, send, settle, socket};

const SET_ONLY: [OptionName; 5] = [
    OptionName::StreamReset,
    OptionName::StreamStopSending,
    OptionName::ConnectionMigration,
    OptionName::KeyUpdate,
    OptionName::CryptoSecret,
];

fn get(socket: &Socket, option: OptionName, value: &[u8]) -> Result<Vec<u8>, Errno> {
    let mut value = value.to_vec();
    let len = socket.get_option(option.number(), &mut value)?;
    value.truncate(len);
    Ok(value)
}

fn set(socket: &Socket, option: OptionName, value: &[u8]) -> Result<(), Errno> {
    socket.set_option(option.number(), value)
}

#[test]
fn numbers_without_an_option_are_refused() {
    let socket = socket();
    for number in [-1, 15, 100] {
        assert_eq!(OptionName::from_number(number), None);
        assert_eq!(socket.set_option(number, b""), Err(Errno::ENOPROTOOPT));
        assert_eq!(socket.get_option(number, &mut [0; 8]), Err(Errno::ENOPROTOOPT));
    }
    for option in SET_ONLY {
        assert_eq!(get(&socket, option, &[0; 64]), Err(Errno::ENOPROTOOPT), "{option:?}");
    }
    assert_eq!(set(&socket, OptionName::StreamOpen, &[0; 16]), Err(Errno::ENOPROTOOPT));
    for number in 0..15 {
        assert_eq!(OptionName::from_number(number).map(OptionName::number), Some(number));
        let result = socket.set_option(number, &[0; 4097]);
        assert_eq!(result, Err(Errno::EINVAL), "too long");
    }
}

#[test]
fn events_are_set_and_got() {
    let socket = socket();
    let option = |kind, on| EventOption { kind, on }.to_bytes();
    for kind in 1..=9 {
        assert_eq!(get(&socket, OptionName::Event, &option(kind, 0)), Ok(option(kind, 0)));
        set(&socket, OptionName::Event, &option(kind, 1)).unwrap();
        assert_eq!(get(&socket, OptionName::Event, &option(kind, 0)), Ok(option(kind, 1)));
    }
    for kind in [0, 10, 255] {
        assert_eq!(set(&socket, OptionName::Event, &option(kind, 1)), Err(Errno::EINVAL));
        assert_eq!(get(&socket, OptionName::Event, &option(kind, 1)), Err(Errno::EINVAL));
    }
    assert!(socket.event(EventType::NewSessionTicket));
}

#[test]
fn streams_are_opened_reset_and_stopped() {
    let (client, server) = pair();
    let next = StreamInfo::new(-1, StreamFlags::UNI).to_bytes();
    let opened = StreamInfo::from_bytes(&get(&client, OptionName::StreamOpen, &next).unwrap());
    assert_eq!(opened.stream_id, 2);
    assert!(opened.flags.contains(StreamFlags::NEW | StreamFlags::UNI));
    send(&client, b"x", 0, NEW).unwrap();
    let reset = ErrInfo { stream_id: 0, errcode: 3 }.to_bytes();
    settle(|| server.bytes_to_receive() == Ok(1));
    assert_eq!(set(&server, OptionName::StreamStopSending, &reset), Ok(()));
    assert_eq!(set(&server, OptionName::StreamReset, &reset), Ok(()));
    assert_eq!(set(&server, OptionName::StreamReset, &reset), Err(Errno::EINVAL));
}

#[test]
fn connection_ids_keys_and_the_end_go_by_number_too() {
    let (client, _server) = pair();
    let value = ConnectionIdInfo { dest: 1, ..Default::default() }.to_bytes();
    assert_eq!(get(&client, OptionName::ConnectionId, &value), Ok(value));
    let value = ConnectionIdInfo { dest: 0, active: 0, prior_to: 99 }.to_bytes();
    assert_eq!(set(&client, OptionName::ConnectionId, &value), Err(Errno::EINVAL));
    assert_eq!(set(&client, OptionName::KeyUpdate, b""), Ok(()));
    let close = ConnectionClose::new(5, 0, b"done").to_bytes();
    assert_eq!(set(&client, OptionName::ConnectionClose, &close), Ok(()));
    assert_eq!(get(&client, OptionName::ConnectionClose, &[0; 72]), Ok(close.clone()));
    assert_eq!(get(&client, OptionName::ConnectionClose, &[0; 4]), Ok(close[..4].to_vec()));
    let nowhere = [0; 16];
    assert_eq!(set(&client, OptionName::ConnectionMigration, &nowhere), Err(Errno::EINVAL));
    assert_eq!(set(&client, OptionName::CryptoSecret, &[0; 56]), Err(Errno::EINVAL));
}

#[test]
fn parameters_and_behaviour_start_with_the_usual_and_keep_what_is_set() {
    let socket = socket();
    let param =
        TransportParam::from_bytes(&get(&socket, OptionName::TransportParam, &[0; 56]).unwrap());
    assert_eq!((param.active_connection_id_limit, param.max_streams_bidi), (7, 100));
    assert_eq!((param.max_idle_timeout, param.max_ack_delay), (30_000_000, 25_000));
    assert_eq!((param.max_data, param.max_stream_data_uni), (65_535 * 32, 65_535 * 16));
    assert_eq!((param.max_udp_payload_size, param.max_datagram_frame_size), (65_527, 0));
    let wanted = TransportParam { max_data: 7777, ..TransportParam::default() };
    set(&socket, OptionName::TransportParam, &wanted.to_bytes()).unwrap();
    assert_eq!(socket.transport_param(false), TransportParam { max_data: 7777, ..param });
    assert_eq!(socket.transport_param(true).max_data, 0, "not known");

    let config = Config::from_bytes(&get(&socket, OptionName::Config, &[0; 28]).unwrap());
    assert_eq!((config.initial_smoothed_rtt, config.congestion_control_algo), (333_000, 0));
    let wanted = Config {
        version: 0x6b33_43cf,
        plpmtud_probe_interval: 5_000_000,
        payload_cipher_type: 54,
        validate_peer_address: 1,
        stream_data_nodelay: 1,
        receive_session_ticket: 1,
        certificate_request: 2,
        keepalive_probe_interval: 1_500_000,
        ..Config::default()
    };
    set(&socket, OptionName::Config, &wanted.to_bytes()).unwrap();
    assert_eq!(socket.config(), Config { initial_smoothed_rtt: 333_000, ..wanted });
}

#[test]
fn bytes_need_all_their_room() {
    let socket = socket();
    assert_eq!(get(&socket, OptionName::Alpn, &[]), Ok(vec![]));
    set(&socket, OptionName::Alpn, b"smbd, h3").unwrap();
    assert_eq!(get(&socket, OptionName::Alpn, &[0; 128]), Ok(b"smbd,h3".to_vec()));
    assert_eq!(get(&socket, OptionName::Alpn, &[0; 7]), Err(Errno::EINVAL));
    assert_eq!(set(&socket, OptionName::Alpn, b""), Err(Errno::EINVAL));
    assert_eq!(set(&socket, OptionName::Alpn, &[b'a'; 129]), Err(Errno::EINVAL));
    set(&socket, OptionName::Token, b"token").unwrap();
    assert_eq!(get(&socket, OptionName::Token, &[0; 4]), Err(Errno::EINVAL));
    assert_eq!(get(&socket, OptionName::Token, &[0; 9]), Ok(b"token".to_vec()));
    set(&socket, OptionName::SessionTicket, &[1; 64]).unwrap();
    assert_eq!(get(&socket, OptionName::SessionTicket, &[0; 9]), Ok(vec![]));
    let (_listening, address) = listener();
    socket.connect(address).unwrap();
    assert_eq!(get(&socket, OptionName::SessionTicket, &[0; 9]), Err(Errno::EINVAL));
    assert_eq!(get(&socket, OptionName::SessionTicket, &[0; 99]), Ok(vec![1; 64]));
    assert_eq!(get(&socket, OptionName::TransportParamExt, &[0; 9]), Err(Errno::EINVAL));
    let parameters = get(&socket, OptionName::TransportParamExt, &[0; 512]).unwrap();
    assert!(!parameters.is_empty());
}

#[test]
fn the_peer_gets_each_parameter() {
    let chosen = TransportParam {
        disable_active_migration: 1,
        grease_quic_bit: 1,
        disable_compatible_version: 1,
        active_connection_id_limit: 5,
        ack_delay_exponent: 4,
        max_datagram_frame_size: 1500,
        max_udp_payload_size: 1400,
        max_idle_timeout: 9_000_000,
        max_ack_delay: 20_000,
        max_streams_bidi: 33,
        max_streams_uni: 44,
        max_data: 100_000,
        max_stream_data_bidi_local: 10_001,
        max_stream_data_bidi_remote: 10_002,
        max_stream_data_uni: 10_003,
        ..TransportParam::default()
    };
    let set = |socket: &Socket| socket.set_transport_param(&chosen).unwrap();
    let (client, server) = pair_with(set, set);
    let expected = TransportParam { remote: 1, ..chosen };
    assert_eq!(server.transport_param(true), expected);
    assert_eq!(client.transport_param(true), expected);
    let (client, server) = pair_with(
        |_| (),
        |socket| {
            let stateless_reset = TransportParam { stateless_reset: 1, ..Default::default() };
            socket.set_transport_param(&stateless_reset).unwrap();
        },
    );
    assert_eq!(client.transport_param(true).stateless_reset, 1);
    assert_eq!(server.transport_param(true).stateless_reset, 0);
}

#[test]
fn both_sides_agree_to_leave_packets_in_the_clear() {
    let plain = |socket: &Socket| {
        let param = TransportParam { disable_1rtt_encryption: 1, ..Default::default() };
        socket.set_transport_param(&param).unwrap();
    };
    let (client, server) = pair_with(plain, plain);
    assert_eq!(client.transport_param(true).disable_1rtt_encryption, 1);
    send(&client, b"for all to see", 0, NEW).unwrap();
    assert_eq!(crate::pair::recv(&server).0, b"for all to see");
}

#[test]
fn versions_are_chosen_by_either_side() {
    const V2: u32 = 0x6b33_43cf;
    /// RFC 9000, Section 15.
    const RESERVED: u32 = 0x1a2a_3a4a;
    let version = |socket: &Socket, version| {
        socket.set_config(&Config { version, ..Config::default() }).unwrap();
    };
    // One that no server has leads to Version Negotiation, and on from there.
    for (client, server) in [(V2, 0), (1, V2), (V2, 1), (RESERVED, 0)] {
        let (client, server) =
            pair_with(|socket| version(socket, client), |socket| version(socket, server));
        send(&client, b"x", 0, NEW).unwrap();
        assert_eq!(crate::pair::recv(&server).0, b"x");
    }
}
