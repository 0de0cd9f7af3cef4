//! Full handshakes: keys, negotiation, and what goes wrong.

mod common;

use common::{
    CLIENT_PARAMETERS, Lines, NAME, Options, Pair, client, identity, server, shake, shake_well,
    start_client, start_server,
};
use quicket_engine::crypto::{Aead, Alert, Direction, Level};
use quicket_handshake::{ClientTls, ConfigError, KeyExchange, KeyLogFile, Roots, ServerTls};

const SUITES: [(Aead, &str); 3] = [
    (Aead::Aes128Gcm, "TLS_AES_128_GCM_SHA256"),
    (Aead::Aes256Gcm, "TLS_AES_256_GCM_SHA384"),
    (Aead::ChaCha20Poly1305, "TLS_CHACHA20_POLY1305_SHA256"),
];

#[test]
fn a_full_handshake_gives_everything_in_order() {
    let identity = identity();
    let client = client(&identity).build().unwrap();
    let server = server(&identity).build().unwrap();
    let pair = shake_well(&client, &server, &Options::default());
    assert_eq!(
        pair.client.story,
        [
            "send Initial",
            "Send Handshake",
            "Receive Handshake",
            "parameters",
            "send Handshake",
            "Send OneRtt",
            "Receive OneRtt",
            "complete",
            "ticket",
            "ticket"
        ]
    );
    assert_eq!(
        pair.server.story,
        [
            "parameters",
            "send Initial",
            "Send Handshake",
            "Receive Handshake",
            "send Handshake",
            "Send OneRtt",
            // RFC 9001, Section 5.7: no 1-RTT packet is processed before completion.
            "Receive OneRtt",
            "complete",
            "send OneRtt"
        ]
    );
    let summary = pair.client.summary();
    assert_eq!(summary.alpn, b"test");
    assert_eq!(summary.key_exchange, "X25519");
    assert_eq!(summary.server_name.as_deref(), Some(NAME));
    assert_eq!(summary.peer_certificates, [identity.chain().next().unwrap()]);
    assert!(!summary.resumed);
    assert_eq!(pair.server.summary().server_name.as_deref(), Some(NAME));
    assert!(pair.server.summary().peer_certificates.is_empty());
}

#[test]
fn every_cipher_suite_works() {
    let identity = identity();
    for (aead, name) in SUITES {
        let client = client(&identity).cipher_suites(&[aead]).build().unwrap();
        let server = server(&identity).build().unwrap();
        let pair = shake_well(&client, &server, &Options::default());
        assert_eq!(pair.client.summary().cipher_suite, name);
        for secret in pair.client.secrets.values().chain(pair.server.secrets.values()) {
            assert_eq!(secret.aead(), aead);
            assert_eq!(secret.as_bytes().len(), aead.secret_len());
        }
    }
}

#[test]
fn messages_may_come_in_single_bytes() {
    let identity = identity();
    let client = client(&identity).build().unwrap();
    let server = server(&identity).build().unwrap();
    let pair = shake_well(&client, &server, &Options { piece: 1, ..Options::default() });
    assert_eq!(pair.client.tickets.len(), 2);
}

#[test]
fn the_client_hello_fits_one_datagram_unless_post_quantum_keys_are_wanted() {
    let identity = identity();
    let len = |client: &ClientTls| {
        let party = start_client(client, &Options::default()).unwrap();
        party.outbox.iter().map(|(_, bytes)| bytes.len()).sum::<usize>()
    };
    assert!(len(&client(&identity).build().unwrap()) < 1_000);
    let hybrid = [KeyExchange::X25519MlKem768, KeyExchange::X25519];
    let client = client(&identity).key_exchange(&hybrid).build().unwrap();
    assert!(len(&client) > 1_200);
    let server = server(&identity).build().unwrap();
    let pair = shake_well(&client, &server, &Options::default());
    assert_eq!(pair.client.summary().key_exchange, "X25519MLKEM768");
    assert_eq!(pair.server.summary().key_exchange, "X25519MLKEM768");
}

#[test]
fn a_hello_retry_request_is_answered() {
    let identity = identity();
    let client = client(&identity).build().unwrap();
    let server = server(&identity).key_exchange(&[KeyExchange::Secp384r1]).build().unwrap();
    for piece in [1, usize::MAX] {
        let pair = shake_well(&client, &server, &Options { piece, ..Options::default() });
        assert_eq!(pair.client.summary().key_exchange, "secp384r1");
        assert_eq!(pair.client.story[..2], ["send Initial", "send Initial"]);
    }
}

