//! `quicket gateway` in front of nginx and a Python server: HTTP/3 by `quicket get` and aioquic, HTTP/2 and
//! 1.1 by curl.

mod common;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use common::{Outcome, content, get, openssl, quicket};
use quicket_lab::peers::{Implementation, Workshop};
use quicket_testing::{Process, free_port, nginx, until};
use serde_json::Value;
use tempfile::TempDir;

/// A site: nginx on a port and on a Unix socket, a Python server that tells what it was asked, and the
/// gateway in front.
struct Site {
    dir: TempDir,
    port: u16,
    plain: u16,
    gateway: Option<Process>,
    nginx: Option<Process>,
    _python: Process,
}

/// Says what it was asked; waits, or dies in the middle, if the path says so.
const PYTHON: &str = "
import http.server, json, sys, time
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    def log_message(self, *a): pass
    def answer(self):
        length = int(self.headers.get('content-length') or 0)
        body = self.rfile.read(length) if length else b''
        if self.headers.get('transfer-encoding') == 'chunked':
            while True:
                size = int(self.rfile.readline(), 16)
                body += self.rfile.read(size)
                self.rfile.readline()
                if not size: break
        if self.path.startswith('/app/slow'):
            with open('slow', 'a') as told: print(self.path, file=told)
            time.sleep(3)
        if self.path.startswith('/app/half'):
            self.send_response(200)
            self.send_header('Content-Length', '1000')
            self.end_headers()
            self.wfile.write(b'x' * 500)
            self.wfile.flush()
            # What ends at once may end before the head has left the gateway.
            time.sleep(0.5)
            self.close_connection = True
            self.connection.close()
            return
        said = json.dumps({'method': self.command, 'path': self.path, 'body': len(body),
                           'headers': [[k.lower(), v] for k, v in self.headers.items()]}).encode()
        self.send_response(200)
        self.send_header('Content-Length', str(len(said)))
        self.send_header('Connection', 'keep-alive, x-private')
        self.send_header('X-Private', 'secret')
        self.end_headers()
        if self.command != 'HEAD': self.wfile.write(said)
    do_GET = do_HEAD = do_POST = do_PUT = answer
server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Handler)
print(server.server_address[1], flush=True)
server.serve_forever()
";

/// An origin, which writes the slow requests that have come to it into the file `slow`.
fn python(dir: &Path) -> (Process, u16) {
    let mut command = Command::new("python3");
    let command = command.args(["-c", PYTHON]).current_dir(dir);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    (Process(child), line.trim().parse().unwrap())
}

impl Site {
    fn start() -> Self {
        Self::start_with("")
    }

    fn start_with(more: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path();
        // nginx's workers are other users where root runs the test.
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        fs::create_dir(path.join("root")).unwrap();
        fs::write(path.join("root/hello.txt"), "hello, world\n").unwrap();
        fs::write(path.join("root/large"), content(8_000_000)).unwrap();
        openssl(path, "cert", "DNS:localhost,IP:127.0.0.1");
        openssl(path, "other", "DNS:other.example");
        let (python, python_port) = python(path);
        let nginx_port = free_port();
        let (port, plain) = (free_port(), free_port());
        let file = format!(
            "listen = [\"127.0.0.1:{port}\"]\nredirect = [\"127.0.0.1:{plain}\"]\n\
             access_log = \"access.log\"\n\
             [[certificate]]\nchain = \"cert.pem\"\nkey = \"cert.key\"\n\
             [[certificate]]\nchain = \"other.pem\"\nkey = \"other.key\"\n\
             [origin.files]\nservers = [\"http://127.0.0.1:{nginx_port}\", \"unix:{}\"]\n\
             max_failures = 1\npause_ms = 60000\n\
             [origin.app]\nservers = [\"http://127.0.0.1:{python_port}\"]\nanswer_timeout_ms = 1000\n\
             [origin.gone]\nservers = [\"http://127.0.0.1:1\"]\n\
             [[site]]\nnames = [\"localhost\", \"127.0.0.1\"]\n\
             [[site.route]]\norigin = \"files\"\n\
             [[site.route]]\npath = \"/app\"\norigin = \"app\"\n\
             [[site.route]]\npath = \"/gone\"\norigin = \"gone\"\n\
             [[site.route]]\npath = \"/read\"\nmethods = [\"GET\"]\norigin = \"app\"\n{more}",
            path.join("nginx.sock").display()
        );
        fs::write(path.join("site.toml"), file).unwrap();
        let server = format!(
            "server {{ listen 127.0.0.1:{nginx_port}; listen unix:nginx.sock; root root; }}"
        );
        let nginx = nginx::serve(path, nginx_port, &server);
        let mut site =
            Self { dir, port, plain, gateway: None, nginx: Some(nginx), _python: python };
        site.start_gateway();
        site
    }

