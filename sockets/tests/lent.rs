//! Data that is sent from where the application has it.

mod common;

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use bytes::Bytes;
use common::{Pattern, configs_with, pair, pair_with};
use quicket::{Connection, ReadError, TransportConfig, WriteError};
use quicket_testing::until;

const PIECE: usize = 100_000;

/// Owners of pieces that are not dropped yet.
type Alive = Arc<AtomicUsize>;

/// A piece whose end is counted, and looks at the connection: nothing of the connection is locked then.
struct Piece {
    data: Vec<u8>,
    alive: Alive,
    connection: Connection,
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        &self.data
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        let _ = self.connection.stats();
        self.alive.fetch_sub(1, Ordering::Relaxed);
    }
}

fn piece(pattern: &mut Pattern, len: usize, alive: &Alive, connection: &Connection) -> Bytes {
    alive.fetch_add(1, Ordering::Relaxed);
    let mut data = vec![0; len];
    pattern.fill(&mut data);
    Bytes::from_owner(Piece { data, alive: Arc::clone(alive), connection: connection.clone() })
}

/// All that comes is the pattern; returns how much it is.
fn receive(connection: &Connection) -> Result<usize, ReadError> {
    let mut stream = connection.accept_uni().unwrap();
    let (mut pattern, mut total, mut buffer) = (Pattern::new(1), 0, vec![0; 70_000]);
    loop {
        let len = stream.read_some(&mut buffer)?;
        if len == 0 {
            return Ok(total);
        }
        assert!(pattern.matches(&buffer[..len]), "wrong byte after {total}");
        total += len;
    }
}

#[test]
fn lent_and_copied_data_arrive_in_turn_and_each_owner_is_dropped_once() {
    let (client, server) = pair();
    let alive = Alive::default();
    let received = thread::scope(|scope| {
        let received = scope.spawn(|| receive(&server).unwrap());
        let mut stream = client.open_uni().unwrap();
        let mut pattern = Pattern::new(1);
        for round in 0..300 {
            let mut head = vec![0; round % 7];
            pattern.fill(&mut head);
            stream.write_all(&head).unwrap();
            let mut data = piece(&mut pattern, 1 + round * 977 % PIECE, &alive, &client);
            while !data.is_empty() {
                stream.write_bytes(&mut data).unwrap();
            }
        }
        stream.finish().unwrap();
        received.join().unwrap()
    });
    let expected: usize = (0..300).map(|round| round % 7 + 1 + round * 977 % PIECE).sum();
    assert_eq!(received, expected);
    until("all are dropped", || alive.load(Ordering::Relaxed) == 0);
}

#[test]
fn what_nobody_reads_is_dropped_with_the_stream_and_with_the_connection() {
    // No credit at all beyond a few packets: nothing of it is acknowledged.
    let transport = TransportConfig {
        initial_stream_window: 5000,
        max_stream_window: 5000,
        ..TransportConfig::default()
    };
    let (client, server) = pair_with(configs_with(transport));
    let alive = Alive::default();
    let mut pattern = Pattern::new(1);
    let mut streams = [client.open_uni().unwrap(), client.open_uni().unwrap()];
    for stream in &mut streams {
        stream.write_bytes(&mut piece(&mut pattern, PIECE, &alive, &client)).unwrap();
    }
    assert_eq!(alive.load(Ordering::Relaxed), 2, "the connection has them");
    streams[0].reset(7).unwrap();
    until("that of the stream is dropped", || alive.load(Ordering::Relaxed) == 1);
    assert_eq!(receive(&server).unwrap_err(), ReadError::Reset(7));
    server.close(1, b"");
    until("that of the connection is dropped", || alive.load(Ordering::Relaxed) == 0);
    let mut late = piece(&mut pattern, PIECE, &alive, &client);
    let error = streams[1].write_bytes(&mut late).unwrap_err();
    assert!(matches!(error, WriteError::Lost(_)), "{error:?}");
    assert_eq!(late.len(), PIECE, "nothing of it was taken");
    drop(late);
    assert_eq!(alive.load(Ordering::Relaxed), 0);
}

#[test]
fn the_send_buffer_bounds_what_is_lent() {
    let transport = TransportConfig {
        initial_stream_window: 5000,
        max_stream_window: 5000,
        stream_send_buffer: 50_000,
        ..TransportConfig::default()
    };
    let (client, _server) = pair_with(configs_with(transport));
    let mut stream = client.open_uni().unwrap();
    stream.set_nonblocking(true);
    let alive = Alive::default();
    let mut data = piece(&mut Pattern::new(1), PIECE, &alive, &client);
    let mut taken = 0;
    let error = loop {
        match stream.write_bytes(&mut data) {
            Ok(more) => taken += more,
            Err(error) => break error,
        }
    };
    assert!(matches!(error, WriteError::WouldBlock), "{error:?}");
    assert_eq!(taken + data.len(), PIECE);
    // What the peer acknowledges makes room for as much.
    assert!((50_000..=55_000 + 8192).contains(&taken), "{taken}");
}
