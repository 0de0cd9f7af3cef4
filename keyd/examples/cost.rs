//! What a handshake with RSA-2048 costs a server with the key elsewhere, against one that has it: one over QUIC after
//! the other, by the server's processor time, user and system, all threads of the process.
//!
//! `cargo run --release -p quicket-keyd --example cost [HANDSHAKES]`; with two processors, one is the server's alone.

use std::fmt;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use quicket::{ClientConfig, ClientTls, Connection, Endpoint, Identity, ServerConfig, ServerTls};
use quicket_handshake::elsewhere::RemoteKey;
use quicket_keyd::protocol::TranscriptHash;
use quicket_keyd::{
    Allowed, Client, ClientOptions, Key, KeyId, Keys, Server, ServerOptions, key_id,
};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// Handshakes at once.
const AT_ONCE: usize = 16;
/// What the issue asks for.
const WANTED: f64 = 0.9;

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["keyd", dir] => keyd(Path::new(dir)),
        ["server", dir, place] => server(Path::new(dir), place == "elsewhere"),
        [] => measure(2000),
        [count] => measure(count.parse()?),
        _ => Err("cost [HANDSHAKES]".into()),
    }
}

/// Has the key, until it is killed.
fn keyd(dir: &Path) -> Outcome<()> {
    let keys = Keys::new([Key::of_file(&dir.join("cert.key"))?])?;
    let mut server = Server::new(keys, &ServerOptions::default())?;
    server.listen_unix(UnixListener::bind(dir.join("keyd.sock"))?, Allowed::default())?;
    println!("ready");
    std::io::stdin().read_line(&mut String::new())?;
    Ok(())
}

#[derive(Debug)]
struct Elsewhere(Client, KeyId);

impl RemoteKey for Elsewhere {
    fn sign(&self, scheme: u16, content: &[u8]) -> Result<Vec<u8>, String> {
        let hash = TranscriptHash::of_content(content).ok_or("no CertificateVerify")?;
        self.0.sign(self.1, scheme, hash).map_err(|error| error.to_string())
    }

    fn run(&self, job: Box<dyn FnOnce() + Send>) -> Result<(), String> {
        self.0.run(job)
    }
}

/// Takes connections, and says what they have cost at each line that comes.
fn server(dir: &Path, elsewhere: bool) -> Outcome<()> {
    let chain = dir.join("cert.pem");
    let identity = match elsewhere {
        false => Identity::from_pem_files(&chain, dir.join("cert.key"))?,
        true => {
            let place = format!("unix:{}", dir.join("keyd.sock").display()).parse()?;
            let client = Client::new(place, None, &ClientOptions::default())?;
            Identity::with_key_elsewhere(&chain, |spki| Arc::new(Elsewhere(client, key_id(spki))))?
        }
    };
    let tls = ServerTls::builder(identity).alpn(["cost"]).tickets(0).build()?;
    let endpoint = Endpoint::bind("127.0.0.1:0")?;
    println!("{}", endpoint.local_addr().port());
    let listener = endpoint.listen(ServerConfig::new(tls))?;
    std::thread::spawn(move || while listener.accept().is_ok() {});
    for line in std::io::stdin().lines() {
        line?;
        println!("{} {}", processor_time()?.as_nanos(), waiting_threads()?.as_nanos());
    }
    Ok(())
}

/// What this process has used of processors, in user and system.
fn processor_time() -> Outcome<Duration> {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Ok(Duration::new(now.tv_sec.try_into()?, now.tv_nsec.try_into()?))
}

/// What threads have used of processors that wait for signatures (proc(5)).
fn waiting_threads() -> Outcome<Duration> {
    let mut all = 0;
    for thread in std::fs::read_dir("/proc/self/task")? {
        let thread = thread?.path();
        let read = |name: &str| std::fs::read_to_string(thread.join(name)).unwrap_or_default();
        if read("comm").trim() == "quicket-sign" {
            let used =
                read("schedstat").split(' ').next().and_then(|used| used.parse::<u64>().ok());
            all += used.unwrap_or(0);
        }
    }
    Ok(Duration::from_nanos(all))
}

/// A process that is killed in the end, on one processor.
struct Part {
    child: Child,
    lines: BufReader<std::process::ChildStdout>,
}

impl Part {
    fn start(processor: usize, arguments: &[&str]) -> Outcome<(Self, String)> {
        let mut command = Command::new("taskset");
        command.args(["-c", &processor.to_string()]).arg(std::env::current_exe()?).args(arguments);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let lines = BufReader::new(child.stdout.take().ok_or("no output")?);
        let mut part = Self { child, lines };
        let first = part.line()?;
        Ok((part, first))
    }

    fn line(&mut self) -> Outcome<String> {
        let mut line = String::new();
        self.lines.read_line(&mut line)?;
        Ok(line.trim().to_owned())
    }

