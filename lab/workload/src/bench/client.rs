//! The loads, written once for all implementations.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::process::{Message, standard_input_ended};
use super::{Cipher, Direction, Failure, Latencies, Scenario, Summary, Usage, raise_open_files};

/// Exchanges made before the clock starts.
const WARM_UP_EXCHANGES: u64 = 200;
/// Handshakes made before the clock starts.
const WARM_UP_HANDSHAKES: u64 = 20;
/// How long a server is given to count what the client has completed.
const SETTLE: Duration = Duration::from_millis(500);
/// How long idle connections rest before the memory that they take is read.
const REST: Duration = Duration::from_secs(2);
/// Open files of a client beside its connections' sockets.
const OTHER_FILES: u64 = 100;

/// A bulk transfer of `bytes` bytes of the pattern.
#[derive(Debug, Clone, Copy)]
pub struct Transfer {
    /// Length in bytes.
    pub bytes: u64,
    /// Whether the pattern does not repeat and every byte is compared.
    pub unique: bool,
}

/// What an implementation does for a client.
///
/// Calls block until the operation is complete. Each request is made on a new stream, or on the
/// one connection for TCP.
pub trait Client: Sized {
    /// An open connection, its handshake complete.
    type Connection;

    /// How many sockets a client with so many connections has open.
    fn sockets(_connections: usize) -> usize {
        1
    }

    /// Opens a connection.
    ///
    /// # Errors
    ///
    /// When the handshake fails.
    fn connect(&mut self) -> Result<Self::Connection, Failure>;

    /// Closes the last connection in order and waits until nothing is left to be said.
    ///
    /// # Errors
    ///
    /// When it cannot be closed.
    fn close(&mut self, connection: Self::Connection) -> Result<(), Failure>;

    /// What the implementation tells of the connection by now.
    fn link(&mut self, connection: &Self::Connection) -> Link;

    /// Uploads, until the server has confirmed the number of bytes.
    ///
    /// # Errors
    ///
    /// When the connection fails or the number is wrong.
    fn upload(
        &mut self,
        connection: &mut Self::Connection,
        transfer: Transfer,
    ) -> Result<(), Failure>;

    /// Downloads and checks.
    ///
    /// # Errors
    ///
    /// When the connection fails, or number or bytes are wrong.
    fn download(
        &mut self,
        connection: &mut Self::Connection,
        transfer: Transfer,
    ) -> Result<(), Failure>;

    /// Exchanges one request and its answer after the other as long as `more` says so, given the
    /// number of those made, and records each.
    ///
    /// # Errors
    ///
    /// When the connection fails or an answer is another one than the request.
    fn exchange_while(
        &mut self,
        connection: &mut Self::Connection,
        more: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Latencies, Failure>;

    /// Makes handshakes, `concurrency` at a time, each followed by a close, as long as `more` says
    /// so, given the number of those begun.
    ///
    /// # Errors
    ///
    /// When a handshake fails.
    fn handshake_while(
        &mut self,
        concurrency: usize,
        more: &(dyn Fn(u64) -> bool + Sync),
    ) -> Result<Latencies, Failure>;

    /// Asks for the server's usage.
    ///
    /// # Errors
    ///
    /// When the connection fails.
    fn usage(&mut self, connection: &mut Self::Connection) -> Result<Usage, Failure>;

    /// Has the server hold the connection open.
    ///
    /// # Errors
    ///
    /// When the connection fails.
    fn hold(&mut self, connection: &mut Self::Connection) -> Result<(), Failure>;

    /// Keeps connections alive for a while without using them.
    fn rest(&mut self, duration: Duration);
}

/// What an implementation tells of a connection.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Link {
    /// The negotiated cipher suite by its IANA name, if the implementation tells.
    pub cipher: Option<String>,
    /// Mean length in bytes of the UDP payloads sent, if the implementation counts them.
    pub mean_udp_payload: Option<f64>,
    /// Packets declared lost by the client.
    pub lost_packets: Option<u64>,
}

/// The outcome of a load.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// What was measured.
    pub result: Outcome,
    /// CPU time of the client while the clock ran, in nanoseconds.
    pub client_cpu_ns: u64,
    /// CPU time of the server while the clock ran, in nanoseconds.
    pub server_cpu_ns: u64,
    /// What the implementation tells of the connection.
    pub link: Link,
}

/// What was measured, by the kind of load.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// A bulk transfer.
    Bulk {
        /// Bytes moved.
        bytes: u64,
        /// How long it took.
        nanoseconds: u64,
    },
    /// Exchanges or handshakes.
    Operations(Summary),
    /// Idle connections.
    Idle {
        /// How many.
        connections: u64,
        /// Growth of the server's resident memory in bytes.
        server_bytes: u64,
        /// Growth of the client's resident memory in bytes.
        client_bytes: u64,
    },
    /// Nothing to measure; what had to happen has happened.
    Passed,
}

/// Puts the load `scenario` on the server.
pub(super) fn measure<C: Client>(
    client: &mut C,
    scenario: Scenario,
    cipher: Cipher,
) -> Result<Measurement, Failure> {
    match scenario {
        Scenario::Bulk { direction, warm_up, bytes } => {
            let mut connection = client.connect()?;
            transfer(client, &mut connection, direction, warm_up, false)?;
            let mut clock = Clock::start(client, &mut connection)?;
            transfer(client, &mut connection, direction, bytes, false)?;
            let nanoseconds = clock.stop();
            clock.finish(client, connection, Outcome::Bulk { bytes, nanoseconds })
        }
        Scenario::Verify { direction, bytes } => {
            let mut connection = client.connect()?;
            let clock = Clock::start(client, &mut connection)?;
            transfer(client, &mut connection, direction, bytes, true)?;
            let measurement = clock.finish(client, connection, Outcome::Passed)?;
            check_cipher(measurement, cipher)
        }
        Scenario::Exchanges { milliseconds } => exchanges(client, milliseconds),
        Scenario::Handshakes { concurrency, milliseconds } => {
            handshakes(client, concurrency, milliseconds)
        }
        Scenario::Idle { connections } => idle(client, connections),
        Scenario::Refusal => refusal(client),
    }
}

