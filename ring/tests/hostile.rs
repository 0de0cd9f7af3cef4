//! A side that writes into the memory what it likes, by its own mapping, while the other one works with it.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};

use quicket_ring::{Consumer, Descriptor, Layout, Lie, Memory, Producer, Way};

fn layout() -> Layout {
    Layout::new(16, 16, 256).unwrap()
}

/// Two mappings of one memory.
fn pair() -> (Memory, Memory) {
    let ours = Memory::create(layout()).unwrap();
    let theirs = Memory::open(ours.as_fd().try_clone_to_owned().unwrap(), layout()).unwrap();
    (ours, theirs)
}

/// Has the other side's count stand `count` ahead, whatever that means.
fn publish(memory: &Memory, way: Way, count: u32) {
    let _ = Producer::new().publish(memory.lines(way), count);
}

fn release(memory: &Memory, way: Way, count: u32) {
    let _ = Consumer::new().release(memory.lines(way), count);
}

#[test]
fn an_index_beyond_the_ring_is_a_lie_and_any_other_is_a_number_of_positions() {
    let (ours, theirs) = pair();
    let consumer = Consumer::new();
    for count in [0, 1, 15, 16] {
        publish(&theirs, Way::Send, count);
        assert_eq!(consumer.ready(ours.lines(Way::Send)), Ok(count));
    }
    for count in [17, 18, 1 << 16, 1 << 31, u32::MAX] {
        publish(&theirs, Way::Send, count);
        assert_eq!(consumer.ready(ours.lines(Way::Send)), Err(Lie), "{count}");
        assert_eq!(consumer.sleep(ours.lines(Way::Send)), Err(Lie), "{count}");
    }
    // The consumer of our frames says that it has taken more than there were.
    let mut producer = Producer::new();
    let _ = producer.publish(ours.lines(Way::Receive), 4);
    for count in [5, 6, 1 << 31, u32::MAX - 12] {
        release(&theirs, Way::Receive, count);
        assert_eq!(producer.room(ours.lines(Way::Receive), 16), Err(Lie), "{count}");
        assert_eq!(producer.wait(ours.lines(Way::Receive)), Err(Lie), "{count}");
    }
    for (count, room) in [(0, 12), (4, 16)] {
        release(&theirs, Way::Receive, count);
        assert_eq!(producer.room(ours.lines(Way::Receive), 16), Ok(room));
    }
}

#[test]
fn counts_go_on_past_their_end() {
    let layout = Layout::new(4096, 16, 128).unwrap();
    let ours = Memory::create(layout).unwrap();
    let theirs = Memory::open(ours.as_fd().try_clone_to_owned().unwrap(), layout).unwrap();
    let (mut producer, mut consumer) = (Producer::new(), Consumer::new());
    // To just before the end, in steps as large as the ring.
    for _ in 0..u32::MAX / 4096 {
        assert_eq!(producer.room(ours.lines(Way::Send), 4096), Ok(4096));
        let _ = producer.publish(ours.lines(Way::Send), 4096);
        assert_eq!(consumer.ready(theirs.lines(Way::Send)), Ok(4096));
        let _ = consumer.release(theirs.lines(Way::Send), 4096);
    }
    assert_eq!(producer.count(), u32::MAX - 4095);
    for n in 0..5000_u16 {
        let lines = ours.lines(Way::Send);
        assert_eq!(producer.room(lines, 4096), Ok(4096));
        producer.put(lines, 0, Descriptor { slot: 3, len: n });
        let _ = producer.publish(lines, 1);
        let lines = theirs.lines(Way::Send);
        assert_eq!(consumer.ready(lines), Ok(1));
        assert_eq!(consumer.get(lines, 0), Descriptor { slot: 3, len: n });
        let _ = consumer.release(lines, 1);
    }
    assert!(producer.count() < 5000, "the end was not passed");
}

/// The scribbler writes numbers without sense to every word and position and to all slots, while the other side
/// goes on with what it finds.
#[test]
fn who_scribbles_everywhere_harms_nobody_else() {
    let (ours, theirs) = pair();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = 1_u64;
            let mut noise = [0; 256];
            while !stop.load(Ordering::Relaxed) {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let number = (random >> 33) as u32;
                let way = if number & 1 == 0 { Way::Send } else { Way::Receive };
                // Small numbers are believed, and lead to descriptors.
                let count = if number & 2 == 0 { number } else { number >> 2 & 31 };
                publish(&theirs, way, count);
                release(&theirs, way, count);
                let _ = Consumer::new().sleep(theirs.lines(way));
                let _ = Producer::new().wait(theirs.lines(way));
                let wild =
                    Descriptor { slot: number >> (number & 31), len: (number >> 5) as u16 & 511 };
                Producer::new().put(theirs.lines(way), number >> 8, wild);
                noise.fill(number as u8);
                assert!(theirs.store(number & 31, &mut noise, 256));
            }
        });
        let mut frame = [0; 256];
        let (mut taken, mut lies, mut outside) = (0, 0, 0);
        for n in 0..200_000_u32 {
            let mut consumer = Consumer::new();
            let _ = consumer.sleep(ours.lines(Way::Send));
            match consumer.ready(ours.lines(Way::Send)) {
                Ok(ready) => {
                    assert!(ready <= 16);
                    for at in 0..ready {
                        let Descriptor { slot, len } = consumer.get(ours.lines(Way::Send), at);
                        match ours.load(slot, len.into(), &mut frame) {
                            Some(octets) => taken += octets.len().min(1),
                            None => outside += 1,
                        }
                    }
                    let _ = consumer.release(ours.lines(Way::Send), ready);
                }
                Err(Lie) => lies += 1,
            }
            let mut producer = Producer::new();
            match producer.room(ours.lines(Way::Receive), 16) {
                Ok(room) => {
                    assert!(room <= 16);
                    for at in 0..room {
                        let slot = producer.get(ours.lines(Way::Receive), at).slot;
                        let stored = ours.store(slot, &mut frame, (n & 255) as usize);
                        assert!(stored || slot >= ours.layout().slots());
                    }
                    let _ = producer.publish(ours.lines(Way::Receive), room);
                }
                Err(Lie) => lies += 1,
            }
            // It has to have had its turn, on a machine with one processor too.
            if n % 1000 == 0 {
                std::thread::yield_now();
            }
        }
        stop.store(true, Ordering::Relaxed);
        assert!(taken > 0 && lies > 0 && outside > 0, "{taken} {lies} {outside}");
    });
}
