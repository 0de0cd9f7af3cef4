//! One direction of a stream: sending and checking its content.

use quicket_engine::{ReadError, WriteError};
use quicket_wire::{Side, StreamId};

use super::{AppContext, Pattern};

/// Bytes before the content of a request: the length of the response that is wanted.
pub(super) const HEADER_LEN: u64 = 8;

/// Code of RESET_STREAM and STOP_SENDING in simulations.
pub(super) const GIVE_UP: u64 = 0x51;

/// What became of a direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// Not at its end.
    Open,
    /// All was sent, or all was read.
    Complete,
    /// It was reset or stopped.
    GivenUp,
}

fn pattern(id: StreamId, sender: Side) -> Pattern {
    Pattern::new(u64::from(id) << 1 | u64::from(sender.is_client()))
}

/// The sending direction of a stream.
#[derive(Debug)]
pub(super) struct Outgoing {
    id: StreamId,
    pattern: Pattern,
    header: Option<[u8; 8]>,
    len: u64,
    pub(super) written: u64,
    pub(super) progress: Progress,
    /// Its end is in the tally.
    pub(super) counted: bool,
    /// Resets the stream instead of going beyond this offset.
    reset_at: Option<u64>,
}

impl Outgoing {
    /// `len` bytes of content, behind a header if there is one.
    pub(super) fn new(id: StreamId, sender: Side, header: Option<u64>, len: u64) -> Self {
        let header = header.map(u64::to_be_bytes);
        let len = len + header.map_or(0, |h| h.len() as u64);
        let pattern = pattern(id, sender);
        let progress = Progress::Open;
        Self { id, pattern, header, len, written: 0, progress, counted: false, reset_at: None }
    }

    pub(super) fn reset_at(mut self, offset: u64) -> Self {
        self.reset_at = Some(offset);
        self
    }

    /// Writes until the connection takes no more; returns how much it took.
    pub(super) fn pump(&mut self, cx: &mut AppContext<'_>) -> Result<u64, String> {
        let before = self.written;
        let mut chunk = [0; 2_048];
        while self.progress == Progress::Open {
            if self.reset_at.is_some_and(|at| self.written >= at) {
                let result = cx.connection.reset(self.id, GIVE_UP);
                self.progress = self.ended("reset", result, Progress::GivenUp)?;
                break;
            }
            if self.written == self.len {
                let result = cx.connection.finish(self.id);
                self.progress = self.ended("finish", result, Progress::Complete)?;
                break;
            }
            let want = (self.len - self.written).min(cx.rng.between(1, chunk.len() as u64));
            let data = &mut chunk[..want as usize];
            self.fill(data);
            match cx.connection.write(self.id, data) {
                Ok(0) => {
                    return Err(format!("stream {}: a write took nothing", u64::from(self.id)));
                }
                Ok(len) => self.written += len as u64,
                Err(WriteError::Blocked) => break,
                Err(WriteError::Stopped(_)) => self.progress = Progress::GivenUp,
                Err(error) => return Err(self.broken("write", &error)),
            }
        }
        Ok(self.written - before)
    }

    /// How the stream stands after a call that ends it, unless the peer has stopped it before.
    fn ended(
        &self,
        call: &str,
        result: Result<(), WriteError>,
        done: Progress,
    ) -> Result<Progress, String> {
        match result {
            Ok(()) => Ok(done),
            Err(WriteError::Stopped(_)) => Ok(Progress::GivenUp),
            Err(error) => Err(self.broken(call, &error)),
        }
    }

    fn fill(&self, data: &mut [u8]) {
        self.pattern.fill(self.written, data);
        if let Some(header) = &self.header {
            let rest = header.iter().skip(self.written as usize);
            for (byte, h) in data.iter_mut().zip(rest) {
                *byte = *h;
            }
        }
    }

    fn broken(&self, call: &str, error: &dyn std::fmt::Debug) -> String {
        format!(
            "stream {}: {call} failed at offset {}: {error:?}",
            u64::from(self.id),
            self.written
        )
    }
}

