//! The header says what the Rust structures say: sizes, places, numbers.

use std::path::Path;
use std::process::Command;

use quicket::message::raw::{
    CLOSE_PHRASE_SIZE, CRYPTO_SECRET_SIZE, Config, ConnectionClose, ConnectionIdInfo, CryptoSecret,
    ErrInfo, EventOption, Raw, StreamInfo, StreamMaxData, StreamUpdate, TransportParam,
};
use quicket::message::{CryptoLevel, EventType, MsgFlags, OptionName, StreamFlags, StreamState};

/// Compiles `main` with the headers and runs it.
fn output(name: &str, main: &str) -> String {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (source, program) = (dir.join(format!("{name}.c")), dir.join(name));
    let text = format!(
        "#include <stddef.h>\n#include <stdio.h>\n#include <string.h>\n\
         #include <quicket/quic.h>\n#include <quicket/quicket.h>\n{main}"
    );
    std::fs::write(&source, text).unwrap();
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("include");
    let compiled = Command::new("cc")
        .args(["-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-I"])
        .arg(include)
        .arg("-o")
        .args([&program, &source])
        .output()
        .unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let ran = Command::new(&program).output().unwrap();
    assert!(ran.status.success());
    String::from_utf8(ran.stdout).unwrap()
}

/// Fills each field of a structure with a number of its own, in C, and prints the bytes.
fn bytes_in_c(name: &str, structure: &str, fields: &[(&str, u64)]) -> Vec<u8> {
    let set: String =
        fields.iter().map(|(field, value)| format!("\tvalue.{field} = {value};\n")).collect();
    let main = format!(
        "int main(void) {{\n\tstruct {structure} value;\n\tmemset(&value, 0, sizeof(value));\n{set}\
         \tfor (size_t i = 0; i < sizeof(value); i++)\n\
         \t\tprintf(\"%u \", ((unsigned char *)&value)[i]);\n\treturn 0;\n}}\n"
    );
    output(name, &main).split_whitespace().map(|byte| byte.parse().unwrap()).collect()
}

#[test]
fn structures_lie_in_memory_as_in_c() {
    let info = StreamInfo::new(5, StreamFlags::FIN);
    let fields = [("stream_id", 5), ("stream_flags", 0x200)];
    assert_eq!(bytes_in_c("stream_info", "quic_stream_info", &fields), info.to_bytes());

    let error = ErrInfo { stream_id: 5, errcode: 6 };
    let fields = [("stream_id", 5), ("errcode", 6)];
    assert_eq!(bytes_in_c("errinfo", "quic_errinfo", &fields), error.to_bytes());

    let ids = ConnectionIdInfo { dest: 1, active: 2, prior_to: 3 };
    let fields = [("dest", 1), ("active", 2), ("prior_to", 3)];
    assert_eq!(bytes_in_c("ids", "quic_connection_id_info", &fields), ids.to_bytes());

    let event = EventOption { kind: 3, on: 1 };
    let fields = [("type", 3), ("on", 1)];
    assert_eq!(bytes_in_c("event", "quic_event_option", &fields), event.to_bytes());

    let update = StreamUpdate { id: 9, state: 4, errcode: 77, finalsz: 1 << 40 };
    let fields = [("id", 9), ("state", 4), ("errcode", 77), ("finalsz", 1 << 40)];
    assert_eq!(bytes_in_c("update", "quic_stream_update", &fields), update.to_bytes());

    let limit = StreamMaxData { id: 9, max_data: 10 };
    let fields = [("id", 9), ("max_data", 10)];
    assert_eq!(bytes_in_c("limit", "quic_stream_max_data", &fields), limit.to_bytes());

    let close = ConnectionClose::new(7, 8, b"a");
    let fields = [("errcode", 7), ("frame", 8), ("phrase[0]", u64::from(b'a'))];
    assert_eq!(bytes_in_c("close", "quic_connection_close", &fields), close.to_bytes());

    let mut secret = [0; CRYPTO_SECRET_SIZE];
    secret[47] = 9;
    let secret = CryptoSecret { send: 1, level: 2, kind: 51, secret };
    let fields = [("send", 1), ("level", 2), ("type", 51), ("secret[47]", 9)];
    assert_eq!(bytes_in_c("secret", "quic_crypto_secret", &fields), secret.to_bytes());
}

