//! Programs of several users behind a switch for the system: what they share, and what they cannot do to each
//! other. Real processes, which root starts as others; without root there is nothing to be seen.
#![cfg(target_os = "linux")]

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::fs;
use std::io::{BufRead, BufReader, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt;
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use quicket::message::{MessageKind, MsgFlags, Socket, StreamFlags};
use quicket::{
    ClientConfig, ClientTls, Connection, EarlyData, Endpoint, EndpointConfig, Identity,
    MemorySessionStore, ServerConfig, ServerTls, SessionStore, SwitchConfig, Workers,
};
use quicket_switch::client::{Membership, Options, Place, Way};
use quicket_switch::options::SocketOptions;
use quicket_switch::protocol::{ID_LEN, Octets, Serve};
use quicket_udp::{Outgoing, Port, UdpOption};
use quicket_wire::EcnCodepoint;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

use quicket_testing::{LONG, Process, free_port, signal};

use common::ask;

const QUICKET: &str = env!("CARGO_BIN_EXE_quicket");
/// Users of the tests.
const ALICE: u32 = 65_533;
const NOBODY: u32 = 65_534;

fn is_root() -> bool {
    let root = fs::metadata("/proc/self").is_ok_and(|found| {
        use std::os::unix::fs::MetadataExt;
        found.uid() == 0
    });
    if !root {
        println!("only root has programs of several users");
    }
    root
}

/// A switch for the system, which ends with the test.
struct System {
    name: String,
    more: Vec<String>,
    process: Process,
    folder: tempfile::TempDir,
    said: Receiver<String>,
}

impl System {
    fn start(rule: Option<&str>, more: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        let mut more: Vec<_> = more.iter().map(|word| (*word).to_owned()).collect();
        if let Some(rule) = rule {
            fs::write(path("users"), rule).unwrap();
            more.extend(["--users".to_owned(), path("users")]);
        }
        let name = path("switch");
        let (process, said) = Self::process(&name, &more);
        Self { name, more, process, folder, said }
    }

    fn process(name: &str, more: &[String]) -> (Process, Receiver<String>) {
        Self::process_of(Command::new(QUICKET), name, more)
    }

    /// The same by somebody who starts it otherwise.
    fn process_of(
        mut command: Command,
        name: &str,
        more: &[String],
    ) -> (Process, Receiver<String>) {
        command.args(["switch", "--system", "--name", name]).args(more);
        let mut process = Process(command.stderr(Stdio::piped()).spawn().unwrap());
        let mut line = String::new();
        let mut lines = BufReader::new(process.stderr.take().unwrap());
        lines.read_line(&mut line).unwrap();
        assert!(line.contains("is ready"), "{line}");
        // What it says later goes where the test's does, too.
        let (tell, said) = mpsc::channel();
        thread::spawn(move || {
            lines.lines().map_while(Result::ok).for_each(|line| {
                eprintln!("{line}");
                let _ = tell.send(line);
            })
        });
        (process, said)
    }

    /// Has it read another rule, and returns what it says of that.
    fn reload(&self, rule: &str) -> String {
        fs::write(self.folder.path().join("users"), rule).unwrap();
        signal(self.process.id(), "-HUP");
        let lines = std::iter::repeat_with(|| self.said.recv_timeout(LONG).unwrap());
        lines.into_iter().find(|line| line.contains("the rule was")).unwrap()
    }

    /// kill -9, and the next one by who looks after it.
    fn kill_and_start(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
        (self.process, self.said) = Self::process(&self.name, &self.more);
    }

    fn status(&self) -> serde_json::Value {
        let report = quicket_switch::client::status(&self.name).unwrap();
        serde_json::from_str(&report).unwrap()
    }

    /// What a program of a user is counted to have, of all addresses.
    fn program(&self, name: &str) -> serde_json::Value {
        let status = self.status();
        let addresses = status["addresses"].as_array().unwrap().iter();
        let mut programs = addresses.flat_map(|each| each["programs"].as_array().unwrap());
        programs.find(|each| each["program"] == name).cloned().unwrap_or_default()
    }

    fn counter(&self, name: &str) -> u64 {
        self.status()["addresses"][0]["datagrams"][name].as_u64().unwrap()
    }
}

/// A service manager that keeps descriptors for the switch.
struct Manager {
    folder: tempfile::TempDir,
    socket: UnixDatagram,
    stored: BTreeMap<String, OwnedFd>,
}

/// Hands descriptors over as a service manager does, and becomes the program.
const HAND_OVER: &str = "
import os, socket, sys
number = int(sys.argv[1])
given = socket.recv_fds(socket.socket(fileno=0), 1, number)[1] if number else []
for place, number in enumerate(given):
    os.dup2(number, 100 + place)
    os.close(number)
for place in range(len(given)):
    os.dup2(100 + place, 3 + place)
    os.close(100 + place)
os.environ['LISTEN_PID'] = str(os.getpid())
os.environ['LISTEN_FDS'] = str(len(given))
os.execv(sys.argv[2], sys.argv[2:])
";

impl Manager {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let socket = UnixDatagram::bind(folder.path().join("notify")).unwrap();
        socket.set_read_timeout(Some(LONG)).unwrap();
        Self { folder, socket, stored: BTreeMap::new() }
    }

    /// The switch, with what is kept for it.
    fn command(&self) -> Command {
        let (ours, theirs) = UnixDatagram::pair().unwrap();
        let kept: Vec<_> = self.stored.values().map(AsFd::as_fd).collect();
        let mut space = [MaybeUninit::uninit(); 64];
        let mut control = SendAncillaryBuffer::new(&mut space);
        assert!(control.push(SendAncillaryMessage::ScmRights(&kept)));
        sendmsg(&ours, &[IoSlice::new(b"x")], &mut control, SendFlags::empty()).unwrap();
        let mut command = Command::new("python3");
        command.args(["-c", HAND_OVER, &kept.len().to_string(), QUICKET]);
        command.stdin(OwnedFd::from(theirs));
        command.env("NOTIFY_SOCKET", self.folder.path().join("notify"));
        command
    }

    /// Hears messages until one that has this line, and does what they say.
    fn hears(&mut self, line: &str) {
        loop {
            let (mut bytes, mut space) = ([0; 4096], [MaybeUninit::uninit(); 64]);
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let mut parts = [IoSliceMut::new(&mut bytes)];
            let flags = RecvFlags::CMSG_CLOEXEC;
            let came = recvmsg(&self.socket, &mut parts, &mut control, flags).unwrap().bytes;
            let mut descriptors = Vec::new();
            for message in control.drain() {
                if let RecvAncillaryMessage::ScmRights(rights) = message {
                    descriptors.extend(rights);
                }
            }
            let text = String::from_utf8(bytes[..came].to_vec()).unwrap();
            let value = |key: &str| {
                text.lines().find_map(|line| line.strip_prefix(key)).unwrap_or_default().to_owned()
            };
            if text.contains("FDSTORE=1") {
                assert!(text.contains("FDPOLL=0"), "{text}");
                let [descriptor] = <[OwnedFd; 1]>::try_from(descriptors).unwrap();
                self.stored.insert(value("FDNAME="), descriptor);
            } else if text.contains("FDSTOREREMOVE=1") {
                self.stored.remove(&value("FDNAME=")).expect("it was kept");
            }
            if text.lines().any(|each| each.starts_with(line)) {
                return;
            }
        }
    }
}

