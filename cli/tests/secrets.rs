//! `quicket switch secrets`, and the switch and servers that have one file of secrets: it is rotated while
//! connections live.
#![cfg(target_os = "linux")]

mod common;

use std::collections::VecDeque;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use common::{Outcome, Server, quicket};
use quicket::{
    ClientConfig, ClientTls, Connection, ConnectionError, Endpoint, EndpointConfig, Fingerprint,
    Identity, Listener, MemorySessionStore, ServerConfig, SessionStore, SwitchConfig, Workers,
};

/// How long anything may take on a machine that is busy.
const LONG: Duration = Duration::from_secs(60);

fn secrets(folder: &Path, arguments: &[&str]) -> Outcome {
    let mut command = quicket(folder);
    command.args(["switch", "secrets"]).args(arguments).output().unwrap().into()
}

fn hang_up(pid: u32) {
    let pid = pid.to_string();
    assert!(Command::new("kill").args(["-HUP", &pid]).status().unwrap().success());
}

/// The keys in a file, as digits.
fn keys(file: &Path) -> Vec<String> {
    let text = fs::read_to_string(file).unwrap();
    text.lines().skip(1).map(|line| line.rsplit(' ').next().unwrap().to_owned()).collect()
}

#[test]
fn secrets_are_made_rotated_and_shown_without_what_is_secret() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("secrets");
    let made = secrets(folder.path(), &["new", "secrets"]);
    made.assert_code(0);
    assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, 0o600);
    let first = keys(&file);
    let again = secrets(folder.path(), &["new", "secrets"]);
    assert!(again.assert_code(6).stderr.contains("secrets rotate"), "{}", again.stderr);
    assert_eq!(keys(&file), first, "the file is as it was");
    let rotated = secrets(folder.path(), &["rotate", "secrets"]);
    rotated.assert_code(0);
    let second = keys(&file);
    assert_eq!((&second[..2], second.len()), (&first[..], 3), "each has moved by one");
    assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, 0o600);
    let shown = secrets(folder.path(), &["show", "secrets"]);
    shown.assert_code(0);
    let text = String::from_utf8(shown.stdout.clone()).unwrap();
    let lines: Vec<_> = text.lines().collect();
    assert!(lines[0].starts_with("previous number 1, configuration 1 of"), "{text}");
    assert!(lines[1].starts_with("current  number 2") && lines[2].starts_with("next "), "{text}");
    let json = secrets(folder.path(), &["show", "secrets", "--json"]);
    assert_eq!(json.assert_code(0).report()["current"]["number"], 2);
    let balancer = secrets(folder.path(), &["show", "secrets", "--balancer", "site"]);
    balancer.assert_code(0);
    assert_eq!(fs::metadata(folder.path().join("site")).unwrap().mode() & 0o777, 0o600);
    for said in [made, again, rotated, shown, json, balancer] {
        let said = format!("{} {}", String::from_utf8_lossy(&said.stdout), said.stderr);
        assert!(first.iter().chain(&second).all(|key| !said.contains(key)), "{said}");
    }
}

#[test]
fn files_that_cannot_be_used_say_why() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("secrets");
    secrets(folder.path(), &["new", "secrets"]).assert_code(0);
    let secret = keys(&file).remove(0);
    let switch = |arguments: &[&str]| -> Outcome {
        let name = folder.path().join("switch");
        let mut command = quicket(folder.path());
        command.args(["switch", "--name"]).arg(name).args(arguments).output().unwrap().into()
    };
    let refused = |outcome: &Outcome, why: &str| {
        assert!(outcome.code != Some(0) && outcome.stderr.contains(why), "{outcome:?}");
        assert!(!outcome.stderr.contains(&secret), "{outcome:?}");
    };
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    refused(&switch(&["--secrets", "secrets"]), "chmod 600");
    refused(&secrets(folder.path(), &["rotate", "secrets"]), "chmod 600");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replace("current", "actual")).unwrap();
    refused(&switch(&["--secrets", "secrets"]), "line 2");
    refused(&switch(&["--secrets", "none"]), "cannot read the secrets of none");
    refused(&switch(&["--secrets", "fd:99"]), "descriptor 99");
    refused(&switch(&["--secrets", "fd:2"]), "from 3 on");
    refused(&switch(&["--server-id", "07"]), "--secrets");
    fs::write(&file, text).unwrap();
    refused(&switch(&["--secrets", "secrets", "--server-id", "0x7"]), "two hexadecimal digits");
    refused(&switch(&["--secrets", "fd:5", "--detach"]), "--detach");
    let serve = |arguments: &[&str]| -> Outcome {
        let mut command = quicket(folder.path());
        command.args(["serve", "."]).args(arguments).output().unwrap().into()
    };
    refused(&serve(&["--server-id", "07"]), "needs --connection-ids or --secrets");
    refused(&serve(&["--secrets", "secrets", "--server-id", "0007"]), "two hexadecimal digits");
    refused(&serve(&["--secrets", "secrets", "--switch"]), "cannot be used with");
    refused(&serve(&["--secrets", "secrets", "--ticket-key", "x"]), "cannot be used with");
}

