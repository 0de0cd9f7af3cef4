//! Mailboxes. Not in their file, which the model of `tests/leading` includes.

use std::net::SocketAddr;

use quicket_wire::EcnCodepoint;

use super::mailbox::{KEPT, MAILBOX_BYTES, MAILBOX_TRAINS, Mailbox, Parcels, Pushed, WHOLE};

fn addresses() -> (SocketAddr, Option<SocketAddr>) {
    ("192.0.2.1:9".parse().unwrap(), None)
}

fn parcels(trains: &[&[u8]]) -> Parcels {
    let mut parcels = Parcels::default();
    trains.iter().for_each(|bytes| parcels.add(addresses(), EcnCodepoint::Ce, 2, bytes));
    parcels
}

fn contents(mailbox: &Mailbox) -> Vec<Vec<u8>> {
    let mut taken = Parcels::default();
    mailbox.take(&mut taken);
    let trains = taken.trains().map(|(remote, local, ecn, stride, bytes)| {
        assert_eq!(((remote, local), ecn, stride), (addresses(), EcnCodepoint::Ce, 2));
        bytes.to_vec()
    });
    trains.collect()
}

#[test]
fn trains_stay_trains_and_in_order() {
    let mailbox = Mailbox::default();
    assert!(!mailbox.push(&mut parcels(&[&[1, 2, 3]])).wake, "nobody sleeps");
    assert!(!mailbox.fall_asleep(), "there is something");
    mailbox.push(&mut parcels(&[&[4, 5], &[6]]));
    assert_eq!(contents(&mailbox), [vec![1, 2, 3], vec![4, 5], vec![6]]);
    assert!(mailbox.fall_asleep());
    assert_eq!(mailbox.push(&mut parcels(&[&[7]])), Pushed { wake: true, lost: 0 });
    assert!(!mailbox.push(&mut parcels(&[&[8]])).wake, "woken once");
    assert_eq!(contents(&mailbox), [vec![7], vec![8]]);
}

#[test]
fn a_full_mailbox_loses_what_does_not_fit_and_counts_it() {
    let mailbox = Mailbox::default();
    let large = vec![0; MAILBOX_BYTES - 10];
    assert_eq!(mailbox.push(&mut parcels(&[&large])).lost, 0);
    // Eleven bytes in datagrams of two are six.
    assert_eq!(mailbox.push(&mut parcels(&[&[1; 11], &[2; 10], &[3]])).lost, 6 + 1);
    assert_eq!(contents(&mailbox)[1..], [vec![2; 10]]);
    let many: Vec<&[u8]> = vec![&[1]; MAILBOX_TRAINS];
    mailbox.push(&mut parcels(&many));
    assert_eq!(mailbox.push(&mut parcels(&[&[1, 2, 3]])).lost, 2);
    assert_eq!(contents(&mailbox).len(), MAILBOX_TRAINS);
}

#[test]
fn memory_that_was_needed_once_is_given_back() {
    let mut parcels = parcels(&[&vec![0; 8 * KEPT]]);
    parcels.clear();
    assert!(parcels.bytes.capacity() >= 8 * KEPT);
    parcels.add(addresses(), EcnCodepoint::Ce, 2, &[1]);
    parcels.clear();
    assert_eq!(parcels.bytes.capacity(), 0);
}

/// Trains that are handed over as they lie, each in a buffer that says which it is, among others that are copied.
fn mixed(trains: &[(bool, u8)]) -> Parcels {
    let mut parcels = Parcels::default();
    for (whole, number) in trains {
        match whole {
            true => parcels.add_whole(addresses(), EcnCodepoint::Ce, 2, (3, usize::from(*number))),
            false => parcels.add(addresses(), EcnCodepoint::Ce, 2, &[*number; 3]),
        }
    }
    parcels.fill(|place, spare| {
        let mut buffer = spare.unwrap_or_else(|| vec![0; 4 * WHOLE].into_boxed_slice());
        buffer[..3].fill(place as u8);
        Some(buffer)
    });
    parcels
}

#[test]
fn trains_that_are_not_copied_keep_their_place_among_others() {
    let mailbox = Mailbox::default();
    let content = |numbers: &[u8]| numbers.iter().map(|n| vec![*n; 3]).collect::<Vec<_>>();
    mailbox.push(&mut mixed(&[(true, 1), (false, 2), (true, 3)]));
    assert_eq!(contents(&mailbox), content(&[1, 2, 3]));
    mailbox.push(&mut mixed(&[(false, 1), (true, 2)]));
    mailbox.push(&mut mixed(&[(true, 3), (false, 4), (false, 5), (true, 6)]));
    mailbox.push(&mut mixed(&[(false, 7)]));
    assert_eq!(contents(&mailbox), content(&[1, 2, 3, 4, 5, 6, 7]));
}

#[test]
fn buffers_count_as_a_whole_and_a_full_mailbox_loses_what_does_not_fit() {
    let mailbox = Mailbox::default();
    let fits = MAILBOX_BYTES / (4 * WHOLE);
    for number in 0..fits {
        let pushed = mailbox.push(&mut mixed(&[(true, number as u8)]));
        assert_eq!(pushed.lost, 0, "{number}");
    }
    // Three bytes in datagrams of two are two.
    let pushed = mailbox.push(&mut mixed(&[(true, 1), (false, 2), (true, 3)]));
    assert_eq!(pushed.lost, 6);
    let expected: Vec<_> = (0..fits).map(|number| vec![number as u8; 3]).collect();
    assert_eq!(contents(&mailbox), expected);
}

#[test]
fn buffers_go_back_and_forth_and_none_stays_that_is_not_needed() {
    let mailbox = Mailbox::default();
    let (mut outbox, mut taken) = (Parcels::default(), Parcels::default());
    let mut made = 0;
    for round in 0..100 {
        for place in 0..4 {
            outbox.add_whole(addresses(), EcnCodepoint::Ce, 2, (3, place));
        }
        outbox.fill(|_, spare| {
            made += usize::from(spare.is_none());
            Some(spare.unwrap_or_else(|| vec![0; 4 * WHOLE].into_boxed_slice()))
        });
        mailbox.push(&mut outbox);
        // Each second time there is something in the mailbox yet.
        if round % 2 == 1 {
            mailbox.take(&mut taken);
            assert_eq!(taken.trains().count(), 8);
            taken.clear();
        }
    }
    assert!(made <= 24, "{made}");
    taken.add(addresses(), EcnCodepoint::Ce, 2, &[1]);
    taken.clear();
    taken.add_whole(addresses(), EcnCodepoint::Ce, 2, (3, 0));
    taken.fill(|_, spare| {
        assert!(spare.is_none());
        None
    });
}
