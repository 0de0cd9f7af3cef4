//! What one client address may take, and who it is behind a balancer: HAProxy.

mod common;

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::Duration;

use common::{ECHO, Gateway, directory, header, python};
use quicket_testing::{Process, free_port, until};

fn start(top: &str, limits: &str) -> (Gateway, Process) {
    let (python, port) = python(ECHO);
    let file = format!(
        "[origin.app]\nservers = [\"http://127.0.0.1:{port}\"]\n\
         [[site]]\nnames = [\"*\"]\n[[site.route]]\norigin = \"app\"\n[limits]\n{limits}\n"
    );
    let top = format!("listen = [\"127.0.0.1:0\"]\n{top}");
    (Gateway::start_with(directory(), &top, &file), python)
}

/// The statuses of so many requests on one connection, one after the other.
fn statuses(gateway: &Gateway, count: usize) -> Vec<String> {
    let urls: Vec<String> = (0..count).map(|at| gateway.url(&format!("/{at}"))).collect();
    let mut arguments = vec!["-w", "%{http_code}\n"];
    for url in &urls {
        arguments.extend(["-o", "/dev/null", url.as_str()]);
    }
    gateway.text(&arguments).lines().map(ToOwned::to_owned).collect()
}

#[test]
fn requests_above_the_rate_are_told_when_to_come_again() {
    let (gateway, _python) = start("", "client_requests_per_s = 5");
    let all = statuses(&gateway, 60);
    let taken = all.iter().filter(|status| *status == "200").count();
    assert!((5..30).contains(&taken), "{all:?}");
    assert!(all.iter().all(|status| status == "200" || status == "429"), "{all:?}");
    until("a refusal", || {
        let (status, head) = gateway.head(&[&gateway.url("/")]);
        assert!(status == 200 || head.contains("retry-after: 1\r\n"), "{head}");
        status == 429
    });
    until("the next second", || gateway.status(&[&gateway.url("/")]) == 200);
    // A reload ends the limit at once.
    let file = fs::read_to_string(gateway.path("site.toml")).unwrap();
    let rest = file.split("[origin.app]").nth(1).unwrap().split("[limits]").next().unwrap();
    gateway.reload("listen = [\"127.0.0.1:0\"]\n", &format!("[origin.app]{rest}")).unwrap();
    assert_eq!(statuses(&gateway, 30), vec!["200"; 30]);
}

#[test]
fn requests_at_once_are_counted_over_all_connections() {
    let (gateway, _python) = start("", "client_requests = 2");
    let slow = || {
        let mut command = Command::new("curl");
        command.args(["-sS", "--cacert", "cert.pem", "-o", "/dev/null", "-w", "%{http_code}"]);
        command.arg(gateway.url("/?sleep=5")).current_dir(gateway.path(""));
        command.stdout(Stdio::piped()).spawn().unwrap()
    };
    let all: Vec<_> = (0..5).map(|_| slow()).collect();
    let mut statuses: Vec<String> = all
        .into_iter()
        .map(|child| String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap())
        .collect();
    statuses.sort();
    assert_eq!(statuses, ["200", "200", "429", "429", "429"]);
    until("room", || gateway.status(&[&gateway.url("/")]) == 200);
}

#[test]
fn requests_of_a_site_are_counted_over_all_clients_and_reloads() {
    let python = python(ECHO);
    let file = |more: &str| {
        format!(
            "[origin.app]\nservers = [\"http://127.0.0.1:{}\"]\n[[site]]\nnames = [\"*\"]\n{more}\
             [[site.route]]\norigin = \"app\"\n",
            python.1
        )
    };
    let top = "listen = [\"127.0.0.1:0\"]\n";
    let gateway = Gateway::start_with(directory(), top, &file("requests = 1\n"));
    let slow = || {
        let mut slow = Command::new("curl");
        slow.args(["-sS", "--cacert", "cert.pem", "-o", "/dev/null", "-w", "%{http_code}"]);
        slow.arg(gateway.url("/?sleep=5")).current_dir(gateway.path("")).stdout(Stdio::piped());
        slow.spawn().unwrap()
    };
    let mut asking = slow();
    until("a refusal", || {
        // The one that is under way may be one of these, so that the slow one was refused.
        if asking.try_wait().unwrap().is_some() {
            asking = slow();
        }
        let (status, head) = gateway.head(&[&gateway.url("/")]);
        assert!(status == 200 || (status == 503 && head.contains("retry-after: 1\r\n")), "{head}");
        status == 503
    });
    gateway.reload(top, &file("requests = 1\n")).unwrap();
    assert_eq!(gateway.status(&[&gateway.url("/")]), 503, "it is under way over a reload");
    assert_eq!(asking.wait_with_output().unwrap().stdout, b"200");
    until("room", || gateway.status(&[&gateway.url("/")]) == 200);
    gateway.reload(top, &file("requests_per_s = 5\n")).unwrap();
    let all = statuses(&gateway, 60);
    let taken = all.iter().filter(|status| *status == "200").count();
    assert!((5..30).contains(&taken), "{all:?}");
    assert!(all.iter().all(|status| status == "200" || status == "503"), "{all:?}");
    let told = gateway.reload(top, &file("requests = 0\n")).unwrap_err();
    assert!(told.contains("site 1.requests"), "{told}");
}

