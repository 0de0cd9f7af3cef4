//! Sealed frames into a connection.
//!
//! The first byte chooses the attacker's role and the stage of the handshake. Then come steps: a
//! byte that says what happens, and what it needs.

use quicket_engine::crypto::Level;
use quicket_engine::time::Duration;
use quicket_engine::{Dir, Event, Side, StreamEvent, WhenFull};

use super::input::Input;
use crate::attack::{Duel, DuelOptions, Payload, Stage};

/// Steps of one run, so that no input takes long.
const MAX_STEPS: usize = 300;
/// By then every connection must have ended.
const END: Duration = Duration::from_secs(3_600);

pub(super) fn run(input: &[u8]) {
    let mut input = Input::new(input);
    let first = input.byte();
    let attacker = if first & 1 == 0 { Side::Client } else { Side::Server };
    let stage = Stage::ALL[usize::from(first >> 1) % Stage::ALL.len()];
    let mut duel = Duel::new(DuelOptions::new(attacker), stage);
    for _ in 0..MAX_STEPS {
        if input.is_empty() {
            break;
        }
        step(&mut duel, &mut input);
    }
    // Whatever happened, silence ends it.
    drop(duel.pass(END));
    assert!(duel.connection().is_drained(), "the connection has not ended");
}

fn step(duel: &mut Duel, input: &mut Input<'_>) {
    let what = input.byte();
    if what == u8::MAX {
        return train(duel, input);
    }
    match what % 16 {
        0..=5 => attack(duel, Level::OneRtt, input),
        6 => attack(duel, Level::Handshake, input),
        7 => attack(duel, Level::Initial, input),
        8 => attack(duel, Level::EarlyData, input),
        9 => drop(duel.pass(Duration::from_millis(u64::from(input.short())))),
        10 => duel.follow(),
        11 => duel.finish(),
        12 if duel.forge.can_seal(Level::OneRtt) => duel.forge.update_keys(),
        13 => application(duel, input),
        14 => skip(duel, input),
        _ => elsewhere(duel, input),
    }
}

fn attack(duel: &mut Duel, level: Level, input: &mut Input<'_>) {
    let payload = Payload::new().raw(input.chunk());
    // Long headers tell no more than 16383 bytes.
    if duel.forge.can_seal(level) && payload.len() < 16_000 {
        duel.attack(level, &payload);
    }
}

/// Packets of one size that arrive together, one of them perhaps garbled.
fn train(duel: &mut Duel, input: &mut Input<'_>) {
    if !duel.forge.can_seal(Level::OneRtt) {
        return;
    }
    let count = 2 + usize::from(input.byte() % 8);
    let garbled = usize::from(input.byte());
    let mut payload = input.chunk().to_vec();
    payload.truncate(1_200);
    let mut train = Vec::new();
    let mut stride = 0;
    for n in 0..count {
        let mut packet = duel.forge.seal(Level::OneRtt, &payload);
        stride = stride.max(packet.len());
        if n == garbled {
            let at = packet.len() - 1 - n;
            packet[at] ^= 1;
        }
        train.append(&mut packet);
        // The next one has as many bytes: other frames, or the same again.
        payload
            .iter_mut()
            .for_each(|byte| *byte ^= if input.is_empty() { 0 } else { input.byte() });
    }
    duel.deliver_train(&mut train, stride);
}

/// Leaves out packet numbers, a few or many.
fn skip(duel: &mut Duel, input: &mut Input<'_>) {
    let gap = u64::from(input.byte());
    duel.forge.next_number.iter_mut().for_each(|number| *number += gap);
}

/// The next packet comes from another address.
fn elsewhere(duel: &mut Duel, input: &mut Input<'_>) {
    let mut from = duel.address;
    from.set_port(1_024 + u16::from(input.byte()));
    let payload = input.chunk();
    if duel.forge.can_seal(Level::OneRtt) {
        let mut packet = duel.forge.seal(Level::OneRtt, payload);
        duel.deliver_from(from, &mut packet);
    }
}

/// The victim's application does something.
fn application(duel: &mut Duel, input: &mut Input<'_>) {
    let what = input.byte();
    let now = duel.now;
    let connection = duel.connection();
    match what % 10 {
        0 => while connection.poll_event().is_some() {},
        1 => {
            for dir in [Dir::Bidi, Dir::Uni] {
                while let Some(id) = connection.accept(dir) {
                    let _ = connection.read(id, &mut [0; 4_096]);
                }
            }
        }
        2 => {
            let dir = if what & 16 == 0 { Dir::Bidi } else { Dir::Uni };
            if let Ok(id) = connection.open(dir) {
                let _ = connection.write(id, &[what; 5_000]);
                let _ = connection.finish(id);
            }
        }
        3 => {
            while let Some(event) = connection.poll_event() {
                if let Event::Stream(StreamEvent::Readable { id }) = event {
                    let _ = connection.read(id, &mut [0; 100]);
                    let _ = connection.stop_sending(id, 3);
                }
            }
        }
        4 => {
            if let Some(id) = connection.accept(Dir::Bidi) {
                let _ = connection.write(id, &[1; 30_000]);
                let _ = connection.reset(id, 4);
            }
        }
        5 => {
            let _ = connection.update_keys(now);
        }
        6 => connection.ping(),
        7 => connection.follow_streams(true),
        8 => {
            let _ = connection.rotate_local_cids(now);
        }
        _ if what == 9 => connection.close(now, 9, b"enough"),
        _ => {
            let _ = connection.send_datagram(&[9; 100], WhenFull::Block);
        }
    }
}
