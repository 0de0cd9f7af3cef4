//! `quicket keyd` beside `quicket gateway`: processes that are started, killed and told to read again.

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use common::{content, get, openssl, quicket};
use quicket_testing::{Process, free_port, signal, until};
use serde_json::Value;
use tempfile::TempDir;

/// A folder with `cert.pem`, whose key is in the folder `keys`, and a file to fetch.
fn folder() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::create_dir(dir.path().join("keys")).unwrap();
    fs::create_dir(dir.path().join("www")).unwrap();
    fs::write(dir.path().join("www/file"), content(10_000)).unwrap();
    openssl(dir.path(), "cert", "DNS:localhost,IP:127.0.0.1");
    let key = dir.path().join("keys/cert.key");
    fs::rename(dir.path().join("cert.key"), &key).unwrap();
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    dir
}

/// A program, once it has said so; its standard error is in `NAME.log`.
fn start(dir: &Path, name: &str, arguments: &[&str], ready: &str) -> Process {
    let log = dir.join(format!("{name}.log"));
    let mut command = quicket(dir);
    command.arg(name).args(arguments).current_dir(dir);
    let errors = fs::OpenOptions::new().create(true).append(true).open(&log).unwrap();
    let before = errors.metadata().unwrap().len() as usize;
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(errors).spawn();
    let mut process = Process(child.unwrap());
    let said = || fs::read_to_string(&log).unwrap()[before..].to_owned();
    until(ready, || {
        assert!(!process.has_ended(), "{}", said());
        said().contains(ready)
    });
    process
}

fn keyd(dir: &Path, more: &[&str]) -> Process {
    let place = format!("unix:{}", dir.join("keyd.sock").display());
    start(dir, "keyd", &[&["-l", &place, "-k", "keys"], more].concat(), "Keys at")
}

fn ended(process: &mut Process) {
    until("its end", || process.has_ended());
}

fn status(dir: &Path, process: &Process) -> Value {
    let output = quicket(dir).args(["keyd", "status", "-j"]).output().unwrap();
    let all: Value = serde_json::from_slice(&output.stdout).unwrap();
    let own = all.as_array().unwrap().iter().find(|it| it["pid"] == process.id());
    own.unwrap_or_else(|| panic!("{all}")).clone()
}

#[test]
fn a_gateway_serves_with_a_key_that_it_does_not_have() {
    let dir = folder();
    let dir = dir.path();
    let port = free_port();
    let site = format!(
        "listen = [\"127.0.0.1:{port}\"]\n[[certificate]]\nchain = \"cert.pem\"\n\
         key = {{ keyd = \"unix:{}\" }}\n\
         [[site]]\nnames = [\"*\"]\n[[site.route]]\nfiles = \"www\"\n",
        dir.join("keyd.sock").display()
    );
    fs::write(dir.join("site.toml"), site).unwrap();
    // A session that is kept would be resumed, without a signature.
    let fetch = || {
        let url = format!("https://localhost:{port}/file");
        let _ = fs::remove_file(dir.join("got"));
        let home = tempfile::tempdir().unwrap();
        get(home.path(), &["--ca", &path(dir, "cert.pem"), "-o", &path(dir, "got"), &url])
    };
    // The gateway starts first: that is no reason not to.
    let _gateway = start(dir, "gateway", &["site.toml"], "Gateway on");
    let log = || fs::read_to_string(dir.join("gateway.log")).unwrap();
    assert!(log().contains("Warning: unix:") && log().contains("key process is away"), "{}", log());
    let mut outcome = fetch();
    assert_ne!(outcome.code, Some(0));
    for _ in 0..2 {
        let mut process = keyd(dir, &[]);
        until("a signature", || {
            outcome = fetch();
            outcome.code == Some(0)
        });
        assert_eq!(fs::read(dir.join("got")).unwrap(), content(10_000));
        let told = status(dir, &process);
        assert!(told["counters"]["signatures"].as_u64().unwrap() >= 1, "{told}");
        assert_eq!(told["keys"][0]["type"], "RSA", "{told}");
        signal(process.id(), "-KILL");
        ended(&mut process);
        assert_ne!(fetch().code, Some(0));
    }
    assert!(log().contains("the key process answers again"), "{}", log());
    assert!(log().contains("a handshake has no signature"), "{}", log());
}

fn path(dir: &Path, name: &str) -> String {
    dir.join(name).display().to_string()
}

