//! How many frames the switch for packets moves in a second: those of a shared-memory switch, not of a network card.
//!
//! ```text
//! rates within  [--ports N] [--len OCTETS] [--seconds S] [--slot OCTETS] [--entries N] [--gbit RATE] [--ip 4|6]
//! rates between [the same]
//! rates send    [the same]
//! rates receive [the same]
//! ```
//!
//! `within`: one thread has all ports and the forwarder. `between`: one process has all ports, another one the
//! switch; each has one thread. Each port sends to the next one.
//!
//! `send` and `receive`: one process has all ports, and shares core 0 with the switch. They send to the *card*, or receive
//! from it: a port of a third process on core 1, which moves no more frames than a wire of that rate would carry (10
//! Gbit/s unless another one is given).
//!
//! Every frame has a flow, a number in it, and a check of both; who receives counts what is lost, doubled, and not for
//! him.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use quicket_packets::client::Port;
use quicket_packets::traffic::{Bucket, Generator, Sink, shortest};
use quicket_packets::{BATCH, Bell, Counters, Forwarder, Layout, Memory, REASONS, Tuple};
use quicket_ring::program::{Receiver, Sender, halves};

/// Positions of the card's rings.
const CARD: u32 = 4096;
/// What a stack that shares its core may send at once, in nanoseconds of the wire: the card's ring has room for it, and does not
/// run empty while others have the core.
const TURN: u32 = 250_000;

#[derive(Clone, Copy)]
struct Options {
    ports: usize,
    len: usize,
    seconds: f64,
    slot: u32,
    entries: u32,
    gbit: f64,
    is_v6: bool,
}

impl Options {
    fn read(words: impl Iterator<Item = String>) -> io::Result<Self> {
        let (ports, len, seconds, slot, gbit) = (2, 64, 1.0, 2048, 0.0);
        let mut options = Self { ports, len, seconds, slot, entries: 0, gbit, is_v6: false };
        let mut words = words;
        while let (Some(flag), Some(value)) = (words.next(), words.next()) {
            let number: f64 = value.parse().map_err(io::Error::other)?;
            match flag.as_str() {
                "--ports" => options.ports = (number as usize).clamp(1, 64),
                "--len" => options.len = (number as usize).min(9000),
                "--seconds" => options.seconds = number,
                "--slot" => options.slot = number as u32,
                "--entries" => options.entries = number as u32,
                "--gbit" => options.gbit = number,
                "--ip" => options.is_v6 = number == 6.0,
                _ => return Err(io::Error::other(format!("there is no {flag}"))),
            }
        }
        options.len = options.len.max(shortest((options.local(), 0).into()));
        Ok(options)
    }

    fn words(self) -> Vec<String> {
        let Self { ports, len, seconds, slot, entries, gbit, is_v6 } = self;
        let ip = if is_v6 { 6 } else { 4 };
        let text = format!(
            "--ports {ports} --len {len} --seconds {seconds} --slot {slot} --entries {entries} --gbit {gbit} --ip {ip}"
        );
        text.split(' ').map(str::to_owned).collect()
    }

    fn local(self) -> IpAddr {
        if self.is_v6 { Ipv6Addr::LOCALHOST.into() } else { Ipv4Addr::LOCALHOST.into() }
    }

    fn layout(self) -> io::Result<Layout> {
        let entries = match self.entries {
            0 if self.ports > 8 => 128,
            0 => 256,
            entries => entries,
        };
        Layout::new(entries, entries, self.slot).ok_or_else(|| {
            io::Error::other("rings have 16 to 4096 positions, slots a multiple of 64 octets")
        })
    }

    fn bucket(self) -> Option<Bucket> {
        (self.gbit > 0.0).then(|| Bucket::new(self.gbit, self.len))
    }

    fn generator(self, flow: usize, from: SocketAddr, to: SocketAddr) -> io::Result<Generator> {
        let generator = Generator::new(flow as u32, from, to, self.len);
        generator.ok_or_else(|| io::Error::other("no frame has that length"))
    }

