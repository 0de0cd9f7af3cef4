//! Many connections to a server that are held for long and used from time to time: which of them a
//! load balancer, a NAT or a server's end loses, and which of them end up at another server.

mod arguments;
mod tally;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use quicket::tokio::{Connection, Endpoint};
use quicket::{ClientConfig, ClientTls, TransportConfig};
use tokio::runtime::Builder;
use tokio::sync::Semaphore;
use tokio::task::{LocalSet, spawn_local};
use tokio::time::{Instant, sleep, sleep_until, timeout};

pub use self::arguments::HoldArguments;
use self::tally::Tally;
use crate::command::{Failure, Outcome, print};

/// Handshakes at once: more would wait for each other's ciphers, and time out.
const HANDSHAKES: usize = 32;
/// The longest answer that is read: it says who answers.
const MAX_ANSWER: usize = 4096;

/// What is held.
#[derive(Clone, Debug)]
struct Options {
    server: SocketAddr,
    /// Of the server's certificate what counts is its fingerprint.
    server_name: String,
    request: Arc<str>,
    connections: usize,
    ports: usize,
    every: Duration,
    move_every: Option<Duration>,
    report_every: Duration,
    duration: Option<Duration>,
}

/// Carries out the command.
pub(crate) fn run(arguments: &HoldArguments) -> Result<Outcome, Failure> {
    let tls = ClientTls::builder().pinned([arguments.pin]).alpn(["hq-interop"]).build()?;
    let transport =
        TransportConfig { max_idle_timeout: arguments.idle, ..TransportConfig::default() };
    let config = ClientConfig::new(tls).transport(transport);
    let options = arguments.options();
    let runtime = Builder::new_current_thread().enable_all().build()?;
    LocalSet::new().block_on(&runtime, hold(options, config))
}

async fn hold(options: Options, config: ClientConfig) -> Result<Outcome, Failure> {
    let tally = Arc::new(Tally::default());
    let any: IpAddr = match options.server {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let mut endpoints = Vec::new();
    for _ in 0..options.ports {
        endpoints.push(Endpoint::bind((any, 0)).await?);
    }
    if let Some(every) = options.move_every {
        let moving = endpoints.clone();
        let (any, tally) = (SocketAddr::from((any, 0)), tally.clone());
        spawn_local(async move { move_about(&moving, any, every, &tally).await });
    }
    let room = Arc::new(Semaphore::new(HANDSHAKES));
    for number in 0..options.connections {
        let endpoint = endpoints[number % endpoints.len()].clone();
        let (options, config) = (options.clone(), config.clone());
        let (tally, room) = (tally.clone(), room.clone());
        spawn_local(async move {
            let connected = {
                let _room = room.acquire().await;
                endpoint.connect(options.server, &options.server_name, &config).await
            };
            match connected {
                Ok(connection) => {
                    // The questions of all are spread over the time between two.
                    let share = options.every.mul_f64(number as f64 / options.connections as f64);
                    ask(&connection, (number, share), &options, &tally).await;
                }
                Err(error) => tally.refused(error.to_string()),
            }
        });
    }
    let start = Instant::now();
    let deadline = options.duration.map(|duration| start + duration);
    let mut next = start;
    loop {
        next += options.report_every;
        sleep_until(next.min(deadline.unwrap_or(next))).await;
        let ended = deadline.is_some_and(|deadline| Instant::now() >= deadline);
        tally.look(Instant::now().into_std(), options.every * 2);
        print(&format!("{}\n", tally.json()))?;
        if ended {
            return Ok(if tally.is_whole(options.connections) {
                Outcome::Passed
            } else {
                Outcome::Failed
            });
        }
    }
}

/// Gives a tenth of the endpoints, and one at least, other ports every so often, in turn.
async fn move_about(endpoints: &[Endpoint], any: SocketAddr, every: Duration, tally: &Tally) {
    let mut turn = endpoints.iter().cycle();
    loop {
        sleep(every).await;
        for endpoint in turn.by_ref().take(endpoints.len().div_ceil(10)) {
            if let Err(error) = endpoint.rebind(any) {
                tally.stayed(error.to_string());
            }
        }
    }
}

/// Asks again and again who is there, until the connection is lost.
async fn ask(
    connection: &Connection,
    (number, share): (usize, Duration),
    options: &Options,
    tally: &Tally,
) {
    let mut first = None;
    sleep(share).await;
    loop {
        let asked = Instant::now();
        tally.asked(number, asked.into_std());
        let answer = exchange(connection, &options.request).await;
        tally.asks_no_more(number);
        match answer {
            Ok(answer) => {
                let home = first.get_or_insert_with(|| {
                    tally.opened(&answer);
                    answer.clone()
                });
                tally.answered(home, &answer, asked.elapsed());
            }
            // A server may refuse a stream, or reset it, and keep the connection.
            Err(error) if timeout(Duration::ZERO, connection.closed()).await.is_err() => {
                tally.failed(error.to_string());
            }
            Err(error) => {
                tally.lost(first.as_deref(), error.to_string());
                return;
            }
        }
        sleep_until(asked + options.every).await;
    }
}

/// A request of HTTP/0.9 and its answer.
async fn exchange(connection: &Connection, request: &str) -> Result<String, Failure> {
    let (mut send, mut receive) = connection.open_bi().await?.split();
    send.write_all(request.as_bytes()).await?;
    send.finish()?;
    let answer = receive.read_to_end(MAX_ANSWER).await?;
    Ok(String::from_utf8_lossy(&answer).trim().to_owned())
}
