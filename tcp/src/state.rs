//! What the stack's thread and its callers share: the ends of the port, the connections, and who takes frames.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use quicket_packets::Receiver;
use quicket_packets::icmp::Report;
use smoltcp::time::Instant;

pub(crate) use quicket_packets::Bell;

use crate::connections::{Connections, Sizes, Wake};
use crate::out::Out;
use crate::seat::{Seat, Shift};
use crate::segment::Segment;
use crate::sync::{Arc, Condvar};

/// How long the system's answer is believed from which address it would send.
const SOURCE_TIME: smoltcp::time::Duration = smoltcp::time::Duration::from_secs(1);
/// How long the thread goes on after its last handle has gone, so that what was written still leaves.
const LINGER: smoltcp::time::Duration = smoltcp::time::Duration::from_secs(60);
/// Frames that are taken at once.
const BATCH: u32 = 64;

pub(crate) struct Core {
    begun: std::time::Instant,
    receiver: Receiver,
    pub(crate) out: Out,
    pub(crate) connections: Connections,
    /// Who takes frames.
    pub(crate) seat: Seat,
    /// What a caller waits for that has the seat, and sleeps at the bell.
    pub(crate) leader: Option<Arc<Condvar>>,
    /// Until when whoever takes frames sleeps at the bell, if he does: without end, if there is no time.
    sleep: Option<Option<Instant>>,
    /// Why the stack is over.
    failure: Option<ErrorKind>,
    /// From which address the system would send to another one, and since when that is known.
    source: Option<(IpAddr, IpAddr, Instant)>,
    /// Nobody has the stack any more, nor anything of it: since when.
    pub(crate) abandoned: Option<Instant>,
}

impl Core {
    pub(crate) fn new(receiver: Receiver, out: Out, sizes: Sizes) -> Self {
        Self {
            begun: std::time::Instant::now(),
            receiver,
            out,
            connections: Connections::new(sizes),
            seat: Seat::new(),
            leader: None,
            sleep: None,
            failure: None,
            source: None,
            abandoned: None,
        }
    }

    /// Microseconds since the stack began.
    pub(crate) fn now(&self) -> Instant {
        let micros = self.begun.elapsed().as_micros();
        Instant::from_micros(i64::try_from(micros).unwrap_or(i64::MAX))
    }

    /// From which address the system would send to another one, if it has said so lately.
    pub(crate) fn source(&self, remote: IpAddr) -> Option<IpAddr> {
        let (known, source, since) = self.source?;
        (known == remote && self.now() < since + SOURCE_TIME).then_some(source)
    }

    /// The system has said from which address it would send to another one.
    pub(crate) fn remember_source(&mut self, remote: IpAddr, source: IpAddr) {
        if self.source(remote) != Some(source) {
            self.source = Some((remote, source, self.now()));
        }
    }

    /// # Errors
    ///
    /// Why the stack is over.
    pub(crate) fn check(&self) -> io::Result<()> {
        match self.failure {
            Some(kind) => {
                let text = match kind {
                    ErrorKind::ConnectionReset => "the switch for packets has gone",
                    ErrorKind::InvalidData => "the switch for packets has left what cannot be",
                    _ => "a thread of the stack has panicked",
                };
                Err(io::Error::new(kind, format!("{text}: open another stack")))
            }
            None => Ok(()),
        }
    }

    /// Takes frames that have come, and does what is due. Returns whether there may be more to do at once.
    pub(crate) fn turn(&mut self) -> bool {
        let now = self.now();
        let ready = self.receiver.ready().unwrap_or_else(|_| {
            self.fail(ErrorKind::InvalidData);
            0
        });
        let taken = ready.min(BATCH);
        for n in 0..taken {
            let Some(frame) = self.receiver.frame(n) else { continue };
            if let Some(segment) = Segment::read(frame) {
                self.connections.deliver(&segment, &mut self.out, now);
            } else if let Some(report) = Report::read(frame) {
                self.connections.hear(&report, now);
            }
        }
        self.receiver.release(taken);
        self.connections.settle_touched(&mut self.out, now);
        self.connections.settle_due(&mut self.out, now);
        self.connections.settle_starved(&mut self.out, now);
        if self.out.is_broken() {
            self.fail(ErrorKind::InvalidData);
        }
        ready > taken
    }

    /// Addresses that nobody uses any more, and from which nothing is on its way: the switch would drop the last segments.
    pub(crate) fn take_surplus(&mut self) -> Vec<SocketAddr> {
        match self.out.is_drained() {
            true => self.connections.owned.take_surplus(),
            false => Vec::new(),
        }
    }

