//! Origins over HTTP/3: aioquic's server, which misbehaves when asked to. Those of Caddy (quic-go) are in
//! `cli/tests/http3.rs`.

mod behind;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use behind::{Site, before, certificate, content, folder, python};
use quicket_testing::{Process, until};
use tempfile::TempDir;

/// aioquic's server, in a folder with its certificate.
struct Origin {
    dir: PathBuf,
    port: u16,
    process: Option<Process>,
}

impl Origin {
    fn start(dir: &Path, streams: impl ToString) -> Self {
        certificate(dir, "origin", &["origin.example"]);
        let mut origin = Self { dir: dir.to_owned(), port: 0, process: None };
        origin.run(streams);
        origin
    }

    /// Runs at the port that it had before, if it had one.
    fn run(&mut self, streams: impl ToString) {
        let mut command = python();
        command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/h3_server.py"));
        command.args(["origin.pem", "origin.key", "h3.log"]).current_dir(&self.dir);
        command.args([self.port.to_string(), streams.to_string()]);
        let (process, port) = Process::start(&mut command);
        (self.process, self.port) = (Some(process), port.parse().unwrap());
    }

    fn kill(&mut self) {
        self.process = None;
    }

    fn log(&self) -> String {
        fs::read_to_string(self.dir.join("h3.log")).unwrap()
    }

    fn connections(&self) -> usize {
        self.log().matches("connection").count()
    }

    /// What a file says of it.
    fn file(&self, more: &str) -> String {
        before(&format!(
            "servers = [\"h3://127.0.0.1:{}\"]\nca = \"origin.pem\"\n\
             server_name = \"origin.example\"\n{more}",
            self.port
        ))
    }
}

fn start(streams: impl ToString, more: &str) -> (Site, Origin) {
    let dir: TempDir = folder();
    let origin = Origin::start(dir.path(), streams);
    let file = origin.file(more);
    (Site::start(dir, &file), origin)
}

const PATIENT: &str = "max_failures = 1000\n";

#[test]
fn an_origin_over_http3_proves_who_it_is() {
    let (site, origin) = start(100, PATIENT);
    for flag in ["--http2", "--http1.1"] {
        let (status, body) = site.get(&[flag, &site.url("/who")]);
        let said = String::from_utf8(body).unwrap();
        assert_eq!(
            (status.as_str(), said),
            ("200", format!("localhost:{} https", site.address.port()))
        );
    }
    assert_eq!(origin.connections(), 1);
    let servers = format!("servers = [\"h3://127.0.0.1:{}\"]\n", origin.port);
    for (wrong, said) in [
        (format!("{servers}server_name = \"origin.example\"\n"), "trusted"),
        (format!("{servers}ca = \"origin.pem\"\n"), "name"),
    ] {
        site.reload(&before(&wrong));
        let count = site.records(0).len();
        assert_eq!(site.get(&[&site.url("/who")]).0, "502");
        let record = site.records(count + 1).pop().unwrap();
        assert!(record["detail"].as_str().unwrap().contains(said), "{record}");
    }
}

#[test]
fn bodies_and_trailers_flow_both_ways() {
    let (site, origin) = start(100, PATIENT);
    let sent = content(5_000_000);
    fs::write(site.path("sent"), &sent).unwrap();
    for flag in ["--http2", "--http1.1"] {
        let (status, body) = site.get(&[flag, "--data-binary", "@sent", &site.url("/echo")]);
        assert!(status == "200" && body == sent, "{flag}: {status}, {} bytes", body.len());
    }
    let (status, body) = site.get(&[&site.url("/size/20000000")]);
    assert!(status == "200" && body.len() == 20_000_000);
    assert_eq!(origin.connections(), 1);
    let output = site.curl(&["--http2", "-i", "-d", "a", &site.url("/echo")]);
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains("x-last: 1"), "{said}");
    assert_eq!(site.get(&["--head", &site.url("/size/100")]).0, "200");
}

#[test]
fn requests_share_connections_of_http3() {
    let (site, origin) = start(5, PATIENT);
    for _ in 0..3 {
        assert_eq!(site.get(&[&site.url("/first")]).0, "200");
    }
    assert_eq!(origin.connections(), 1);
    let urls: Vec<String> = (0..20).map(|at| site.url(&format!("/slow/{at}"))).collect();
    let mut arguments = vec!["--http2", "-Z", "--parallel-max", "20"];
    arguments.extend(urls.iter().map(String::as_str));
    let output = site.curl(&arguments);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stdout).matches("slow").count(), 20);
    assert!((2..=8).contains(&origin.connections()), "{} connections", origin.connections());
}

