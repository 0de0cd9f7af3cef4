//! The same of clients that come back with a ticket, and have sent early data (0-RTT) by then: what begins their connection
//! and what they ask are packets of their own, of which some come before the change, and some after it.

use std::sync::mpsc::RecvTimeoutError;

use quicket::{EarlyData, MemorySessionStore, SessionStore};

use super::*;

/// Early data of a client, in bytes: several packets.
const QUESTION: usize = 5000;
const TICKETS: usize = 12;

/// Which of a client's packets pass before the change. All others come after it.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Before {
    /// Those that begin the connection.
    Initials,
    /// Early data.
    Early,
    /// The first of each.
    First,
    /// All, and all of them come again after it.
    All,
}

/// What a server has read.
#[derive(Debug)]
struct Heard {
    by: &'static str,
    client: usize,
    is_early: bool,
}

/// A program that answers each question with what it is called.
struct Answering {
    endpoint: Endpoint,
    /// Hangs up when its listener has ended.
    listens: Receiver<()>,
}

impl Switch {
    fn answering(
        &self,
        (called, alpn): (&'static str, &str),
        at: SocketAddr,
        workers: usize,
        read: &Sender<Heard>,
    ) -> Answering {
        let switch = SwitchConfig::new(alpn).named(&self.name).started_by(None).replace(true);
        let config = EndpointConfig::default().switch(switch).workers(Workers::Count(workers));
        let endpoint = Endpoint::bind_with(at, config).unwrap();
        let identity = Identity::self_signed(["localhost"]).unwrap();
        let tls = ServerTls::builder(identity).alpn([alpn]).early_data(true).build().unwrap();
        let listener = endpoint.listen_early(ServerConfig::new(tls).early_data(true)).unwrap();
        let (listening, listens) = channel();
        let read = read.clone();
        thread::spawn(move || {
            let _listening = listening;
            for connection in listener.incoming().map_while(Result::ok) {
                let read = read.clone();
                thread::spawn(move || {
                    while let Ok(mut stream) = connection.accept_bi() {
                        let is_early = stream.is_early_data();
                        let Ok(question) = stream.read_to_end(QUESTION) else { continue };
                        let client = usize::from(question[0]);
                        assert_eq!(question, [question[0]; QUESTION]);
                        let _ = read.send(Heard { by: called, client, is_early });
                        let _ = stream.write_all(called.as_bytes());
                        let _ = stream.finish();
                    }
                });
            }
        });
        Answering { endpoint, listens }
    }
}

/// What a datagram of a client's is, of version 1 or 2 (RFC 9369, Section 3.2).
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Initial,
    Early,
    Other,
}

fn kind(datagram: &[u8]) -> Kind {
    let is_v2 = datagram.get(1..5) == Some(&[0x6b, 0x33, 0x43, 0xcf]);
    match (datagram[0] & 0x80 != 0).then_some((datagram[0] >> 4) & 3) {
        Some(0) if !is_v2 => Kind::Initial,
        Some(1) if !is_v2 => Kind::Early,
        Some(1) => Kind::Initial,
        Some(2) if is_v2 => Kind::Early,
        _ => Kind::Other,
    }
}

/// What has come of a client.
#[derive(Clone, Copy, Debug, Default)]
struct Came {
    initial: usize,
    early: usize,
}

/// A relay to a server, which is closed first.
struct Relay {
    address: SocketAddr,
    shared: Arc<Held>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Held {
    is_open: AtomicBool,
    is_over: AtomicBool,
    passed: AtomicU32,
    came: Mutex<BTreeMap<SocketAddr, Came>>,
}

impl Relay {
    fn to(server: SocketAddr, before: Before) -> Self {
        let front = socket();
        let address = front.local_addr().unwrap();
        let shared = Arc::<Held>::default();
        let known = Arc::clone(&shared);
        let thread = thread::spawn(move || relay(&front, server, before, &known));
        Self { address, shared, thread: Some(thread) }
    }

    /// Waits until so many clients have sent all that they can before they are answered. Returns how many datagrams
    /// have passed.
    fn is_reached_by(&self, clients: usize) -> u32 {
        let begun = Instant::now();
        let reached = || {
            let came = self.shared.came.lock().unwrap();
            let whole = |came: &Came| came.initial > 1 && came.early > QUESTION / 1500;
            came.len() == clients && came.values().all(whole)
        };
        while !reached() {
            assert!(begun.elapsed() < LONG, "{:?}", self.shared.came.lock().unwrap());
            thread::sleep(LOOK);
        }
        self.shared.passed.load(Ordering::SeqCst)
    }

    fn open(&self) {
        self.shared.is_open.store(true, Ordering::SeqCst);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::SeqCst);
        let _ = self.thread.take().unwrap().join();
    }
}

