//! Clients that are half-way through their first packets when the kernel stops to bring those to a program past the
//! switch: because another program comes, or the next generation. What they sent is delayed, lost, or comes in another
//! order meanwhile.
#![cfg(target_os = "linux")]

mod early;
mod retry;
#[path = "../common/switch.rs"]
mod switch;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use quicket::{
    ClientConfig, ClientTls, Connection, Endpoint, EndpointConfig, Identity, ServerConfig,
    ServerTls, SwitchConfig, Workers,
};
use serde_json::Value;

use switch::Switch;

/// How long anything may take on a machine that is busy.
const LONG: Duration = Duration::from_secs(30);
/// How long a thread waits before it looks whether it is to end.
const LOOK: Duration = Duration::from_millis(5);
const CLIENTS: usize = 24;

impl Switch {
    fn wait_for(&self, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        let begun = Instant::now();
        loop {
            let address = self.address();
            if is_so(&address) {
                return address;
            }
            assert!(begun.elapsed() < LONG, "{what}: {address}");
            thread::sleep(LOOK);
        }
    }

    /// A program, one for each protocol, which answers each stream with what it is called.
    fn program(&self, called: &'static str, alpn: &str, at: SocketAddr, workers: usize) -> Program {
        self.serving((called, alpn), at, workers, |server| server)
    }

    fn serving(
        &self,
        (called, alpn): (&'static str, &str),
        at: SocketAddr,
        workers: usize,
        configure: impl FnOnce(ServerConfig) -> ServerConfig,
    ) -> Program {
        let (tell, superseded) = channel();
        let switch = SwitchConfig::new(alpn).named(&self.name).started_by(None).replace(true);
        let tell = Mutex::new(tell);
        let switch = switch.on_superseded(move || {
            let _ = tell.lock().unwrap().send(());
        });
        let config = EndpointConfig::default().switch(switch).workers(Workers::Count(workers));
        let endpoint = Endpoint::bind_with(at, config).unwrap();
        let identity = Identity::self_signed(["localhost"]).unwrap();
        let tls = ServerTls::builder(identity).alpn([alpn]).build().unwrap();
        let listener = endpoint.listen(configure(ServerConfig::new(tls))).unwrap();
        let (listening, listens) = channel();
        thread::spawn(move || {
            let _listening: Sender<()> = listening;
            for connection in listener.incoming().map_while(Result::ok) {
                thread::spawn(move || {
                    while let Ok(mut stream) = connection.accept_bi() {
                        let _ = stream.read_to_end(1024);
                        let _ = stream.write_all(called.as_bytes());
                        let _ = stream.finish();
                    }
                });
            }
        });
        Program { endpoint, listens, superseded }
    }
}

struct Program {
    endpoint: Endpoint,
    /// Hangs up when its listener has ended.
    listens: Receiver<()>,
    /// Another generation has its clients.
    superseded: Receiver<()>,
}

/// What a gate does with a client's first datagrams while it is closed. All others wait.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Plan {
    /// The first one passes.
    First,
    /// The second one passes.
    Second,
    /// The first one is lost.
    Lost,
}

/// A relay to a server. Closed, it holds back what comes from either side, according to the clients' plans in turn.
struct Gate {
    address: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    is_open: AtomicBool,
    is_over: AtomicBool,
    /// How many datagrams of each client came while it was closed.
    came: Mutex<BTreeMap<SocketAddr, usize>>,
}

struct Way {
    back: UdpSocket,
    plan: Plan,
    up: Vec<Vec<u8>>,
    down: Vec<Vec<u8>>,
}

fn socket() -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_nonblocking(true).unwrap();
    socket
}

impl Gate {
    fn to(server: SocketAddr, plans: &'static [Plan]) -> Self {
        let front = socket();
        let address = front.local_addr().unwrap();
        let shared = Arc::<Shared>::default();
        let known = Arc::clone(&shared);
        let thread = thread::spawn(move || forward(&front, server, plans, &known));
        Self { address, shared, thread: Some(thread) }
    }

    /// Waits until so many clients have sent their ClientHellos, of two datagrams at least.
    fn is_reached_by(&self, clients: usize) {
        let begun = Instant::now();
        let reached = || {
            let came = self.shared.came.lock().unwrap();
            came.len() == clients && came.values().all(|count| *count > 1)
        };
        while !reached() {
            assert!(begun.elapsed() < LONG, "{:?}", self.shared.came.lock().unwrap());
            thread::sleep(LOOK);
        }
    }

    fn open(&self) {
        self.shared.is_open.store(true, Ordering::SeqCst);
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::SeqCst);
        let _ = self.thread.take().unwrap().join();
    }
}

