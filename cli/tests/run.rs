//! `quicket run` of the program as Cargo builds it.
#![cfg(target_os = "linux")]

mod common;

use std::fs;
use std::path::Path;
use std::process::Command;

use common::quicket;
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
