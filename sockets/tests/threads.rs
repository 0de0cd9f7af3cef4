//! Threads that wait, and code of the application that is called meanwhile.

mod common;

use std::io::Write;
use std::net::UdpSocket;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use common::configs;
use nix::sys::pthread::{pthread_kill, pthread_self};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use quicket::{
    Arrived, ClientConfig, ClientTls, Connection, Decision, Endpoint, EndpointConfig, Identity,
    KeyLog, Listener, MemorySessionStore, Outlet, PassThrough, ServerConfig, ServerTls,
    SessionStore, Stream, Whose,
};

/// Longer than anything takes here.
const PATIENCE: Duration = Duration::from_secs(120);

/// Panics with the first datagrams that it is shown.
#[derive(Debug, Default)]
struct Explosive(AtomicUsize);

impl PassThrough for Explosive {
    fn look(&self, _: &Arrived<'_>, _: &Outlet) -> Whose {
        assert!(self.0.fetch_add(1, Ordering::SeqCst) >= 2, "this function panics");
        Whose::Own { held: Vec::new() }
    }
}

/// Nobody but that thread serves the endpoint: no call on it waits.
#[test]
fn an_endpoint_whose_thread_has_panicked_has_another_one() {
    let (server, client) = configs();
    let pass = Arc::new(Explosive::default());
    let config = EndpointConfig { pass_through: Some(pass.clone()), ..EndpointConfig::default() };
    let endpoint = Endpoint::bind_with("127.0.0.1:0", config).unwrap();
    let listener = endpoint.listen(server).unwrap();
    let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
    let begun = Instant::now();
    for panics in 1..=2 {
        while pass.0.load(Ordering::SeqCst) < panics {
            assert!(begun.elapsed() < PATIENCE, "nobody receives");
            stranger.send_to(&[0x41; 60], listener.local_addr()).unwrap();
            thread::sleep(Duration::from_millis(10));
        }
    }
    // Its handshake is completed by the server's thread.
    let connection = Connection::connect(listener.local_addr(), "localhost", &client).unwrap();
    connection.close(0, b"");
}

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

/// Data that is shown is taken out: nothing is locked.
#[test]
fn what_is_given_to_read_chunk_may_use_its_connection_and_wait() {
    in_time(|| {
        let (server, client) = configs();
        let listener = Listener::bind("127.0.0.1:0", server).unwrap();
        let endpoint = Endpoint::bind("127.0.0.1:0").unwrap();
        let connect = || endpoint.connect(listener.local_addr(), "localhost", &client).unwrap();
        let (connection, other) = (connect(), connect());
        let (served, other_served) = (listener.accept().unwrap(), listener.accept().unwrap());
        let answers = [served, other_served].map(|own| thread::spawn(move || echo(&own)));
        let mut stream = ask(&connection, b"hello").unwrap();
        let uses: [&dyn Fn(); 4] = [
            &|| _ = connection.stats(),
            &|| _ = connection.open_uni().unwrap().try_write(&[0; 200_000]).unwrap(),
            &|| _ = ask(&connection, b"itself").unwrap().read_to_end(100).unwrap(),
            &|| _ = ask(&other, b"another").unwrap().read_to_end(100).unwrap(),
        ];
        for (used, expected) in uses.into_iter().zip(*b"hell") {
            let view = |bytes: &[u8], _: bool| {
                used();
                assert_eq!(bytes[0], expected);
                1
            };
            assert_eq!(stream.recv().read_chunk(view).unwrap(), Some(1));
        }
        let panics = |_: &[u8], _: bool| -> usize { panic!("as callbacks may") };
        catch_unwind(AssertUnwindSafe(|| stream.recv().read_chunk(panics))).unwrap_err();
        assert_eq!(stream.recv().read_to_end(100).unwrap(), b"o", "what it did not take is there");
        assert_eq!(stream.recv().read_chunk(|bytes, _| bytes.len()).unwrap(), None);
        other.close(0, b"");
        connection.close(0, b"");
        answers.into_iter().for_each(|thread| thread.join().unwrap());
    });
}

/// Asks over a connection of the endpoint at which it is called, and panics without one. Counts lines
/// and answers.
#[derive(Default)]
struct Asking(Mutex<Option<Connection>>, AtomicUsize, AtomicUsize);