    /// What its process has used of processors, and what of that its threads that wait for signatures.
    fn processor_time(&mut self) -> Outcome<[Duration; 2]> {
        let input = self.child.stdin.as_mut().ok_or("no input")?;
        input.write_all(b"\n")?;
        let line = self.line()?;
        let (all, waiting) = line.split_once(' ').ok_or("no times")?;
        Ok([Duration::from_nanos(all.parse()?), Duration::from_nanos(waiting.parse()?)])
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a handshake costs the server, and how long clients wait for it.
struct Measured {
    cost: Duration,
    /// What of that is the worker's.
    worker: Duration,
    waits: Vec<Duration>,
}

impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let wait = |percent: usize| self.waits[(self.waits.len() - 1) * percent / 100];
        let [all, worker] = [self.cost, self.worker].map(|cost| cost.as_secs_f64() * 1e6);
        write!(f, "{all:6.1} us, {worker:.1} us of the worker")?;
        let [half, most, nearly] = [50, 95, 99].map(|at| wait(at).as_secs_f64() * 1e3);
        write!(f, "; clients wait {half:.2}, {most:.2}, {nearly:.2} ms at 50, 95, 99 %")
    }
}

fn handshakes(part: &mut Part, port: &str, dir: &Path, count: usize) -> Outcome<Measured> {
    let address = format!("127.0.0.1:{port}");
    let tls = ClientTls::builder().ca_file(dir.join("cert.pem")).alpn(["cost"]).build()?;
    let config = ClientConfig::new(tls);
    let before = part.processor_time()?;
    let left = AtomicUsize::new(count);
    let mut waits: Vec<Duration> = std::thread::scope(|scope| {
        let work = || {
            let mut waits = Vec::new();
            let more = |left: usize| left.checked_sub(1);
            while left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more).is_ok() {
                let begun = Instant::now();
                let made = Connection::connect(address.as_str(), "localhost", &config);
                waits.push(begun.elapsed());
                made.expect("a connection").close(0, b"");
            }
            waits
        };
        let threads: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(work)).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("all is well")).collect()
    });
    waits.sort_unstable();
    let after = part.processor_time()?;
    let [cost, waiting] =
        [0, 1].map(|at| (after[at] - before[at]) / u32::try_from(count).unwrap_or(1));
    Ok(Measured { cost, worker: cost.saturating_sub(waiting), waits })
}

/// What one signature costs.
fn signature(dir: &Path) -> Outcome<Duration> {
    const COUNT: u32 = 1000;
    let key = Key::of_file(&dir.join("cert.key"))?;
    let hash = TranscriptHash::new(&[7; 32]).ok_or("a hash")?;
    let begun = processor_time()?;
    for _ in 0..COUNT {
        key.sign(0x0804, &hash)?;
    }
    Ok((processor_time()? - begun) / COUNT)
}

fn certificate(dir: &Path) -> Outcome<()> {
    let mut command = Command::new("openssl");
    command
        .args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=cost"]);
    command.args(["-addext", "subjectAltName=DNS:localhost", "-keyout", "cert.key"]);
    let made = command.args(["-out", "cert.pem"]).current_dir(dir).output()?;
    if made.status.success() { Ok(()) } else { Err("openssl makes no certificate".into()) }
}

fn measure(count: usize) -> Outcome<()> {
    let dir = tempfile::tempdir()?;
    let path: PathBuf = dir.path().to_owned();
    certificate(&path)?;
    let text = path.display().to_string();
    // The server has the first processor, all else the last.
    let last = std::thread::available_parallelism()?.get() - 1;
    let (_keyd, _) = Part::start(last, &["keyd", &text])?;
    let (mut here, here_port) = Part::start(0, &["server", &text, "here"])?;
    let (mut there, there_port) = Part::start(0, &["server", &text, "elsewhere"])?;
    let signature = signature(&path)?;
    // What is made once is no cost of a handshake; and each has its turn when the machine is slower.
    let mut rounds = Vec::new();
    for round in 0..4 {
        let count = if round == 0 { count.min(200) } else { count / 3 };
        let here = handshakes(&mut here, &here_port, &path, count)?;
        let there = handshakes(&mut there, &there_port, &path, count)?;
        if round > 0 {
            println!("round {round}: key here {here}");
            println!("         elsewhere {there}");
            rounds.push((here.cost, there.cost, there.worker));
        }
    }
    let mean = |cost: fn(&(Duration, Duration, Duration)) -> Duration| -> f64 {
        rounds.iter().map(|round| cost(round).as_secs_f64()).sum::<f64>() / rounds.len() as f64
    };
    let (here, there) = (mean(|round| round.0), mean(|round| round.1));
    let worker = mean(|round| round.2);
    let without = here - signature.as_secs_f64();
    println!(
        "a signature {:.1} us; handshake and signature {:.1} us, without the signature {:.1} us, elsewhere {:.1} us",
        signature.as_secs_f64() * 1e6,
        here * 1e6,
        without * 1e6,
        there * 1e6
    );
    let (most, reached) = (here / without, here / there);
    println!(
        "handshakes for the same processor time: {reached:.2} times as many; {most:.2} if signatures elsewhere cost \
         nothing; {:.2} of that",
        reached / most
    );
    let reached = here / worker;
    println!(
        "... for the same time of the worker: {reached:.2} times as many; {:.2} of that, where {WANTED} is wanted",
        reached / most
    );
    Ok(())
}
