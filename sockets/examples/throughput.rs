//! Bulk throughput and request rate between two processes.
//!
//! ```text
//! throughput serve 127.0.0.1:4433
//! throughput upload 127.0.0.1:4433 4096      # MiB
//! throughput download 127.0.0.1:4433 4096    # MiB
//! throughput requests 127.0.0.1:4433 20000   # 1 KiB each, one after the other
//! throughput connects 127.0.0.1:4433 1000    # full handshakes, one after the other
//! throughput crowd 127.0.0.1:4433 200 65536 10
//!     # connections at once, each of which asks for so many bytes again and again, for so many seconds
//! ```
//!
//! `crowd` says how much CPU time the server had meanwhile, and the client.
//!
//! `QUICKET_MTU` fixes the UDP payload (default 1472). `QUICKET_WRITE` and `QUICKET_READ` are the
//! bytes of a call (default 262144), and `QUICKET_PAUSE` the microseconds that whoever receives
//! sleeps after each (default 0): for comparison with programs that do so. `QUICKET_WORKERS` is how many
//! workers serve (default 1): they say how many datagrams each received and handed to another.
//! `QUICKET_MOVES` is how often the client moves to another port before it begins (default 0), after
//! which the kernel may choose another worker. `QUICKET_PROGRAM` has the server share its address through
//! the switch, as a program of that name; clients that have the same name there reach it.

use std::error::Error;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use quicket::{
    ClientConfig, ClientTls, Connection, Endpoint, EndpointConfig, Identity, ServerConfig, Stream,
    SwitchConfig, TransportConfig, Workers,
};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const CHUNK: usize = 256 << 10;
/// Who asks for so many bytes asks how much CPU time the server has had.
const USAGE: u64 = u64::MAX;

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match words[..] {
        ["serve", address] => serve(address),
        ["upload", address, mib] => upload(address, mib.parse()?),
        ["download", address, mib] => download(address, mib.parse()?),
        ["requests", address, count] => requests(address, count.parse()?),
        ["connects", address, count] => connects(address, count.parse()?),
        ["crowd", address, connections, size, seconds] => {
            crowd(address, connections.parse()?, size.parse()?, seconds.parse()?)
        }
        _ => {
            Err("usage: throughput serve|upload|download|requests|connects|crowd ADDRESS [N...]"
                .into())
        }
    }
}

/// A number from the environment.
fn variable(name: &str, default: usize) -> Result<usize> {
    match std::env::var(name) {
        Ok(value) => Ok(value.parse().map_err(|error| format!("{name}={value}: {error}"))?),
        Err(_) => Ok(default),
    }
}

/// What tells a server from others at its address.
fn protocol() -> String {
    std::env::var("QUICKET_PROGRAM").unwrap_or_else(|_| "perf".to_owned())
}

fn transport() -> Result<TransportConfig> {
    Ok(TransportConfig {
        initial_udp_payload_size: variable("QUICKET_MTU", 1472)?.try_into()?,
        mtu_discovery: None,
        ..TransportConfig::default()
    })
}

/// What a thread receives into and sends from.
fn buffer(name: &str) -> Result<Vec<u8>> {
    Ok(vec![7; variable(name, CHUNK)?])
}

/// Receives to the end of the stream; returns how many bytes came.
fn receive(stream: &mut Stream, buffer: &mut [u8]) -> Result<u64> {
    let pause = Duration::from_micros(variable("QUICKET_PAUSE", 0)?.try_into()?);
    let mut total = 0;
    loop {
        match stream.read(buffer)? {
            0 => return Ok(total),
            len => total += len as u64,
        }
        if !pause.is_zero() {
            thread::sleep(pause);
        }
    }
}

fn serve(address: &str) -> Result<()> {
    let identity = Identity::self_signed(["localhost"])?;
    let config = ServerConfig::with_identity(identity, [protocol()])?.transport(transport()?);
    let workers = Workers::Count(variable("QUICKET_WORKERS", 1)?);
    let mut at = EndpointConfig::default().workers(workers);
    if std::env::var_os("QUICKET_PROGRAM").is_some() {
        at = at.switch(SwitchConfig::new(protocol()));
    }
    let endpoint = Endpoint::bind_with(address, at)?;
    let listener = endpoint.listen(config)?;
    for connection in listener.incoming() {
        let (connection, endpoint) = (connection?, endpoint.clone());
        thread::spawn(move || {
            if let Err(error) = answer(&connection) {
                eprintln!("{error}");
            }
            let workers = endpoint.worker_stats();
            let each = workers.iter().map(|worker| (worker.received, worker.handed_on));
            println!("received and handed on: {:?}", each.collect::<Vec<_>>());
        });
    }
    Ok(())
}

/// The first eight bytes of a stream say how much to send back; what follows them is only counted.
fn answer(connection: &Connection) -> Result<()> {
    let (mut read, write) = (buffer("QUICKET_READ")?, buffer("QUICKET_WRITE")?);
    while let Ok(mut stream) = connection.accept_bi() {
        let mut size = [0; 8];
        stream.read_exact(&mut size)?;
        receive(&mut stream, &mut read)?;
        match u64::from_be_bytes(size) {
            USAGE => {
                stream.write_all(&cpu_time()?.to_be_bytes())?;
                stream.finish()?;
            }
            size => send(&mut stream, size, &write)?,
        }
    }
    Ok(())
}

/// The CPU time of this process in microseconds, of the user and of the system.
fn cpu_time() -> Result<u64> {
    let usage = getrusage(UsageWho::RUSAGE_SELF)?;
    let time = usage.user_time() + usage.system_time();
    Ok(time.num_microseconds().try_into()?)
}

