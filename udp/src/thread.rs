//! Threads of ours, in the processes of others.

use std::io;
use std::thread;

use nix::sys::signal::{SigSet, SigmaskHow};

/// Enough for the deepest call, which is a TLS handshake.
const STACK: usize = 512 << 10;

/// Starts a thread that signals leave alone: they are for the program's threads, whose calls they end.
///
/// # Errors
///
/// When the system has no room for one.
pub fn spawn_quietly(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    // Inherited by the thread.
    let mask = SigSet::all().thread_swap_mask(SigmaskHow::SIG_BLOCK);
    let spawned = thread::Builder::new().name(name.to_owned()).stack_size(STACK).spawn(work);
    if let Ok(mask) = mask {
        // Fails for no mask that there was.
        let _ = mask.thread_set_mask();
    }
    spawned.map(drop)
}
