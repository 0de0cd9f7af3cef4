//! Rates over a pair of virtual devices, bare and through the switch. They take root, a quiet machine with two processors,
//! and are printed:
//!
//! `cargo test --release -p quicket-packets --lib rates -- --ignored --nocapture --test-threads 1`

use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use quicket_bpf::extended::{Assembler, Operation, Register};
use quicket_bpf::{TupleKey, TupleProgram, Tuples, XdpProgram};
use quicket_ring::Layout;
use rustix::net::{AddressFamily, SocketType};
use rustix::thread::{CpuSet, UnshareFlags, sched_setaffinity};

use super::netlink::Netlink;
use super::xsk::Socket;
use super::{Device, Mode};
use crate::batch::Batch;
use crate::client::Port;
use crate::compose;
use crate::control::Control;
use crate::daemon::Daemon;

const TIME: Duration = Duration::from_secs(3);
const ROUNDS: usize = 5;
const HERE: &str = "192.0.2.1";
const THERE: &str = "192.0.2.2:9";

fn ip(words: &str) {
    let status = Command::new("ip").args(words.split_whitespace()).status().unwrap();
    assert!(status.success(), "ip {words}");
}

fn pin(processor: usize) {
    let mut set = CpuSet::new();
    set.set(processor);
    sched_setaffinity(None, &set).unwrap();
}

/// A pair of devices in a namespace of this thread's own, both with a program: one that drops, or none yet.
fn devices() -> [super::netlink::Link; 2] {
    // SAFETY: only the network namespace of this thread.
    #[allow(unsafe_code, reason = "unshare is unsafe for other flags than this")]
    unsafe {
        rustix::thread::unshare_unsafe(UnshareFlags::NEWNET).unwrap();
    }
    ip("link add va address 02:00:00:00:00:01 type veth peer name vb");
    ip("link set vb address 02:00:00:00:00:02");
    ip(&format!("addr add {HERE}/24 dev va"));
    ip("neigh add 192.0.2.2 lladdr 02:00:00:00:00:02 dev va");
    for device in ["lo", "va", "vb"] {
        ip(&format!("link set {device} up"));
    }
    let mut tables = Netlink::open().unwrap();
    ["va", "vb"].map(|name| tables.link(name).unwrap())
}

/// Drops all that comes by a device.
fn sink(device: u32) -> quicket_bpf::Link {
    let mut program = Assembler::default();
    program.word(Operation::Move, Register::R0, 1);
    program.exit();
    let program = XdpProgram::load(&program.finish().unwrap()).unwrap();
    program.attach(device, quicket_bpf::Mode::Native).unwrap()
}

/// A frame of 64 octets with its checksum.
fn frame(from: SocketAddr, to: SocketAddr, [source, destination]: [u8; 2]) -> Vec<u8> {
    let mut slot = vec![0; 2048];
    let len = compose::udp(&mut slot, from, to, &[7; 18]).unwrap();
    slot.truncate(len);
    assert_eq!(len, 60);
    slot[..6].copy_from_slice(&[2, 0, 0, 0, 0, destination]);
    slot[6..12].copy_from_slice(&[2, 0, 0, 0, 0, source]);
    slot
}

/// Sends as fast as it can until it is told to stop.
fn blast(socket: &mut Socket, frame: &[u8], is_over: &AtomicBool, sent: &AtomicU64) {
    while !is_over.load(Ordering::Relaxed) {
        let mut n = 0;
        while n < 64 && socket.send(frame).unwrap() {
            n += 1;
        }
        socket.flush().unwrap();
        sent.fetch_add(n, Ordering::Relaxed);
    }
}

/// What is counted in a second, in millions, after a moment.
fn rate(mut count: impl FnMut() -> u64) -> f64 {
    std::thread::sleep(Duration::from_millis(300));
    let (begun, first) = (Instant::now(), count());
    std::thread::sleep(TIME);
    (count() - first) as f64 / begun.elapsed().as_secs_f64() / 1e6
}