fn send(stream: &mut Stream, mut left: u64, buffer: &[u8]) -> Result<()> {
    while left > 0 {
        let len = usize::try_from(left)?.min(buffer.len());
        stream.write_all(&buffer[..len])?;
        left -= len as u64;
    }
    Ok(stream.finish()?)
}

fn connect(address: &str) -> Result<Connection> {
    let tls = ClientTls::builder().dangerous_no_verification().alpn([protocol()]).build()?;
    let config = ClientConfig::new(tls).transport(transport()?);
    let address: SocketAddr = address.parse()?;
    let any = if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" }.parse()?;
    let endpoint = Endpoint::bind(any)?;
    let connection = endpoint.connect(address, "localhost", &config)?;
    for _ in 0..variable("QUICKET_MOVES", 0)? {
        endpoint.rebind(any)?;
        let mut stream = connection.open_bi()?;
        stream.write_all(&0_u64.to_be_bytes())?;
        stream.finish()?;
        stream.read_to_end(0)?;
    }
    Ok(connection)
}

fn report(connection: &Connection, what: &str, mib: u64, start: Instant) {
    let seconds = start.elapsed().as_secs_f64();
    let gbits = mib as f64 * 8.0 * 1.048_576 / 1000.0 / seconds;
    println!("{what}: {gbits:.2} Gbit/s");
    drop(connection.clone());
}

fn upload(address: &str, mib: u64) -> Result<()> {
    let connection = connect(address)?;
    let start = Instant::now();
    let mut stream = connection.open_bi()?;
    stream.write_all(&0_u64.to_be_bytes())?;
    send(&mut stream, mib << 20, &buffer("QUICKET_WRITE")?)?;
    stream.read_to_end(0)?;
    report(&connection, "upload", mib, start);
    Ok(())
}

fn download(address: &str, mib: u64) -> Result<()> {
    let connection = connect(address)?;
    let start = Instant::now();
    let mut stream = connection.open_bi()?;
    stream.write_all(&(mib << 20).to_be_bytes())?;
    stream.finish()?;
    assert_eq!(receive(&mut stream, &mut buffer("QUICKET_READ")?)?, mib << 20);
    report(&connection, "download", mib, start);
    Ok(())
}

fn requests(address: &str, count: u32) -> Result<()> {
    let connection = connect(address)?;
    let start = Instant::now();
    let mut request = vec![1; 1024];
    request[..8].copy_from_slice(&1024_u64.to_be_bytes());
    for _ in 0..count {
        let mut stream = connection.open_bi()?;
        stream.write_all(&request)?;
        stream.finish()?;
        assert_eq!(stream.read_to_end(2048)?.len(), 1024);
    }
    println!("requests: {:.0}/s", f64::from(count) / start.elapsed().as_secs_f64());
    Ok(())
}

fn connects(address: &str, count: u32) -> Result<()> {
    let start = Instant::now();
    for _ in 0..count {
        connect(address)?.close(0, b"");
    }
    println!("connects: {:.0}/s", f64::from(count) / start.elapsed().as_secs_f64());
    Ok(())
}

/// A thread for each connection, each with a socket of its own.
fn crowd(address: &str, count: usize, size: u64, seconds: u64) -> Result<()> {
    if size == USAGE {
        return Err("that is too much".into());
    }
    let control = connect(address)?;
    let connections = (0..count).map(|_| connect(address)).collect::<Result<Vec<_>>>()?;
    let (answers, ended) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let start = Instant::now();
    let before = (served(&control)?, cpu_time()?);
    let clients: Vec<_> = connections
        .into_iter()
        .map(|connection| {
            let (answers, ended) = (answers.clone(), ended.clone());
            thread::spawn(move || -> Result<()> {
                let mut buffer = buffer("QUICKET_READ")?;
                while !ended.load(Ordering::Relaxed) {
                    let mut stream = connection.open_bi()?;
                    stream.write_all(&size.to_be_bytes())?;
                    stream.finish()?;
                    if receive(&mut stream, &mut buffer)? != size {
                        return Err("the answer has another length".into());
                    }
                    answers.fetch_add(1, Ordering::Relaxed);
                }
                Ok(())
            })
        })
        .collect();
    thread::sleep(Duration::from_secs(seconds));
    ended.store(true, Ordering::Relaxed);
    for client in clients {
        client.join().map_err(|_| "a client has panicked")??;
    }
    let time = start.elapsed().as_secs_f64();
    let used = |now: u64, before: u64| now.saturating_sub(before) as f64 / 1e6;
    let (server, client) = (used(served(&control)?, before.0), used(cpu_time()?, before.1));
    let answers = answers.load(Ordering::Relaxed) as f64;
    println!(
        "crowd: {count} connections, {:.0} answers of {size} bytes a second, {:.2} Gbit/s; CPU of the server \
         {server:.2} s in {time:.2} s, {:.1} us for an answer; of this load generator {client:.2} s, {:.0} % of both",
        answers / time,
        answers * size as f64 * 8.0 / 1e9 / time,
        server * 1e6 / answers,
        100.0 * client / (server + client),
    );
    Ok(())
}

/// How much CPU time the server has had, in microseconds.
fn served(control: &Connection) -> Result<u64> {
    let mut stream = control.open_bi()?;
    stream.write_all(&USAGE.to_be_bytes())?;
    stream.finish()?;
    let mut time = [0; 8];
    stream.read_exact(&mut time)?;
    Ok(u64::from_be_bytes(time))
}