/// A program of a user, in a process of its own: see [`program`] and [`attacker`].
struct Program {
    process: Process,
    input: ChildStdin,
    lines: BufReader<ChildStdout>,
    address: SocketAddr,
}

impl Program {
    fn spawn(uid: u32, what: &str, orders: &[&str]) -> Self {
        // Not by its path, which another user may not be able to follow.
        let mut command = Command::new("/proc/self/exe");
        command.args(["--ignored", "--exact", what, "--nocapture", "--test-threads=1"]);
        command.env("ORDERS", orders.join("\n")).current_dir("/").uid(uid).gid(uid);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = Process(command.spawn().unwrap());
        let lines = BufReader::new(process.stdout.take().unwrap());
        let input = process.stdin.take().unwrap();
        Self { process, input, lines, address: ([0, 0, 0, 0], 0).into() }
    }

    /// Waits for a line, and returns what stands behind the word.
    fn hear(&mut self, word: &str) -> Result<String, String> {
        loop {
            let mut line = String::new();
            assert_ne!(self.lines.read_line(&mut line).unwrap(), 0, "it did not say {word}");
            if let Some((_, error)) = line.split_once("REFUSED ") {
                return Err(error.trim().to_owned());
            }
            // The test's name stands before the first line.
            if let Some((_, rest)) = line.split_once(word) {
                return Ok(rest.trim().to_owned());
            }
        }
    }

    fn tell(&mut self, word: &str) {
        writeln!(self.input, "{word}").unwrap();
    }

    fn try_start(
        system: &System,
        uid: u32,
        name: &str,
        servers: &str,
        address: &str,
        more: &str,
    ) -> Result<Self, String> {
        let mut this = Self::spawn(uid, "program", &[&system.name, name, servers, address, more]);
        this.address = this.hear("READY ")?.parse().unwrap();
        Ok(this)
    }

    fn start(system: &System, uid: u32, name: &str, servers: &str, at: &str, more: &str) -> Self {
        Self::try_start(system, uid, name, servers, at, more).unwrap()
    }
}