/// A switch of a test's own.
struct Switch {
    process: Child,
    folder: tempfile::TempDir,
    /// All that it has said, and so far it was looked at. Somebody reads it all the time, so that it never waits.
    said: Arc<Mutex<String>>,
    seen: usize,
}

impl Switch {
    /// With the file in its folder; `shell`: as a shell is told to start it, where it has the file as
    /// descriptor 3.
    fn start(arguments: &str) -> Self {
        Self::start_with(None, arguments)
    }

    /// The same with a copy of another one's file.
    fn start_with(file: Option<&Path>, arguments: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        match file {
            Some(file) => {
                fs::copy(file, folder.path().join("secrets")).unwrap();
            }
            None => {
                secrets(folder.path(), &["new", "secrets"]).assert_code(0);
            }
        }
        let script = format!(
            "exec \"$0\" switch --stay --name \"$PWD/switch\" --server-id c4 {arguments} 3< secrets"
        );
        let mut command = Command::new("sh");
        command.args(["-c", &script, env!("CARGO_BIN_EXE_quicket")]).current_dir(folder.path());
        command.env("RUST_LOG", "trace");
        let mut process = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(process.stderr.take().unwrap());
        let said = Arc::new(Mutex::new(String::new()));
        let noted = Arc::clone(&said);
        thread::spawn(move || {
            let mut line = String::new();
            while lines.read_line(&mut line).is_ok_and(|len| len > 0) {
                noted.lock().unwrap().push_str(&line);
                line.clear();
            }
        });
        let mut switch = Self { process, folder, said, seen: 0 };
        switch.says("is ready");
        switch
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn name(&self) -> String {
        self.path("switch").to_str().unwrap().to_owned()
    }

    /// Waits for a line.
    fn says(&mut self, what: &str) {
        let begun = Instant::now();
        loop {
            let said = self.said.lock().unwrap();
            if let Some(at) = said[self.seen..].find(what) {
                self.seen += at + what.len();
                return;
            }
            assert!(begun.elapsed() < LONG, "{what}: {}", &*said);
            drop(said);
            thread::sleep(Duration::from_millis(2));
        }
    }

    fn status(&self) -> serde_json::Value {
        serde_json::from_str(&quicket_switch::client::status(&self.name()).unwrap()).unwrap()
    }

    fn rotate(&mut self) {
        secrets(self.folder.path(), &["rotate", "secrets"]).assert_code(0);
        hang_up(self.process.id());
        self.says("secrets were read again");
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A program behind a switch, which sends back what comes on each stream.
fn listen(switch: &Switch, identity: &Identity) -> Listener {
    let shared = SwitchConfig::new("shop").named(switch.name()).started_by(None);
    let config = EndpointConfig::default().workers(Workers::Count(2)).switch(shared);
    let endpoint = Endpoint::bind_with("127.0.0.1:0", config).unwrap();
    let config = ServerConfig::with_identity(identity.clone(), ["shop/1"]).unwrap();
    endpoint.listen(config).unwrap()
}

fn client(pin: Fingerprint, alpn: &str) -> ClientConfig {
    ClientConfig::new(ClientTls::builder().pinned([pin]).alpn([alpn]).build().unwrap())
}

fn echo(connection: &Connection) {
    while let Ok(mut stream) = connection.accept_bi() {
        let Ok(data) = stream.read_to_end(1 << 20) else { return };
        if stream.write_all(&data).is_err() || stream.finish().is_err() {
            return;
        }
    }
}

fn exchange(connection: &Connection) {
    let mut stream = connection.open_bi().unwrap();
    stream.write_all(&[7; 20_000]).unwrap();
    stream.finish().unwrap();
    assert_eq!(stream.read_to_end(1 << 20).unwrap().len(), 20_000);
}

fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < LONG, "{what}");
        thread::sleep(Duration::from_millis(2));
    }
}