#[test]
fn without_a_common_suite_or_group_the_handshake_fails() {
    let identity = identity();
    let server = server(&identity)
        .cipher_suites(&[Aead::Aes128Gcm])
        .key_exchange(&[KeyExchange::X25519])
        .build()
        .unwrap();
    let suite = client(&identity).cipher_suites(&[Aead::Aes256Gcm]).build().unwrap();
    let group = client(&identity).key_exchange(&[KeyExchange::Secp256r1]).build().unwrap();
    for client in [suite, group] {
        let failure = shake(&client, &server, &Options::default()).err().unwrap();
        assert_eq!(failure.alert(), Alert::HANDSHAKE_FAILURE.0);
    }
}

#[test]
fn the_server_prefers_its_first_protocol_that_the_client_knows() {
    let identity = identity();
    let client = client(&identity).alpn(["a", "b", "c"]).build().unwrap();
    let server = server(&identity).alpn(["x", "c", "a"]).build().unwrap();
    let pair = shake_well(&client, &server, &Options::default());
    assert_eq!(pair.client.summary().alpn, b"c");
}

#[test]
fn no_common_protocol_is_no_application_protocol() {
    // RFC 9001, Section 8.1
    let identity = identity();
    let with = || client(&identity).build().unwrap();
    let without = || client(&identity).without_alpn().build().unwrap();
    let other = server(&identity).alpn(["other"]).build().unwrap();
    let none = server(&identity).without_alpn().build().unwrap();
    for (client, server) in [(with(), &other), (with(), &none), (without(), &other)] {
        let failure = shake(&client, server, &Options::default()).err().unwrap();
        assert!(matches!(failure, common::Failure::Server(_)));
        assert_eq!(failure.alert(), Alert::NO_APPLICATION_PROTOCOL.0);
    }
    let pair = shake_well(&without(), &none, &Options::default());
    assert!(pair.client.summary().alpn.is_empty());
}

#[test]
fn keying_material_is_the_same_on_both_sides() {
    let identity = identity();
    let client = client(&identity).build().unwrap();
    let server = server(&identity).build().unwrap();
    let export = |party: &common::Party, label: &[u8], context: &[u8]| {
        let mut out = [0; 40];
        party.handshake.export_keying_material(label, context, &mut out).map(|()| out)
    };
    let mut pair = Pair::start(&client, &server, &Options::default()).unwrap();
    assert!(export(&pair.client, b"label", b"").is_err());
    pair.run(usize::MAX).unwrap();
    let exported = export(&pair.client, b"label", b"context").unwrap();
    assert_eq!(exported, export(&pair.server, b"label", b"context").unwrap());
    assert_ne!(exported, export(&pair.server, b"label", b"other").unwrap());
    assert_ne!(exported, export(&pair.server, b"other", b"context").unwrap());
    // RFC 8446, Section 7.5: the label is part of a structure that has room for 249 bytes of it.
    assert!(export(&pair.server, &[b'l'; 249], b"").is_ok());
    assert!(export(&pair.server, &[b'l'; 250], b"").is_err());
}

/// The client's is the TLS library's own; the server has let go of that and derives it itself.
#[test]
fn keying_material_is_the_same_with_every_cipher_suite() {
    let identity = identity();
    for aead in [Aead::Aes128Gcm, Aead::Aes256Gcm, Aead::ChaCha20Poly1305] {
        let client = client(&identity).cipher_suites(&[aead]).build().unwrap();
        let pair = shake_well(&client, &server(&identity).build().unwrap(), &Options::default());
        for (len, context) in [(1, &b""[..]), (32, b"short"), (500, &[7; 300])] {
            let (mut ours, mut theirs) = (vec![0; len], vec![0; len]);
            pair.client.handshake.export_keying_material(b"label", context, &mut ours).unwrap();
            pair.server.handshake.export_keying_material(b"label", context, &mut theirs).unwrap();
            assert_eq!(ours, theirs, "{aead:?}");
        }
    }
}

#[test]
fn both_sides_log_the_same_secrets() {
    let identity = identity();
    let (client_lines, server_lines) = (Lines::new(), Lines::new());
    let client = client(&identity).key_log(client_lines.clone()).build().unwrap();
    let server = server(&identity).key_log(server_lines.clone()).build().unwrap();
    let pair = shake_well(&client, &server, &Options::default());
    let lines = client_lines.sorted();
    assert_eq!(lines, server_lines.sorted());
    let labels: Vec<&str> = lines.iter().map(|line| line.split(' ').next().unwrap()).collect();
    assert_eq!(
        labels,
        [
            "CLIENT_HANDSHAKE_TRAFFIC_SECRET",
            "CLIENT_TRAFFIC_SECRET_0",
            "EXPORTER_SECRET",
            "SERVER_HANDSHAKE_TRAFFIC_SECRET",
            "SERVER_TRAFFIC_SECRET_0"
        ]
    );
    let secret: String = pair
        .client
        .secret(Level::OneRtt, Direction::Send)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    assert_eq!(lines[1].split(' ').nth(2), Some(&secret[..]));
    assert_eq!(lines[1].split(' ').nth(1).unwrap().len(), 64);
}

