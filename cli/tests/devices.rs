//! `quicket switch attach`, `detach` and `devices`: a virtual device between two network namespaces.
#![cfg(target_os = "linux")]

mod common;

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use common::Outcome;
use quicket_lab::netns::{self, End, VethPair};
use quicket_testing::{Process, until};
use serde_json::Value;
use tempfile::TempDir;

/// The device at either end.
const DEVICE: &str = "veth0";
const NOBODY: u32 = 65_534;

/// The namespaces, and a place for the switch that other users can reach.
struct Place {
    pair: VethPair,
    folder: TempDir,
}

impl Place {
    /// None where the system does not permit it, which is said.
    fn new() -> Option<Self> {
        let pair = netns::unless_denied(VethPair::new(1500))?;
        if let Err(error) = quicket_bpf::Tuples::new(1) {
            netns::leave_out(&format!("BPF: {error}"));
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o777)).unwrap();
        Some(Self { pair, folder })
    }

    fn switch(&self) -> PathBuf {
        self.folder.path().join("packets")
    }

    /// A command in the switch's namespace.
    fn command(&self, program: impl AsRef<Path>, words: &[&str]) -> Command {
        let mut command = Command::new(program.as_ref());
        command.args(words);
        let mut command = self.pair.inside(End::Left, &command);
        command.stdin(Stdio::null());
        command
    }

    fn quicket(&self, words: &[&str]) -> Command {
        let mut command = self.command(env!("CARGO_BIN_EXE_quicket"), words);
        command.arg("--name").arg(self.switch());
        command
    }

    fn run(&self, words: &[&str]) -> Outcome {
        self.quicket(words).output().unwrap().into()
    }

    /// What the command says when it fails.
    fn fails(&self, words: &[&str]) -> String {
        let outcome = self.run(words);
        outcome.assert_code(6);
        outcome.stderr
    }

    fn report(&self, words: &[&str]) -> Value {
        let outcome = self.run(&[words, &["--json"]].concat());
        outcome.assert_code(0).report()
    }

    fn has_program(&self) -> bool {
        let words = ["-d", "link", "show", "dev", DEVICE];
        let output = self.command("ip", &words).output().unwrap();
        assert!(output.status.success());
        String::from_utf8(output.stdout).unwrap().contains("prog/xdp")
    }

    fn vlan_offload(&self) -> bool {
        let output = self.command("ethtool", &["-k", DEVICE]).output().unwrap();
        String::from_utf8(output.stdout).unwrap().contains("rx-vlan-offload: on")
    }
}

fn started(mut command: Command) -> Process {
    let mut switch = Process(command.stderr(Stdio::piped()).spawn().unwrap());
    let mut line = String::new();
    BufReader::new(switch.stderr.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.contains("is ready"), "{line}");
    switch
}