#[test]
#[ignore = "a program that tests start"]
fn program() {
    let Ok(orders) = env::var("ORDERS") else { return };
    let orders: Vec<&str> = orders.split('\n').collect();
    let [switch, name, servers, address, more] = orders[..] else { panic!("{orders:?}") };
    let called = name.split('.').next().unwrap();
    let mut switched = SwitchConfig::new(called).named(switch).started_by(None);
    switched = switched.replace(more.contains("replace"));
    switched = switched.server_names(servers.split(',').filter(|name| !name.is_empty()));
    if more.contains("messages") {
        return messages(switched, name, address, more);
    }
    let mut config = EndpointConfig::default().switch(switched);
    if more.contains("workers") {
        config = config.workers(Workers::Count(3));
    }
    config.udp.options.extend(options(more));
    let identity = Identity::self_signed(["localhost"]).unwrap();
    let early = more.contains("early");
    let tls = ServerTls::builder(identity).alpn(["echo"]).early_data(early).build().unwrap();
    let server = ServerConfig::new(tls).early_data(early);
    let bound = match more.contains("handed") {
        // As a service manager does it.
        true => Endpoint::from_socket(UdpSocket::bind(address).unwrap(), config),
        false => Endpoint::bind_with(address, config).map_err(Into::into),
    };
    let endpoint = match bound {
        Ok(endpoint) => endpoint,
        Err(error) => return println!("REFUSED {error}"),
    };
    let listening = if early { endpoint.listen_early(server) } else { endpoint.listen(server) };
    let listener = match listening {
        Ok(listener) => listener,
        Err(error) => return println!("REFUSED {error}"),
    };
    println!("READY {}", endpoint.local_addr());
    thread::spawn(|| {
        let _ = std::io::stdin().read(&mut [0]);
        std::process::exit(0);
    });
    for connection in listener.incoming() {
        let (connection, name) = (connection.unwrap(), name.to_owned());
        thread::spawn(move || answer(&connection, &name));
    }
    println!("SUPERSEDED");
    endpoint.wait_idle();
}

/// Options of UDP and IP.
fn options(more: &str) -> Vec<UdpOption> {
    let all = [("ttl", UdpOption::Ttl(9)), ("dontroute", UdpOption::DontRoute(true))];
    let wanted = all.into_iter().filter(|(word, _)| more.contains(word));
    wanted.map(|(_, option)| option).collect()
}

/// The same with sockets of messages, as those of C are.
fn messages(switched: SwitchConfig, name: &str, address: &str, more: &str) {
    let identity = Identity::self_signed(["localhost"]).unwrap();
    let tls = Arc::new(ServerTls::builder(identity).alpn(["echo"]).build().unwrap());
    let listener = Socket::new_v4();
    listener.set_switch(switched).unwrap();
    for option in options(more) {
        listener.set_udp_option(option).unwrap();
    }
    if let Err(error) = listener.bind(address.parse().unwrap()) {
        return println!("REFUSED {error}: {}", listener.failure().unwrap_or_default());
    }
    listener.set_alpn(b"echo").unwrap();
    listener.listen(16).unwrap();
    println!("READY {}", listener.local_addr());
    thread::spawn(|| {
        let _ = std::io::stdin().read(&mut [0]);
        std::process::exit(0);
    });
    while let Ok(socket) = listener.accept() {
        let (tls, name) = (Arc::clone(&tls), name.to_owned());
        thread::spawn(move || {
            socket.accept_tls(tls).unwrap();
            let mut buffer = vec![0; 500_000];
            let mut question = Vec::new();
            while let Ok(message) = socket.recv_message(&mut buffer, MsgFlags::NONE) {
                question.extend_from_slice(&buffer[..message.len]);
                let MessageKind::Stream(info) = message.kind else { continue };
                if info.flags.contains(StreamFlags::FIN) {
                    let answer = [name.as_bytes(), b":", &question].concat();
                    socket.send_message(&answer, None, StreamFlags::FIN.into()).unwrap();
                    question.clear();
                }
            }
        });
    }
}

fn answer(connection: &Connection, name: &str) {
    while let Ok(mut stream) = connection.accept_bi() {
        let mut question = String::new();
        if stream.read_to_string(&mut question).is_ok() {
            let _ = write!(stream, "{name}:{question}");
            let _ = stream.finish();
        }
    }
}

fn client() -> ClientConfig {
    let tls = ClientTls::builder().dangerous_no_verification().alpn(["echo"]).build().unwrap();
    ClientConfig::new(tls)
}

fn connect(address: SocketAddr, server: &str) -> Result<Connection, quicket::ConnectError> {
    Endpoint::bind("127.0.0.1:0").unwrap().connect(address, server, &client())
}

/// Whether a process has a UDP socket that is bound to a port.
fn has_socket_of(pid: u32, port: u16) -> bool {
    let mut inodes = BTreeSet::new();
    for list in ["udp", "udp6"] {
        for line in fs::read_to_string(format!("/proc/net/{list}")).unwrap().lines().skip(1) {
            let words: Vec<_> = line.split_whitespace().collect();
            if words[1].ends_with(&format!(":{port:04X}")) {
                inodes.insert(format!("socket:[{}]", words[9]));
            }
        }
    }
    assert!(!inodes.is_empty(), "nobody has port {port}");
    let open = fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    let open = open.filter_map(|entry| fs::read_link(entry.unwrap().path()).ok());
    open.into_iter().any(|target| inodes.contains(target.to_str().unwrap()))
}

