//! Two network namespaces joined by a link in user space that carries whole IP packets: what
//! `link` does to datagrams, done to TCP as well.

mod device;

use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::ops::Deref;
use std::os::fd::AsFd;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;
use quicket_engine::time::Time;
use quicket_sim::rng::SimRng;
use quicket_sim::scenario::Scenario;
use quicket_wire::EcnCodepoint;

use crate::link::direction::{Burst, Direction};
use crate::link::namespace::Namespace;
use crate::netns::{End, Namespaces, NetnsError};
use device::Device;

/// The only device in each namespace besides the loopback.
const DEVICE: &str = "tun0";
/// MTU of the devices in bytes.
const MTU: u16 = 1500;
/// Packets taken from a device before others have their turn.
const BATCH: usize = 64;
/// Most bytes of packets on their way in each direction.
const MEMORY: usize = 64 << 20;
/// How long the link sleeps while nothing happens.
const NAP: Duration = Duration::from_secs(1);

/// Two network namespaces, and a device in each whose packets this process carries.
#[derive(Debug)]
pub(crate) struct TunPair {
    namespaces: Namespaces,
    left: Device,
    right: Device,
}

impl TunPair {
    /// Makes them. Nothing is carried until a link is laid.
    ///
    /// # Errors
    ///
    /// When it is not permitted; the message says so.
    pub(crate) fn new() -> Result<Self, NetnsError> {
        let namespaces = Namespaces::new()?;
        let device = |end| {
            let fail =
                |problem: String| NetnsError(format!("no device for IP packets (tun): {problem}"));
            let namespace = Namespace::open(Some(namespaces.name(end)));
            let namespace = namespace.map_err(|error| fail(error.to_string()))?;
            let device = namespace.inside(|| Device::open(DEVICE));
            let device = device.map_err(|error| fail(error.to_string()))?;
            device.map_err(|error| fail(error.to_string()))
        };
        let (left, right) = (device(End::Left)?, device(End::Right)?);
        namespaces.set_up(DEVICE, MTU)?;
        Ok(Self { namespaces, left, right })
    }

    /// Carries packets as `scenario` says, up being from right to left, until the link is dropped.
    ///
    /// # Errors
    ///
    /// When the system refuses a thread or a file.
    pub(crate) fn link(&self, scenario: &Scenario, seed: u64) -> io::Result<TunLink> {
        let (until, stop) = io::pipe()?;
        let (up, down) = scenario.channels(Time::ZERO, &SimRng::new(seed));
        let carrier = Carrier {
            left: self.left.try_clone()?,
            right: self.right.try_clone()?,
            up: Direction::new(up, 0, MEMORY),
            down: Direction::new(down, 0, MEMORY),
            start: Instant::now(),
            burst: Burst::new(),
            buffer: vec![0; usize::from(MTU)],
        };
        let thread = std::thread::Builder::new()
            .name("link".to_owned())
            .spawn(move || carrier.run(&until))?;
        Ok(TunLink { stop: Some(stop), thread: Some(thread) })
    }
}

impl Deref for TunPair {
    type Target = Namespaces;

    fn deref(&self) -> &Namespaces {
        &self.namespaces
    }
}

/// A link that carries packets until it is dropped; those on their way are lost then.
#[derive(Debug)]
pub(crate) struct TunLink {
    stop: Option<PipeWriter>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl TunLink {
    /// Ends the link.
    ///
    /// # Errors
    ///
    /// When it has ended before, for want of something of the system.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        self.stop = None;
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(result)) => result,
            _ => Err(io::Error::other("the link's thread has panicked")),
        }
    }
}

impl Drop for TunLink {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // What it has to say interests nobody any more.
            let _ = thread.join();
        }
    }
}

struct Carrier {
    left: Device,
    right: Device,
    /// From right, where clients are, to left.
    up: Direction<()>,
    down: Direction<()>,
    start: Instant,
    burst: Burst<()>,
    buffer: Vec<u8>,
}

