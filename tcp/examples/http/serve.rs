//! The server.

use std::fmt;
use std::io::{self, ErrorKind, Write};
use std::time::Duration;

use super::transport::{Listener, Stream};

/// The longest head of a request, in octets.
const MAX_HEAD: usize = 8192;
/// The longest body that is asked for.
const MAX_BODY: usize = 64 << 20;
/// How long a client may leave the server waiting.
const PATIENCE: Duration = Duration::from_secs(10);

/// After so many octets a body repeats itself.
const PERIOD: usize = 1 << 16;

/// The octet of a body at some place.
pub(crate) const fn octet(at: usize) -> u8 {
    (at ^ at >> 8) as u8
}

/// Serves connections, each thread one at a time, until the listener fails.
pub(crate) fn serve<L: Listener>(listener: &L, threads: usize) {
    let bodies: Vec<u8> = (0..PERIOD).map(octet).collect();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let mut buffer = Vec::new();
                loop {
                    match listener.accept() {
                        Ok(stream) => {
                            // A client that goes is no fault of the server's.
                            if let Err(error) = answer(stream, &bodies, &mut buffer) {
                                tell(format_args!("a client: {error}"));
                            }
                        }
                        Err(error) => return tell(format_args!("no more connections: {error}")),
                    }
                }
            });
        }
    });
}

/// Says what has happened, if anybody reads it.
fn tell(what: fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr(), "{what}");
}

/// Answers one request, and ends.
fn answer<S: Stream>(mut stream: S, bodies: &[u8], buffer: &mut Vec<u8>) -> io::Result<()> {
    stream.set_timeout(PATIENCE)?;
    let mut head = [0; MAX_HEAD];
    let mut len = 0;
    while !head[..len].windows(4).any(|end| end == b"\r\n\r\n") {
        let room = head.get_mut(len..).filter(|room| !room.is_empty());
        let room = room.ok_or_else(|| io::Error::from(ErrorKind::InvalidData))?;
        match stream.read(room)? {
            0 if len == 0 => return Ok(()),
            0 => return Err(ErrorKind::UnexpectedEof.into()),
            more => len += more,
        }
    }
    buffer.clear();
    match size(&head[..len]) {
        Some(size) => {
            write!(
                buffer,
                "HTTP/1.1 200 OK\r\ncontent-type: application/octet-stream\r\n\
                 content-length: {size}\r\nconnection: close\r\n\r\n"
            )?;
            for _ in 0..size / PERIOD {
                buffer.extend_from_slice(bodies);
            }
            buffer.extend_from_slice(&bodies[..size % PERIOD]);
        }
        None => buffer.extend_from_slice(
            b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
        ),
    }
    stream.write_all(buffer)?;
    stream.end()
}

/// How long the body is that a request asks for.
fn size(head: &[u8]) -> Option<usize> {
    let line = head.split(|octet| *octet == b'\r').next()?;
    let path = std::str::from_utf8(line).ok()?.strip_prefix("GET /")?;
    let size: usize = path.split([' ', '?']).next()?.parse().ok()?;
    (size <= MAX_BODY).then_some(size)
}
