//! The thread that drives an endpoint while no caller does.

use std::io;
use std::sync::{Arc, mpsc};
use std::thread;

use quicket_engine::time::Duration;
use quicket_handshake::SystemRandom;
pub(crate) use quicket_udp::spawn_quietly;

use super::Core;
use super::lead::Background;

/// How long an endpoint is without its thread after a panic there, so that one that comes with each datagram does not keep
/// a processor busy with making threads.
const RECOVERY: Duration = Duration::from_millis(100);

/// Functions of the application run on this thread (docs/threads.md). Should one panic, another thread takes over.
struct Successor<'a>(&'a Arc<Core>);

impl Drop for Successor<'_> {
    fn drop(&mut self) {
        if !thread::panicking() || self.0.is_over() {
            return;
        }
        log::error!(
            "a function that the application has given an endpoint has panicked; another thread goes on without what was \
             at hand"
        );
        self.0.lead.set_background(None);
        thread::sleep(RECOVERY.into());
        if let Err(error) = self.0.start_thread() {
            log::warn!("no thread could take over: {error}");
            self.0.end();
        }
    }
}

/// Starts a thread that draws random numbers. Returns once it has its generator, and has begun: if the process ended before,
/// that would abort it.
pub(crate) fn spawn_prepared(
    name: &str,
    begin: impl FnOnce() + Send + 'static,
    work: impl FnOnce() + Send + 'static,
) -> io::Result<()> {
    let (prepared, is_prepared) = mpsc::sync_channel(1);
    spawn_quietly(name, move || {
        SystemRandom::prepare_thread();
        begin();
        let _ = prepared.send(());
        work();
    })?;
    // An error is that the thread has ended, as a panic would have it.
    let _ = is_prepared.recv();
    Ok(())
}

impl Core {
    /// Starts the thread; it ends with the endpoint. Returns once the thread drives the endpoint.
    pub(crate) fn start_thread(self: &Arc<Self>) -> io::Result<()> {
        let (core, driven) = (Arc::clone(self), Arc::clone(self));
        // Before it sleeps for the first time: it must be found then.
        let begin = move || core.lead.set_background(Some(Background::Thread(thread::current())));
        spawn_prepared("quicket", begin, move || {
            let _successor = Successor(&driven);
            driven.run();
        })
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
