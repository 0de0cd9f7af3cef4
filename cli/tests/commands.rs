//! Help, errors of usage, completion, manual pages and the demonstration.

mod common;

use std::fs;
use std::net::UdpSocket;
use std::process::Output;

use common::{get, quicket};
use serde_json::Value;
use tempfile::tempdir;

fn run(arguments: &[&str]) -> Output {
    quicket(tempdir().unwrap().path()).args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// It would cost each process tens of milliseconds (docs/security.md). That .cargo/config.toml leaves
/// it out is seen in the program alone: AWS-LC has no function that says so.
#[test]
fn the_program_spends_no_time_on_jitter_entropy() {
    let program = fs::read(env!("CARGO_BIN_EXE_quicket")).unwrap();
    let has = |name: &[u8]| program.windows(name.len()).any(|bytes| bytes == name);
    assert!(has(b"CRYPTO_sysrand"), "the program's symbols cannot be read");
    assert!(!has(b"jent_read_entropy"), "AWS-LC was built with jitter entropy");
}

#[test]
fn help_has_examples_and_exit_codes() {
    for command in [
        "serve",
        "get",
        "demo",
        "analyze",
        "tunnel",
        "tunnel add",
        "tunnel show",
        "balance",
        "balance status",
        "run",
        "switch",
        "switch status",
        "switch generate",
        "switch sink",
        "switch open",
        "switch attach",
        "switch detach",
        "switch devices",
        "lab interop",
        "lab link",
        "lab endpoint",
        "lab bench",
        "completion",
        "man",
    ] {
        let words: Vec<_> = command.split(' ').chain(["--help"]).collect();
        let help = run(&words);
        assert!(help.status.success());
        let help = text(&help.stdout);
        assert!(help.contains(&format!("quicket {command} ")), "{command}: {help}");
        assert!(help.contains("Examples:"), "{command}: {help}");
        assert!(!help.contains('\u{1b}'), "colours without a terminal: {command}");
    }
    assert!(text(&run(&["--help"]).stdout).contains("Exit codes:"));
}

#[test]
fn wrong_usage_has_its_exit_code_and_says_what_to_do() {
    let home = tempdir().unwrap();
    for (arguments, words) in [
        (&["http://localhost/"][..], "https://"),
        (&["localhost:4433/a"], "write https://localhost:4433/a"),
        (&["127.0.0.1:4433/a"], "write https://127.0.0.1:4433/a"),
        (&["https://user@localhost/"], "remove them"),
        (&["https://localhost/a", "https://localhost/b", "-o", "-"], "only one file"),
        (&["https://localhost/a", "--sha256", "12"], "64"),
        (&["https://localhost/a", "--pin", "12"], "sha256:"),
        (&[], "<URL>"),
    ] {
        let outcome = get(home.path(), arguments);
        outcome.assert_code(2);
        assert!(outcome.stderr.contains(words), "{arguments:?}: {}", outcome.stderr);
    }
}

#[test]
fn what_is_no_flag_of_a_command_that_starts_a_program_is_wrong_usage() {
    let home = tempdir().unwrap();
    for arguments in [
        &["run", "--nope", "--", "true"][..],
        &["run", "--", "-n"],
        &["gateway", "try", "ftp://127.0.0.1"],
    ] {
        let outcome = quicket(home.path()).args(arguments).output().unwrap();
        let told = text(&outcome.stderr);
        assert_eq!(outcome.status.code(), Some(2), "{arguments:?}: {told}");
        assert!(told.contains("is no flag") || told.contains("SERVER: "), "{arguments:?}: {told}");
    }
}

#[test]
fn an_endpoint_of_the_interop_runner_does_what_its_environment_says() {
    let home = tempdir().unwrap();
    let endpoint = |role: &str, case: &str| {
        let mut command = quicket(home.path());
        command.args(["lab", "endpoint"]).env("ROLE", role).env("TESTCASE", case);
        // The runner sets variables without a value, too.
        command.env("QLOGDIR", "").env("CERTS", "absent");
        command.env("REQUESTS", "https://127.0.0.1:1/file").output().unwrap()
    };
    for role in ["client", "server"] {
        assert_eq!(endpoint(role, "a-case-of-tomorrow").status.code(), Some(127));
    }
    let absent = endpoint("client", "handshake");
    assert_eq!(absent.status.code(), Some(6));
    assert!(text(&absent.stderr).contains("absent/cert.pem"), "{}", text(&absent.stderr));
}

#[test]
fn scenarios_of_the_link_are_listed_and_errors_say_what_to_write() {
    let list = run(&["lab", "link", "--list"]);
    for name in ["simple-p2p", "droplist", "lte", "bad-wifi", "data-centre"] {
        assert!(text(&list.stdout).contains(name), "{name}");
    }
    let wrong = run(&["lab", "link", "--to", "127.0.0.1:1", "--scenario", "delay=15"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(text(&wrong.stderr).contains("such as `15ms`"), "{}", text(&wrong.stderr));
}

#[test]
fn failures_of_this_machine_have_their_exit_code() {
    let home = tempdir().unwrap();
    let absent = quicket(home.path()).args(["serve", "absent"]).output().unwrap();
    assert_eq!(absent.status.code(), Some(6), "{}", text(&absent.stderr));
    let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let busy = quicket(home.path()).args(["serve", ".", "-l", &address]).output().unwrap();
    assert_eq!(busy.status.code(), Some(6), "{}", text(&busy.stderr));
    let port = taken.local_addr().unwrap().port().to_string();
    for words in [&port, "in use", "--listen", "ss -lunp"] {
        assert!(text(&busy.stderr).contains(words), "{}", text(&busy.stderr));
    }
}

#[test]
fn files_that_cannot_be_kept_say_how_to_do_without() {
    let home = tempdir().unwrap();
    let run = |arguments: &[&str]| {
        let mut command = quicket(home.path());
        command.args(arguments).env("HOME", "/proc").output().unwrap()
    };
    for (arguments, words) in [
        (&["get", "https://localhost:1/"][..], "--no-sessions"),
        (&["connect", "localhost:1", "--alpn", "a"], "--no-sessions"),
        (&["serve", "."], "XDG_DATA_HOME"),
        (&["get", "https://localhost:1/", "--no-sessions", "--keylog", "/nope/x"], "cannot write"),
        (&["run", "--library", "/etc/passwd", "--", "true"], "no shared library"),
        (&["switch", "--name", "/nope/x"], "make the folder"),
        (&["keyd", "--listen", "unix:/nope/x", "--key", "/nope/k"], "is the name right?"),
        (&["demo", "/nope/d"], "is the name right?"),
        (&["switch", "status", "--name", "/nope/x"], "no switch at /nope/x runs"),
    ] {
        let outcome = run(arguments);
        let told = text(&outcome.stderr);
        assert_eq!(outcome.status.code(), Some(6), "{arguments:?}: {told}");
        assert!(told.contains(words), "{arguments:?}: {told}");
    }
}

#[test]
fn completion_and_manual_know_every_flag() {
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let script = text(&run(&["completion", shell]).stdout);
        assert!(script.contains("sha256sums"), "{shell}");
        assert!(script.contains("implementation"), "{shell}");
    }
    let dir = tempdir().unwrap();
    let out = dir.path().join("man");
    assert!(run(&["man", out.to_str().unwrap()]).status.success());
    let get = fs::read_to_string(out.join("quicket-get.1")).unwrap();
    assert!(get.contains(r"\-\-sha256sums"), "{get}");
    let bench = fs::read_to_string(out.join("quicket-lab-bench.1")).unwrap();
    assert!(bench.contains(r"quicket\-tokio"), "{bench}");
    let tunnel = fs::read_to_string(out.join("quicket-tunnel-add.1")).unwrap();
    assert!(tunnel.contains(r"encap\-remcsum"), "{tunnel}");
    let open = fs::read_to_string(out.join("quicket-switch-open.1")).unwrap();
    assert!(open.contains(r" [\-\-name <NAME>]") && open.contains("quicket(1)"), "{open}");
    let all = fs::read_to_string(out.join("quicket.1")).unwrap();
    assert!(!all.contains(r"\-help(1)"), "{all}");
    // A file is no folder.
    let refused = run(&["man", out.join("quicket.1").to_str().unwrap()]);
    assert_eq!(refused.status.code(), Some(6));
    assert!(text(&refused.stderr).contains("is no folder"), "{}", text(&refused.stderr));
    assert!(all.contains(".SH \"EXIT CODES\"\n.nf\n"), "{all}");
    assert!(text(&run(&["man"]).stdout).contains(".TH"));
}

#[test]
fn the_laboratory_measures_through_this_program() {
    let bench = ["lab", "bench", "--quick", "--network", "loopback", "--row", "handshakes"];
    let output = run(&[&bench[..], &["--implementation", "quicket"]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let table = text(&output.stdout);
    assert!(table.contains("Full handshakes, sequential"), "{table}");
    assert_eq!(run(&["lab", "bench", "--row", "nothing"]).status.code(), Some(2));
}

#[test]
fn the_demonstration_verifies_everything_and_resumes() {
    let home = tempdir().unwrap();
    let demo = ["demo", "--max-size", "20", "--max-files", "25", "--json"];
    let output = quicket(home.path()).args(demo).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rounds = report["rounds"].as_array().unwrap();
    assert_eq!(rounds.len(), 2);
    assert_eq!(rounds[0]["connection"]["resumed"], false);
    assert_eq!(rounds[1]["connection"]["resumed"], true);
    assert_eq!(rounds[1]["connection"]["early_data"], "accepted");
    assert_eq!(rounds[1]["received"], report["bytes"]);
}

#[test]
fn the_demonstration_tells_its_story_of_a_given_directory() {
    let home = tempdir().unwrap();
    let dir = home.path().join("mine");
    fs::create_dir_all(dir.join("sub")).unwrap();
    fs::write(dir.join("sub/a b.txt"), "content").unwrap();
    fs::write(dir.join("c"), vec![7; 100_000]).unwrap();
    let keep = home.path().join("kept");
    let output = quicket(home.path()).args(["demo", "mine", "--keep", "kept"]).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let story = text(&output.stdout);
    for words in ["2 files", "0-RTT", "lost", "right SHA-256"] {
        assert!(story.contains(words), "{words}: {story}");
    }
    assert_eq!(fs::read(keep.join("fetched-2/sub/a b.txt")).unwrap(), b"content");
    let logs = fs::read_dir(keep.join("qlog")).unwrap().flatten();
    let logs = logs.filter(|log| log.metadata().unwrap().len() > 0).count();
    assert_eq!(logs, 4, "one for each connection and side");
}