    /// A port with a tuple of its own.
    fn open(self, path: &Path, layout: Layout) -> io::Result<(Port, SocketAddr)> {
        let begun = Instant::now();
        let mut port = loop {
            match Port::open(path, layout) {
                Err(_) if begun.elapsed().as_secs() < 5 => std::thread::yield_now(),
                result => break result?,
            }
        };
        let tuple = port.register(UdpSocket::bind((self.local(), 0))?)?;
        Ok((port, (tuple.address, tuple.port).into()))
    }
}

/// Sends up to as many frames as may go.
fn send(port: &mut Port, generator: &mut Generator, most: u32) -> io::Result<u32> {
    let mut left = most;
    port.send(|slot| {
        left = left.checked_sub(1)?;
        generator.write(slot)
    })
}

/// A generator and a sink for each address: each sends to the next one.
fn stacks(addresses: &[SocketAddr], options: Options) -> io::Result<Vec<(Generator, Sink)>> {
    let count = addresses.len();
    let stack = |(n, from): (usize, &SocketAddr)| {
        let generator = options.generator(n, *from, addresses[(n + 1) % count])?;
        let before = (n + count - 1) % count;
        Ok((generator, Sink::new(before as u32, 1, *from, options.len)))
    };
    addresses.iter().enumerate().map(stack).collect()
}

/// What was received, lost and wrong.
type Result3 = [u64; 3];

fn sum<'a>(sinks: impl Iterator<Item = &'a Sink>) -> Result3 {
    sinks.fold([0; 3], |[received, lost, wrong], sink| {
        [received + sink.received, lost + sink.lost, wrong + sink.wrong]
    })
}

fn report(how: &str, options: Options, elapsed: Duration, counted: Result3, counters: Counters) {
    let [received, lost, wrong] = counted;
    let rate = received as f64 / elapsed.as_secs_f64() / 1e6;
    let Options { ports, len, slot, is_v6, .. } = options;
    let ip = if is_v6 { 6 } else { 4 };
    print!(
        "{how}: {ports} ports, IPv{ip}, {len} octets, slots of {slot}: {rate:.2} Mpps; lost {lost}, doubled or misdelivered {wrong}"
    );
    for reason in REASONS.into_iter().filter(|reason| counters.dropped(*reason) > 0) {
        print!(", dropped {} for {}", counters.dropped(reason), reason.name());
    }
    println!();
}

fn within(options: Options) -> io::Result<()> {
    let mut forwarder = Forwarder::new([0x243f_6a88_85a3_08d3, 0x1319_8a2e_0370_7344, 3]);
    let mut ends: Vec<(Sender, Receiver, Bell)> = Vec::new();
    let mut addresses = Vec::new();
    let layout = options.layout()?;
    for n in 0..options.ports {
        let memory = Memory::create(layout)?;
        let theirs = Memory::open(memory.as_fd().try_clone_to_owned()?, layout)?;
        let (ours, bell) = Bell::pair()?;
        let number = forwarder.add(memory, ours);
        let address = match options.is_v6 {
            true => Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1 + n as u16).into(),
            false => Ipv4Addr::new(10, 0, 0, 1 + n as u8).into(),
        };
        let port = 4000 + n as u16;
        let registered = forwarder.register(number, Tuple { address, protocol: 17, port });
        assert_eq!(registered, Ok(()));
        addresses.push((address, port).into());
        let (sender, receiver) = halves(theirs);
        ends.push((sender, receiver, bell));
    }
    let mut stacks = stacks(&addresses, options)?;
    let mut bucket = options.bucket();
    let begun = Instant::now();
    while begun.elapsed().as_secs_f64() < options.seconds {
        for ((generator, _), (sender, ..)) in stacks.iter_mut().zip(&mut ends) {
            let room = sender.room(BATCH).map_err(io::Error::other)?.min(BATCH);
            let n = bucket.as_mut().map_or(room, |bucket| bucket.take(room));
            for at in 0..n {
                if let Some(len) = sender.slot(at).and_then(|slot| generator.write(slot)) {
                    sender.set_len(at, len as u16);
                }
            }
            let _ = sender.publish(n);
        }
        forwarder.turn();
        for ((_, sink), (_, receiver, _)) in stacks.iter_mut().zip(&mut ends) {
            let ready = receiver.ready().map_err(io::Error::other)?;
            for at in 0..ready {
                if let Some(frame) = receiver.frame(at) {
                    sink.read(frame);
                }
            }
            receiver.release(ready);
        }
    }
    let counted = sum(stacks.iter().map(|(_, sink)| sink));
    report("within a process", options, begun.elapsed(), counted, forwarder.total());
    Ok(())
}

