//! One line per request on standard error.

use std::fmt;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender, TrySendError};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use crate::units::{Bytes, Time};

/// A request that was answered, or not.
#[derive(Debug)]
pub(crate) struct Record<'a> {
    pub(crate) remote: SocketAddr,
    pub(crate) protocol: &'static str,
    pub(crate) method: &'a str,
    pub(crate) target: &'a str,
    /// The status, if there is one.
    pub(crate) status: Option<u16>,
    /// How much of the body was sent.
    pub(crate) sent: u64,
    pub(crate) took: Duration,
    /// It came as 0-RTT data.
    pub(crate) early: bool,
    /// Why the answer is not complete.
    pub(crate) error: Option<String>,
}

impl fmt::Display for Record<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { remote, protocol, method, .. } = self;
        // What clients send must not reach the terminal as control characters.
        let target = self.target.escape_default();
        write!(f, "{remote} {protocol} {} {target}", method.escape_default())?;
        if let Some(status) = self.status {
            write!(f, " {status}")?;
        }
        write!(f, " {} {}", Bytes(self.sent), Time(self.took))?;
        if self.early {
            f.write_str(" 0-RTT")?;
        }
        match &self.error {
            Some(error) => write!(f, " incomplete: {}", error.escape_debug()),
            None => Ok(()),
        }
    }
}

impl Record<'_> {
    /// Writes the line, with the time of day.
    pub(crate) fn print(&self) {
        say(format_args!("{} {self}", httpdate::fmt_http_date(SystemTime::now())));
    }
}

/// Lines that wait to be written.
const QUEUE: usize = 1024;
/// How long the end of the process waits for them.
const PATIENCE: Duration = Duration::from_millis(200);
const PAUSE: Duration = Duration::from_millis(5);

static LOG: OnceLock<Log> = OnceLock::new();

/// A thread that writes, so that nobody else waits for who reads.
struct Log {
    queue: SyncSender<Entry>,
    lost: Arc<AtomicU64>,
}

enum Entry {
    Line(String),
    /// All before it is to be written; then this ends.
    Mark(SyncSender<()>),
}

impl Log {
    fn new(to: impl Write + Send + 'static) -> Self {
        let (queue, entries) = mpsc::sync_channel(QUEUE);
        let lost = Arc::<AtomicU64>::default();
        let counted = Arc::clone(&lost);
        let thread = thread::Builder::new().name("quicket-log".to_owned());
        // Without it nobody takes lines: all are lost, which nobody is told then.
        let _ = thread.spawn(move || write(&entries, &counted, to));
        Self { queue, lost }
    }

    fn say(&self, line: String) {
        if self.queue.try_send(Entry::Line(line)).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn flush(&self) {
        let begun = Instant::now();
        let (mark, written) = mpsc::sync_channel(0);
        let mut entry = Entry::Mark(mark);
        while let Err(TrySendError::Full(back)) = self.queue.try_send(entry) {
            if begun.elapsed() > PATIENCE {
                return;
            }
            entry = back;
            thread::sleep(PAUSE);
        }
        // The other end is dropped, and nothing comes.
        let _ = written.recv_timeout(PATIENCE.saturating_sub(begun.elapsed()));
    }
}

fn write(entries: &Receiver<Entry>, lost: &AtomicU64, mut to: impl Write) {
    for entry in entries {
        let line = match entry {
            Entry::Line(line) => line,
            Entry::Mark(waits) => {
                drop(waits);
                continue;
            }
        };
        let _ = writeln!(to, "{line}");
        let lost = lost.swap(0, Ordering::Relaxed);
        if lost > 0 {
            let _ = writeln!(to, "{lost} lines were lost here: nobody read them");
        }
    }
}

/// Writes a line on standard error, for which nobody waits. If nobody reads that any more, such as a terminal that was
/// closed, or does not for now, such as a pager, serving goes on: lines are lost then, and counted.
pub(crate) fn say(line: fmt::Arguments<'_>) {
    LOG.get_or_init(|| Log::new(io::stderr())).say(line.to_string());
}

/// Takes what others write line by line, each in one piece, as [`say`] does.
pub(crate) struct Lines;

impl Write for Lines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        say(format_args!("{}", String::from_utf8_lossy(line).trim_end_matches('\n')));
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Waits until what was said has been written, but not for long.
pub(crate) fn flush() {
    LOG.get().iter().for_each(|log| log.flush());
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// Takes what is written once it is unlocked.
    #[derive(Clone, Default)]
    struct Pipe(Arc<Mutex<Vec<u8>>>);

    impl Write for Pipe {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn nobody_waits_for_who_reads_and_what_is_lost_is_counted() {
        let pipe = Pipe::default();
        let log = Log::new(pipe.clone());
        let full = pipe.0.lock().unwrap();
        // The thread has one in its hands, or will have.
        let said = QUEUE + 100;
        for line in 0..said {
            log.say(line.to_string());
        }
        let begun = Instant::now();
        log.flush();
        assert!(begun.elapsed() < Duration::from_secs(10), "it waited for who reads");
        drop(full);
        log.say("last".to_owned());
        let begun = Instant::now();
        let written = || String::from_utf8(pipe.0.lock().unwrap().clone()).unwrap();
        while !written().contains("lost here") || written().lines().count() < QUEUE {
            assert!(begun.elapsed() < Duration::from_secs(10), "{}", written());
            thread::sleep(PAUSE);
        }
        log.flush();
        let written = written();
        let (lost, lines): (Vec<_>, Vec<_>) =
            written.lines().partition(|line| line.ends_with("lost here: nobody read them"));
        let count = |line: &&str| line.split(' ').next().unwrap().parse::<usize>().unwrap();
        let lost: usize = lost.iter().map(count).sum();
        assert_eq!(lost + lines.len(), said + 1);
        assert!((99..=101).contains(&lost), "{lost}");
        assert_eq!(lines[..3], ["0", "1", "2"]);
    }

    #[test]
    fn lines_say_all_and_have_no_control_characters() {
        let mut record = Record {
            remote: "127.0.0.1:5".parse().unwrap(),
            protocol: "h3",
            method: "GET",
            target: "/a\u{1b}[2J",
            status: Some(200),
            sent: 1500,
            took: Duration::from_millis(3),
            early: true,
            error: None,
        };
        let line = record.to_string();
        assert_eq!(line, "127.0.0.1:5 h3 GET /a\\u{1b}[2J 200 1.5 kB 3.0 ms 0-RTT");
        record.error = Some("reset".to_owned());
        assert!(record.to_string().ends_with("incomplete: reset"));
    }
}