#[test]
fn a_device_is_attached_shown_and_detached() {
    let Some(place) = Place::new() else { return };
    for words in [&["attach", DEVICE][..], &["detach", DEVICE], &["devices"]] {
        let told = place.fails(&[&["switch"], words].concat());
        assert!(told.contains("quicket switch packets starts one"), "{words:?}: {told}");
    }
    let switch = started(place.quicket(&["switch", "packets"]));
    let none = place.run(&["switch", "devices"]);
    assert!(String::from_utf8(none.stdout).unwrap().contains("no device is attached"));
    assert_eq!(place.report(&["switch", "devices"]), serde_json::json!({ "devices": [] }));
    let had_offload = place.vlan_offload();
    assert!(had_offload, "the test sees nothing change");
    for mode in ["native", "generic"] {
        let attached = place.report(&["switch", "attach", DEVICE, "--mode", mode]);
        assert_eq!(attached["mode"], mode);
        assert_eq!((&attached["queues"], &attached["mtu"]), (&1.into(), &1500.into()));
        assert_eq!(attached["changed"], serde_json::json!(["rx-vlan-offload"]));
        assert!(place.has_program() && !place.vlan_offload());
        let told = place.fails(&["switch", "attach", DEVICE]);
        assert!(told.contains("attached already; quicket switch devices shows it"), "{told}");
        let listed = place.report(&["switch", "devices"]);
        assert_eq!(listed["devices"][0]["device"], DEVICE);
        assert_eq!(listed["devices"].as_array().unwrap().len(), 1);
        let detached = place.report(&["switch", "detach", DEVICE]);
        assert_eq!(detached["restored"], serde_json::json!(["rx-vlan-offload"]));
        until("the program is gone", || !place.has_program());
        assert!(place.vlan_offload());
    }
    let shown = place.run(&["switch", "attach", DEVICE]);
    let shown = String::from_utf8(shown.assert_code(0).stdout.clone()).unwrap();
    assert!(shown.contains("veth0: native mode") && shown.contains("rx-vlan-offload"), "{shown}");
    let shown = place.run(&["switch", "detach", DEVICE]).stdout;
    assert!(String::from_utf8(shown).unwrap().contains("as before: rx-vlan-offload"));
    for (words, why) in [
        (["switch", "detach", DEVICE], "not attached; quicket switch devices shows which are"),
        (["switch", "attach", "nothing"], "no such device in the network namespace of the switch"),
        (["switch", "attach", "a/b"], "no name of a network device"),
    ] {
        let told = place.fails(&words);
        assert!(told.contains(why), "{words:?}: {told}");
    }
    // The end of the switch is one of the attachment, too.
    place.report(&["switch", "attach", DEVICE]);
    drop(switch);
    until("the program is gone", || !place.has_program());
}

#[test]
fn who_may_not_is_told_who_may() {
    let Some(place) = Place::new() else { return };
    // A program that everybody can reach.
    let program = place.folder.path().join("quicket");
    std::fs::copy(env!("CARGO_BIN_EXE_quicket"), &program).unwrap();
    let by_nobody = |words: &[&str]| {
        let mut command = Command::new(&program);
        command.args(words).arg("--name").arg(place.switch()).stdin(Stdio::null());
        command.env("HOME", place.folder.path()).current_dir("/").uid(NOBODY).gid(NOBODY);
        command
    };
    // Root's switch, with that of others and without.
    let switch = started(place.quicket(&["switch", "packets"]));
    let told = Outcome::from(by_nobody(&["switch", "attach", DEVICE]).output().unwrap());
    told.assert_code(6);
    assert!(told.stderr.contains("only he and root may"), "{}", told.stderr);
    drop(switch);
    let switch = started(place.quicket(&["switch", "packets", "--all-users"]));
    for what in ["attach", "detach"] {
        let told = Outcome::from(by_nobody(&["switch", what, DEVICE]).output().unwrap());
        told.assert_code(6);
        assert!(told.stderr.contains("only root, and the user of the switch"), "{}", told.stderr);
    }
    drop(switch);
    // A switch that has no capabilities.
    let _switch = started(by_nobody(&["switch", "packets"]));
    let told = place.fails(&["switch", "attach", DEVICE]);
    assert!(told.contains("start it by root, or with CAP_BPF"), "{told}");
}

/// The far end has no switch: its sockets read what a generator sends, and say so by ICMP where there are none.
#[test]
fn frames_of_a_generator_are_datagrams_for_the_far_end() {
    let Some(place) = Place::new() else { return };
    let _switch = started(place.quicket(&["switch", "packets"]));
    place.report(&["switch", "attach", DEVICE]);
    let far = VethPair::address(End::Right);
    let near = VethPair::address(End::Left);
    let python = format!(
        "import socket\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\ns.settimeout(60)\ns.bind(('{far}', 0))\n\
         print(s.getsockname()[1], flush=True)\nseen = set()\n\
         while len(seen) < 500: d, a = s.recvfrom(2048); assert a[0] == '{near}'; seen.add(d)\n\
         print(len(d), flush=True)"
    );
    let mut reader = Command::new("python3");
    reader.args(["-c", &python]);
    let mut reader = place.pair.inside(End::Right, &reader);
    let mut reader = Process(reader.stdout(Stdio::piped()).spawn().unwrap());
    let mut told = BufReader::new(reader.stdout.take().unwrap());
    let mut port = String::new();
    told.read_line(&mut port).unwrap();
    let to = format!("{far}:{}", port.trim());
    // The first ones ask for the neighbour's address and are dropped: there are more than are waited for.
    let words = ["switch", "generate", &to, "--len", "200", "--rate", "2k", "--count", "1500"];
    let sent = place.report(&words);
    assert!(sent["delivered"].as_u64().unwrap() >= 1000, "{sent}");
    let mut len = String::new();
    told.read_line(&mut len).unwrap();
    // Without the headers of Ethernet, IP and UDP.
    assert_eq!(len.trim(), "158");
    assert!(reader.wait().unwrap().success());
    let words = ["switch", "generate", &to, "--rate", "2k", "--count", "500"];
    // The system says so a few times in a second, and has perhaps just done so.
    until("nothing is heard of a closed port", || {
        place.report(&words)["errors"].as_u64().is_some_and(|errors| errors > 0)
    });
}

