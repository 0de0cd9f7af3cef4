//! `quicket connect` through `quicket gateway` to a TCP server in Python.

mod common;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::process::{Command, Stdio};
use std::time::Duration;

#[path = "../../gateway/tests/mutual_tls/authority.rs"]
mod authority;

use authority::{authority, client};
use common::{Outcome, openssl, quicket};
use quicket_testing::{Process, until};
use tempfile::TempDir;

/// How long anything here may take to come about.
const PATIENCE: Duration = Duration::from_secs(20);

/// Greets, and says in upper case what comes.
const PYTHON: &str = "
import socket, threading
def serve(s):
    s.sendall(b'ready\\n')
    while data := s.recv(65536):
        s.sendall(data.upper())
    s.close()
listener = socket.create_server(('127.0.0.1', 0))
print(listener.getsockname()[1], flush=True)
while True:
    threading.Thread(target=serve, args=[listener.accept()[0]], daemon=True).start()
";

/// The server and the gateway, which listens at this port.
fn start(dir: &TempDir, protocol: &str) -> (Process, Process, u16) {
    openssl(dir.path(), "cert", "DNS:localhost,IP:127.0.0.1");
    let mut python = Command::new("python3");
    let mut python = python.args(["-c", PYTHON]).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(python.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let port = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let file = format!(
        "listen = [\"127.0.0.1:{port}\"]\n[[certificate]]\nchain = \"cert.pem\"\nkey = \"cert.key\"\n\
         [[protocol]]\nalpn = [\"upper\"]\nstreams = \"tcp://127.0.0.1:{}\"\n{protocol}",
        line.trim()
    );
    fs::write(dir.path().join("site.toml"), file).unwrap();
    let log = fs::File::create(dir.path().join("gateway.log")).unwrap();
    let gateway = quicket(dir.path()).args(["gateway", "site.toml"]).stderr(log).spawn().unwrap();
    let said = || fs::read_to_string(dir.path().join("gateway.log")).unwrap_or_default();
    until("the gateway", || said().contains("Gateway on"));
    (Process(python), Process(gateway), port)
}

fn connect(dir: &TempDir, arguments: &[&str], input: &[u8]) -> Outcome {
    let mut command = quicket(dir.path());
    command.arg("connect").args(arguments).stdin(Stdio::piped());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // Whoever has ended already takes nothing.
    let _ = child.stdin.take().unwrap().write_all(input);
    child.wait_with_output().unwrap().into()
}

#[test]
fn standard_input_and_output_and_a_local_port_reach_the_server() {
    let dir = tempfile::tempdir().unwrap();
    let (_python, _gateway, port) = start(&dir, "");
    let server = format!("localhost:{port}");
    let base = [server.as_str(), "--alpn", "upper", "--ca", "cert.pem"];
    let outcome = connect(&dir, &base, b"hello");
    outcome.assert_code(0);
    assert_eq!(outcome.stdout, b"ready\nHELLO");

    // What is wrong on this side is not told as the server's doing.
    let here = |stdin: &[u8], stdout: Stdio| -> Outcome {
        let mut command = quicket(dir.path());
        command.arg("connect").args(base).stdin(Stdio::piped());
        let mut child = command.stdout(stdout).stderr(Stdio::piped()).spawn().unwrap();
        let _ = child.stdin.take().unwrap().write_all(stdin);
        child.wait_with_output().unwrap().into()
    };
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let lost = here(b"hello", full.into());
    assert!(lost.assert_code(6).stderr.contains("cannot write standard output: No space left"));
    here(b"hello", std::io::pipe().unwrap().1.into()).assert_code(0);
    let mut command = quicket(dir.path());
    command.arg("connect").args(base).stdin(fs::File::open(dir.path()).unwrap());
    let unread: Outcome = command.output().unwrap().into();
    assert!(unread.assert_code(6).stderr.contains("cannot read standard input: Is a directory"));

    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = free.local_addr().unwrap();
    drop(free);
    let mut command = quicket(dir.path());
    command.arg("connect").args(base).args(["--local", &format!("tcp:{at}")]);
    let _client = Process(command.stderr(Stdio::null()).spawn().unwrap());
    until("the local port", || TcpStream::connect(at).is_ok());
    let mut stream = TcpStream::connect(at).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(b"again").unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut said = String::new();
    stream.read_to_string(&mut said).unwrap();
    assert_eq!(said, "ready\nAGAIN");

    // What cannot work is said, with what to do.
    let local = format!("tcp:{}", taken.local_addr().unwrap());
    let outcome = connect(&dir, &[&base[..], &["--local", &local]].concat(), b"");
    assert!(outcome.assert_code(6).stderr.contains("ss -ltnp"), "{}", outcome.stderr);
    let other = [server.as_str(), "--alpn", "lower", "--ca", "cert.pem"];
    let outcome = connect(&dir, &other, b"");
    assert!(
        outcome.assert_code(3).stderr.contains("is --alpn as in its file?"),
        "{}",
        outcome.stderr
    );
    let outcome = connect(&dir, &base[..3], b"");
    assert!(outcome.assert_code(4).stderr.contains("--pin"), "{}", outcome.stderr);
    let nobody = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let outcome = connect(&dir, &[nobody.as_str(), "--alpn", "upper", "--ca", "cert.pem"], b"");
    assert!(
        outcome.assert_code(3).stderr.contains("does it run, and at this port?"),
        "{}",
        outcome.stderr
    );
}

#[test]
fn a_gateway_that_asks_for_a_certificate_is_shown_one() {
    let dir = tempfile::tempdir().unwrap();
    for (name, of) in [("ours", "anna"), ("others", "eve")] {
        authority(dir.path(), name);
        client(dir.path(), name, of);
    }
    let asked = "[protocol.client_certificates]\nca = [\"ours.pem\"]\n";
    let (_python, _gateway, port) = start(&dir, asked);
    let server = format!("localhost:{port}");
    let base = [server.as_str(), "--alpn", "upper", "--ca", "cert.pem", "--no-sessions"];
    let with = |own: &str| {
        let (chain, key) = (format!("{own}.pem"), format!("{own}.key"));
        connect(&dir, &[&base[..], &["--cert", &chain, "--key", &key]].concat(), b"hello")
    };
    let outcome = with("anna");
    outcome.assert_code(0);
    assert_eq!(outcome.stdout, b"ready\nHELLO");
    let outcome = connect(&dir, &base, b"hello");
    assert!(outcome.assert_code(4).stderr.contains("--cert and --key"), "{}", outcome.stderr);
    let outcome = with("eve");
    assert!(outcome.assert_code(4).stderr.contains("does not take your"), "{}", outcome.stderr);
    let outcome = with("missing");
    assert!(outcome.assert_code(6).stderr.contains("missing.pem"), "{}", outcome.stderr);
    let outcome = connect(&dir, &[&base[..], &["--cert", "anna.pem"]].concat(), b"");
    assert!(outcome.assert_code(2).stderr.contains("--key"), "{}", outcome.stderr);
}

#[test]
fn whoever_started_it_goes_away_and_the_server_hears_of_it_at_once() {
    let dir = tempfile::tempdir().unwrap();
    openssl(dir.path(), "cert", "DNS:localhost,IP:127.0.0.1");
    let origin = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let file = format!(
        "listen = [\"127.0.0.1:{port}\"]\n[[certificate]]\nchain = \"cert.pem\"\nkey = \"cert.key\"\n\
         [[protocol]]\nalpn = [\"upper\"]\nstreams = \"tcp://{}\"\n",
        origin.local_addr().unwrap()
    );
    fs::write(dir.path().join("site.toml"), file).unwrap();
    let log = fs::File::create(dir.path().join("gateway.log")).unwrap();
    let gateway = quicket(dir.path()).args(["gateway", "site.toml"]).stderr(log).spawn().unwrap();
    let _gateway = Process(gateway);
    until("the gateway", || {
        fs::read_to_string(dir.path().join("gateway.log")).unwrap().contains("Gateway on")
    });
    // Whoever runs these tests may have the signal ignored (nohup), which is inherited.
    let plain = quicket(dir.path());
    let mut command = Command::new("env");
    command.arg("--default-signal=HUP").arg(plain.get_program()).current_dir(dir.path());
    for (name, value) in plain.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.args(["connect", &format!("localhost:{port}"), "--alpn", "upper", "--ca", "cert.pem"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.as_mut().unwrap().write_all(b"hello").unwrap();
    let (mut connection, _) = origin.accept().unwrap();
    connection.read_exact(&mut [0; 5]).unwrap();

    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::HUP).unwrap();
    // Half a minute of silence would end it, too.
    connection.set_read_timeout(Some(PATIENCE / 2)).unwrap();
    let heard = connection.read(&mut [0; 1]);
    let is_end = matches!(&heard, Ok(0))
        || heard.as_ref().is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionReset);
    assert!(is_end, "{heard:?}");
    assert!(child.wait().unwrap().success());
}