fn transfer<C: Client>(
    client: &mut C,
    connection: &mut C::Connection,
    direction: Direction,
    bytes: u64,
    unique: bool,
) -> Result<(), Failure> {
    let transfer = Transfer { bytes, unique };
    match direction {
        Direction::Upload => client.upload(connection, transfer),
        Direction::Download => client.download(connection, transfer),
    }
}

fn exchanges<C: Client>(client: &mut C, milliseconds: u64) -> Result<Measurement, Failure> {
    let mut connection = client.connect()?;
    client.exchange_while(&mut connection, &mut |made| made < WARM_UP_EXCHANGES)?;
    let mut clock = Clock::start(client, &mut connection)?;
    let end = Instant::now() + Duration::from_millis(milliseconds);
    let latencies = client.exchange_while(&mut connection, &mut |_| Instant::now() < end)?;
    let elapsed = Duration::from_nanos(clock.stop());
    clock.finish(client, connection, Outcome::Operations(latencies.summary(elapsed)))
}

fn handshakes<C: Client>(
    client: &mut C,
    concurrency: usize,
    milliseconds: u64,
) -> Result<Measurement, Failure> {
    raise_open_files(C::sockets(concurrency) as u64 * 4 + OTHER_FILES)?;
    client.handshake_while(1, &|begun| begun < WARM_UP_HANDSHAKES)?;
    let mut control = client.connect()?;
    let before = client.usage(&mut control)?.handshakes;
    let mut clock = Clock::start(client, &mut control)?;
    let end = Instant::now() + Duration::from_millis(milliseconds);
    let latencies = client.handshake_while(concurrency, &|_| Instant::now() < end)?;
    let elapsed = Duration::from_nanos(clock.stop());
    client.rest(SETTLE);
    let served = client.usage(&mut control)?.handshakes - before;
    let made = latencies.len() as u64;
    if served < made {
        return Err(format!("the client made {made} handshakes, the server saw {served}").into());
    }
    clock.finish(client, control, Outcome::Operations(latencies.summary(elapsed)))
}

fn idle<C: Client>(client: &mut C, connections: usize) -> Result<Measurement, Failure> {
    raise_open_files(C::sockets(connections) as u64 + OTHER_FILES)?;
    let mut control = client.connect()?;
    // Whatever a server allocates once, on its first connections, is none of the row's business.
    let mut warm_up = client.connect()?;
    client.hold(&mut warm_up)?;
    client.rest(SETTLE);
    let clock = Clock::start(client, &mut control)?;
    let mut held = Vec::with_capacity(connections);
    let before = (client.usage(&mut control)?.resident_bytes, Usage::now()?.resident_bytes);
    for _ in 0..connections {
        let mut connection = client.connect()?;
        client.hold(&mut connection)?;
        held.push(connection);
    }
    client.rest(REST);
    let after = (client.usage(&mut control)?.resident_bytes, Usage::now()?.resident_bytes);
    let outcome = Outcome::Idle {
        connections: connections as u64,
        server_bytes: after.0.saturating_sub(before.0),
        client_bytes: after.1.saturating_sub(before.1),
    };
    Message::Holding { connections }.emit();
    while !standard_input_ended() {
        client.rest(Duration::from_millis(20));
    }
    drop((held, warm_up));
    clock.finish(client, control, outcome)
}

fn refusal<C: Client>(client: &mut C) -> Result<Measurement, Failure> {
    match client.connect() {
        Ok(_) => Err("the server accepted a cipher suite that it must not offer".into()),
        Err(_) => Ok(Measurement {
            result: Outcome::Passed,
            client_cpu_ns: 0,
            server_cpu_ns: 0,
            link: Link::default(),
        }),
    }
}

fn check_cipher(measurement: Measurement, expected: Cipher) -> Result<Measurement, Failure> {
    match &measurement.link.cipher {
        Some(name) if name != expected.name() => {
            Err(format!("{name} was negotiated in place of {}", expected.name()).into())
        }
        _ => Ok(measurement),
    }
}

/// Time and CPU time of both ends since a moment.
struct Clock {
    start: Instant,
    nanoseconds: u64,
    client: Usage,
    server: Usage,
}

impl Clock {
    fn start<C: Client>(client: &mut C, connection: &mut C::Connection) -> Result<Self, Failure> {
        let server = client.usage(connection)?;
        Ok(Self { start: Instant::now(), nanoseconds: 0, client: Usage::now()?, server })
    }

    fn stop(&mut self) -> u64 {
        self.nanoseconds = u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.nanoseconds
    }

    fn finish<C: Client>(
        self,
        client: &mut C,
        mut connection: C::Connection,
        result: Outcome,
    ) -> Result<Measurement, Failure> {
        let client_cpu_ns = Usage::now()?.cpu_ns - self.client.cpu_ns;
        let server = client.usage(&mut connection)?;
        let link = client.link(&connection);
        client.close(connection)?;
        let server_cpu_ns = server.cpu_ns - self.server.cpu_ns;
        Ok(Measurement { result, client_cpu_ns, server_cpu_ns, link })
    }
}