#[test]
fn the_large_structures_lie_in_memory_as_in_c() {
    let param = TransportParam {
        remote: 1,
        disable_active_migration: 2,
        grease_quic_bit: 3,
        stateless_reset: 4,
        disable_1rtt_encryption: 5,
        disable_compatible_version: 6,
        active_connection_id_limit: 7,
        ack_delay_exponent: 8,
        max_datagram_frame_size: 900,
        max_udp_payload_size: 1000,
        max_idle_timeout: 11_000_000,
        max_ack_delay: 12_000_000,
        max_streams_bidi: 1300,
        max_streams_uni: 1400,
        max_data: 1 << 41,
        max_stream_data_bidi_local: 1 << 42,
        max_stream_data_bidi_remote: 1 << 43,
        max_stream_data_uni: 1 << 44,
    };
    let fields = [
        ("remote", 1),
        ("disable_active_migration", 2),
        ("grease_quic_bit", 3),
        ("stateless_reset", 4),
        ("disable_1rtt_encryption", 5),
        ("disable_compatible_version", 6),
        ("active_connection_id_limit", 7),
        ("ack_delay_exponent", 8),
        ("max_datagram_frame_size", 900),
        ("max_udp_payload_size", 1000),
        ("max_idle_timeout", 11_000_000),
        ("max_ack_delay", 12_000_000),
        ("max_streams_bidi", 1300),
        ("max_streams_uni", 1400),
        ("max_data", 1 << 41),
        ("max_stream_data_bidi_local", 1 << 42),
        ("max_stream_data_bidi_remote", 1 << 43),
        ("max_stream_data_uni", 1 << 44),
    ];
    assert_eq!(bytes_in_c("param", "quic_transport_param", &fields), param.to_bytes());

    let config = Config {
        version: 1 << 20,
        plpmtud_probe_interval: 2 << 20,
        initial_smoothed_rtt: 3 << 20,
        payload_cipher_type: 4 << 20,
        congestion_control_algo: 5,
        validate_peer_address: 6,
        stream_data_nodelay: 7,
        receive_session_ticket: 8,
        certificate_request: 9,
        keepalive_probe_interval: 10 << 20,
    };
    let fields = [
        ("version", 1 << 20),
        ("plpmtud_probe_interval", 2 << 20),
        ("initial_smoothed_rtt", 3 << 20),
        ("payload_cipher_type", 4 << 20),
        ("congestion_control_algo", 5),
        ("validate_peer_address", 6),
        ("stream_data_nodelay", 7),
        ("receive_session_ticket", 8),
        ("certificate_request", 9),
        ("keepalive_probe_interval", 10 << 20),
    ];
    assert_eq!(bytes_in_c("config", "quic_config", &fields), config.to_bytes());
}

