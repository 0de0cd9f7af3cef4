//! The thread that drives an endpoint while no caller does.

use std::io;
use std::sync::{Arc, mpsc};
use std::thread;

use nix::sys::signal::{SigSet, SigmaskHow};
use quicket_handshake::SystemRandom;

use super::Core;
use super::lead::{Background, Rank};

/// Enough for the deepest call, which is a TLS handshake.
const STACK: usize = 512 << 10;

impl Core {
    /// Starts the thread; it ends with the endpoint. Returns once the thread drives the endpoint and
    /// has its generator of random numbers: if the process ended before, that would abort it.
    pub(crate) fn start_thread(self: &Arc<Self>) -> io::Result<()> {
        let core = Arc::clone(self);
        let (prepared, is_prepared) = mpsc::sync_channel(1);
        // Inherited by the thread: signals are for the program's threads, whose calls they end.
        let mask = SigSet::all().thread_swap_mask(SigmaskHow::SIG_BLOCK);
        let spawned =
            thread::Builder::new().name("quicket".to_owned()).stack_size(STACK).spawn(move || {
                SystemRandom::prepare_thread();
                // Before it sleeps for the first time: it must be found then.
                core.lead.set_background(Some(Background::Thread(thread::current())));
                let _ = prepared.send(());
                core.run();
            });
        if let Ok(mask) = mask {
            // Fails for no mask that there was.
            let _ = mask.thread_set_mask();
        }
        spawned?;
        // An error is that the thread has ended, as a panic would have it.
        let _ = is_prepared.recv();
        Ok(())
    }

    fn run(&self) {
        while !self.is_over() {
            let now = self.clock.now();
            let left = self.lead.left();
            if let Some(wait) = self.lead.keep_away(now) {
                thread::park_timeout(wait.into());
                if self.lead.sleep_until_left(left) {
                    thread::park();
                }
            } else if let Some(mut seat) = self.lead.take(Rank::Background, now) {
                while !seat.is_wanted() && !self.is_over() {
                    self.turn(&mut seat, None);
                }
            }
        }
    }
}