#[test]
fn programs_of_several_users_serve_one_port_and_none_but_the_switchs_own_has_its_socket() {
    if !is_root() {
        return;
    }
    let system = System::start(None, &[]);
    let alice = Program::start(&system, ALICE, "alice", "a.example", "127.0.0.1:0", "workers");
    let at = alice.address.to_string();
    // She is alone, and clients of other names are none of her business.
    let error = connect(alice.address, "b.example").unwrap_err();
    assert!(error.to_string().contains("alert 120"), "{error}");
    let nobody = Program::start(&system, NOBODY, "nobody", "b.example", &at, "messages");
    let root = Program::start(&system, 0, "root", "", &at, "workers");
    let connections = [("alice", "a.example"), ("nobody", "b.example"), ("root", "c.example")];
    let connections: Vec<_> = connections
        .iter()
        .cycle()
        .take(24)
        .map(|(name, server)| (*name, connect(alice.address, server).unwrap()))
        .collect();
    let bulk = "x".repeat(400_000);
    for (name, connection) in &connections {
        assert_eq!(ask(connection, "1").unwrap(), format!("{name}:1"));
        assert_eq!(ask(connection, &bulk).unwrap().len(), name.len() + 1 + bulk.len());
    }
    let port = alice.address.port();
    assert!(!has_socket_of(alice.process.id(), port) && !has_socket_of(nobody.process.id(), port));
    assert!(has_socket_of(root.process.id(), port), "the check finds none");
    // Who sees what.
    let status = system.status();
    let users = |name: &str| system.program(name)["uid"].as_u64().unwrap();
    assert_eq!([users("alice"), users("nobody"), users("root")], [ALICE.into(), NOBODY.into(), 0]);
    let datagrams = &status["addresses"][0]["datagrams"];
    assert!(datagrams["sent_for_programs"].as_u64().unwrap() > 100, "{status}");
    assert_eq!((&datagrams["lost"], &datagrams["not_sent"]), (&0.into(), &0.into()), "{status}");
    let mut own = Program::spawn(ALICE, "asks", &[&system.name]);
    let seen = own.hear("STATUS ").unwrap();
    assert!(
        seen.contains("\"alice\"") && !seen.contains("nobody") && !seen.contains("root"),
        "{seen}"
    );
    let text = Command::new(QUICKET).args(["switch", "status", "--name", &system.name]).output();
    let text = String::from_utf8(text.unwrap().stdout).unwrap();
    assert!(text.contains("for the system") && text.contains("user 65533 pid"), "{text}");
}

#[test]
#[ignore = "a program that tests start"]
fn asks() {
    let Ok(switch) = env::var("ORDERS") else { return };
    println!("STATUS {}", quicket_switch::client::status(&switch).unwrap());
}

#[test]
fn a_user_has_what_the_rule_gives_him_and_nobody_takes_what_another_has() {
    if !is_root() {
        return;
    }
    let rule = "user 65533 ports 1-65535\nuser 65533 ports 843 names mine.example\n\
                group 65534 ports 1024-65535\n";
    let system = System::start(Some(rule), &[]);
    let alice = Program::start(&system, ALICE, "alice", "a.example", "127.0.0.1:0", "");
    let at = alice.address.to_string();
    let refused = |uid, servers, at: &str, more| {
        Program::try_start(&system, uid, "alice", servers, at, more).err().unwrap()
    };
    let taken = refused(NOBODY, "a.example", &at, "");
    assert!(taken.contains("another user serves") && !taken.contains("alice"), "{taken}");
    let taken = refused(NOBODY, "a.example", &at, "replace");
    assert!(taken.contains("another user serves"), "{taken}");
    let reserved = refused(NOBODY, "mine.example", &at, "");
    assert!(reserved.contains("does not let user 65534 serve mine.example"), "{reserved}");
    let low = refused(NOBODY, "", "127.0.0.1:843", "");
    assert!(low.contains("does not let user 65534 have 127.0.0.1:843"), "{low}");
    let stranger = refused(65_532, "", &at, "");
    assert!(stranger.contains("does not name user 65532"), "{stranger}");
    // Somebody without a switch has it.
    let outside = UdpSocket::bind("127.0.0.1:0").unwrap();
    let busy = refused(NOBODY, "", &outside.local_addr().unwrap().to_string(), "");
    assert!(busy.contains("cannot bind"), "{busy}");
    // The rule gives her a port that she could not bind herself, and her name.
    let low = Program::start(&system, ALICE, "low", "mine.example", "127.0.0.1:843", "");
    assert_eq!(ask(&connect(low.address, "mine.example").unwrap(), "1").unwrap(), "low:1");
    let connection = connect(alice.address, "a.example").unwrap();
    assert_eq!(ask(&connection, "2").unwrap(), "alice:2");
    // Her own next generation takes over.
    let next = Program::start(&system, ALICE, "alice.2", "a.example", &at, "replace");
    assert_eq!(ask(&connection, "3").unwrap(), "alice:3");
    assert_eq!(ask(&connect(next.address, "a.example").unwrap(), "4").unwrap(), "alice.2:4");
}

