//! Asks a gateway over HTTP/3 by many connections, until standard input ends.
//!
//! `cargo run -p quicket-gateway --example load ADDRESS CA CONNECTIONS [PER_SECOND | unread]`: the certificate has to be one for
//! localhost. 64 requests are under way at any time, on one connection after the other; or so many are begun in a second. The first
//! connection comes from 127.0.0.2, all others from 127.0.0.1. It says `ready`, and at each line of standard input how many answers have
//! come. With `unread`, each connection asks once for `/large` and takes nothing of the answer but its head: `ready` comes when all
//! have asked.

use std::error::Error;
use std::io::BufRead;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::{Buf, Bytes};
use h3::client::{RequestStream, SendRequest};
use http::Request;
use quicket::tokio::Endpoint;
use quicket::{ClientConfig, ClientTls, KeyExchange, TransportConfig};
use quicket_h3::{BidiStream, OpenStreams};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;
type Way = SendRequest<OpenStreams, Bytes>;
type Stream = RequestStream<BidiStream<Bytes>, Bytes>;

/// Requests at once, and handshakes.
const AT_ONCE: usize = 64;
/// Connections of one socket.
const PER_SOCKET: usize = 10_000;
/// How long a connection may be silent.
const IDLE: Duration = Duration::from_secs(300);
/// What an answer that nobody reads may send before it waits, in bytes: the rest is the gateway's to keep.
const UNREAD_WINDOW: u64 = 4096;

struct Load {
    ways: Vec<Way>,
    /// Answers so far.
    answers: AtomicU64,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Outcome<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let usage = "load ADDRESS CA CONNECTIONS [PER_SECOND | unread]";
    let [address, ca, connections, how @ ..] = &words[..] else { return Err(usage.into()) };
    let to: SocketAddr = address.parse()?;
    let is_unread = how.first().is_some_and(|how| how == "unread");
    let rate: u32 = if is_unread { 0 } else { how.first().map_or(Ok(0), |rate| rate.parse())? };
    let mut transport = TransportConfig { max_idle_timeout: IDLE, ..TransportConfig::default() };
    if is_unread {
        transport.initial_stream_window = UNREAD_WINDOW;
        transport.max_stream_window = UNREAD_WINDOW;
    }
    let ways = connect(to, ca.into(), connections.parse()?, transport).await?;
    let load = Arc::new(Load { ways, answers: AtomicU64::new(0) });
    if is_unread {
        let _unread = load.ask_all_once().await?;
        return load.say_answers().await;
    }
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
    load.say_answers().await
}

/// Makes connections, some at a time.
async fn connect(
    to: SocketAddr,
    ca: PathBuf,
    count: usize,
    transport: TransportConfig,
) -> Outcome<Vec<Way>> {
    let tls = ClientTls::builder().ca_file(ca).alpn(["h3"]).key_exchange(&[KeyExchange::X25519]);
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
    /// Says that all is there, and then at each line of standard input how many answers have come, until it ends.
    async fn say_answers(self: Arc<Self>) -> Outcome<()> {
        println!("ready");
        let asked = tokio::task::spawn_blocking(move || {
            for line in std::io::stdin().lock().lines() {
                line?;
                println!("{}", self.answers.load(Ordering::Relaxed));
            }
            Ok::<_, std::io::Error>(())
        });
        Ok(asked.await??)
    }

    /// Asks once on each connection, and reads no more than the head of the answer. Streams that are dropped would be reset.
    async fn ask_all_once(&self) -> Outcome<Vec<Stream>> {
        let mut streams = Vec::new();
        for way in &self.ways {
            let request = Request::get("https://localhost/large").body(())?;
            let mut stream = way.clone().send_request(request).await?;
            stream.finish().await?;
            let response = stream.recv_response().await?;
            if !response.status().is_success() {
                return Err(format!("the gateway says {}", response.status()).into());
            }
            self.answers.fetch_add(1, Ordering::Relaxed);
            streams.push(stream);
        }
        Ok(streams)
    }

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
