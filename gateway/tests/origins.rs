//! Origins over TLS and HTTP/2: nginx, and a server by Python's `h2` that misbehaves when asked to. And how many connections to
//! a server there may be.

mod behind;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use behind::{Site, before, certificate, content, folder, python};
use quicket_testing::{Process, free_port, nginx, until};
use tempfile::TempDir;

/// nginx with TLS, HTTP/2 and HTTP/1.1, which tells by which version it was asked, by which name, and who
/// the client is.
fn secure_nginx(dir: &Path, versions: &str) -> (Process, u16) {
    fs::create_dir(dir.join("root")).unwrap();
    fs::write(dir.join("root/large"), content(8_000_000)).unwrap();
    certificate(dir, "origin", &["origin.example"]);
    certificate(dir, "gateway", &["gateway.example"]);
    let port = free_port();
    let server = format!(
        "server {{
            listen 127.0.0.1:{port} ssl http2; root root;
            ssl_protocols {versions}; ssl_certificate origin.pem; ssl_certificate_key origin.key;
            ssl_client_certificate gateway.pem; ssl_verify_client optional;
            location /who {{ return 200 \"$server_protocol $host $ssl_client_verify $ssl_protocol\"; }}
            location /read {{ proxy_pass http://127.0.0.1:{port}/; }}
        }}"
    );
    (nginx::serve(dir, port, &server), port)
}

#[test]
fn an_origin_over_tls_proves_who_it_is_and_speaks_http2() {
    let dir = folder();
    let (_nginx, port) = secure_nginx(dir.path(), "TLSv1.2 TLSv1.3");
    let servers = format!("servers = [\"https://127.0.0.1:{port}\"]\n");
    let trusted = format!("{servers}ca = \"origin.pem\"\nserver_name = \"origin.example\"\n");
    let site = Site::start(dir, &before(&trusted));
    let asked = |flag: &str| {
        let (status, body) = site.get(&[flag, &site.url("/who")]);
        assert_eq!(status, "200");
        String::from_utf8(body).unwrap()
    };
    // The name that the client asked for, whatever the certificate's.
    assert_eq!(asked("--http2"), "HTTP/2.0 localhost NONE TLSv1.3");
    assert_eq!(asked("--http1.1"), "HTTP/2.0 localhost NONE TLSv1.3");
    let (status, body) = site.get(&[&site.url("/large")]);
    assert!(status == "200" && body == content(8_000_000));

    site.reload(&before(&format!(
        "{trusted}client_chain = \"gateway.pem\"\nclient_key = \"gateway.key\"\n"
    )));
    assert_eq!(asked("--http2"), "HTTP/2.0 localhost SUCCESS TLSv1.3");

    for (wrong, said) in [
        (format!("{servers}server_name = \"origin.example\"\n"), "issued by nobody who is trusted"),
        (format!("{servers}ca = \"origin.pem\"\n"), "not for that name"),
    ] {
        site.reload(&before(&wrong));
        let count = site.records(0).len();
        assert_eq!(site.get(&[&site.url("/who")]).0, "502");
        let record = site.records(count + 1).pop().unwrap();
        assert!(record["detail"].as_str().unwrap().contains(said), "{record}");
    }
}

/// As nginx of Debian 12 is without a word about versions.
#[test]
fn an_origin_with_nothing_newer_than_tls_1_2_is_spoken_to() {
    let dir = folder();
    let (_nginx, port) = secure_nginx(dir.path(), "TLSv1.2");
    let servers = format!("servers = [\"https://127.0.0.1:{port}\"]\n");
    let trusted = format!("{servers}ca = \"origin.pem\"\nserver_name = \"origin.example\"\n");
    let site = Site::start(dir, &before(&trusted));
    let (status, body) = site.get(&[&site.url("/who")]);
    let said = String::from_utf8(body).unwrap();
    assert_eq!((status.as_str(), said.as_str()), ("200", "HTTP/2.0 localhost NONE TLSv1.2"));
}

/// Many requests at once share one connection of HTTP/2, and more than the server takes at a time make
/// others.
#[test]
fn requests_share_connections_of_http2() {
    let (site, log) = with_h2(&["5"]);
    let connections = || fs::read_to_string(&log).unwrap().matches("connection").count();
    for _ in 0..3 {
        assert_eq!(site.get(&[&site.url("/first")]).0, "200");
    }
    assert_eq!(connections(), 1);
    let urls: Vec<String> = (0..20).map(|at| site.url(&format!("/slow/{at}"))).collect();
    let mut arguments = vec!["--http2", "-Z", "--parallel-max", "20"];
    arguments.extend(urls.iter().map(String::as_str));
    let output = site.curl(&arguments);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stdout).matches("slow").count(), 20);
    assert!((2..=8).contains(&connections()), "{} connections", connections());
}

