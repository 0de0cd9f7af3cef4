//! A switch that is killed: all traffic is the system's at once.

use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Command, Stdio};

use quicket_packets::client::Port;
use quicket_packets::control::Control;
use quicket_packets::daemon::Daemon;

use crate::common::{Stack, layout};
use crate::traffic::{MODES, exchange};
use crate::wire::{DEVICE, HERE, THERE, Wire, has_program, receive, socket, until};

/// Says where a process that this test has started is to listen.
const PATH: &str = "QUICKET_TEST_PACKETS";

/// The process that is killed: this test's own program.
#[test]
fn a_switch_of_its_own_process() {
    if let Some(path) = std::env::var_os(PATH) {
        // It ends with its input, should nobody kill it.
        let _ = Daemon::bind(Path::new(&path), false).unwrap().run(std::io::stdin().as_fd());
    }
}

#[test]
fn the_death_of_the_switch_lets_all_traffic_pass_at_once() {
    if !crate::is_permitted() {
        return;
    }
    let wire = Wire::new("");
    for mode in MODES {
        let name = format!("quicket-packets-killed-{}-{}", std::process::id(), mode as u8);
        let path = std::env::temp_dir().join(name);
        let mut switch = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "killed::a_switch_of_its_own_process"])
            .env(PATH, &path)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        until("the switch does not begin", || Control::connect(&path).is_ok());
        Control::connect(&path).unwrap().attach(DEVICE, mode).unwrap();
        let own = socket(HERE[0]);
        let mut port = Port::open(&path, layout()).unwrap();
        let tuple = port.register(&own).unwrap();
        let mut stack = Stack { port, address: (tuple.address, tuple.port).into() };
        let there = wire.socket(THERE[0]);
        exchange(&mut stack, &there, b"alive");
        switch.kill().unwrap();
        switch.wait().unwrap();
        // The kernel closes what the process had before that is over.
        assert!(!has_program());
        there.send_to(b"system", stack.address).unwrap();
        assert_eq!(receive(&own).1, b"system");
        assert!(stack.port.counters().is_err());
        // Another one takes its place, at the same path.
        let switch = Daemon::bind(&path, false).unwrap();
        drop(switch);
        let _ = std::fs::remove_file(&path);
    }
}
