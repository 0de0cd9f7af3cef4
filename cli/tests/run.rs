//! `quicket run` of the program as Cargo builds it.
#![cfg(target_os = "linux")]

mod common;

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use common::quicket;
use quicket_testing::{Process, free_port, until};
use tempfile::tempdir;

const PROGRAM: &str = env!("CARGO_BIN_EXE_quicket");

/// A socket of the protocol IPPROTO_QUIC, which most kernels do not know.
const SOCKET: &str = "import socket; print(socket.socket(socket.AF_INET, 2, 261).getsockname())";

#[test]
fn a_program_that_was_built_by_cargo_and_moved_elsewhere_gives_others_quic_sockets() {
    let home = tempdir().unwrap();
    let moved = home.path().join("moved");
    fs::copy(PROGRAM, &moved).unwrap();
    let ran = Command::new(&moved)
        .args(["run", "--", "python3", "-c", SOCKET])
        .env("HOME", home.path())
        .env_remove("XDG_CACHE_HOME")
        .output()
        .unwrap();
    let (out, err) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success(), "{err}");
    assert_eq!(out, "('0.0.0.0', 0)\n", "{err}");
}

/// The program has the library as data. Linked to it, the library would stand before the C library
/// in the program itself.
#[test]
fn nothing_of_the_library_is_linked_to_the_program() {
    let listed = Command::new("nm").arg("--defined-only").arg(PROGRAM).output();
    let listed = listed.expect("nm, of binutils");
    assert!(listed.status.success(), "{}", String::from_utf8_lossy(&listed.stderr));
    let symbols = String::from_utf8_lossy(&listed.stdout);
    let names: Vec<_> = symbols.lines().filter_map(|line| line.split_whitespace().last()).collect();
    assert!(names.contains(&"main"), "the program has its symbols");
    for interposed in ["read", "write", "close", "socket", "recvmsg", "poll", "quicket_socket"] {
        assert!(!names.contains(&interposed), "{interposed}");
    }
}

#[test]
fn the_library_is_unpacked_to_the_users_cache_once() {
    let home = tempdir().unwrap();
    let cache = |home: &Path| {
        let dir = fs::read_dir(home.join(".cache/quicket")).unwrap();
        dir.map(|entry| entry.unwrap().file_name()).collect::<Vec<_>>()
    };
    for _ in 0..2 {
        let mut command = quicket(home.path());
        let ran = command.args(["run", "--", "/bin/true"]).output().unwrap();
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        assert_eq!(cache(home.path()).len(), 1);
    }
}

/// Prints the number and the exit of what is to be the program, and its TCP.
const FETCH: &str = "
import os, sys, urllib.request
print(os.getpid(), urllib.request.urlopen(sys.argv[1]).read().decode().strip())
sys.exit(3)
";

#[test]
fn programs_that_know_nothing_of_it_have_tcp_in_user_space() {
    let home = tempdir().unwrap();
    let path = home.path().join("packets");
    let switch = path.to_str().unwrap();
    let run = |words: &[&str]| {
        let mut command = quicket(home.path());
        command.args([&["run", "--tcp-by", switch, "--"], words].concat());
        command.env("PATH", std::env::var_os("PATH").unwrap());
        command
    };
    let none = run(&["/bin/true"]).output().unwrap();
    let told = String::from_utf8_lossy(&none.stderr);
    assert_eq!(none.status.code(), Some(6), "{told}");
    assert!(told.contains("quicket switch packets starts one"), "{told}");

    let mut packets = quicket(home.path());
    packets.args(["switch", "packets", "--name", switch]).stderr(Stdio::piped());
    let mut packets = Process(packets.spawn().unwrap());
    let mut line = String::new();
    BufReader::new(packets.stderr.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.contains("is ready"), "{line}");
    fs::write(home.path().join("hello"), "hello\n").unwrap();
    let port = free_port().to_string();
    let words = ["python3", "-u", "-m", "http.server", &port, "--bind", "127.0.0.1"];
    let (server, line) = Process::start(run(&words).current_dir(home.path()));
    assert!(line.starts_with("Serving HTTP"), "{line}");
    let url = format!("http://127.0.0.1:{port}/hello");
    let mut client = run(&["python3", "-c", FETCH, &url]);
    let client = client.stdout(Stdio::piped()).spawn().unwrap();
    let pid = client.id();
    let got = client.wait_with_output().unwrap();
    // The program is the process that was started, and so is its end.
    assert_eq!(String::from_utf8_lossy(&got.stdout), format!("{pid} hello\n"));
    assert_eq!(got.status.code(), Some(3));
    // The system has no such listener.
    assert!(std::net::TcpStream::connect(format!("127.0.0.1:{port}")).is_err());
    // The address is given back when the program has ended, and with it the last socket.
    drop(server);
    until("the address is free", || {
        std::net::TcpListener::bind(format!("127.0.0.1:{port}")).is_ok()
    });

    // What a program has left behind still gets sockets, and nobody waits for that who reads what the program says.
    let later = format!("(sleep 0.5; exec {}) >log 2>&1 & echo $!", words.join(" "));
    let left = run(&["sh", "-c", &later]).current_dir(home.path()).output().unwrap();
    let left = Left(String::from_utf8(left.stdout).unwrap().trim().to_owned());
    until("the server answers", || {
        let got = run(&["python3", "-c", FETCH, &url]).output().unwrap();
        got.status.code() == Some(3)
    });
    // A server whose lender was killed does not ask for connections without rest.
    let lenders = fs::read_dir("/proc").unwrap().filter_map(Result::ok).filter(|process| {
        let words = fs::read_to_string(process.path().join("cmdline")).unwrap_or_default();
        words.contains("--lend-apart") && words.contains(switch)
    });
    let lenders: Vec<_> = lenders.map(|lender| lender.file_name()).collect();
    assert!(!lenders.is_empty());
    let killed = Command::new("kill").arg("-KILL").args(&lenders).status().unwrap();
    assert!(killed.success());
    let before = left.ticks();
    std::thread::sleep(Duration::from_secs(1));
    let spent = left.ticks() - before;
    assert!(spent < 20, "{spent} ticks in a second");
}

/// A process that a program has left behind.
struct Left(String);

impl Left {
    /// Hundredths of a second that it has had a processor.
    fn ticks(&self) -> u64 {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.0)).unwrap();
        // What comes after the name (proc_pid_stat(5)), from the state on.
        let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
        [fields[11], fields[12]].iter().map(|time| time.parse::<u64>().unwrap()).sum()
    }
}

impl Drop for Left {
    fn drop(&mut self) {
        let _ = Command::new("kill").args(["-KILL", &self.0]).status();
    }
}