#[test]
fn a_switch_and_a_program_that_are_killed_take_nobody_elses_connections() {
    if !is_root() {
        return;
    }
    let mut system = System::start(None, &[]);
    let alice = Program::start(&system, ALICE, "alice", "a.example", "127.0.0.1:0", "workers");
    let at = alice.address;
    let mut nobody = Program::start(&system, NOBODY, "nobody", "b.example", &at.to_string(), "");
    let kept: Vec<_> = (0..6).map(|_| connect(at, "a.example").unwrap()).collect();
    let lost = connect(at, "b.example").unwrap();
    for round in 0..2 {
        system.kill_and_start();
        for connection in &kept {
            assert_eq!(ask(connection, "on").unwrap(), "alice:on", "round {round}");
        }
        assert_eq!(ask(&lost, "on").unwrap(), "nobody:on");
        assert_eq!(ask(&connect(at, "a.example").unwrap(), "new").unwrap(), "alice:new");
    }
    nobody.process.kill().unwrap();
    nobody.process.wait().unwrap();
    let begun = Instant::now();
    let error = ask(&lost, "gone").unwrap_err();
    assert!(begun.elapsed() < Duration::from_secs(5), "{error} after {:?}", begun.elapsed());
    // The switch has his reset key, and no other user does.
    assert!(lost.closed().to_string().contains("reset"), "{}", lost.closed());
    assert_eq!(ask(&kept[0], "on").unwrap(), "alice:on");
    let again = Program::start(&system, NOBODY, "nobody", "b.example", &at.to_string(), "");
    assert_eq!(ask(&connect(again.address, "b.example").unwrap(), "1").unwrap(), "nobody:1");
}

/// The switch does not read a rule in the moment in which it says so.
fn assert_is_reset(connection: &Connection) {
    let begun = Instant::now();
    while ask(connection, "are you there?").is_ok() {
        assert!(begun.elapsed() < LONG);
    }
    assert!(connection.closed().to_string().contains("reset"), "{}", connection.closed());
}

#[test]
fn another_rule_counts_at_once_and_a_broken_one_changes_nothing() {
    if !is_root() {
        return;
    }
    let all = format!("user {ALICE} ports 1024-65535\nuser {NOBODY} ports 1024-65535\n");
    let system = System::start(Some(&all), &[]);
    let mut alice = Program::start(&system, ALICE, "alice", "a.example", "127.0.0.1:0", "workers");
    let at = alice.address.to_string();
    let nobody = Program::start(&system, NOBODY, "nobody", "b.example", &at, "");
    let of_alice = connect(alice.address, "a.example").unwrap();
    let of_nobody = connect(alice.address, "b.example").unwrap();
    assert_eq!(ask(&of_nobody, "1").unwrap(), "nobody:1");
    let told = system.reload(&format!("{all}user {NOBODY} port 7\n"));
    assert!(told.contains("stays as it was") && told.contains("line 3: \"port\""), "{told}");
    assert_eq!(ask(&of_nobody, "2").unwrap(), "nobody:2");
    // Nothing of his is left; her name is reserved, and stays hers.
    let told = system.reload(&format!("user {ALICE} ports 1024-65535 names a.example\n"));
    assert!(told.contains("read again"), "{told}");
    assert_is_reset(&of_nobody);
    assert_eq!(ask(&of_alice, "4").unwrap(), "alice:4");
    let error = connect(alice.address, "b.example").unwrap_err();
    assert!(error.to_string().contains("alert 120"), "{error}");
    let again = Program::try_start(&system, NOBODY, "again", "b.example", &at, "");
    assert!(again.err().unwrap().contains("does not name user"));
    // Her program gets no more clients without the name, and keeps those that it has.
    system.reload(&format!("user {ALICE} ports 1024-65535 names c.example\n"));
    alice.hear("SUPERSEDED").unwrap();
    assert_eq!(ask(&of_alice, "5").unwrap(), "alice:5");
    let again = Program::try_start(&system, ALICE, "again", "a.example", &at, "");
    assert!(again.err().unwrap().contains("serve a.example"));
    let other = Program::start(&system, ALICE, "other", "c.example", &at, "");
    assert_eq!(ask(&connect(other.address, "c.example").unwrap(), "6").unwrap(), "other:6");
    // What is allowed again is there again for who asks.
    system.reload(&all);
    drop((alice, nobody));
    let again = Program::start(&system, NOBODY, "again", "b.example", &at, "");
    assert_eq!(ask(&connect(again.address, "b.example").unwrap(), "7").unwrap(), "again:7");
}

