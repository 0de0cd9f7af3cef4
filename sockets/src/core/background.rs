//! The thread that drives an endpoint while no caller does.

use std::io;
use std::sync::{Arc, mpsc};
use std::thread;

use quicket_engine::time::Duration;
use quicket_handshake::SystemRandom;
pub(crate) use quicket_udp::spawn_quietly;

use super::Core;
use super::lead::Background;

impl Core {
    /// Starts the thread; it ends with the endpoint. Returns once the thread drives the endpoint and
    /// has its generator of random numbers: if the process ended before, that would abort it.
    pub(crate) fn start_thread(self: &Arc<Self>) -> io::Result<()> {
        let core = Arc::clone(self);
        let (prepared, is_prepared) = mpsc::sync_channel(1);
        spawn_quietly("quicket", move || {
            SystemRandom::prepare_thread();
            // Before it sleeps for the first time: it must be found then.
            core.lead.set_background(Some(Background::Thread(thread::current())));
            let _ = prepared.send(());
            core.run();
        })?;
        // An error is that the thread has ended, as a panic would have it.
        let _ = is_prepared.recv();
        Ok(())
    }

    fn run(&self) {
        let now = || (!self.is_over()).then(|| self.clock.now());
        let rest = |time: Option<Duration>| match time {
            Some(time) => thread::park_timeout(time.into()),
            None => thread::park(),
        };
        self.lead.work(now, rest, |seat| {
            self.turn(seat, None);
        });
    }
}