    fn start_gateway(&mut self) {
        let log = fs::File::create(self.path("gateway.log")).unwrap();
        let mut command = quicket(self.dir.path());
        command.args(["gateway", "site.toml"]).stderr(log);
        self.gateway = Some(Process(command.spawn().unwrap()));
        until("the gateway", || self.log("gateway.log").contains("Gateway on"));
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn log(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    fn url(&self, path: &str) -> String {
        format!("https://localhost:{}{path}", self.port)
    }

    fn signal(&self, name: &str) {
        let pid = self.gateway.as_ref().unwrap().0.id().to_string();
        assert!(Command::new("kill").args(["-s", name, &pid]).status().unwrap().success());
    }

    fn get(&self, arguments: &[&str]) -> Outcome {
        let all = [&["--ca", "cert.pem", "--http3-only"], arguments].concat();
        get(self.dir.path(), &all)
    }

    fn curl(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new("curl");
        command.args(["-sS", "--cacert", "cert.pem", "--max-time", "20"]).args(arguments);
        command.current_dir(self.dir.path()).output().unwrap()
    }

    fn asked(&self, arguments: &[&str]) -> Value {
        let output = self.curl(arguments);
        serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{error}: {output:?}\n{}", self.log("access.log")))
    }

    fn status(&self, arguments: &[&str]) -> String {
        let output = self.curl(&[&["-o", "/dev/null", "-w", "%{http_code}"], arguments].concat());
        String::from_utf8(output.stdout).unwrap()
    }

    fn records(&self) -> Vec<Value> {
        self.log("access.log").lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

fn header<'a>(asked: &'a Value, name: &str) -> Vec<&'a str> {
    let headers = asked["headers"].as_array().unwrap().iter();
    let named = headers.filter(|header| header[0] == name);
    named.map(|header| header[1].as_str().unwrap()).collect()
}

/// What each of its cases says of HTTP/2 (RFC 9113) and HPACK (RFC 7541).
#[test]
fn h2spec_has_nothing_to_say_against_its_http2() {
    let site = Site::start();
    let h2spec = Workshop::new().and_then(|workshop| workshop.prepare_h2spec());
    let h2spec = h2spec.unwrap_or_else(|error| panic!("{error}"));
    let mut command = Command::new(h2spec.executable);
    // Many cases want an answer that is larger than a window.
    command.args(["-t", "-k", "-h", "localhost", "-p", &site.port.to_string(), "-P", "/large"]);
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}");
    let last = said.lines().rev().find(|line| line.contains(" tests, ")).unwrap_or_default();
    let count = |word: &str| {
        let part = last.split(", ").find(|part| part.ends_with(word))?;
        part.split(' ').next()?.parse::<u32>().ok()
    };
    assert!(count("passed") > Some(140) && count("failed") == Some(0), "{said}");
    // It is none the worse for it.
    site.get(&["-o", "-", &site.url("/hello.txt")]).assert_code(0);
}

#[test]
fn files_of_nginx_cross_by_every_version_of_http() {
    let site = Site::start();
    let url = site.url("/large");
    site.get(&["-o", "three", &url]).assert_code(0);
    let mut aioquic = Workshop::new().unwrap().prepare(Implementation::Aioquic).unwrap().command();
    aioquic.args(["client", "--connect", &format!("127.0.0.1:{}", site.port), "--ca", "cert.pem"]);
    aioquic.args([
        "--server-name",
        "localhost",
        "--alpn",
        "h3",
        "--download",
        "/large",
        "--out",
        ".",
    ]);
    let output = aioquic.current_dir(site.dir.path()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(fs::read(site.path("large")).unwrap() == content(8_000_000), "aioquic");
    for (name, flag) in [("two", "--http2"), ("one", "--http1.1")] {
        let output = site.curl(&[flag, "-o", name, "-w", "%{http_version}", &url]);
        let version = if name == "two" { "2" } else { "1.1" };
        assert_eq!(String::from_utf8_lossy(&output.stdout), version);
    }
    for name in ["one", "two", "three"] {
        assert!(fs::read(site.path(name)).unwrap() == content(8_000_000), "{name}");
    }
    let head = site.curl(&["--http2", "-I", &url]);
    let head = String::from_utf8_lossy(&head.stdout).to_lowercase();
    assert!(head.contains("content-length: 8000000"), "{head}");
    assert!(head.contains(&format!("alt-svc: h3=\":{}\"", site.port)), "{head}");
    let range = site.curl(&["-r", "100-199", &url]);
    assert!(range.stdout == content(8_000_000)[100..200]);
    until("the log", || site.records().len() == 6);
    let mut protocols: Vec<String> = site
        .records()
        .iter()
        .map(|record| record["protocol"].as_str().unwrap().to_owned())
        .collect();
    protocols.sort();
    assert_eq!(protocols, ["h2", "h2", "h2", "h3", "h3", "http/1.1"]);
    assert!(site.records().iter().all(|record| record["status"] == 200 || record["status"] == 206));
}

#[test]
fn the_origin_hears_who_asks_and_nothing_that_the_client_made_up() {
    let site = Site::start();
    let asked = site.asked(&[
        "-H",
        "X-Forwarded-For: 203.0.113.9",
        "-H",
        "Forwarded: for=203.0.113.9",
        "-H",
        "Connection: x-hop",
        "-H",
        "X-Hop: 1",
        "-H",
        "X-Kept: 1",
        "--http1.1",
        &site.url("/app/a?b=c"),
    ]);
    let host = format!("localhost:{}", site.port);
    assert_eq!(asked["path"], "/app/a?b=c");
    assert_eq!(header(&asked, "host"), [host.as_str()]);
    assert_eq!(header(&asked, "x-forwarded-for"), ["127.0.0.1"]);
    assert_eq!(header(&asked, "x-forwarded-proto"), ["https"]);
    assert_eq!(header(&asked, "forwarded"), [format!("for=127.0.0.1;host=\"{host}\";proto=https")]);
    assert_eq!(header(&asked, "x-kept"), ["1"]);
    assert!(header(&asked, "x-hop").is_empty());
    let head = site.curl(&["--http1.1", "-D", "-", "-o", "/dev/null", &site.url("/app")]);
    assert!(!String::from_utf8_lossy(&head.stdout).to_lowercase().contains("x-private"));
}

#[test]
fn bodies_go_up_with_and_without_a_length() {
    let site = Site::start();
    fs::write(site.path("upload"), content(3_000_000)).unwrap();
    let up_to = site.url("/app/up");
    for version in ["--http1.1", "--http2"] {
        let up = |more: &[&str]| {
            let all = [&[version, "--data-binary", "@upload"], more, &[up_to.as_str()]].concat();
            site.asked(&all)
        };
        assert_eq!(up(&[])["body"], 3_000_000, "{version}");
        assert_eq!(up(&["-H", "Transfer-Encoding: chunked"])["body"], 3_000_000, "{version}");
        assert_eq!(up(&["-H", "Expect: 100-continue"])["body"], 3_000_000, "{version}");
    }
    let report = site.get(&["-d", "@upload", "-o", "-", &site.url("/app/up")]);
    let asked: Value = serde_json::from_slice(&report.assert_code(0).stdout).unwrap();
    assert_eq!((&asked["body"], &asked["method"]), (&3_000_000.into(), &"POST".into()));
}

#[test]
fn names_and_routes_decide_and_strangers_are_told() {
    let site = Site::start();
    assert_eq!(site.status(&[&site.url("/read")]), "200");
    assert_eq!(
        site.status(&["-X", "POST", &site.url("/read")]),
        "404",
        "by nginx: the route is for GET"
    );
    let other = format!("https://other.example:{}/", site.port);
    let to = format!("other.example:{}:127.0.0.1", site.port);
    assert_eq!(site.status(&["--cacert", "other.pem", "--resolve", &to, &other]), "421");
    assert_eq!(site.status(&["--path-as-is", &site.url("/app/../hello.txt")]), "400");
    assert_eq!(site.status(&["--path-as-is", &site.url("/app/%2e%2e/hello.txt")]), "400");
    assert_eq!(site.status(&["-X", "TRACE", &site.url("/")]), "501");
    let plain = format!("http://localhost:{}/a?b", site.plain);
    let output = site.curl(&["-o", "/dev/null", "-w", "%{http_code} %{redirect_url}", &plain]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(said, format!("308 {}", site.url("/a?b")));
    assert_eq!(site.status(&["--http1.1", &site.url("/app/half")]), "200");
    assert!(!site.curl(&["--http1.1", &site.url("/app/half")]).status.success(), "it is half");
    assert!(!site.curl(&["--http2", &site.url("/app/half")]).status.success(), "it is half");
    assert_ne!(site.get(&["-o", "half", &site.url("/app/half")]).code, Some(0), "it is half");
}

#[test]
fn an_origin_that_fails_is_told_of_or_another_one_is_asked() {
    let mut site = Site::start();
    assert_eq!(site.status(&[&site.url("/gone")]), "502");
    let begun = Instant::now();
    assert_eq!(site.status(&[&site.url("/app/slow")]), "504");
    assert!(begun.elapsed() < Duration::from_millis(2900), "a second is the limit");
    // One of nginx's two places is gone: requests come through by the other.
    fs::remove_file(site.path("nginx.sock")).unwrap();
    let all: Vec<_> = (0..10).map(|_| site.status(&[&site.url("/hello.txt")])).collect();
    assert!(all.iter().all(|status| status == "200"), "{all:?}");
    until("the log", || site.records().len() == 12);
    let twice = site.records().iter().filter(|record| record["attempts"] == 2).count();
    assert_eq!(twice, 1, "after one failure it is left out");
    site.nginx = None;
    assert_eq!(site.status(&[&site.url("/hello.txt")]), "502");
    until("the log", || site.records().len() == 13);
    let last = site.records().pop().unwrap();
    assert_eq!(last["error"], "the origin cannot be reached");
    assert!(last["detail"].as_str().unwrap().contains("os error"), "{last}");
}

#[test]
fn a_file_is_read_again_and_a_wrong_one_changes_nothing() {
    let site = Site::start();
    let file = site.log("site.toml");
    assert_eq!(site.status(&[&site.url("/new/app")]), "404", "by nginx");
    let reload = |text: &str, expected: &str| {
        fs::write(site.path("site.toml"), text).unwrap();
        let before = site.log("gateway.log").len();
        site.signal("HUP");
        until("an answer to SIGHUP", || site.log("gateway.log").len() > before);
        until(expected, || site.log("gateway.log")[before..].contains(expected));
    };
    let (first, rest) = file.split_once("[[site.route]]").unwrap();
    let added =
        format!("{first}[[site.route]]\npath = \"/new\"\norigin = \"app\"\n[[site.route]]{rest}");
    reload(&added, "Read again: site.toml is right");
    assert_eq!(site.status(&[&site.url("/new/app")]), "200", "by Python");
    reload(&added.replace("origin = \"app\"", "origin = \"ap\""), "there is no origin \"ap\"");
    reload(&added.replace("listen = [", "listen = [\"127.0.0.1:0\", "), "takes a restart");
    reload(&format!("{added}\n[limits]\nrequests = 7\n"), "takes a restart");
    reload("nonsense", "All stays as it was");
    assert_eq!(site.status(&[&site.url("/new/app")]), "200", "as before");
    // The certificate comes with it, for QUIC and for TCP.
    openssl(site.dir.path(), "cert", "DNS:localhost,IP:127.0.0.1");
    reload(&added, "Read again");
    assert_eq!(site.status(&[&site.url("/new/app")]), "200", "with the new certificate");
    site.get(&["-o", "-", &site.url("/hello.txt")]).assert_code(0);
}

#[test]
fn what_two_servers_could_read_differently_goes_no_further() {
    let site = Site::start();
    let smuggled: [&str; 6] = [
        "POST /app HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\nabcde",
        "POST /app HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        "GET /app HTTP/1.1\r\nHost: localhost\r\nHost: other\r\n\r\n",
        "GET /app HTTP/1.1\r\n\r\n",
        "GET /app HTTP/1.1\r\nHost : localhost\r\n\r\n",
        "GET http://other/app HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ];
    for request in smuggled {
        let mut command = Command::new("openssl");
        command.args(["s_client", "-quiet", "-servername", "localhost", "-connect"]);
        command.arg(format!("127.0.0.1:{}", site.port));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = Process(command.spawn().unwrap());
        child.0.stdin.as_mut().unwrap().write_all(request.as_bytes()).unwrap();
        let mut said = [0; 12];
        child.0.stdout.as_mut().unwrap().read_exact(&mut said).unwrap();
        let said = String::from_utf8_lossy(&said).into_owned();
        assert!(said.starts_with("HTTP/1.1 4"), "{request:?} was answered by {said:?}");
    }
    let records = site.records();
    assert!(records.iter().all(|record| record["attempts"] == 0), "{records:?}");
}

#[test]
fn a_stopped_gateway_answers_what_is_under_way() {
    let mut site = Site::start_with("[origin.patient]\nservers = [\"http://127.0.0.1:9\"]\n");
    let file =
        site.log("site.toml").replace("answer_timeout_ms = 1000", "answer_timeout_ms = 9000");
    site.gateway = None;
    fs::write(site.path("site.toml"), file).unwrap();
    site.start_gateway();
    let mut command = Command::new("curl");
    command.args(["-sS", "--cacert", "cert.pem", &site.url("/app/slow")]);
    command.current_dir(site.dir.path()).stdout(Stdio::piped());
    let slow = command.spawn().unwrap();
    let mut command = quicket(site.dir.path());
    command.args(["get", "--ca", "cert.pem", "--http3-only", "-o", "-", &site.url("/app/slow3")]);
    let slow3 = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let asked = || fs::read_to_string(site.path("slow")).unwrap_or_default();
    until("both requests at the origin", || asked().lines().count() == 2);
    site.signal("TERM");
    for child in [slow, slow3] {
        let output = child.wait_with_output().unwrap();
        let asked: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(asked["method"], "GET");
    }
    let mut gateway = site.gateway.take().unwrap();
    until("the end", || gateway.0.try_wait().unwrap().is_some_and(|status| status.success()));
}

#[test]
fn the_file_is_checked_and_every_fault_told() {
    let site = Site::start();
    let check = |name: &str| {
        let mut command = quicket(site.dir.path());
        command.args(["gateway", "--check", name]).output().unwrap()
    };
    let right = check("site.toml");
    let said = String::from_utf8_lossy(&right.stdout).into_owned();
    assert!(right.status.success() && said.contains("2 certificates"), "{right:?}");
    fs::write(
        site.path("wrong.toml"),
        "listen = [\"127.0.0.1:1\"]\n[[site]]\nnames = [\"a b\"]\nroute = []\n",
    )
    .unwrap();
    let wrong = check("wrong.toml");
    assert_eq!(wrong.status.code(), Some(2));
    let said = String::from_utf8_lossy(&wrong.stderr).into_owned();
    for what in ["certificate: there is none", "\"a b\" is no DNS name", "site 1: has no route"] {
        assert!(said.contains(what), "{said}");
    }
    assert_eq!(check("nowhere.toml").status.code(), Some(2));
}

#[test]
fn one_line_puts_a_gateway_in_front_of_a_server() {
    let site = Site::start();
    let (_python, server) = python(site.dir.path());
    let port = free_port();
    let log = fs::File::create(site.path("try.log")).unwrap();
    let mut command = quicket(site.dir.path());
    command.args(["gateway", "try", &format!("http://127.0.0.1:{server}")]);
    command.args(["-l", &format!("127.0.0.1:{port}")]).stderr(log);
    let _gateway = Process(command.spawn().unwrap());
    until("the hint", || site.log("try.log").contains("--pin"));
    let log = site.log("try.log");
    let hint = log.lines().find(|line| line.contains("quicket get --pin")).unwrap();
    let words: Vec<&str> = hint.split_whitespace().skip(2).collect();
    let outcome = get(site.dir.path(), &[&words[..], &["--http3-only", "-o", "-"]].concat());
    let asked: Value = serde_json::from_slice(&outcome.assert_code(0).stdout).unwrap();
    assert_eq!(asked["path"], "/");
    until("a line for it", || site.log("try.log").contains("\"protocol\":\"h3\""));
    // A second one finds the address taken, and says so.
    let mut command = quicket(site.dir.path());
    command.args(["gateway", "try", "http://127.0.0.1:1", "-l", &format!("127.0.0.1:{port}")]);
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(6));
    assert!(said.contains("(TCP)") && said.contains("ss -ltnp"), "{said}");
    assert!(said.contains("--listen"), "{said}");
}
