//! `quicket serve` over TCP: curl fetches over HTTP/1.1 and HTTP/2 what others fetch over HTTP/3.
#![cfg(target_os = "linux")]

mod common;

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use common::{Server, content, get, openssl, quicket};
use quicket_testing::{LONG, Process, free_port, signal, until};
use serde_json::Value;
use tempfile::TempDir;

const CERT: [&str; 4] = ["--cert", "cert.pem", "--key", "cert.key"];
const NAMES: &str = "DNS:localhost,IP:127.0.0.1";
const VERSIONS: [(&str, &str); 2] = [("--http1.1", "http/1.1"), ("--http2", "h2")];

/// A directory with files, and a certificate.
fn site() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir_all(dir.path().join("root")).unwrap();
    fs::write(dir.path().join("root/hello.txt"), "hello, world\n").unwrap();
    fs::write(dir.path().join("root/large"), content(8_000_000)).unwrap();
    openssl(dir.path(), "cert", NAMES);
    dir
}

fn start(flags: &[&str]) -> Server {
    Server::start_in(site(), &[&CERT[..], flags].concat())
}

/// curl in a directory, where it trusts `cert.pem`.
fn curl(dir: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new("curl");
    command.args(["-sS", "--cacert", "cert.pem", "--max-time", "30"]).args(arguments);
    command.current_dir(dir).output().expect("curl is installed")
}

/// The head and the body that curl gets.
fn fetched(server: &Server, arguments: &[&str], path: &str) -> (String, String) {
    let url = server.url(path);
    let output = curl(server.dir.path(), &[&["-i"], arguments, &[&url]].concat());
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8(output.stdout).unwrap().to_lowercase();
    let (head, body) = said.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), body.to_owned())
}

fn port(address: &str) -> u16 {
    address.rsplit_once(':').unwrap().1.parse().unwrap()
}

#[test]
fn curl_gets_the_same_files_over_both_versions_and_hears_of_http3() {
    let mut server = start(&[]);
    for (flag, alpn) in VERSIONS {
        let status = if alpn == "h2" { "http/2 200" } else { "http/1.1 200" };
        let (head, body) = fetched(&server, &[flag], "/hello.txt");
        assert!(head.starts_with(status) && body == "hello, world\n", "{head}");
        assert!(head.contains("content-type: text/plain; charset=utf-8"), "{head}");
        // Who goes where Alt-Svc leads finds HTTP/3.
        let alternative = head.split("alt-svc: h3=\":").nth(1).unwrap().split('"').next().unwrap();
        let url = format!("https://127.0.0.1:{alternative}/hello.txt");
        let three = get(server.dir.path(), &["--ca", "cert.pem", "--http3-only", "-o", "-", &url]);
        assert_eq!(three.assert_code(0).stdout, b"hello, world\n");

        let (head, body) = fetched(&server, &[flag, "--head"], "/hello.txt");
        assert!(head.contains("content-length: 13") && body.is_empty(), "{head}{body}");
        let (head, body) = fetched(&server, &[flag, "-r", "7-11"], "/hello.txt");
        assert!(head.contains("206") && head.contains("content-range: bytes 7-11/13"), "{head}");
        assert_eq!(body, "world");
        assert!(fetched(&server, &[flag, "-r", "13-"], "/hello.txt").0.contains(" 416"));
        assert!(fetched(&server, &[flag], "/absent").0.contains(" 404"));
        let (head, _) = fetched(&server, &[flag, "-d", "x"], "/hello.txt");
        assert!(head.contains(" 405") && head.contains("allow: get, head"), "{head}");
        let (head, body) = fetched(&server, &[flag], "/");
        assert!(head.contains("text/html") && body.contains("hello.txt"), "{head}{body}");
        let large = curl(server.dir.path(), &[flag, &server.url("/large")]);
        assert!(large.stdout == content(8_000_000), "{} bytes", large.stdout.len());
        // What several transfers at a time have in common.
        let url = server.url("/large");
        let all = curl(server.dir.path(), &[flag, "-Z", &url, &url, &url, &url]);
        assert_eq!(all.stdout.len(), 4 * 8_000_000);
        loop {
            let event = server.event("connected");
            if event["alpn"] == alpn {
                break;
            }
        }
        assert!(server.event("closed")["requests"].as_u64().unwrap() >= 1);
    }
    let (status, log, _dir) = server.interrupt();
    assert!(status.success(), "{log}");
    for words in ["h2 GET /hello.txt 200 13", "http/1.1 GET /hello.txt 200 13", "h2 HEAD /hello"] {
        assert!(log.contains(words), "{words} is not in {log}");
    }
    let is_cut =
        |line: &&str| line.contains(" GET /large 200 8.0 MB") && line.contains("incomplete");
    assert_eq!(log.lines().find(is_cut), None, "{log}");
}

