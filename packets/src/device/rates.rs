//! Rates over a pair of virtual devices, bare and through the switch: for who compares them, on a quiet machine with two processors. It
//! takes root.
//!
//! `cargo test --release -p quicket-packets --lib rates -- --ignored --nocapture --test-threads 1` prints them, and so does
//! `quicket lab bench --row switch`.

use std::hint::black_box;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use quicket_bpf::extended::{Assembler, Operation, Register};
use quicket_bpf::{RedirectProgram, TupleKey, TupleProgram, Tuples, XdpProgram};
use quicket_ring::Layout;
use rustix::net::xdp::XdpDesc;
use rustix::net::{AddressFamily, SocketType};
use rustix::thread::{CpuSet, UnshareFlags, sched_setaffinity};

use super::Mode;
use super::netlink::{Link, Netlink};
use super::xsk::Socket;
use crate::client::Port;
use crate::compose;
use crate::control::Control;
use crate::daemon::Daemon;

const HERE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const THERE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
const PORT: u16 = 9;
/// Octets of a frame without its check sequence: 64 with it.
const LEN: usize = 60;
const UDP: u8 = 17;
/// How long frames have come when the clock starts.
const WARM_UP: Duration = Duration::from_millis(300);
/// How long nothing more is sent and nothing more comes once all has come.
const QUIET: Duration = Duration::from_millis(20);
/// How often that is looked for.
const LOOKS: u32 = 250;

/// Which way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Course {
    /// By a bare socket of AF_XDP.
    OutBare,
    /// From a port, by the switch and the device.
    Out,
    /// To a bare socket of AF_XDP, by a program that hands it all frames; they are read in place and given back.
    InBare,
    /// By the device and the switch, to a port.
    In,
}

/// Frames that went that way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moved {
    /// How many came.
    pub frames: u64,
    /// How many were sent, which is what the first ring has taken, and did not come.
    pub lost: u64,
    /// In which time.
    pub time: Duration,
}

/// A pair of devices in a network namespace of the thread that has made it.
#[derive(Debug)]
pub struct Wire {
    here: Link,
    there: Link,
}

impl Wire {
    /// Makes one: this thread has another network namespace from now on, which goes with it.
    ///
    /// # Errors
    ///
    /// When this process may not do that, or the program `ip` is missing.
    pub fn new() -> io::Result<Self> {
        // SAFETY: only the network namespace of this thread.
        #[allow(unsafe_code, reason = "unshare is unsafe for other flags than this")]
        unsafe {
            rustix::thread::unshare_unsafe(UnshareFlags::NEWNET)?;
        }
        ip("link add va address 02:00:00:00:00:01 type veth peer name vb")?;
        ip("link set vb address 02:00:00:00:00:02")?;
        ip(&format!("addr add {HERE}/24 dev va"))?;
        ip(&format!("neigh add {THERE} lladdr 02:00:00:00:00:02 dev va"))?;
        for device in ["lo", "va", "vb"] {
            ip(&format!("link set {device} up"))?;
        }
        let mut tables = Netlink::open()?;
        Ok(Self { here: tables.link("va")?, there: tables.link("vb")? })
    }

    /// Moves frames of 64 octets for some time, one way. One processor is that of the switch, or of the bare socket; the other one
    /// is that of the port, or of the other end.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn measure(&self, course: Course, time: Duration) -> io::Result<Moved> {
        match course {
            Course::OutBare => self.out_bare(time),
            Course::Out => self.out(time),
            Course::InBare => self.in_bare(time),
            Course::In => self.come_in(time),
        }
    }

    fn out_bare(&self, time: Duration) -> io::Result<Moved> {
        let _sink = sink(self.there.index)?;
        let frame = frame((HERE, 7).into(), (THERE, PORT).into(), [1, 2])?;
        let source = Source::default();
        beside(
            &source,
            || blast(self.here.index, 1, &frame, &source),
            || source.measure(time, self.at_sink()?),
        )
    }

    fn out(&self, time: Duration) -> io::Result<Moved> {
        let _sink = sink(self.there.index)?;
        with_switch(|port, from| {
            let frame = frame(from, (THERE, PORT).into(), [0, 0])?;
            let source = Source::default();
            beside(
                &source,
                || pour(port, &frame, &source),
                || source.measure(time, self.at_sink()?),
            )
        })
    }

    /// What has come by the other end, where [`sink`] drops it.
    fn at_sink(&self) -> io::Result<impl FnMut() -> io::Result<u64>> {
        let mut tables = Netlink::open()?;
        Ok(move || tables.received(&self.there.name))
    }

    fn in_bare(&self, time: Duration) -> io::Result<Moved> {
        let mut socket = Socket::bind(self.here.index, 0, 1522, true)?;
        let program = RedirectProgram::new().map_err(io::Error::other)?;
        program.set_socket(0, socket.as_fd())?;
        let _link = program.program().attach(self.here.index, quicket_bpf::Mode::Native)?;
        let (came, source) = (AtomicU64::new(0), Source::default());
        let take = || {
            pin(1)?;
            while !source.is_over() {
                came.fetch_add(take_bare(&mut socket)?.into(), Ordering::Relaxed);
            }
            Ok(())
        };
        beside(&source, take, || self.generate((HERE, 7).into(), time, &came))
    }

    fn come_in(&self, time: Duration) -> io::Result<Moved> {
        with_switch(|port, to| {
            let (came, source) = (AtomicU64::new(0), Source::default());
            let take = || {
                pin(1)?;
                while !source.is_over() {
                    port.wait(Some(Duration::from_millis(10)))?;
                    let n = port.receive(u32::MAX, |_| ())?;
                    came.fetch_add(n.into(), Ordering::Relaxed);
                }
                Ok(())
            };
            beside(&source, take, || self.generate(to, time, &came))
        })
    }

    /// Sends from the other end, and counts what comes meanwhile.
    fn generate(&self, to: SocketAddr, time: Duration, came: &AtomicU64) -> io::Result<Moved> {
        let frame = frame((THERE, PORT).into(), to, [2, 1])?;
        let source = Source::default();
        beside(
            &source,
            || blast(self.there.index, 0, &frame, &source),
            || source.measure(time, || Ok(came.load(Ordering::Relaxed))),
        )
    }
}