impl Carrier {
    fn run(mut self, until: &PipeReader) -> io::Result<()> {
        // Wakes up on time, not up to 50 us later; a system without that is only less exact.
        let _ = nix::sys::prctl::set_timerslack(1);
        loop {
            let busy = self.receive()?;
            self.send()?;
            let wait = if busy { Duration::ZERO } else { self.until_next() };
            let files = [until.as_fd(), self.left.as_fd(), self.right.as_fd()];
            let mut files = files.map(|file| PollFd::new(file, PollFlags::POLLIN));
            match ppoll(&mut files, Some(TimeSpec::from_duration(wait)), None) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
            if files[0].any().unwrap_or(true) {
                return Ok(());
            }
        }
    }

    fn now(&self) -> Time {
        Time::ZERO + quicket_engine::time::Duration::from(self.start.elapsed())
    }

    fn until_next(&self) -> Duration {
        let next = [self.up.next_time(), self.down.next_time()].into_iter().flatten().min();
        next.map_or(NAP, |at| Duration::from_nanos((at - self.now()).as_nanos()))
    }

    /// Takes in what waits; true if there was anything.
    fn receive(&mut self) -> io::Result<bool> {
        let now = self.now();
        let Self { left, right, up, down, buffer, .. } = self;
        let sent = take(left, down, now, buffer)?;
        Ok(take(right, up, now, buffer)? | sent)
    }

    /// Hands on what is due.
    fn send(&mut self) -> io::Result<()> {
        let now = self.now();
        let Self { left, right, up, down, burst, .. } = self;
        give(up, left, now, burst)?;
        give(down, right, now, burst)
    }
}

fn take(
    from: &mut Device,
    direction: &mut Direction<()>,
    now: Time,
    buffer: &mut [u8],
) -> io::Result<bool> {
    for count in 0..BATCH {
        match from.read(buffer) {
            Ok(length) => direction.offer(now, (), EcnCodepoint::NotEct, &mut buffer[..length]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(count > 0),
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

fn give(
    direction: &mut Direction<()>,
    to: &mut Device,
    now: Time,
    burst: &mut Burst<()>,
) -> io::Result<()> {
    while direction.take(now, burst) {
        for packet in burst.bytes.chunks(burst.segment.max(1)) {
            match to.write(packet) {
                Ok(_) => {}
                // As a device does whose queue is full.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    direction.count_refused(1);
                }
                Err(error) => return Err(error),
            }
        }
        direction.has_left(now, burst);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// Time of a ping through the link in milliseconds; none if it is lost.
    fn ping(pair: &TunPair) -> Option<f64> {
        let mut command = Command::new("python3");
        // Without the tool ping, which is not everywhere: UDP to a closed port comes back as ICMP.
        command.args(["-c", PROBE]);
        let output = pair.inside(End::Right, &command).output().ok()?;
        String::from_utf8(output.stdout).ok()?.trim().parse().ok()
    }

    const PROBE: &str = "\
import socket, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.settimeout(0.3)
s.connect(('192.0.2.1', 9))
start = time.time()
s.send(b'x')
try:
    s.recv(1)
except ConnectionRefusedError:
    print((time.time() - start) * 1000)
except OSError:
    pass
";

    #[test]
    fn packets_are_late_and_lost_as_the_scenario_says() {
        let Some(pair) = crate::netns::unless_denied(TunPair::new()) else { return };
        assert_eq!(ping(&pair), None, "nothing is carried without a link");
        let link = pair.link(&"delay=20ms".parse().unwrap(), 1).unwrap();
        let time = ping(&pair).unwrap();
        assert!((40.0..290.0).contains(&time), "{time}");
        link.finish().unwrap();
        let link = pair.link(&"loss=100%".parse().unwrap(), 1).unwrap();
        assert_eq!(ping(&pair), None);
        drop(link);
    }
}