/// RFC 9114, Section 5.2.
#[test]
fn a_server_that_takes_no_more_requests_has_them_sent_again() {
    let (site, origin) = start(100, PATIENT);
    for _ in 0..5 {
        let urls: Vec<String> = (0..10).map(|at| site.url(&format!("/leave/{at}"))).collect();
        let mut arguments = vec!["--http2", "-Z", "-w", "\n%{http_code}\n"];
        arguments.extend(urls.iter().map(String::as_str));
        let output = site.curl(&arguments);
        let said = String::from_utf8_lossy(&output.stdout);
        assert_eq!(said.lines().filter(|&line| line == "200").count(), 10, "{output:?}");
    }
    assert!(origin.connections() > 1);
    // RFC 9114, Section 4.1.1.
    assert_eq!(
        site.get(&["-X", "POST", &site.url("/refused")]).0,
        "200",
        "it did nothing at first"
    );
    assert_eq!(origin.log().matches("/refused").count(), 2);
}

#[test]
fn what_is_no_answer_is_none() {
    let (site, origin) = start(100, PATIENT);
    for path in ["/reset", "/empty", "/smuggled", "/switched", "/unknown", "/undecodable", "/push"]
    {
        assert_eq!(site.get(&[&site.url(path)]).0, "502", "{path}");
        let tried = origin.log().lines().filter(|line| *line == path).count();
        assert!(tried <= 2, "{path} was sent {tried} times");
        assert_eq!(site.get(&[&site.url("/after")]).0, "200", "after {path}");
    }
    assert_eq!(site.get(&["-d", "a", &site.url("/reset")]).0, "502");
    assert_eq!(
        origin.log().lines().filter(|line| *line == "/reset").count(),
        2,
        "a POST goes once"
    );
    for path in ["/half", "/long"] {
        let output = site.curl(&["--http2", &site.url(path)]);
        let (status, body) = site.get(&["--http1.1", &site.url(path)]);
        assert!(!output.status.success() || status == "502", "{path}: {status} {body:?}");
        assert_eq!(site.get(&[&site.url("/after")]).0, "200", "after {path}");
    }
}

#[test]
fn an_answer_before_the_body_has_gone_reaches_clients_whole() {
    let (site, _origin) = start(100, PATIENT);
    fs::write(site.path("sent"), content(5_000_000)).unwrap();
    let post = |program: &str, path: &str| {
        let mut command = python();
        command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(program));
        command.arg(site.address.port().to_string()).args(["cert.pem", path, "20000000"]);
        let output = command.current_dir(site.dir.path()).output().unwrap();
        assert!(output.status.success(), "{program}: {output:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    for round in 0..5 {
        for (path, expected) in [("/early", 7), ("/early/300000", 300_000)] {
            // Without "Expect: 100-continue" the body is on its way when the answer comes.
            let arguments = ["--http1.1", "-H", "expect:", "--data-binary", "@sent"];
            let (status, body) = site.get(&[&arguments[..], &[&site.url(path)]].concat());
            assert!(status == "413" && body.len() == expected, "{round} {path}: {status}");
            // By clients that send on until they are told not to. (curl 7.88 drops an answer beside which its stream is
            // reset, which RFC 9113, Section 8.1 forbids.)
            assert_eq!(
                post("h2_post.py", path),
                format!("413 {expected} whole reset 0"),
                "{round}"
            );
            assert_eq!(
                post("http3_post.py", path),
                format!("413 {expected} stopped 0x100"),
                "{round}"
            );
        }
    }
    assert_eq!(site.get(&[&site.url("/after")]).0, "200");
}

#[test]
fn a_server_that_says_nothing_is_not_waited_for_longer_than_the_file_says() {
    let (site, _origin) = start(100, "answer_timeout_ms = 300\nretries = 0\nmax_failures = 9\n");
    let begun = Instant::now();
    assert_eq!(site.get(&[&site.url("/silent")]).0, "504");
    assert!(begun.elapsed() < Duration::from_secs(5));
    assert_eq!(site.get(&[&site.url("/after")]).0, "200");
}

