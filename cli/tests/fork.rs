//! Servers of processes: programs that listen, fork, and have their children accept, as they would with other
//! sockets. They know nothing of Quicket but its library.
#![cfg(target_os = "linux")]

mod common;

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use quicket::{ClientConfig, ClientTls, Connection, Endpoint, Identity};
use tempfile::TempDir;

use quicket_testing::{LONG, Process, signal};

const QUICKET: &str = env!("CARGO_BIN_EXE_quicket");
const PROTOCOL: &str = "prefork";

/// A switch of a test's own, which ends with it.
struct Switch {
    name: String,
    dir: TempDir,
}

/// A program that was compiled, in one of two ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// With the library's calls in place of the system's.
    Linked,
    /// With the system's, under `quicket run`.
    Run,
}

impl Switch {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let dir = tempfile::tempdir().unwrap();
        let identity = Identity::self_signed(["localhost"]).unwrap();
        fs::write(dir.path().join("certificate"), identity.chain_pem()).unwrap();
        fs::write(dir.path().join("key"), identity.key_pem()).unwrap();
        Self { name: format!("quicket-fork-{}-{count}", std::process::id()), dir }
    }

    fn status(&self) -> serde_json::Value {
        let report = quicket_switch::client::status(&self.name).unwrap();
        serde_json::from_str(&report).unwrap()
    }

    /// Waits until the report says so.
    fn wait_until(&self, is_so: impl Fn(&serde_json::Value) -> bool) {
        let begun = Instant::now();
        loop {
            let status = self.status();
            if is_so(&status) {
                return;
            }
            assert!(begun.elapsed() < LONG, "{status:#}");
            thread::sleep(Duration::from_millis(5));
        }
    }

    fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        let file = |name: &str| self.dir.path().join(name);
        command.env("QUICKET_SWITCH", &self.name).env("QUICKET_SWITCH_PROGRAM", QUICKET);
        command.env("KEY", file("key")).env("CERTIFICATE", file("certificate"));
        command.env("XDG_CACHE_HOME", cache()).env("XDG_DATA_HOME", self.dir.path());
        command.env_remove("QUICKET_SWITCH_LISTENERS").env_remove("LATE");
        command
    }

    /// The program in C, whose parent does so after it has forked.
    fn c(&self, way: Way, children: usize, then: &str) -> Command {
        let [interposed, linked] = compiled();
        let mut command = match way {
            Way::Linked => {
                let mut command = self.command(linked);
                command.env("QUICKET_SWITCH_LISTENERS", "prefork");
                command.env("LD_LIBRARY_PATH", libraries());
                command
            }
            Way::Run => {
                let mut command = self.command(QUICKET);
                command.args(["run", "--switch=prefork", "--"]).arg(interposed);
                command
            }
        };
        command.args(["0", PROTOCOL, &children.to_string(), then]);
        command
    }

    /// The same of a program that does not share its address from the beginning.
    fn alone(&self, way: Way, children: usize, then: &str) -> Command {
        let shares = self.c(way, children, then);
        let arguments: Vec<_> = shares.get_args().map(ToOwned::to_owned).collect();
        let mut alone = self.command(shares.get_program());
        alone.args(arguments.into_iter().filter(|argument| argument != "--switch=prefork"));
        if way == Way::Linked {
            alone.env("LD_LIBRARY_PATH", libraries());
        }
        alone
    }

    fn python(&self, children: usize, how: &str) -> Command {
        let mut command = self.command(QUICKET);
        command.args(["run", "--switch=prefork", "--", "python3"]);
        command.arg(here("tests/python/prefork.py"));
        command.args(["0", PROTOCOL, &children.to_string(), how]);
        command
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        if let Ok(report) = quicket_switch::client::status(&self.name) {
            let report: serde_json::Value = serde_json::from_str(&report).unwrap();
            signal(report["pid"].as_u64().unwrap(), "-9");
        }
    }
}

fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Where `quicket run` unpacks its library, once for all tests.
fn cache() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("cache")
}

/// Cargo puts them beside the tests that they are built for.
fn libraries() -> PathBuf {
    env::current_exe().unwrap().parent().unwrap().to_owned()
}