/// A switch in this process, on a processor of its own, with the device attached.
fn with_switch<T>(mode: Mode, what: impl FnOnce(&mut Control, &mut Port, SocketAddr) -> T) -> T {
    let path = std::env::temp_dir().join(format!("quicket-rates-{}", std::process::id()));
    let daemon = Daemon::bind(&path, false).unwrap();
    let (stop, stopped) = UnixStream::pair().unwrap();
    let thread = std::thread::spawn(move || {
        pin(1);
        daemon.run(stopped.as_fd()).unwrap()
    });
    let mut control = Control::connect(&path).unwrap();
    control.attach("va", mode).unwrap();
    let mut port = Port::open(&path, Layout::new(1024, 1024, 2048).unwrap()).unwrap();
    let tuple = port.register(UdpSocket::bind((HERE, 0)).unwrap()).unwrap();
    let result = what(&mut control, &mut port, (tuple.address, tuple.port).into());
    drop((stop, port));
    thread.join().unwrap();
    result
}

/// Rounds of a measurement, bare and through the switch in turns.
#[derive(Default)]
struct Rounds([Vec<f64>; 3]);

impl Rounds {
    fn add(&mut self, what: &str, bare: f64, switch: f64) {
        println!("{}", line(what, [bare, switch, switch / bare]));
        let all = self.0.iter_mut().zip([bare, switch, switch / bare]);
        all.for_each(|(rounds, value)| rounds.push(value));
    }

    fn end(mut self, what: &str) {
        let medians = std::array::from_fn(|n| median(&mut self.0[n]));
        println!("{}; 0.9 is the aim", line(&format!("{what}, medians of {ROUNDS}"), medians));
    }
}

fn line(what: &str, [bare, switch, share]: [f64; 3]) -> String {
    format!("{what}: bare {bare:.3}, switch {switch:.3} million a second, {share:.2} of it")
}

/// The one in the middle; of two, the mean.
fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    let (low, high) = (values[(values.len() - 1) / 2], values[values.len() / 2]);
    f64::midpoint(low, high)
}

#[test]
fn a_round_is_told_and_the_median_is_in_the_middle() {
    assert_eq!(median(&mut [3.0, 1.0, 2.0]), 2.0);
    assert_eq!(median(&mut [4.0, 1.0, 2.0, 3.0]), 2.5);
    let expected = "out: bare 2.000, switch 1.900 million a second, 0.95 of it";
    assert_eq!(line("out", [2.0, 1.9, 0.95]), expected);
}

#[test]
#[ignore = "it measures"]
fn out() {
    let [va, vb] = devices();
    let _sink = sink(vb.index);
    let there: SocketAddr = THERE.parse().unwrap();
    let mut rounds = Rounds::default();
    for _ in 0..ROUNDS {
        let sent = AtomicU64::new(0);
        let is_over = AtomicBool::new(false);
        let frame = frame((HERE.parse::<std::net::IpAddr>().unwrap(), 7).into(), there, [1, 2]);
        let bare = std::thread::scope(|scope| {
            scope.spawn(|| {
                pin(1);
                let mut socket = Socket::bind(va.index, 0, 1522, true).unwrap();
                blast(&mut socket, &frame, &is_over, &sent);
            });
            let bare = rate(|| sent.load(Ordering::Relaxed));
            is_over.store(true, Ordering::Relaxed);
            bare
        });
        let switch = with_switch(Mode::Best, |control, port, from| {
            let template = super::rates::frame(from, there, [0, 0]);
            let is_over = AtomicBool::new(false);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    pin(0);
                    while !is_over.load(Ordering::Relaxed) {
                        let mut left = 256;
                        let n = port.send(|slot| {
                            left -= 1;
                            slot[..60].copy_from_slice(&template);
                            (left >= 0).then_some(60)
                        });
                        if n.unwrap() == 0 {
                            std::hint::spin_loop();
                        }
                    }
                });
                let rate = rate(|| control.devices().unwrap()[0].counters.sent);
                is_over.store(true, Ordering::Relaxed);
                rate
            })
        });
        rounds.add("out, 64 octets", bare, switch);
    }
    rounds.end("out, 64 octets");
}