#[test]
fn options_of_the_socket_are_the_switchs_to_set_and_sockets_its_own_to_bind() {
    if !is_root() {
        return;
    }
    let rule =
        format!("user {ALICE} ports 1024-65535 options ttl\nuser {NOBODY} ports 1024-65535\n");
    let system = System::start(Some(&rule), &[]);
    let start = |uid, more: &str| {
        let address = format!("127.0.0.1:{}", free_port());
        Program::try_start(&system, uid, "program", "a.example", &address, more)
    };
    for more in ["ttl", "messages,ttl"] {
        let alice = start(ALICE, more).unwrap();
        let answer = ask(&connect(alice.address, "a.example").unwrap(), "1").unwrap();
        assert_eq!(answer, "program:1", "{more}");
        let refused = start(NOBODY, more).err().unwrap();
        assert!(refused.contains("option ttl (IP_TTL, IPV6_UNICAST_HOPS)"), "{more}: {refused}");
    }
    for (more, said) in [("dontroute", "SO_DONTROUTE"), ("messages,dontroute", "ENOPROTOOPT")] {
        let refused = start(ALICE, more).err().unwrap();
        assert!(refused.contains(said) && refused.contains("leave it out"), "{more}: {refused}");
    }
    let refused = start(ALICE, "handed").err().unwrap();
    assert!(refused.contains("ListenDatagram=") && refused.contains("another user's"), "{refused}");
    let root = start(0, "handed").unwrap();
    assert_eq!(ask(&connect(root.address, "a.example").unwrap(), "2").unwrap(), "program:2");
}

/// Nobody can bind the port of a tenant while no switch runs, of which he has no socket.
#[test]
fn a_service_manager_keeps_ports_while_the_switch_is_dead() {
    if !is_root() {
        return;
    }
    let mut manager = Manager::new();
    let mut system = System::start(None, &[]);
    let start = |manager: &Manager, system: &mut System| {
        system.process.kill().unwrap();
        system.process.wait().unwrap();
        // Whoever looks after it takes a while.
        thread::sleep(Duration::from_millis(300));
        let command = manager.command();
        (system.process, system.said) = System::process_of(command, &system.name, &system.more);
    };
    start(&manager, &mut system);
    let mut alice = Program::start(&system, ALICE, "alice", "a.example", "127.0.0.1:0", "");
    let at = alice.address;
    manager.hears("FDSTORE=1");
    let names: Vec<_> = manager.stored.keys().cloned().collect();
    assert_eq!(names, [format!("udp-127.0.0.1-{}", at.port())]);
    let kept = connect(at, "a.example").unwrap();
    let over = Arc::new(AtomicBool::new(false));
    let taker = {
        let over = Arc::clone(&over);
        thread::spawn(move || {
            let mut tries = 0_u64;
            while !over.load(Ordering::Relaxed) {
                assert!(UdpSocket::bind(at).is_err(), "the port was free");
                tries += 1;
                thread::yield_now();
            }
            tries
        })
    };
    for round in 0..3 {
        start(&manager, &mut system);
        manager.hears("FDSTORE=1");
        assert_eq!(ask(&kept, "on").unwrap(), "alice:on", "round {round}");
        assert_eq!(ask(&connect(at, "a.example").unwrap(), "new").unwrap(), "alice:new");
    }
    over.store(true, Ordering::Relaxed);
    let tries = taker.join().unwrap();
    assert!(tries > 100, "{tries}");
    // Nobody comes back for it.
    alice.process.kill().unwrap();
    alice.process.wait().unwrap();
    start(&manager, &mut system);
    manager.hears("FDSTOREREMOVE=1");
    assert!(manager.stored.is_empty());
    UdpSocket::bind(at).unwrap();
}

#[test]
fn connections_outlive_rotations_with_connection_ids_that_were_made_for_them() {
    if !is_root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("secrets").to_str().unwrap().to_owned();
    let secrets = |what: &str| {
        let done = Command::new(QUICKET).args(["switch", "secrets", what, &file]).status();
        assert!(done.unwrap().success());
    };
    secrets("new");
    let system = System::start(None, &["--secrets", &file, "--server-id", "07"]);
    let alice = Program::start(&system, ALICE, "alice", "", "127.0.0.1:0", "workers");
    let connections: Vec<_> = (0..4).map(|_| connect(alice.address, "a").unwrap()).collect();
    for number in 2..=5 {
        for connection in &connections {
            for _ in 0..5 {
                assert_eq!(ask(connection, "on").unwrap(), "alice:on", "number {number}");
            }
        }
        secrets("rotate");
        signal(system.process.id(), "-HUP");
        let begun = Instant::now();
        while system.status()["addresses"][0]["secrets"]["current"] != number {
            assert!(begun.elapsed() < LONG, "{}", system.status());
            thread::sleep(Duration::from_millis(5));
        }
        // The program hears of it at once, and connections take a few round trips.
        thread::sleep(Duration::from_millis(200));
    }
    for connection in &connections {
        assert_eq!(ask(connection, "still").unwrap(), "alice:still");
    }
    assert_eq!(ask(&connect(alice.address, "a").unwrap(), "new").unwrap(), "alice:new");
}

