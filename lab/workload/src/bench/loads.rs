//! The loads, written once for all implementations.

use std::time::{Duration, Instant};

use super::client::{Client, Flow, Link, Measurement, Outcome};
use super::process::{Message, standard_input_ended};
use super::{Cipher, Direction, Failure, Scenario, Session, Transfer, Usage, raise_open_files};

/// Exchanges made before the clock starts.
const WARM_UP_EXCHANGES: u64 = 200;
/// Handshakes, and downloads, before the clock starts.
const WARM_UP: u64 = 20;
/// Downloads on each of many streams or connections before the clock starts.
const WARM_UP_EACH: u64 = 4;
/// How long a server is given to count what the client has completed.
const SETTLE: Duration = Duration::from_millis(500);
/// How long idle connections rest before the memory that they take is read.
const REST: Duration = Duration::from_secs(2);
/// Open files of a client beside its connections' sockets.
const OTHER_FILES: u64 = 100;

/// Puts the load `scenario` on the server.
pub(super) fn measure<C: Client>(
    client: &mut C,
    scenario: Scenario,
    cipher: Cipher,
) -> Result<Measurement, Failure> {
    match scenario {
        Scenario::Bulk { direction, warm_up, bytes, write } => {
            let mut connection = client.connect()?;
            let piece = |bytes| Transfer { bytes, unique: false, write };
            transfer(client, &mut connection, direction, piece(warm_up))?;
            let mut clock = Clock::start(client, &mut connection)?;
            transfer(client, &mut connection, direction, piece(bytes))?;
            let nanoseconds = clock.stop();
            clock.finish(client, connection, Outcome::Bulk { bytes, nanoseconds })
        }
        Scenario::Verify { direction, bytes } => {
            let mut connection = client.connect()?;
            let clock = Clock::start(client, &mut connection)?;
            let unique = Transfer { unique: true, ..Transfer::new(bytes) };
            transfer(client, &mut connection, direction, unique)?;
            let measurement = clock.finish(client, connection, Outcome::Passed)?;
            check_cipher(measurement, cipher)
        }
        Scenario::Exchanges { milliseconds } => exchanges(client, milliseconds),
        Scenario::Handshakes { concurrency, milliseconds } => {
            handshakes(client, concurrency, milliseconds)
        }
        Scenario::FirstBytes { session, milliseconds } => {
            first_bytes(client, session, milliseconds)
        }
        Scenario::Streams { concurrency, bytes, milliseconds } => {
            streams(client, concurrency, bytes, milliseconds)
        }
        Scenario::Connections { connections, bytes, milliseconds } => {
            many_connections(client, connections, bytes, milliseconds)
        }
        Scenario::Flow { milliseconds } => flow(client, milliseconds),
        Scenario::Idle { connections } => idle(client, connections),
        Scenario::Files { .. }
        | Scenario::Forward { .. }
        | Scenario::Tunnel { .. }
        | Scenario::Gateway { .. }
        | Scenario::Switch { .. }
        | Scenario::SwitchDevices { .. }
        | Scenario::Fetches { .. } => {
            Err("this load is made by programs of its own, not by this process".into())
        }
        Scenario::Refusal => refusal(client),
    }
}

fn transfer<C: Client>(
    client: &mut C,
    connection: &mut C::Connection,
    direction: Direction,
    transfer: Transfer,
) -> Result<(), Failure> {
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
    client.handshake_while(1, &|begun| begun < WARM_UP)?;
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

fn first_bytes<C: Client>(
    client: &mut C,
    session: Session,
    milliseconds: u64,
) -> Result<Measurement, Failure> {
    // The first one brings the ticket for the second, and so on.
    client.first_byte_while(Session::None, &mut |begun| begun < 1)?;
    client.first_byte_while(session, &mut |begun| begun < WARM_UP)?;
    let mut control = client.connect()?;
    let mut clock = Clock::start(client, &mut control)?;
    let end = Instant::now() + Duration::from_millis(milliseconds);
    let latencies = client.first_byte_while(session, &mut |_| Instant::now() < end)?;
    let elapsed = Duration::from_nanos(clock.stop());
    clock.finish(client, control, Outcome::Operations(latencies.summary(elapsed)))
}

fn streams<C: Client>(
    client: &mut C,
    concurrency: usize,
    bytes: u64,
    milliseconds: u64,
) -> Result<Measurement, Failure> {
    let mut connection = client.connect()?;
    let transfer = Transfer::new(bytes);
    let warm_up = WARM_UP.max(WARM_UP_EACH * concurrency as u64);
    client.streams_while(&mut connection, concurrency, transfer, &mut |begun| begun < warm_up)?;
    let mut clock = Clock::start(client, &mut connection)?;
    let end = Instant::now() + Duration::from_millis(milliseconds);
    let more = &mut |_| Instant::now() < end;
    let latencies = client.streams_while(&mut connection, concurrency, transfer, more)?;
    let elapsed = Duration::from_nanos(clock.stop());
    let outcome = Outcome::Transfers { summary: latencies.summary(elapsed), bytes };
    clock.finish(client, connection, outcome)
}

fn many_connections<C: Client>(
    client: &mut C,
    connections: usize,
    bytes: u64,
    milliseconds: u64,
) -> Result<Measurement, Failure> {
    raise_open_files(C::sockets(connections) as u64 + OTHER_FILES)?;
    let mut control = client.connect()?;
    let mut open = Vec::with_capacity(connections);
    for _ in 0..connections {
        open.push(client.connect()?);
    }
    let transfer = Transfer::new(bytes);
    let warm_up = WARM_UP.max(WARM_UP_EACH * connections as u64);
    client.connections_while(&mut open, transfer, &mut |begun| begun < warm_up)?;
    let mut clock = Clock::start(client, &mut control)?;
    let end = Instant::now() + Duration::from_millis(milliseconds);
    let latencies = client.connections_while(&mut open, transfer, &mut |_| Instant::now() < end)?;
    let elapsed = Duration::from_nanos(clock.stop());
    drop(open);
    let outcome = Outcome::Transfers { summary: latencies.summary(elapsed), bytes };
    clock.finish(client, control, outcome)
}

fn flow<C: Client>(client: &mut C, milliseconds: u64) -> Result<Measurement, Failure> {
    let length = Duration::from_millis(milliseconds);
    let mut control = client.connect()?;
    let mut connection = client.connect()?;
    let clock = Clock::start(client, &mut control)?;
    let start = Instant::now();
    let mut flow = Flow::default();
    client.flow(&mut connection, &mut |bytes| {
        let now = start.elapsed();
        flow.count(now, bytes as u64);
        now < length
    })?;
    let link = client.link(&connection);
    drop(connection);
    let measurement = clock.finish(client, control, Outcome::Flow(flow.until(length)))?;
    Ok(Measurement { link, ..measurement })
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