/// What the server says to this over HTTP/1.
fn by_openssl(server: &Server, request: &str) -> String {
    let mut openssl = Command::new("openssl");
    openssl.args(["s_client", "-quiet", "-ign_eof", "-connect", &server.address]);
    openssl.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = openssl.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(request.as_bytes()).unwrap();
    let mut said = String::new();
    child.stdout.take().unwrap().read_to_string(&mut said).unwrap();
    drop(input);
    child.wait().unwrap();
    said
}

#[test]
fn what_is_no_request_is_refused_and_what_the_client_stops_is_told() {
    let server = start(&[]);
    // Without Host (RFC 9112, Section 3.2), which HTTP/1.0 does not know.
    let said = by_openssl(&server, "GET /hello.txt HTTP/1.1\r\nConnection: close\r\n\r\n");
    assert!(said.starts_with("HTTP/1.1 400") && said.contains("no Host"), "{said}");
    let said = by_openssl(&server, "HEAD /hello.txt HTTP/1.1\r\nConnection: close\r\n\r\n");
    assert!(said.starts_with("HTTP/1.1 400") && said.ends_with("\r\n\r\n"), "{said}");
    let said = by_openssl(&server, "GET /hello.txt HTTP/1.0\r\n\r\n");
    assert!(said.contains(" 200 ") && said.ends_with("hello, world\n"), "{said}");
    for (flag, alpn) in VERSIONS {
        let url = server.url("/large");
        let output = curl(server.dir.path(), &[flag, "--max-filesize", "1000", &url]);
        assert!(!output.status.success(), "{alpn}: {output:?}");
    }
    let (_, log, _dir) = server.interrupt();
    let whole = |line: &&str| line.contains("HEAD /hello.txt 400 ");
    assert!(log.lines().find(whole).is_some_and(|line| !line.contains("incomplete")), "{log}");
    for (_, alpn) in VERSIONS {
        let told = |line: &str| {
            line.contains(&format!("{alpn} GET /large 200 ")) && line.contains("incomplete: ")
        };
        assert!(log.lines().any(told), "{alpn}: {log}");
    }
}

#[test]
fn a_port_that_another_program_has_is_left_to_it_or_insisted_on() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let mut server = start(&["--listen", &address]);
    let url = server.url("/hello.txt");
    let three = get(server.dir.path(), &["--ca", "cert.pem", "--http3-only", "-o", "-", &url]);
    assert_eq!(three.assert_code(0).stdout, b"hello, world\n");
    signal(server.id(), "-HUP");
    server.event("read_again");
    let (_, log, dir) = server.interrupt();
    let said = format!(
        "Warning: no HTTP/2 and HTTP/1.1 there: TCP port {} of 127.0.0.1 is in use",
        port(&address)
    );
    assert!(log.contains(&said) && log.contains("--no-tcp"), "{log}");
    for flags in [&["--tcp"][..], &["--redirect", "127.0.0.1:0"], &["--no-tcp", "--tcp"]] {
        let mut command = quicket(dir.path());
        command.args(["serve", "root", "-l", &address]).args(CERT).args(flags);
        let output = command.output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(6) && said.contains("TCP port"), "{flags:?}: {said}");
    }
    drop(taken);
    // Nobody is at the port, then.
    let server = Server::start_in(dir, &[&CERT[..], &["--listen", &address, "--no-tcp"]].concat());
    assert!(TcpStream::connect(&address).is_err());
    let (_, log, _dir) = server.interrupt();
    assert!(!log.contains("Warning"), "{log}");
}