/// This program as another process, which ends when its standard input does.
struct Process {
    child: Child,
    output: BufReader<std::process::ChildStdout>,
}

impl Process {
    fn start(words: &[&str], options: Options) -> io::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(words).args(options.words());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let output = child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
        Ok(Self { child, output: BufReader::new(output) })
    }

    /// The words of its next line.
    fn line(&mut self) -> io::Result<Vec<String>> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        Ok(line.split_whitespace().map(str::to_owned).collect())
    }

    /// Ends it. What it has written until then are numbers.
    fn end(mut self) -> io::Result<Vec<u64>> {
        drop(self.child.stdin.take());
        let mut text = String::new();
        self.output.read_to_string(&mut text)?;
        self.child.wait()?;
        let numbers = text.split_whitespace().map(str::parse).collect::<Result<_, _>>();
        numbers.map_err(io::Error::other)
    }
}

fn path() -> PathBuf {
    std::env::temp_dir().join(format!("quicket-rates-{}", std::process::id()))
}

fn between(options: Options) -> io::Result<()> {
    let path = path();
    pin(1)?;
    let daemon = Process::start(&["daemon", &path.to_string_lossy(), "0"], options)?;
    let ports: io::Result<Vec<_>> =
        (0..options.ports).map(|_| options.open(&path, options.layout()?)).collect();
    let (mut ports, addresses): (Vec<Port>, Vec<SocketAddr>) = ports?.into_iter().unzip();
    let mut stacks = stacks(&addresses, options)?;
    let mut bucket = options.bucket();
    let begun = Instant::now();
    while begun.elapsed().as_secs_f64() < options.seconds {
        for ((generator, _), port) in stacks.iter_mut().zip(&mut ports) {
            let n = bucket.as_mut().map_or(BATCH, |bucket| bucket.take(BATCH));
            send(port, generator, n)?;
        }
        for ((_, sink), port) in stacks.iter_mut().zip(&mut ports) {
            port.receive(u32::MAX, |frame| sink.read(frame))?;
        }
    }
    let (elapsed, counted) = (begun.elapsed(), sum(stacks.iter().map(|(_, sink)| sink)));
    let counters = ports[0].counters()?;
    report("between two processes", options, elapsed, counted, counters);
    daemon.end().map(drop)
}

/// The card: a port that moves what a wire would carry.
fn card(options: Options, sends: bool) -> io::Result<()> {
    let gbit = if options.gbit > 0.0 { options.gbit } else { 10.0 };
    // Each has its turn on the core after a while: meanwhile there is room.
    let room = (CARD / options.ports as u32).next_power_of_two().max(128);
    let entries = if options.entries > 0 { options.entries } else { room };
    let options = Options { gbit, entries, ..options };
    let path = path();
    let at = path.to_string_lossy();
    pin(1)?;
    let daemon = Process::start(&["daemon", &at, "0"], options)?;
    let layout = Layout::new(CARD, CARD, options.slot).ok_or(io::ErrorKind::InvalidInput)?;
    let (mut port, address) = options.open(&path, layout)?;
    let how = if sends { "sender" } else { "receiver" };
    let mut stack = Process::start(&[how, &at, &address.to_string()], options)?;
    let others: Vec<SocketAddr> =
        stack.line()?.iter().filter_map(|address| address.parse().ok()).collect();
    let mut bucket = Bucket::new(options.gbit, options.len);
    let mut sink = Sink::new(0, options.ports, address, options.len);
    let mut generators = Vec::new();
    for (flow, to) in others.iter().enumerate() {
        generators.push(options.generator(flow, address, *to)?);
    }
    // Everybody is there, and has begun.
    let warm = Instant::now();
    let mut begun = None;
    let mut before = [0; 3];
    let mut next = 0;
    loop {
        let elapsed = warm.elapsed().as_secs_f64();
        if begun.is_none() && elapsed > 0.1 {
            begun = Some(Instant::now());
            before = sum([&sink].into_iter());
        }
        if elapsed > 0.1 + options.seconds {
            break;
        }
        if sends {
            port.receive(bucket.take(CARD), |frame| sink.read(frame))?;
        } else if let Some(generator) = generators.get_mut(next) {
            send(&mut port, generator, bucket.take(BATCH))?;
            next = (next + 1) % options.ports;
        }
    }
    let elapsed = begun.map_or(Duration::ZERO, |begun| begun.elapsed());
    let counters = port.counters()?;
    let told = stack.end()?;
    let after = match sends {
        true => sum([&sink].into_iter()),
        false => {
            // Its warm-up is in it, as its time is.
            let told = told.first_chunk().copied().unwrap_or_default();
            report("card to ports", options, warm.elapsed(), told, counters);
            return daemon.end().map(drop);
        }
    };
    let counted = std::array::from_fn(|n| after[n] - before[n]);
    report("ports to card", options, elapsed, counted, counters);
    daemon.end().map(drop)
}