/// Where frames come from, for who measures.
#[derive(Debug, Default)]
struct Source {
    sent: AtomicU64,
    is_paused: AtomicBool,
    is_over: AtomicBool,
}

impl Source {
    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    fn is_paused(&self) -> bool {
        self.is_paused.load(Ordering::Relaxed)
    }

    fn pause(&self, is_paused: bool) {
        self.is_paused.store(is_paused, Ordering::Relaxed);
    }

    /// Notes that frames were sent.
    fn note(&self, n: u64) {
        self.sent.fetch_add(n, Ordering::Relaxed);
    }

    /// What was sent in some time, after a moment, and what came of it: nothing is on its way when that begins, nor when it is counted.
    fn measure(
        &self,
        time: Duration,
        mut came: impl FnMut() -> io::Result<u64>,
    ) -> io::Result<Moved> {
        std::thread::sleep(WARM_UP);
        self.pause(true);
        let before = self.settle(&mut came)?;
        self.pause(false);
        let begun = Instant::now();
        std::thread::sleep(time);
        self.pause(true);
        let time = begun.elapsed();
        let after = self.settle(&mut came)?;
        let [sent, frames] = [after[0] - before[0], after[1].saturating_sub(before[1])];
        Ok(Moved { frames, lost: sent.saturating_sub(frames), time })
    }

    /// Waits until nothing more is sent, and nothing more comes. Returns how much that is.
    fn settle(&self, came: &mut impl FnMut() -> io::Result<u64>) -> io::Result<[u64; 2]> {
        let mut now = [self.sent.load(Ordering::Relaxed), came()?];
        for _ in 0..LOOKS {
            std::thread::sleep(QUIET);
            let before = now;
            now = [self.sent.load(Ordering::Relaxed), came()?];
            if now == before {
                return Ok(now);
            }
        }
        Err(io::Error::other("frames still come though nobody sends any"))
    }
}

/// Nanoseconds that the program of a device takes for a frame, the fewest of some runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Looked {
    /// For one that goes to a port.
    pub to_port: u32,
    /// For one that goes to the system.
    pub to_system: u32,
}

/// Has the kernel run that program (BPF_PROG_RUN), with so many tuples in its table, for frames to an address.
///
/// # Errors
///
/// When the kernel has no such program, or this process may not load it.
pub fn program(to: SocketAddr, tuples: u32) -> io::Result<Looked> {
    const RUNS: usize = 7;
    const FRAMES: u32 = 200_000;
    pin(1)?;
    let socket = rustix::net::socket(AddressFamily::XDP, SocketType::RAW, None)?;
    let mut slot = vec![0; 2048];
    let len = compose::udp(&mut slot, SocketAddr::new(to.ip(), 10), to, &[7; 18]);
    let packet = len.and_then(|len| slot.get(..len)).ok_or(io::ErrorKind::InvalidInput)?;
    let table = Arc::new(Tuples::new(crate::registry::MAX_TUPLES as u32)?);
    for other in 1..tuples {
        let address = Ipv4Addr::from_bits(0x0a00_0000 + other / 1000);
        table.add(&TupleKey::new(address.into(), UDP, (other % 1000) as u16))?;
    }
    let program = TupleProgram::new([0; 6], &table).map_err(io::Error::other)?;
    program.set_socket(0, socket.as_fd())?;
    let time = || {
        let mut fewest = u32::MAX;
        for _ in 0..RUNS {
            fewest = fewest.min(program.program().run(packet, FRAMES)?.nanoseconds);
        }
        io::Result::Ok(fewest)
    };
    let to_system = time()?;
    table.add(&TupleKey::new(to.ip(), UDP, to.port()))?;
    Ok(Looked { to_port: time()?, to_system })
}

