//! The thread that keeps a membership: it hears the switch, and finds the next one when that is gone.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::geteuid;

use super::connect::Connection;
use super::membership::{Draining, Joined, Notice, Shared, join_once};
use super::unexpected;
use crate::protocol::{self, Message, Refusal, Refused, Reply, Request, Resume};

/// Between the first attempts to find a switch again.
const PAUSE: Duration = Duration::from_millis(20);
/// ... and between later ones: each may start a process.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// How long to wait after an attempt that came to nothing.
fn longer(pause: Duration) -> Duration {
    (pause * 2).min(LONGEST_PAUSE)
}

impl Shared {
    /// Hears the switch, and finds the next one, until the program leaves.
    pub(super) fn keep(&self) {
        loop {
            let Some(connection) = self.state().connection.clone() else { return };
            let ended = self.hear(&connection);
            drop(connection);
            if ended.is_none() || !self.find_again() {
                return;
            }
        }
    }

    /// Hears the switch until it has gone; `None` if the program leaves.
    fn hear(&self, connection: &Connection) -> Option<()> {
        loop {
            if !self.wait(Some(connection), PollTimeout::NONE) {
                return None;
            }
            match connection.receive() {
                Ok(Some((Message::Notice(notice), _))) => self.heed_notice(connection, notice),
                Ok(Some((Message::Answer { number, reply }, _))) => {
                    let heard = self.state().questions.answer(number, reply);
                    match heard {
                        Some((struck, first)) => struck(first),
                        None => self.changed.notify_all(),
                    }
                }
                Ok(Some((Message::Refused(Refused { text, .. }), _))) => {
                    log::warn!("the switch {}: {text}", self.options.name);
                    return Some(());
                }
                Ok(None) => return Some(()),
                Err(error) => {
                    log::warn!("the switch {}: {error}", self.options.name);
                    return Some(());
                }
            }
        }
    }

    fn heed_notice(&self, connection: &Connection, notice: protocol::Notice) {
        match notice {
            protocol::Notice::Superseded => self.notify(Notice::Superseded),
            protocol::Notice::Upgrade => self.notify(Notice::Upgrade),
            protocol::Notice::DrainOver => self.notify(Notice::DrainOver),
            protocol::Notice::Count => {
                let count = self.counter.get().map(|count| count());
                // Who has gone says so at the next look.
                let _ = connection.send(0, Request::Connections(count), &[]);
            }
        }
    }

    fn notify(&self, notice: Notice) {
        if notice == Notice::Superseded {
            let mut state = self.state();
            let drain = state.serve.take().and_then(|serve| serve.drain_seconds);
            let until = drain.map(|time| Instant::now() + Duration::from_secs(time.into()));
            state.draining = Some(Draining { until });
        }
        if let Some(heed) = self.heed.get() {
            heed(notice);
        }
    }

    /// Waits for a message, or until the program leaves: false.
    fn wait(&self, connection: Option<&Connection>, timeout: PollTimeout) -> bool {
        let first = connection.map_or_else(|| self.bell.as_fd(), AsFd::as_fd);
        let mut fds = [
            PollFd::new(first, PollFlags::POLLIN),
            PollFd::new(self.bell.as_fd(), PollFlags::POLLIN),
        ];
        loop {
            match poll(&mut fds, timeout) {
                Err(Errno::EINTR) => {}
                _ => return !self.state().leaving,
            }
        }
    }

    /// Finds the next switch, or starts it, and has there what there was; false if the program leaves.
    fn find_again(&self) -> bool {
        let mut pause = PAUSE;
        loop {
            let struck = {
                let mut state = self.state();
                state.connection = None;
                state.questions.take_all_struck()
            };
            // The next switch knows nothing of them.
            struck.for_each(|struck| struck(false));
            match self.resume() {
                Ok(connection) => {
                    let mut state = self.state();
                    if state.leaving {
                        return false;
                    }
                    state.connection = Some(Arc::new(connection));
                    drop(state);
                    self.changed.notify_all();
                    return true;
                }
                Err(error) if pause == PAUSE => log::warn!(
                    "the switch {} has gone, and there is no other yet: {error}; nothing comes in on \
                     {} until there is",
                    self.options.name,
                    self.place.address
                ),
                Err(_) => {}
            }
            if !self.wait(None, PollTimeout::try_from(pause).unwrap_or(PollTimeout::ZERO)) {
                return false;
            }
            pause = longer(pause);
        }
    }

    fn resume(&self) -> io::Result<Connection> {
        let (serve, resume) = {
            let state = self.state();
            let left = |until: Instant| {
                let left = until.saturating_duration_since(Instant::now()).as_secs();
                u32::try_from(left).unwrap_or(u32::MAX)
            };
            let draining = state.draining;
            let resume = Resume {
                generation: self.generation,
                receipt: state.receipt,
                draining: draining.is_some(),
                drain_seconds_left: draining.and_then(|draining| draining.until).map(left),
                secrets: self.secrets.clone(),
            };
            (state.serve.clone(), resume)
        };
        let mut options = self.options.clone();
        if geteuid() != self.user {
            options.program = None;
        }
        let sockets = (Some(&self.socket), &*self.channels);
        let joined = join_once(&options, self.place, sockets, Some(resume))?;
        let Joined::At { connection, had, .. } = joined else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        {
            let mut state = self.state();
            (state.receipt, state.register) = (had.receipt, had.register);
        }
        if let Some(serve) = serve {
            let mut told = Vec::new();
            let request = Request::Serve(serve);
            let number = self.state().questions.ask();
            let answer = connection.ask(number, request, &[], |notice| told.push(notice));
            self.state().questions.forget(number);
            match answer?.0 {
                Reply::Done => {}
                // A newer generation has come first.
                Reply::Refused(Refused { why: Refusal::InUse, .. }) => {
                    self.notify(Notice::Superseded);
                }
                other => return Err(unexpected(&other)),
            }
            told.into_iter().for_each(|notice| self.heed_notice(&connection, notice));
        }
        Ok(connection)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_become_rare_but_the_first_ones_take_a_second() {
        let pauses: Vec<_> =
            std::iter::successors(Some(PAUSE), |pause| Some(longer(*pause))).take(20).collect();
        assert!(pauses[..6].iter().sum::<Duration>() < Duration::from_millis(1500));
        assert_eq!(pauses[19], LONGEST_PAUSE);
    }
}