/// More rotations than there are configurations of connection IDs, under connections with traffic whose
/// clients move: nothing is lost. New clients come in between. Nothing secret is said.
fn rotate_under_connections(arguments: &str) {
    let mut switch = Switch::start(arguments);
    let identity = Identity::self_signed(["localhost"]).unwrap();
    let listener = Arc::new(listen(&switch, &identity));
    let accepting = Arc::clone(&listener);
    thread::spawn(move || {
        while let Ok(connection) = accepting.accept() {
            thread::spawn(move || echo(&connection));
        }
    });
    let store = Arc::new(Anywhere::default());
    let config = client(identity.fingerprint(), "shop/1").sessions(store.clone());
    let connect = || {
        let endpoint = Endpoint::bind("127.0.0.1:0").unwrap();
        let before = store.saved.load(Ordering::SeqCst);
        let connection = endpoint.connect(listener.local_addr(), "localhost", &config).unwrap();
        exchange(&connection);
        wait_for("tickets came", || store.saved.load(Ordering::SeqCst) > before + 1);
        (endpoint, connection)
    };
    let mut clients: Vec<_> = (0..4).map(|_| connect()).collect();
    let mut secret = keys(&switch.path("secrets"));
    for number in 2..=10 {
        let said = switch.status();
        assert_eq!(said["addresses"][0]["secrets"]["current"], number - 1, "{said}");
        assert_eq!(said["addresses"][0]["secrets"]["server_id"], 0xc4, "{said}");
        let helps = !arguments.contains("--forward");
        assert_eq!(said["addresses"][0]["kernel"]["helps"], helps, "{said}");
        switch.rotate();
        secret.extend(keys(&switch.path("secrets")));
        wait_for("a program took the secrets up", || {
            listener.endpoint().site_secret() == Some(number)
        });
        // A ticket of the secret before is one of the first that it tries.
        let (endpoint, connection) = connect();
        assert!(connection.handshake().unwrap().resumed, "number {number}");
        clients.push((endpoint, connection));
        for (endpoint, connection) in &clients {
            exchange(connection);
            endpoint.rebind("127.0.0.1:0".parse().unwrap()).unwrap();
            exchange(connection);
        }
    }
    for (_, connection) in &clients {
        assert_eq!(connection.close_reason(), None);
    }
    let said = switch.status();
    let resets = &said["addresses"][0]["datagrams"]["stateless_resets"];
    assert_eq!(resets, 0, "{said}");
    // A file that makes no sense changes nothing.
    fs::write(switch.path("secrets"), "nothing").unwrap();
    hang_up(switch.process.id());
    switch.says("all stays as it was");
    clients.iter().for_each(|(_, connection)| exchange(connection));
    let said = format!("{} {said}", switch.said.lock().unwrap());
    assert!(secret.iter().all(|key| !said.contains(&key[..12])), "{said}");
}

#[test]
fn nothing_is_lost_over_rotations_where_the_switch_forwards() {
    rotate_under_connections("--secrets secrets --forward");
}

#[test]
fn nothing_is_lost_over_rotations_where_the_kernel_chooses() {
    rotate_under_connections("--secrets secrets");
}

/// A descriptor is of what the file was when it was opened, and can be read again.
#[test]
fn a_switch_takes_its_secrets_from_a_descriptor() {
    let mut switch = Switch::start("--secrets fd:3");
    let identity = Identity::self_signed(["localhost"]).unwrap();
    let listener = listen(&switch, &identity);
    assert_eq!(listener.endpoint().site_secret(), Some(1));
    let text = fs::read(switch.path("secrets")).unwrap();
    secrets(switch.folder.path(), &["rotate", "secrets"]).assert_code(0);
    // Rotation makes another file; who writes into the one that is open changes that.
    let rotated = fs::read(switch.path("secrets")).unwrap();
    assert_ne!(text, rotated);
    let open = format!("/proc/{}/fd/3", switch.process.id());
    fs::write(&open, rotated).unwrap();
    hang_up(switch.process.id());
    switch.says("number 2 is current");
    wait_for("a program took the secrets up", || listener.endpoint().site_secret() == Some(2));
}

/// Sessions of all servers together, to be used more than once.
#[derive(Default)]
struct Anywhere {
    sessions: Mutex<VecDeque<Vec<u8>>>,
    tokens: MemorySessionStore,
    /// How many sessions came.
    saved: AtomicUsize,
}

impl SessionStore for Anywhere {
    fn save_session(&self, _: &str, session: &[u8]) {
        let mut sessions = self.sessions.lock().unwrap();
        sessions.push_front(session.to_vec());
        sessions.truncate(2);
        self.saved.fetch_add(1, Ordering::SeqCst);
    }

    fn take_session(&self, _: &str) -> Option<Vec<u8>> {
        self.sessions.lock().unwrap().pop_front()
    }

    fn save_token(&self, server: &str, token: &[u8]) {
        self.tokens.save_token(server, token);
    }

    fn take_token(&self, server: &str) -> Option<Vec<u8>> {
        self.tokens.take_token(server)
    }
}

