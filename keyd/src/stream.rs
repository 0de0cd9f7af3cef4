//! Connections whose calls wait no longer than until a moment that is set before.

use std::io::{self, IoSlice, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustls::{ClientConnection, ServerConnection, StreamOwned};
use socket2::{SockRef, TcpKeepalive};

use crate::protocol::{Frame, Malformed};

/// The most that is read at once, in bytes.
const PIECE: usize = 8192;

/// How long a connection over TCP is silent before its other end is asked whether it is there, and between questions.
const ALIVE: [Duration; 2] = [Duration::from_secs(30), Duration::from_secs(10)];
/// Questions without an answer that end it.
const PROBES: u32 = 3;

/// Has a connection end whose other end has gone without a word.
pub(crate) fn keep_alive(stream: &TcpStream) -> io::Result<()> {
    let keepalive = TcpKeepalive::new().with_time(ALIVE[0]).with_interval(ALIVE[1]);
    SockRef::from(stream).set_tcp_keepalive(&keepalive.with_retries(PROBES))
}

/// A socket with a deadline.
#[derive(Debug)]
pub(crate) struct Timed<S> {
    socket: S,
    deadline: Option<Instant>,
    /// How long the system has calls wait, by direction: they have different deadlines, in turn.
    armed: [Option<Duration>; 2],
}

/// What a call does.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Direction {
    Read,
    Write,
}

/// What sockets of both kinds can.
pub(crate) trait Timeouts {
    fn set_timeout(&self, direction: Direction, timeout: Duration) -> io::Result<()>;
}

impl Timeouts for UnixStream {
    fn set_timeout(&self, direction: Direction, timeout: Duration) -> io::Result<()> {
        match direction {
            Direction::Read => self.set_read_timeout(Some(timeout)),
            Direction::Write => self.set_write_timeout(Some(timeout)),
        }
    }
}

impl Timeouts for TcpStream {
    fn set_timeout(&self, direction: Direction, timeout: Duration) -> io::Result<()> {
        match direction {
            Direction::Read => self.set_read_timeout(Some(timeout)),
            Direction::Write => self.set_write_timeout(Some(timeout)),
        }
    }
}

impl<S: Timeouts> Timed<S> {
    pub(crate) fn new(socket: S) -> Self {
        Self { socket, deadline: None, armed: [None; 2] }
    }

    /// Calls from now on wait until then at most; without a moment, for ever.
    pub(crate) fn set_deadline(&mut self, deadline: Option<Instant>) {
        self.deadline = deadline;
    }

    /// Makes a call that waits until the deadline at most. Telling the system how long costs a call: it is told
    /// less than is left, so that it need not be told each time.
    fn wait<T>(
        &mut self,
        direction: Direction,
        mut call: impl FnMut(&mut S) -> io::Result<T>,
    ) -> io::Result<T> {
        loop {
            if let Some(deadline) = self.deadline {
                let left = deadline.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                let before = &mut self.armed[direction as usize];
                if before.is_none_or(|armed| armed > left || armed < left / 4) {
                    // The system has none that is zero.
                    let armed = (left / 2).max(Duration::from_millis(1)).min(left);
                    self.socket.set_timeout(direction, armed)?;
                    *before = Some(armed);
                }
            }
            match call(&mut self.socket) {
                // What the system says of its timeout; without a deadline it is one of before.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => return result,
            }
        }
    }
}

impl<S: Timeouts + Read> Read for Timed<S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.wait(Direction::Read, |socket| socket.read(buffer))
    }
}

impl<S: Timeouts + Write> Write for Timed<S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.wait(Direction::Write, |socket| socket.write(bytes))
    }

    fn write_vectored(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        self.wait(Direction::Write, |socket| socket.write_vectored(pieces))
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
    pub(crate) fn set_deadline(&mut self, deadline: Option<Instant>) {
        match self {
            Self::Unix(stream) => stream.set_deadline(deadline),
            Self::Client(tls) => tls.sock.set_deadline(deadline),
            Self::Server(tls) => tls.sock.set_deadline(deadline),
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
