//! Generations of `quicket gateway` behind the switch: upgrades under load, files that do not come up, and sockets that a
//! service manager hands over.
#![cfg(target_os = "linux")]

mod common;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::{content, get, openssl, quicket};
use quicket_testing::{Process, free_port, nginx, until};
use serde_json::Value;
use tempfile::TempDir;

/// How long anything here may take to come about.
const PATIENCE: Duration = Duration::from_secs(30);
/// The size of what is fetched, in bytes.
const SIZE: usize = 300_000;

/// Says in upper case what comes.
const PYTHON: &str = "
import socket, threading
def serve(s):
    while data := s.recv(65536):
        s.sendall(data.upper())
    s.close()
listener = socket.create_server(('127.0.0.1', 0))
print(listener.getsockname()[1], flush=True)
while True:
    threading.Thread(target=serve, args=[listener.accept()[0]], daemon=True).start()
";

/// nginx, a server of a private protocol, and a switch's name. All ends with the test.
struct Site {
    port: u16,
    plain: u16,
    upper: u16,
    _origins: [Process; 2],
    dir: TempDir,
}

impl Site {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path();
        // nginx's workers are other users where root runs the test.
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        fs::create_dir(path.join("root")).unwrap();
        fs::write(path.join("root/file"), content(SIZE)).unwrap();
        openssl(path, "cert", "DNS:localhost,IP:127.0.0.1");
        nginx::configure(path, "server { listen unix:nginx.sock; root root; }");
        let nginx = nginx::start(path);
        until("nginx", || UnixStream::connect(path.join("nginx.sock")).is_ok());
        let mut python = Command::new("python3");
        let mut python = python.args(["-c", PYTHON]).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(python.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let upper = line.trim().parse().unwrap();
        let origins = [nginx, Process(python)];
        let site = Self { port: free_port(), plain: free_port(), upper, _origins: origins, dir };
        site.write("");
        site
    }

    /// The file, with something more in it.
    fn write(&self, more: &str) {
        let file = format!(
            "listen = [\"127.0.0.1:{}\"]\nredirect = [\"127.0.0.1:{}\"]\naccess_log = \"access.log\"\n\
             [[certificate]]\nchain = \"cert.pem\"\nkey = \"cert.key\"\n\
             [origin.files]\nservers = [\"unix:{}\"]\n\
             [[site]]\nnames = [\"localhost\", \"127.0.0.1\"]\n[[site.route]]\norigin = \"files\"\n\
             [[protocol]]\nalpn = [\"upper\"]\nstreams = \"tcp://127.0.0.1:{}\"\n\
             [metrics]\nlisten = \"unix:{}\"\n{more}",
            self.port,
            self.plain,
            self.path("nginx.sock").display(),
            self.upper,
            self.path("metrics.sock").display(),
        );
        fs::write(self.path("site.toml"), file).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn switch(&self) -> String {
        self.path("switch").to_str().unwrap().to_owned()
    }

    fn log(&self) -> String {
        fs::read_to_string(self.path("gateway.log")).unwrap_or_default()
    }

    fn url(&self) -> String {
        format!("https://localhost:{}/file", self.port)
    }

    fn quicket(&self, arguments: &[&str]) -> Command {
        let mut command = quicket(self.dir.path());
        // For what the gateway itself starts.
        command.env("PATH", std::env::var_os("PATH").unwrap());
        command.env("QUICKET_SWITCH", self.switch()).args(arguments);
        command
    }

    /// The first generation. All write to one log.
    fn start(&self) -> Process {
        let mut command = self.quicket(&["gateway", "site.toml", "--switch", "--workers", "2"]);
        let gateway = Process(command.stderr(self.open_log()).spawn().unwrap());
        until("the gateway", || self.log().contains("Gateway on"));
        gateway
    }

    fn open_log(&self) -> fs::File {
        fs::File::options().append(true).create(true).open(self.path("gateway.log")).unwrap()
    }

    /// The process and the number of the generation that new clients get, if there is one.
    fn serving(&self) -> Option<(u64, u64)> {
        let report = quicket_switch::client::status(&self.switch()).ok()?;
        let report: Value = serde_json::from_str(&report).unwrap();
        let programs = report["addresses"][0]["programs"].as_array()?;
        let serving = programs.iter().find(|program| program["state"] == "serving")?;
        Some((serving["pid"].as_u64()?, programs.len() as u64))
    }

    /// Has the next generation started, and waits until it serves.
    fn upgrade(&self) {
        let before = self.serving().unwrap().0;
        assert!(self.quicket(&["switch", "upgrade"]).status().unwrap().success());
        until("the next generation", || self.serving().is_some_and(|(pid, _)| pid != before));
    }

    /// The same where it serves at so many addresses.
    fn upgrade_all(&self, addresses: usize) {
        let before = self.serving_all();
        assert!(self.quicket(&["switch", "upgrade"]).status().unwrap().success());
        until("the next generation at all addresses", || {
            let now = self.serving_all();
            now.iter().filter(|pid| !before.contains(pid)).count() == addresses
        });
    }

    /// The processes that new clients get, one for each address.
    fn serving_all(&self) -> Vec<u64> {
        let report = quicket_switch::client::status(&self.switch()).unwrap();
        let report: Value = serde_json::from_str(&report).unwrap();
        let programs = report["addresses"].as_array().unwrap().iter();
        let programs = programs.flat_map(|address| address["programs"].as_array().unwrap());
        let serving = programs.filter(|program| program["state"] == "serving");
        serving.map(|program| program["pid"].as_u64().unwrap()).collect()
    }

    fn curl(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new("curl");
        command.args(["-sS", "--cacert", "cert.pem", "--max-time", "30"]).args(arguments);
        command.current_dir(self.dir.path()).output().unwrap()
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let Ok(report) = quicket_switch::client::status(&self.switch()) else { return };
        let report: Value = serde_json::from_str(&report).unwrap();
        let mut processes = vec![report["pid"].as_u64().unwrap()];
        let programs = report["addresses"].as_array().into_iter().flatten();
        for program in programs.flat_map(|address| address["programs"].as_array().unwrap()) {
            processes.push(program["pid"].as_u64().unwrap());
        }
        for process in processes {
            let _ = Command::new("kill").args(["-9", &process.to_string()]).status();
        }
    }
}

/// `quicket connect`, whose one stream stays open.
struct Conversation(Process);

impl Conversation {
    fn new(site: &Site) -> Self {
        Self::at(site, site.port)
    }

