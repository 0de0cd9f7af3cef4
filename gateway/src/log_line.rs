//! A line of JSON for each request, written by a thread of its own: a full disk or a slow reader costs
//! lines, which are counted, and no request its time.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::task::Poll;
use std::time::{Duration, Instant, SystemTime};

use http::{Request, Version};
use http_body_util::BodyExt;
use prometheus_client::metrics::counter::Counter;
use quicket_front::{Polled, Watch, Watched};
use serde::Serialize;

use crate::Body;
use crate::clients::Held;
use crate::metrics::RouteMetrics;
use crate::quota::Taken;
use crate::spans::Served;

/// Lines that wait to be written.
const QUEUE: usize = 4096;

/// What became of a request.
#[derive(Debug, Serialize)]
pub(crate) struct Record {
    /// There is a log for it: without one nothing is noted that only a log has.
    #[serde(skip)]
    is_kept: bool,
    /// Its span for OpenTelemetry, if it has one.
    #[serde(skip)]
    pub(crate) span: Option<Served>,
    /// RFC 9110's date, in seconds.
    time: String,
    client: SocketAddr,
    protocol: &'static str,
    method: String,
    host: Option<String>,
    path: String,
    /// It came as 0-RTT data.
    early: bool,
    pub(crate) status: u16,
    /// Bytes of the answer's body that were passed on.
    sent: u64,
    took_ms: f64,
    /// The path of the route.
    #[serde(skip_serializing_if = "Option::is_none")]
    route: Option<String>,
    /// The fingerprint of the client's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) client_certificate: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    origin: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    server: Option<String>,
    attempts: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) detail: Option<String>,
}

impl Record {
    /// A record of what is known at once.
    pub(crate) fn of(log: &Log, request: &Request<Body>, client: SocketAddr, early: bool) -> Self {
        let is_kept = log.0.is_some();
        let kept = |text: &str| if is_kept { text.to_owned() } else { String::new() };
        let host = request.headers().get(http::header::HOST).and_then(|host| host.to_str().ok());
        let host = request.uri().authority().map(http::uri::Authority::as_str).or(host);
        Self {
            is_kept,
            span: None,
            time: if is_kept { httpdate::fmt_http_date(SystemTime::now()) } else { String::new() },
            client,
            protocol: match request.version() {
                Version::HTTP_3 => "h3",
                Version::HTTP_2 => "h2",
                _ => "http/1.1",
            },
            method: kept(request.method().as_str()),
            host: host.map(kept),
            path: kept(request.uri().path()),
            early,
            status: 0,
            sent: 0,
            took_ms: 0.0,
            route: None,
            client_certificate: None,
            origin: None,
            server: None,
            attempts: 0,
            error: None,
            detail: None,
        }
    }

    /// The path of the route that it takes.
    pub(crate) fn takes(&mut self, route: &str) {
        if let Some(span) = &mut self.span {
            span.takes(route);
        }
        self.route = self.is_kept.then(|| route.to_owned());
    }

    /// Which origin was asked, which of its servers last, and how many.
    pub(crate) fn asks(&mut self, origin: &str, server: Option<&str>, attempts: usize) {
        if self.is_kept {
            self.origin = Some(origin.to_owned());
            self.server = server.map(ToOwned::to_owned);
            self.attempts = attempts;
        }
    }
}

/// Where records go; nowhere if nobody asked for them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Log(Option<Arc<Queue>>);

#[derive(Debug)]
struct Queue {
    entries: SyncSender<Entry>,
    lost: Arc<AtomicU64>,
    /// All that were ever lost.
    lost_in_all: Counter,
}

#[derive(Debug)]
enum Entry {
    Record(Box<Record>),
    /// Of something else than a request.
    Line(String),
    /// Tells that all before it is written.
    Mark(SyncSender<()>),
    /// The file is opened anew.
    Reopen,
}

impl Log {
    /// Opens the log: `-` is standard error.
    pub(crate) fn open(path: Option<&Path>, lost_in_all: Counter) -> io::Result<Self> {
        let Some(path) = path else { return Ok(Self(None)) };
        let sink = Sink::open(path)?;
        let (sender, receiver) = sync_channel(QUEUE);
        let lost = Arc::new(AtomicU64::new(0));
        let (counted, in_all) = (Arc::clone(&lost), lost_in_all.clone());
        std::thread::Builder::new()
            .name("quicket-log".to_owned())
            .spawn(move || write_all(sink, &receiver, &counted, &in_all))?;
        Ok(Self(Some(Arc::new(Queue { entries: sender, lost, lost_in_all }))))
    }

