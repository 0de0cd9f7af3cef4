//! A switch that is killed: all traffic is the system's at once.

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use quicket_packets::client::Port;
use quicket_packets::control::Control;
use quicket_packets::daemon::Daemon;
use quicket_packets::device::Mode;

use crate::common::{Stack, layout};
use crate::loopback::settings;
use crate::traffic::{MODES, exchange};
use crate::wire::{DEVICE, HERE, THERE, Wire, has_program, ip, receive, socket, until};

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

/// A switch in a process of its own.
struct Apart {
    process: Child,
    path: PathBuf,
}

impl Apart {
    fn start(name: &str) -> Self {
        let name = format!("quicket-packets-killed-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "killed::a_switch_of_its_own_process"])
            .env(PATH, &path)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        until("the switch does not begin", || Control::connect(&path).is_ok());
        Self { process, path }
    }

    /// By SIGKILL. The kernel closes what the process had before that is over.
    fn kill(mut self) -> PathBuf {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
        self.path
    }
}

fn has_vlan_offload() -> bool {
    let output = Command::new("ethtool").args(["-k", DEVICE]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.contains("rx-vlan-offload: on")
}

#[test]
fn the_next_switch_at_the_path_sets_back_what_one_that_was_killed_has_altered() {
    if !crate::is_permitted() {
        return;
    }
    let _wire = Wire::new("");
    let before = settings();
    assert!(has_vlan_offload());
    let switch = Apart::start("altered");
    let mut control = Control::connect(&switch.path).unwrap();
    for device in ["lo", DEVICE] {
        control.attach(device, Mode::Generic).unwrap();
    }
    let during = settings();
    assert!(during != before && !has_vlan_offload());
    let path = switch.kill();
    let lock = path.with_file_name(format!("{}.lock", path.file_name().unwrap().display()));
    assert_eq!((settings().1, has_vlan_offload()), (during.1, false), "nobody has set it back");
    // Somebody sets some of it.
    ip("link set lo gso_max_segs 7");
    let next = Daemon::bind(&path, false).unwrap();
    assert_eq!(settings(), (false, "7".to_owned(), before.2.clone()));
    assert!(has_vlan_offload());
    assert!(std::fs::read(&lock).unwrap().is_empty());
    drop(next);
    assert!(!path.exists() && !lock.exists());
    ip("link set lo gso_max_segs 65535");
    // One that has ended in good order has left nothing, whatever is set later.
    let switch = Apart::start("altered");
    let mut control = Control::connect(&switch.path).unwrap();
    control.attach("lo", Mode::Best).unwrap();
    control.detach("lo").unwrap();
    assert_eq!(settings(), before);
    let path = switch.kill();
    std::fs::write("/proc/sys/net/ipv4/conf/lo/accept_local", "1").unwrap();
    drop(Daemon::bind(&path, false).unwrap());
    assert_eq!(settings().2, ["1", "0"].map(str::to_owned));
}

#[test]
fn the_death_of_the_switch_lets_all_traffic_pass_at_once() {
    if !crate::is_permitted() {
        return;
    }
    let wire = Wire::new("");
    for mode in MODES {
        let switch = Apart::start(&(mode as u8).to_string());
        let path = switch.path.clone();
        Control::connect(&path).unwrap().attach(DEVICE, mode).unwrap();
        let own = socket(HERE[0]);
        let mut port = Port::open(&path, layout()).unwrap();
        let tuple = port.register(&own).unwrap();
        let mut stack = Stack { port, address: (tuple.address, tuple.port).into() };
        let there = wire.socket(THERE[0]);
        exchange(&mut stack, &there, b"alive");
        switch.kill();
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