#[test]
#[ignore = "it measures"]
fn come_in() {
    let [_, vb] = devices();
    let from: SocketAddr = THERE.parse().unwrap();
    let mut rounds = Rounds::default();
    for _ in 0..ROUNDS {
        let tuples = Arc::new(Tuples::new(16).unwrap());
        let to: SocketAddr = (HERE.parse::<std::net::IpAddr>().unwrap(), 7).into();
        tuples.add(&TupleKey::new(to.ip(), 17, to.port())).unwrap();
        let generate = |to: SocketAddr, count: &mut dyn FnMut() -> u64| {
            let (sent, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
            let frame = frame(from, to, [2, 1]);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    pin(0);
                    let mut socket = Socket::bind(vb.index, 0, 1522, true).unwrap();
                    blast(&mut socket, &frame, &is_over, &sent);
                });
                let rate = rate(count);
                is_over.store(true, Ordering::Relaxed);
                rate
            })
        };
        let (count, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
        let bare = std::thread::scope(|scope| {
            let mut device = Device::attach("va", Mode::Best, &tuples).unwrap();
            scope.spawn(|| {
                pin(1);
                let mut batch = Batch::new();
                while !is_over.load(Ordering::Relaxed) {
                    let n = device.ready(0).unwrap().min(64);
                    let mut at = 0;
                    while at < n {
                        at = device.fill(0, (at, n), &mut batch).unwrap();
                    }
                    device.release(0, n).unwrap();
                    count.fetch_add(n.into(), Ordering::Relaxed);
                }
                drop(device);
            });
            let bare = generate(to, &mut || count.load(Ordering::Relaxed));
            is_over.store(true, Ordering::Relaxed);
            bare
        });
        let switch = with_switch(Mode::Best, |_, port, to| {
            let (count, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    pin(1);
                    while !is_over.load(Ordering::Relaxed) {
                        port.wait(Some(Duration::from_millis(10))).unwrap();
                        let n = port.receive(u32::MAX, |_| ()).unwrap();
                        count.fetch_add(n.into(), Ordering::Relaxed);
                    }
                });
                let rate = generate(to, &mut || count.load(Ordering::Relaxed));
                is_over.store(true, Ordering::Relaxed);
                rate
            })
        });
        rounds.add("in, 64 octets", bare, switch);
    }
    rounds.end("in, 64 octets");
}

#[test]
#[ignore = "it measures"]
fn program() {
    let family = AddressFamily::XDP;
    let socket = rustix::net::socket(family, SocketType::RAW, None).unwrap();
    pin(1);
    for (version, to) in [("IPv4", "192.0.2.1:9"), ("IPv6", "[2001:db8::1]:9")] {
        let to: SocketAddr = to.parse().unwrap();
        let from = SocketAddr::new(to.ip(), 10);
        let mut slot = vec![0; 2048];
        let len = compose::udp(&mut slot, from, to, &[7; 18]).unwrap();
        for others in [1, 1_000, 100_000_u32] {
            let tuples = Arc::new(Tuples::new(crate::registry::MAX_TUPLES as u32).unwrap());
            for other in 1..others {
                let address = std::net::Ipv4Addr::from_bits(0x0a00_0000 + other / 1000);
                let port = (other % 1000) as u16;
                tuples.add(&TupleKey::new(address.into(), 17, port)).unwrap();
            }
            let program = TupleProgram::new([0; 6], &tuples).unwrap();
            program.set_socket(0, socket.as_fd()).unwrap();
            let time = || {
                let runs = (0..7).map(|_| program.program().run(&slot[..len], 1_000_000).unwrap());
                runs.map(|run| run.nanoseconds).min().unwrap()
            };
            let system = time();
            tuples.add(&TupleKey::new(to.ip(), 17, to.port())).unwrap();
            let handed = time();
            println!(
                "{version}, {others} tuples: {handed} ns to a socket, {system} ns to the system"
            );
        }
    }
}
