//! A capture, from its beginning to its end.

use std::collections::HashSet;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use quicket::{Captures, Capturing, Qlog};
use serde::{Deserialize, Serialize};

use super::file::Blocks;
use super::frame::{Frame, MAX_LEN};
use super::queue::{Batch, Pieces, Queue};
use super::request::{Allowed, Refused, Request};
use super::tap::Tap;

/// What qlogs may hold in memory before it waits, in bytes.
const QLOG_MEMORY: usize = 16 << 20;
/// How much of the file is gathered before it is told, in bytes.
const CHUNK: usize = 64 << 10;

/// Why a capture has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EndedBy {
    /// Its time is over.
    Time,
    /// It has as many bytes as it may.
    Size,
    /// Whoever has asked wants no more.
    Asker,
    /// The file was read again and does not allow it any more. What still waited is not told.
    File,
    /// The gateway stops.
    Gateway,
}

/// What a capture has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// Why it has ended.
    pub ended: EndedBy,
    /// Datagrams in the file.
    pub datagrams: u64,
    /// Those that are not in it, as writing did not keep up or there was no more room.
    pub datagrams_lost: u64,
    /// Lines of secrets in the file.
    pub secrets: u64,
    /// Those that are not in it.
    pub secrets_lost: u64,
    /// Connections with a qlog.
    pub qlogs: u64,
    /// Those of which a part is not in it, or which have none for lack of room.
    pub qlogs_cut: u64,
    /// Bytes of the file and of qlogs.
    pub bytes: u64,
    /// The next generation has taken over meanwhile: what is new since then is not in it.
    pub superseded: bool,
}

/// What becomes of the gateway meanwhile.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Circumstances {
    /// What the file allows now.
    pub(crate) allowed: Option<Allowed>,
    pub(crate) superseded: bool,
    /// It has ended what was under way.
    pub(crate) stops: bool,
}

/// Captures, and tells `to` what, until it ends. `look` says what becomes of the gateway, `is_wanted` whether whoever has
/// asked wants more.
///
/// # Errors
///
/// What writing says. The capture has ended then.
pub(crate) fn run(
    captures: &Captures,
    request: &Request,
    to: &mut impl Write,
    look: impl Fn() -> Circumstances,
    is_wanted: impl Fn() -> bool,
) -> io::Result<Result<Report, Refused>> {
    let limits = match request.check(look().allowed.as_ref()) {
        Ok(limits) => limits,
        Err(refused) => return Ok(Err(refused)),
    };
    let queue = Arc::new(Queue::default());
    let qlog = match request.qlog {
        true => {
            let qlog = Qlog::to(Box::new(Pieces(Arc::clone(&queue))), QLOG_MEMORY)?;
            Some(if request.anonymous { qlog.without_addresses() } else { qlog })
        }
        false => None,
    };
    let tap = Arc::new(Tap::new(request, Arc::clone(&queue)));
    let Some(capturing) = captures.begin(tap, qlog.clone()) else {
        return Ok(Err(Refused("a capture runs already: end it, or wait for its end".to_owned())));
    };
    let running = Running { capturing: Some(capturing), queue: &queue, qlog };
    let mut output = Output::new(to, limits.bytes, request.datagrams);
    output.begin(request)?;
    let begun = Instant::now();
    let mut superseded = false;
    let ended = loop {
        let now = look();
        superseded |= now.superseded;
        // The file may have been read again, and allow less.
        let Ok(limits) = request.check(now.allowed.as_ref()) else {
            output.close();
            break EndedBy::File;
        };
        output.most = limits.bytes;
        if now.stops {
            break EndedBy::Gateway;
        } else if !is_wanted() {
            break EndedBy::Asker;
        } else if begun.elapsed() >= limits.time {
            break EndedBy::Time;
        }
        if !output.take(queue.take(false))? {
            break EndedBy::Size;
        }
    };
    running.end(|| output.take(queue.take(true)).map(|_| ()))?;
    output.take(queue.take(true))?;
    let report = output.end(ended, superseded, &queue)?;
    Ok(Ok(report))
}

/// A capture that ends when this is dropped, whatever happens.
struct Running<'a> {
    capturing: Option<Capturing>,
    queue: &'a Queue,
    qlog: Option<Qlog>,
}

impl Running<'_> {
    /// Ends it, and has qlogs complete.
    fn end(mut self, take: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        drop(self.capturing.take());
        self.queue.close();
        take()?;
        if let Some(qlog) = self.qlog.take() {
            qlog.flush();
        }
        Ok(())
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        drop(self.capturing.take());
        // The thread of the logs may wait for room.
        self.queue.close();
    }
}

