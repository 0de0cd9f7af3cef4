//! `quicket serve` with several certificates and addresses, which are read again on SIGHUP. The
//! client is aioquic.

mod common;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::UdpSocket;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use common::{Server, get, openssl, quicket};
use quicket_lab::peers::{Implementation, Workshop};
use tempfile::TempDir;

/// A process with connections of aioquic.
struct Browser {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Browser {
    fn start(dir: &Path) -> Self {
        let peer = Workshop::new().unwrap().prepare(Implementation::Aioquic).unwrap();
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/python/browse.py");
        let mut command = Command::new(peer.executable);
        command.arg("-B").arg(script).current_dir(dir);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let orders = child.stdin.take().unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap());
        Self { child, orders, answers }
    }

    fn ask(&mut self, order: &str) -> (String, String) {
        writeln!(self.orders, "{order}").unwrap();
        let mut answer = String::new();
        assert!(self.answers.read_line(&mut answer).unwrap() > 0, "it ended at {order}");
        let (first, rest) = answer.trim_end().split_once(' ').unwrap();
        (first.to_owned(), rest.to_owned())
    }

    /// Connects by a name, trusting one certificate; the connection's number and what the server
    /// presents.
    fn connect(&mut self, name: &str, address: &str, ca: &str) -> (String, String) {
        let (host, port) = address.rsplit_once(':').unwrap();
        let host = host.trim_matches(['[', ']']);
        self.ask(&format!("connect {name} {host} {port} {ca}"))
    }

    fn get(&mut self, connection: &str, path: &str) -> (String, String) {
        self.ask(&format!("get {connection} {path}"))
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A directory with something to serve and certificates.
fn site(certificates: &[(&str, &str)]) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("root")).unwrap();
    fs::write(dir.path().join("root/hello.txt"), "hello, world\n").unwrap();
    for (file, names) in certificates {
        openssl(dir.path(), file, names);
    }
    dir
}

/// The SHA-256 of a certificate, as openssl says.
fn fingerprint(dir: &Path, file: &str) -> String {
    let mut openssl = Command::new("openssl");
    openssl.current_dir(dir).args(["x509", "-noout", "-fingerprint", "-sha256", "-in", file]);
    let said = String::from_utf8(openssl.output().unwrap().stdout).unwrap();
    said.trim().split_once('=').unwrap().1.replace(':', "").to_lowercase()
}

fn signal(server: &Server, name: &str) {
    let id = server.id().to_string();
    assert!(Command::new("kill").args([name, &id]).status().unwrap().success());
}

const A: &str = "DNS:a.test,IP:127.0.0.1";
const B: &str = "DNS:b.test,DNS:*.b.test";
const BOTH: [&str; 8] = ["--cert", "a.pem", "--key", "a.key", "--cert", "b.pem", "--key", "b.key"];

#[test]
fn names_choose_certificates_at_all_addresses_and_sighup_reads_them_again() {
    let dir = site(&[("a", A), ("b", B)]);
    let listen = ["--listen", "127.0.0.1:0", "--listen", "[::1]:0"];
    let mut server = Server::start_in(dir, &[&BOTH[..], &listen].concat());
    let second = server.event("listening")["address"].as_str().unwrap().to_owned();
    assert!(second.starts_with("[::1]:"), "{second}");
    let addresses = [server.address.clone(), second];
    let path = server.dir.path().to_owned();
    let [a, b] = ["a.pem", "b.pem"].map(|file| fingerprint(&path, file));
    let mut browser = Browser::start(&path);
    for address in &addresses {
        for (name, ca, presented) in
            [("a.test", "a.pem", &a), ("b.test", "b.pem", &b), ("www.b.test", "b.pem", &b)]
        {
            let (connection, fingerprint) = browser.connect(name, address, ca);
            assert_eq!(&fingerprint, presented, "{name} at {address}");
            let (status, body) = browser.get(&connection, "/hello.txt");
            assert_eq!((status.as_str(), body.as_str()), ("200", "hello, world"));
        }
    }
    let (old, _) = browser.connect("b.test", &addresses[0], "b.pem");

    // A key that is not the certificate's: nothing changes, and the log says why.
    let good = fs::read(path.join("b.key")).unwrap();
    fs::copy(path.join("a.key"), path.join("b.key")).unwrap();
    signal(&server, "-HUP");
    let refused = server.event("not_read_again")["error"].as_str().unwrap().to_owned();
    assert!(refused.contains("b.key"), "{refused}");
    assert_eq!(browser.connect("b.test", &addresses[0], "b.pem").1, b);

    fs::write(path.join("b.key"), good).unwrap();
    fs::copy(path.join("b.pem"), path.join("old.pem")).unwrap();
    openssl(&path, "b", B);
    let renewed = fingerprint(&path, "b.pem");
    assert_ne!(renewed, b);
    signal(&server, "-HUP");
    let read = server.event("read_again")["files"].as_str().unwrap().to_owned();
    for words in ["a.pem (a.test; ", "b.pem (b.test, *.b.test; ", &renewed] {
        assert!(read.contains(words), "{read}");
    }
    for address in &addresses {
        assert_eq!(browser.connect("b.test", address, "b.pem").1, renewed);
        assert_eq!(browser.connect("a.test", address, "a.pem").1, a);
    }
    // The connection from before goes on.
    assert_eq!(browser.get(&old, "/hello.txt").0, "200");
    drop(browser);
    let (status, log, _dir) = server.interrupt();
    assert!(status.success(), "{log}");
    assert!(log.contains("Read again: a.pem") && log.contains("All stays as it was"), "{log}");
}