#[test]
fn a_server_that_takes_no_more_requests_has_them_sent_again() {
    let (site, _) = with_h2(&["100"]);
    // The server ends each connection after six requests, with GOAWAY, while others are under way.
    for _ in 0..5 {
        let urls: Vec<String> = (0..10).map(|at| site.url(&format!("/leave/{at}"))).collect();
        // A line for each status, among the bodies: standard error has curl's progress meter.
        let mut arguments = vec!["--http2", "-Z", "-w", "\n%{http_code}\n"];
        arguments.extend(urls.iter().map(String::as_str));
        let output = site.curl(&arguments);
        let said = String::from_utf8_lossy(&output.stdout);
        assert_eq!(said.lines().filter(|&line| line == "200").count(), 10, "{output:?}");
    }
    assert_eq!(
        site.get(&["-X", "POST", &site.url("/refused")]).0,
        "200",
        "it did nothing at first"
    );
    assert_eq!(site.get(&[&site.url("/reset")]).0, "502");
    assert_eq!(site.get(&[&site.url("/garbage")]).0, "502");
    assert_eq!(site.get(&[&site.url("/after")]).0, "200");
    let output = site.curl(&["--http2", &site.url("/half")]);
    assert!(!output.status.success(), "it is half");
}

/// A request, whose status is waited for elsewhere.
fn ask(site: &Site, path: &str) -> Child {
    let mut command = Command::new("curl");
    command.args(["-sS", "--http1.1", "--cacert", "cert.pem", "--max-time", "30"]);
    command.args(["-o", "/dev/null", "-w", "%{http_code}", &site.url(path)]);
    command.stdout(Stdio::piped()).current_dir(site.dir.path()).spawn().unwrap()
}

fn status(asked: Child) -> String {
    String::from_utf8(asked.wait_with_output().unwrap().stdout).unwrap()
}

/// As many requests as there may be streams, where the server takes one on each connection.
fn hold(site: &Site, log: &Path, path: &str) -> Vec<Child> {
    let asked = || fs::read_to_string(log).unwrap().matches(path).count();
    let hold = |before| {
        let child = ask(site, path);
        until("a request", || asked() > before);
        child
    };
    (0..MAX_SHARED).map(hold).collect()
}

/// Connections that the gateway has to a server.
const MAX_SHARED: usize = 8;

/// RFC 9113, Section 5.1.2: all streams of all connections are taken.
#[test]
fn a_server_over_http2_that_is_busy_is_no_failure() {
    // One failure, or one bad check, would leave the server out.
    let (site, log) = with_h2_and(
        &["1"],
        "max_failures = 1\npause_ms = 60000\nconnect_timeout_ms = 2000\nretries = 0\n\
         health_check = { path = \"/health\", interval_ms = 50, timeout_ms = 300, \
         unhealthy_after = 1, healthy_after = 1 }\n",
    );
    let held = hold(&site, &log, "/hold/15");
    let begun = Instant::now();
    assert_eq!(site.get(&[&site.url("/a")]).0, "503");
    let took = begun.elapsed().as_millis();
    assert!((1900..6000).contains(&took), "as long as a connection may take: {took} ms");
    let record = site.records(1).remove(0);
    assert_eq!(record["error"], "the origin takes no more requests at the moment", "{record}");
    let counters =
        ["origin_busy_total", "origin_failures_total", "origin_up", "origin_connections_open"]
            .map(|name| site.counter(name, "h2c"));
    assert_eq!(counters, [1, 0, 1, MAX_SHARED as u64]);
    for child in held {
        assert_eq!(status(child), "200");
    }
    assert_eq!(site.get(&[&site.url("/after")]).0, "200");
    let log = fs::read_to_string(log).unwrap();
    assert!(!log.lines().any(|line| line == "/a"), "it was never asked");
    assert_eq!(log.matches("connection").count(), MAX_SHARED);
}

/// The time for the answer counts from when the server is asked.
#[test]
fn a_request_over_http2_waits_for_its_turn_and_has_all_its_time_then() {
    let (site, log) = with_h2_and(
        &["1"],
        "max_failures = 1\nretries = 0\nconnect_timeout_ms = 15000\nanswer_timeout_ms = 4500\n",
    );
    // The last of those who wait has both times together, which is more than an answer may take.
    let held = hold(&site, &log, "/hold/3.0");
    let waiting: Vec<Child> = (0..MAX_SHARED).map(|_| ask(&site, "/hold/2.5")).collect();
    for child in held.into_iter().chain(waiting) {
        assert_eq!(status(child), "200");
    }
    assert_eq!(fs::read_to_string(log).unwrap().matches("connection").count(), MAX_SHARED);
}

/// RFC 9113, Section 6.5.2: a server may take no request for a while, and one that does so for good is not busy.
#[test]
fn a_server_over_http2_that_takes_no_request_is_a_failure() {
    let (site, _) = with_h2_and(
        &["0"],
        "max_failures = 1000\nretries = 0\nconnect_timeout_ms = 1000\nanswer_timeout_ms = 1000\n",
    );
    for _ in 0..2 {
        assert_eq!(site.get(&[&site.url("/a")]).0, "504");
    }
    assert_eq!(site.counter("origin_busy_total", "h2c"), 0);
    assert_eq!(site.counter("origin_failures_total", "h2c"), 2);
}