/// Tickets and the register of used ones are common to the generations of a user's program, and to nobody else.
#[test]
fn early_data_goes_on_over_an_upgrade_and_no_other_user_reads_the_ticket() {
    if !is_root() {
        return;
    }
    let system = System::start(None, &[]);
    let first = Program::start(&system, ALICE, "site", "a.example", "127.0.0.1:0", "early");
    let at = first.address;
    let store = Arc::new(MemorySessionStore::new());
    let config = client().sessions(store.clone());
    let endpoint = || Endpoint::bind("127.0.0.1:0").unwrap();
    let connection = endpoint().connect(at, "a.example", &config).unwrap();
    assert_eq!(ask(&connection, "").unwrap(), "site:");
    let begun = Instant::now();
    let mut tickets = Vec::new();
    while tickets.len() < 2 {
        tickets.extend(store.take_session(&format!("a.example:{}", at.port())));
        assert!(begun.elapsed() < LONG, "no tickets came");
        thread::sleep(Duration::from_millis(5));
    }
    let resumed = |ticket: &[u8], server: &str| {
        let store = Arc::new(MemorySessionStore::new());
        store.save_session(&format!("{server}:{}", at.port()), ticket);
        let config = client().sessions(store);
        let connection = endpoint().connect_early(at, server, &config).unwrap();
        let answer = ask(&connection, "q").unwrap();
        connection.wait_established().unwrap();
        (answer, connection.handshake().unwrap().resumed, connection.early_data())
    };
    let answer = |name: &str, resumed, early| (format!("{name}:q"), resumed, early);
    let taken = resumed(&tickets[0], "a.example");
    assert_eq!(taken, answer("site", true, EarlyData::Accepted));
    let same = at.to_string();
    let later = Program::start(&system, ALICE, "site.2", "a.example", &same, "early,replace");
    let copy = resumed(&tickets[0], "a.example");
    assert_eq!(copy, answer("site.2", true, EarlyData::Rejected), "a copy");
    let next = resumed(&tickets[1], "a.example");
    assert_eq!(next, answer("site.2", true, EarlyData::Accepted));
    // A program of the same name that has the server name by now, of another user.
    drop((first, later));
    let _other = Program::start(&system, NOBODY, "site", "a.example", &same, "early");
    let other = resumed(&tickets[1], "a.example");
    assert_eq!(other, answer("site", false, EarlyData::Rejected), "another user's");
}

/// Who means ill, and does what the library would not do: says what came of it line by line.
#[test]
#[ignore = "a program that tests start"]
fn attacker() {
    let Ok(orders) = env::var("ORDERS") else { return };
    let orders: Vec<&str> = orders.split('\n').collect();
    let [switch, victim, collector] = orders[..] else { panic!("{orders:?}") };
    let (victim, collector): (SocketAddr, SocketAddr) =
        (victim.parse().unwrap(), collector.parse().unwrap());
    let options = Options { name: switch.to_owned(), program: None, label: "attacker".to_owned() };
    let place = Place {
        address: victim,
        only_v6: false,
        workers: 1,
        steered: true,
        remains: false,
        options: SocketOptions::default(),
    };
    let joined = Membership::join_as(&options, place, None, || panic!("it was asked to bind"));
    let (member, inlets, way) = joined.unwrap();
    assert!(matches!(way, Way::Through(at) if at == victim), "{way:?}");
    let keys = &member.secrets().keys[0];
    assert_eq!((keys.key.0, keys.mask.0), ([0; 16], [0; 8]), "keys of connection IDs");
    let burst = |local: &str, bytes| Outgoing {
        remote: collector,
        local: Some(local.parse().unwrap()),
        ecn: EcnCodepoint::Ect0,
        segment_size: 100,
        bytes,
    };
    // From an address that it has not; to nobody; more than a burst may have; and what it may.
    let send = |burst: &Outgoing<'_>| inlets[0].send_through(burst);
    send(&burst("127.0.0.2", b"from elsewhere")).unwrap();
    send(&Outgoing { remote: ([224, 0, 0, 1], 9).into(), ..burst("127.0.0.1", b"to all") })
        .unwrap();
    send(&Outgoing { segment_size: 1, ..burst("127.0.0.1", &[7; 5000]) }).unwrap();
    send(&burst("127.0.0.1", &[9; 250])).unwrap();
    println!("SENT");
    let serve = Serve { protocols: vec![Octets(b"echo".to_vec())], ..Serve::default() };
    let taken = member.serve(Serve { server_names: vec!["a.example".into()], ..serve.clone() });
    println!("TAKES {}", taken.unwrap_err());
    member.serve(Serve { server_names: vec!["x.example".into()], ..serve }).unwrap();
    let ids = member.connection_ids(0);
    let minted: Vec<_> = (0..2000).map(|_| ids.take().expect("a connection ID")).collect();
    assert_eq!(minted.iter().collect::<BTreeSet<_>>().len(), minted.len());
    // Its own connection IDs with other bits: to other owners, it hopes.
    let own = UdpSocket::bind("127.0.0.1:0").unwrap();
    for (at, id) in (0..).zip(&minted) {
        let mut id = *id;
        id[1 + at % (ID_LEN - 1)] ^= 1 << (at % 8);
        let datagram = [&[0x41][..], &id, &[0x5a; 60]].concat();
        own.send_to(&datagram, victim).unwrap();
    }
    println!("ID {}", hex(&minted[0]));
    let mut word = String::new();
    std::io::stdin().read_line(&mut word).unwrap();
    assert_eq!(word.trim(), "flood");
    let (mut sent, mut full) = (0, 0);
    let begun = Instant::now();
    let train = vec![3; 60_000];
    while begun.elapsed() < Duration::from_secs(2) {
        match send(&Outgoing { segment_size: 1200, ..burst("127.0.0.1", &train) }) {
            Ok(_) => sent += 1,
            Err(error) => {
                assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock, "{error}");
                full += 1;
                thread::sleep(Duration::from_micros(50));
            }
        }
    }
    println!("FLOODED {sent} {full}");
    // It reads nothing, and stays.
    let _ = std::io::stdin().read_line(&mut word);
}