/// What the server knew of its connections is gone with it, and so is the key by which it could say so.
#[test]
fn a_server_that_was_killed_and_started_again_is_reached_again() {
    let (site, mut origin) = start(100, "max_failures = 1000\nconnect_timeout_ms = 1000\n");
    assert_eq!(site.get(&[&site.url("/first")]).0, "200");
    origin.kill();
    origin.run(100);
    let begun = Instant::now();
    assert_eq!(site.get(&[&site.url("/second")]).0, "200");
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    assert_eq!(origin.connections(), 2);
    origin.kill();
    assert_eq!(site.get(&[&site.url("/gone")]).0, "502");
    origin.run(100);
    assert_eq!(site.get(&[&site.url("/back")]).0, "200");
}

#[test]
fn health_checks_go_over_http3() {
    let check = "health_check = { path = \"/health\", interval_ms = 50, timeout_ms = 500, \
                 unhealthy_after = 1, healthy_after = 1 }\n";
    let (site, mut origin) = start(100, check);
    until("checks", || origin.log().matches("/health").count() >= 3);
    assert_eq!(site.get(&[&site.url("/a")]).0, "200");
    origin.kill();
    assert_ne!(site.get(&["--max-time", "30", &site.url("/b")]).0, "200");
    origin.run(100);
    until("health", || site.get(&[&site.url("/c")]).0 == "200");
}

/// Connections that the gateway has to a server.
const MAX_SHARED: usize = 8;

/// A request, whose status is waited for elsewhere.
fn ask(site: &Site, path: &str) -> Child {
    let mut command = Command::new("curl");
    command.args(["-sS", "--http1.1", "--cacert", "cert.pem", "--max-time", "30"]);
    command.args(["-o", "/dev/null", "-w", "%{http_code}", &site.url(path)]);
    command.stdout(Stdio::piped()).current_dir(site.dir.path()).spawn().unwrap()
}

/// As many requests as there may be streams, where the server allows one on each connection.
fn hold(site: &Site, origin: &Origin, path: &str) -> Vec<Child> {
    let hold = |before| {
        let child = ask(site, path);
        until("a request", || origin.log().matches(path).count() > before);
        child
    };
    (0..MAX_SHARED).map(hold).collect()
}

/// What has the counters told, in a folder.
fn counted(dir: &Path) -> String {
    format!("[metrics]\nlisten = \"unix:{}\"\n", dir.join("metrics.sock").display())
}

/// RFC 9000, Section 4.6: all streams of all connections are taken.
#[test]
fn a_server_that_is_busy_and_answers_is_no_failure() {
    let dir: TempDir = folder();
    let origin = Origin::start(dir.path(), "=1");
    // One failure, or one bad check, would leave the server out.
    let file = origin.file(
        "max_failures = 1\npause_ms = 60000\nconnect_timeout_ms = 2000\n\
         health_check = { path = \"/health\", interval_ms = 50, timeout_ms = 300, \
         unhealthy_after = 1, healthy_after = 1 }\n",
    );
    let file = file + &counted(dir.path());
    let site = Site::start(dir, &file);
    let held = hold(&site, &origin, "/hold/15");
    let begun = Instant::now();
    assert_eq!(site.get(&[&site.url("/a")]).0, "503");
    let took = begun.elapsed().as_millis();
    assert!((1900..6000).contains(&took), "as long as a connection may take: {took} ms");
    let record = site.records(1).remove(0);
    assert_eq!(record["error"], "the origin takes no more requests at the moment", "{record}");
    let detail = record["detail"].as_str().unwrap();
    assert!(detail.ends_with("it allows no more requests at the moment"), "{detail}");
    let counters =
        ["origin_busy_total", "origin_failures_total", "origin_up", "origin_connections_open"]
            .map(|name| site.counter(name, "h3"));
    assert_eq!(counters, [1, 0, 1, MAX_SHARED as u64]);
    for child in held {
        assert_eq!(child.wait_with_output().unwrap().stdout, b"200");
    }
    assert_eq!(site.get(&[&site.url("/after")]).0, "200");
    assert!(!origin.log().lines().any(|line| line == "/a"), "it was never asked");
}