impl KeyLog for Asking {
    fn line(&self, _: &str) {
        self.1.fetch_add(1, Ordering::Relaxed);
        let connection = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone().unwrap();
        let answer = ask(&connection, b"may it?").unwrap().read_to_end(100).unwrap();
        assert_eq!(answer, b"may it?");
        self.2.fetch_add(1, Ordering::Relaxed);
    }
}

/// How many secrets a handshake has, without early data.
const SECRETS: usize = 5;

#[test]
fn key_logs_may_panic_and_use_their_endpoint_and_have_it_all_when_a_connection_is_there() {
    in_time(|| {
        let identity = Identity::self_signed(["localhost"]).unwrap();
        let (log, server_log) = (Arc::new(Asking::default()), Arc::new(Asking::default()));
        let client = ClientTls::builder().pinned([identity.fingerprint()]).alpn(["test"]);
        let client = ClientConfig::new(client.key_log(log.clone()).build().unwrap());
        let tls = ServerTls::builder(identity).alpn(["test"]).key_log(server_log.clone());
        let server = ServerConfig::new(tls.build().unwrap());
        let listener = Listener::bind("127.0.0.1:0", server).unwrap();
        let endpoint = Endpoint::bind("127.0.0.1:0").unwrap();
        let connect = || endpoint.connect(listener.local_addr(), "localhost", &client).unwrap();
        let first = connect();
        assert_eq!(log.1.load(Ordering::Relaxed), SECRETS, "though each panicked");
        let served = listener.accept().unwrap();
        assert_eq!(server_log.1.load(Ordering::Relaxed), SECRETS);
        let answers = [&first, &served].map(|connection| {
            let connection = connection.clone();
            thread::spawn(move || echo(&connection))
        });
        // Not both at once: who answers may be who is to ask, and would wait for the other.
        for (log, connection) in [(&log, &first), (&server_log, &served)] {
            let own = || log.0.lock().unwrap_or_else(PoisonError::into_inner);
            *own() = Some(connection.clone());
            for round in 1..=3 {
                let _next = connect();
                let _served = listener.accept().unwrap();
                assert_eq!(log.2.load(Ordering::Relaxed), round * SECRETS);
            }
            own().take();
        }
        first.close(0, b"");
        answers.into_iter().for_each(|thread| thread.join().unwrap());
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

extern "C" fn do_nothing(_: i32) {}

/// Signals to come: one that lets calls go on, and one that does not.
fn handled_signals() -> [Signal; 2] {
    let signals = [(Signal::SIGUSR1, SaFlags::empty()), (Signal::SIGUSR2, SaFlags::SA_RESTART)];
    signals.map(|(signal, flags)| {
        let action = SigAction::new(SigHandler::Handler(do_nothing), flags, SigSet::empty());
        // SAFETY: the handler touches nothing.
        unsafe { sigaction(signal, &action) }.unwrap();
        signal
    })
}

/// Threads that share an endpoint and connections, close them, give up, and panic, as do callbacks,
/// while signals come. Nobody waits for ever, and who is answered has the right answer: these calls
/// go on after a signal.
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
        let signals = handled_signals();
        thread::scope(|scope| {
            let (tell, threads) = mpsc::channel();
            let work = |number| {
                let tell = tell.clone();
                scope.spawn(move || {
                    tell.send(pthread_self()).unwrap();
                    let mut chance = Chance(0x9e37_79b9_7f4a_7c15 ^ (number + 1));
                    (0..ROUNDS).for_each(|_| bustle.step(&mut chance));
                })
            };
            // Kept while signals are sent: their threads are there until they are joined.
            let workers: Vec<_> = (0..THREADS).map(work).collect();
            let threads: Vec<_> = threads.iter().take(workers.len()).collect();
            for signal in signals.into_iter().cycle() {
                for thread in &threads {
                    // One may be through.
                    let _ = pthread_kill(*thread, signal);
                }
                if workers.iter().all(thread::ScopedJoinHandle::is_finished) {
                    break;
                }
                thread::sleep(Duration::from_micros(500));
            }
            workers.into_iter().for_each(|worker| worker.join().unwrap());
        });
        bustle.endpoint.close(0, b"");
        bustle.endpoint.wait_idle();
        served.close(0, b"");
        serving.join().unwrap();
    });
}