/// The program in C, with the system's calls and with the library's.
fn compiled() -> &'static [PathBuf; 2] {
    static COMPILED: OnceLock<[PathBuf; 2]> = OnceLock::new();
    COMPILED.get_or_init(|| {
        ["prefork", "linked-prefork"].map(|name| {
            let program = format!("{name}-{}", std::process::id());
            let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(program);
            let mut cc = Command::new("cc");
            cc.args(["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-pthread", "-I"]);
            cc.arg(here("../c/include"));
            if name.starts_with("linked") {
                cc.arg("-include").arg(here("../preload/tests/programs/system.h"));
            }
            cc.arg("-o").args([&program, &here("tests/programs/prefork.c")]);
            if name.starts_with("linked") {
                cc.arg("-L").arg(libraries()).arg("-lquicket_c");
            }
            let compiled = cc.arg("-ldl").output().unwrap();
            assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
            program
        })
    })
}

/// A server and its processes, which end with its input.
struct Server {
    process: Process,
    /// It ends with this.
    _input: ChildStdin,
    lines: Receiver<String>,
    children: Vec<u64>,
    at: SocketAddr,
}

impl Server {
    /// Waits until it and its children are there.
    fn start(command: Command, children: usize) -> Self {
        let mut server = Self::spawn(command);
        while server.children.len() < children || server.at.port() == 0 {
            let line = server.line();
            match line.split_once(' ') {
                Some(("CHILD", process)) => server.children.push(process.parse().unwrap()),
                Some(("READY", address)) => {
                    server.at = address.parse().unwrap_or_else(|_| panic!("{line:?}"));
                }
                _ => panic!("{line}"),
            }
        }
        server
    }

    fn spawn(mut command: Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = Process(command.spawn().unwrap());
        let output = BufReader::new(process.stdout.take().unwrap());
        let (tell, lines) = mpsc::channel();
        thread::spawn(move || {
            output.lines().map_while(Result::ok).try_for_each(|line| tell.send(line))
        });
        let input = process.stdin.take().unwrap();
        let at = "127.0.0.1:0".parse().unwrap();
        Self { process, _input: input, lines, children: Vec::new(), at }
    }

    fn line(&self) -> String {
        self.lines.recv_timeout(LONG).expect("it has ended, or says nothing")
    }

    fn is_child(&self, process: u64) -> bool {
        self.children.contains(&process)
    }

    /// Has a process close the listener.
    fn close(&self, process: u64) {
        let begun = Instant::now();
        loop {
            // One that comes the moment before it sleeps does not interrupt it.
            signal(process, "-USR1");
            match self.lines.recv_timeout(Duration::from_millis(500)) {
                Ok(line) => return assert_eq!(line, format!("CLOSED {process}")),
                Err(error) => assert!(begun.elapsed() < LONG, "{error}"),
            }
        }
    }
}

fn client() -> Endpoint {
    Endpoint::bind("127.0.0.1:0").unwrap()
}

fn try_connect(endpoint: &Endpoint, at: SocketAddr) -> Result<Connection, quicket::ConnectError> {
    let tls = ClientTls::builder().dangerous_no_verification().alpn([PROTOCOL]);
    endpoint.connect(at, "localhost", &ClientConfig::new(tls.build().unwrap()))
}

fn connect(at: SocketAddr) -> Connection {
    try_connect(&client(), at).unwrap()
}

/// Asks, and returns which process answers.
fn ask(connection: &Connection, question: &str) -> std::io::Result<u64> {
    let mut stream = connection.open_bi().map_err(std::io::Error::other)?;
    stream.write_all(question.as_bytes())?;
    stream.finish().map_err(std::io::Error::other)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (process, text) = answer.split_once(':').ok_or(std::io::ErrorKind::InvalidData)?;
    assert_eq!(text, question);
    Ok(process.parse().unwrap())
}

/// How many clients each process has served, of 200 that come one by one from each of eight sides.
fn serve_200(server: &Server) -> BTreeMap<u64, u32> {
    let (at, served) = (server.at, Mutex::new(BTreeMap::new()));
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let endpoint = client();
                for round in 0..25 {
                    let connection = try_connect(&endpoint, at).unwrap();
                    let process = ask(&connection, &round.to_string()).unwrap();
                    *served.lock().unwrap().entry(process).or_insert(0) += 1;
                }
            });
        }
    });
    let served = served.into_inner().unwrap();
    assert_eq!(served.values().sum::<u32>(), 200);
    assert!(served.keys().all(|process| server.is_child(*process)), "{served:?}");
    served
}