/// Reads a file over HTTP/0.9.
fn read(connection: &Connection) -> String {
    let mut stream = connection.open_bi().unwrap();
    stream.write_all(b"GET /hello.txt\r\n").unwrap();
    stream.finish().unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

/// Two servers with one file: a client resumes with the other, and believes it that its connection is lost.
#[test]
fn servers_with_one_file_stand_in_for_each_other() {
    let folder = tempfile::tempdir().unwrap();
    secrets(folder.path(), &["new", "secrets"]).assert_code(0);
    let file = folder.path().join("secrets");
    let identity = Identity::self_signed(["localhost"]).unwrap();
    let pem = folder.path().join("pem");
    fs::write(&pem, [identity.key_pem(), identity.chain_pem()].concat()).unwrap();
    let start = |id: &str, more: &[&str]| {
        let (file, pem) = (file.to_str().unwrap(), pem.to_str().unwrap());
        let mut flags = vec!["--cert", pem, "--key", pem, "--secrets", file, "--server-id", id];
        flags.extend(more);
        Server::start_with(&flags)
    };
    let store = Arc::new(Anywhere::default());
    let config = client(identity.fingerprint(), "hq-interop").sessions(store.clone());
    let connect = |server: &Server| {
        // What it resumes with next is of this one: the last two are kept.
        let before = store.saved.load(Ordering::SeqCst);
        let connection = Connection::connect(&*server.address, "localhost", &config).unwrap();
        assert_eq!(read(&connection), "hello, world\n");
        wait_for("tickets came", || store.saved.load(Ordering::SeqCst) > before + 1);
        connection
    };
    let mut one = start("01", &["--workers", "2"]);
    let mut other = start("02", &[]);
    assert!(!connect(&one).handshake().unwrap().resumed);
    assert!(connect(&other).handshake().unwrap().resumed, "with the other's ticket");
    // One reads the rotated file, and the other has yet to.
    secrets(folder.path(), &["rotate", "secrets"]).assert_code(0);
    hang_up(one.id());
    let read_again = one.event("read_again")["files"].as_str().unwrap().to_owned();
    assert!(read_again.contains("secrets of number 2"), "{read_again}");
    let connection = connect(&one);
    assert!(connection.handshake().unwrap().resumed);
    assert!(connect(&other).handshake().unwrap().resumed, "with a ticket of the next secret");
    // A file that cannot be read changes nothing.
    let kept = fs::read(&file).unwrap();
    fs::write(&file, "nothing").unwrap();
    hang_up(other.id());
    let refused = other.event("not_read_again")["error"].as_str().unwrap().to_owned();
    assert!(refused.contains("line 1"), "{refused}");
    fs::write(&file, kept).unwrap();
    // The first is killed, and a third one has its address.
    let address = one.address.clone();
    let _folder = one.kill();
    let _third = start("03", &["--listen", &address]);
    wait_for("it heard that its connection is lost", || {
        connection.ping();
        connection.close_reason().is_some()
    });
    assert_eq!(connection.close_reason(), Some(ConnectionError::StatelessReset));
}

/// A server behind a switch, and its address.
fn serve_behind(switch: &Switch, pem: &Path) -> (Child, BufReader<ChildStdout>, String) {
    // It has to be one that a next generation finds.
    let free = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let root = switch.path("root");
    fs::create_dir(&root).unwrap();
    fs::write(root.join("hello.txt"), "hello, world\n").unwrap();
    let mut command = quicket(switch.folder.path());
    command.args(["serve", "root", "--json", "--quiet", "--switch", "--listen", &free]);
    command.arg("--cert").arg(pem).arg("--key").arg(pem).env("QUICKET_SWITCH", switch.name());
    let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    let mut events = BufReader::new(process.stdout.take().unwrap());
    events.read_line(&mut line).unwrap();
    assert!(line.contains("listening"), "{line}");
    (process, events, free)
}

/// `quicket serve` behind switches of one site uses its ticket keys instead of its own.
#[test]
fn servers_behind_switches_with_one_file_share_sessions() {
    let one = Switch::start("--secrets secrets");
    let other = Switch::start_with(Some(&one.path("secrets")), "--secrets secrets");
    let stranger = Switch::start("--secrets secrets");
    let identity = Identity::self_signed(["localhost"]).unwrap();
    let pem = one.path("pem");
    fs::write(&pem, [identity.key_pem(), identity.chain_pem()].concat()).unwrap();
    let store = Arc::new(Anywhere::default());
    let config = client(identity.fingerprint(), "hq-interop").sessions(store.clone());
    let resumed = [&one, &other, &stranger].map(|switch| {
        let (mut process, _events, address) = serve_behind(switch, &pem);
        // What it resumes with next is of this one: the last two are kept.
        let before = store.saved.load(Ordering::SeqCst);
        let connection = Connection::connect(&*address, "localhost", &config).unwrap();
        assert_eq!(read(&connection), "hello, world\n");
        wait_for("tickets came", || store.saved.load(Ordering::SeqCst) > before + 1);
        process.kill().unwrap();
        process.wait().unwrap();
        connection.handshake().unwrap().resumed
    });
    assert_eq!(resumed, [false, true, false]);
}
