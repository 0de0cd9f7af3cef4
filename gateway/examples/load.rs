//! Asks a gateway over HTTP/3 by many connections, until standard input ends.
//!
//! `cargo run -p quicket-gateway --example load ADDRESS CA CONNECTIONS [PER_SECOND]`: the certificate has to be one for localhost. 64
//! requests are under way at any time, on one connection after the other; or so many are begun in a second. The first connection comes
//! from 127.0.0.2, all others from 127.0.0.1. It says `ready`, and at each line of standard input how many answers have come.

use std::error::Error;
use std::io::BufRead;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::{Buf, Bytes};
use h3::client::SendRequest;
use http::Request;
use quicket::tokio::Endpoint;
use quicket::{ClientConfig, ClientTls, KeyExchange, TransportConfig};
use quicket_h3::OpenStreams;

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;
type Way = SendRequest<OpenStreams, Bytes>;

/// Requests at once, and handshakes.
const AT_ONCE: usize = 64;
/// Connections of one socket.
const PER_SOCKET: usize = 10_000;
/// How long a connection may be silent.
const IDLE: Duration = Duration::from_secs(300);

struct Load {
    ways: Vec<Way>,
    /// Answers so far.
    answers: AtomicU64,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Outcome<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let usage = "load ADDRESS CA CONNECTIONS [PER_SECOND]";
    let [address, ca, connections, rate @ ..] = &words[..] else { return Err(usage.into()) };
    let to: SocketAddr = address.parse()?;
    let rate: u32 = rate.first().map_or(Ok(0), |rate| rate.parse())?;
    let ways = connect(to, ca.into(), connections.parse()?).await?;
    let load = Arc::new(Load { ways, answers: AtomicU64::new(0) });
    for first in 0..AT_ONCE {
        let load = Arc::clone(&load);
        // Each has a share of the rate.
        let every = (rate > 0).then(|| Duration::from_secs(1) * AT_ONCE as u32 / rate);
        tokio::spawn(async move {
            if let Err(error) = load.ask(first, every).await {
                eprintln!("load: {error}");
                std::process::exit(1);
            }
        });
    }
    println!("ready");
    let asked = tokio::task::spawn_blocking(move || {
        for line in std::io::stdin().lock().lines() {
            line?;
            println!("{}", load.answers.load(Ordering::Relaxed));
        }
        Ok::<_, std::io::Error>(())
    });
    Ok(asked.await??)
}

/// Makes connections, some at a time.
async fn connect(to: SocketAddr, ca: PathBuf, count: usize) -> Outcome<Vec<Way>> {
    let tls = ClientTls::builder().ca_file(ca).alpn(["h3"]).key_exchange(&[KeyExchange::X25519]);
    let transport = TransportConfig { max_idle_timeout: IDLE, ..TransportConfig::default() };
    let config = Arc::new(ClientConfig::new(tls.build()?).transport(transport));
    let one = Endpoint::bind("127.0.0.2:0").await?;
    let mut ways = vec![dial(one, to, Arc::clone(&config)).await?];
    while ways.len() < count {
        let socket = Endpoint::bind("127.0.0.1:0").await?;
        let mut left = PER_SOCKET.min(count - ways.len());
        while left > 0 {
            let now = AT_ONCE.min(left);
            let dialing =
                (0..now).map(|_| tokio::spawn(dial(socket.clone(), to, Arc::clone(&config))));
            for dialed in dialing.collect::<Vec<_>>() {
                ways.push(dialed.await??);
            }
            left -= now;
        }
    }
    Ok(ways)
}

async fn dial(socket: Endpoint, to: SocketAddr, config: Arc<ClientConfig>) -> Outcome<Way> {
    let connection = socket.connect(to, "localhost", &config).await?;
    let (mut session, requests) = h3::client::new(quicket_h3::Connection::new(connection)).await?;
    tokio::spawn(async move { session.wait_idle().await });
    Ok(requests)
}

impl Load {
    /// Asks on one connection after the other, each of which is [`AT_ONCE`] after the one before.
    async fn ask(&self, first: usize, every: Option<Duration>) -> Outcome<()> {
        let mut ticks = every.map(tokio::time::interval);
        // Where connections are few, several ask on one.
        let mut at = first % self.ways.len();
        loop {
            if let Some(ticks) = &mut ticks {
                ticks.tick().await;
            }
            self.one(at).await?;
            at = (at + AT_ONCE) % self.ways.len();
        }
    }

    async fn one(&self, at: usize) -> Outcome<()> {
        let mut way = self.ways.get(at).ok_or("no connection")?.clone();
        let mut stream = way.send_request(Request::get("https://localhost/").body(())?).await?;
        stream.finish().await?;
        let response = stream.recv_response().await?;
        if !response.status().is_success() {
            return Err(format!("the gateway says {}", response.status()).into());
        }
        while let Some(mut data) = stream.recv_data().await? {
            data.advance(data.remaining());
        }
        self.answers.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}
