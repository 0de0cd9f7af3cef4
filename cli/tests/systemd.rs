//! What services tell their manager (sd_notify(3)), and sockets that it hands over (sd_listen_fds(3)).
#![cfg(target_os = "linux")]

mod common;

use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{fs, thread};

use quicket::{ClientConfig, ClientTls, Connection};
use quicket_testing::free_port;
use tempfile::TempDir;

const QUICKET: &str = env!("CARGO_BIN_EXE_quicket");
/// How long anything may take on a machine that is busy.
const LONG: Duration = Duration::from_secs(30);

/// A service manager: the socket on which it is told how services are, and places for them.
struct Manager {
    folder: TempDir,
    socket: UnixDatagram,
}

impl Manager {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let socket = UnixDatagram::bind(folder.path().join("notify")).unwrap();
        socket.set_read_timeout(Some(LONG)).unwrap();
        let root = folder.path().join("root");
        fs::create_dir(&root).unwrap();
        fs::write(root.join("hello"), "hello").unwrap();
        Self { folder, socket }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The next message, which has these lines.
    fn hears(&self, expected: &[&str]) -> String {
        let mut bytes = [0; 4096];
        let len = self.socket.recv(&mut bytes).expect("a message");
        let text = String::from_utf8(bytes[..len].to_vec()).unwrap();
        for line in expected {
            assert!(text.lines().any(|each| each.starts_with(line)), "{line} is not in:\n{text}");
        }
        text
    }

    fn hears_nothing(&self) {
        self.socket.set_nonblocking(true).unwrap();
        let heard = self.socket.recv(&mut [0; 4096]);
        assert!(heard.is_err(), "something more is said");
        self.socket.set_nonblocking(false).unwrap();
    }

    /// The program with all that it keeps in this folder.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env("NOTIFY_SOCKET", self.path("notify"));
        command.env("XDG_DATA_HOME", self.path("data"));
        command.env("QUICKET_SWITCH", self.path("switch"));
        command.current_dir(self.folder.path()).stdin(Stdio::null()).stderr(Stdio::null());
        command
    }

    fn serve(&self, flags: &[&str]) -> Service {
        let mut command = self.command(QUICKET);
        command.args(["serve", "root", "-q"]).args(flags);
        Service(command.spawn().unwrap())
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        // A switch that was started on the way ends with the test.
        let switch = self.path("switch");
        if let Ok(report) = quicket_switch::client::status(switch.to_str().unwrap()) {
            let report: serde_json::Value = serde_json::from_str(&report).unwrap();
            signal("KILL", report["pid"].as_u64().unwrap() as u32);
        }
    }
}

/// A process that ends with the test.
struct Service(Child);

impl Service {
    fn signal(&self, name: &str) {
        signal(name, self.0.id());
    }

