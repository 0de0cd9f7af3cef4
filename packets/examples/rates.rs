//! How many frames the switch for packets moves in a second: those of a shared-memory switch, not of a network card.
//!
//! ```text
//! rates within  [--ports N] [--len OCTETS] [--seconds S] [--slot OCTETS] [--gbit RATE]
//! rates between [the same]
//! ```
//!
//! `within`: one thread has all ports and the forwarder. `between`: one process has all ports, another one the
//! switch; each has one thread. Each port sends to the next one. Every frame has a flow, a number in it, and a check
//! of both; who receives counts what is lost, doubled, and not for him.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use quicket_gue::Sum;
use quicket_packets::client::Port;
use quicket_packets::{BATCH, Bell, Counters, Forwarder, Layout, Memory, Tuple, compose};
use quicket_ring::program::{Receiver, Sender, halves};

/// Octets of Ethernet, IPv4 and UDP.
const HEADERS: usize = 42;
/// Octets of a frame's own data: its number, its flow, and a check.
const DATA: usize = 20;
/// What a frame takes of a wire beside itself: preamble, its checksum is in its length, gap.
const WIRE: usize = 20;

#[derive(Clone, Copy)]
struct Options {
    ports: usize,
    len: usize,
    seconds: f64,
    slot: u32,
    gbit: f64,
}

/// Both directions of a port, and what it sends and expects.
struct Stack {
    template: Vec<u8>,
    sum: Sum,
    flow: u32,
    next: u64,
    expected: u64,
    received: u64,
    lost: u64,
    wrong: u64,
}

impl Stack {
    fn new(flow: usize, from: SocketAddr, to: SocketAddr, len: usize) -> Self {
        let mut template = vec![0; len];
        let written = compose::udp(&mut template, from, to, &vec![0; len - HEADERS]);
        assert_eq!(written, Some(len));
        let checksum = u16::from_be_bytes([template[40], template[41]]);
        let flow = flow as u32;
        let sum = Sum::new().add_u16(!checksum);
        Self { template, sum, flow, next: 0, expected: 0, received: 0, lost: 0, wrong: 0 }
    }

    fn write(&mut self, slot: &mut [u8]) {
        let frame = &mut slot[..self.template.len()];
        frame.copy_from_slice(&self.template);
        let data: &mut [u8; DATA] = frame[HEADERS..].first_chunk_mut().unwrap();
        data[..8].copy_from_slice(&self.next.to_ne_bytes());
        data[8..12].copy_from_slice(&self.flow.to_ne_bytes());
        data[12..].copy_from_slice(&check(self.next, self.flow).to_ne_bytes());
        let checksum = match self.sum.bytes(data).checksum() {
            0 => 0xffff,
            checksum => checksum,
        };
        frame[40..HEADERS].copy_from_slice(&checksum.to_be_bytes());
        self.next += 1;
    }

    /// A frame of the stack before this one.
    fn read(&mut self, frame: &[u8], from: u32) {
        let data: &[u8; DATA] = frame[HEADERS..].first_chunk().unwrap();
        let number = u64::from_ne_bytes(*data.first_chunk().unwrap());
        let flow = u32::from_ne_bytes(*data[8..].first_chunk().unwrap());
        let is_whole = data[12..] == check(number, flow).to_ne_bytes();
        if !is_whole || flow != from || number < self.expected || frame.len() != self.template.len()
        {
            self.wrong += 1;
            return;
        }
        self.lost += number - self.expected;
        self.expected = number + 1;
        self.received += 1;
    }
}

