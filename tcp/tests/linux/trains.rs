//! Segments that leave together, for a device that cuts them and for one that does not.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::process::Command;

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
    let words = ["-K", DEVICE, "tso", "off", "gso", "off"];
    match Command::new("ethtool").args(words).status() {
        Ok(status) => {
            assert!(status.success());
            true
        }
        Err(error) => {
            assert!(std::env::var_os("CI").is_none(), "ethtool is missing: {error}");
            println!("LEFT OUT: ethtool is missing: {error}");
            false
        }
    }
}

/// Sends much by four connections, over both versions of IP; returns how many packets have left for each of them.
fn send(mode: Mode, wire: &Wire) -> Vec<u64> {
    let switch = Switch::start();
    let mut control = Control::connect(&switch.path).unwrap();
    control.attach(DEVICE, mode).unwrap();
    let stack = switch.stack();
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
    let counters = control.devices().unwrap().remove(0).counters;
    assert!(counters.sent >= 4 * SEGMENTS, "{counters:?}");
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
    let queue = Command::new("tc").args(["qdisc", "add", "dev", DEVICE, "root", "pfifo"]).status();
    match queue {
        Ok(status) => assert!(status.success()),
        Err(error) => {
            assert!(std::env::var_os("CI").is_none(), "tc is missing: {error}");
            println!("LEFT OUT: tc is missing: {error}");
            return;
        }
    }
    for packets in send(Mode::Native, &wire) {
        assert!(packets >= SEGMENTS, "{packets} packets for {SEGMENTS} segments");
    }
}
