//! The thread that keeps a membership: it hears the switch, and finds the next one when that is gone.

use std::io;
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::geteuid;

use super::connect::{Connection, has_ended};
use super::joining::{Has, Joined, join_over};
use super::membership::{Draining, Notice, Shared};
use super::{ONCE, unexpected};
use crate::channel::Word;
use crate::protocol::{self, Message, Reply, Request, Resume, Serve, Served};

/// Between the first attempts to find a switch again, or to have it do what was asked of it.
const PAUSE: Duration = Duration::from_millis(20);
/// ... and between later ones to find it: several fit into the time for which the next switch keeps the
/// numbers of programs that come back ([`RECLAIM_TIME`](crate::registry::RECLAIM_TIME)).
const LONGEST_PAUSE: Duration = Duration::from_millis(100);
/// ... and between those that start a process, and questions that the switch has refused.
const LONGEST_RARE_PAUSE: Duration = Duration::from_secs(5);

/// When to look for a switch, and when to start one.
struct Attempts {
    pause: Duration,
    start_pause: Duration,
    start_at: Instant,
}

impl Attempts {
    const fn new(now: Instant) -> Self {
        Self { pause: PAUSE, start_pause: PAUSE, start_at: now }
    }

    /// Whether the attempt that is made now may start a switch.
    fn may_start(&self, now: Instant) -> bool {
        now >= self.start_at
    }

    /// An attempt has come to nothing by `now`. Returns how long to wait.
    fn failed(&mut self, now: Instant, might_start: bool) -> Duration {
        if might_start {
            self.start_at = now + self.start_pause;
            self.start_pause = (self.start_pause * 2).min(LONGEST_RARE_PAUSE);
        }
        let pause = self.pause;
        self.pause = (pause * 2).min(LONGEST_PAUSE);
        pause
    }
}

/// Calls what the application has given. Its panic, of which the hook has told, is not the end of the
/// membership.
fn call<T>(application: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(application)).ok()
}

