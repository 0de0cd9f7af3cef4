//! A link that is not what it should be.

use std::time::Duration;

use quicket_packets::control::Control;
use quicket_packets::device::Mode;

use crate::common::{PATIENCE, Switch, pattern};
use crate::exchange::{end_ours, end_theirs, pairs, there_and_back};
use crate::is_permitted;
use crate::tap::Link;
use crate::wire::DEVICE;

fn exchange(link: Link, len: usize) {
    let linked = link.lay();
    let switch = Switch::start();
    Control::connect(&switch.path).unwrap().attach(DEVICE, Mode::Generic).unwrap();
    let stack = switch.stack();
    let data = pattern(len);
    let both = pairs(&linked.wire, &stack).into_iter().zip(pairs(&linked.wire, &stack));
    for ((ours, theirs), (ours_too, theirs_too)) in both {
        there_and_back(ours, theirs, &data, end_ours, end_theirs);
        there_and_back(theirs_too, ours_too, &data, end_theirs, end_ours);
    }
    assert!(stack.wait_until_over(PATIENCE));
}

#[test]
fn a_link_with_a_delay() {
    if !is_permitted() {
        return;
    }
    exchange(Link { lost: 0, doubled: 0, late: 0, delay: Duration::from_millis(5) }, 2 << 20);
}

#[test]
fn a_link_that_loses_frames() {
    if !is_permitted() {
        return;
    }
    exchange(Link { lost: 20, doubled: 0, late: 0, delay: Duration::from_millis(1) }, 200_000);
}

#[test]
fn a_link_that_changes_the_order_of_frames_and_doubles_some() {
    if !is_permitted() {
        return;
    }
    exchange(Link { lost: 0, doubled: 30, late: 100, delay: Duration::from_millis(1) }, 500_000);
}