fn check(number: u64, flow: u32) -> u64 {
    (number ^ u64::from(flow) << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// A leaky bucket at the rate of a wire.
struct Bucket {
    begun: Instant,
    ns: f64,
    used: f64,
}

impl Bucket {
    fn new(options: Options) -> Option<Self> {
        let ns = ((options.len.max(64) + WIRE) * 8) as f64 / options.gbit;
        (options.gbit > 0.0).then(|| Self { begun: Instant::now(), ns, used: 0.0 })
    }

    /// How many frames may go now. What was not used for longer than ten microseconds is lost.
    fn take(&mut self, most: u32) -> u32 {
        let now = self.begun.elapsed().as_nanos() as f64;
        self.used = self.used.max(now - 10_000.0);
        let n = (((now - self.used) / self.ns) as u32).min(most);
        self.used += f64::from(n) * self.ns;
        n
    }
}

fn report(stacks: &[Stack], elapsed: Duration, counters: Counters, options: Options, how: &str) {
    let sum = |of: fn(&Stack) -> u64| stacks.iter().map(of).sum::<u64>();
    let rate = sum(|stack| stack.received) as f64 / elapsed.as_secs_f64() / 1e6;
    println!(
        "{how} {} ports, {} octets, slots of {}: {rate:.2} Mpps; lost {}, doubled or misdelivered {}; switch: {counters:?}",
        options.ports,
        options.len,
        options.slot,
        sum(|stack| stack.lost),
        sum(|stack| stack.wrong),
    );
}

fn stacks(addresses: &[SocketAddr], len: usize) -> Vec<Stack> {
    let next = |n: usize| addresses[(n + 1) % addresses.len()];
    addresses.iter().enumerate().map(|(n, from)| Stack::new(n, *from, next(n), len)).collect()
}

fn layout(options: Options) -> Layout {
    let entries = if options.ports > 8 { 128 } else { 256 };
    Layout::new(entries, entries, options.slot).expect("a slot is a multiple of 64 octets")
}

fn within(options: Options) -> io::Result<()> {
    let mut forwarder = Forwarder::new([0x243f_6a88_85a3_08d3, 0x1319_8a2e_0370_7344, 3]);
    let mut ends: Vec<(Sender, Receiver, Bell)> = Vec::new();
    let mut addresses = Vec::new();
    for n in 0..options.ports {
        let memory = Memory::create(layout(options))?;
        let theirs = Memory::open(memory.as_fd().try_clone_to_owned()?, layout(options))?;
        let (ours, bell) = Bell::pair()?;
        let number = forwarder.add(memory, ours);
        let (address, port) = (Ipv4Addr::new(10, 0, 0, 1 + n as u8).into(), 4000 + n as u16);
        let registered = forwarder.register(number, Tuple { address, protocol: 17, port });
        assert_eq!(registered, Ok(()));
        addresses.push((address, port).into());
        let (sender, receiver) = halves(theirs);
        ends.push((sender, receiver, bell));
    }
    let mut stacks = stacks(&addresses, options.len);
    let mut bucket = Bucket::new(options);
    let begun = Instant::now();
    while begun.elapsed().as_secs_f64() < options.seconds {
        for (stack, (sender, ..)) in stacks.iter_mut().zip(&mut ends) {
            let room = sender.room(BATCH).map_err(io::Error::other)?.min(BATCH);
            let n = bucket.as_mut().map_or(room, |bucket| bucket.take(room));
            for at in 0..n {
                if let Some(slot) = sender.slot(at) {
                    stack.write(slot);
                    sender.set_len(at, options.len as u16);
                }
            }
            let _ = sender.publish(n);
        }
        forwarder.turn();
        for (n, (_, receiver, _)) in ends.iter_mut().enumerate() {
            let ready = receiver.ready().map_err(io::Error::other)?;
            let from = (n + options.ports - 1) % options.ports;
            for at in 0..ready {
                if let Some(frame) = receiver.frame(at) {
                    stacks[n].read(frame, from as u32);
                }
            }
            receiver.release(ready);
        }
    }
    report(&stacks, begun.elapsed(), forwarder.total(), options, "within a process,");
    Ok(())
}

fn between(options: Options) -> io::Result<()> {
    let name = format!("quicket-rates-{}", std::process::id());
    let path = std::env::temp_dir().join(name);
    let program = std::env::current_exe()?;
    let mut daemon = Command::new(program);
    let mut daemon = daemon.arg("daemon").arg(&path).stdin(Stdio::piped()).spawn()?;
    let begun = Instant::now();
    let mut first = loop {
        match Port::open(&path, layout(options)) {
            Err(_) if begun.elapsed().as_secs() < 5 => std::thread::yield_now(),
            result => break Some(result?),
        }
    };
    let mut ports = Vec::new();
    let mut addresses = Vec::new();
    for _ in 0..options.ports {
        let mut port = match first.take() {
            Some(port) => port,
            None => Port::open(&path, layout(options))?,
        };
        let tuple = port.register(UdpSocket::bind("127.0.0.1:0")?)?;
        addresses.push((tuple.address, tuple.port).into());
        ports.push(port);
    }
    let mut stacks = stacks(&addresses, options.len);
    let mut bucket = Bucket::new(options);
    let begun = Instant::now();
    while begun.elapsed().as_secs_f64() < options.seconds {
        for (stack, port) in stacks.iter_mut().zip(&mut ports) {
            let mut left = bucket.as_mut().map_or(BATCH, |bucket| bucket.take(BATCH));
            port.send(|slot| {
                left = left.checked_sub(1)?;
                stack.write(slot);
                Some(options.len)
            })?;
        }
        for (n, port) in ports.iter_mut().enumerate() {
            let from = ((n + options.ports - 1) % options.ports) as u32;
            port.receive(u32::MAX, |frame| stacks[n].read(frame, from))?;
        }
    }
    let elapsed = begun.elapsed();
    let mut total = Counters::default();
    for port in &mut ports {
        let counters = port.counters()?;
        total.sent += counters.sent;
        total.received += counters.received;
    }
    report(&stacks, elapsed, total, options, "between two processes,");
    drop(daemon.stdin.take());
    daemon.wait().map(drop)
}

/// The switch, until its standard input ends.
fn daemon(path: &str) -> io::Result<()> {
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
    if how == "daemon" {
        return daemon(&words.next().unwrap_or_default());
    }
    let mut options = Options { ports: 2, len: 64, seconds: 2.0, slot: 2048, gbit: 0.0 };
    while let (Some(flag), Some(value)) = (words.next(), words.next()) {
        let number: f64 = value.parse().map_err(io::Error::other)?;
        match flag.as_str() {
            "--ports" => options.ports = (number as usize).clamp(1, 64),
            "--len" => options.len = (number as usize).clamp(HEADERS + DATA, 9000),
            "--seconds" => options.seconds = number,
            "--slot" => options.slot = number as u32,
            "--gbit" => options.gbit = number,
            _ => return Err(io::Error::other(format!("there is no {flag}"))),
        }
    }
    match how.as_str() {
        "within" => within(options),
        "between" => between(options),
        _ => Err(io::Error::other("say within or between")),
    }
}