#[test]
fn connections_above_the_limit_are_closed() {
    let (gateway, _python) = start("", "client_connections = 2");
    let connect = || TcpStream::connect(gateway.addresses[0]).unwrap();
    let mut held = Vec::new();
    until("the limit", || {
        let mut stream = connect();
        stream.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        match stream.read(&mut [0; 1]) {
            Ok(0) => true,
            Err(error) if error.kind() == ErrorKind::ConnectionReset => true,
            // It was let in, and waits for the handshake.
            _ => {
                held.push(stream);
                false
            }
        }
    });
    assert_eq!(held.len(), 2);
    assert!(!gateway.curl(&[&gateway.url("/")]).status.success());
    drop(held);
    until("room", || gateway.curl(&[&gateway.url("/")]).status.success());
}

#[test]
fn handshakes_over_quic_are_counted_and_others_go_on() {
    let (gateway, _python) = start("", "client_handshakes_per_s = 3");
    let roots = quicket::Roots::PemFile(gateway.path("cert.pem"));
    let address = gateway.addresses[0];
    let refused = gateway.runtime.block_on(async move {
        let tls = quicket::ClientTls::builder().roots(roots).alpn(["h3"]);
        let config = quicket::ClientConfig::new(tls.build().unwrap());
        let mut refused = 0;
        for _ in 0..20 {
            let made = quicket::tokio::Connection::connect(address, "localhost", &config).await;
            refused += usize::from(made.is_err());
        }
        refused
    });
    assert!((1..=17).contains(&refused), "{refused} of 20");
    let reload = gateway.reload(
        "listen = [\"127.0.0.1:0\"]\n",
        "[[site]]\nnames = [\"*\"]\n\
        [[site.route]]\nrespond = { status = 204 }\n",
    );
    assert!(reload.unwrap_err().contains("that takes a restart"));
}

/// HAProxy in front of the gateway, which speaks PROXY v2 to it.
fn haproxy(dir: &std::path::Path, to: u16) -> (Process, u16) {
    let port = free_port();
    let text = format!(
        "defaults\n mode tcp\n timeout connect 5s\n timeout client 20s\n timeout server 20s\n\
         frontend f\n bind 127.0.0.1:{port}\n default_backend b\n\
         backend b\n server s 127.0.0.1:{to} send-proxy-v2\n"
    );
    fs::write(dir.join("haproxy.cfg"), text).unwrap();
    let mut command = Command::new("haproxy");
    command.args(["-db", "-q", "-f", "haproxy.cfg"]).current_dir(dir);
    let child = command.spawn();
    let child = child.unwrap_or_else(|error| panic!("haproxy: {error}; apt-get install haproxy"));
    let process = Process(child);
    until("HAProxy", || TcpStream::connect(("127.0.0.1", port)).is_ok());
    (process, port)
}

#[test]
fn a_balancer_says_who_the_client_is() {
    let (gateway, _python) = start("proxy_protocol = [\"127.0.0.1/32\"]\n", "");
    let (_haproxy, port) = haproxy(gateway.dir.path(), gateway.port());
    for version in ["--http1.1", "--http2"] {
        let url = format!("https://localhost:{port}/");
        // Another address than that of HAProxy's own connection.
        let asked = gateway.asked(&["--interface", "127.0.0.9", version, &url]);
        assert_eq!(header(&asked, "x-forwarded-for"), ["127.0.0.9"], "{version}");
    }
    assert!(!gateway.curl(&[&gateway.url("/")]).status.success(), "the header is due");
    // What is no header ends the connection.
    let mut stream = TcpStream::connect(gateway.addresses[0]).unwrap();
    stream.write_all(b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n").unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    assert!(matches!(stream.read(&mut [0; 1]), Ok(0) | Err(_)));
}

#[test]
fn nobody_else_says_who_the_client_is() {
    let (gateway, _python) = start("proxy_protocol = [\"192.0.2.0/24\"]\n", "");
    let (_haproxy, port) = haproxy(gateway.dir.path(), gateway.port());
    assert!(!gateway.curl(&[&format!("https://localhost:{port}/")]).status.success());
    assert_eq!(gateway.status(&[&gateway.url("/")]), 200);
}