fn forward(front: &UdpSocket, server: SocketAddr, plans: &[Plan], shared: &Shared) {
    let mut ways = BTreeMap::<SocketAddr, Way>::new();
    let mut buffer = vec![0; 65_536];
    while !shared.is_over.load(Ordering::SeqCst) {
        let is_open = shared.is_open.load(Ordering::SeqCst);
        let mut moved = false;
        while let Ok((len, client)) = front.recv_from(&mut buffer) {
            moved = true;
            let plan = plans[ways.len() % plans.len()];
            let way = ways.entry(client).or_insert_with(|| Way {
                back: socket(),
                plan,
                up: Vec::new(),
                down: Vec::new(),
            });
            let bytes = &buffer[..len];
            if is_open {
                way.back.send_to(bytes, server).unwrap();
                continue;
            }
            let mut came = shared.came.lock().unwrap();
            let count = came.entry(client).or_default();
            *count += 1;
            match (way.plan, *count) {
                (Plan::First, 1) | (Plan::Second, 2) => {
                    way.back.send_to(bytes, server).unwrap();
                }
                (Plan::Lost, 1) => {}
                _ => way.up.push(bytes.to_vec()),
            }
        }
        for (client, way) in &mut ways {
            while let Ok((len, _)) = way.back.recv_from(&mut buffer) {
                moved = true;
                way.down.push(buffer[..len].to_vec());
            }
            if is_open {
                for bytes in way.up.drain(..) {
                    way.back.send_to(&bytes, server).unwrap();
                }
                for bytes in way.down.drain(..) {
                    front.send_to(&bytes, client).unwrap();
                }
            }
        }
        if !moved {
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// A client whose ClientHello takes several datagrams, for it offers protocols with long names, too.
fn client(alpn: &str) -> ClientConfig {
    let long = (0..8).map(|number| format!("{number:0>250}"));
    let alpn = std::iter::once(alpn.to_owned()).chain(long);
    ClientConfig::new(ClientTls::builder().dangerous_no_verification().alpn(alpn).build().unwrap())
}

/// Who answers a new client.
fn ask(server: SocketAddr, alpn: &str) -> String {
    ask_as(server, &client(alpn))
}

fn ask_as(server: SocketAddr, client: &ClientConfig) -> String {
    let connection = Connection::connect(server, "localhost", client).unwrap();
    let mut stream = connection.open_bi().unwrap();
    stream.finish().unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn count(address: &Value, program: usize, what: &str) -> u64 {
    address["programs"][program][what].as_u64().unwrap()
}

/// Clients of a lone program are half-way when `comes` does, and their datagrams go on then. Returns who answered each, and
/// what the switch says.
fn change_while_half_way(
    plans: &'static [Plan],
    workers: usize,
    comes: impl FnOnce(&Switch, SocketAddr) -> Program,
) -> (Vec<String>, Value) {
    let switch = Switch::new();
    let first = switch.program("first", "a", "127.0.0.1:0".parse().unwrap(), workers);
    let server = first.endpoint.local_addr();
    switch.wait_for("the door opens", |said| said["kernel"]["brings_first_packets"] == true);
    assert_eq!(ask(server, "a"), "first");
    let gate = Gate::to(server, plans);
    let address = gate.address;
    let clients: Vec<_> = (0..CLIENTS).map(|_| thread::spawn(move || ask(address, "a"))).collect();
    gate.is_reached_by(CLIENTS);
    let lost = (0..CLIENTS).filter(|at| plans[at % plans.len()] == Plan::Lost).count();
    let half = (CLIENTS - lost) as u64;
    let said = switch.wait_for("it has all that have come", |said| {
        count(said, 0, "first_packets_by_kernel") == half + 1
    });
    assert_eq!((count(&said, 0, "first_packets"), &said["datagrams"]["received"]), (0, &0.into()));
    let second = comes(&switch, server);
    assert_eq!(switch.address()["kernel"]["brings_first_packets"], false);
    gate.open();
    let answers = clients.into_iter().map(|client| client.join().unwrap()).collect();
    let said = switch.address();
    assert_eq!(count(&said, 0, "first_packets_by_kernel"), half + 1, "{said}");
    drop(second);
    (answers, said)
}

#[test]
fn clients_stay_with_the_program_that_was_alone_when_another_one_comes() {
    for workers in [1, 3] {
        let (answers, said) =
            change_while_half_way(&[Plan::First, Plan::Second], workers, |switch, server| {
                let second = switch.program("second", "b", server, 1);
                assert_eq!((ask(server, "a"), ask(server, "b")), ("first".into(), "second".into()));
                second
            });
        assert_eq!(answers, ["first"; CLIENTS], "{said}");
        // The clients that came since, and nobody else.
        assert_eq!((count(&said, 0, "first_packets"), count(&said, 1, "first_packets")), (1, 1));
        assert!(said["datagrams"]["by_pin"].as_u64().unwrap() >= CLIENTS as u64, "{said}");
    }
}

/// They begin anew, and are read.
#[test]
fn clients_whose_first_datagram_was_lost_come_to_the_program_that_they_ask_for() {
    let plans = &[Plan::Lost, Plan::First];
    let (answers, said) =
        change_while_half_way(plans, 2, |switch, server| switch.program("second", "b", server, 1));
    assert_eq!(answers, ["first"; CLIENTS], "{said}");
    assert_eq!(count(&said, 1, "first_packets"), 0, "{said}");
}

#[test]
fn clients_stay_with_the_generation_that_they_have_begun_with() {
    for workers in [1, 3] {
        let (answers, said) =
            change_while_half_way(&[Plan::First, Plan::Second], workers, |switch, server| {
                let second = switch.program("second", "a", server, workers);
                assert_eq!(ask(server, "a"), "second");
                second
            });
        assert_eq!(answers, ["first"; CLIENTS], "{said}");
        assert_eq!(said["kernel"]["brings_first_packets"], false, "pins lead to the one before");
    }
}