#[test]
fn all_addresses_have_tcp_and_plain_http_leads_to_it() {
    let flags = ["--listen", "127.0.0.1:0", "--listen", "[::1]:0", "--redirect", "127.0.0.1:0"];
    let mut server = start(&flags);
    let second = server.event("listening");
    assert_eq!(second["tcp"], true);
    let second = second["address"].as_str().unwrap().to_owned();
    let plain = server.event("redirecting")["address"].as_str().map(port).unwrap();
    let dir = server.dir.path().to_owned();
    for address in [&server.address, &second] {
        let url = format!("https://localhost:{}/hello.txt", port(address));
        let output = curl(
            &dir,
            &["-i", "--resolve", &format!("localhost:{}:{}", port(address), ip(address)), &url],
        );
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(said.contains(&format!("h3=\":{}\"", port(address))), "{said}");
    }
    let plain = format!("http://127.0.0.1:{plain}/hello.txt");
    let output = curl(&dir, &["-L", "-w", "%{url_effective} %{num_redirects}", &plain]);
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(said, format!("hello, world\n{} 1", server.url("/hello.txt")));
    let kept = curl(&dir, &["-o", "/dev/null", "-w", "%{http_code}", "-d", "a", &plain]);
    assert_eq!(kept.stdout, b"308");
}

fn ip(address: &str) -> &str {
    address.rsplit_once(':').unwrap().0
}

#[test]
fn connections_over_tcp_get_a_certificate_that_is_read_again() {
    let mut server = start(&[]);
    let dir = server.dir.path().to_owned();
    let url = server.url("/hello.txt");
    assert!(curl(&dir, &[&url]).status.success());
    fs::rename(dir.join("cert.pem"), dir.join("old.pem")).unwrap();
    openssl(&dir, "cert", NAMES);
    assert!(!curl(&dir, &[&url]).status.success(), "it has the old one still");
    signal(server.id(), "-HUP");
    server.event("read_again");
    for (flag, _) in VERSIONS {
        assert_eq!(curl(&dir, &[flag, &url]).stdout, b"hello, world\n");
    }
    assert!(!curl(&dir, &["--cacert", "old.pem", &url]).status.success());
}

#[test]
fn connections_count_together_and_requests_under_way_are_answered_in_the_end() {
    let mut server = start(&["--max-connections", "2", "--drain", "60"]);
    let (dir, url) = (server.dir.path().to_owned(), server.url("/large"));
    let downloads = VERSIONS.map(|(flag, _)| {
        let (dir, url) = (dir.clone(), url.clone());
        thread::spawn(move || curl(&dir, &[flag, "--limit-rate", "1M", &url]))
    });
    // What is too much is turned away, over UDP and TCP.
    let hello = server.url("/hello.txt");
    for _ in VERSIONS {
        server.event("connected");
    }
    assert!(!curl(&dir, &[&hello]).status.success());
    let three = get(&dir, &["--ca", "cert.pem", "--http3-only", "--retry", "0", "-o", "-", &hello]);
    assert_ne!(three.code, Some(0), "{three:?}");
    let (status, log, _dir) = server.interrupt();
    assert!(status.success() && log.contains("Stopped: all connections had come"), "{log}");
    for download in downloads {
        let output = download.join().unwrap();
        assert!(output.stdout == content(8_000_000), "{} bytes, {log}", output.stdout.len());
    }
}

/// A server behind a switch of its own, and what a service manager would hand to it.
struct Switched {
    dir: TempDir,
    port: u16,
}