    /// Waits for its end; false if it ends with a failure.
    fn ends_well(&mut self) -> bool {
        let begun = Instant::now();
        loop {
            match self.0.try_wait().unwrap() {
                Some(status) => return status.success(),
                None => assert!(begun.elapsed() < LONG, "it does not end"),
            }
            thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn signal(name: &str, pid: u32) {
    assert!(Command::new("kill").args(["-s", name, &pid.to_string()]).status().unwrap().success());
}

fn connect(port: u16) -> Connection {
    let tls = ClientTls::builder().dangerous_no_verification().alpn(["hq-interop"]);
    let config = ClientConfig::new(tls.build().unwrap());
    Connection::connect(("127.0.0.1", port), "localhost", &config).unwrap()
}

fn get(connection: &Connection) -> String {
    use std::io::{Read, Write};
    let mut stream = connection.open_bi().unwrap();
    stream.write_all(b"GET /hello\r\n").unwrap();
    stream.finish().unwrap();
    let mut body = String::new();
    stream.read_to_string(&mut body).unwrap();
    body
}

#[test]
fn a_service_says_when_it_is_ready_reads_files_again_and_stops() {
    let manager = Manager::new();
    let mut service = manager.serve(&["-l", "127.0.0.1:0"]);
    manager.hears(&["READY=1", "STATUS=Serving root on 127.0.0.1:"]);
    service.signal("HUP");
    let text = manager.hears(&["RELOADING=1", "MONOTONIC_USEC=", "STATUS="]);
    let micros = text.lines().find_map(|line| line.strip_prefix("MONOTONIC_USEC=")).unwrap();
    let uptime = fs::read_to_string("/proc/uptime").unwrap();
    let uptime: f64 = uptime.split(' ').next().unwrap().parse().unwrap();
    let micros: f64 = micros.parse().unwrap();
    assert!((uptime - micros / 1e6).abs() < 60.0, "{uptime} s and {micros} us");
    manager.hears(&["READY=1", "STATUS=Serving root"]);
    service.signal("TERM");
    manager.hears(&["STOPPING=1"]);
    assert!(service.ends_well());
    manager.hears_nothing();
}

/// The unit lives as long as its main process, which is the newest generation.
#[test]
fn an_upgrade_hands_the_service_to_the_next_generation() {
    let manager = Manager::new();
    let port = free_port();
    let mut first = manager.serve(&["-l", &format!("127.0.0.1:{port}"), "--switch"]);
    manager.hears(&["READY=1"]);
    let held = connect(port);
    assert_eq!(get(&held), "hello");
    let upgrade = || {
        let mut command = manager.command(QUICKET);
        assert!(command.args(["switch", "upgrade"]).status().unwrap().success());
    };
    upgrade();
    manager.hears(&["RELOADING=1", "MONOTONIC_USEC=", "STATUS=starting the next generation"]);
    let text = manager.hears(&["MAINPID=", "READY=1"]);
    let next = text.lines().find_map(|line| line.strip_prefix("MAINPID=")).unwrap();
    let next: u32 = next.parse().unwrap();
    assert_ne!(next, first.0.id());
    assert_eq!(get(&connect(port)), "hello");
    drop(held);
    assert!(first.ends_well());
    // What is not the service any more does not say that it stops.
    manager.hears_nothing();
    // One that does not come up: all stays.
    fs::rename(manager.path("root"), manager.path("away")).unwrap();
    upgrade();
    manager.hears(&["RELOADING=1"]);
    let text = manager.hears(&["READY=1", "STATUS=The next generation did not come up"]);
    assert!(!text.contains("MAINPID"), "{text}");
    fs::rename(manager.path("away"), manager.path("root")).unwrap();
    assert_eq!(get(&connect(port)), "hello");
    signal("TERM", next);
    manager.hears(&["STOPPING=1"]);
}

/// It waits for something, and somebody asks again.
#[test]
fn one_next_generation_comes_up_at_a_time() {
    let manager = Manager::new();
    let port = free_port();
    let _first = manager.serve(&["-l", &format!("127.0.0.1:{port}"), "--switch"]);
    manager.hears(&["READY=1"]);
    let upgrade = || {
        let mut command = manager.command(QUICKET);
        assert!(command.args(["switch", "upgrade"]).status().unwrap().success());
    };
    // The next one comes no further than this file, which nobody writes.
    let key = manager.path("data/quicket/reset-key");
    fs::remove_file(&key).unwrap();
    assert!(Command::new("mkfifo").arg(&key).status().unwrap().success());
    upgrade();
    manager.hears(&["RELOADING=1"]);
    upgrade();
    let text = manager.hears(&["STATUS=No next generation was started: process "]);
    assert!(!text.contains("READY=1"), "it still reloads: {text}");
    let next = text.split("process ").nth(1).and_then(|rest| rest.split(' ').next());
    signal("KILL", next.unwrap().parse().unwrap());
    let text = manager.hears(&["READY=1", "STATUS=The next generation did not come up"]);
    assert!(!text.contains("MAINPID"), "{text}");
    assert_eq!(get(&connect(port)), "hello");
}

/// Whether the tool is there that hands over sockets; says so if not.
fn can_activate() -> bool {
    let found = Path::new("/usr/bin/systemd-socket-activate").exists();
    if !found {
        assert!(std::env::var_os("CI").is_none(), "systemd-socket-activate is missing");
        quicket_testing::tell_left_out("systemd-socket-activate is missing (package systemd)");
    }
    found
}

#[test]
fn a_server_takes_the_socket_that_is_handed_over_and_its_next_generation_has_it_too() {
    if !can_activate() {
        return;
    }
    let manager = Manager::new();
    let port = free_port();
    let activated = |flags: &[&str]| {
        let mut command = manager.command("/usr/bin/systemd-socket-activate");
        let variables = ["NOTIFY_SOCKET", "XDG_DATA_HOME", "QUICKET_SWITCH"];
        command.args(["-d", "-l", &format!("127.0.0.1:{port}")]);
        command.args(variables.map(|name| format!("-E{name}")));
        command.args([QUICKET, "serve", "root", "-q"]).args(flags);
        Service(command.spawn().unwrap())
    };
    let mut alone = activated(&[]);
    // It is started by the first datagram, and answers it.
    assert_eq!(get(&retried(port)), "hello");
    manager.hears(&["READY=1", &format!("STATUS=Serving root on 127.0.0.1:{port}")]);
    alone.signal("TERM");
    manager.hears(&["STOPPING=1"]);
    assert!(alone.ends_well());
    let mut first = activated(&["--switch"]);
    assert_eq!(get(&retried(port)), "hello");
    manager.hears(&["READY=1"]);
    let mut upgrade = manager.command(QUICKET);
    assert!(upgrade.args(["switch", "upgrade"]).status().unwrap().success());
    manager.hears(&["RELOADING=1"]);
    let text = manager.hears(&["MAINPID="]);
    let next = text.lines().find_map(|line| line.strip_prefix("MAINPID=")).unwrap();
    assert!(first.ends_well());
    assert_eq!(get(&connect(port)), "hello");
    signal("TERM", next.parse().unwrap());
    manager.hears(&["STOPPING=1"]);
}

/// Connects once somebody listens: an attempt that meets a closed port ends at once.
fn retried(port: u16) -> Connection {
    let tls = ClientTls::builder().dangerous_no_verification().alpn(["hq-interop"]);
    let config = ClientConfig::new(tls.build().unwrap());
    let begun = Instant::now();
    loop {
        match Connection::connect(("127.0.0.1", port), "localhost", &config) {
            Ok(connection) => return connection,
            Err(error) => assert!(begun.elapsed() < LONG, "{error}"),
        }
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_switch_takes_the_socket_that_is_handed_over() {
    if !can_activate() {
        return;
    }
    let manager = Manager::new();
    let path = manager.path("switch");
    let mut command = manager.command("/usr/bin/systemd-socket-activate");
    command.args(["--seqpacket", "-l"]).arg(&path).args(["-ENOTIFY_SOCKET", QUICKET]);
    let mut switch = Service(command.args(["switch", "--stay"]).spawn().unwrap());
    let begun = Instant::now();
    while !path.exists() {
        assert!(begun.elapsed() < LONG);
        thread::sleep(Duration::from_millis(5));
    }
    let status = || quicket_switch::client::status(path.to_str().unwrap());
    let report = loop {
        match status() {
            Ok(report) => break report,
            Err(error) => assert!(begun.elapsed() < LONG, "{error}"),
        }
    };
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    assert_eq!(report["pid"].as_u64(), Some(switch.0.id().into()));
    manager.hears(&["READY=1", "STATUS="]);
    let port = free_port();
    let _server = manager.serve(&["-l", &format!("127.0.0.1:{port}"), "--switch"]);
    manager.hears(&["READY=1"]);
    assert_eq!(get(&connect(port)), "hello");
    switch.signal("TERM");
    manager.hears(&["STOPPING=1"]);
    assert!(switch.ends_well());
}
