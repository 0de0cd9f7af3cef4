//! Streams opened, reset and stopped without end, and limits raised without sense.

use quicket_engine::crypto::Level;
use quicket_engine::{Dir, ReadError, Side, StreamId, TransportErrorCode};
use quicket_sim::attack::{Duel, DuelOptions, Payload, Stage};
use quicket_wire::frame::{
    DataBlocked, MaxData, MaxStreamData, MaxStreams, ResetStream, StopSending, Stream,
    StreamDataBlocked, StreamsBlocked,
};
use quicket_wire::{Frame, Frames};

use crate::memory::growth;
use crate::support::{BOTH, KIB, assert_alive, code, confirmed};

fn reset(id: StreamId) -> Payload {
    Payload::of(&ResetStream { id, error_code: 1, final_size: 0 })
}

/// What CVE-2023-44487 is to HTTP/2: streams that are reset count until the application has
/// heard of them.
#[test]
fn streams_that_are_reset_at_once_still_count() {
    for side in BOTH {
        let mut duel = confirmed(side);
        let grown = growth(&mut duel, |duel| {
            for index in 0..2_000 {
                duel.attack(Level::OneRtt, &reset(StreamId::new(side, Dir::Uni, index)));
                drop(duel.answers());
            }
        });
        assert_eq!(code(&mut duel), Some(TransportErrorCode::STREAM_LIMIT_ERROR));
        assert!(grown < 128 * KIB, "{grown} bytes");
    }
}

/// A diligent application lets streams come and go: nothing is left of them.
#[test]
fn streams_that_come_and_go_leave_nothing() {
    for side in BOTH {
        let mut duel = confirmed(side);
        let grown = growth(&mut duel, |duel| {
            for index in 0..20_000 {
                duel.attack(Level::OneRtt, &reset(StreamId::new(side, Dir::Uni, index)));
                let id = duel.connection().accept(Dir::Uni).expect("the stream is there");
                let read = duel.connection().read(id, &mut [0; 10]);
                assert_eq!(read, Err(ReadError::Reset(1)));
                while duel.connection().poll_event().is_some() {}
                duel.follow();
            }
        });
        assert_alive(&mut duel);
        assert_eq!(duel.connection().stats().streams, 0);
        assert!(grown < 64 * KIB, "{grown} bytes");
    }
}

/// A request of the attacker's, and the victim's whole answer.
fn exchange(duel: &mut Duel, id: StreamId) {
    let mut request = Payload::new();
    request.stream(id, 0, b"request", true);
    duel.attack(Level::OneRtt, &request);
    let connection = duel.connection();
    if connection.accept(Dir::Bidi) == Some(id) {
        assert!(connection.read(id, &mut [0; 10]).unwrap().fin);
        connection.write(id, b"answer").unwrap();
        connection.finish(id).unwrap();
        while connection.poll_event().is_some() {}
    }
}

#[test]
fn streams_whose_end_is_never_acknowledged_are_bounded() {
    for side in BOTH {
        let mut duel = confirmed(side);
        let mut opened = 0;
        let grown = growth(&mut duel, |duel| {
            while !duel.connection().is_closed() && opened < 2_000 {
                exchange(duel, StreamId::new(side, Dir::Bidi, opened));
                drop(duel.answers());
                opened += 1;
            }
        });
        assert_eq!(code(&mut duel), Some(TransportErrorCode::STREAM_LIMIT_ERROR));
        assert!((150..=201).contains(&opened), "{opened} streams");
        assert!(grown < 512 * KIB, "{grown} bytes");
    }
}

/// A peer that may have one stream open can open the next as soon as the last has ended, without
/// an acknowledgment between, which it might delay. The limit comes with the end.
#[test]
fn the_next_stream_is_granted_with_the_end_of_the_last() {
    let mut options = DuelOptions::new(Side::Client);
    std::sync::Arc::make_mut(&mut options.server.transport).max_streams_bidi = 1;
    let mut duel = Duel::new(options, Stage::Confirmed);
    for index in 0..20 {
        exchange(&mut duel, StreamId::new(Side::Client, Dir::Bidi, index));
        let answers = duel.opened_answers();
        let granted = answers.iter().any(|packet| {
            let frames = || Frames::new(&packet.payload).flatten();
            let ends = frames().any(|frame| matches!(frame, Frame::Stream(stream) if stream.fin));
            ends && frames().any(|frame| match frame {
                Frame::MaxStreams(frame) => frame.maximum == index + 2,
                _ => false,
            })
        });
        assert!(granted, "stream {index}: {answers:?}");
        duel.acknowledge();
    }
    assert_alive(&mut duel);
}

/// Who has enough left is not told of each.
#[test]
fn a_peer_with_many_streams_left_hears_of_new_ones_now_and_then() {
    let mut duel = confirmed(Side::Client);
    let sent = |duel: &mut Duel| {
        let counters = duel.connection().stats().counters;
        (counters.packets_sent, counters.frames_sent.of_type(MaxStreams::TYPE_BIDI))
    };
    let before = sent(&mut duel);
    for index in 0..1_000 {
        exchange(&mut duel, StreamId::new(Side::Client, Dir::Bidi, index));
        duel.follow();
    }
    let after = sent(&mut duel);
    assert!(after.1 - before.1 <= 1_000 / 12 + 1, "{before:?} {after:?}");
    assert!(after.0 - before.0 <= 1_010, "{before:?} {after:?}");
}

