//! What the stack's thread and its callers share: the ends of the port, and the connections.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use quicket_packets::Receiver;
use smoltcp::time::Instant;

use crate::connections::{Connections, Sizes};
use crate::out::Out;
use crate::segment::Segment;

/// How long the system's answer is believed from which address it would send.
const SOURCE_TIME: smoltcp::time::Duration = smoltcp::time::Duration::from_secs(1);
/// Frames that are taken at once.
const BATCH: u32 = 64;

pub(crate) struct Core {
    begun: std::time::Instant,
    receiver: Receiver,
    pub(crate) out: Out,
    pub(crate) connections: Connections,
    /// Until when the thread sleeps, if it does: without end, if there is no time.
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
                    _ => "the thread of the stack has panicked",
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
            if let Some(segment) = self.receiver.frame(n).and_then(Segment::read) {
                self.connections.deliver(&segment, &mut self.out, now);
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

    /// The thread is going to sleep, until it is rung or for the time that this returns; none if there is something to do.
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

    /// Whether the thread sleeps for too long by now. It is told once.
    pub(crate) fn must_interrupt(&mut self) -> bool {
        let Some(until) = self.sleep else { return false };
        let next = self.connections.next_timer();
        let is_earlier = match (next, until) {
            (Some(next), Some(until)) => next < until,
            (next, until) => next.is_some() && until.is_none(),
        };
        let must =
            is_earlier || self.connections.is_starved() || self.connections.owned.has_surplus();
        if must {
            self.sleep = None;
        }
        must
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
