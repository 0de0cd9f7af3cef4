//! `quicket get` against the HTTP/3 of others: aioquic's and Caddy's (quic-go); and Caddy behind `quicket gateway`.

mod common;

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use common::{Outcome, content, get, openssl};
use quicket_lab::peers::{Implementation, Workshop};
use quicket_testing::{Process, free_port};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A process that serves a directory with a few files.
struct Foreign {
    child: Child,
    /// It says things as long as it runs.
    _said: Option<BufReader<ChildStdout>>,
    dir: TempDir,
    port: u16,
}

fn site() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("root");
    fs::create_dir(&root).unwrap();
    fs::write(root.join("hello.txt"), "hello, world\n").unwrap();
    fs::write(root.join("large"), content(3_000_000)).unwrap();
    for number in 0..40 {
        fs::write(root.join(format!("file{number}")), content(1000 * number)).unwrap();
    }
    openssl(dir.path(), "cert", "DNS:localhost,IP:127.0.0.1");
    dir
}

impl Foreign {
    fn aioquic(flags: &[&str]) -> Self {
        let dir = site();
        let mut command =
            Workshop::new().unwrap().prepare(Implementation::Aioquic).unwrap().command();
        command.args(["server", "--listen", "127.0.0.1:0", "--alpn", "h3", "--www", "root"]);
        command.args(["--cert", "cert.pem", "--key", "cert.key"]).args(flags);
        command.current_dir(dir.path()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        let mut said = BufReader::new(child.stdout.take().unwrap());
        said.read_line(&mut line).unwrap();
        let listening: Value = serde_json::from_str(&line).unwrap();
        let address = listening["address"].as_str().unwrap();
        let port = address.rsplit_once(':').unwrap().1.parse().unwrap();
        Self { child, _said: Some(said), dir, port }
    }

    fn caddy() -> Self {
        Self::caddy_before(1)
    }

    /// Caddy, with what is at this port of ours behind `/socket`.
    fn caddy_before(behind: u16) -> Self {
        let dir = site();
        let port = free_port();
        fs::write(dir.path().join("caddy.json"), configuration(dir.path(), port, behind)).unwrap();
        let mut command = Workshop::new().unwrap().prepare_caddy().unwrap().command();
        command.args(["run", "--config", "caddy.json"]).current_dir(dir.path());
        command.env("HOME", dir.path()).stdin(Stdio::null());
        command.stderr(fs::File::create(dir.path().join("log")).unwrap());
        let child = command.spawn().unwrap();
        let mut server = Self { child, _said: None, dir, port };
        // It has both ports before it serves any.
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            let log = fs::read_to_string(server.path("log")).unwrap();
            assert!(server.child.try_wait().unwrap().is_none(), "Caddy ended: {log}");
            std::thread::sleep(Duration::from_millis(10));
        }
        server
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn url(&self, path: &str) -> String {
        format!("https://127.0.0.1:{}{path}", self.port)
    }

    fn get(&self, arguments: &[&str]) -> Outcome {
        let all = [&["--ca", "cert.pem", "--http3-only"], arguments].concat();
        get(self.dir.path(), &all)
    }

    /// Fetches 40 files and a large one on one connection.
    fn fetch_all(&self) -> Value {
        let urls: Vec<String> = (0..40).map(|number| self.url(&format!("/file{number}"))).collect();
        let large = self.url("/large");
        let mut flags = vec!["--json", "-o", "out/", &large];
        flags.extend(urls.iter().map(String::as_str));
        let report = self.get(&flags).assert_code(0).report();
        assert!(fs::read(self.path("out/large")).unwrap() == content(3_000_000));
        for number in 0..40 {
            let file = fs::read(self.path(&format!("out/file{number}"))).unwrap();
            assert!(file == content(1000 * number), "file{number}");
        }
        assert_eq!(report["connections"].as_array().unwrap().len(), 1, "{report}");
        report["connections"][0].clone()
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Files over HTTP/3, and answers to other requests, with nothing fetched from elsewhere.
fn configuration(dir: &Path, port: u16, behind: u16) -> String {
    let answer = |path: &str, status: u16, headers: Value, body: &str| {
        json!({
            "match": [{ "path": [path] }],
            "handle": [{ "handler": "static_response", "status_code": status,
                         "headers": headers, "body": body }],
        })
    };
    let to = |place: String| json!({ "Location": [place] });
    json!({
        "admin": { "disabled": true, "config": { "persist": false } },
        "logging": { "logs": { "default": { "level": "ERROR" } } },
        "apps": {
            "http": { "servers": { "files": {
                "listen": [format!("127.0.0.1:{port}")],
                "protocols": ["h1", "h2", "h3"],
                "automatic_https": { "disable": true },
                "routes": [
                    { "match": [{ "path": ["/socket"] }],
                      "handle": [{ "handler": "reverse_proxy",
                                   "upstreams": [{ "dial": format!("127.0.0.1:{behind}") }] }] },
                    answer("/near", 302, to("/echo".into()), ""),
                    answer("/away", 302, to(format!("https://localhost:{port}/echo")), ""),
                    answer("/plain", 302, to(format!("http://127.0.0.1:{port}/echo")), ""),
                    answer("/busy", 503, json!({}), ""),
                    answer("/echo", 200, json!({}), "{http.request.method} \
                        {http.request.header.authorization} {http.request.header.x-mine} \
                        {http.request.body}\n"),
                    { "handle": [{ "handler": "file_server", "root": dir.join("root") }] },
                ],
                "tls_connection_policies": [{}],
            } } },
            "tls": { "certificates": { "load_files": [
                { "certificate": dir.join("cert.pem"), "key": dir.join("cert.key") },
            ] } },
        },
    })
    .to_string()
}

fn text(outcome: &Outcome) -> &str {
    std::str::from_utf8(&outcome.stdout).unwrap()
}

#[test]
fn aioquic_serves_files_of_all_sizes_and_the_session_is_resumed() {
    for flags in [&[][..], &["--retry"]] {
        let server = Foreign::aioquic(flags);
        let first = server.fetch_all();
        assert_eq!((&first["alpn"], &first["resumed"]), (&"h3".into(), &false.into()), "{first}");
        let again = server.get(&["--json", &server.url("/hello.txt"), "-o", "again"]);
        let report = again.assert_code(0).report();
        assert_eq!(report["connections"][0]["resumed"], true, "{report}");
        assert_eq!(fs::read(server.path("again")).unwrap(), b"hello, world\n");
    }
}

#[test]
fn what_aioquic_does_not_have_is_said() {
    let server = Foreign::aioquic(&[]);
    let absent = server.get(&[&server.url("/absent"), "-o", "x"]);
    assert!(absent.assert_code(1).stderr.contains("404"), "{}", absent.stderr);
    // It knows no ranges: what is there already is fetched again.
    fs::write(server.path("large.part"), &content(3_000_000)[..1_000_000]).unwrap();
    server.get(&["-c", &server.url("/large"), "-o", "large"]).assert_code(0);
    assert!(fs::read(server.path("large")).unwrap() == content(3_000_000));
    let stranger = get(server.dir.path(), &["--http3-only", &server.url("/hello.txt"), "-o", "x"]);
    stranger.assert_code(4);
}

#[test]
fn caddy_serves_files_of_all_sizes_and_parts_of_them() {
    let server = Foreign::caddy();
    let connection = server.fetch_all();
    assert_eq!(connection["alpn"], "h3", "{connection}");
    let url = server.url("/large");
    let head = server.get(&["-I", &url]);
    assert!(text(&head).starts_with("HTTP/3 200"), "{head:?}");
    let etag = text(&head).lines().find_map(|line| line.strip_prefix("etag: ")).unwrap();
    fs::write(server.path("large.part"), &content(3_000_000)[..1_000_000]).unwrap();
    fs::write(server.path("large.part.etag"), etag).unwrap();
    let rest = server.get(&["-c", "--json", &url, "-o", "large"]);
    let file = rest.assert_code(0).report()["files"][0].clone();
    assert_eq!((&file["status"], &file["received"]), (&206.into(), &2_000_000.into()));
    assert!(fs::read(server.path("large")).unwrap() == content(3_000_000));
}

#[test]
fn caddy_hears_what_is_sent_and_sends_elsewhere_without_secrets() {
    let server = Foreign::caddy();
    let follow = |path: &str| {
        let flags = ["-H", "Authorization: secret", "-H", "X-Mine: yes", "-L"];
        server.get(&[&flags[..], &[&server.url(path), "-o", "-"]].concat())
    };
    assert_eq!(text(&follow("/near")), "GET secret yes \n");
    assert_eq!(text(&follow("/away")), "GET  yes \n");
    assert!(follow("/plain").assert_code(1).stderr.contains("not encrypted"));
    let posted = server.get(&["-d", "a=1", "-d", "b=2", &server.url("/echo"), "-o", "-"]);
    assert_eq!(text(&posted), "POST   a=1&b=2\n", "{}", posted.stderr);
    let busy = server.get(&["--retry", "1", &server.url("/busy"), "-o", "x"]);
    busy.assert_code(1);
    let tries = busy.stderr.matches("trying again in").count();
    assert!(tries == 1 && busy.stderr.contains("503"), "{}", busy.stderr);
}

#[test]
fn what_does_not_come_by_caddys_quic_comes_by_its_tcp() {
    let server = Foreign::caddy();
    let url = server.url("/large");
    let over_tcp =
        get(server.dir.path(), &["--ca", "cert.pem", "--http2", "--json", &url, "-o", "large"]);
    let report = over_tcp.assert_code(0).report();
    assert_eq!(report["connections"][0]["alpn"], "h2", "{report}");
    assert!(fs::read(server.path("large")).unwrap() == content(3_000_000));
}

/// A gateway whose origin is this server, over HTTP/3; curl asks it.
struct Gateway<'a> {
    child: Child,
    port: u16,
    server: &'a Foreign,
}

impl<'a> Gateway<'a> {
    fn before(server: &'a Foreign) -> Self {
        let port = free_port();
        let file = format!(
            "listen = [\"127.0.0.1:{port}\"]\n[[certificate]]\nchain = \"cert.pem\"\nkey = \"cert.key\"\n\
             [origin.caddy]\nservers = [\"h3://127.0.0.1:{}\"]\nca = \"cert.pem\"\n\
             [[site]]\nnames = [\"*\"]\n[[site.route]]\norigin = \"caddy\"\n",
            server.port
        );
        fs::write(server.path("site.toml"), file).unwrap();
        let mut command = common::quicket(server.dir.path());
        command
            .args(["gateway", "site.toml"])
            .stderr(fs::File::create(server.path("gateway.log")).unwrap());
        let mut gateway = Self { child: command.spawn().unwrap(), port, server };
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            let log = fs::read_to_string(server.path("gateway.log")).unwrap();
            assert!(gateway.child.try_wait().unwrap().is_none(), "the gateway ended: {log}");
            std::thread::sleep(Duration::from_millis(10));
        }
        gateway
    }

    fn curl(&self, arguments: &[&str], path: &str) -> Vec<u8> {
        let mut command = Command::new("curl");
        command.args(["-sS", "--fail", "--cacert", "cert.pem", "--max-time", "20"]).args(arguments);
        command.arg(format!("https://localhost:{}{path}", self.port));
        let output = command.current_dir(self.server.dir.path()).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        output.stdout
    }
}

impl Drop for Gateway<'_> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn caddy_is_an_origin_of_the_gateway_over_http3() {
    let mut server = Foreign::caddy();
    let body: String = (0..400_000).map(|at| format!("{at} ")).collect();
    fs::write(server.path("sent"), &body).unwrap();
    let gateway = Gateway::before(&server);
    for version in ["--http2", "--http1.1"] {
        assert!(gateway.curl(&[version], "/large") == content(3_000_000));
        let echo = gateway.curl(&[version, "--data-binary", "@sent"], "/echo");
        let echo = String::from_utf8(echo).unwrap();
        assert!(
            echo.starts_with("POST ") && echo.trim_end().ends_with(body.trim_end()),
            "{echo:.80}"
        );
        assert_eq!(gateway.curl(&[version, "-r", "5-9"], "/large"), content(3_000_000)[5..10]);
        gateway.curl(&[version, "-I"], "/hello.txt");
    }
    drop(gateway);
    // Many at once.
    let gateway = Gateway::before(&server);
    let urls: Vec<String> =
        (0..40).map(|at| format!("https://localhost:{}/file{at}", gateway.port)).collect();
    let mut flags = vec!["--http2", "-Z"];
    flags.extend(urls.iter().map(String::as_str));
    let all = gateway.curl(&flags, "/hello.txt");
    assert_eq!(all.len(), (0..40).map(|at| 1000 * at).sum::<usize>() + 13);
    drop(gateway);
    let _ = server.child.kill();
}

/// RFC 9220, with quic-go's server. What is behind it speaks HTTP/1.1, and so does the client.
#[test]
fn caddy_takes_websocket_of_the_gateway_over_http3() {
    let python = || {
        let mut command = Command::new("python3");
        command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/python/upgrade.py"));
        command
    };
    let (_behind, behind) = Process::start(python().arg("server"));
    let server = Foreign::caddy_before(behind.parse().unwrap());
    let gateway = Gateway::before(&server);
    for (path, expected) in [("/socket", "101\nall\n"), ("/busy", "503\n")] {
        let mut command = python();
        command.args(["client", &gateway.port.to_string(), "cert.pem", path]);
        let output = command.current_dir(server.dir.path()).output().unwrap();
        let logs =
            ["log", "gateway.log"].map(|name| fs::read_to_string(server.path(name)).unwrap());
        assert_eq!(String::from_utf8_lossy(&output.stdout), expected, "{path}: {logs:?}");
    }
}
