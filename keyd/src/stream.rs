//! Connections whose calls wait no longer than until a moment that is set before.

use std::io::{self, IoSlice, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustls::{ClientConnection, ServerConnection, StreamOwned};

use crate::protocol::{Frame, Malformed};

/// The most that is read at once, in bytes.
const PIECE: usize = 8192;

/// A socket with a deadline.
#[derive(Debug)]
pub(crate) struct Timed<S> {
    socket: S,
    deadline: Option<Instant>,
}

/// What sockets of both kinds can.
pub(crate) trait Timeouts {
    fn set_timeouts(&self, timeout: Option<Duration>) -> io::Result<()>;
}

impl Timeouts for UnixStream {
    fn set_timeouts(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.set_read_timeout(timeout)?;
        self.set_write_timeout(timeout)
    }
}

impl Timeouts for TcpStream {
    fn set_timeouts(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.set_read_timeout(timeout)?;
        self.set_write_timeout(timeout)
    }
}

impl<S: Timeouts> Timed<S> {
    pub(crate) fn new(socket: S) -> Self {
        Self { socket, deadline: None }
    }

    /// Calls from now on wait until then at most.
    pub(crate) fn deadline(&mut self, deadline: Instant) {
        self.deadline = Some(deadline);
    }

    /// Has the next call wait until the deadline at most.
    fn arm(&self) -> io::Result<()> {
        let Some(deadline) = self.deadline else { return Ok(()) };
        match deadline.saturating_duration_since(Instant::now()) {
            Duration::ZERO => Err(io::ErrorKind::TimedOut.into()),
            left => self.socket.set_timeouts(Some(left)),
        }
    }
}

/// What the system says of a timeout is that the call would block.
fn timed_out(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::WouldBlock => io::ErrorKind::TimedOut.into(),
        _ => error,
    }
}

impl<S: Timeouts + Read> Read for Timed<S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.arm()?;
        self.socket.read(buffer).map_err(timed_out)
    }
}

impl<S: Timeouts + Write> Write for Timed<S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.arm()?;
        self.socket.write(bytes).map_err(timed_out)
    }

    fn write_vectored(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        self.arm()?;
        self.socket.write_vectored(pieces).map_err(timed_out)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.socket.flush()
    }
}

/// A connection between a client and a key process, at either end.
pub(crate) enum Stream {
    Unix(Timed<UnixStream>),
    Client(Box<StreamOwned<ClientConnection, Timed<TcpStream>>>),
    Server(Box<StreamOwned<ServerConnection, Timed<TcpStream>>>),
}

impl Stream {
    /// Calls from now on wait until then at most; without a moment, for ever.
    pub(crate) fn set_deadline(&mut self, deadline: Option<Instant>) -> io::Result<()> {
        fn set<S: Timeouts>(timed: &mut Timed<S>, deadline: Option<Instant>) -> io::Result<()> {
            if deadline.is_none() && timed.deadline.is_some() {
                timed.socket.set_timeouts(None)?;
            }
            timed.deadline = deadline;
            Ok(())
        }
        match self {
            Self::Unix(stream) => set(stream, deadline),
            Self::Client(tls) => set(&mut tls.sock, deadline),
            Self::Server(tls) => set(&mut tls.sock, deadline),
        }
    }

    fn io(&mut self) -> &mut dyn ReadWrite {
        match self {
            Self::Unix(stream) => stream,
            Self::Client(tls) => tls,
            Self::Server(tls) => tls,
        }
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        let io = self.io();
        io.write_all(bytes)?;
        io.flush()
    }
}

trait ReadWrite: Read + Write {}
impl<T: Read + Write> ReadWrite for T {}

/// Bytes that have come and were not taken.
#[derive(Default)]
pub(crate) struct Inbox {
    bytes: Vec<u8>,
    taken: usize,
}

impl Inbox {
    /// True if nothing of a further frame is there.
    pub(crate) fn is_empty(&self) -> bool {
        self.taken == self.bytes.len()
    }

    /// The next frame, if it is whole.
    pub(crate) fn frame(&mut self) -> Result<Option<Frame<'_>>, Malformed> {
        let Some((frame, len)) = Frame::first(&self.bytes[self.taken..])? else { return Ok(None) };
        self.taken += len;
        Ok(Some(frame))
    }

    /// Reads more; false if there is no more. It keeps a frame and a piece at most.
    pub(crate) fn fill(&mut self, stream: &mut Stream) -> io::Result<bool> {
        self.bytes.drain(..self.taken);
        self.taken = 0;
        let begun = self.bytes.len();
        self.bytes.resize(begun + PIECE, 0);
        let read = loop {
            match stream.io().read(&mut self.bytes[begun..]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => break read,
            }
        };
        self.bytes.truncate(begun + read.as_ref().map_or(0, |len| *len));
        Ok(read? > 0)
    }
}
