//! What an idle connection costs a server, in bytes of the heap.
//!
//! The client is a process of its own, so that all that is counted here is the server's.

mod common;

use std::io::{Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use common::{ALPN, configs_with};
use quicket::{ClientConfig, ClientTls, Connection, Endpoint, Listener, TransportConfig};
use quicket_testing::allocator::{Counting, bytes_in_use, settled};

/// The most that an idle connection of a server may take, in bytes of this process' allocator.
/// AWS-LC allocates by itself, but only keys, and an idle connection has none.
const LIMIT: i64 = 8 * 1024;
/// Connections that warm up what is allocated once.
const FIRST: usize = 64;
/// Connections that are counted: tables that double do so once meanwhile.
const COUNTED: usize = 64;
/// Tells the process that plays the client where the server is.
const SERVER: &str = "QUICKET_TEST_MEMORY_SERVER";
/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(60);

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Idle connections last longer than the test.
fn transport() -> TransportConfig {
    TransportConfig { max_idle_timeout: 10 * PATIENCE, ..TransportConfig::default() }
}

/// The client's process. It ends when its input does.
struct Client {
    process: Child,
    input: Option<ChildStdin>,
}

impl Client {
    fn start(listener: &Listener) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.env(SERVER, listener.local_addr().to_string()).stdin(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let input = process.stdin.take();
        Self { process, input }
    }

    /// Makes some connections; returns the server's ends.
    fn connect(&mut self, count: usize, listener: &Listener) -> Vec<Connection> {
        self.input.as_ref().unwrap().write_all(&vec![b'+'; count]).unwrap();
        (0..count).map(|_| listener.accept().unwrap()).collect()
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.process.wait();
    }
}

/// Makes a connection for every byte of the input and holds them to its end.
fn play_client(server: &str) {
    let tls = ClientTls::builder().dangerous_no_verification().alpn(ALPN).build().unwrap();
    let config = ClientConfig::new(tls).transport(transport());
    let endpoint = Endpoint::bind("127.0.0.1:0").unwrap();
    let address: std::net::SocketAddr = server.parse().unwrap();
    let connections: Vec<_> = std::io::stdin()
        .lock()
        .bytes()
        .map(|_| endpoint.connect(address, "localhost", &config).unwrap())
        .collect();
    drop(connections);
}

#[test]
fn an_idle_connection_of_a_server_takes_few_kilobytes() {
    if let Ok(server) = std::env::var(SERVER) {
        return play_client(&server);
    }
    let listener = Listener::bind("127.0.0.1:0", configs_with(transport()).0).unwrap();
    let mut client = Client::start(&listener);
    let first = client.connect(FIRST, &listener);
    let before = settled();
    let counted = client.connect(COUNTED, &listener);
    let each = || (bytes_in_use() - before) / COUNTED as i64;
    // On a busy machine timers are late.
    let start = Instant::now();
    while each() > LIMIT && start.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!((1..=LIMIT).contains(&each()), "{} bytes per idle connection", each());
    assert!(first.iter().chain(&counted).all(|connection| connection.close_reason().is_none()));
}
