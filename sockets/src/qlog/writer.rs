//! From memory to files: logs collect bytes, and one thread writes them.
//!
//! A log that has something to write stands in a queue, at most once. Its bytes stay with it
//! until the thread takes them all, so whoever logs waits for nothing but a short lock. What
//! waits in all logs together is bounded.

use std::collections::VecDeque;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// How long the thread lets bytes gather before it writes them.
const GATHER: Duration = Duration::from_millis(20);
/// How much must wait for the thread to begin at once, in bytes.
const URGENT: usize = 1 << 20;

/// The thread and its queue. The thread ends, having written everything, after this is dropped.
pub(super) struct Writer {
    shared: Arc<Shared>,
}

/// Where qlog files go, if they do not go into a folder. One thread calls it, which may wait here: meanwhile events
/// gather in memory, and are left out and counted when that is full.
pub trait QlogPlace: Send + Sync {
    /// Appends to the file of a connection, which has not been there before if `is_new`. Names have nothing in them but
    /// hexadecimal digits, letters, `_` and `.`.
    ///
    /// # Errors
    ///
    /// If that is not possible. Nothing more comes for this file, nor after a panic.
    fn append(&self, name: &str, is_new: bool, bytes: &[u8]) -> io::Result<()>;
}

/// A folder in the file system.
pub(super) struct Folder(pub(super) PathBuf);

impl QlogPlace for Folder {
    fn append(&self, name: &str, is_new: bool, bytes: &[u8]) -> io::Result<()> {
        append_to_file(&self.0.join(name), !is_new, bytes)
    }
}

struct Shared {
    place: Box<dyn QlogPlace>,
    queue: Mutex<Queue>,
    /// There is something to do.
    work: Condvar,
    /// A flush is done.
    flushed: Condvar,
    /// Bytes that wait in all logs.
    waiting: AtomicUsize,
    /// How many may.
    limit: usize,
}

#[derive(Default)]
struct Queue {
    logs: VecDeque<Arc<Log>>,
    flushes_wanted: u64,
    flushes_done: u64,
    urgent: bool,
    closed: bool,
    /// The thread has ended.
    over: bool,
}

/// The log of one connection.
struct Log {
    name: String,
    memory: Mutex<Memory>,
}

#[derive(Default)]
struct Memory {
    bytes: Vec<u8>,
    /// It stands in the queue.
    queued: bool,
    /// The file was made.
    created: bool,
    /// The file cannot be written.
    failed: bool,
}

/// Where one connection logs to.
pub(super) struct LogSink {
    log: Arc<Log>,
    /// Keeps the thread.
    writer: Arc<Writer>,
}

impl Writer {
    /// Starts the thread. `limit` bounds the bytes that wait.
    pub(super) fn start(place: Box<dyn QlogPlace>, limit: usize) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            place,
            queue: Mutex::default(),
            work: Condvar::new(),
            flushed: Condvar::new(),
            waiting: AtomicUsize::new(0),
            limit,
        });
        let worker = Arc::clone(&shared);
        thread::Builder::new().name("quicket-qlog".into()).spawn(move || worker.run())?;
        Ok(Self { shared })
    }

    /// A log that becomes the file `name`.
    pub(super) fn log(self: &Arc<Self>, name: &str) -> LogSink {
        let log = Log { name: name.to_owned(), memory: Mutex::default() };
        LogSink { log: Arc::new(log), writer: Arc::clone(self) }
    }

    /// Waits until everything that was logged before is written.
    pub(super) fn flush(&self) {
        let shared = &*self.shared;
        let mut queue = shared.queue();
        queue.flushes_wanted += 1;
        let wanted = queue.flushes_wanted;
        shared.work.notify_one();
        while queue.flushes_done < wanted && !queue.over {
            queue = shared.flushed.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.shared.queue().closed = true;
        self.shared.work.notify_one();
    }
}

impl LogSink {
    /// Lets `write` append to the log, if there is room; false if there is none, or the file
    /// cannot be written.
    pub(super) fn append(&self, write: impl FnOnce(&mut Vec<u8>)) -> bool {
        let shared = &*self.writer.shared;
        let waiting = shared.waiting.load(Ordering::Relaxed);
        if waiting >= shared.limit {
            return false;
        }
        let mut memory = self.log.memory();
        if memory.failed {
            return false;
        }
        let before = memory.bytes.len();
        write(&mut memory.bytes);
        let added = memory.bytes.len() - before;
        let newly = added > 0 && !std::mem::replace(&mut memory.queued, true);
        // Under the lock, so that the thread does not subtract it first.
        shared.waiting.fetch_add(added, Ordering::Relaxed);
        drop(memory);
        // Wake the thread once when the mark is passed, not with every event above it.
        let urgent = waiting < URGENT && waiting + added >= URGENT;
        if newly || urgent {
            let mut queue = shared.queue();
            queue.urgent |= urgent;
            if newly {
                queue.logs.push_back(Arc::clone(&self.log));
            }
            if urgent || queue.logs.len() == 1 {
                shared.work.notify_one();
            }
        }
        true
    }
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The thread.
    fn run(&self) {
        let _end = End(self);
        let mut spare = Vec::new();
        loop {
            let (logs, flushes, closed) = self.next_batch();
            for log in &logs {
                self.write(log, &mut spare);
            }
            self.queue().flushes_done = flushes;
            self.flushed.notify_all();
            if closed && logs.is_empty() {
                return;
            }
        }
    }

    /// Waits for something to do.
    fn next_batch(&self) -> (VecDeque<Arc<Log>>, u64, bool) {
        let in_a_hurry = |queue: &Queue| queue.closed || queue.flushes_wanted > queue.flushes_done;
        let queue = self
            .work
            .wait_while(self.queue(), |queue| queue.logs.is_empty() && !in_a_hurry(queue))
            .unwrap_or_else(PoisonError::into_inner);
        let (mut queue, _) = self
            .work
            .wait_timeout_while(queue, GATHER, |queue| !queue.urgent && !in_a_hurry(queue))
            .unwrap_or_else(PoisonError::into_inner);
        queue.urgent = false;
        (std::mem::take(&mut queue.logs), queue.flushes_wanted, queue.closed)
    }

    /// Writes what a log has; `spare` becomes its next memory.
    fn write(&self, log: &Log, spare: &mut Vec<u8>) {
        let mut memory = log.memory();
        std::mem::swap(&mut memory.bytes, spare);
        memory.queued = false;
        let created = std::mem::replace(&mut memory.created, true);
        drop(memory);
        // The thread serves other logs, too.
        let appended =
            catch_unwind(AssertUnwindSafe(|| self.place.append(&log.name, !created, spare)));
        let failure = match appended {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(_) => Some("the place for qlog files has panicked".to_owned()),
        };
        if let Some(failure) = failure {
            log::warn!("{} is not written: {failure}", log.name);
            log.memory().failed = true;
        }
        self.waiting.fetch_sub(spare.len(), Ordering::Relaxed);
        spare.clear();
        // One burst of one connection must not keep its memory for good.
        spare.shrink_to(URGENT);
    }
}

/// However the thread ends, nobody waits for it any longer.
struct End<'a>(&'a Shared);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.queue().over = true;
        self.0.flushed.notify_all();
    }
}

impl Log {
    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Appends to a file. It is not kept open: with many connections, the process would run out of
/// file descriptors.
fn append_to_file(path: &Path, created: bool, bytes: &[u8]) -> io::Result<()> {
    let mut options = OpenOptions::new();
    if created {
        options.append(true)
    } else {
        options.write(true).create_new(true)
    };
    options.open(path)?.write_all(bytes)
}