/// The time for the answer counts from when the server is asked.
#[test]
fn a_request_waits_for_its_turn_and_has_all_its_time_then() {
    let dir: TempDir = folder();
    let origin = Origin::start(dir.path(), "=1");
    let file = origin.file(
        "max_failures = 1\nretries = 0\nconnect_timeout_ms = 15000\nanswer_timeout_ms = 4500\n",
    );
    let site = Site::start(dir, &file);
    // The last of those who wait has both times together, which is more than an answer may take.
    let held = hold(&site, &origin, "/hold/3.0");
    let waiting: Vec<Child> = (0..MAX_SHARED).map(|_| ask(&site, "/hold/2.5")).collect();
    for child in held.into_iter().chain(waiting) {
        assert_eq!(child.wait_with_output().unwrap().stdout, b"200");
    }
    assert!(origin.connections() <= MAX_SHARED);
}

/// One that is gone says as little as one that is busy.
#[test]
fn a_server_that_is_gone_while_requests_wait_is_a_failure() {
    let dir: TempDir = folder();
    let mut origin = Origin::start(dir.path(), "=1");
    let file =
        origin.file("max_failures = 1000\nconnect_timeout_ms = 6000\n") + &counted(dir.path());
    let site = Site::start(dir, &file);
    let held = hold(&site, &origin, "/silent");
    let mut waiting: Vec<Child> = (0..MAX_SHARED).map(|_| ask(&site, "/waits")).collect();
    // Whoever comes later fails as well, so that nothing depends on how long this is.
    std::thread::sleep(Duration::from_millis(300));
    assert!(waiting.iter_mut().all(|child| child.try_wait().unwrap().is_none()));
    origin.kill();
    for child in held.into_iter().chain(waiting) {
        assert_eq!(child.wait_with_output().unwrap().stdout, b"502");
    }
    assert_eq!(site.counter("origin_busy_total", "h3"), 0);
    assert!(site.counter("origin_failures_total", "h3") >= MAX_SHARED as u64);
}

/// RFC 9114, Section 5.2: what it was asked for is answered still, and another connection takes what waits.
#[test]
fn requests_do_not_wait_on_a_connection_that_its_server_ends() {
    let dir: TempDir = folder();
    let origin = Origin::start(dir.path(), "=1");
    let file = origin.file("max_failures = 1\nretries = 0\nconnect_timeout_ms = 12000\n");
    let site = Site::start(dir, &file);
    let begun = Instant::now();
    let last = ask(&site, "/go/20");
    until("a request", || origin.log().contains("/go/20"));
    let others = (1..MAX_SHARED).map(|count| {
        let child = ask(&site, "/hold/20");
        until("a request", || origin.log().matches("/hold/20").count() >= count);
        child
    });
    let held: Vec<Child> = others.collect();
    assert_eq!(ask(&site, "/waits").wait_with_output().unwrap().stdout, b"200");
    assert!(begun.elapsed() < Duration::from_secs(20), "before any stream has ended");
    assert_eq!(origin.connections(), MAX_SHARED + 1);
    for child in held.into_iter().chain([last]) {
        assert_eq!(child.wait_with_output().unwrap().stdout, b"200");
    }
}

/// RFC 9000, Section 4.6: one that never raises its limit allows nothing more on a connection, however little it has to do.
#[test]
fn a_server_that_does_nothing_and_allows_nothing_is_not_busy() {
    let dir: TempDir = folder();
    let origin = Origin::start(dir.path(), "=1");
    let file =
        origin.file("max_failures = 1000\nconnect_timeout_ms = 1000\n") + &counted(dir.path());
    let site = Site::start(dir, &file);
    for _ in 0..MAX_SHARED {
        assert_eq!(site.get(&[&site.url("/kept")]).0, "200");
    }
    assert_eq!(origin.connections(), MAX_SHARED);
    // The connection is given up, and the request, of which nothing was sent, goes over a new one.
    assert_eq!(site.get(&[&site.url("/a")]).0, "200");
    assert_eq!(origin.connections(), MAX_SHARED + 1);
    assert_eq!(site.counter("origin_busy_total", "h3"), 0);
}

#[test]
fn a_health_check_that_such_a_server_allows_nothing_is_a_bad_one() {
    let dir: TempDir = folder();
    let origin = Origin::start(dir.path(), "=1");
    let file = origin.file(
        "health_check = { path = \"/kept\", interval_ms = 20, timeout_ms = 700, \
         expect = [200], unhealthy_after = 1, healthy_after = 1 }\n",
    );
    let _site = Site::start(dir, &file);
    // Each is answered on a connection of its own. The one that finds none has all of them made anew.
    until("checks", || origin.connections() > MAX_SHARED);
}