    /// The stack is over: all calls fail from now on.
    pub(crate) fn fail(&mut self, kind: ErrorKind) {
        if self.failure.is_none() {
            self.failure = Some(kind);
            self.connections.fail(kind);
        }
    }

    /// Whether frames have come that nobody has taken.
    pub(crate) fn has_frames(&mut self) -> bool {
        self.receiver.ready().is_ok_and(|ready| ready > 0)
    }

    /// Publishes what was written. Returns whether the switch's bell is to be rung.
    pub(crate) fn flush(&mut self) -> bool {
        self.out.flush()
    }

    /// Those that are to be woken once nothing is locked.
    pub(crate) fn take_woken(&mut self) -> Vec<Wake> {
        std::mem::take(&mut self.connections.woken)
    }

    /// Whether all connections are over.
    pub(crate) fn is_empty(&self) -> bool {
        self.connections.is_empty()
    }

    /// Whether there are addresses to be given back.
    pub(crate) fn has_surplus(&self) -> bool {
        self.connections.owned.has_surplus()
    }

    fn micros(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    /// A caller takes the seat, if it may.
    pub(crate) fn take_seat(&mut self) -> bool {
        let now = self.micros();
        !self.is_over() && self.seat.take(now)
    }

    /// It leaves it. Returns whether the thread is to be roused.
    pub(crate) fn leave_seat(&mut self) -> bool {
        let now = self.micros();
        self.seat.leave(now)
    }

    /// What the thread does next.
    pub(crate) fn shift(&mut self) -> Shift {
        if self.abandoned.is_some() || self.is_over() {
            self.seat.claim();
            return Shift::Lead;
        }
        let (now, is_late) = (self.micros(), self.has_frames());
        self.seat.shift(now, is_late)
    }

    /// Whether the thread ends, after its last turn: the stack is over, or nobody has it and nothing is left to be done.
    pub(crate) fn has_ended(&mut self) -> bool {
        let Some(since) = self.abandoned else { return self.is_over() };
        let now = self.now();
        let has_ended = self.connections.is_empty() || now > since + LINGER;
        if has_ended {
            self.connections.abort_all(&mut self.out, now);
        }
        has_ended || self.is_over()
    }

    /// Whether somebody sleeps at the bell.
    pub(crate) const fn is_asleep(&self) -> bool {
        self.sleep.is_some()
    }

    /// Somebody is going to sleep at the bell, until it is rung or for the time that this returns; none if there is something to do.
    /// What was written is to be published before.
    pub(crate) fn fall_asleep(&mut self) -> Option<Option<Duration>> {
        match self.receiver.sleep() {
            Ok(true) => {}
            Ok(false) => return None,
            Err(_) => {
                self.fail(ErrorKind::InvalidData);
                return None;
            }
        }
        if self.connections.is_starved() && !self.out.wait() {
            return None;
        }
        let until = self.connections.next_timer();
        self.sleep = Some(until);
        let now = self.now();
        Some(until.map(|until| Duration::from_micros((until - now.min(until)).total_micros())))
    }

    pub(crate) fn wake(&mut self) {
        self.sleep = None;
        self.receiver.wake();
        self.out.wake();
    }

    /// Who is to be interrupted, the thread or the caller at the bell: whoever sleeps for too long by now, or waits for what has
    /// happened. Each is told once.
    pub(crate) fn must_interrupt(&mut self) -> (bool, bool) {
        let is_threads = self.seat.is_threads();
        let must = self.is_too_long() || (is_threads && self.sleep.is_some() && self.has_surplus());
        let is_leaders = self.leader.as_ref().is_some_and(|leader| {
            let is_own = |wake: &Wake| match wake {
                Wake::One(other) | Wake::All(other) => Arc::ptr_eq(other, leader),
                Wake::Watch(_) => false,
            };
            self.connections.woken.iter().any(is_own)
        });
        if must || is_leaders {
            self.sleep = None;
        }
        let rouses = self.must_rouse();
        ((must && is_threads) || rouses, (must && !is_threads) || is_leaders)
    }

    /// Whether the thread, which sleeps without end, is to give back addresses.
    pub(crate) fn must_rouse(&self) -> bool {
        self.seat.is_thread_asleep() && self.has_surplus()
    }

    fn is_too_long(&self) -> bool {
        let Some(until) = self.sleep else { return false };
        let is_earlier = match (self.connections.next_timer(), until) {
            (Some(next), Some(until)) => next < until,
            (next, until) => next.is_some() && until.is_none(),
        };
        is_earlier || self.connections.is_starved()
    }

    pub(crate) const fn is_over(&self) -> bool {
        self.failure.is_some()
    }
}

impl std::fmt::Debug for Core {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Core").finish_non_exhaustive()
    }
}
