//! Threads that wait, and code of the application that is called meanwhile.

mod common;

use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use common::configs;
use quicket::{
    ClientConfig, Connection, Decision, Endpoint, Listener, MemorySessionStore, SessionStore,
    Stream,
};

/// Longer than anything takes here.
const PATIENCE: Duration = Duration::from_secs(120);

/// Answers each stream with what it holds.
fn echo(connection: &Connection) {
    while let Ok(mut stream) = connection.accept_bi() {
        if let Ok(request) = stream.read_to_end(1 << 20) {
            // Whoever asked may want it no more.
            let _ = stream.write_all(&request).and_then(|()| Ok(stream.finish()?));
        }
    }
}

fn ask(connection: &Connection, data: &[u8]) -> Option<Stream> {
    let mut stream = connection.open_bi().ok()?;
    stream.write_all(data).ok()?;
    stream.finish().ok()?;
    Some(stream)
}

/// Fails if `work` does not end.
fn in_time<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (tell, done) = mpsc::channel();
    let thread = thread::spawn(move || {
        let result = work();
        let _ = tell.send(());
        result
    });
    let in_time = done.recv_timeout(PATIENCE);
    assert!(in_time != Err(mpsc::RecvTimeoutError::Timeout), "threads wait for each other");
    thread.join().unwrap()
}

/// Whatever the application does there, such as to wait for another connection of the endpoint.
#[test]
fn who_decides_about_admission_may_wait_for_the_endpoint() {
    in_time(|| {
        let (server, client) = configs();
        let known: Arc<Mutex<Option<Connection>>> = Arc::default();
        let its = Arc::clone(&known);
        let server = server.admission(move |_| {
            if let Some(connection) = its.lock().unwrap().take() {
                let answer = ask(&connection, b"may it?").unwrap().read_to_end(100).unwrap();
                assert_eq!(answer, b"may it?");
            }
            Decision::Accept
        });
        let listener = Listener::bind("127.0.0.1:0", server).unwrap();
        let address = listener.local_addr();
        let first = Connection::connect(address, "localhost", &client).unwrap();
        *known.lock().unwrap() = Some(listener.accept().unwrap());
        let answers = thread::spawn(move || echo(&first));
        let second = Connection::connect(address, "localhost", &client).unwrap();
        assert!(known.lock().unwrap().is_none(), "it was asked");
        listener.endpoint().close(0, b"");
        answers.join().unwrap();
        drop(second);
    });
}

#[test]
fn a_client_is_refused_if_deciding_about_it_panics_and_the_next_one_is_not() {
    in_time(|| {
        let (server, client) = configs();
        let asked = AtomicUsize::new(0);
        let server = server.admission(move |_| {
            assert!(asked.fetch_add(1, Ordering::Relaxed) > 0, "as callbacks may");
            Decision::Accept
        });
        let listener = Listener::bind("127.0.0.1:0", server).unwrap();
        let connect = || Connection::connect(listener.local_addr(), "localhost", &client);
        connect().unwrap_err();
        connect().unwrap();
    });
}

/// Numbers that depend on a seed.
struct Chance(u64);

impl Chance {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % limit
    }
}

/// A store that panics for every third session.
#[derive(Default)]
struct Panicking {
    memory: MemorySessionStore,
    saved: AtomicU64,
}

impl SessionStore for Panicking {
    fn save_session(&self, server: &str, session: &[u8]) {
        assert!(!self.saved.fetch_add(1, Ordering::Relaxed).is_multiple_of(3), "as stores may");
        self.memory.save_session(server, session);
    }

    fn take_session(&self, server: &str) -> Option<Vec<u8>> {
        self.memory.take_session(server)
    }

    fn save_token(&self, server: &str, token: &[u8]) {
        self.memory.save_token(server, token);
    }

    fn take_token(&self, server: &str) -> Option<Vec<u8>> {
        self.memory.take_token(server)
    }
}