/// What is told.
struct Output<'a, W> {
    to: &'a mut W,
    blocks: Blocks,
    /// Of the file, not told yet.
    pending: Vec<u8>,
    has_file: bool,
    begun: SystemTime,
    most: u64,
    /// Something was left out: so is all that comes, as a qlog with a hole tells what has not been.
    is_full: bool,
    bytes: u64,
    datagrams: u64,
    /// Not written for lack of room.
    left_out: u64,
    secrets: u64,
    secrets_left_out: u64,
    qlogs: HashSet<String>,
    qlogs_cut: HashSet<String>,
}

impl<'a, W: Write> Output<'a, W> {
    fn new(to: &'a mut W, most: u64, has_file: bool) -> Self {
        Self {
            to,
            blocks: Blocks::default(),
            pending: Vec::new(),
            has_file,
            begun: SystemTime::now(),
            most,
            is_full: false,
            bytes: 0,
            datagrams: 0,
            left_out: 0,
            secrets: 0,
            secrets_left_out: 0,
            qlogs: HashSet::new(),
            qlogs_cut: HashSet::new(),
        }
    }

    fn begin(&mut self, request: &Request) -> io::Result<()> {
        Frame::Begun.write(self.to)?;
        if self.has_file {
            let clients: Vec<String> = request.clients.iter().map(ToString::to_string).collect();
            let comment = format!(
                "clients {}, one in {}; {}",
                clients.join(", "),
                request.one_in,
                match request.secrets {
                    true => "with the secrets of connections that began during the capture",
                    false => "without secrets",
                }
            );
            self.blocks.begin(&mut self.pending, &comment);
            self.tell()?;
        }
        self.to.flush()
    }

    /// False once there is no more room.
    fn take(&mut self, batch: Batch) -> io::Result<bool> {
        if self.has_file && !batch.secrets.is_empty() {
            let before = self.pending.len();
            self.blocks.secrets(&mut self.pending, &batch.secrets);
            match self.has_room(self.pending.len()) {
                true => self.secrets += batch.secrets.len() as u64,
                false => {
                    self.pending.truncate(before);
                    self.secrets_left_out += batch.secrets.len() as u64;
                }
            }
            self.tell()?;
        }
        for piece in batch.pieces {
            if !self.has_room(piece.bytes.len()) {
                self.qlogs_cut.insert(piece.name);
                continue;
            }
            let mut is_new = piece.is_new;
            for bytes in piece.bytes.chunks(MAX_LEN / 2) {
                let (name, bytes) = (piece.name.clone(), bytes.to_vec());
                Frame::Qlog { name, is_new, bytes }.write(self.to)?;
                is_new = false;
            }
            self.bytes += piece.bytes.len() as u64;
            self.qlogs.insert(piece.name);
        }
        for train in batch.trains {
            let before = self.pending.len();
            let number = self.blocks.datagrams(&mut self.pending, &train);
            if !self.has_room(self.pending.len()) {
                self.pending.truncate(before);
                self.left_out += number;
                continue;
            }
            self.datagrams += number;
            if self.pending.len() >= CHUNK {
                self.tell()?;
            }
        }
        self.tell()?;
        self.to.flush()?;
        Ok(!self.is_full)
    }

    /// Whether there is room for so much more than was told; never again once there was not.
    fn has_room(&mut self, more: usize) -> bool {
        self.is_full |= self.bytes + more as u64 > self.most;
        !self.is_full
    }

    /// From now on nothing is told but the end.
    const fn close(&mut self) {
        self.is_full = true;
    }

    /// Tells what is there of the file.
    fn tell(&mut self) -> io::Result<()> {
        for bytes in self.pending.chunks(MAX_LEN) {
            Frame::File(bytes.to_vec()).write(self.to)?;
        }
        self.bytes += self.pending.len() as u64;
        self.pending.clear();
        Ok(())
    }