/// The receiving direction of a stream.
#[derive(Debug)]
pub(super) struct Incoming {
    id: StreamId,
    pattern: Pattern,
    header: Option<Vec<u8>>,
    /// Length of the content if it is known before.
    expected: Option<u64>,
    pub(super) offset: u64,
    pub(super) progress: Progress,
    /// Its end is in the tally.
    pub(super) counted: bool,
    /// Stops the peer instead of reading beyond this offset.
    stop_at: Option<u64>,
}

impl Incoming {
    /// A request, which begins with a header.
    pub(super) fn request(id: StreamId, sender: Side) -> Self {
        Self { header: Some(Vec::new()), ..Self::response(id, sender, None) }
    }

    /// A response of `expected` bytes.
    pub(super) fn response(id: StreamId, sender: Side, expected: Option<u64>) -> Self {
        let pattern = pattern(id, sender);
        let progress = Progress::Open;
        let (header, counted, stop_at) = (None, false, None);
        Self { id, pattern, header, expected, offset: 0, progress, counted, stop_at }
    }

    pub(super) fn stop_at(mut self, offset: u64) -> Self {
        self.stop_at = Some(offset);
        self
    }

    pub(super) fn id(&self) -> StreamId {
        self.id
    }

    /// What the request's header says, once it is there.
    pub(super) fn header(&self) -> Option<u64> {
        let header = self.header.as_ref()?;
        header.as_slice().try_into().ok().map(u64::from_be_bytes)
    }

    /// Reads and checks all there is; returns how much that was.
    pub(super) fn pump(&mut self, cx: &mut AppContext<'_>) -> Result<u64, String> {
        let before = self.offset;
        while self.progress == Progress::Open {
            if self.stop_at.is_some_and(|at| self.offset >= at) {
                let stopped = cx.connection.stop_sending(self.id, GIVE_UP);
                stopped.map_err(|e| self.broken("stop_sending", &e))?;
                self.progress = Progress::GivenUp;
                break;
            }
            if !self.read_some(cx)? {
                break;
            }
        }
        Ok(self.offset - before)
    }

    /// One read, of a random size and in one of both ways; false if there was nothing to read.
    fn read_some(&mut self, cx: &mut AppContext<'_>) -> Result<bool, String> {
        let mut buf = [0; 4_096];
        let size = cx.rng.between(1, buf.len() as u64) as usize;
        let outcome = cx.connection.read(self.id, &mut buf[..size]);
        match outcome {
            Ok(outcome) => {
                self.check(&buf[..outcome.len])?;
                if outcome.fin {
                    self.end()?;
                } else if outcome.len == 0 {
                    return Ok(false);
                }
                Ok(true)
            }
            Err(ReadError::Blocked) => Ok(false),
            Err(ReadError::Reset(_)) => {
                self.progress = Progress::GivenUp;
                Ok(true)
            }
            Err(error) => Err(self.broken("read", &error)),
        }
    }

    fn check(&mut self, mut data: &[u8]) -> Result<(), String> {
        if let Some(header) = &mut self.header {
            let missing = (HEADER_LEN as usize - header.len()).min(data.len());
            header.extend_from_slice(&data[..missing]);
            self.offset += missing as u64;
            data = &data[missing..];
        }
        if let Some(at) = self.pattern.first_difference(self.offset, data) {
            return Err(format!("stream {}: wrong byte at offset {at}", u64::from(self.id)));
        }
        self.offset += data.len() as u64;
        Ok(())
    }

    fn end(&mut self) -> Result<(), String> {
        if let Some(expected) = self.expected.filter(|expected| *expected != self.offset) {
            return Err(format!(
                "stream {}: ended after {} bytes instead of {expected}",
                u64::from(self.id),
                self.offset
            ));
        }
        self.progress = Progress::Complete;
        Ok(())
    }

    fn broken(&self, call: &str, error: &dyn std::fmt::Debug) -> String {
        format!("stream {}: {call} failed at offset {}: {error:?}", u64::from(self.id), self.offset)
    }
}