#[test]
fn a_key_log_file_is_appended_to_and_private() {
    let directory = std::env::temp_dir().join(format!("quicket-keylog-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let path = directory.join("keys");
    let identity = identity();
    for runs in 1..=2 {
        let log = std::sync::Arc::new(KeyLogFile::open(&path).unwrap());
        let client = client(&identity).key_log(log).build().unwrap();
        let server = server(&identity).build().unwrap();
        shake_well(&client, &server, &Options::default());
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text.lines().count(), 5 * runs);
        assert!(text.ends_with('\n'));
    }
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }
    std::fs::remove_dir_all(&directory).unwrap();
    assert!(matches!(KeyLogFile::open(&path), Err(ConfigError::KeyLog { .. })));
}

#[test]
fn data_at_another_level_is_an_error() {
    // RFC 9001, Section 4.1.3
    let identity = identity();
    let client = client(&identity).build().unwrap();
    let server = server(&identity).build().unwrap();
    for level in [Level::EarlyData, Level::Handshake, Level::OneRtt] {
        let mut pair = Pair::start(&client, &server, &Options::default()).unwrap();
        let (_, hello) = pair.client.outbox.pop_front().unwrap();
        let error = pair.server.handshake.read(level, &hello).unwrap_err();
        assert_eq!(error.alert, Alert::UNEXPECTED_MESSAGE);
        assert!(pair.client.handshake.read(level, &[2, 0, 0, 0]).is_err());
        // The error stays.
        assert!(pair.server.handshake.read(Level::Initial, &hello).is_err());
        assert!(pair.server.handshake.poll().is_err());
    }
    // A level that is over takes nothing more.
    let mut pair = shake_well(&client, &server, &Options::default());
    for level in [Level::Initial, Level::Handshake] {
        let mut again = shake_well(&client, &server, &Options::default());
        assert!(again.client.handshake.read(level, &[0]).is_err(), "{level:?}");
        assert!(again.server.handshake.read(level, &[0]).is_err(), "{level:?}");
    }
    // A client has nothing to say after the handshake.
    let error = pair.server.handshake.read(Level::OneRtt, &[24, 0, 0, 1, 0]).unwrap_err();
    assert_eq!(error.alert, Alert::UNEXPECTED_MESSAGE);
    assert!(pair.server.handshake.poll().is_err(), "the error stays");
}

#[test]
fn a_key_update_message_is_an_unexpected_message() {
    // RFC 9001, Section 6
    let identity = identity();
    let client = client(&identity).build().unwrap();
    let server = server(&identity).build().unwrap();
    let mut pair = shake_well(&client, &server, &Options::default());
    let error = pair.client.handshake.read(Level::OneRtt, &[24, 0, 0, 1, 0]).unwrap_err();
    assert_eq!(error.alert, Alert::UNEXPECTED_MESSAGE);
}

#[test]
fn a_peer_without_transport_parameters_is_refused() {
    // RFC 9001, Section 8.2: the extension is mandatory. Its type is changed in the ClientHello.
    let identity = identity();
    let client = client(&identity).build().unwrap();
    let server = server(&identity).build().unwrap();
    let mut pair = Pair::start(&client, &server, &Options::default()).unwrap();
    let (_, hello) = &mut pair.client.outbox[0];
    let extension = [&[0, 0x39, 0, CLIENT_PARAMETERS.len() as u8][..], CLIENT_PARAMETERS].concat();
    let at = hello.windows(extension.len()).position(|window| window == extension).unwrap();
    hello[at] = 0x7f;
    let failure = pair.run(usize::MAX).unwrap_err();
    assert_eq!(failure.alert(), Alert::MISSING_EXTENSION.0);
}

#[test]
fn a_name_that_is_none_is_refused_and_addresses_are_fine() {
    let identity = identity();
    let client = client(&identity).build().unwrap();
    let error = start_client(&client, &Options { name: "not a name", ..Options::default() });
    assert!(error.err().unwrap().reason.contains("not a name"));
    let server = server(&identity).build().unwrap();
    for name in ["127.0.0.1", "::1"] {
        let pair = shake_well(&client, &server, &Options { name, ..Options::default() });
        assert_eq!(pair.server.summary().server_name, None);
    }
}

#[test]
fn configurations_do_not_swap_sides() {
    let identity = identity();
    let client = client(&identity).build().unwrap();
    let server = server(&identity).build().unwrap();
    assert!(start_server(&client, &Options::default()).is_err());
    assert!(start_client(&server, &Options::default()).is_err());
}