fn relay(front: &UdpSocket, server: SocketAddr, before: Before, held: &Held) {
    let mut ways = BTreeMap::<SocketAddr, (UdpSocket, Vec<Vec<u8>>, Vec<Vec<u8>>)>::new();
    let mut buffer = vec![0; 65_536];
    while !held.is_over.load(Ordering::SeqCst) {
        let is_open = held.is_open.load(Ordering::SeqCst);
        let mut moved = false;
        while let Ok((len, client)) = front.recv_from(&mut buffer) {
            moved = true;
            let (back, up, _) =
                ways.entry(client).or_insert_with(|| (socket(), Vec::new(), Vec::new()));
            let bytes = &buffer[..len];
            if is_open {
                back.send_to(bytes, server).unwrap();
                continue;
            }
            let mut came = held.came.lock().unwrap();
            let came = came.entry(client).or_default();
            let kind = kind(bytes);
            came.initial += usize::from(kind == Kind::Initial);
            came.early += usize::from(kind == Kind::Early);
            let passes = match before {
                Before::Initials => kind == Kind::Initial,
                Before::Early => kind == Kind::Early,
                Before::First => match kind {
                    Kind::Initial => came.initial == 1,
                    Kind::Early => came.early == 1,
                    Kind::Other => false,
                },
                Before::All => true,
            };
            if passes {
                back.send_to(bytes, server).unwrap();
                held.passed.fetch_add(1, Ordering::SeqCst);
            }
            if !passes || before == Before::All {
                up.push(bytes.to_vec());
            }
        }
        for (client, (back, up, down)) in &mut ways {
            while let Ok((len, _)) = back.recv_from(&mut buffer) {
                moved = true;
                down.push(buffer[..len].to_vec());
            }
            if is_open {
                for bytes in up.drain(..) {
                    back.send_to(&bytes, server).unwrap();
                }
                for bytes in down.drain(..) {
                    front.send_to(&bytes, client).unwrap();
                }
            }
        }
        if !moved {
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// A client that has been there: what it comes back with.
fn known(server: SocketAddr, read: &Receiver<Heard>) -> (ClientConfig, Arc<MemorySessionStore>) {
    let store = Arc::new(MemorySessionStore::new());
    let client = client("a").sessions(store.clone());
    let connection = Connection::connect(server, "localhost", &client).unwrap();
    assert_eq!(question(&connection, 255), "first");
    read.recv_timeout(LONG).unwrap();
    let (name, begun) = (format!("localhost:{}", server.port()), Instant::now());
    loop {
        if let Some(session) = store.take_session(&name) {
            store.save_session(&name, &session);
            return (client, store);
        }
        assert!(begun.elapsed() < LONG, "no ticket comes");
        thread::sleep(LOOK);
    }
}

fn question(connection: &Connection, client: u8) -> String {
    let mut stream = connection.open_bi().unwrap();
    stream.write_all(&[client; QUESTION]).unwrap();
    stream.finish().unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// How a change goes on.
struct Change {
    before: Before,
    forwards: bool,
    workers: usize,
    /// Clients go on when the listener of the program that was there has ended.
    is_late: bool,
}

/// What became of the clients.
struct Outcome {
    /// Who answered each, and whether it had taken the early data.
    answers: Vec<(String, bool)>,
    said: Value,
}

impl Outcome {
    fn all_by(&self, called: &str) -> bool {
        self.answers.iter().all(|(by, _)| by == called)
    }

    /// Whether early data is taken. The switch has a quarter of a second to say that it is new: on a busy machine that may
    /// be too short for some, who ask again.
    fn are_taken(&self) -> bool {
        2 * self.answers.iter().filter(|(_, taken)| *taken).count() > TICKETS
    }
}

/// Clients of a program are half-way when something changes. Each has an answer, and the program that gives it has read
/// its question once, and nobody else.
fn change(
    change: &Change,
    prepare: impl FnOnce(&Switch, SocketAddr, &Sender<Heard>) -> Option<Answering>,
    comes: impl FnOnce(&Switch, SocketAddr, &Sender<Heard>, Option<Answering>) -> Option<Answering>,
) -> Outcome {
    let Change { before, forwards, workers, is_late } = *change;
    let switch = if forwards { Switch::forwarding() } else { Switch::new() };
    let (tell, read) = channel();
    let any = "127.0.0.1:0".parse().unwrap();
    let first = switch.answering(("first", "a"), any, workers, &tell);
    let server = first.endpoint.local_addr();
    let other = prepare(&switch, server, &tell);
    let is_open = !forwards && other.is_none();
    switch.wait_for("the door opens", |said| {
        said["kernel"]["brings_first_packets"].as_bool().unwrap_or(false) == is_open
    });
    let clients: Vec<_> = (0..TICKETS).map(|_| known(server, &read)).collect();
    // What they have yet to say is not counted below.
    let begun = Instant::now();
    while first.endpoint.worker_stats().iter().any(|worker| worker.connections > 0) {
        assert!(begun.elapsed() < LONG);
        thread::sleep(LOOK);
    }
    let received = || -> u64 {
        first.endpoint.worker_stats().iter().map(|worker| worker.received + worker.taken).sum()
    };
    let had = received();
    let relay = Relay::to(server, before);
    let address = relay.address;
    let clients: Vec<_> = clients
        .into_iter()
        .enumerate()
        .map(|(number, (client, store))| {
            let session = store.take_session(&format!("localhost:{}", server.port())).unwrap();
            store.save_session(&format!("localhost:{}", address.port()), &session);
            thread::spawn(move || {
                let connection = Connection::connect_early(address, "localhost", &client).unwrap();
                assert_eq!(connection.early_data(), EarlyData::Offered);
                let by = question(&connection, u8::try_from(number).unwrap());
                (by, connection.early_data() == EarlyData::Accepted)
            })
        })
        .collect();
    let passed = relay.is_reached_by(TICKETS);
    // Of several programs the switch holds some back.
    if other.is_none() {
        let begun = Instant::now();
        while received() < had + u64::from(passed) {
            assert!(begun.elapsed() < LONG, "{} of {passed}", received() - had);
            thread::sleep(LOOK);
        }
    }
    let second = comes(&switch, server, &tell, other);
    if is_late {
        assert!(first.listens.recv_timeout(LONG) == Err(RecvTimeoutError::Disconnected));
    }
    relay.open();
    let answers: Vec<_> = clients.into_iter().map(|client| client.join().unwrap()).collect();
    let mut reads: Vec<_> = read.try_iter().collect();
    reads.sort_by_key(|read| read.client);
    assert_eq!(reads.len(), TICKETS, "{reads:?}");
    for (number, ((by, taken), read)) in answers.iter().zip(&reads).enumerate() {
        assert_eq!((number, &**by), (read.client, read.by), "{reads:?}");
        // What is lost on the way is sent again, and comes later.
        assert!(*taken || !read.is_early, "{reads:?}");
    }
    let said = switch.address();
    drop((first, second));
    Outcome { answers, said }
}

fn nobody(_: &Switch, _: SocketAddr, _: &Sender<Heard>) -> Option<Answering> {
    None
}

/// With the kernel's help and without, for each of these.
fn each(plans: &[Before], is_late: bool, run: impl Fn(&Change)) {
    for forwards in [false, true] {
        for (before, workers) in plans.iter().zip([1, 3].into_iter().cycle()) {
            run(&Change { before: *before, forwards, workers, is_late });
        }
    }
}

const PLANS: [Before; 4] = [Before::Initials, Before::Early, Before::First, Before::All];

#[test]
fn early_data_is_read_once_when_another_program_comes() {
    each(&PLANS, false, |planned| {
        let outcome = change(planned, nobody, |switch, at, tell, _| {
            Some(switch.answering(("second", "b"), at, 1, tell))
        });
        assert!(outcome.all_by("first"), "{:?}: {}", planned.before, outcome.said);
        assert!(outcome.are_taken(), "{:?}: {}", planned.before, outcome.said);
    });
}

#[test]
fn early_data_is_read_once_when_another_program_goes() {
    each(&PLANS, false, |planned| {
        let outcome = change(
            planned,
            |switch, at, tell| Some(switch.answering(("second", "b"), at, 1, tell)),
            |_, _, _, other| {
                other.unwrap().endpoint.close(0, b"");
                None
            },
        );
        assert!(outcome.all_by("first"), "{:?}: {}", planned.before, outcome.said);
        assert!(outcome.are_taken(), "{:?}: {}", planned.before, outcome.said);
    });
}

#[test]
fn early_data_is_read_once_when_the_next_generation_comes() {
    each(&PLANS, false, |planned| {
        let outcome = change(planned, nobody, |switch, at, tell, _| {
            Some(switch.answering(("second", "a"), at, planned.workers, tell))
        });
        let begun = if planned.before == Before::Early { "second" } else { "first" };
        assert!(outcome.all_by(begun), "{:?}: {:?}", planned.before, outcome.answers);
        assert!(outcome.are_taken(), "{:?}: {}", planned.before, outcome.said);
    });
}

/// What comes before a connection begins belongs to nobody yet.
#[test]
fn early_data_that_came_first_binds_no_client_to_a_generation_that_goes() {
    each(&[Before::Early], true, |planned| {
        let outcome = change(planned, nobody, |switch, at, tell, _| {
            Some(switch.answering(("second", "a"), at, 1, tell))
        });
        assert!(outcome.all_by("second"), "{:?}", outcome.answers);
        assert!(outcome.are_taken(), "{}", outcome.said);
    });
}
