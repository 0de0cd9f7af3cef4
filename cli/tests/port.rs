//! `--port-of`: files by ports of the switch for packets, in memory and by a network device.
#![cfg(target_os = "linux")]

mod common;

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use common::{Outcome, Server, content, quicket};
use quicket_lab::netns::{self, End, VethPair};
use quicket_testing::{Process, signal};
use serde_json::Value;

const LEN: usize = 8_000_000;

/// Starts the switch for packets; what it says later.
fn started(mut command: Command) -> (Process, impl BufRead) {
    let mut switch = Process(command.stderr(Stdio::piped()).spawn().unwrap());
    let mut told = BufReader::new(switch.stderr.take().unwrap());
    let mut line = String::new();
    told.read_line(&mut line).unwrap();
    assert!(line.contains("is ready"), "{line}");
    (switch, told)
}

/// How many frames were delivered until its end.
fn delivered((mut switch, mut told): (Process, impl BufRead)) -> u64 {
    signal(switch.id(), "-TERM");
    let mut text = String::new();
    told.read_to_string(&mut text).unwrap();
    assert!(switch.wait().unwrap().success(), "{text}");
    let number = text.split_once("quicket: ").and_then(|(_, rest)| rest.split_once(" frames"));
    number.and_then(|(number, _)| number.parse().ok()).unwrap_or_else(|| panic!("{text}"))
}

#[test]
fn a_file_goes_from_one_port_to_another_without_privileges() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("packets").to_str().unwrap().to_owned();
    let mut command = quicket(folder.path());
    command.args(["switch", "packets", "--name", &path]);
    let switch = started(command);
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let server = Server::start_with(&["--listen", address, "--port-of", &path]);
        let url = server.url("/large");
        for flag in [&["--http3-only"][..], &[]] {
            let words = [&["--port-of", &path, &url, "-o", "-", "-q"][..], flag].concat();
            let fetched = server.get(&words);
            fetched.assert_code(0);
            assert!(fetched.stdout == content(LEN), "{} octets came", fetched.stdout.len());
        }
        // A socket of the system does not reach it: it has the address, and not its packets.
        let words = ["--http3-only", "--max-time", "1", &url, "-o", "-", "-q"];
        server.get(&words).assert_code(3);
    }
    let frames = delivered(switch);
    assert!(frames > (4 * LEN / 2048) as u64, "{frames}");
    // Nobody is there any more; and an address that no port can have.
    let refused = |code: i32, words: &[&str], why: &str| {
        let mut command = quicket(folder.path());
        command.args(["serve", ".", "--port-of", &path, "--listen"]).args(words);
        let outcome = Outcome::from(command.output().unwrap());
        outcome.assert_code(code);
        assert!(outcome.stderr.contains(why), "{}", outcome.stderr);
    };
    refused(6, &["127.0.0.1:0"], "quicket switch packets starts one");
    refused(2, &["[::]:0"], "one address of this host");
    refused(2, &["127.0.0.1:0", "--workers", "2"], "one worker");
    refused(2, &["127.0.0.1:0", "--switch"], "two ways");
    let get = |switch: &str| {
        let mut command = quicket(folder.path());
        command.args(["get", "https://127.0.0.1:9/", "--insecure-no-verify", "--port-of", switch]);
        Outcome::from(command.output().unwrap())
    };
    let outcome = get(&path);
    assert!(outcome.stderr.contains("quicket switch packets starts one"), "{}", outcome.stderr);
    // A descriptor is no name of a file here.
    let outcome = get("fd:3");
    outcome.assert_code(2);
    assert!(outcome.stderr.contains("only sink, generate and run"), "{}", outcome.stderr);
    // Something else listens there.
    let streams = folder.path().join("streams");
    let _streams = std::os::unix::net::UnixListener::bind(&streams).unwrap();
    let outcome = get(streams.to_str().unwrap());
    assert!(outcome.stderr.contains("what listens there is something else"), "{}", outcome.stderr);
}

/// A server at an end; where it is, and its certificate.
fn serve(pair: &VethPair, end: End, root: &Path, more: &[&str]) -> (Process, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_quicket"));
    let listen = format!("{}:0", VethPair::address(end));
    command.arg("serve").arg(root).args(["--json", "--quiet", "--listen", &listen]).args(more);
    let mut command = pair.inside(end, &command);
    let mut server = Process(command.env("HOME", root).stdout(Stdio::piped()).spawn().unwrap());
    let mut line = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let event: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(event["event"], "listening");
    let word = |name: &str| event[name].as_str().unwrap().to_owned();
    let (url, pin) = (format!("https://{}/large", word("address")), word("pin"));
    (server, url, pin)
}

fn get(pair: &VethPair, end: End, home: &Path, (url, pin): (&str, &str), more: &[&str]) -> Outcome {
    let mut command = Command::new(env!("CARGO_BIN_EXE_quicket"));
    command.args(["get", "--http3-only", "-q", "-o", "-", "--pin", pin, url]).args(more);
    pair.inside(end, &command).env("HOME", home).output().unwrap().into()
}

/// The other side has sockets of the system, which know nothing of ports.
#[test]
fn a_port_serves_and_fetches_by_a_network_device() {
    let Some(pair) = netns::unless_denied(VethPair::new(1500)) else { return };
    if let Err(error) = quicket_bpf::Tuples::new(1) {
        return netns::leave_out(&format!("BPF: {error}"));
    }
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("large"), content(LEN)).unwrap();
    let path = folder.path().join("packets").to_str().unwrap().to_owned();
    let here = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_quicket"));
        command.args(words);
        pair.inside(End::Left, &command)
    };
    for mode in ["native", "generic"] {
        let switch = started(here(&["switch", "packets", "--name", &path]));
        let attach = ["switch", "attach", "veth0", "--name", &path, "--mode", mode];
        assert!(here(&attach).status().unwrap().success());
        let by_port = ["--port-of", path.as_str()];
        let (server, url, pin) = serve(&pair, End::Left, folder.path(), &by_port);
        let fetched = get(&pair, End::Right, folder.path(), (&url, &pin), &[]);
        fetched.assert_code(0);
        assert!(fetched.stdout == content(LEN), "{} octets came", fetched.stdout.len());
        drop(server);
        if mode == "generic" {
            // Otherwise whole bursts come, which are longer than frames (docs/packets.md).
            let mut command = Command::new("ethtool");
            command.args(["-K", "veth0", "tx-udp-segmentation", "off"]);
            assert!(pair.inside(End::Right, &command).status().unwrap().success());
        }
        let (server, url, pin) = serve(&pair, End::Right, folder.path(), &[]);
        let fetched = get(&pair, End::Left, folder.path(), (&url, &pin), &by_port);
        fetched.assert_code(0);
        assert!(fetched.stdout == content(LEN), "{} octets came", fetched.stdout.len());
        drop(server);
        delivered(switch);
    }
}