    /// Writes a line about something else than a request.
    pub(crate) fn note(&self, record: &impl Serialize) {
        if self.0.is_some() {
            // A record has nothing that JSON cannot express.
            self.put(Entry::Line(serde_json::to_string(record).unwrap_or_default()));
        }
    }

    fn put(&self, entry: Entry) {
        if let Some(queue) = &self.0
            && queue.entries.try_send(entry).is_err()
        {
            queue.lost.fetch_add(1, Ordering::Relaxed);
            queue.lost_in_all.inc();
        }
    }

    /// Waits until all that is there is written, or `limit` is over.
    pub(crate) fn flush(&self, limit: Duration) {
        let (mark, written) = sync_channel(1);
        if let Some(queue) = &self.0
            && queue.entries.try_send(Entry::Mark(mark)).is_ok()
        {
            let _ = written.recv_timeout(limit);
        }
    }

    /// Has the file opened anew, after it was moved aside.
    pub(crate) fn reopen(&self) {
        if let Some(queue) = &self.0 {
            // Where the queue is full, the writer has other troubles.
            let _ = queue.entries.try_send(Entry::Reopen);
        }
    }
}

fn append_to(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).open(path)
}

/// Whether what is there ends in the middle of a line: of a process before, whose disk was full.
fn is_torn(path: &Path) -> bool {
    let last = || -> io::Result<bool> {
        let mut file = File::open(path)?;
        if !file.metadata()?.is_file() || file.metadata()?.len() == 0 {
            return Ok(false);
        }
        file.seek(SeekFrom::End(-1))?;
        let mut last = [0];
        file.read_exact(&mut last)?;
        Ok(last != *b"\n")
    };
    // What cannot be looked at can be written to all the same.
    last().unwrap_or(false)
}

/// Lines, each of which is there whole or is counted as lost.
struct Lines<W> {
    to: W,
    /// What was written last has no end.
    is_torn: bool,
}

impl<W: Write> Lines<W> {
    /// Writes a line; false if it is not there whole. Of such a line there may be a part: the next one begins
    /// behind it, on a line of its own.
    fn put(&mut self, line: &str) -> bool {
        let begin = if self.is_torn { "\n" } else { "" };
        let text = format!("{begin}{line}\n");
        let mut left = text.as_bytes();
        while !left.is_empty() {
            match self.to.write(left) {
                Ok(written) if written > 0 => left = left.get(written..).unwrap_or_default(),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                _ => break,
            }
        }
        let written = text.len() - left.len();
        if written > 0 {
            // An end that closes the line before is an end.
            self.is_torn = !text.as_bytes().get(..written).is_some_and(|all| all.ends_with(b"\n"));
        }
        // Where nothing but the end is missing, the next line brings it.
        left.len() <= 1
    }
}

/// Where lines go: a file, or standard error.
enum Sink {
    File(Lines<File>, PathBuf),
    Stderr(Lines<io::Stderr>),
}

impl Sink {
    fn open(path: &Path) -> io::Result<Self> {
        if path.as_os_str() == "-" {
            return Ok(Self::Stderr(Lines { to: io::stderr(), is_torn: false }));
        }
        let to = append_to(path)?;
        Ok(Self::File(Lines { to, is_torn: is_torn(path) }, path.to_owned()))
    }

    fn put(&mut self, line: &str) -> bool {
        match self {
            Self::File(lines, _) => lines.put(line),
            Self::Stderr(lines) => lines.put(line),
        }
    }

    fn reopen(&mut self) {
        if let Self::File(_, path) = self {
            match Self::open(path) {
                Ok(opened) => *self = opened,
                Err(error) => log::warn!("cannot open {} anew: {error}", path.display()),
            }
        }
    }
}

fn write_all(mut sink: Sink, entries: &Receiver<Entry>, lost: &AtomicU64, lost_in_all: &Counter) {
    while let Ok(entry) = entries.recv() {
        let line = match entry {
            // A record has nothing that JSON cannot express.
            Entry::Record(record) => serde_json::to_string(&record).unwrap_or_default(),
            Entry::Line(line) => line,
            Entry::Mark(written) => {
                let _ = written.try_send(());
                continue;
            }
            Entry::Reopen => {
                sink.reopen();
                continue;
            }
        };
        let missing = lost.swap(0, Ordering::Relaxed);
        let is_told = missing == 0 || sink.put(&format!("{{\"lines_lost\":{missing}}}"));
        if !is_told {
            lost.fetch_add(missing, Ordering::Relaxed);
        }
        // What is lost is told first, so that the order is right.
        if !is_told || !sink.put(&line) {
            lost.fetch_add(1, Ordering::Relaxed);
            lost_in_all.inc();
        }
    }
}