#[test]
fn repeated_resets_and_requests_to_stop_are_answered_once() {
    for side in BOTH {
        let mut duel = confirmed(side);
        let id = StreamId::new(side, Dir::Bidi, 0);
        let grown = growth(&mut duel, |duel| {
            for code in 0..20_000 {
                let stop = StopSending { id, error_code: code };
                let reset = ResetStream { id, error_code: code, final_size: 0 };
                duel.attack(Level::OneRtt, &Payload::of(&stop).frame(&reset));
                duel.follow();
            }
        });
        assert_alive(&mut duel);
        let sent = duel.connection().stats().counters.frames_sent;
        assert_eq!(sent.of_type(ResetStream::TYPE), 1, "{side:?}");
        assert!(grown < 64 * KIB, "{grown} bytes");
    }
}

/// Every stream is stopped, and no answer acknowledged: one RESET_STREAM for each waits.
#[test]
fn requests_to_stop_all_streams_cost_the_streams() {
    for side in BOTH {
        let mut duel = confirmed(side);
        let grown = growth(&mut duel, |duel| {
            for index in 0..100 {
                let id = StreamId::new(side, Dir::Bidi, index);
                let stop = StopSending { id, error_code: 1 };
                duel.attack(Level::OneRtt, &Payload::of(&stop));
                drop(duel.answers());
            }
        });
        assert_alive(&mut duel);
        assert!(grown < 192 * KIB, "{grown} bytes");
    }
}

/// RFC 9000, Sections 19.9 to 19.11: limits only grow, and each counts for itself.
#[test]
fn limits_raised_in_tiny_steps_or_lowered_cost_nothing() {
    for side in BOTH {
        let mut duel = confirmed(side);
        duel.connection().follow_streams(true);
        let id = StreamId::new(side, Dir::Bidi, 0);
        let grown = growth(&mut duel, |duel| {
            for n in 0..20_000 {
                let up = (1 << 30) + n;
                let payload = Payload::of(&MaxData { maximum: up })
                    .frame(&MaxStreamData { id, maximum: up })
                    .frame(&MaxStreams { dir: Dir::Uni, maximum: up })
                    .frame(&MaxData { maximum: 0 })
                    .frame(&MaxStreamData { id, maximum: 0 })
                    .frame(&MaxStreams { dir: Dir::Uni, maximum: 0 });
                duel.attack(Level::OneRtt, &payload);
                duel.follow();
            }
        });
        assert_alive(&mut duel);
        // 4096 news that the application does not ask for.
        assert!(grown < 256 * KIB, "{grown} bytes");
    }
}

#[test]
fn complaints_of_limits_cost_nothing_and_raise_nothing() {
    for side in BOTH {
        let mut duel = confirmed(side);
        let id = StreamId::new(side, Dir::Bidi, 0);
        let grown = growth(&mut duel, |duel| {
            for n in 0..20_000 {
                let payload = Payload::of(&DataBlocked { limit: n })
                    .frame(&StreamDataBlocked { id, limit: n })
                    .frame(&StreamsBlocked { dir: Dir::Bidi, limit: n })
                    .frame(&StreamsBlocked { dir: Dir::Uni, limit: n });
                duel.attack(Level::OneRtt, &payload);
                duel.follow();
            }
        });
        assert_alive(&mut duel);
        let sent = duel.connection().stats().counters.frames_sent;
        let raised: u64 = (MaxData::TYPE..=MaxStreams::TYPE_UNI).map(|t| sent.of_type(t)).sum();
        assert!(raised < 20, "{raised} limits were raised");
        assert!(grown < 64 * KIB, "{grown} bytes");
    }
}

/// The highest stream that may be opened opens all lower ones: by number, not by state.
#[test]
fn the_last_stream_opens_all_others_for_little() {
    for side in BOTH {
        let mut duel = confirmed(side);
        let grown = growth(&mut duel, |duel| {
            duel.attack(Level::OneRtt, &reset(StreamId::new(side, Dir::Bidi, 99)));
            duel.attack(Level::OneRtt, &reset(StreamId::new(side, Dir::Uni, 99)));
        });
        assert_alive(&mut duel);
        assert!(grown < 16 * KIB, "{grown} bytes");
    }
}

/// GHSA-mfv9-vpqc-fc57 of neqo: frames of every kind after every kind of end.
#[test]
fn data_after_every_kind_of_end_is_harmless() {
    for side in BOTH {
        for first in 0..4 {
            for second in 0..4 {
                let mut duel = confirmed(side);
                let id = StreamId::new(side, Dir::Bidi, 0);
                let frame = |kind| match kind {
                    0 => Payload::of(&StopSending { id, error_code: 1 }),
                    1 => Payload::of(&ResetStream { id, error_code: 2, final_size: 4 }),
                    2 => Payload::of(&Stream { id, offset: 0, fin: true, data: b"data" }),
                    _ => Payload::of(&MaxStreamData { id, maximum: 1 << 40 }),
                };
                duel.attack(Level::OneRtt, &frame(first));
                if let Some(id) = duel.connection().accept(Dir::Bidi) {
                    let _ = duel.connection().write(id, b"answer");
                    let _ = duel.connection().stop_sending(id, 3);
                }
                duel.follow();
                for kind in [second, first, second] {
                    duel.attack(Level::OneRtt, &frame(kind));
                    duel.follow();
                }
                assert_alive(&mut duel);
            }
        }
    }
}
