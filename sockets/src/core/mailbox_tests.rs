//! Mailboxes. Not in their file, which the model of `tests/leading` includes.

use std::net::SocketAddr;

use quicket_wire::EcnCodepoint;

use super::mailbox::{KEPT, MAILBOX_BYTES, MAILBOX_TRAINS, Mailbox, Parcels, Pushed};

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
