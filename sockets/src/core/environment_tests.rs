//! What the environment does to an endpoint: each time it works afterwards, and has said what is
//! the matter.

use std::net::UdpSocket;
use std::sync::{Arc, Mutex, Once, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use quicket_engine::time::Duration as EngineDuration;

use super::lead::Entrance;
use super::parker::CurrentThread;
use super::receive::Scratch;
use super::{Core, Driver, Link, Rank};
use crate::config::EndpointConfig;
use crate::{
    ClientConfig, ClientTls, Connection, ConnectionError, Endpoint, Identity, Listener,
    ServerConfig, ServerTls, ops,
};

/// Longer than anything takes here.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long the system refuses what it refuses.
const SPELL: Duration = Duration::from_millis(60);
const HOUR: EngineDuration = EngineDuration::from_secs(3_600);
const NOTHING: Errno = Errno::UnknownErrno;

/// What was logged.
struct Log(Mutex<Vec<String>>);

static LOG: Log = Log(Mutex::new(Vec::new()));

impl log::Log for Log {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        if record.level() <= log::Level::Warn {
            let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            lines.push(record.args().to_string());
        }
    }

    fn flush(&self) {}
}

/// The warnings that name this port.
fn warnings(port: u16) -> Vec<String> {
    let lines = LOG.0.lock().unwrap_or_else(PoisonError::into_inner);
    let (bound, named) = (format!(":{port}"), format!("(port {port})"));
    lines.iter().filter(|line| line.contains(&bound) || line.contains(&named)).cloned().collect()
}

/// A server that sends back what it gets, and a client's endpoint.
struct Pair {
    server: Endpoint,
    client: Endpoint,
    config: ClientConfig,
}

impl Pair {
    fn new() -> Self {
        static ONCE: Once = Once::new();
        ONCE.call_once(|| {
            log::set_logger(&LOG).unwrap();
            log::set_max_level(log::LevelFilter::Warn);
        });
        let identity = Identity::self_signed(["localhost"]).unwrap();
        let client = ClientTls::builder().pinned([identity.fingerprint()]).alpn(["test"]);
        let server = ServerTls::builder(identity).alpn(["test"]);
        let listener =
            Listener::bind("127.0.0.1:0", ServerConfig::new(server.build().unwrap())).unwrap();
        let server = listener.endpoint().clone();
        thread::spawn(move || {
            for connection in listener.incoming() {
                let Ok(connection) = connection else { break };
                thread::spawn(move || echo(&connection));
            }
        });
        let config = ClientConfig::new(client.build().unwrap());
        Self { server, client: Endpoint::bind("127.0.0.1:0").unwrap(), config }
    }

    fn connect(&self) -> Connection {
        let connection =
            self.client.connect(self.server.local_addr(), "localhost", &self.config).unwrap();
        connection.set_timeout(Some(PATIENCE));
        connection
    }

    /// Fails unless old and new connections work.
    fn check(&self, connection: &Connection) {
        ask(connection, 100);
        ask(&self.connect(), 100);
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        self.server.close(0, b"");
    }
}

fn echo(connection: &Connection) {
    while let Ok(mut stream) = connection.accept_bi() {
        if let Ok(data) = stream.read_to_end(1 << 20) {
            let _ = std::io::Write::write_all(&mut stream, &data);
            let _ = stream.finish();
        }
    }
}

fn ask(connection: &Connection, bytes: usize) {
    let mut stream = connection.open_bi().unwrap();
    std::io::Write::write_all(&mut stream, &vec![7; bytes]).unwrap();
    stream.finish().unwrap();
    assert_eq!(stream.read_to_end(1 << 20).unwrap(), vec![7; bytes]);
}

fn link(endpoint: &Endpoint) -> Arc<Link> {
    Arc::clone(endpoint.core().links().current().unwrap())
}

/// Lets an answer wait for the end of a spell.
fn ask_during(connection: &Connection, spell_ends: impl FnOnce() + Send) {
    let start = Instant::now();
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(SPELL);
            spell_ends();
        });
        ask(connection, 10_000);
        assert!(start.elapsed() >= SPELL, "nothing was refused");
    });
}

