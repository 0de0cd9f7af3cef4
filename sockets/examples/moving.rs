//! A download that goes on while this host's networks change, and its server.
//!
//! ```text
//! moving serve 192.0.2.2:4433             # moves are allowed
//! moving serve-fixed 192.0.2.2:4433       # moves are forbidden (RFC 9000, Section 18.2)
//! moving blocking 192.0.2.2:4433 50       # fetches so many MiB by the blocking API
//! moving tokio 192.0.2.2:4433 50          # ... by that of tokio
//! moving stay 192.0.2.2:4433 50           # ... without following the network
//! moving marked 192.0.2.2:4433 50         # ... with packets that have the mark 7 (needs CAP_NET_ADMIN)
//! moving listening 192.0.2.2:4433 50      # ... by the socket of a listener at port 4435, which stays until its input ends
//! ```
//!
//! The server prints its certificate's fingerprint, and a line for each connection that has ended: how often it moved. The client says when it is connected,
//! and when a part of the download is there; it compares each byte, and prints how long the longest silence was.

use std::error::Error;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use quicket::{
    ClientConfig, ClientTls, Connection, Endpoint, EndpointConfig, Identity, Listener,
    ServerConfig, UdpConfig, UdpOption,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const ALPN: [&str; 1] = ["moving"];
const PIECE: usize = 64 << 10;

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match words[..] {
        ["serve", address] => serve(address, true),
        ["serve-fixed", address] => serve(address, false),
        ["blocking", address, size] => blocking(address.parse()?, size.parse()?, true),
        ["stay", address, size] => blocking(address.parse()?, size.parse()?, false),
        ["marked", address, size] => marked(address.parse()?, size.parse()?),
        ["listening", address, size] => listening(address.parse()?, size.parse()?),
        ["tokio", address, size] => by_tokio(address.parse()?, size.parse()?),
        _ => {
            let kinds = "serve|serve-fixed|blocking|tokio|stay|marked|listening";
            Err(format!("usage: moving {kinds} ADDRESS [MIB]").into())
        }
    }
}

/// What is at this place of every download.
fn byte_at(place: u64) -> u8 {
    (place.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

fn serve(address: &str, migration: bool) -> Result<()> {
    let identity = Identity::self_signed(["localhost"])?;
    let pin = identity.fingerprint();
    let config = ServerConfig::with_identity(identity, ALPN)?.migration(migration);
    let listener = Listener::bind(address, config)?;
    println!("ready {pin}");
    for connection in listener.incoming() {
        let connection = connection?;
        thread::spawn(move || {
            if let Err(error) = answer(&connection) {
                eprintln!("{error}");
            }
            let reason = connection.closed();
            println!("moves {} ({reason})", connection.stats().counters.path_changes);
        });
    }
    Ok(())
}

fn answer(connection: &Connection) -> Result<()> {
    let mut stream = connection.accept_bi()?;
    let mut asked = [0; 8];
    stream.read_exact(&mut asked)?;
    let size = u64::from_be_bytes(asked);
    let mut place = 0;
    while place < size {
        let end = size.min(place + PIECE as u64);
        let piece: Vec<u8> = (place..end).map(byte_at).collect();
        stream.write_all(&piece)?;
        place = end;
    }
    stream.finish()?;
    Ok(())
}

fn config(follow: bool) -> Result<ClientConfig> {
    let tls = ClientTls::builder().dangerous_no_verification().alpn(ALPN).build()?;
    Ok(ClientConfig::new(tls).follow_network(follow))
}

/// What a client has received.
struct Received {
    size: u64,
    place: u64,
    last: Instant,
    silence: Duration,
}

impl Received {
    fn new(size: u64) -> Self {
        Self { size, place: 0, last: Instant::now(), silence: Duration::ZERO }
    }

    fn take(&mut self, piece: &[u8]) -> Result<()> {
        let now = Instant::now();
        self.silence = self.silence.max(now - self.last);
        self.last = now;
        for (place, byte) in (self.place..).zip(piece) {
            if byte_at(place) != *byte {
                return Err(format!("another byte than was sent at {place}").into());
            }
        }
        let before = self.place;
        self.place += piece.len() as u64;
        if (before..self.place).contains(&(self.size / 16)) {
            println!("under way");
        }
        Ok(())
    }

    fn end(self, moves: u64) -> Result<()> {
        let size = self.size;
        if self.place != size {
            return Err(format!("{} bytes instead of {size}", self.place).into());
        }
        println!("received {size}, moves {moves}, silence {:.3}", self.silence.as_secs_f64());
        Ok(())
    }
}

fn blocking(address: SocketAddr, mib: u64, follow: bool) -> Result<()> {
    let connection = Connection::connect(address, "localhost", &config(follow)?)?;
    download(&connection, mib)
}

fn marked(address: SocketAddr, mib: u64) -> Result<()> {
    let udp = UdpConfig { options: vec![UdpOption::Mark(7)], ..UdpConfig::default() };
    let endpoint =
        Endpoint::bind_with("0.0.0.0:0", EndpointConfig { udp, ..EndpointConfig::default() })?;
    download(&endpoint.connect(address, "localhost", &config(true)?)?, mib)
}

fn listening(address: SocketAddr, mib: u64) -> Result<()> {
    let endpoint = Endpoint::bind("0.0.0.0:4435")?;
    let identity = Identity::self_signed(["localhost"])?;
    let _listener = endpoint.listen(ServerConfig::with_identity(identity, ALPN)?)?;
    let connection = endpoint.connect(address, "localhost", &config(true)?)?;
    download(&connection, mib)?;
    println!("at {}", endpoint.local_addr());
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

fn download(connection: &Connection, mib: u64) -> Result<()> {
    println!("connected");
    let size = mib << 20;
    let mut stream = connection.open_bi()?;
    stream.write_all(&size.to_be_bytes())?;
    stream.finish()?;
    let (mut piece, mut received) = (vec![0; PIECE], Received::new(size));
    loop {
        match stream.read(&mut piece)? {
            0 => break,
            len => received.take(&piece[..len])?,
        }
    }
    let moves = connection.stats().counters.path_changes;
    connection.close(0, b"done");
    received.end(moves)
}

fn by_tokio(address: SocketAddr, mib: u64) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let connection =
            quicket::tokio::Connection::connect(address, "localhost", &config(true)?).await?;
        println!("connected");
        let size = mib << 20;
        let mut stream = connection.open_bi().await?;
        stream.write_all(&size.to_be_bytes()).await?;
        stream.shutdown().await?;
        let (mut piece, mut received) = (vec![0; PIECE], Received::new(size));
        loop {
            match stream.read(&mut piece).await? {
                0 => break,
                len => received.take(&piece[..len])?,
            }
        }
        let moves = connection.stats().counters.path_changes;
        connection.close(0, b"done");
        received.end(moves)
    })
}