#[test]
fn a_client_by_a_port_hears_that_nobody_listens() {
    let Some(place) = Place::new() else { return };
    let _switch = started(place.quicket(&["switch", "packets"]));
    place.report(&["switch", "attach", DEVICE]);
    let url = format!("https://{}:9/", VethPair::address(End::Right));
    let switch = place.switch();
    let words = ["get", "--http3-only", "--insecure-no-verify", "-q", "-o", "-", &url, "--port-of"];
    let begun = std::time::Instant::now();
    let mut command = place.command(env!("CARGO_BIN_EXE_quicket"), &words);
    let outcome = Outcome::from(command.arg(switch).output().unwrap());
    outcome.assert_code(3);
    assert!(outcome.stderr.contains("refused"), "{}", outcome.stderr);
    // Without that it waits for the handshake, for ten seconds or more.
    assert!(begun.elapsed().as_secs() < 8, "{:?}", begun.elapsed());
}

/// By the loopback device, with a server that knows nothing of it: what attaching has changed is shown, and is as it was.
#[test]
fn curl_of_this_host_fetches_from_an_unmodified_server_on_a_stack() {
    let Some(place) = Place::new() else { return };
    let _switch = started(place.quicket(&["switch", "packets"]));
    let changed = serde_json::json!(["gso_max_segs", "accept_local", "route_localnet"]);
    let told = place.fails(&["switch", "attach", "lo", "--mode", "native"]);
    assert!(told.contains("lo never has native XDP: attach it with --mode generic"), "{told}");
    let attached = place.report(&["switch", "attach", "lo"]);
    assert_eq!((&attached["changed"], &attached["mode"]), (&changed, &"generic".into()));
    std::fs::write(place.folder.path().join("hello"), "hello\n").unwrap();
    let near = VethPair::address(End::Left);
    for (address, port) in [("127.0.0.1".to_owned(), "8001"), (near.to_string(), "8002")] {
        let switch = place.switch();
        let words = ["run", "--tcp-by", switch.to_str().unwrap(), "--", "python3", "-u", "-m"];
        let words = [&words[..], &["http.server", port, "--bind", &address]].concat();
        let mut command = place.command(env!("CARGO_BIN_EXE_quicket"), &words);
        command.env("HOME", place.folder.path()).current_dir(place.folder.path());
        let (_server, line) = Process::start(&mut command);
        assert!(line.starts_with("Serving HTTP"), "{line}");
        let url = format!("http://{address}:{port}/hello");
        let curl = place.command("curl", &["-sS", "--fail", "--max-time", "30", &url]).output();
        let curl = curl.unwrap();
        assert_eq!(String::from_utf8_lossy(&curl.stdout), "hello\n", "{curl:?}");
        // The system has a socket there that does not listen: without the device curl is refused.
        place.report(&["switch", "detach", "lo"]);
        let curl = place.command("curl", &["-sS", "--max-time", "30", &url]).output().unwrap();
        assert!(!curl.status.success(), "{curl:?}");
        place.report(&["switch", "attach", "lo"]);
    }
    let detached = place.report(&["switch", "detach", "lo"]);
    assert_eq!(detached["restored"], changed);
}
