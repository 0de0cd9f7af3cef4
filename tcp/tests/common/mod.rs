//! A switch for packets in this process.
#![allow(dead_code, unreachable_pub, reason = "each test uses some of it")]

use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use quicket_packets::Counters;
use quicket_packets::daemon::Daemon;
use quicket_tcp::{Options, Stack};

/// What a test waits for at most.
pub const PATIENCE: Duration = Duration::from_secs(20);

pub struct Switch {
    pub path: PathBuf,
    stop: Option<UnixStream>,
    thread: Option<JoinHandle<Counters>>,
}

impl Switch {
    pub fn start() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("quicket-tcp-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let daemon = Daemon::bind(&path, false).unwrap();
        let (stop, stopped) = UnixStream::pair().unwrap();
        let thread = std::thread::spawn(move || daemon.run(stopped.as_fd()).unwrap());
        Self { path, stop: Some(stop), thread: Some(thread) }
    }

    pub fn stack(&self) -> Stack {
        Stack::open(&self.path).unwrap()
    }

    pub fn stack_with(&self, options: Options) -> Stack {
        Stack::with_options(&self.path, options).unwrap()
    }

    /// Ends it: what became of all frames.
    pub fn end(mut self) -> Counters {
        drop(self.stop.take());
        self.thread.take().unwrap().join().unwrap()
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(ended.is_ok() || std::thread::panicking(), "the switch has panicked");
        }
    }
}

/// Octets that differ from place to place.
pub fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|n| (n ^ n >> 8 ^ n >> 16) as u8).collect()
}

/// Waits until it is so.
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}
