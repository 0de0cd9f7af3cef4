//! A line of JSON for each request, written by a thread of its own: a full disk or a slow reader costs
//! lines, which are counted, and no request its time.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::task::{Context, Poll};
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use http::{Request, Version};
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::BodyExt;
use prometheus_client::metrics::counter::Counter;
use serde::Serialize;

use crate::clients::Held;
use crate::metrics::RouteMetrics;
use crate::{Body, BodyError};

/// Lines that wait to be written.
const QUEUE: usize = 4096;

/// What became of a request.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Record {
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
    pub(crate) route: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) origin: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) server: Option<String>,
    pub(crate) attempts: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) detail: Option<String>,
}

impl Record {
    /// A record of what is known at once.
    pub(crate) fn of(request: &Request<Body>, client: SocketAddr, early: bool) -> Self {
        let host = request.headers().get(http::header::HOST).and_then(|host| host.to_str().ok());
        let host = request.uri().authority().map(http::uri::Authority::as_str).or(host);
        Self {
            time: httpdate::fmt_http_date(SystemTime::now()),
            client,
            protocol: match request.version() {
                Version::HTTP_3 => "h3",
                Version::HTTP_2 => "h2",
                _ => "http/1.1",
            },
            method: request.method().to_string(),
            host: host.map(ToOwned::to_owned),
            path: request.uri().path().to_owned(),
            early,
            status: 0,
            sent: 0,
            took_ms: 0.0,
            route: None,
            origin: None,
            server: None,
            attempts: 0,
            error: None,
            detail: None,
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
        let file = match path.as_os_str() == "-" {
            true => None,
            false => Some((append_to(path)?, path.to_owned())),
        };
        let (sender, receiver) = sync_channel(QUEUE);
        let lost = Arc::new(AtomicU64::new(0));
        let (counted, in_all) = (Arc::clone(&lost), lost_in_all.clone());
        std::thread::Builder::new()
            .name("quicket-log".to_owned())
            .spawn(move || write_all(file, &receiver, &counted, &in_all))?;
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

fn write_all(
    mut file: Option<(File, PathBuf)>,
    entries: &Receiver<Entry>,
    lost: &AtomicU64,
    lost_in_all: &Counter,
) {
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
                if let Some((file, path)) = &mut file {
                    match append_to(path) {
                        Ok(opened) => *file = opened,
                        Err(error) => log::warn!("cannot open {} anew: {error}", path.display()),
                    }
                }
                continue;
            }
        };
        let mut text = String::new();
        let missing = lost.swap(0, Ordering::Relaxed);
        if missing > 0 {
            text = format!("{{\"lines_lost\":{missing}}}\n");
        }
        text += &line;
        text.push('\n');
        let written = match &mut file {
            Some((file, _)) => file.write_all(text.as_bytes()),
            None => io::stderr().lock().write_all(text.as_bytes()),
        };
        if written.is_err() {
            lost.fetch_add(1 + missing, Ordering::Relaxed);
            lost_in_all.inc();
        }
    }
}

/// Notes the end of a request, which is that of its answer's body.
pub(crate) struct Followed {
    body: Body,
    entry: Option<Box<(Log, Record, Instant)>>,
    counters: Option<Arc<RouteMetrics>>,
    /// It counts for the client until then.
    _counted: Option<Held>,
}

impl Followed {
    pub(crate) fn new(
        log: Log,
        record: Record,
        begun: Instant,
        counters: Option<Arc<RouteMetrics>>,
        counted: Option<Held>,
    ) -> Self {
        let entry = Some(Box::new((log, record, begun)));
        Self { body: Body::default(), entry, counters, _counted: counted }
    }

    /// A body whose end, or drop before, is the request's.
    pub(crate) fn body(mut self, body: Body) -> Body {
        self.body = body;
        self.boxed_unsync()
    }

    fn end(&mut self, error: Option<String>) {
        if let Some((log, mut record, begun)) = self.entry.take().map(|entry| *entry) {
            if let Some(counters) = &self.counters {
                counters.answered(record.status, begun.elapsed(), record.sent);
            }
            record.took_ms = begun.elapsed().as_micros() as f64 / 1000.0;
            record.error = record.error.or(error);
            log.put(Entry::Record(Box::new(record)));
        }
    }
}

impl http_body::Body for Followed {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        match &polled {
            Poll::Ready(Some(Ok(frame))) => {
                if let (Some(data), Some(entry)) = (frame.data_ref(), &mut self.entry) {
                    entry.1.sent += data.len() as u64;
                }
            }
            Poll::Ready(Some(Err(error))) => {
                let error = error.to_string();
                self.end(Some(error));
            }
            Poll::Ready(None) => self.end(None),
            Poll::Pending => {}
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Followed {
    fn drop(&mut self) {
        let is_whole = self.body.is_end_stream();
        self.end((!is_whole).then(|| "the client did not take the whole answer".to_owned()));
    }
}