#[test]
fn sessions_go_on_when_certificates_and_the_ticket_key_are_changed() {
    let dir = site(&[("a", A)]);
    fs::write(dir.path().join("ticket"), [1; 32]).unwrap();
    let flags = ["--cert", "a.pem", "--key", "a.key", "--ticket-key", "ticket"];
    let mut server = Server::start_in(dir, &flags);
    let url = server.url("/hello.txt");
    let fetch = |server: &Server| {
        let outcome = get(server.dir.path(), &["--ca", "ca.pem", "--json", &url, "-o", "x"]);
        outcome.assert_code(0).report()["connections"][0]["resumed"].clone()
    };
    fs::copy(server.path("a.pem"), server.path("ca.pem")).unwrap();
    assert_eq!(fetch(&server), false);
    openssl(server.dir.path(), "a", A);
    fs::write(server.path("ticket"), [2; 32]).unwrap();
    signal(&server, "-HUP");
    let read = server.event("read_again")["files"].as_str().unwrap().to_owned();
    assert!(read.ends_with("and a new ticket key"), "{read}");
    // By a ticket of the former key.
    assert_eq!(fetch(&server), true);
    let strangers = ["--ca", "ca.pem", "--no-sessions", &url, "-o", "x"];
    get(server.dir.path(), &strangers).assert_code(4);
    // The same once more: nothing is new.
    signal(&server, "-HUP");
    assert!(!server.event("read_again")["files"].as_str().unwrap().contains("ticket key"));
}

#[test]
fn what_cannot_be_served_says_so_for_each() {
    let dir = site(&[("a", A), ("b", B), ("address", "IP:127.0.0.1")]);
    let serve = |flags: &[&str]| {
        let output = quicket(dir.path()).args(["serve", "root"]).args(flags).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let pair = ["--cert", "a.pem", "--key", "a.key", "--cert", "b.pem"];
    let (code, said) = serve(&pair);
    assert!(code == Some(2) && said.contains("2 --cert and 1 --key"), "{said}");
    let (code, said) =
        serve(&[&pair[..4], &["--cert", "address.pem", "--key", "address.key"]].concat());
    assert!(code == Some(6) && said.contains("address.pem has no DNS name"), "{said}");
    let taken = ["127.0.0.1:0", "[::1]:0"].map(|address| UdpSocket::bind(address).unwrap());
    let taken = taken.each_ref().map(|socket| socket.local_addr().unwrap().to_string());
    let (code, said) = serve(&["-l", &taken[0], "-l", "127.0.0.1:0", "-l", &taken[1]]);
    assert_eq!((code, said.matches("is in use").count()), (Some(6), 2), "{said}");
    for address in &taken {
        let port = address.rsplit_once(':').unwrap().1;
        assert!(said.contains(&format!("UDP port {port} of ")), "{said}");
    }
    let (code, said) = serve(&["-l", "127.0.0.1:9", "-l", "127.0.0.1:9"]);
    assert!(code == Some(2) && said.contains("given twice"), "{said}");
}

#[test]
fn both_families_can_have_all_addresses_of_a_port() {
    let free = UdpSocket::bind("[::]:0").unwrap();
    let port = free.local_addr().unwrap().port();
    drop(free);
    let (v4, v6) = (format!("0.0.0.0:{port}"), format!("[::]:{port}"));
    for order in [[&v4, &v6], [&v6, &v4]] {
        let dir = site(&[]);
        let server = Server::start_in(dir, &["--listen", order[0], "--listen", order[1]]);
        for host in ["127.0.0.1", "[::1]"] {
            let url = format!("https://{host}:{port}/hello.txt");
            server.get(&[&url, "-o", "x", "--no-sessions"]).assert_code(0);
        }
    }
}

/// Starts a server at a terminal of its own, asks it to read files again, and closes the terminal.
const TERMINAL: &str = "
import os, pty, signal, sys
pid, terminal = pty.fork()
if pid == 0:
    os.execv(sys.argv[1], sys.argv[1:])
seen = b''
def wait_for(words):
    global seen
    while words not in seen:
        seen += os.read(terminal, 1024)
wait_for(b'Serving')
os.kill(pid, signal.SIGHUP)
wait_for(b'Read again')
os.close(terminal)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
";

#[test]
fn a_server_ends_with_the_terminal_that_it_was_started_from() {
    let dir = site(&[]);
    let mut command = Command::new("timeout");
    command.args(["60", "python3", "-c", TERMINAL, env!("CARGO_BIN_EXE_quicket")]);
    command.args(["serve", "root", "--listen", "127.0.0.1:0"]);
    command.current_dir(dir.path()).env("HOME", dir.path()).stdin(Stdio::null());
    let ended = command.output().unwrap();
    assert_eq!(ended.status.code(), Some(0), "{}", String::from_utf8_lossy(&ended.stderr));
}