    fn end(mut self, ended: EndedBy, superseded: bool, queue: &Queue) -> io::Result<Report> {
        let counts = queue.counts();
        let lost = counts.lost + self.left_out;
        let report = Report {
            ended,
            datagrams: self.datagrams,
            datagrams_lost: lost,
            secrets: self.secrets,
            secrets_lost: counts.secrets_lost + self.secrets_left_out,
            qlogs: self.qlogs.len() as u64,
            qlogs_cut: self.qlogs_cut.len() as u64,
            bytes: self.bytes,
            superseded,
        };
        if self.has_file {
            let comment = format!(
                "{lost} datagrams and {} lines of secrets were lost, as writing did not keep up or there was no more room",
                report.secrets_lost
            );
            let times = (self.begun, SystemTime::now());
            self.blocks.end(&mut self.pending, times, (counts.datagrams, lost), &comment);
            self.tell()?;
        }
        let json = serde_json::to_vec(&report).map_err(io::Error::other)?;
        Frame::Ended(json).write(self.to)?;
        self.to.flush()?;
        Ok(report)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use quicket::LinesTaker;

    use super::super::queue::Piece;
    use super::*;

    const ALLOWED: Allowed =
        Allowed { secrets: true, time: Duration::from_secs(60), bytes: 1 << 20 };

    fn request() -> Request {
        Request {
            clients: vec!["192.0.2.0/24".parse().unwrap()],
            one_in: 1,
            milliseconds: 10_000,
            bytes: None,
            datagrams: true,
            keep: None,
            secrets: true,
            qlog: false,
            anonymous: false,
        }
    }

    fn circumstances(allowed: Option<Allowed>) -> Circumstances {
        Circumstances { allowed, ..Circumstances::default() }
    }

    /// A client's handshake tells a secret.
    fn tell_secret(captures: &Captures) {
        match captures.key_log().taker(Some(([192, 0, 2, 7], 1).into())) {
            LinesTaker::Other(log) => log.line("SECRET a b"),
            other => panic!("{other:?}"),
        }
    }

    fn piece(name: &str, is_new: bool, len: usize) -> Piece {
        Piece { name: name.to_owned(), is_new, bytes: vec![b'q'; len] }
    }

    #[test]
    fn nothing_is_told_after_what_has_no_room() {
        let mut told = Vec::new();
        let mut output = Output::new(&mut told, 1000, false);
        let pieces = vec![piece("a.sqlog", true, 900), piece("b.sqlog", true, 200)];
        assert!(!output.take(Batch { pieces, ..Batch::default() }).unwrap());
        // It would fit, and be the next piece of one that never began.
        let pieces = vec![piece("b.sqlog", false, 10), piece("a.sqlog", false, 10)];
        assert!(!output.take(Batch { pieces, ..Batch::default() }).unwrap());
        let report = output.end(EndedBy::Size, false, &Queue::default()).unwrap();
        assert_eq!((report.qlogs, report.qlogs_cut, report.bytes), (1, 2, 900));
        let mut told = &told[..];
        let mut names = Vec::new();
        while let Some(frame) = Frame::read(&mut told).unwrap() {
            if let Frame::Qlog { name, .. } = frame {
                names.push(name);
            }
        }
        assert_eq!(names, ["a.sqlog"]);
    }

    #[test]
    fn a_file_that_forbids_secrets_ends_a_capture_with_them_at_once() {
        let captures = Captures::default();
        let (mut told, looks) = (Vec::new(), std::cell::Cell::new(0));
        let look = || {
            looks.set(looks.get() + 1);
            if looks.get() < 4 {
                return circumstances(Some(ALLOWED));
            }
            // One that waits yet.
            tell_secret(&captures);
            circumstances(Some(Allowed { secrets: false, ..ALLOWED }))
        };
        let report = run(&captures, &request(), &mut told, look, || true).unwrap().unwrap();
        assert_eq!(report.ended, EndedBy::File);
        assert_eq!((report.secrets, report.secrets_lost), (0, 1));
        assert!(!told.windows(6).any(|part| part == b"SECRET"));
    }

    #[test]
    fn limits_that_are_lowered_hold_for_the_capture_that_runs() {
        let captures = Captures::default();
        let looks = std::cell::Cell::new(0);
        let look = || {
            looks.set(looks.get() + 1);
            if looks.get() > 3 {
                tell_secret(&captures);
                return circumstances(Some(Allowed { bytes: 1, ..ALLOWED }));
            }
            circumstances(Some(ALLOWED))
        };
        let ended = |request: &Request| {
            looks.set(0);
            run(&captures, request, &mut Vec::new(), look, || true).unwrap().unwrap().ended
        };
        assert_eq!(ended(&request()), EndedBy::Size);
        // What was asked for by number is not allowed any more.
        assert_eq!(ended(&Request { bytes: Some(1 << 10), ..request() }), EndedBy::File);
    }

    /// Somebody who reads the end late.
    struct Slow {
        is_at_end: mpsc::Sender<()>,
        goes_on: mpsc::Receiver<()>,
    }

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if bytes == b"E" {
                self.is_at_end.send(()).unwrap();
                self.goes_on.recv().unwrap();
            }
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_second_capture_survives_the_slow_end_of_the_first() {
        let captures = Captures::default();
        let ((is_at_end, at_end), (go_on, goes_on)) = (mpsc::channel(), mpsc::channel());
        let look = || circumstances(Some(ALLOWED));
        std::thread::scope(|scope| {
            let first = scope.spawn(|| {
                let mut slow = Slow { is_at_end, goes_on };
                run(&captures, &request(), &mut slow, look, || false).unwrap().unwrap()
            });
            at_end.recv().unwrap();
            let mut told = Vec::new();
            let looks = std::cell::Cell::new(0);
            let is_wanted = || {
                looks.set(looks.get() + 1);
                if looks.get() == 1 {
                    go_on.send(()).unwrap();
                    while !first.is_finished() {
                        std::thread::yield_now();
                    }
                    tell_secret(&captures);
                }
                looks.get() < 3
            };
            let second = run(&captures, &request(), &mut told, look, is_wanted).unwrap().unwrap();
            assert_eq!((second.ended, second.secrets), (EndedBy::Asker, 1));
        });
    }
}
