//! Randomness for the engine, from the operating system.

use std::cell::Cell;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use aws_lc_rs::rand;
use quicket_engine::random::Random;

/// Bytes drawn from the system at once.
const BUFFER_LEN: usize = 1_024;

/// A cryptographic source of randomness which asks the system once per kilobyte: the engine draws
/// a few bytes at a time. Not AWS-LC, which ends a process that draws while it ends: a thread may
/// wait for a connection then. Forks share the buffer, so that a connection costs a pointer; no byte is
/// given out twice. (Of two processes that go on after `fork(2)` only one may: they would give out
/// the same bytes.)
#[derive(Clone)]
pub struct SystemRandom {
    buffer: Arc<Mutex<Buffer>>,
}

struct Buffer {
    bytes: [u8; BUFFER_LEN],
    /// How much of `bytes` has been handed out.
    used: usize,
}

impl SystemRandom {
    /// A source with an empty buffer.
    pub fn new() -> Self {
        let buffer = Buffer { bytes: [0; BUFFER_LEN], used: BUFFER_LEN };
        Self { buffer: Arc::new(Mutex::new(buffer)) }
    }
}

impl Default for SystemRandom {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for SystemRandom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SystemRandom").finish_non_exhaustive()
    }
}

impl SystemRandom {
    /// Has AWS-LC make the calling thread's generator, once, from which handshakes draw their keys.
    /// It does that at the first use otherwise, and ends the process with SIGABRT should that be
    /// while the process ends anyway: a thread that may still work then calls this before.
    pub fn prepare_thread() {
        thread_local! {
            static PREPARED: Cell<bool> = const { Cell::new(false) };
        }
        if !PREPARED.replace(true) {
            // Without randomness a handshake fails, and says so.
            let _ = rand::fill(&mut [0]);
        }
    }
}

/// Fills `out` with random bytes.
///
/// # Panics
///
/// If the operating system has no randomness to give: there is no safe way to go on.
pub(crate) fn fill(out: &mut [u8]) {
    getrandom::fill(out).expect("the operating system's random generator works");
}

impl Buffer {
    fn take(&mut self, out: &mut [u8]) {
        if BUFFER_LEN - self.used < out.len() {
            fill(&mut self.bytes);
            self.used = 0;
        }
        let taken = &mut self.bytes[self.used..self.used + out.len()];
        out.copy_from_slice(taken);
        // What was handed out must not be found here later.
        taken.fill(0);
        self.used += out.len();
    }
}

impl Random for SystemRandom {
    fn fill(&mut self, out: &mut [u8]) {
        if out.len() > BUFFER_LEN {
            fill(out);
        } else {
            self.buffer.lock().unwrap_or_else(PoisonError::into_inner).take(out);
        }
    }

    fn fork(&mut self) -> Box<dyn Random> {
        Box::new(self.clone())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn bytes_are_neither_repeated_nor_left_behind() {
        let mut random = SystemRandom::new();
        let mut seen = HashSet::new();
        for _ in 0..1_000 {
            let mut bytes = [0; 13];
            random.fill(&mut bytes);
            assert!(seen.insert(bytes));
            let buffer = random.buffer.lock().unwrap();
            assert!(buffer.bytes[..buffer.used].iter().all(|byte| *byte == 0));
        }
    }

    #[test]
    fn more_than_a_buffer_is_filled_whole() {
        let mut out = vec![0; 5 * BUFFER_LEN];
        SystemRandom::new().fill(&mut out);
        assert!(out.chunks(16).all(|chunk| chunk.iter().any(|byte| *byte != 0)));
    }

    #[test]
    fn forks_give_other_bytes() {
        let mut random = SystemRandom::new();
        let mut fork = random.fork();
        let mut seen = HashSet::new();
        for _ in 0..500 {
            assert!(seen.insert(random.next_u64()));
            assert!(seen.insert(fork.next_u64()));
        }
    }
}
