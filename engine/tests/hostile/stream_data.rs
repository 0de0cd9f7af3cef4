//! Stream data that costs more to keep than to send (RFC 9000, Sections 21.6 and 21.7).

use quicket_engine::crypto::Level;
use quicket_engine::{Dir, StreamId, TransportErrorCode};
use quicket_sim::attack::Payload;
use quicket_wire::frame;

use crate::memory::growth;
use crate::support::{BOTH, KIB, MIB, assert_alive, code, confirmed, ms};

/// One-byte frames in a packet of about 1200 bytes.
const PER_PACKET: u64 = 150;

/// CVE-2026-25800 of quinn: pieces of one byte, every other one missing.
#[test]
fn one_byte_pieces_cost_the_window_and_their_ranges() {
    for side in BOTH {
        let mut duel = confirmed(side);
        let id = StreamId::new(side, Dir::Uni, 0);
        let mut packets = 0;
        let grown = growth(&mut duel, |duel| {
            for packet in 0..400 {
                let mut payload = Payload::new();
                for piece in 0..PER_PACKET {
                    payload.stream(id, 1 + 2 * (packet * PER_PACKET + piece), &[1], false);
                }
                if !duel.connection().is_closed() {
                    packets += 1;
                }
                duel.attack(Level::OneRtt, &payload);
            }
        });
        assert_eq!(code(&mut duel), Some(TransportErrorCode::INTERNAL_ERROR), "{side:?}");
        assert!(packets > 16_384 / PER_PACKET, "honest disorder is bearable: {packets} packets");
        assert!(grown < 2 * MIB, "{grown} bytes");
    }
}

/// The last byte of each window: what is allocated is bounded by the connection's window.
#[test]
fn a_byte_at_the_end_of_every_window_costs_one_connection_window() {
    for side in BOTH {
        let mut duel = confirmed(side);
        let grown = growth(&mut duel, |duel| {
            for index in 0..100 {
                for dir in [Dir::Bidi, Dir::Uni] {
                    let mut payload = Payload::new();
                    payload.stream(StreamId::new(side, dir, index), (256 << 10) - 1, &[1], false);
                    duel.attack(Level::OneRtt, &payload);
                }
            }
        });
        assert_eq!(code(&mut duel), Some(TransportErrorCode::FLOW_CONTROL_ERROR));
        assert!(grown < 3 * MIB / 2, "{grown} bytes");
    }
}

/// CVE-2022-30591 was said of quic-go: streams that begin and do not go on.
#[test]
fn slow_streams_cost_a_bounded_sum_and_end_with_the_idle_timeout() {
    for side in BOTH {
        let mut duel = confirmed(side);
        let grown = growth(&mut duel, |duel| {
            for at in 0..10 {
                for index in 0..100 {
                    let mut payload = Payload::new();
                    payload.stream(StreamId::new(side, Dir::Bidi, index), at, b"G", false);
                    payload.stream(StreamId::new(side, Dir::Uni, index), at, b"G", false);
                    duel.attack(Level::OneRtt, &payload);
                }
                drop(duel.pass(ms(10_000)));
            }
        });
        assert_alive(&mut duel);
        assert!(grown < 512 * KIB, "{grown} bytes for 200 streams");
        drop(duel.pass(ms(60_000)));
        assert!(duel.connection().is_closed(), "silence ends it");
    }
}

/// Nobody reads: the windows end what can be held.
#[test]
fn a_flood_of_data_stops_at_the_window() {
    for side in BOTH {
        let mut duel = confirmed(side);
        let id = StreamId::new(side, Dir::Uni, 0);
        let grown = growth(&mut duel, |duel| {
            for at in 0..2_000 {
                let mut payload = Payload::new();
                payload.stream(id, at * 1_000, &[1; 1_000], false);
                duel.attack(Level::OneRtt, &payload);
            }
        });
        assert_eq!(code(&mut duel), Some(TransportErrorCode::FLOW_CONTROL_ERROR));
        assert!(grown < MIB, "{grown} bytes");
    }
}

/// RFC 9221 has no flow control: what does not fit the buffer is dropped.
#[test]
fn a_flood_of_datagrams_stops_at_the_buffer() {
    for side in BOTH {
        for size in [0, 1, 1_000] {
            let mut duel = confirmed(side);
            let data = vec![1; size];
            let grown = growth(&mut duel, |duel| {
                for _ in 0..5_000 {
                    let datagram = frame::Datagram { data: &data, has_length: true };
                    duel.attack(Level::OneRtt, &Payload::of(&datagram));
                }
            });
            assert_alive(&mut duel);
            assert!(grown < 3 * MIB, "{grown} bytes in datagrams of {size}");
        }
    }
}
