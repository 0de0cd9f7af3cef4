//! A switch for packets in this process. The tests of TCP have it, too.

use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;

use quicket_packets::Counters;
use quicket_packets::daemon::Daemon;

pub struct Switch {
    pub path: PathBuf,
    stop: Option<UnixStream>,
    thread: Option<JoinHandle<Counters>>,
}

impl Switch {
    pub fn start() -> Self {
        Self::begin(false)
    }

    /// One of all users.
    pub fn start_for_all() -> Self {
        Self::begin(true)
    }

    fn begin(for_all: bool) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("quicket-packets-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let daemon = Daemon::bind(&path, for_all).unwrap();
        let (stop, stopped) = UnixStream::pair().unwrap();
        let thread = std::thread::spawn(move || daemon.run(stopped.as_fd()).unwrap());
        Self { path, stop: Some(stop), thread: Some(thread) }
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
            // It panicked, if there is an error: so does the test.
            let ended = thread.join();
            assert!(ended.is_ok() || std::thread::panicking(), "the switch has panicked");
        }
    }
}