    fn at(site: &Site, port: u16) -> Self {
        let server = format!("localhost:{port}");
        let mut command =
            site.quicket(&["connect", &server, "--alpn", "upper", "--ca", "cert.pem"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(site.open_log());
        Self(Process(command.spawn().unwrap()))
    }

    /// Says all, and hears that the other side has, too.
    fn end(self) {
        let Self(mut process) = self;
        drop(process.0.stdin.take());
        assert!(process.0.wait().unwrap().success());
    }

    fn goes_on(&mut self, word: &str) {
        let child = &mut self.0.0;
        child.stdin.as_mut().unwrap().write_all(word.as_bytes()).unwrap();
        let mut said = vec![0; word.len()];
        child.stdout.as_mut().unwrap().read_exact(&mut said).unwrap();
        assert_eq!(String::from_utf8(said).unwrap(), word.to_uppercase());
    }
}

#[test]
fn generations_follow_each_other_under_load_and_nothing_is_lost() {
    let site = Site::new();
    let _first = site.start();
    let mut conversation = Conversation::new(&site);
    conversation.goes_on("hello");
    let (stop, fetched) = (AtomicBool::new(false), [const { AtomicUsize::new(0) }; 3]);
    thread::scope(|scope| {
        let load = |at: usize, fetch: &'static (dyn Fn(&Site) -> Vec<u8> + Sync)| {
            let (site, stop, fetched) = (&site, &stop, &fetched[at]);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    assert!(fetch(site) == content(SIZE), "{}", site.log());
                    fetched.fetch_add(1, Ordering::Relaxed);
                }
            });
        };
        load(0, &|site| site.curl(&["--http1.1", &site.url()]).stdout);
        load(1, &|site| site.curl(&["--http2", &site.url()]).stdout);
        load(2, &|site| {
            let url = site.url();
            get(site.dir.path(), &["--ca", "cert.pem", "--http3-only", "-o", "-", &url]).stdout
        });
        let counts = || fetched.each_ref().map(|count| count.load(Ordering::Relaxed));
        for round in 1..=3 {
            let before = counts();
            until("requests", || (0..3).all(|at| counts()[at] > before[at] + 1));
            site.upgrade();
            conversation.goes_on(&format!("round {round}"));
            let plain = format!("http://127.0.0.1:{}/", site.plain);
            let redirect = site.curl(&["-o", "/dev/null", "-w", "%{http_code}", &plain]);
            assert_eq!(redirect.stdout, b"308");
            let counters = site.curl(&["--unix-socket", "metrics.sock", "http://any/metrics"]);
            assert!(String::from_utf8_lossy(&counters.stdout).contains("requests_total"));
        }
        let before = counts();
        until("requests", || (0..3).all(|at| counts()[at] > before[at] + 1));
        stop.store(true, Ordering::Relaxed);
    });
    // The first one has the conversation still; the others had nothing to wait for.
    until("only two generations", || site.serving().is_some_and(|(_, count)| count == 2));
    conversation.goes_on("to the end");
    assert_eq!(site.log().matches("has taken over").count(), 3, "{}", site.log());
    conversation.end();
    until("one generation", || site.serving().is_some_and(|(_, count)| count == 1));
    assert!(site.path("metrics.sock").exists(), "the last one has it still");
}

