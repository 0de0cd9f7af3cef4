//! How much a link carries on this machine, and how exactly.

use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags};
use quicket_wire::EcnCodepoint;

use super::socket::{Buffers, Socket};
use super::{LinkError, Options, Report, RunningLink};

/// How long to send unless told otherwise.
pub(super) const DURATION: Duration = Duration::from_secs(5);
/// Bytes of each datagram: what Ethernet carries over IPv4.
const LENGTH: usize = 1472;
/// Datagrams that are sent at once, as a QUIC sender does that paces itself.
const BURST: usize = 10;
/// How long after the last datagram the sink waits for another, in milliseconds.
const SILENCE_MS: u16 = 500;

/// What to send.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    /// Bits per second of UDP payload.
    pub(super) rate: u64,
    pub(super) duration: Duration,
}

/// What came of it.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) link: Report,
    sent: u64,
    received: u64,
    elapsed: Duration,
}

impl Outcome {
    /// In a few lines.
    pub(super) fn text(&self) -> String {
        let seconds = self.elapsed.as_secs_f64().max(f64::MIN_POSITIVE);
        let gbit = |count: u64| count as f64 * LENGTH as f64 * 8.0 / seconds / 1e9;
        let mut text = String::new();
        // Writing to a String does not fail.
        let _ = writeln!(
            text,
            "sent {:.3} Gbit/s in datagrams of {LENGTH} bytes, received {:.3} Gbit/s; {} of {} \
             datagrams did not arrive",
            gbit(self.sent),
            gbit(self.received),
            self.sent.saturating_sub(self.received),
            self.sent
        );
        let _ = writeln!(
            text,
            "the link used {:.0} % of one core",
            self.link.cpu_seconds / seconds * 100.0
        );
        text
    }
}

/// An address that stands for the sink, which has none yet.
pub(super) const fn anywhere() -> SocketAddr {
    SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0)
}

/// Lays a link to a sink and sends a load through it.
pub(super) fn run(options: &Options, load: Load) -> Result<Outcome, LinkError> {
    let bind = || Socket::bind(anywhere());
    let fail = |error| LinkError::system("cannot make a socket", error);
    let (source, sink) = (bind().map_err(fail)?, bind().map_err(fail)?);
    let options = Options { to: sink.local(), ..options.clone() };
    let link = RunningLink::start(&options)?;
    let sending = AtomicBool::new(true);
    let (sent, elapsed, received) = std::thread::scope(|scope| {
        let counting = scope.spawn(|| count(&sink, &sending));
        let started = Instant::now();
        let sent = send(&source, link.address(), load);
        let elapsed = started.elapsed();
        sending.store(false, Ordering::Relaxed);
        (sent, elapsed, counting.join())
    });
    let received = received.map_err(|_| LinkError::new("the sink's thread has panicked"))?;
    let received = received.map_err(|error| LinkError::system("the sink cannot receive", error))?;
    Ok(Outcome { link: link.finish()?, sent, received, elapsed })
}

/// Sends at the rate; returns how many datagrams.
fn send(source: &Socket, to: SocketAddr, load: Load) -> u64 {
    let bytes = vec![0x55; LENGTH * BURST];
    let bits = (bytes.len() * 8) as f64;
    let pause = Duration::from_secs_f64(bits / load.rate as f64);
    let start = Instant::now();
    let mut sent = 0;
    let mut due = Duration::ZERO;
    while due < load.duration {
        if let Some(wait) = due.checked_sub(start.elapsed()) {
            std::thread::sleep(wait);
        }
        let refused = source.send(to, EcnCodepoint::Ect0, LENGTH, &bytes);
        sent += BURST as u64 - refused;
        due += pause;
    }
    sent
}

/// Counts what arrives until nothing does after the last was sent.
fn count(sink: &Socket, sending: &AtomicBool) -> std::io::Result<u64> {
    let mut buffers = Buffers::new();
    let mut received = 0;
    loop {
        let mut ready = [PollFd::new(sink.as_fd(), PollFlags::POLLIN)];
        let last = !sending.load(Ordering::Relaxed);
        if nix::poll::poll(&mut ready, SILENCE_MS)? == 0 && last {
            return Ok(received);
        }
        while let Some(trains) = buffers.receive(sink)? {
            for train in trains {
                train.for_each(|_| received += 1);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_datagram_of_a_small_load_is_accounted_for() {
        let options = Options::new(anywhere(), "delay=1ms drop=3,8".parse().unwrap());
        let load = Load { rate: 20_000_000, duration: Duration::from_millis(100) };
        let outcome = run(&options, load).unwrap();
        let Outcome { link, sent, received, .. } = &outcome;
        assert!(*sent >= 10);
        // A kernel that drops on a busy machine says so.
        assert_eq!(link.up.offered + link.nat.kernel_drops, *sent);
        assert!(link.up.dropped_by_number == 2 && *received <= link.up.delivered);
        assert_eq!(link.up.delay_error.count, link.up.delivered);
        assert!(outcome.text().contains("did not arrive"));
    }
}