fn ip(words: &str) -> io::Result<()> {
    let output = Command::new("ip").args(words.split_whitespace()).output()?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(format!("ip {words}: {}", said.trim())))
}

fn pin(processor: usize) -> io::Result<()> {
    let mut set = CpuSet::new();
    set.set(processor);
    Ok(sched_setaffinity(None, &set)?)
}

/// Drops all that comes by a device.
fn sink(device: u32) -> io::Result<quicket_bpf::Link> {
    let mut program = Assembler::default();
    program.word(Operation::Move, Register::R0, 1);
    program.exit();
    let program = program.finish().ok_or(io::ErrorKind::InvalidInput)?;
    let program = XdpProgram::load(&program).map_err(io::Error::other)?;
    program.attach(device, quicket_bpf::Mode::Native)
}

/// A frame with its checksum.
fn frame(from: SocketAddr, to: SocketAddr, [source, destination]: [u8; 2]) -> io::Result<Vec<u8>> {
    let mut slot = vec![0; 2048];
    let len = compose::udp(&mut slot, from, to, &[7; LEN - 42]);
    slot.truncate(len.filter(|len| *len == LEN).ok_or(io::ErrorKind::InvalidInput)?);
    slot[..6].copy_from_slice(&[2, 0, 0, 0, 0, destination]);
    slot[6..12].copy_from_slice(&[2, 0, 0, 0, 0, source]);
    Ok(slot)
}

/// Sends by a bare socket as fast as it can until it is told to stop.
fn blast(device: u32, processor: usize, frame: &[u8], source: &Source) -> io::Result<()> {
    pin(processor)?;
    let mut socket = Socket::bind(device, 0, 1522, true)?;
    while !source.is_over() {
        let mut n = 0;
        while n < 64
            && !source.is_paused()
            && socket.send([frame]).map_err(|_| io::ErrorKind::InvalidData)?
        {
            n += 1;
        }
        socket.flush()?;
        source.note(n);
    }
    Ok(())
}

/// Takes what has come, 64 frames at most, and gives it back. The headers of Ethernet are read where the frames lie; nothing else is.
fn take_bare(socket: &mut Socket) -> io::Result<u32> {
    let lie = |_| io::Error::from(io::ErrorKind::InvalidData);
    let n = socket.ready().map_err(lie)?.min(64);
    for at in 0..n {
        let (frame, _) = socket.get(at);
        let mut header = [0; 14];
        socket.load(XdpDesc { len: header.len() as u32, ..frame }, &mut header).map_err(lie)?;
        black_box(header);
    }
    if n > 0 {
        socket.release(n).map_err(lie)?;
    }
    Ok(n)
}

/// Sends from a port as fast as the switch takes it.
fn pour(port: &mut Port, frame: &[u8], source: &Source) -> io::Result<()> {
    pin(0)?;
    while !source.is_over() {
        let mut left = if source.is_paused() { 0 } else { 256 };
        let n = port.send(|slot| {
            left -= 1;
            slot[..frame.len()].copy_from_slice(frame);
            (left >= 0).then_some(frame.len())
        })?;
        source.note(n.into());
        if n == 0 {
            std::hint::spin_loop();
        }
    }
    Ok(())
}

/// Does something on another thread while something else is measured, which says then that it is over.
fn beside<T>(
    source: &Source,
    other: impl FnOnce() -> io::Result<()> + Send,
    measured: impl FnOnce() -> io::Result<T>,
) -> io::Result<T> {
    std::thread::scope(|scope| {
        let other = scope.spawn(other);
        let measured = measured();
        source.is_over.store(true, Ordering::Relaxed);
        let ended = other.join();
        ended.unwrap_or_else(|_| Err(io::Error::other("a thread has panicked")))?;
        measured
    })
}

/// A switch in this process, on a processor of its own, with the device attached.
fn with_switch<T>(what: impl FnOnce(&mut Port, SocketAddr) -> io::Result<T>) -> io::Result<T> {
    let path: PathBuf = std::env::temp_dir().join(format!("quicket-rates-{}", std::process::id()));
    let daemon = Daemon::bind(&path, false)?;
    let (stop, stopped) = UnixStream::pair()?;
    std::thread::scope(|scope| {
        let switch = scope.spawn(move || {
            pin(1)?;
            daemon.run(stopped.as_fd()).map(drop)
        });
        let result = (|| {
            let mut control = Control::connect(&path)?;
            control.attach("va", Mode::Best)?;
            let layout = Layout::new(1024, 1024, 2048).ok_or(io::ErrorKind::InvalidInput)?;
            let mut port = Port::open(&path, layout)?;
            let tuple = port.register(UdpSocket::bind((HERE, 0))?)?;
            what(&mut port, (tuple.address, tuple.port).into())
        })();
        drop(stop);
        let ended = switch.join();
        ended.unwrap_or_else(|_| Err(io::Error::other("the switch has panicked")))?;
        result
    })
}

#[cfg(test)]
#[path = "rates_tests.rs"]
mod tests;