/// Notes the end of a request, which is that of its answer's body.
pub(crate) struct Followed {
    entry: Option<(Log, Box<Record>, Instant)>,
    counters: Option<Arc<RouteMetrics>>,
    /// It counts for the client and for the site until then.
    _counted: Counted,
}

/// What a request counts as.
pub(crate) type Counted = (Option<Held>, Option<Arc<Taken>>);

impl Followed {
    pub(crate) fn new(
        log: Log,
        record: Record,
        begun: Instant,
        counters: Option<Arc<RouteMetrics>>,
        counted: Counted,
    ) -> Self {
        let entry = Some((log, Box::new(record), begun));
        Self { entry, counters, _counted: counted }
    }

    /// A body whose end, or drop before, is the request's.
    pub(crate) fn body(self, body: Body) -> Body {
        Watched::new(body, self).boxed_unsync()
    }

    fn end(&mut self, error: Option<String>) {
        if let Some((log, mut record, begun)) = self.entry.take() {
            if let Some(counters) = &self.counters {
                counters.answered(record.status, begun.elapsed(), record.sent);
            }
            if let Some(span) = record.span.take() {
                span.end(record.status, record.sent, record.error.as_deref(), error.is_none());
            }
            if !record.is_kept {
                return;
            }
            record.took_ms = begun.elapsed().as_micros() as f64 / 1000.0;
            record.error = record.error.or(error);
            log.put(Entry::Record(record));
        }
    }
}

impl Watch for Followed {
    fn on_frame(&mut self, polled: &Polled, _: bool) {
        match polled {
            Poll::Ready(Some(Ok(frame))) => {
                if let (Some(data), Some(entry)) = (frame.data_ref(), &mut self.entry) {
                    entry.1.sent += data.len() as u64;
                }
            }
            Poll::Ready(Some(Err(error))) => self.end(Some(error.to_string())),
            Poll::Ready(None) => self.end(None),
            Poll::Pending => {}
        }
    }

    fn on_drop(&mut self, is_end: bool) {
        self.end((!is_end).then(|| "the client did not take the whole answer".to_owned()));
    }
}

impl Drop for Followed {
    /// Where there was no body to follow.
    fn drop(&mut self) {
        self.end(None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A disk with so much room.
    struct Disk {
        text: Vec<u8>,
        room: usize,
    }

    impl Write for Disk {
        fn write(&mut self, data: &[u8]) -> io::Result<usize> {
            let taken = data.len().min(self.room);
            if taken == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.room -= taken;
            self.text.extend(&data[..taken]);
            Ok(taken)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn wherever_a_disk_gets_full_no_line_runs_into_another() {
        for room in 0..30 {
            let mut lines = Lines { to: Disk { text: Vec::new(), room }, is_torn: false };
            let mut whole: Vec<&str> =
                ["first", "second", "third"].into_iter().filter(|line| lines.put(line)).collect();
            lines.to.room = 1;
            assert!(!lines.put("fourth"));
            lines.to.room = 100;
            assert!(lines.put("fifth") && lines.put("sixth"));
            whole.extend(["fifth", "sixth"]);
            let text = String::from_utf8(lines.to.text).unwrap();
            assert!(text.ends_with('\n'));
            let all = ["first", "second", "third", "fourth", "fifth", "sixth"];
            for line in text.lines() {
                assert!(all.iter().any(|all| all.starts_with(line)), "{line:?} of {text:?}");
            }
            let found = |line: &&str| text.lines().any(|found| found == *line);
            assert!(whole.iter().all(found), "{whole:?} of {text:?}");
        }
    }

    #[test]
    fn a_log_that_ends_in_the_middle_of_a_line_goes_on_with_a_new_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        for (before, after) in
            [("", "line\n"), ("whole\n", "whole\nline\n"), ("tor", "tor\nline\n")]
        {
            std::fs::write(&path, before).unwrap();
            assert!(Sink::open(&path).unwrap().put("line"));
            assert_eq!(std::fs::read_to_string(&path).unwrap(), after);
        }
    }
}