fn hex(octets: &[u8]) -> String {
    octets.iter().map(|octet| format!("{octet:02x}")).collect()
}

#[test]
fn who_means_ill_loses_his_own_datagrams_and_learns_nothing() {
    if !is_root() {
        return;
    }
    let system = System::start(None, &[]);
    let alice = Program::start(&system, ALICE, "alice", "a.example", "127.0.0.1:0", "");
    let at = alice.address;
    let connection = connect(at, "a.example").unwrap();
    assert_eq!(ask(&connection, "before").unwrap(), "alice:before");
    let collector = UdpSocket::bind("127.0.0.1:0").unwrap();
    collector.set_read_timeout(Some(LONG)).unwrap();
    let to = collector.local_addr().unwrap().to_string();
    let mut attacker = Program::spawn(NOBODY, "attacker", &[&system.name, &at.to_string(), &to]);
    attacker.hear("SENT").unwrap();
    // Of all that it has put into its channel one train goes out, from where it is registered.
    let mut buffer = [0; 2000];
    for len in [100, 100, 50] {
        let (came, from) = collector.recv_from(&mut buffer).unwrap();
        assert_eq!((came, from, buffer[0]), (len, at, 9));
    }
    assert_eq!(system.counter("not_sent"), 1 + 1 + 5000);
    let taken = attacker.hear("TAKES ").unwrap();
    assert!(taken.contains("another user serves"), "{taken}");
    let id = attacker.hear("ID ").unwrap();
    assert_eq!(ask(&connection, "altered").unwrap(), "alice:altered");
    // It floods its way out: others wait no longer for that.
    attacker.tell("flood");
    let begun = Instant::now();
    let mut longest = Duration::ZERO;
    let mut asked = 0;
    while begun.elapsed() < Duration::from_millis(1500) {
        let one = Instant::now();
        assert_eq!(ask(&connection, "beside").unwrap(), "alice:beside");
        assert_eq!(ask(&connect(at, "a.example").unwrap(), "new").unwrap(), "alice:new");
        longest = longest.max(one.elapsed());
        asked += 1;
    }
    let flooded = attacker.hear("FLOODED ").unwrap();
    println!("{asked} beside a flood of {flooded} trains; the longest took {longest:?}");
    assert!(longest < Duration::from_secs(3), "{longest:?}");
    let sent: u64 = flooded.split(' ').next().unwrap().parse().unwrap();
    assert!(sent > 100, "no flood: {flooded}");
    // It reads nothing of what comes for it: that is lost, and nothing of hers.
    let octets: Vec<u8> =
        (0..ID_LEN).map(|at| u8::from_str_radix(&id[2 * at..2 * at + 2], 16).unwrap()).collect();
    let datagram = [&[0x41][..], &octets, &[0x5a; 1185]].concat();
    let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
    let begun = Instant::now();
    while system.program("attacker")["lost"] == 0 {
        for _ in 0..500 {
            stranger.send_to(&datagram, at).unwrap();
        }
        assert!(begun.elapsed() < LONG, "{}", system.status());
        assert_eq!(ask(&connection, "full").unwrap(), "alice:full");
    }
    let memory = fs::read_to_string(format!("/proc/{}/status", system.process.id())).unwrap();
    let peak = memory.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    let peak: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(peak < 200 << 10, "the switch has {peak} kB");
    assert_eq!(system.program("alice")["lost"], 0);
    assert_eq!(ask(&connect(at, "a.example").unwrap(), "after").unwrap(), "alice:after");
    // What it has goes with it, and nothing else.
    drop(attacker);
    assert_eq!(ask(&connection, "alone").unwrap(), "alice:alone");
}