/// The ports of `send` and `receive`, until the standard input ends.
fn stack(path: &str, card: &str, options: Options, sends: bool) -> io::Result<()> {
    pin(0)?;
    let card: SocketAddr = card.parse().map_err(io::Error::other)?;
    let ports: io::Result<Vec<_>> =
        (0..options.ports).map(|_| options.open(path.as_ref(), options.layout()?)).collect();
    let mut ports = ports?;
    let mut generators = Vec::new();
    let mut sinks = Vec::new();
    for (flow, (_, address)) in ports.iter().enumerate() {
        generators.push(options.generator(flow, *address, card)?);
        sinks.push(Sink::new(flow as u32, 1, *address, options.len));
        print!("{address} ");
    }
    println!();
    io::stdout().flush()?;
    let ended = ended();
    let mut bucket = Bucket::new(options.gbit, options.len).with_burst(TURN);
    let mut next = 0;
    while !ended.load(std::sync::atomic::Ordering::Relaxed) {
        let (port, _) = &mut ports[next];
        let is_done = match sends {
            true => {
                let n = bucket.take(BATCH);
                send(port, &mut generators[next], n)?;
                n < BATCH
            }
            false => {
                port.receive(u32::MAX, |frame| sinks[next].read(frame))?;
                next + 1 == options.ports
            }
        };
        if is_done {
            // The switch has this core, too.
            std::thread::yield_now();
        }
        next = (next + 1) % options.ports;
    }
    let [received, lost, wrong] = sum(sinks.iter());
    println!("{received} {lost} {wrong}");
    Ok(())
}

fn ended() -> std::sync::Arc<std::sync::atomic::AtomicBool> {
    let ended = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let set = std::sync::Arc::clone(&ended);
    std::thread::spawn(move || {
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
        set.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    ended
}

fn pin(core: usize) -> io::Result<()> {
    let mut set = rustix::thread::CpuSet::new();
    set.set(core);
    Ok(rustix::thread::sched_setaffinity(None, &set)?)
}

/// The switch, until its standard input ends.
fn daemon(path: &str, core: &str) -> io::Result<()> {
    pin(core.parse().map_err(io::Error::other)?)?;
    let daemon = quicket_packets::daemon::Daemon::bind(path.as_ref(), false)?;
    let (stop, stopped) = UnixStream::pair()?;
    std::thread::spawn(move || {
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
        drop(stop);
    });
    daemon.run(stopped.as_fd()).map(drop)
}

fn main() -> io::Result<()> {
    let mut words = std::env::args().skip(1);
    let how = words.next().unwrap_or_default();
    let mut word = || words.next().unwrap_or_default();
    match how.as_str() {
        "daemon" => daemon(&word(), &word()),
        "sender" | "receiver" => {
            let (path, card) = (word(), word());
            stack(&path, &card, Options::read(words)?, how == "sender")
        }
        "within" => within(Options::read(words)?),
        "between" => between(Options::read(words)?),
        "send" => card(Options::read(words)?, true),
        "receive" => card(Options::read(words)?, false),
        _ => Err(io::Error::other("say within, between, send or receive")),
    }
}