/// One client for each process: those that have none come first, once they wait for one.
fn one_each(switch: &Switch, server: &Server) -> BTreeMap<u64, Connection> {
    let mut kept = BTreeMap::new();
    for left in (1..=server.children.len()).rev() {
        switch.wait_until(|status| accepting(status) == left);
        let connection = connect(server.at);
        let process = ask(&connection, "first").unwrap();
        assert!(kept.insert(process, connection).is_none(), "{process} has one, others have none");
    }
    kept
}

/// How many processes wait for clients.
fn accepting(status: &serde_json::Value) -> usize {
    let programs = status["addresses"][0]["programs"].as_array();
    let waits = |program: &&serde_json::Value| {
        program["state"] == "serving" && program["attention"] == "accepting"
    };
    programs.map_or(0, |programs| programs.iter().filter(waits).count())
}

/// 200 clients are served by several processes; the death of one is that of its client, and of no other's.
fn serves(switch: &Switch, server: &Server) {
    let served = serve_200(server);
    assert!(served.len() > 1, "{served:?}");
    let mut kept = one_each(switch, server);
    let (victim, lost) = kept.pop_first().unwrap();
    signal(victim, "-9");
    let error = ask(&lost, "are you there?").unwrap_err();
    assert!(lost.closed().to_string().contains("reset"), "{error}: {}", lost.closed());
    for (process, connection) in &kept {
        assert_eq!(ask(connection, "and you?").unwrap(), *process);
    }
    drop(kept);
    let served = serve_200(server);
    assert!(!served.contains_key(&victim), "{served:?}");
}

#[test]
fn children_of_a_linked_program_accept_from_the_listener_of_their_parent() {
    let switch = Switch::new();
    serves(&switch, &Server::start(switch.c(Way::Linked, 4, "wait"), 4));
}

#[test]
fn children_of_an_unmodified_program_accept_from_the_listener_of_their_parent() {
    let switch = Switch::new();
    serves(&switch, &Server::start(switch.c(Way::Run, 4, "wait"), 4));
}

#[test]
fn children_of_a_program_in_python_accept_from_the_listener_of_their_parent() {
    let switch = Switch::new();
    serves(&switch, &Server::start(switch.python(4, "accept"), 4));
}

#[test]
fn children_that_poll_accept_from_the_listener_of_their_parent() {
    let switch = Switch::new();
    let server = Server::start(switch.python(3, "epoll"), 3);
    let served = serve_200(&server);
    assert!(served.len() > 1, "{served:?}");
}

/// As many as there may be wait, as in the queue of a socket that processes share.
#[test]
fn clients_that_come_before_any_child_accepts_wait_for_one() {
    for (way, then) in
        [(Way::Run, "wait"), (Way::Run, "close"), (Way::Linked, "close"), (Way::Run, "exit")]
    {
        let switch = Switch::new();
        let late = switch.dir.path().join("late");
        let mut command = switch.c(way, 2, then);
        command.env("LATE", &late);
        let mut server = Server::start(command, 2);
        if then == "exit" {
            assert!(server.process.wait().unwrap().success());
        }
        // What the parent has closed, or has not, is its children's.
        switch.wait_until(|status| status["addresses"][0]["programs"][0]["state"] == "waiting");
        assert!(UdpSocket::bind(server.at).is_err());
        let at = server.at;
        let clients: Vec<_> = (0..4)
            .map(|_| {
                thread::spawn(move || {
                    let connection = connect(at);
                    ask(&connection, "early").unwrap()
                })
            })
            .collect();
        switch.wait_until(|status| {
            status["addresses"][0]["datagrams"]["waited"].as_u64().unwrap() >= 4
        });
        fs::write(&late, "").unwrap();
        for client in clients {
            assert!(server.is_child(client.join().unwrap()), "{way:?} {then}");
        }
        serve_200(&server);
    }
}

#[test]
fn each_process_closes_the_listener_for_itself_and_the_last_one_gives_the_address_up() {
    let switch = Switch::new();
    let server = Server::start(switch.c(Way::Run, 2, "wait"), 2);
    drop(one_each(&switch, &server));
    let parent = switch.status()["addresses"][0]["programs"]
        .as_array()
        .unwrap()
        .iter()
        .find(|program| program["state"] == "waiting")
        .map(|program| program["pid"].as_u64().unwrap())
        .unwrap();
    server.close(server.children[0]);
    for _ in 0..4 {
        assert_eq!(ask(&connect(server.at), "one").unwrap(), server.children[1]);
    }
    server.close(parent);
    for _ in 0..4 {
        assert_eq!(ask(&connect(server.at), "two").unwrap(), server.children[1]);
    }
    assert!(UdpSocket::bind(server.at).is_err());
    server.close(server.children[1]);
    let begun = Instant::now();
    while let Err(error) = UdpSocket::bind(server.at) {
        assert!(begun.elapsed() < LONG, "{error}: {:#}", switch.status());
        thread::sleep(Duration::from_millis(10));
    }
}