#[test]
fn what_is_missing_or_senseless_is_said_when_building() {
    let identity = identity();
    let client = || ClientTls::builder().dangerous_no_verification();
    let server = || ServerTls::builder(identity.clone());
    assert!(matches!(client().build(), Err(ConfigError::NoAlpn)));
    assert!(matches!(server().build(), Err(ConfigError::NoAlpn)));
    assert!(matches!(client().alpn([""]).build(), Err(ConfigError::InvalidAlpn)));
    assert!(matches!(client().alpn([[7; 256]]).build(), Err(ConfigError::InvalidAlpn)));
    assert!(matches!(client().alpn(Vec::<&str>::new()).build(), Err(ConfigError::NoAlpn)));
    let built = client().alpn(["a"]).cipher_suites(&[]).build();
    assert!(matches!(built, Err(ConfigError::NothingToOffer { .. })));
    let built = server().alpn(["a"]).key_exchange(&[]).build();
    assert!(matches!(built, Err(ConfigError::NothingToOffer { .. })));
    let built = client().alpn(["a"]).pinned([]).build();
    assert!(matches!(built, Err(ConfigError::NoFingerprints)));
    let built = client().alpn(["a"]).roots(Roots::Der(Vec::new())).build();
    assert!(matches!(built, Err(ConfigError::NoRoots { .. })));
    let built = client().alpn(["a"]).ca_file("/nonexistent/ca.pem").build();
    assert!(built.unwrap_err().to_string().contains("/nonexistent/ca.pem"));
    let built = server().alpn(["a"]).ticket_lifetime(std::time::Duration::ZERO).build();
    assert!(matches!(built, Err(ConfigError::InvalidTicketLifetime)));
}

/// xorshift64
struct Garbage(u64);

impl Garbage {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }
}

#[test]
fn garbage_at_any_level_ends_in_an_error_and_never_in_a_panic() {
    let identity = identity();
    let client = client(&identity).build().unwrap();
    let server = server(&identity).build().unwrap();
    let mut garbage = Garbage(0x9e37_79b9_7f4a_7c15);
    let levels = [Level::Initial, Level::EarlyData, Level::Handshake, Level::OneRtt];
    for round in 0..300 {
        // After how many messages the garbage comes.
        let progress = round % 7;
        let mut pair = Pair::start(&client, &server, &Options::default()).unwrap();
        for _ in 0..progress {
            step(&mut pair);
        }
        for party in [&mut pair.client, &mut pair.server] {
            let level = levels[garbage.next() as usize % levels.len()];
            // The most that rustls waits for before it gives up on a message.
            let mut left: usize = 70_000;
            let failed = loop {
                let piece = garbage.bytes(1 + garbage.0 as usize % 2_000);
                left = left.saturating_sub(piece.len());
                if party.handshake.read(level, &piece).is_err() {
                    break true;
                }
                if left == 0 {
                    break false;
                }
            };
            assert!(failed, "round {round}, {level:?}");
            assert!(party.handshake.poll().is_err());
        }
    }
}

fn step(pair: &mut Pair) {
    let (to, (level, bytes)) = if let Some(message) = pair.client.outbox.pop_front() {
        (&mut pair.server, message)
    } else if let Some(message) = pair.server.outbox.pop_front() {
        (&mut pair.client, message)
    } else {
        return;
    };
    to.handshake.read(level, &bytes).unwrap();
    to.poll().unwrap();
}

#[test]
fn a_flipped_bit_anywhere_ends_the_handshake_without_a_panic() {
    let identity = identity();
    let client = client(&identity).build().unwrap();
    let server = server(&identity).build().unwrap();
    let mut garbage = Garbage(7);
    for round in 0..200 {
        let mut pair = Pair::start(&client, &server, &Options::default()).unwrap();
        for _ in 0..round % 3 {
            step(&mut pair);
        }
        let outbox = if pair.client.outbox.is_empty() {
            &mut pair.server.outbox
        } else {
            &mut pair.client.outbox
        };
        let (_, bytes) = outbox.front_mut().unwrap();
        let at = garbage.next() as usize % bytes.len();
        bytes[at] ^= 1 << (garbage.next() % 8);
        let failed = pair.run(usize::MAX).is_err();
        let stuck = pair.client.summary.is_none() || pair.server.summary.is_none();
        assert!(failed || stuck, "round {round}, byte {at}: both sides took a changed transcript");
    }
}

#[test]
fn parameters_of_any_length_are_carried() {
    let identity = identity();
    let client = client(&identity).build().unwrap();
    let server = server(&identity).build().unwrap();
    let long = vec![0x5a; 20_000];
    let options = Options { client_parameters: &long, piece: 1_000, ..Options::default() };
    shake_well(&client, &server, &options);
}

#[test]
fn a_server_does_not_announce_parameters_that_are_none() {
    let server = server(&identity()).build().unwrap();
    let options = Options { server_parameters: &[4, 1, 0xff], ..Options::default() };
    assert!(start_server(&server, &options).err().unwrap().reason.contains("our own"));
}
