//! The memory that all connections of an endpoint share.

mod common;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use common::configs;
use quicket::{
    ClientConfig, ConnectError, Connection, ConnectionError, Endpoint, EndpointConfig, Listener,
    SendStream, TransportConfig, TransportErrorCode, WriteError,
};

const KIB: usize = 1024;
/// What a connection may hold however many there are.
const FLOOR: usize = 64 * KIB;
/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// A server whose connections share `memory` bytes, and a client's configuration that lets it send
/// one byte per stream.
fn server(memory: usize) -> (Listener, SocketAddr, ClientConfig) {
    let (server, client) = configs();
    let config = EndpointConfig { memory, ..EndpointConfig::default() };
    let endpoint = Endpoint::bind_with("127.0.0.1:0", config).unwrap();
    let listener = endpoint.listen(server).unwrap();
    let address = listener.local_addr();
    let stingy = TransportConfig {
        initial_stream_window: 1,
        max_stream_window: 1,
        ..TransportConfig::default()
    };
    (listener, address, client.transport(stingy))
}

/// A connection whose client takes nothing, and what the server writes to there.
struct Greedy {
    client: Connection,
    server: Connection,
    streams: Vec<SendStream>,
}

impl Greedy {
    fn connect(
        listener: &Listener,
        address: SocketAddr,
        config: &ClientConfig,
    ) -> Result<Self, ConnectError> {
        let client = Connection::connect(address, "localhost", config)?;
        let server = listener.accept().unwrap();
        let streams = (0..10).map(|_| server.open_uni().unwrap()).collect();
        Ok(Self { client, server, streams })
    }

    /// Writes all that there is room for; how much the connection holds then.
    fn fill(&mut self) -> usize {
        for stream in &mut self.streams {
            loop {
                match stream.try_write(&[7; 16 * KIB]) {
                    Ok(_) => {}
                    Err(WriteError::WouldBlock) => break,
                    Err(error) => panic!("{error}"),
                }
            }
        }
        self.server.stats().send_buffered
    }
}

#[test]
fn connections_that_take_nothing_share_a_budget_and_each_has_its_floor() {
    let memory = 4096 * KIB;
    let (listener, address, client) = server(memory);
    let mut all: Vec<Greedy> =
        (0..8).map(|_| Greedy::connect(&listener, address, &client).unwrap()).collect();
    let held: Vec<usize> = all.iter_mut().map(Greedy::fill).collect();
    // The first gets about half, for the more it has the less is left.
    assert!(held[0] <= memory * 3 / 4, "{held:?}");
    assert!(held.iter().all(|held| *held >= FLOOR - 16 * KIB), "{held:?}");
    let sum: usize = held.iter().sum();
    assert!(sum <= memory + held.len() * FLOOR, "{held:?}");
    // What one gives back, another can have.
    let before = all[7].server.stats().send_buffered;
    all.remove(0).client.close(0, b"");
    let begun = Instant::now();
    while all[6].fill() < before + FLOOR {
        assert!(begun.elapsed() < PATIENCE, "{before} bytes, and no more");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn connections_are_refused_while_nothing_is_left() {
    let (listener, address, client) = server(8 * FLOOR);
    let mut all = Vec::new();
    // Each that is taken holds its floor then.
    let refusal = loop {
        assert!(all.len() < 30, "{} connections were taken", all.len());
        match Greedy::connect(&listener, address, &client) {
            Ok(mut greedy) => {
                greedy.fill();
                all.push(greedy);
            }
            Err(error) => break error,
        }
    };
    let code = TransportErrorCode::CONNECTION_REFUSED;
    assert!(
        matches!(&refusal, ConnectError::Lost(ConnectionError::PeerTransport { code: c, .. }) if *c == code),
        "{refusal}"
    );
    assert!(all.len() >= 2, "refused from the start");
    all.clear();
    let begun = Instant::now();
    while Greedy::connect(&listener, address, &client).is_err() {
        assert!(begun.elapsed() < PATIENCE, "nothing was given back");
        std::thread::sleep(Duration::from_millis(20));
    }
}
