//! Rings in plain memory of this process: needs no system, so that Miri can run it.

use std::sync::atomic::{AtomicU32, AtomicU64};
use std::thread;

use quicket_ring::{Consumer, Descriptor, Lines, Producer};

#[test]
fn descriptors_come_in_their_order() {
    let words = [0; 4].map(AtomicU32::new);
    let entries: Vec<_> = (0..16).map(AtomicU64::new).collect();
    let [tail, head, asleep, waits] = &words;
    let lines = Lines::new([tail, head, asleep, waits], &entries).unwrap();
    let frames = if cfg!(miri) { 200 } else { 100_000 };
    thread::scope(|scope| {
        scope.spawn(move || {
            let mut ring = Producer::new();
            let mut next = 0;
            while next < frames {
                let room = ring.room(lines, 5).unwrap().min(frames - next);
                for at in 0..room {
                    ring.put(lines, at, Descriptor { slot: next, len: !next as u16 });
                    next += 1;
                }
                let _ = ring.publish(lines, room);
                thread::yield_now();
            }
        });
        let mut ring = Consumer::new();
        while ring.count() < frames {
            let ready = ring.ready(lines).unwrap();
            for at in 0..ready {
                let number = ring.count() + at;
                let expected = Descriptor { slot: number, len: !number as u16 };
                assert_eq!(ring.get(lines, at), expected);
            }
            let _ = ring.release(lines, ready);
            thread::yield_now();
        }
    });
}

#[test]
fn only_a_power_of_two_is_a_ring() {
    let words = [0; 4].map(AtomicU32::new);
    let [tail, head, asleep, waits] = &words;
    for (len, is_ring) in [(0, false), (1, false), (2, true), (3, false), (16, true), (24, false)] {
        let entries: Vec<_> = (0..len).map(AtomicU64::new).collect();
        let lines = Lines::new([tail, head, asleep, waits], &entries);
        assert_eq!(lines.is_some(), is_ring, "{len}");
    }
}
