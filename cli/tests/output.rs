//! Standard output and error that cannot be written: a full disk, and a reader that has gone.
#![cfg(target_os = "linux")]

mod common;

use std::fs::{self, OpenOptions};
use std::path::Path;
use std::process::Stdio;

use common::{Outcome, Server, quicket};
use quicket_testing::{Process, free_port, signal, until};
use tempfile::tempdir;

/// What has no room for anything.
fn full() -> Stdio {
    OpenOptions::new().write(true).open("/dev/full").unwrap().into()
}

/// What nobody reads any more.
fn closed() -> Stdio {
    std::io::pipe().unwrap().1.into()
}

/// How a command ends that writes there.
fn ended(home: &Path, arguments: &[&str], stdout: Stdio, stderr: Stdio) -> Outcome {
    let mut command = quicket(home);
    command.args(arguments).stdout(stdout).stderr(stderr);
    command.spawn().unwrap().wait_with_output().unwrap().into()
}

/// The servers' files, in `home`.
fn files(home: &Path) {
    fs::create_dir(home.join("files")).unwrap();
    fs::write(home.join("files/a"), "a").unwrap();
    fs::write(
        home.join("site.toml"),
        "listen = [\"127.0.0.1:0\"]\nredirect = [\"127.0.0.1:0\"]\n[[certificate]]\nchain = \"cert.pem\"\n\
         key = \"cert.key\"\n[[site]]\nnames = [\"*\"]\n[[site.route]]\nrespond = {}\n",
    )
    .unwrap();
    common::openssl(home, "cert", "DNS:localhost");
    let port = free_port();
    fs::write(
        home.join("balance"),
        format!("listen 127.0.0.1:{port}\nserver one 127.0.0.2\nhash-key 0011223344556677\n"),
    )
    .unwrap();
}