/// Each of them is an address at the switch.
#[test]
fn generations_follow_each_other_at_several_addresses() {
    let site = Site::new();
    let other = free_port();
    let one = fs::read_to_string(site.path("site.toml")).unwrap();
    let first = format!("\"127.0.0.1:{}\"", site.port);
    let both = one.replacen(&first, &format!("{first}, \"127.0.0.1:{other}\""), 1);
    fs::write(site.path("site.toml"), &both).unwrap();
    let _first = site.start();
    let mut conversation = Conversation::at(&site, other);
    conversation.goes_on("hello");
    let fetch = |port: u16| {
        let url = format!("https://localhost:{port}/file");
        let three = get(site.dir.path(), &["--ca", "cert.pem", "--http3-only", "-o", "-", &url]);
        let two = site.curl(&["--http2", &url]);
        assert!(three.stdout == content(SIZE), "{port}: {} {}", three.stderr, site.log());
        assert!(two.stdout == content(SIZE), "{port}: {two:?} {}", site.log());
    };
    let (stop, fetched) = (AtomicBool::new(false), [const { AtomicUsize::new(0) }; 2]);
    thread::scope(|scope| {
        for (port, fetched) in [site.port, other].into_iter().zip(&fetched) {
            let (stop, fetch) = (&stop, &fetch);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    fetch(port);
                    fetched.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let counts = || fetched.each_ref().map(|count| count.load(Ordering::Relaxed));
        for round in 1..=2 {
            let before = counts();
            until("requests", || (0..2).all(|at| counts()[at] > before[at] + 1));
            site.upgrade_all(2);
            conversation.goes_on(&format!("round {round}"));
        }
        let before = counts();
        until("requests", || (0..2).all(|at| counts()[at] > before[at] + 1));
        stop.store(true, Ordering::Relaxed);
    });
    let told = || site.log().matches("has taken over").count();
    until("the word of it", || told() == 2);
    // The next one has only one of them: connections of the other go on.
    fs::write(site.path("site.toml"), &one).unwrap();
    site.upgrade_all(1);
    until("the end of the other", || TcpStream::connect(("127.0.0.1", other)).is_err());
    fetch(site.port);
    conversation.goes_on("to the end");
    // It is told once for each generation, whatever it has.
    until("the last word", || told() == 3);
    conversation.end();
}

#[test]
fn a_generation_that_does_not_come_up_changes_nothing() {
    let site = Site::new();
    let first = site.start();
    for (more, said) in [("nonsense = 1\n", "nonsense"), ("[limits]\nrequests = 0\n", "requests")] {
        site.write(more);
        assert!(site.quicket(&["switch", "upgrade"]).status().unwrap().success());
        until("the reason", || {
            let log = site.log();
            log.contains(said) && log.matches("did not come up").count() > 0
        });
        assert_eq!(site.serving().unwrap(), (first.0.id().into(), 1));
        assert_eq!(site.curl(&[&site.url()]).stdout.len(), SIZE);
        fs::write(site.path("gateway.log"), "").unwrap();
    }
    // What a reload cannot change, a generation can.
    let elsewhere = free_port();
    site.write("[limits]\nrequests = 7\n");
    let file = fs::read_to_string(site.path("site.toml")).unwrap();
    let file =
        file.replace(&format!("127.0.0.1:{}", site.plain), &format!("127.0.0.1:{elsewhere}"));
    fs::write(site.path("site.toml"), file).unwrap();
    let id = first.0.id().to_string();
    assert!(Command::new("kill").args(["-HUP", &id]).status().unwrap().success());
    until("the reason", || site.log().contains("quicket switch upgrade"));
    // The socket of the address that is no more is one that nobody wants.
    assert!(site.quicket(&["switch", "upgrade"]).status().unwrap().success());
    until("the next generation", || {
        site.serving().is_some_and(|(pid, _)| pid != u64::from(first.0.id()))
    });
    assert!(TcpStream::connect(("127.0.0.1", elsewhere)).is_ok());
    until("the end of the first one", || TcpStream::connect(("127.0.0.1", site.plain)).is_err());
}

/// As systemd does it: socket units for UDP and TCP, and a service that tells how it is.
#[test]
fn sockets_of_a_service_manager_are_used_and_an_upgrade_is_told_to_it() {
    let site = Site::new();
    let manager = UnixDatagram::bind(site.path("notify")).unwrap();
    manager.set_read_timeout(Some(PATIENCE)).unwrap();
    let hears = |wanted: &str| {
        let begun = Instant::now();
        loop {
            assert!(begun.elapsed() < PATIENCE, "{wanted} is not said");
            let mut message = [0; 4096];
            let len = manager.recv(&mut message).expect("a message");
            let text = String::from_utf8_lossy(&message[..len]).into_owned();
            if let Some(line) = text.lines().find(|line| line.starts_with(wanted)) {
                return line.to_owned();
            }
        }
    };
    let gateway = handed(&site, &["udp", "tcp"], site.port, &["--switch"]);
    hears("READY=1");
    assert_eq!(site.curl(&["--http2", &site.url()]).stdout.len(), SIZE);
    let url = site.url();
    let three = get(site.dir.path(), &["--ca", "cert.pem", "--http3-only", "-o", "-", &url]);
    assert_eq!(three.stdout.len(), SIZE, "{}", three.stderr);
    site.upgrade();
    let line = hears("MAINPID=");
    assert_eq!(line, format!("MAINPID={}", site.serving().unwrap().0));
    assert_eq!(site.curl(&["--http2", &site.url()]).stdout.len(), SIZE);
    drop(gateway);
    // One of an address that is not in the file.
    let (other, elsewhere) = (Site::new(), free_port());
    assert!(!handed(&other, &["tcp"], elsewhere, &[]).0.wait().unwrap().success());
    let said = format!("127.0.0.1:{elsewhere} (TCP) was handed over");
    assert!(other.log().contains(&said), "{}", other.log());
}

/// The gateway with sockets of these kinds at this port, from descriptor 3 on. What binds them is Python, as
/// systemd-socket-activate knows one kind at a time.
fn handed(site: &Site, kinds: &[&str], port: u16, flags: &[&str]) -> Process {
    const START: &str = "
import os, socket, sys
kinds = sys.argv[1].split(',')
given = []
for kind in kinds:
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM if kind == 'udp' else socket.SOCK_STREAM)
    made.bind(('127.0.0.1', int(sys.argv[2])))
    if kind == 'tcp': made.listen(64)
    given.append(os.dup2(made.detach(), 100 + len(given)))
for at, descriptor in enumerate(given): os.dup2(descriptor, 3 + at)
os.closerange(100, 110)
os.environ['LISTEN_PID'] = str(os.getpid())
os.environ['LISTEN_FDS'] = str(len(given))
os.execv(sys.argv[3], sys.argv[3:])
";
    let mut command = Command::new("python3");
    command.args(["-c", START, &kinds.join(","), &port.to_string()]);
    command.args([env!("CARGO_BIN_EXE_quicket"), "gateway", "site.toml"]).args(flags);
    command.current_dir(site.dir.path()).env("HOME", site.dir.path());
    command.env("QUICKET_SWITCH", site.switch()).env("NOTIFY_SOCKET", site.path("notify"));
    command.stdin(Stdio::null()).stderr(site.open_log());
    Process(command.spawn().unwrap())
}