/// Those that were forked come back to the next switch as one family, and the parent is away there, too.
#[test]
fn a_server_of_processes_outlives_its_switch() {
    let switch = Switch::new();
    let server = Server::start(switch.c(Way::Run, 3, "wait"), 3);
    let kept = one_each(&switch, &server);
    for _ in 0..2 {
        signal(switch.status()["pid"].as_u64().unwrap(), "-9");
        for (process, connection) in &kept {
            assert_eq!(ask(connection, "on").unwrap(), *process);
        }
        let begun = Instant::now();
        while quicket_switch::client::status(&switch.name).is_err() {
            assert!(begun.elapsed() < LONG);
            thread::sleep(Duration::from_millis(5));
        }
        switch.wait_until(|status| {
            let programs = status["addresses"][0]["programs"].as_array();
            programs.is_some_and(|programs| programs.len() == 4)
        });
    }
    drop(kept);
    assert!(serve_200(&server).len() > 1);
}

/// The parent leaves its socket to the switch when a child first accepts.
#[test]
fn children_of_a_program_that_has_its_address_to_itself_accept_too() {
    for way in [Way::Run, Way::Linked] {
        let switch = Switch::new();
        serves(&switch, &Server::start(switch.alone(way, 4, "wait"), 4));
    }
}

/// Nobody reads the socket any more, which the children have.
#[test]
fn children_of_a_program_that_had_its_address_to_itself_and_went_accept_too() {
    for (way, then) in [(Way::Run, "close"), (Way::Run, "exit"), (Way::Linked, "exit")] {
        let switch = Switch::new();
        let late = switch.dir.path().join("late");
        let mut command = switch.alone(way, 3, then);
        command.env("LATE", &late);
        let mut server = Server::start(command, 3);
        if then == "exit" {
            assert!(server.process.wait().unwrap().success());
        }
        assert!(UdpSocket::bind(server.at).is_err(), "{way:?} {then}");
        fs::write(&late, "").unwrap();
        assert!(serve_200(&server).len() > 1, "{way:?} {then}");
        drop(one_each(&switch, &server));
    }
}

/// The switch cannot read connection IDs of before, and hands over what comes for them all the same.
#[test]
fn a_client_of_before_stays_with_its_parent() {
    for way in [Way::Run, Way::Linked] {
        let switch = Switch::new();
        let mut server = Server::spawn(switch.alone(way, 2, "serve"));
        let line = server.line();
        server.at = line.strip_prefix("READY ").unwrap().parse().unwrap();
        let at = server.at;
        let first = thread::spawn(move || connect(at));
        while server.children.len() < 2 {
            let line = server.line();
            server.children.push(line.strip_prefix("CHILD ").unwrap().parse().unwrap());
        }
        let first = first.join().unwrap();
        let parent = u64::from(server.process.id());
        assert_eq!(ask(&first, "one").unwrap(), parent);
        // Nobody of the children has used the listener before that.
        assert!(serve_200(&server).len() > 1);
        assert_eq!(ask(&first, "two").unwrap(), parent);
        signal(switch.status()["pid"].as_u64().unwrap(), "-9");
        assert_eq!(ask(&first, "three").unwrap(), parent);
        serve_200(&server);
        assert_eq!(ask(&first, "four").unwrap(), parent);
        assert!(switch.status()["addresses"][0]["datagrams"]["remainder"].as_u64() > Some(0));
    }
}

/// It says why, to each of them.
#[test]
fn children_hear_why_an_address_cannot_be_shared() {
    let switch = Switch::new();
    let mut command = switch.alone(Way::Run, 2, "wait");
    command.env("QUICKET_SWITCH_PROGRAM", switch.dir.path().join("none"));
    let server = Server::spawn(command);
    // Whichever of parent and children speaks first.
    let lines = std::iter::repeat_with(|| server.line());
    let mut failed = lines.filter(|line| line.starts_with("FAILED"));
    for _ in 0..2 {
        assert_eq!(failed.next().unwrap(), "FAILED accept: ENOENT");
    }
}
