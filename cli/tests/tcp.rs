//! `quicket get` where QUIC does not get through: HTTP/2 and 1.1 over TCP, from nginx and Python.

mod common;

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use common::{Outcome, content, get};
use serde_json::Value;
use tempfile::TempDir;

/// A process that serves a directory with a few files, HTTP over TLS over TCP.
struct Foreign {
    child: Child,
    dir: TempDir,
    port: u16,
}

impl Foreign {
    fn start(command: impl FnOnce(&Path, u16) -> Command) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("root");
        fs::create_dir(&root).unwrap();
        fs::write(root.join("hello.txt"), "hello, world\n").unwrap();
        fs::write(root.join("large"), content(8_000_000)).unwrap();
        // Everything below is reached by whoever the server runs as.
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        }
        certificate(dir.path());
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut command = command(dir.path(), port);
        let child = command
            .current_dir(dir.path())
            .stdout(Stdio::null())
            .stderr(fs::File::create(dir.path().join("log")).unwrap())
            .spawn();
        let child = child.unwrap_or_else(|error| {
            panic!(
                "{:?}: {error}; install it (apt-get install nginx-light python3)",
                command.get_program()
            )
        });
        let mut server = Self { child, dir, port };
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            let log = fs::read_to_string(server.dir.path().join("log")).unwrap();
            assert!(server.child.try_wait().unwrap().is_none(), "the server ended: {log}");
            std::thread::sleep(Duration::from_millis(10));
        }
        server
    }

    fn nginx(protocol: &str) -> Self {
        Self::start(|dir, port| {
            fs::write(dir.join("nginx.conf"), configuration(port, protocol)).unwrap();
            let mut nginx = Command::new("nginx");
            nginx.arg("-p").arg(dir).args(["-c", "nginx.conf", "-e", "stderr"]);
            nginx
        })
    }

    fn python() -> Self {
        Self::start(|_, port| {
            let mut python = Command::new("python3");
            python.args(["-c", PYTHON, &port.to_string()]);
            python
        })
    }

    fn url(&self, path: &str) -> String {
        format!("https://127.0.0.1:{}{path}", self.port)
    }

    fn get(&self, arguments: &[&str]) -> Outcome {
        let all: Vec<&str> = ["--ca", "cert.pem"].iter().chain(arguments).copied().collect();
        get(self.dir.path(), &all)
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const PYTHON: &str = "
import http.server, os, ssl, sys
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain('cert.pem', 'key.pem')
os.chdir('root')
server = http.server.ThreadingHTTPServer(('127.0.0.1', int(sys.argv[1])), http.server.SimpleHTTPRequestHandler)
server.socket = context.wrap_socket(server.socket, server_side=True)
server.serve_forever()
";

/// As `openssl req -x509` makes it, with names.
fn certificate(dir: &Path) {
    let mut openssl = Command::new("openssl");
    openssl.current_dir(dir).args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]);
    openssl.args(["-keyout", "key.pem", "-out", "cert.pem", "-subj", "/CN=localhost"]);
    openssl.args(["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]);
    assert!(openssl.output().expect("openssl is installed").status.success());
}

fn configuration(port: u16, protocol: &str) -> String {
    format!(
        "daemon off; master_process off; pid nginx.pid; worker_processes 1;
        events {{ }}
        http {{
            access_log off;
            client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi;
            uwsgi_temp_path uwsgi; scgi_temp_path scgi;
            server {{
                listen 127.0.0.1:{port} ssl {protocol};
                ssl_certificate cert.pem; ssl_certificate_key key.pem;
                ssl_protocols TLSv1.3;
                root root;
                location = /near {{ return 302 /echo; }}
                location = /away {{ return 302 https://localhost:{port}/echo; }}
                location = /plain {{ return 302 http://127.0.0.1:{port}/echo; }}
                location = /circle {{ return 302 /circle; }}
                location = /busy {{ return 503; }}
                location = /echo {{
                    return 200 '$request_method $http_authorization $http_x_mine $content_length\\n';
                }}
            }}
        }}"
    )
}

fn text(outcome: &Outcome) -> &str {
    std::str::from_utf8(&outcome.stdout).unwrap()
}

fn connection(outcome: &Outcome) -> Value {
    outcome.assert_code(0).report()["connections"][0].clone()
}

#[test]
fn http2_and_http1_bring_files() {
    for (protocol, alpn) in [("http2", "h2"), ("", "http/1.1")] {
        let server = Foreign::nginx(protocol);
        let urls = ["/large", "/hello.txt", "/echo"].map(|path| server.url(path));
        let outcome =
            server.get(&["--http2", "--json", "-o", "out/", &urls[0], &urls[1], &urls[2]]);
        let connection = connection(&outcome);
        assert_eq!((&connection["alpn"], &connection["transport"]), (&alpn.into(), &"tcp".into()));
        assert!(fs::read(server.dir.path().join("out/large")).unwrap() == content(8_000_000));
        assert_eq!(fs::read(server.dir.path().join("out/hello.txt")).unwrap(), b"hello, world\n");
    }
}

#[test]
fn where_nobody_answers_by_quic_tcp_is_taken_and_remembered() {
    let server = Foreign::nginx("http2");
    let url = server.url("/hello.txt");
    let first = server.get(&["-v", &url, "-o", "-"]);
    assert_eq!(first.assert_code(0).stdout, b"hello, world\n");
    assert!(first.stderr.contains("(UDP)") && first.stderr.contains("(TCP)"), "{}", first.stderr);
    assert!(!first.stderr.contains("at once"), "{}", first.stderr);
    let second = server.get(&["-v", &url, "-o", "-"]);
    assert_eq!(second.assert_code(0).stdout, b"hello, world\n");
    assert!(second.stderr.contains("TCP is tried at once"), "{}", second.stderr);
    let forbidden = server.get(&["--http3-only", "-v", "--max-time", "1", &url, "-o", "-"]);
    forbidden.assert_code(3);
    assert!(!forbidden.stderr.contains("(TCP)"), "{}", forbidden.stderr);
}

#[test]
fn a_server_that_is_not_trusted_is_not_asked_over_tcp_either() {
    let server = Foreign::nginx("http2");
    let outcome = get(server.dir.path(), &["--http2", &server.url("/hello.txt"), "-o", "x"]);
    outcome.assert_code(4);
    assert!(outcome.stderr.contains("--ca"), "{}", outcome.stderr);
    let pinned = format!("sha256:{}", "ab".repeat(32));
    let outcome =
        get(server.dir.path(), &["--pin", &pinned, "--http2", &server.url("/"), "-o", "x"]);
    outcome.assert_code(4);
    assert!(outcome.stderr.contains("not pinned"), "{}", outcome.stderr);
}

#[test]
fn redirects_take_no_secrets_to_another_host_and_never_leave_encryption() {
    let server = Foreign::nginx("http2");
    let follow = |path: &str| {
        let flags = ["-H", "Authorization: secret", "-H", "X-Mine: yes", "--http2", "-L"];
        server.get(&[&flags[..], &["--max-redirects", "3", &server.url(path), "-o", "-"]].concat())
    };
    assert_eq!(text(&follow("/near")), "GET secret yes \n");
    assert_eq!(text(&follow("/away")), "GET  yes \n");
    for (path, words) in [("/plain", "not encrypted"), ("/circle", "a circle?")] {
        let outcome = follow(path);
        outcome.assert_code(1);
        assert!(outcome.stderr.contains(words), "{path}: {}", outcome.stderr);
    }
    let unasked = server.get(&["--http2", &server.url("/near"), "-o", "-"]);
    unasked.assert_code(1);
    assert!(unasked.stderr.contains("--location"), "{}", unasked.stderr);
}

#[test]
fn data_is_posted_and_heads_are_asked_for() {
    for protocol in ["http2", ""] {
        let server = Foreign::nginx(protocol);
        let url = server.url("/echo");
        let posted = server.get(&["--http2", "-d", "a=1", "-d", "b=2", &url, "-o", "-"]);
        assert_eq!(text(&posted), "POST   7\n", "{}", posted.stderr);
        let head = server.get(&["--http2", "-I", &server.url("/large")]);
        assert!(text(&head).contains("content-length: 8000000\n"), "{head:?}");
        assert!(text(&head).starts_with("HTTP/"), "{head:?}");
    }
}

#[test]
fn what_may_pass_is_tried_again() {
    let server = Foreign::nginx("http2");
    let outcome = server.get(&["--http2", "--retry", "2", &server.url("/busy"), "-o", "x"]);
    outcome.assert_code(1);
    let tries = outcome.stderr.matches("trying again in").count();
    assert!(tries == 2 && outcome.stderr.contains("503"), "{}", outcome.stderr);
}

#[test]
fn the_rest_of_a_file_is_asked_for_and_a_whole_one_is_not_fetched_again() {
    let server = Foreign::nginx("http2");
    let url = server.url("/large");
    let head = server.get(&["--http2", "-I", &url]);
    let etag = text(&head).lines().find_map(|line| line.strip_prefix("etag: ")).unwrap().to_owned();
    let at = |name: &str| server.dir.path().join(name);
    fs::write(at("large.part"), &content(8_000_000)[..3_000_000]).unwrap();
    fs::write(at("large.part.etag"), etag).unwrap();
    let rest = server.get(&["--http2", "-c", "--json", &url, "-o", "large"]);
    let file = rest.assert_code(0).report()["files"][0].clone();
    assert_eq!((&file["status"], &file["received"]), (&206.into(), &5_000_000.into()));
    assert!(fs::read(at("large")).unwrap() == content(8_000_000));
    let whole = server.get(&["--http2", "-c", "--json", &url, "-o", "large"]);
    assert_eq!(whole.assert_code(0).report()["files"][0]["received"], 0);
}

#[test]
fn a_server_without_ranges_and_with_http_1_0_is_understood() {
    let server = Foreign::python();
    let url = server.url("/large");
    let outcome = server.get(&["--json", &url, &server.url("/hello.txt"), "-o", "out/"]);
    assert_eq!(connection(&outcome)["alpn"], "http/1.1");
    assert!(fs::read(server.dir.path().join("out/large")).unwrap() == content(8_000_000));
    // It does not know ranges: the length tells that the file is here.
    let again = server.get(&["-c", "--json", &url, "-o", "out/"]);
    assert_eq!(again.assert_code(0).report()["files"][0]["received"], 0);
}