/// EPERM comes from a firewall, ENOBUFS and ENOMEM from a full queue, the others from routes.
#[test]
fn what_the_system_refuses_to_send_is_sent_later() {
    let refusals = [Errno::EPERM, Errno::ENOBUFS, Errno::ENOMEM, Errno::EACCES, Errno::ENETDOWN];
    for errno in refusals {
        let pair = Pair::new();
        let connection = pair.connect();
        let link = link(&pair.client);
        link.socket.faults.on_sending(errno);
        ask_during(&connection, || link.socket.faults.on_sending(NOTHING));
        pair.check(&connection);
        assert!(pair.client.udp_stats().refused > 0, "{errno}");
        let warnings = warnings(link.socket.local_addr().port());
        let told = warnings.iter().filter(|line| line.contains("refuses to send")).count();
        // Once, or another test had the same port before.
        assert!((1..=2).contains(&told), "{warnings:?}");
    }
}

/// A server whose answers the system refuses, to clients that are new.
#[test]
fn handshakes_wait_until_the_system_sends_again() {
    let pair = Pair::new();
    let link = link(&pair.server);
    link.socket.faults.on_sending(Errno::ENOBUFS);
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(SPELL);
            link.socket.faults.on_sending(NOTHING);
        });
        ask(&pair.connect(), 100);
    });
    let warnings = warnings(link.socket.local_addr().port());
    assert!(warnings.iter().any(|line| line.contains("queue or memory is full")), "{warnings:?}");
}

/// EMSGSIZE: the interface takes less than the path did so far.
#[test]
fn datagrams_that_have_become_too_large_go_out_smaller() {
    let pair = Pair::new();
    let connection = pair.connect();
    ask(&connection, 200_000);
    let (ours, theirs) = (link(&pair.client), link(&pair.server));
    ours.socket.faults.above(1_250);
    theirs.socket.faults.above(1_250);
    ask(&connection, 200_000);
    pair.check(&connection);
    assert!(pair.client.udp_stats().too_large > 0);
    assert!(connection.stats().path.mtu <= 1_250, "{}", connection.stats().path.mtu);
}

#[test]
fn what_the_system_refuses_to_receive_is_received_later() {
    for errno in [Errno::ENOMEM, Errno::ENOBUFS] {
        let pair = Pair::new();
        let connection = pair.connect();
        let link = link(&pair.server);
        link.socket.faults.on_receiving(errno);
        ask_during(&connection, || link.socket.faults.on_receiving(NOTHING));
        pair.check(&connection);
        let warnings = warnings(link.socket.local_addr().port());
        let told = warnings.iter().filter(|line| line.contains("nothing can be received")).count();
        // Once, or another test had the same port before.
        assert!((1..=2).contains(&told), "{warnings:?}");
    }
}

/// After a pause a caller watches the socket again before it sleeps.
#[test]
fn a_failure_to_receive_is_forgotten_after_its_pause() {
    let pair = Pair::new();
    let connection = pair.connect();
    let link = link(&pair.client);
    link.socket.faults.on_receiving(Errno::ENOMEM);
    ask_during(&connection, || link.socket.faults.on_receiving(NOTHING));
    pair.check(&connection);
    let paused =
        with_scratch(pair.client.core().core(), Rank::Eager, |scratch| scratch.paused_until);
    assert_eq!(paused, None);
}

fn seat(core: &Core, rank: Rank) -> Option<super::lead::Seat<'_, Box<Scratch>>> {
    let now = core.clock().now();
    if rank == Rank::Background {
        return core.lead.try_enter(rank, now);
    }
    let thread = CurrentThread::get();
    thread.reset();
    match core.lead.enter(rank, now, &thread) {
        Entrance::Seat(seat) => Some(seat),
        Entrance::Queue(place) => place.wait(Some(Instant::now() + PATIENCE), false).ok(),
    }
}

/// Takes the leader's seat for a look at what is there.
fn with_scratch<R>(core: &Core, rank: Rank, mut look: impl FnMut(&mut Scratch) -> R) -> R {
    let start = Instant::now();
    loop {
        // Somebody may be about to leave it.
        if let Some(mut seat) = seat(core, rank) {
            return look(seat.scratch().unwrap());
        }
        assert!(start.elapsed() < PATIENCE);
        thread::yield_now();
    }
}

/// Some other thread leads, and this one does not wait for anything.
#[test]
fn a_write_now_and_then_is_sent_at_once_although_another_thread_leads() {
    let pair = Pair::new();
    let connection = pair.connect();
    let mut stream = connection.open_uni().unwrap();
    let core = pair.client.core().core();
    let cell = core.routing().all().pop().unwrap();
    with_scratch(core, Rank::Eager, |_| {
        let mut write = || {
            std::io::Write::write_all(&mut stream, &[1; 100]).unwrap();
            cell.lock().postponed
        };
        core.clock().put_forward(EngineDuration::from_millis(2));
        assert!(!write(), "it waits for the leader");
        // Unless this thread stood still in between each two.
        assert!((0..1_000).any(|_| write()), "small ones do not go together");
    });
}