#[test]
fn numbers_are_those_of_the_header() {
    let number = |value: u32| i64::from(value);
    let expected = [
        ("IPPROTO_QUIC", 261),
        ("SOL_QUIC", 288),
        ("QUIC_STREAM_INFO", 0),
        ("QUIC_HANDSHAKE_INFO", 1),
        ("MSG_QUIC_STREAM_NEW", number(StreamFlags::NEW.bits())),
        ("MSG_QUIC_STREAM_FIN", number(StreamFlags::FIN.bits())),
        ("MSG_QUIC_STREAM_UNI", number(StreamFlags::UNI.bits())),
        ("MSG_QUIC_STREAM_DONTWAIT", number(StreamFlags::DONTWAIT.bits())),
        ("MSG_QUIC_STREAM_SNDBLOCK", number(StreamFlags::SNDBLOCK.bits())),
        ("MSG_QUIC_DATAGRAM", number(MsgFlags::DATAGRAM.bits())),
        ("MSG_QUIC_NOTIFICATION", number(MsgFlags::NOTIFICATION.bits())),
        ("QUIC_STREAM_FLAG_NEW", number(StreamFlags::NEW.bits())),
        ("QUIC_STREAM_FLAG_FIN", number(StreamFlags::FIN.bits())),
        ("QUIC_STREAM_FLAG_UNI", number(StreamFlags::UNI.bits())),
        ("QUIC_STREAM_FLAG_DONTWAIT", number(StreamFlags::DONTWAIT.bits())),
        ("QUIC_STREAM_FLAG_SNDBLOCK", number(StreamFlags::SNDBLOCK.bits())),
        // The flags of the C library whose bits they are.
        ("MSG_SYN", number(StreamFlags::NEW.bits())),
        ("MSG_FIN", number(StreamFlags::FIN.bits())),
        ("MSG_CONFIRM", number(StreamFlags::UNI.bits())),
        ("MSG_WAITFORONE", number(StreamFlags::DONTWAIT.bits())),
        ("MSG_ERRQUEUE", number(StreamFlags::SNDBLOCK.bits())),
        ("MSG_RST", number(MsgFlags::DATAGRAM.bits())),
        ("MSG_MORE", number(MsgFlags::MORE.bits())),
        ("MSG_EOR", number(MsgFlags::EOR.bits())),
        ("MSG_CTRUNC", number(MsgFlags::CTRUNC.bits())),
        ("QUIC_MSG_DATAGRAM", number(MsgFlags::DATAGRAM.bits())),
        ("QUIC_MSG_NOTIFICATION", number(MsgFlags::NOTIFICATION.bits())),
        ("QUIC_CRYPTO_APP", CryptoLevel::App.number().into()),
        ("QUIC_CRYPTO_INITIAL", CryptoLevel::Initial.number().into()),
        ("QUIC_CRYPTO_HANDSHAKE", CryptoLevel::Handshake.number().into()),
        ("QUIC_CRYPTO_EARLY", CryptoLevel::Early.number().into()),
        ("QUIC_CRYPTO_SECRET_BUFFER_SIZE", CRYPTO_SECRET_SIZE as i64),
        ("QUIC_CLOSE_PHRASE_BUFFER_SIZE", CLOSE_PHRASE_SIZE as i64),
        ("QUIC_EVENT_STREAM_UPDATE", EventType::StreamUpdate.number().into()),
        ("QUIC_EVENT_STREAM_MAX_DATA", EventType::StreamMaxData.number().into()),
        ("QUIC_EVENT_STREAM_MAX_STREAM", EventType::StreamMaxStream.number().into()),
        ("QUIC_EVENT_CONNECTION_ID", EventType::ConnectionId.number().into()),
        ("QUIC_EVENT_CONNECTION_CLOSE", EventType::ConnectionClose.number().into()),
        ("QUIC_EVENT_CONNECTION_MIGRATION", EventType::ConnectionMigration.number().into()),
        ("QUIC_EVENT_KEY_UPDATE", EventType::KeyUpdate.number().into()),
        ("QUIC_EVENT_NEW_TOKEN", EventType::NewToken.number().into()),
        ("QUIC_EVENT_NEW_SESSION_TICKET", EventType::NewSessionTicket.number().into()),
        ("QUIC_STREAM_SEND_STATE_READY", StreamState::SendReady.number().into()),
        ("QUIC_STREAM_SEND_STATE_RESET_RECVD", StreamState::SendResetRecvd.number().into()),
        ("QUIC_STREAM_RECV_STATE_RECV", StreamState::Recv.number().into()),
        ("QUIC_STREAM_RECV_STATE_RESET_READ", StreamState::RecvResetRead.number().into()),
        ("QUIC_SOCKOPT_EVENT", OptionName::Event.number().into()),
        ("QUIC_SOCKOPT_STREAM_OPEN", OptionName::StreamOpen.number().into()),
        ("QUIC_SOCKOPT_STREAM_RESET", OptionName::StreamReset.number().into()),
        ("QUIC_SOCKOPT_STREAM_STOP_SENDING", OptionName::StreamStopSending.number().into()),
        ("QUIC_SOCKOPT_CONNECTION_ID", OptionName::ConnectionId.number().into()),
        ("QUIC_SOCKOPT_CONNECTION_CLOSE", OptionName::ConnectionClose.number().into()),
        ("QUIC_SOCKOPT_CONNECTION_MIGRATION", OptionName::ConnectionMigration.number().into()),
        ("QUIC_SOCKOPT_KEY_UPDATE", OptionName::KeyUpdate.number().into()),
        ("QUIC_SOCKOPT_TRANSPORT_PARAM", OptionName::TransportParam.number().into()),
        ("QUIC_SOCKOPT_CONFIG", OptionName::Config.number().into()),
        ("QUIC_SOCKOPT_TOKEN", OptionName::Token.number().into()),
        ("QUIC_SOCKOPT_ALPN", OptionName::Alpn.number().into()),
        ("QUIC_SOCKOPT_SESSION_TICKET", OptionName::SessionTicket.number().into()),
        ("QUIC_SOCKOPT_CRYPTO_SECRET", OptionName::CryptoSecret.number().into()),
        ("QUIC_SOCKOPT_TRANSPORT_PARAM_EXT", OptionName::TransportParamExt.number().into()),
        ("QUICKET_SOCKOPT_WORKERS", OptionName::Workers.number().into()),
        ("QUICKET_SOCKOPT_SWITCH", OptionName::Switch.number().into()),
        ("QUICKET_SOCKOPT_FOLLOW_NETWORK", OptionName::FollowNetwork.number().into()),
    ];
    let print: String = expected
        .iter()
        .map(|(name, _)| format!("\tprintf(\"%lld\\n\", (long long)({name}));\n"))
        .collect();
    let printed = output("numbers", &format!("int main(void) {{\n{print}\treturn 0;\n}}\n"));
    let found: Vec<(&str, i64)> = expected
        .iter()
        .zip(printed.lines())
        .map(|((name, _), number)| (*name, number.parse().unwrap()))
        .collect();
    assert_eq!(found, expected);
}