impl Switched {
    fn new() -> Self {
        Self { dir: site(), port: free_port() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn quicket(&self, arguments: &[&str]) -> Command {
        let mut command = quicket(self.dir.path());
        command.env("QUICKET_SWITCH", self.path("switch")).args(arguments);
        command
    }

    fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    fn open_log(&self) -> fs::File {
        fs::File::options().append(true).create(true).open(self.path("log")).unwrap()
    }

    fn start(&self, flags: &[&str]) -> Process {
        let at = format!("127.0.0.1:{}", self.port);
        let mut command = self.quicket(&["serve", "root", "--switch", "-l", &at]);
        command.args(CERT).args(flags).stderr(self.open_log());
        Process(command.spawn().unwrap())
    }

    fn url(&self, path: &str) -> String {
        format!("https://localhost:{}{path}", self.port)
    }

    fn status(&self) -> Option<Value> {
        let switch = self.path("switch");
        let report = quicket_switch::client::status(switch.to_str().unwrap()).ok()?;
        Some(serde_json::from_str(&report).unwrap())
    }

    /// The process that new clients get.
    fn serving(&self) -> Option<u64> {
        let report = self.status()?;
        let programs = report["addresses"][0]["programs"].as_array()?;
        programs.iter().find(|program| program["state"] == "serving")?["pid"].as_u64()
    }

    fn upgrade(&self) {
        let before = self.serving().unwrap();
        assert!(self.quicket(&["switch", "upgrade"]).status().unwrap().success());
        until("the next generation", || self.serving().is_some_and(|pid| pid != before));
    }

    fn curl(&self, arguments: &[&str]) -> Output {
        curl(self.dir.path(), arguments)
    }
}

impl Drop for Switched {
    fn drop(&mut self) {
        let Some(report) = self.status() else { return };
        let programs = report["addresses"][0]["programs"].as_array().into_iter().flatten();
        for process in programs.chain([&report]) {
            // One may end meanwhile.
            let _ = Command::new("kill").args(["-KILL", &process["pid"].to_string()]).output();
        }
    }
}

#[test]
fn generations_follow_each_other_and_no_request_over_tcp_is_lost() {
    let site = Switched::new();
    let plain = free_port();
    let _first = site.start(&["--redirect", &format!("127.0.0.1:{plain}")]);
    until("the server", || site.serving().is_some());
    let (stop, fetched) = (AtomicBool::new(false), [const { AtomicUsize::new(0) }; 2]);
    thread::scope(|scope| {
        for (at, (flag, _)) in VERSIONS.into_iter().enumerate() {
            let (site, stop, fetched) = (&site, &stop, &fetched[at]);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let output = site.curl(&[flag, &site.url("/large")]);
                    let is_whole = output.stdout == content(8_000_000);
                    if !is_whole {
                        stop.store(true, Ordering::Relaxed);
                        panic!("{flag}: {output:?}\n{}", site.log());
                    }
                    fetched.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let counts = || fetched.each_ref().map(|count| count.load(Ordering::Relaxed));
        for _ in 0..3 {
            let before = counts();
            until("requests", || {
                stop.load(Ordering::Relaxed) || (0..2).all(|at| counts()[at] > before[at])
            });
            site.upgrade();
            let plain = format!("http://127.0.0.1:{plain}/");
            let redirect = site.curl(&["-o", "/dev/null", "-w", "%{http_code}", &plain]);
            assert_eq!(redirect.stdout, b"308");
        }
        stop.store(true, Ordering::Relaxed);
    });
    until("what they say", || site.log().matches("has taken over").count() == 3);
}

/// The generation before keeps the port until it is replaced.
#[test]
fn one_that_is_started_by_hand_to_replace_another_has_the_tcp_port_in_its_turn() {
    let site = Switched::new();
    let plain = free_port();
    let redirect = format!("127.0.0.1:{plain}");
    let flags = ["--tcp", "--drain", "60", "--redirect", &redirect];
    let mut first = site.start(&flags);
    until("the server", || site.serving() == Some(first.0.id().into()));
    let download = slow(site.dir.path(), &site.url("/huge"));
    until("the download", || site.path("got").exists());
    let second = site.start(&[&flags[..], &["--replace"]].concat());
    until("the next", || site.serving() == Some(second.0.id().into()));
    // The first has the download to finish, and no port any more.
    let fetched = || site.curl(&[&site.url("/hello.txt")]).stdout == b"hello, world\n";
    until("TCP", || site.log().contains("HTTP/2 and HTTP/1.1 on"));
    assert!(fetched());
    let plain = format!("http://{redirect}/");
    let code = || site.curl(&["-o", "/dev/null", "-w", "%{http_code}", &plain]).stdout;
    until("plain HTTP", || site.log().contains("Plain HTTP on"));
    assert_eq!(code(), b"308");
    assert!(!first.has_ended());
    drop(download);
    until("the end of the first", || first.has_ended());
    // It hands the port on.
    site.upgrade();
    assert!(fetched());
}

/// A download that takes as long as it may; what has come of it is in `got`.
fn slow(dir: &Path, url: &str) -> Process {
    let huge = fs::File::create(dir.join("root/huge")).unwrap();
    huge.set_len(64 << 20).unwrap();
    let mut command = Command::new("curl");
    command.args(["-sS", "--cacert", "cert.pem", "--limit-rate", "100K", "-o", "got", url]);
    Process(command.current_dir(dir).spawn().unwrap())
}

/// While requests are finished, nobody is kept waiting for an answer to others.
#[test]
fn a_server_that_stops_has_its_port_no_more() {
    let site = Switched::new();
    let mut server = site.start(&["--drain", "60"]);
    until("the server", || site.serving().is_some());
    let download = slow(site.dir.path(), &site.url("/huge"));
    until("the download", || site.path("got").exists());
    signal(server.0.id(), "-TERM");
    until("the end of the listener", || TcpStream::connect(("127.0.0.1", site.port)).is_err());
    assert!(!server.has_ended());
    drop(download);
    until("the end", || server.has_ended());
}

/// As systemd does it: socket units for UDP and TCP, and a service that tells how it is.
#[test]
fn sockets_of_a_service_manager_are_used_and_handed_on() {
    let site = Switched::new();
    let manager = UnixDatagram::bind(site.path("notify")).unwrap();
    manager.set_read_timeout(Some(LONG)).unwrap();
    let hears = |wanted: &str| loop {
        let mut message = [0; 4096];
        let len = manager.recv(&mut message).expect("a message");
        let text = String::from_utf8_lossy(&message[..len]).into_owned();
        if let Some(line) = text.lines().find(|line| line.starts_with(wanted)) {
            return line.to_owned();
        }
    };
    let _server = handed(&site, "udp,tcp", &["--switch"]);
    let status = hears("STATUS=Serving");
    assert!(status.ends_with("(UDP and TCP)"), "{status}");
    assert_eq!(site.curl(&["--http2", &site.url("/hello.txt")]).stdout, b"hello, world\n");
    site.upgrade();
    assert_eq!(hears("MAINPID="), format!("MAINPID={}", site.serving().unwrap()));
    assert_eq!(site.curl(&["--http2", &site.url("/hello.txt")]).stdout, b"hello, world\n");

    // A manager that hands over no TCP wants none, here and in the next generation.
    let site = Switched::new();
    let _server = handed(&site, "udp", &["--switch"]);
    until("the server", || site.serving().is_some());
    let is_refused = || TcpStream::connect(("127.0.0.1", site.port)).is_err();
    assert!(is_refused());
    site.upgrade();
    assert!(is_refused());

    // TCP alone is not enough, and what there is no use for is a mistake.
    for (kinds, flags, said) in [
        ("tcp", &[][..], "one ListenDatagram="),
        ("udp,udp", &[], "one ListenDatagram="),
        ("udp,tcp", &["--no-tcp"], "for which there is no use"),
    ] {
        let site = Switched::new();
        let mut process = handed(&site, kinds, flags);
        assert!(!process.0.wait().unwrap().success());
        assert!(site.log().contains(said), "{kinds}: {}", site.log());
    }
}

/// The server with sockets of these kinds from descriptor 3 on: the first of each at the site's port. What binds them is
/// Python, as systemd-socket-activate knows one kind at a time.
fn handed(site: &Switched, kinds: &str, flags: &[&str]) -> Process {
    const START: &str = "
import os, socket, sys
given, seen = [], set()
for kind in sys.argv[1].split(','):
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM if kind == 'udp' else socket.SOCK_STREAM)
    made.bind(('127.0.0.1', 0 if kind in seen else int(sys.argv[2])))
    seen.add(kind)
    if kind == 'tcp': made.listen(64)
    given.append(os.dup2(made.detach(), 100 + len(given)))
for at, descriptor in enumerate(given): os.dup2(descriptor, 3 + at)
os.closerange(100, 110)
os.environ['LISTEN_PID'] = str(os.getpid())
os.environ['LISTEN_FDS'] = str(len(given))
os.execv(sys.argv[3], sys.argv[3:])
";
    let mut command = Command::new("python3");
    command.args(["-c", START, kinds, &site.port.to_string()]);
    command.args([env!("CARGO_BIN_EXE_quicket"), "serve", "root"]).args(CERT).args(flags);
    command.current_dir(site.dir.path()).env("HOME", site.dir.path());
    command.env("QUICKET_SWITCH", site.path("switch"));
    command.env("NOTIFY_SOCKET", site.path("notify"));
    command.stdin(Stdio::null()).stderr(site.open_log());
    Process(command.spawn().unwrap())
}
