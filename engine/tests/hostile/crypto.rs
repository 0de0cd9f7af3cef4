//! CRYPTO data out of order and without end (RFC 9000, Section 7.5).

use std::sync::Arc;

use quicket_engine::crypto::Level;
use quicket_engine::{EndpointConfig, Side, TransportErrorCode};
use quicket_sim::attack::{Duel, DuelOptions, Party, Payload, Stage};
use quicket_sim::null_tls::{NullTls, NullTlsOptions};
use quicket_wire::frame::Crypto;

use crate::memory::growth;
use crate::support::{BOTH, KIB, SERVER, START, code, server, stranger};

const LEVELS: [(Stage, Level); 3] = [
    (Stage::First, Level::Initial),
    (Stage::Handshake, Level::Handshake),
    (Stage::Confirmed, Level::OneRtt),
];

/// Every role and level that takes CRYPTO data.
fn everywhere(attack: impl Fn(&mut Duel, Level)) {
    for side in BOTH {
        for (stage, level) in LEVELS {
            attack(&mut Duel::new(DuelOptions::new(side), stage), level);
        }
    }
}

fn crypto(offset: u64, data: &[u8]) -> Payload {
    Payload::of(&Crypto { offset, data })
}

#[test]
fn data_far_ahead_ends_the_connection() {
    everywhere(|duel, level| {
        let grown = growth(duel, |duel| duel.attack(level, &crypto(1 << 20, &[1])));
        assert_eq!(code(duel), Some(TransportErrorCode::CRYPTO_BUFFER_EXCEEDED), "{level:?}");
        assert!(grown < 8 * KIB, "{grown} bytes at {level:?}");
    });
}

/// No more than `crypto_buffer`, rounded up to a power of two, and its pieces.
#[test]
fn all_that_fits_beyond_a_gap_is_bounded() {
    everywhere(|duel, level| {
        let grown = growth(duel, |duel| {
            for at in 0..58 {
                duel.attack(level, &crypto(6_000 + at * 1_000, &[1; 1_000]));
            }
        });
        assert!(grown < 160 * KIB, "{grown} bytes at {level:?}");
        assert!(!duel.connection().is_closed(), "{level:?}");
    });
}

#[test]
fn one_byte_pieces_are_bounded() {
    everywhere(|duel, level| {
        let grown = growth(duel, |duel| {
            for packet in 0..60 {
                let mut payload = Payload::new();
                for piece in 0..100 {
                    let offset = 5_000 + 2 * (packet * 100 + piece);
                    payload.push(&Crypto { offset, data: &[1] });
                }
                duel.attack(level, &payload);
            }
        });
        assert_eq!(code(duel), Some(TransportErrorCode::CRYPTO_BUFFER_EXCEEDED), "{level:?}");
        assert!(grown < 128 * KIB, "{grown} bytes at {level:?}");
    });
}

/// What TLS has not asked for after the handshake is refused, not kept.
#[test]
fn messages_without_end_after_the_handshake_end_the_connection() {
    for side in BOTH {
        let mut duel = Duel::new(DuelOptions::new(side), Stage::Confirmed);
        let grown = growth(&mut duel, |duel| {
            for at in 0..2_000 {
                duel.attack(Level::OneRtt, &crypto(at * 1_000, &[4; 1_000]));
            }
        });
        assert!(duel.connection().is_closed(), "{side:?}");
        assert!(grown < 256 * KIB, "{grown} bytes");
    }
}

/// The pieces of a large ClientHello, any two of them the wrong way round, make a ClientHello as
/// soon as all are there: the client has no reason to send any again.
#[test]
fn a_client_hello_in_pieces_is_read_in_any_order() {
    for len in [3_000, 5_000, 6_000, 9_000] {
        let DuelOptions { mut client, crypto, .. } = DuelOptions::new(Side::Client);
        let tls = NullTlsOptions { client_hello_len: len, ..NullTlsOptions::default() };
        client.tls = Arc::new(NullTls::new(1, tls));
        let config = EndpointConfig::new([8; 32], [9; 32]);
        let mut party = Party::new(stranger(1), config, None, crypto, 2);
        let started = party.endpoint.connect(START, client, SERVER, None, "sim.example");
        let (handle, connection) = started.unwrap();
        party.connections.insert(handle, connection);
        let pieces = party.transmit(START);
        assert!(pieces.len() > 2, "{len}");
        for first in 1..pieces.len() {
            for second in first + 1..pieces.len() {
                let mut order: Vec<_> = pieces.clone();
                order.swap(first, second);
                let mut server = server(|_| {});
                for mut piece in order {
                    server.receive(START, stranger(1), piece.ecn, &mut piece.data);
                }
                let known = server.connection().peer_transport_parameters().is_some();
                assert!(known, "{len} bytes, pieces {first} and {second} change places");
            }
        }
    }
}
