use super::*;

/// A ring in memory that nobody else has.
fn ring<T: Entry>() -> Ring<T> {
    let entries = 256;
    let frames = Frames::new(64, 2048).unwrap();
    let Frames { area, .. } = frames;
    assert!(entries + FRAMES as usize * size_of::<T>() <= area.len);
    Ring { area, ours: 0, theirs: 64, flags: 128, entries, own: 0, entry: PhantomData }
}

fn theirs<T: Entry>(ring: &Ring<T>, index: u32) {
    ring.word(ring.theirs).store(index, Ordering::Release);
}

#[test]
fn an_index_that_cannot_be_is_found_and_one_that_can_is_followed() {
    let mut received = Draining(ring::<u64>());
    for passed in [0, 5, FRAMES, u32::MAX - 3] {
        received.0.own = passed;
        for filled in [0, 1, FRAMES] {
            theirs(&received.0, passed.wrapping_add(filled));
            assert_eq!(received.filled(), Ok(filled));
        }
        for filled in [FRAMES + 1, 1 << 31, u32::MAX] {
            theirs(&received.0, passed.wrapping_add(filled));
            assert_eq!(received.filled(), Err(Lie), "{filled}");
        }
    }
    let mut send = Filling(ring::<u64>());
    for filled in [0, 5, FRAMES, u32::MAX - 3] {
        send.0.own = filled;
        for used in [0, 1, FRAMES] {
            theirs(&send.0, filled.wrapping_sub(used));
            assert_eq!(send.room(), Ok(FRAMES - used));
        }
        for used in [FRAMES + 1, 1 << 31, u32::MAX] {
            theirs(&send.0, filled.wrapping_sub(used));
            assert_eq!(send.room(), Err(Lie), "{used}");
        }
    }
}

#[test]
fn positions_come_again_after_as_many_as_there_are() {
    let mut fill = Filling(ring::<u64>());
    fill.0.own = u32::MAX - 10;
    for at in 0..FRAMES {
        fill.put(at, at.into());
    }
    let first = fill.0.own;
    fill.0.advance(FRAMES);
    assert_eq!(fill.0.word(fill.0.ours).load(Ordering::Relaxed), first.wrapping_add(FRAMES));
    let mut drain = Draining(fill.0);
    drain.0.own = first;
    for at in 0..FRAMES {
        assert_eq!(drain.get(at), u64::from(at));
    }
    assert_eq!(drain.get(FRAMES), 0, "the first one again");
}

#[test]
fn frames_that_the_kernel_has_room_for_later_are_given_back_later() {
    let received = Draining(ring::<XdpDesc>());
    for at in 0..FRAMES {
        let (addr, options) = (u64::from(at) * 2048 + 256, XdpDescOptions::empty());
        let desc = XdpDesc { addr, len: 60, options };
        // SAFETY: a position of this test's own ring.
        unsafe { received.0.position(at).write_volatile(desc) }
    }
    let mut fill = Filling(ring::<u64>());
    let (mut back, start) = (Vec::new(), |addr: u64| addr & !2047);
    // All are in the ring of filling, as far as the kernel has said.
    fill.0.own = FRAMES;
    let mut release = |fill: &mut Filling<u64>, n| give_back(&received, fill, &mut back, n, start);
    assert_eq!(release(&mut fill, 3), Ok(()));
    assert_eq!(fill.0.own, FRAMES);
    theirs(&fill.0, 2);
    assert_eq!(release(&mut fill, 1), Ok(()));
    assert_eq!(fill.0.own, FRAMES + 2);
    theirs(&fill.0, 100);
    assert_eq!(release(&mut fill, 0), Ok(()));
    assert_eq!(fill.0.own, FRAMES + 4);
    // The first three, and that of the second time, which here is the first one again.
    let drain = Draining(fill.0);
    assert_eq!(
        std::array::from_fn(|at| drain.get((at as u32).wrapping_sub(4))),
        [0, 2048, 4096, 0]
    );
}

#[test]
fn no_address_and_no_length_leads_out_of_a_frame() {
    let frames = Frames::new(4, 2048).unwrap();
    for (addr, len) in [(0, 2048), (2048 + 256, 1792), (3 * 2048, 0), (4 * 2048 - 1, 1)] {
        assert!(frames.at(addr, len).is_some(), "{addr}, {len}");
    }
    for (addr, len) in [
        (0, 2049),
        (2048 + 256, 1793),
        (4 * 2048, 0),
        (4 * 2048 - 1, 2),
        (u64::MAX, 1),
        (u64::MAX - 2047, 0),
        (1 << 63, 1),
        (0, u32::MAX),
    ] {
        assert!(frames.at(addr, len).is_none(), "{addr}, {len}");
    }
}