const THREADS: u64 = 6;
const ROUNDS: usize = 60;
const CONNECTIONS: u64 = 3;

struct Bustle {
    endpoint: Endpoint,
    server: std::net::SocketAddr,
    config: ClientConfig,
    connections: Vec<Mutex<Connection>>,
}

impl Bustle {
    /// Some connect in vain: deciding about them has panicked.
    fn connect(&self) -> Connection {
        let connect = || self.endpoint.connect(self.server, "localhost", &self.config).ok();
        let connection = (0..50).find_map(|_| connect()).expect("one of many is admitted");
        connection.set_timeout(Some(PATIENCE));
        connection
    }

    /// One of `CONNECTIONS`, which others use too, and may close.
    fn step(&self, chance: &mut Chance) {
        let place = &self.connections[chance.below(CONNECTIONS) as usize];
        let connection = place.lock().unwrap().clone();
        match chance.below(8) {
            0 => {
                connection.close(1, b"somebody wanted to");
                let next = self.connect();
                *place.lock().unwrap() = next;
            }
            1 => {
                let Some(mut stream) = ask(&connection, b"in vain") else { return };
                stream.set_read_timeout(Some(Duration::from_micros(chance.below(300))));
                let _ = stream.read_to_end(100);
            }
            2 => {
                let Ok(mut stream) = connection.open_uni() else { return };
                let _ = stream.try_write(&[1; 200_000]);
                let panics = catch_unwind(AssertUnwindSafe(|| {
                    let _held = stream;
                    panic!("with a stream in its hands");
                }));
                assert!(panics.is_err());
            }
            3 => {
                let Ok(mut stream) = connection.open_uni() else { return };
                let _ = stream.reset(3);
            }
            _ => {
                let data = vec![7; chance.below(30_000) as usize];
                let Some(mut stream) = ask(&connection, &data) else { return };
                match stream.read_to_end(1 << 20) {
                    Ok(answer) => assert_eq!(answer, data),
                    Err(error) => assert!(connection.close_reason().is_some(), "{error}"),
                }
            }
        }
    }
}

/// Threads that share an endpoint and connections, close them, give up, and panic, as do callbacks.
/// Nobody waits for ever, and who is answered has the right answer.
#[test]
fn many_threads_get_along_whatever_each_of_them_does() {
    in_time(|| {
        let (server, client) = configs();
        let attempts = AtomicUsize::new(0);
        let server = server.admission(move |_| {
            let number = attempts.fetch_add(1, Ordering::Relaxed);
            assert!(number % 5 != 4, "as callbacks may");
            Decision::Accept
        });
        let listener = Listener::bind("127.0.0.1:0", server).unwrap();
        let served = listener.endpoint().clone();
        let serving = thread::spawn(move || {
            thread::scope(|scope| {
                for connection in listener.incoming().flatten() {
                    scope.spawn(move || {
                        thread::scope(|scope| {
                            scope.spawn(|| while connection.accept_uni().is_ok() {});
                            echo(&connection);
                        });
                    });
                }
            });
        });
        let mut bustle = Bustle {
            endpoint: Endpoint::bind("127.0.0.1:0").unwrap(),
            server: served.local_addr(),
            config: client.sessions(Arc::new(Panicking::default())),
            connections: Vec::new(),
        };
        let first = (0..CONNECTIONS).map(|_| Mutex::new(bustle.connect())).collect();
        bustle.connections = first;
        let bustle = &bustle;
        thread::scope(|scope| {
            for number in 0..THREADS {
                scope.spawn(move || {
                    let mut chance = Chance(0x9e37_79b9_7f4a_7c15 ^ (number + 1));
                    (0..ROUNDS).for_each(|_| bustle.step(&mut chance));
                });
            }
        });
        bustle.endpoint.close(0, b"");
        bustle.endpoint.wait_idle();
        served.close(0, b"");
        serving.join().unwrap();
    });
}