/// What came of serving again with the next switch.
enum Again {
    Serves,
    Leaves,
    Gone,
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
                // A refusal of everything comes as an error.
                Ok(Some((Message::Refused(_), _)) | None) => return Some(()),
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
            protocol::Notice::Minted(minted) => self.minted.fill(minted),
            protocol::Notice::Secrets(secrets) => self.take_up_secrets(*secrets),
            protocol::Notice::Count => {
                let count = self.counter.get().and_then(call);
                // Who has gone says so at the next look.
                let _ = connection.send(0, Request::Connections(count), &[]);
            }
        }
    }

    /// Secrets were rotated, or the next switch has others.
    fn take_up_secrets(&self, secrets: protocol::Secrets) {
        let before = std::mem::replace(&mut self.state().secrets, secrets.clone());
        if before != secrets {
            self.notify(Notice::Secrets);
        }
    }

    fn notify(&self, notice: Notice) {
        if notice == Notice::Superseded {
            let mut state = self.state();
            let drain = state.serve.take().and_then(|serve| serve.drain_seconds);
            let until = drain.map(|time| Instant::now() + Duration::from_secs(time.into()));
            state.draining = Some(Draining { until });
            state.served = None;
        }
        if let Some(heed) = self.heed.get() {
            call(|| heed(notice));
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

    fn wait_for(&self, pause: Duration) -> bool {
        self.wait(None, PollTimeout::try_from(pause).unwrap_or(PollTimeout::ZERO))
    }

    /// Finds the next switch, or starts it, and has there what there was; false if the program leaves.
    fn find_again(&self) -> bool {
        let mut attempts = Attempts::new(Instant::now());
        let (mut told, mut given_back) = (false, false);
        loop {
            let struck = {
                let mut state = self.state();
                state.connection = None;
                state.questions.take_all_struck()
            };
            // The next switch knows nothing of them.
            struck.for_each(|struck| struck(false));
            let may_start = attempts.may_start(Instant::now());
            match self.resume(may_start, &mut given_back) {
                Ok((connection, lost)) => match self.serve_again(&connection, lost) {
                    Again::Serves if self.take_up(connection) => return true,
                    Again::Serves | Again::Leaves => return false,
                    Again::Gone => {}
                },
                Err(error) if !told => {
                    told = true;
                    log::warn!(
                        "the switch {} has gone, and there is no other yet: {error}; nothing comes in \
                         on {} until there is",
                        self.options.name,
                        self.place.address
                    );
                }
                Err(_) => {}
            }
            if !self.wait_for(attempts.failed(Instant::now(), may_start)) {
                return false;
            }
        }
    }

    /// Uses the connection from now on; false if the program leaves.
    fn take_up(&self, connection: Connection) -> bool {
        let mut state = self.state();
        if state.leaving {
            drop(state);
            leave(&connection);
            return false;
        }
        let connection = Arc::new(connection);
        state.connection = Some(Arc::clone(&connection));
        // It may have changed since the switch was told with the question. Nobody says it anew before that.
        if let Some((kin, lifeline)) = &state.kin {
            let _ = connection.send(ONCE, Request::Bequeath(*kin), &[lifeline.as_fd()]);
        }
        drop(state);
        self.changed.notify_all();
        true
    }

    /// Joins the next switch as who the program was with the one before.
    /// Returns what it served and does not serve again with that.
    ///
    /// If that switch refuses it, it gives back a socket that is lent to it, once (`given_back`).
    fn resume(
        &self,
        may_start: bool,
        given_back: &mut bool,
    ) -> io::Result<(Connection, Option<Serve>)> {
        let (resume, kin, forwards) = {
            let state = self.state();
            let left = |until: Instant| {
                let left = until.saturating_duration_since(Instant::now()).as_secs();
                u32::try_from(left).unwrap_or(u32::MAX)
            };
            let draining = state.draining;
            let resume = Resume {
                generation: self.generation,
                receipt: state.receipt,
                served: state.served.clone(),
                draining: draining.is_some(),
                drain_seconds_left: draining.and_then(|draining| draining.until).map(left),
                secrets: state.secrets.clone(),
                sockets: self.sockets.clone(),
            };
            (resume, state.kin.clone(), state.forwards)
        };
        let served = resume.served.clone().filter(|_| !resume.draining);
        let mut options = self.options.clone();
        // Another user's switch is another's to start.
        if !may_start || geteuid() != self.user || self.socket.is_none() {
            options.program = None;
        }
        let keep = self.keep.as_ref();
        let kin = kin.as_ref().map(|(kin, lifeline)| (*kin, lifeline.as_fd()));
        let has = Has {
            socket: self.socket.as_ref(),
            channels: &self.channels,
            keep,
            kin,
            ledger: self.ledger.as_deref().filter(|_| self.socket.is_some()),
            forwards,
        };
        let connection = Connection::open_or_start(&options, has.forwards)?;
        let joined = match join_over(connection, &options, self.place, has, Some(resume)) {
            Ok(Joined::At { connection, had, .. }) => Ok((connection, had)),
            Ok(Joined::Bind(..)) => Err(io::ErrorKind::InvalidData.into()),
            Err(error) => Err(error),
        };
        let (connection, had) = joined.inspect_err(|error| {
            if !*given_back && !is_late(error) && !has_ended(error) {
                *given_back = self.give_back();
            }
        })?;
        for minted in had.tenancy.into_iter().flat_map(|tenancy| tenancy.minted) {
            self.minted.fill(minted);
        }
        self.take_up_secrets(had.secrets);
        let mut state = self.state();
        state.receipt = had.receipt;
        let is_another = state.register != had.register;
        state.register = had.register;
        state.forwards = had.forwards;
        let lost = match had.served {
            Some(proof) => {
                state.served = served.map(|served| Served { proof, ..served });
                None
            }
            None => served.map(|served| served.serve),
        };
        drop(state);
        // The connection is not in use yet, so that nothing is asked of the register before.
        if is_another {
            self.notify(Notice::Register);
        }
        Ok((connection, lost))
    }

    /// Has the workers read the address's socket no more, which the switch before may have lent one of them: the next one,
    /// which has refused the program, reads it for others, and has no channel in which it could say so. False if one was
    /// not told for want of room.
    fn give_back(&self) -> bool {
        let said = self.channels.iter().map(|channel| channel.say(Word::Recall));
        said.fold(true, |all, said| all & said.is_ok())
    }

    /// Serves with the next switch what was served with the one before. Who has joined stays: a switch that lost the
    /// connection would take the program for dead, and have its peers reset.
    fn serve_again(&self, connection: &Connection, lost: Option<Serve>) -> Again {
        let mut pause = PAUSE;
        loop {
            let (serve, leaving) = {
                let state = self.state();
                (state.serve.clone(), state.leaving)
            };
            if leaving {
                leave(connection);
                return Again::Leaves;
            }
            // Who asks for something else meanwhile does so himself.
            let Some(serve) = lost.clone().filter(|lost| serve.as_ref() == Some(lost)) else {
                return Again::Serves;
            };
            let error = match self.ask_to_serve(connection, serve) {
                Ok(Ok(())) => return Again::Serves,
                Ok(Err(refused)) => refused,
                Err(error) if is_late(&error) => error,
                Err(error) => {
                    log::debug!("the switch {}: {error}", self.options.name);
                    // In case it only speaks what is not understood.
                    leave(connection);
                    return Again::Gone;
                }
            };
            if pause == PAUSE {
                log::warn!(
                    "the switch {} does not yet hand over clients again: {error}",
                    self.options.name
                );
            }
            // Whether the program leaves is seen above.
            self.wait_for(pause);
            // The switch that waits for others says so, and does not wait for long.
            let waits = error.kind() == io::ErrorKind::WouldBlock;
            pause = (pause * 2).min(if waits { LONGEST_PAUSE } else { LONGEST_RARE_PAUSE });
        }
    }

    /// Asks the next switch for what was served with the one before; an error inside is its refusal.
    fn ask_to_serve(&self, connection: &Connection, serve: Serve) -> io::Result<io::Result<()>> {
        let mut told = Vec::new();
        let number = self.state().questions.ask();
        let request = Request::Serve(serve.clone());
        let answer = connection.ask(number, request, &[], |notice| told.push(notice));
        self.state().questions.forget(number);
        let answer = answer.map(|(reply, _)| match reply {
            Reply::Served(proof) => {
                self.state().served = Some(Served { serve, proof });
                Ok(())
            }
            other => Err(unexpected(&other)),
        });
        told.into_iter().for_each(|notice| self.heed_notice(connection, notice));
        answer
    }
}

/// The program goes in good order.
fn leave(connection: &Connection) {
    let _ = connection.send(ONCE, Request::Leave, &[]);
}

/// Whether the switch is there, and has only not answered yet.
fn is_late(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::RECLAIM_TIME;

    /// A minute without a switch, in which each attempt takes a moment.
    #[test]
    fn a_switch_is_looked_for_all_the_time_and_started_rarely() {
        let begun = Instant::now();
        let mut attempts = Attempts::new(begun);
        let mut now = begun;
        let mut starts = Vec::new();
        while now < begun + Duration::from_secs(60) {
            let may_start = attempts.may_start(now);
            if may_start {
                starts.push(now);
            }
            now += Duration::from_millis(3);
            let pause = attempts.failed(now, may_start);
            assert!(u128::from(RECLAIM_TIME.as_nanos()) > 10 * pause.as_nanos());
            now += pause;
        }
        assert_eq!(starts[0], begun);
        let second = begun + Duration::from_secs(1);
        assert!(starts.iter().filter(|at| **at < second).count() >= 4, "{starts:?}");
        assert!(starts.len() < 25, "{}", starts.len());
        let last = starts.windows(2).last().unwrap();
        assert!(last[1] - last[0] >= LONGEST_RARE_PAUSE, "{starts:?}");
    }
}
