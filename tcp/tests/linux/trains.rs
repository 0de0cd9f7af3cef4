//! Segments that leave together, for a device that cuts them and for one that does not.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::process::Command;
use std::time::Instant;

use quicket_packets::control::Control;
use quicket_packets::device::Mode;

use crate::common::{PATIENCE, Switch, pattern};
use crate::exchange::pairs;
use crate::is_permitted;
use crate::wire::{DEVICE, Wire};

const LEN: usize = 4 << 20;
/// How many segments they are at least, with an MTU of 1,500.
const SEGMENTS: u64 = LEN as u64 / 1460;

/// How many packets the system has sent by the device of this thread's network namespace.
fn packets() -> u64 {
    let table = std::fs::read_to_string("/proc/thread-self/net/dev").unwrap();
    let line = table.lines().find_map(|line| line.trim().strip_prefix(&format!("{DEVICE}:")));
    line.unwrap().split_whitespace().nth(9).unwrap().parse().unwrap()
}

/// Has the system cut what leaves, and not the device. Returns whether there is a program for it.
fn cut_before_the_device() -> bool {
    ethtool(&["-K", DEVICE, "tso", "off", "gso", "off"])
}

/// Returns whether there is such a program.
fn ethtool(words: &[&str]) -> bool {
    match Command::new("ethtool").args(words).status() {
        Ok(status) => {
            assert!(status.success());
            true
        }
        Err(error) => {
            quicket_testing::leave_out(format_args!("ethtool is missing: {error}"));
            false
        }
    }
}

/// Sends much by four connections, over both versions of IP; returns how many packets have left for each of them.
fn send(mode: Mode, wire: &Wire) -> Vec<u64> {
    let switch = Switch::start();
    let mut control = Control::connect(&switch.path).unwrap();
    control.attach(DEVICE, mode).unwrap();
    send_by(&switch, &mut control, wire)
}

/// The same by a device that is attached.
fn send_by(switch: &Switch, control: &mut Control, wire: &Wire) -> Vec<u64> {
    let stack = switch.stack();
    let sent = |control: &mut Control| control.devices().unwrap().remove(0).counters.sent;
    let before = sent(control);
    let data = pattern(LEN);
    let mut packets_of = Vec::new();
    for (ours, theirs) in pairs(wire, &stack) {
        let before = packets();
        // One way, and nothing comes back but acknowledgments.
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let mut all = Vec::new();
                (&theirs).read_to_end(&mut all).unwrap();
                all
            });
            let mut writer = ours.try_clone().unwrap();
            writer.write_all(&data).unwrap();
            ours.shutdown(Shutdown::Write).unwrap();
            assert!(reader.join().unwrap() == data, "something else has come");
        });
        theirs.shutdown(Shutdown::Write).unwrap();
        packets_of.push(packets() - before);
    }
    assert!(stack.wait_until_over(PATIENCE));
    // Counted are segments, however they have left.
    let sent = sent(control) - before;
    assert!((4 * SEGMENTS..5 * SEGMENTS).contains(&sent), "{sent} segments");
    packets_of
}

#[test]
fn segments_leave_together_and_come_as_they_were_sent() {
    if !is_permitted() {
        return;
    }
    let wire = Wire::new("");
    for mode in [Mode::Native, Mode::Generic] {
        for packets in send(mode, &wire) {
            assert!(packets < SEGMENTS / 2, "{packets} packets for {SEGMENTS} segments");
        }
    }
    if !cut_before_the_device() {
        return;
    }
    for mode in [Mode::Native, Mode::Generic] {
        for packets in send(mode, &wire) {
            assert!(packets >= SEGMENTS, "{packets} packets for {SEGMENTS} segments");
        }
    }
}

/// Where frames wait in a queue of the system's, those that leave together could be overtaken by others.
#[test]
fn a_device_with_a_queue_gets_each_segment_by_itself() {
    if !is_permitted() {
        return;
    }
    let wire = Wire::new("");
    if !has_queue("add") {
        return;
    }
    for packets in send(Mode::Native, &wire) {
        assert!(packets >= SEGMENTS, "{packets} packets for {SEGMENTS} segments");
    }
}

/// Adds the system's queue to the device, or deletes it. Returns whether there is a program for it.
fn has_queue(word: &str) -> bool {
    match Command::new("tc").args(["qdisc", word, "dev", DEVICE, "root", "pfifo"]).status() {
        Ok(status) => {
            assert!(status.success());
            true
        }
        Err(error) => {
            quicket_testing::leave_out(format_args!("tc is missing: {error}"));
            false
        }
    }
}

#[test]
fn a_queue_that_comes_and_goes_later_is_heard_of() {
    if !is_permitted() {
        return;
    }
    let wire = Wire::new("");
    let switch = Switch::start();
    let mut control = Control::connect(&switch.path).unwrap();
    control.attach(DEVICE, Mode::Native).unwrap();
    for word in ["add", "del"] {
        if !has_queue(word) {
            return;
        }
        // Once the second one is answered, the switch has heard what was said before the first.
        for _ in 0..2 {
            control.devices().unwrap();
        }
        for packets in send_by(&switch, &mut control, &wire) {
            let is_together = packets < SEGMENTS / 2;
            assert_eq!(is_together, word == "del", "{packets} packets for {SEGMENTS} segments");
        }
    }
}

/// The system chooses another queue for a long frame than AF_XDP has.
#[test]
fn a_device_with_two_transmit_queues_gets_each_segment_by_itself() {
    if !is_permitted() {
        return;
    }
    let wire = Wire::new("numtxqueues 2 numrxqueues 2");
    if !ethtool(&["-L", DEVICE, "rx", "2", "tx", "2"]) {
        return;
    }
    for packets in send(Mode::Native, &wire) {
        assert!(packets >= SEGMENTS, "{packets} packets for {SEGMENTS} segments");
    }
}

#[test]
fn queues_that_become_more_are_noticed() {
    if !is_permitted() {
        return;
    }
    let wire = Wire::new("numtxqueues 2 numrxqueues 2");
    if !ethtool(&["-L", DEVICE, "rx", "1", "tx", "1"]) {
        return;
    }
    let switch = Switch::start();
    let mut control = Control::connect(&switch.path).unwrap();
    // In the driver, a program needs as many queues as the other end sends by.
    control.attach(DEVICE, Mode::Generic).unwrap();
    let mut is_together = || {
        let all = send_by(&switch, &mut control, &wire);
        all.into_iter().all(|packets| packets < SEGMENTS / 2)
    };
    assert!(is_together());
    assert!(ethtool(&["-L", DEVICE, "rx", "2", "tx", "2"]));
    // It is looked at once a second.
    let begun = Instant::now();
    while is_together() {
        assert!(begun.elapsed() < PATIENCE, "nobody has looked");
    }
}
