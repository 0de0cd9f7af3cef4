//! What a thread sleeps on: the bell of the port, and an event by which others interrupt it.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use quicket_packets::Bell;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::event::Event;

#[derive(Debug)]
pub(crate) struct Bed {
    /// Readable when the sleeper is to wake up.
    event: Event,
}

impl Bed {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { event: Event::new()? })
    }

    /// Wakes whoever sleeps here, or is going to.
    pub(crate) fn kick(&self) {
        self.event.ring();
    }

    /// Sleeps until somebody kicks, or the time is over.
    pub(crate) fn sleep(&self, time: Option<Duration>) {
        let mut only = [PollFd::new(&self.event, PollFlags::IN)];
        wait(&mut only, time);
        if !only[0].revents().is_empty() {
            self.event.clear();
        }
    }

    /// The same, and until the bell rings or its other end is closed. Returns whether that is so. It rings on until whoever has
    /// the seat hushes it: another one would take a ring away from him that is going to sleep here.
    pub(crate) fn sleep_at(&self, bell: &Bell, time: Option<Duration>) -> bool {
        let fd = bell.as_fd();
        let mut both = [PollFd::new(&fd, PollFlags::IN), PollFd::new(&self.event, PollFlags::IN)];
        wait(&mut both, time);
        let [is_rung, is_kicked] = [0, 1].map(|at: usize| !both[at].revents().is_empty());
        if is_kicked {
            self.event.clear();
        }
        is_rung
    }
}

fn wait(events: &mut [PollFd<'_>], time: Option<Duration>) {
    let time = time.map(|time| Timespec {
        tv_sec: time.as_secs().try_into().unwrap_or(i64::MAX),
        tv_nsec: time.subsec_nanos().into(),
    });
    match poll(events, time.as_ref()) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(error) => log::warn!("a thread cannot wait for a TCP stack: {error}"),
    }
}