#[test]
fn an_answer_that_is_lost_is_a_failure_and_a_reader_who_has_had_enough_is_none() {
    let server = Server::start();
    let home = tempdir().unwrap();
    files(home.path());
    let url = server.url("/hello.txt");
    let get = ["get", "--pin", &server.pin, &url];
    let with = |flags: &[&'static str]| [&get[..], flags].concat();
    let demo = ["demo", "files", "--max-size", "1"];
    for arguments in [
        &["--help"][..],
        &["--version"],
        &["help", "get"],
        &["gateway", "--help"],
        &["completion", "bash"],
        &["man"],
        &with(&["-I"]),
        &with(&["--http2", "-I"]),
        &with(&["--json", "-o", "x"]),
        &demo,
        &[&demo[..], &["--json"]].concat(),
        &["gateway", "site.toml", "--check"],
        &["balance", "--config", "balance", "--check"],
        &["balance", "--config", "balance", "--show-config"],
        &["balance", "status", "--json"],
        &["lab", "link", "--list"],
    ] {
        let lost = ended(home.path(), arguments, full(), Stdio::piped());
        assert_eq!(lost.code, Some(6), "{arguments:?}: {}", lost.stderr);
        let told = "cannot write standard output: No space left on device";
        assert!(lost.stderr.contains(told), "{arguments:?}: {}", lost.stderr);
        assert!(!lost.stderr.contains("--continue"), "{arguments:?}: {}", lost.stderr);
        let enough = ended(home.path(), arguments, closed(), Stdio::piped());
        assert_eq!(enough.code, Some(0), "{arguments:?}: {}", enough.stderr);
        assert!(!enough.stderr.contains("panicked"), "{arguments:?}: {}", enough.stderr);
    }
}

#[test]
fn what_is_told_on_the_way_changes_no_outcome() {
    let server = Server::start();
    let home = tempdir().unwrap();
    let url = server.url("/hello.txt");
    let absent = server.url("/absent");
    for (arguments, code) in [
        (&["get", "--pin", &server.pin, &url, "-o", "-"][..], 0),
        (&["get", "--pin", &server.pin, "-v", &url, "-o", "-"], 0),
        (&["get", "--insecure-no-verify", &url, "-o", "-", "--keylog", "keys"], 0),
        (&["get", "--pin", &server.pin, &absent, "-o", "-"], 1),
        (&["get"], 2),
        (&["serve", "absent"], 6),
        (&["switch", "status", "--name", "./nobody"], 6),
    ] {
        for stderr in [full(), closed()] {
            let outcome = ended(home.path(), arguments, Stdio::piped(), stderr);
            assert_eq!(outcome.code, Some(code), "{arguments:?}");
            let all: &[u8] = if code == 0 { b"hello, world\n" } else { b"" };
            assert_eq!(outcome.stdout, all, "{arguments:?}");
        }
    }
}

const SIGTERM: u32 = 15;

/// A program that goes on, with a log that nobody gets.
fn start(home: &Path, arguments: &[&str], stderr: Stdio) -> Process {
    let mut command = quicket(home);
    command.env("XDG_RUNTIME_DIR", home);
    Process(command.args(arguments).stdout(Stdio::null()).stderr(stderr).spawn().unwrap())
}

#[test]
fn programs_that_go_on_do_so_without_their_logs() {
    let home = tempdir().unwrap();
    let path = home.path();
    files(path);
    assert!(
        quicket(path).args(["switch", "secrets", "new", "secrets"]).status().unwrap().success()
    );
    let name =
        |what: &str, number: usize| path.join(format!("{what}{number}")).display().to_string();
    for (number, stderr) in [full, closed].into_iter().enumerate() {
        let (switch, packets) = (name("switch", number), name("packets", number));
        let answers = || quicket_switch_status(path, &switch);
        let programs = [
            start(path, &["switch", "--stay", "--secrets", "secrets", "--name", &switch], stderr()),
            start(path, &["switch", "packets", "--name", &packets], stderr()),
            start(path, &["serve", "files", "-l", "127.0.0.1:0"], stderr()),
            start(path, &["gateway", "site.toml"], stderr()),
            start(path, &["gateway", "try", "http://127.0.0.1:1", "-l", "127.0.0.1:0"], stderr()),
            start(path, &["balance", "--config", "balance"], stderr()),
        ];
        until("the switch", answers);
        until("the switch for packets", || Path::new(&packets).exists());
        until("the balancer", || taken_up(path, programs[5].0.id()) == Some(1));
        until("all", || programs.iter().all(|program| catches(program.0.id(), SIGTERM)));
        for times in 2..5 {
            for program in [&programs[0], &programs[5]] {
                signal(program.0.id(), "-HUP");
            }
            until("the files", || taken_up(path, programs[5].0.id()) == Some(times));
        }
        assert!(answers());
        for (at, mut program) in programs.into_iter().enumerate() {
            assert_eq!(program.0.try_wait().unwrap(), None, "{at} has ended");
            signal(program.0.id(), "-TERM");
            assert_eq!(program.0.wait().unwrap().code(), Some(0), "{at}");
        }
        assert!(!Path::new(&packets).exists(), "the socket was left");
    }
}

/// Whether a process has something to do when this signal comes.
fn catches(process: u32, signal: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = caught.and_then(|caught| u64::from_str_radix(caught.trim(), 16).ok());
    caught.unwrap_or(0) & (1 << (signal - 1)) != 0
}

fn quicket_switch_status(home: &Path, name: &str) -> bool {
    quicket(home).args(["switch", "status", "--name", name]).output().unwrap().status.success()
}

/// How often the balancer of this process has taken its files up.
fn taken_up(home: &Path, process: u32) -> Option<u64> {
    let mut command = quicket(home);
    let status: Outcome = command.args(["balance", "status", "--json"]).output().unwrap().into();
    let all = status.report();
    let of = all.as_array()?.iter().find(|balancer| balancer["pid"] == process)?;
    of["files_taken_up"].as_u64()
}

#[test]
fn a_switch_in_the_background_says_why_there_is_none() {
    let home = tempdir().unwrap();
    let detach = |name: &str| -> Outcome {
        let mut command = quicket(home.path());
        command.args(["switch", "--detach", "--name", name]).output().unwrap().into()
    };
    let nowhere = detach("/nope/x");
    nowhere.assert_code(6);
    assert!(nowhere.stderr.contains("cannot open /nope/x.lock"), "{}", nowhere.stderr);
    let name = home.path().join("switch").display().to_string();
    // It is there as soon as this has ended, and a second one is not needed.
    for _ in 0..2 {
        detach(&name).assert_code(0);
        assert!(quicket_switch_status(home.path(), &name));
    }
}

#[test]
fn nothing_is_left_of_a_demonstration_that_was_told_to_end() {
    let home = tempdir().unwrap();
    let place = home.path().join("tmp");
    fs::create_dir(&place).unwrap();
    fs::create_dir(home.path().join("files")).unwrap();
    for number in 0..200 {
        fs::write(home.path().join(format!("files/{number}")), vec![number; 100_000]).unwrap();
    }
    let mut command = quicket(home.path());
    command.args(["demo", "files"]).env("TMPDIR", &place);
    let mut demo = Process(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    until("its files", || fs::read_dir(&place).unwrap().count() == 1);
    signal(demo.0.id(), "-TERM");
    // Where it was too quick, it has left nothing either.
    assert!(matches!(demo.0.wait().unwrap().code(), Some(0 | 130)));
    assert_eq!(fs::read_dir(&place).unwrap().count(), 0);
}
