//! One turn of a leading thread: wait for the socket or a deadline, then do what there is to do.

use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;
use quicket_engine::time::{Duration, Time};

use super::Core;
use super::lead::Seat;
use super::link::Link;

/// How long the socket is left alone after receiving failed for a reason that is not the peer's.
const PAUSE: Duration = Duration::from_millis(10);
/// The longest sleep; so that no deadline is too large for the kernel.
const LONGEST: Duration = Duration::from_secs(3600);

/// What a poll found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Readiness {
    pub(super) readable: bool,
    pub(super) writable: bool,
}

impl Core {
    /// Waits until there is something to do, but no longer than `limit`, and does it.
    pub(super) fn turn(&self, seat: &mut Seat<'_>, limit: Option<Time>) {
        let now = self.clock.now();
        let paused = seat.scratch().and_then(|scratch| scratch.paused_until);
        let paused = paused.filter(|&until| until > now);
        let deadline = self.fall_asleep(earlier(limit, paused));
        let link = self.link();
        let wait = deadline.map_or(LONGEST, |at| at.since(now));
        let ready = self.wait(&link, paused.is_none(), wait);
        self.deadlines().asleep_until = Time::ZERO;
        self.work(seat, &link, ready);
    }

    /// Does what there is to do after a poll.
    pub(super) fn work(&self, seat: &mut Seat<'_>, link: &Link, ready: Readiness) {
        let Some(scratch) = seat.scratch() else { return };
        if ready.readable
            && let Err(error) = self.receive(&link.socket, scratch)
        {
            log::warn!("receiving on {} failed: {error}", link.socket.local_addr());
            scratch.paused_until = Some(self.clock.now() + PAUSE);
        }
        let now = self.clock.now();
        if ready.writable {
            self.on_writable(now, &mut scratch.work.wakes);
        }
        self.expire(now, &mut scratch.work.wakes);
        scratch.work.wakes.fire();
        seat.now = now;
    }

    /// Announces that the leader sleeps, and until when.
    pub(super) fn fall_asleep(&self, limit: Option<Time>) -> Option<Time> {
        let mut deadlines = self.deadlines();
        let deadline = earlier(deadlines.timers.earliest(), limit);
        deadlines.asleep_until = deadline.unwrap_or(Time::from_nanos(u64::MAX));
        deadline
    }

    /// True if somebody waits for room in the kernel's send buffer.
    pub(super) fn wants_writable(&self) -> bool {
        self.is_blocked.load(Ordering::Acquire)
    }

    fn wait(&self, link: &Link, receive: bool, timeout: Duration) -> Readiness {
        let mut events = PollFlags::empty();
        events.set(PollFlags::POLLIN, receive);
        events.set(PollFlags::POLLOUT, self.wants_writable());
        let kick = self.lead.kick();
        let mut fds = [
            PollFd::new(link.socket.as_fd(), events),
            PollFd::new(kick.as_fd(), PollFlags::POLLIN),
        ];
        let timeout = TimeSpec::from(std::time::Duration::from(timeout.min(LONGEST)));
        match ppoll(&mut fds, Some(timeout), None) {
            Ok(_) => {}
            Err(Errno::EINTR) => return Readiness::default(),
            Err(error) => {
                // Out of memory: nothing to do but to try again.
                log::warn!("poll failed: {}", io::Error::from(error));
                return Readiness::default();
            }
        }
        let found =
            |index: usize| fds.get(index).and_then(PollFd::revents).unwrap_or(PollFlags::empty());
        let (socket, kicked) = (found(0), found(1));
        if !kicked.is_empty() {
            kick.clear();
        }
        let failed = socket.intersects(PollFlags::POLLERR | PollFlags::POLLHUP);
        Readiness {
            // An error that waits on the socket is taken by receiving.
            readable: receive && (failed || socket.contains(PollFlags::POLLIN)),
            writable: socket.contains(PollFlags::POLLOUT),
        }
    }
}

fn earlier(a: Option<Time>, b: Option<Time>) -> Option<Time> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}