/// The runtime tells but once that something has come.
#[test]
fn a_task_asks_again_for_what_the_system_refused_to_receive() {
    let core = ops::endpoint("127.0.0.1:0".parse().unwrap(), EndpointConfig::default()).unwrap();
    let link = Arc::clone(core.links().current().unwrap());
    let runtime = ::tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let driver = ::tokio::spawn(Driver::new(Arc::clone(core.core())).unwrap());
        let until = async |holds: fn(&mut Scratch) -> bool| {
            let start = Instant::now();
            while !with_scratch(&core, Rank::Background, holds) {
                assert!(start.elapsed() < PATIENCE);
                ::tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        link.socket.faults.on_receiving(Errno::ENOMEM);
        let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
        peer.send_to(b"something", core.local_addr()).unwrap();
        until(|scratch| scratch.paused_until.is_some()).await;
        link.socket.faults.on_receiving(NOTHING);
        until(|scratch| scratch.received == 1).await;
        drop(core);
        driver.await.unwrap();
    });
}

/// How many packets the connections of an endpoint have received.
fn packets_received(endpoint: &Endpoint) -> u64 {
    let cells = endpoint.core().routing().all();
    cells.iter().map(|cell| cell.lock().engine.stats().counters.packets_received).sum()
}

/// EAGAIN: the send buffer is full. That what is due cannot leave, such as ACKs, keeps nobody from
/// hearing what comes in.
#[test]
fn what_comes_in_is_received_while_nothing_can_be_sent() {
    let pair = Pair::new();
    let connection = pair.connect();
    ask(&connection, 100);
    let link = link(&pair.server);
    link.socket.faults.on_sending(Errno::EAGAIN);
    let mut stream = connection.open_uni().unwrap();
    for round in 0..5 {
        let before = packets_received(&pair.server);
        std::io::Write::write_all(&mut stream, &[1; 100]).unwrap();
        let start = Instant::now();
        while packets_received(&pair.server) == before {
            assert!(start.elapsed() < PATIENCE, "nothing comes in round {round}");
            assert!(pair.server.core().blocked.len() <= 1, "there is but one connection");
            thread::sleep(Duration::from_millis(1));
        }
        // Longer than an ACK may wait.
        thread::sleep(Duration::from_millis(30));
    }
    link.socket.faults.on_sending(NOTHING);
    pair.check(&connection);
}

/// Puts clocks forward until a connection has ended; `then` is done in between. A packet that was
/// on its way keeps a connection alive, as after a pause of any length.
fn ending(connection: &Connection, of: &[&Endpoint], then: impl Fn()) -> Option<ConnectionError> {
    let start = Instant::now();
    while connection.close_reason().is_none() && start.elapsed() < PATIENCE {
        of.iter().for_each(|endpoint| endpoint.core().core().clock().put_forward(HOUR));
        then();
        thread::sleep(Duration::from_millis(20));
    }
    connection.close_reason()
}

/// A whole machine that stood still for an hour, and whose clock did not.
#[test]
fn an_hour_that_passes_at_once_ends_connections_and_nothing_else() {
    let pair = Pair::new();
    let connection = pair.connect();
    ask(&connection, 100);
    // Whatever comes next wakes both. If the client sends before it has looked at its clock, a
    // server that has hears of an unknown connection (RFC 9000, Section 10.3).
    let reason = ending(&connection, &[&pair.client, &pair.server], || drop(pair.connect()));
    let expected = [ConnectionError::IdleTimeout, ConnectionError::StatelessReset];
    assert!(reason.as_ref().is_some_and(|reason| expected.contains(reason)), "{reason:?}");
    ask(&pair.connect(), 100);
}

/// Only the server stood still, or only its clock went on: the client hears that its connection
/// is unknown (RFC 9000, Section 10.3), and may come again.
#[test]
fn a_server_that_was_suspended_resets_what_it_has_forgotten() {
    let pair = Pair::new();
    let connection = pair.connect();
    ask(&connection, 100);
    let reason = ending(&connection, &[&pair.server], || {
        drop(pair.connect());
        if let Ok(mut stream) = connection.open_uni() {
            let _ = std::io::Write::write_all(&mut stream, &[1; 100]);
        }
    });
    assert_eq!(reason, Some(ConnectionError::StatelessReset));
    ask(&pair.connect(), 100);
}