/// Ten requests at once over as many connections of HTTP/1.1 as the file allows.
#[test]
fn no_more_connections_are_made_than_the_file_allows() {
    let (site, log, _) = slow("max_connections = 2\n");
    let urls: Vec<String> = (0..10).map(|at| site.url(&format!("/slow/{at}"))).collect();
    let mut arguments = vec!["--http2", "-Z", "--parallel-max", "10", "-w", "\n%{http_code}\n"];
    arguments.extend(urls.iter().map(String::as_str));
    let output = site.curl(&arguments);
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(said.lines().filter(|&line| line == "200").count(), 10, "{output:?}");
    let said = fs::read_to_string(log).unwrap();
    assert_eq!(said.matches("/slow").count(), 10);
    assert_eq!(said.matches("connection").count(), 2, "{said}");
    assert_eq!(site.counter("origin_busy_total", "http"), 0);
}

/// A server that hangs has no more of this host's ports and descriptors than the file allows, and is left out by what else
/// it does. A reload that changes the number alone has the connections stay.
#[test]
fn where_all_connections_hang_requests_get_503_and_count_as_busy() {
    let more = "max_failures = 1\nretries = 0\nconnect_timeout_ms = 1000\n";
    let (site, log, origin) = slow(&format!("max_connections = 2\n{more}"));
    let held: Vec<Child> = (0..2).map(|_| ask(&site, "/hang")).collect();
    let asked = |path: &str| fs::read_to_string(&log).unwrap().matches(path).count();
    until("both are asked", || asked("/hang") == 2);
    let begun = Instant::now();
    assert_eq!(site.get(&[&site.url("/a")]).0, "503");
    let took = begun.elapsed().as_millis();
    assert!((950..5000).contains(&took), "as long as a connection may take: {took} ms");
    let record = site.records(1).remove(0);
    assert_eq!(record["error"], "the origin takes no more requests at the moment", "{record}");
    assert!(record["detail"].as_str().unwrap().contains("max_connections"), "{record}");
    let counters = ["origin_busy_total", "origin_failures_total", "origin_connections_open"]
        .map(|name| site.counter(name, "http"));
    assert_eq!(counters, [1, 0, 2]);

    let file = before(&format!("{origin}{more}max_connections = 3\n"));
    site.reload(&(file + &counted(site.dir.path())));
    assert_eq!(site.get(&[&site.url("/b")]).0, "200");
    assert_eq!(asked("connection"), 3, "those that hang count");
    fs::write(site.path("release"), "").unwrap();
    for child in held {
        assert_eq!(status(child), "200");
    }
    assert_eq!(site.get(&[&site.url("/c")]).0, "200");
    assert_eq!((asked("connection"), asked("/a")), (3, 0));
}

/// Connections of HTTP/2 count like others: with two of them, and a stream each, requests take turns.
#[test]
fn connections_of_http2_count_and_requests_wait_for_their_streams() {
    let (site, log) = with_h2_and(
        &["1"],
        "max_failures = 1\nretries = 0\nmax_connections = 2\nconnect_timeout_ms = 15000\n",
    );
    let asked: Vec<Child> = (0..6).map(|_| ask(&site, "/hold/0.5")).collect();
    for child in asked {
        assert_eq!(status(child), "200");
    }
    let said = fs::read_to_string(log).unwrap();
    assert_eq!(said.matches("connection").count(), 2, "{said}");
}

/// A gateway in front of a server of HTTP/1.1 that is slow, its log, and what the file says of the server. Counters are
/// read at `metrics.sock`.
fn slow(more: &str) -> (Site, PathBuf, String) {
    let dir: TempDir = folder();
    let log = dir.path().join("slow.log");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/slow_server.py");
    let mut command = python();
    command.arg(script).arg(&log).arg(dir.path().join("release"));
    let (server, port) = Process::start(&mut command);
    // As in `with_h2_and`.
    std::mem::forget(server);
    let origin = format!("servers = [\"http://127.0.0.1:{port}\"]\n");
    let file = before(&format!("{origin}{more}")) + &counted(dir.path());
    (Site::start(dir, &file), log, origin)
}

/// What has counters read in a folder.
fn counted(dir: &Path) -> String {
    format!("[metrics]\nlisten = \"unix:{}\"\n", dir.join("metrics.sock").display())
}

/// A gateway in front of a server of HTTP/2 without TLS, and the server's log.
fn with_h2(arguments: &[&str]) -> (Site, PathBuf) {
    with_h2_and(arguments, "max_failures = 100\n")
}

/// The same with what the file says of the origin.
fn with_h2_and(arguments: &[&str], more: &str) -> (Site, PathBuf) {
    let dir: TempDir = folder();
    let log = dir.path().join("h2.log");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/h2_server.py");
    let mut command = python();
    command.arg(script).arg(&log).args(arguments);
    let (server, port) = Process::start(&mut command);
    // It ends with its standard input, hence with this process at the latest.
    std::mem::forget(server);
    let origin = format!("servers = [\"h2c://127.0.0.1:{port}\"]\n{more}");
    let file = before(&origin) + &counted(dir.path());
    (Site::start(dir, &file), log)
}