#[test]
fn keys_are_read_again_and_a_wrong_one_leaves_all_as_it_was() {
    let dir = folder();
    let dir = dir.path();
    let check = || {
        let mut command = quicket(dir);
        command.args(["keyd", "-l", "unix:/nowhere", "-k", "keys", "--check"]).current_dir(dir);
        let output = command.output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(said).unwrap())
    };
    let (code, said) = check();
    assert!(
        code == Some(0) && said.contains("sha256:") && said.contains("keys/cert.key"),
        "{said}"
    );
    let mut process = keyd(dir, &[]);
    openssl(dir, "more", "DNS:more.example");
    let more = dir.join("keys/more.key");
    fs::rename(dir.join("more.key"), &more).unwrap();
    fs::set_permissions(&more, fs::Permissions::from_mode(0o644)).unwrap();
    signal(process.id(), "-HUP");
    until("a refusal", || status(dir, &process)["not_read_again"].is_string());
    assert_eq!(status(dir, &process)["keys"].as_array().unwrap().len(), 1);
    let (code, said) = check();
    assert!(code == Some(2) && said.contains("chmod 640"), "{said}");
    fs::set_permissions(&more, fs::Permissions::from_mode(0o640)).unwrap();
    signal(process.id(), "-HUP");
    until("two keys", || status(dir, &process)["keys"].as_array().unwrap().len() == 2);
    assert!(status(dir, &process)["not_read_again"].is_null());
    let shown = quicket(dir).args(["keyd", "status", "--prometheus"]).output().unwrap();
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(shown.contains("# TYPE quicket_keyd_signatures_total counter"), "{shown}");
    let shown = quicket(dir).args(["keyd", "status"]).output().unwrap();
    assert!(String::from_utf8(shown.stdout).unwrap().contains("more.key"));
    signal(process.id(), "-TERM");
    ended(&mut process);
    assert!(!dir.join("keyd.sock").exists(), "it takes its socket with it");
    // One that was killed leaves it, and the next one takes its place; two at once there are not.
    fs::remove_file(&more).unwrap();
    let mut killed = keyd(dir, &[]);
    signal(killed.id(), "-KILL");
    ended(&mut killed);
    let _next = keyd(dir, &[]);
    let place = format!("unix:{}", path(dir, "keyd.sock"));
    let mut command = quicket(dir);
    let output = command.args(["keyd", "-l", &place, "-k", "keys"]).current_dir(dir).output();
    assert_eq!(output.unwrap().status.code(), Some(6));
}

/// A pipe for a key: whoever reads it waits until the other end is closed, as for a token that hangs.
#[test]
fn a_key_that_is_not_read_to_its_end_stops_neither_answers_nor_the_end() {
    use std::os::unix::fs::OpenOptionsExt;
    /// As the system has it.
    const O_NONBLOCK: i32 = 0o4000;
    let dir = folder();
    let dir = dir.path();
    let mut process = keyd(dir, &[]);
    let pipe = dir.join("keys/slow.key");
    let made = Command::new("mkfifo").args(["-m", "600"]).arg(&pipe).status().unwrap();
    assert!(made.success());
    signal(process.id(), "-HUP");
    let mut writer = None;
    until("somebody who reads", || {
        let mut options = fs::OpenOptions::new();
        writer = options.write(true).custom_flags(O_NONBLOCK).open(&pipe).ok();
        writer.is_some()
    });
    assert_eq!(status(dir, &process)["keys"].as_array().unwrap().len(), 1);
    signal(process.id(), "-TERM");
    ended(&mut process);
    assert!(!dir.join("keyd.sock").exists(), "it went as it should");
    drop(writer);
}

#[test]
fn what_has_no_effect_or_gives_the_own_key_away_is_refused() {
    let dir = folder();
    let dir = dir.path();
    openssl(dir, "keyd", "DNS:localhost");
    fs::set_permissions(dir.join("keyd.key"), fs::Permissions::from_mode(0o600)).unwrap();
    let refused = |arguments: &str, why: &str| {
        let mut command = quicket(dir);
        command.args(["keyd", "--check"]).args(arguments.split(' ')).current_dir(dir);
        let output = command.output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(2) && said.contains(why), "{arguments}: {said}");
    };
    let (unix, tcp) = ("-l unix:/nowhere -k keys", "-l tcp:127.0.0.1:7443 -k keys");
    let own = |name: &str| format!("--cert {name}.pem --cert-key {name}.key --client-ca keyd.pem");
    refused(&format!("{unix} {}", own("keyd")), "are for TCP");
    refused(tcp, "needs --cert");
    for flag in ["--user 1", "--group 1", "--mode 600"] {
        refused(&format!("{tcp} {} {flag}", own("keyd")), "are for Unix sockets");
    }
    refused(&format!("{tcp} -k keyd.key {}", own("keyd")), "keyd.key is the key of --cert, too");
}

/// It takes root to be somebody else.
#[test]
fn users_who_are_not_named_are_refused() {
    if !rustix_is_root() {
        quicket_testing::leave_out("it takes root to ask as another user");
        return;
    }
    let dir = folder();
    let dir = dir.path();
    let process = keyd(dir, &["--user", "65533"]);
    let ask = |user: u32| {
        // A question that any key process answers: for a key that there is not.
        let program = "
import socket, sys
keyd = socket.socket(socket.AF_UNIX)
keyd.settimeout(20)
keyd.connect(sys.argv[1])
try:
    keyd.sendall(bytes([0, 38, 1, 2, 0, 0, 0, 9]) + bytes(32))
    print(keyd.recv(100).hex())
except OSError:
    print()
";
        let mut command = Command::new("/usr/bin/python3");
        command.args(["-c", program]).arg(PathBuf::from(dir).join("keyd.sock"));
        let output = command.uid(user).gid(user).current_dir("/").output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    assert!(ask(65_533)[4..].starts_with("01ff0000000903"), "no such key");
    assert_eq!(ask(65_534), "");
    assert_eq!(status(dir, &process)["counters"]["connections_not_allowed"], 1);
}

fn rustix_is_root() -> bool {
    fs::read_to_string("/proc/self/status")
        .is_ok_and(|status| status.lines().any(|line| line.starts_with("Uid:\t0\t")))
}
