//! One turn of a leading thread: wait for the sockets or a deadline, then do what there is to do.

use std::io;
use std::os::fd::AsFd;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;
use quicket_engine::time::{Duration, Time};

use super::Core;
use super::lead::{Rank, Seat};
use super::link::{Links, MAX_LINKS};
use super::postpone::Whose;
use super::receive::Scratch;

/// How long sockets are left alone after receiving failed for a reason that is not the peer's.
pub(super) const PAUSE: Duration = Duration::from_millis(10);
/// The longest sleep; so that no deadline is too large for the kernel.
const LONGEST: Duration = Duration::from_secs(3600);

/// What a poll found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Readiness {
    /// One of the sockets at least has something.
    readable: bool,
    writable: bool,
    /// A signal ended it.
    interrupted: bool,
}

impl Core {
    /// Waits until there is something to do, but no longer than `limit`, and does it. True if a
    /// signal ended the wait.
    pub(super) fn turn(&self, seat: &mut Seat<'_, Box<Scratch>>, limit: Option<Time>) -> bool {
        let links = self.links();
        let now = self.clock.now();
        let look = self.lead.plan_look(now);
        if let Some(scratch) = seat.scratch() {
            self.catch_up(now, Whose::Own, &mut scratch.work.wakes);
            scratch.work.wakes.fire_threads();
        }
        let paused = seat.scratch().and_then(|scratch| scratch.end_pause(now));
        let look = earlier(look, self.postponed.first(|entry| entry.due));
        let deadline = self.fall_asleep(earlier(earlier(limit, paused), look));
        let came = seat.spins && self.spin_on(&links, seat, now, deadline);
        let ready = if came {
            Readiness::default()
        } else {
            let wait = deadline.map_or(LONGEST, |at| at.since(now));
            self.wait(&links, paused.is_none(), wait)
        };
        self.wake_up();
        self.lead.has_woken();
        let Some(scratch) = seat.scratch() else { return ready.interrupted };
        if ready.readable {
            // A socket may have been added meanwhile.
            for link in self.links().in_order_of_moves() {
                self.receive_from(&link.socket, scratch);
            }
        }
        seat.now = self.act(scratch, Whose::Own, ready.writable);
        ready.interrupted
    }

    /// Watches the socket for a moment, if there is but one and nothing else to wait for; true if
    /// something came and was processed.
    fn spin_on(
        &self,
        links: &Links,
        seat: &mut Seat<'_, Box<Scratch>>,
        now: Time,
        deadline: Option<Time>,
    ) -> bool {
        let mut sockets = links.iter();
        let (Some(link), None) = (sockets.next(), sockets.next()) else { return false };
        let Some(scratch) = seat.scratch() else { return false };
        let free = scratch.paused_until.is_none() && !self.wants_writable();
        free && self.spin(&link.socket, scratch, now, deadline)
    }

    /// Receives and sees to errors; true if the socket is empty now.
    pub(super) fn receive_from(
        &self,
        socket: &crate::udp::UdpSocket,
        scratch: &mut Scratch,
    ) -> bool {
        if self.attempts.any() {
            self.take_errors(socket, &mut scratch.work.wakes);
        }
        self.receive(socket, scratch).unwrap_or_else(|error| {
            self.complaints.warn(format_args!(
                "the system refuses to receive on {}: {error}; it is asked again every {} ms",
                socket.local_addr(),
                PAUSE.as_millis()
            ));
            scratch.paused_until = Some(self.clock.now() + PAUSE);
            true
        })
    }

    /// Receives what is there, unless somebody leads and does so anyway. For callers that send for
    /// long without ever waiting: acknowledgments that nobody reads keep memory in use, and the
    /// round trip looks longer than it is. Waits for nobody.
    pub(super) fn glance(&self, now: Time) {
        let Some(mut seat) = self.lead.try_enter(Rank::Eager, now) else { return };
        let Some(scratch) = seat.scratch() else { return };
        if scratch.end_pause(now).is_none() {
            for link in self.links().in_order_of_moves() {
                self.receive_from(&link.socket, scratch);
            }
        }
        seat.now = now;
    }

    /// Does what there is to do beside receiving; returns the time.
    pub(super) fn act(&self, scratch: &mut Scratch, whose: Whose, writable: bool) -> Time {
        let now = self.clock.now();
        let wakes = &mut scratch.work.wakes;
        self.catch_up(now, whose, wakes);
        if writable {
            self.on_writable(now, wakes);
        }
        self.expire(now, wakes);
        wakes.fire_threads();
        now
    }

    /// Announces that the leader sleeps, and until when.
    pub(super) fn fall_asleep(&self, limit: Option<Time>) -> Option<Time> {
        let mut deadlines = self.deadlines();
        let deadline = earlier(deadlines.timers.earliest(), limit);
        let deadline = earlier(deadline, deadlines.links_end);
        deadlines.asleep_until = deadline.unwrap_or(Time::from_nanos(u64::MAX));
        deadline
    }

    /// Announces that the leader is awake: nobody needs to wake it.
    pub(super) fn wake_up(&self) {
        self.deadlines().asleep_until = Time::ZERO;
    }

    /// True if somebody waits for room in the kernel's send buffer.
    pub(super) fn wants_writable(&self) -> bool {
        !self.blocked.is_empty()
    }

    fn wait(&self, links: &Links, receive: bool, timeout: Duration) -> Readiness {
        let mut events = PollFlags::empty();
        events.set(PollFlags::POLLIN, receive);
        events.set(PollFlags::POLLOUT, self.wants_writable());
        let kick = self.lead.kick();
        let mut sockets = links.iter();
        let count = sockets.len();
        let mut fds: [PollFd<'_>; MAX_LINKS + 1] = std::array::from_fn(|_| match sockets.next() {
            Some(link) => PollFd::new(link.socket.as_fd(), events),
            None => PollFd::new(kick.as_fd(), PollFlags::POLLIN),
        });
        let timeout = TimeSpec::from(std::time::Duration::from(timeout.min(LONGEST)));
        match ppoll(fds.get_mut(..=count).unwrap_or_default(), Some(timeout), None) {
            Ok(_) => {}
            Err(Errno::EINTR) => return Readiness { interrupted: true, ..Readiness::default() },
            Err(error) => {
                // Out of memory: nothing to do but to try again, and not too often.
                self.complaints.warn(format_args!("poll failed: {}", io::Error::from(error)));
                std::thread::sleep(PAUSE.into());
                return Readiness::default();
            }
        }
        let mut ready = Readiness::default();
        for fd in fds.iter().take(count) {
            let found = fd.revents().unwrap_or(PollFlags::empty());
            // An error that waits on the socket is taken by receiving.
            let failed = found.intersects(PollFlags::POLLERR | PollFlags::POLLHUP);
            ready.readable |= receive && (failed || found.contains(PollFlags::POLLIN));
            ready.writable |= found.contains(PollFlags::POLLOUT);
        }
        if fds.get(count).and_then(PollFd::any).unwrap_or(false) {
            kick.clear();
        }
        ready
    }
}

fn earlier(a: Option<Time>, b: Option<Time>) -> Option<Time> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}
