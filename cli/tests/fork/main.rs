//! Servers of processes: programs that listen, fork, and have their children accept, as they would with other
//! sockets. They know nothing of Quicket but its library.
#![cfg(target_os = "linux")]

mod servers;

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, UdpSocket};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use quicket::{ClientConfig, ClientTls, Connection, Endpoint};
use quicket_testing::{LONG, signal};

use servers::{PROTOCOL, Server, Switch, Way};

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

/// The parent is asked on another thread than the child's.
#[test]
fn a_child_that_does_not_wait_is_not_held_up_by_a_parent_that_stands_still() {
    for way in [Way::Run, Way::Linked] {
        let switch = Switch::new();
        let late = switch.dir.path().join("late");
        let mut command = switch.alone(way, 1, "wait");
        command.env("LATE", &late).env("POLLS", "");
        let server = Server::start(command, 1);
        let parent = server.process.id().into();
        signal(parent, "-STOP");
        fs::write(&late, "").unwrap();
        let line = server.line();
        signal(parent, "-CONT");
        assert_eq!(line, format!("AGAIN {}", server.children[0]), "{way:?}");
        assert_eq!(ask(&connect(server.at), "polled").unwrap(), server.children[0]);
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
        let (server, first) = with_a_client_of_the_parent(switch.alone(way, 2, "serve"));
        let parent = u64::from(server.process.id());
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

/// A relay between a client and a server, which passes on what the client has said so far only, until it is answered.
struct Hush {
    at: SocketAddr,
    passed: Arc<AtomicU32>,
    hushed: Arc<AtomicBool>,
}

impl Hush {
    fn before(server: SocketAddr) -> Self {
        let [front, back] = ["127.0.0.1:0"; 2].map(|at| UdpSocket::bind(at).unwrap());
        back.connect(server).unwrap();
        let at = front.local_addr().unwrap();
        let (passed, hushed) = (Arc::<AtomicU32>::default(), Arc::<AtomicBool>::default());
        let client = Arc::new(Mutex::new(None));
        let ways = [front.try_clone().unwrap(), back.try_clone().unwrap()];
        let (counted, closed, known) = (passed.clone(), hushed.clone(), client.clone());
        thread::spawn(move || {
            let mut buffer = [0; 65_536];
            while let Ok((length, from)) = ways[0].recv_from(&mut buffer) {
                *known.lock().unwrap() = Some(from);
                if !closed.load(Ordering::SeqCst) {
                    let _ = ways[1].send(&buffer[..length]);
                    counted.fetch_add(1, Ordering::SeqCst);
                }
            }
        });
        let opened = hushed.clone();
        thread::spawn(move || {
            let mut buffer = [0; 65_536];
            while let Ok(length) = back.recv(&mut buffer) {
                opened.store(false, Ordering::SeqCst);
                let client = client.lock().unwrap().unwrap();
                let _ = front.send_to(&buffer[..length], client);
            }
        });
        Self { at, passed, hushed }
    }

    /// Waits until the client has said hello, in one datagram, and passes on no more of it.
    fn close(&self) {
        let begun = Instant::now();
        while self.passed.load(Ordering::SeqCst) < 1 {
            assert!(begun.elapsed() < LONG);
            thread::sleep(Duration::from_millis(2));
        }
        self.hushed.store(true, Ordering::SeqCst);
    }
}

/// A server whose parent serves a client and has two children, and the client.
fn with_a_client_of_the_parent(command: Command) -> (Server, Connection) {
    let mut server = Server::spawn(command);
    let line = server.line();
    server.at = line.strip_prefix("READY ").unwrap().parse().unwrap();
    let at = server.at;
    let first = thread::spawn(move || connect(at));
    while server.children.len() < 2 {
        let line = server.line();
        server.children.push(line.strip_prefix("CHILD ").unwrap().parse().unwrap());
    }
    let first = first.join().unwrap();
    assert_eq!(ask(&first, "one").unwrap(), u64::from(server.process.id()));
    (server, first)
}

/// New clients are its children's, whoever accepts when; and its own go on.
#[test]
fn a_parent_that_closes_its_listener_serves_its_client_on() {
    for (way, shares) in
        [(Way::Run, true), (Way::Linked, true), (Way::Run, false), (Way::Linked, false)]
    {
        for children_are_late in [false, true] {
            let switch = Switch::new();
            let mut command =
                if shares { switch.c(way, 2, "serve") } else { switch.alone(way, 2, "serve") };
            let late = switch.dir.path().join("late");
            command.env("LATE", &late);
            let (server, first) = with_a_client_of_the_parent(command);
            let parent = u64::from(server.process.id());
            if children_are_late {
                server.close(parent);
                // A client that comes before any child accepts has to say nothing twice.
                let hush = Hush::before(server.at);
                let at = hush.at;
                let waits = thread::spawn(move || ask(&connect(at), "early").unwrap());
                hush.close();
                assert_eq!(ask(&first, "two").unwrap(), parent);
                fs::write(&late, "").unwrap();
                let served = waits.join().unwrap();
                assert!(server.is_child(served), "{way:?}, {shares}: {served}");
            } else {
                fs::write(&late, "").unwrap();
                serve_200(&server);
                server.close(parent);
            }
            assert!(serve_200(&server).len() > 1, "{way:?}, {shares}");
            assert_eq!(ask(&first, "three").unwrap(), parent);
            signal(switch.status()["pid"].as_u64().unwrap(), "-9");
            assert_eq!(ask(&first, "four").unwrap(), parent);
            serve_200(&server);
            assert_eq!(ask(&first, "five").unwrap(), parent);
            // The last one of the parent's ends, and nobody else's.
            drop(first);
            let [one, two] = [0, 1].map(|_| connect(server.at));
            let answers = [&one, &two].map(|connection| ask(connection, "on").unwrap());
            assert!(answers.into_iter().all(|process| server.is_child(process)), "{answers:?}");
        }
    }
}

/// The parent has no client that would keep its endpoint, and nobody has called it by then.
#[test]
fn a_client_waits_for_the_first_child_of_a_parent_that_has_closed_its_listener() {
    for way in [Way::Run, Way::Linked] {
        for then in ["close", "wait"] {
            let switch = Switch::new();
            let late = switch.dir.path().join("late");
            let mut command = switch.alone(way, 2, then);
            command.env("LATE", &late);
            let server = Server::start(command, 2);
            if then == "wait" {
                server.close(u64::from(server.process.id()));
            }
            let hush = Hush::before(server.at);
            let at = hush.at;
            let waits = thread::spawn(move || ask(&connect(at), "early").unwrap());
            hush.close();
            fs::write(&late, "").unwrap();
            let served = waits.join().unwrap();
            assert!(server.is_child(served), "{way:?}, {then}: {served}");
        }
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
