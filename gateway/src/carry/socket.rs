//! TCP and Unix sockets as ends.
//!
//! TCP has no reset of one direction: RST ends both. It cannot ask a peer to stop either; a socket that is
//! closed answers what still comes with RST. Unix sockets have no RST, but their peers hear that nobody reads.

use std::future::pending;
use std::io;
use std::net::Shutdown;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use socket2::SockRef;
use tokio::net::{TcpStream, UnixStream};

use super::{Broken, Ends, Sink, Source, code};

/// A connected socket.
#[derive(Debug)]
pub(crate) struct Socket {
    stream: Stream,
    /// A write has met a reset. Reads do not hear of it again: the system tells each error once, and what
    /// follows looks like an end.
    reset: AtomicBool,
}

#[derive(Debug)]
enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl From<TcpStream> for Socket {
    fn from(stream: TcpStream) -> Self {
        // Bytes come in the pieces in which they were sent; where that fails they come later.
        let _ = stream.set_nodelay(true);
        Self { stream: Stream::Tcp(stream), reset: AtomicBool::new(false) }
    }
}

impl From<UnixStream> for Socket {
    fn from(stream: UnixStream) -> Self {
        Self { stream: Stream::Unix(stream), reset: AtomicBool::new(false) }
    }
}

impl Socket {
    /// Both halves; reads are of `piece` bytes at most.
    pub(crate) fn ends(&self, piece: usize) -> Ends<Reader<'_>, Writer<'_>> {
        let reader = Reader { socket: self, piece, buffer: BytesMut::new() };
        Ends { reader, writer: Writer(self) }
    }

    async fn readable(&self) -> io::Result<()> {
        match &self.stream {
            Stream::Tcp(stream) => stream.readable().await,
            Stream::Unix(stream) => stream.readable().await,
        }
    }

    async fn writable(&self) -> io::Result<()> {
        match &self.stream {
            Stream::Tcp(stream) => stream.writable().await,
            Stream::Unix(stream) => stream.writable().await,
        }
    }

    fn try_read(&self, buffer: &mut BytesMut) -> io::Result<usize> {
        match &self.stream {
            Stream::Tcp(stream) => stream.try_read_buf(buffer),
            Stream::Unix(stream) => stream.try_read_buf(buffer),
        }
    }

    fn try_write(&self, data: &[u8]) -> io::Result<usize> {
        match &self.stream {
            Stream::Tcp(stream) => stream.try_write(data),
            Stream::Unix(stream) => stream.try_write(data),
        }
    }

    /// Fails where the peer has closed already.
    fn shutdown(&self, how: Shutdown) {
        let _ = match &self.stream {
            Stream::Tcp(stream) => SockRef::from(stream).shutdown(how),
            Stream::Unix(stream) => SockRef::from(stream).shutdown(how),
        };
    }

    /// Has TCP end with RST, once the socket is dropped.
    fn abort(&self) {
        if let Stream::Tcp(stream) = &self.stream {
            let _ = SockRef::from(stream).set_linger(Some(Duration::ZERO));
        }
    }
}

/// The half that is read.
#[derive(Debug)]
pub(crate) struct Reader<'a> {
    socket: &'a Socket,
    piece: usize,
    /// Given up while there is nothing to read.
    buffer: BytesMut,
}

impl Source for Reader<'_> {
    type Data = Bytes;

    async fn next(&mut self) -> Result<Option<Bytes>, Broken> {
        loop {
            self.socket.readable().await.map_err(|_| Broken::Reset(code::RESET))?;
            self.buffer.reserve(self.piece);
            match self.socket.try_read(&mut self.buffer) {
                Ok(0) if self.socket.reset.load(Ordering::Relaxed) => {
                    return Err(Broken::Reset(code::RESET));
                }
                Ok(0) => return Ok(None),
                Ok(_) => return Ok(Some(self.buffer.split().freeze())),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.buffer = BytesMut::new();
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Err(Broken::Reset(code::RESET)),
            }
        }
    }

    fn stop(&mut self, _code: u64) {
        if matches!(self.socket.stream, Stream::Unix(_)) {
            self.socket.shutdown(Shutdown::Read);
        }
    }
}

/// The half that is written.
#[derive(Debug)]
pub(crate) struct Writer<'a>(&'a Socket);

impl Sink for Writer<'_> {
    async fn write(&mut self, data: &[u8]) -> Result<usize, Broken> {
        loop {
            self.0.writable().await.map_err(|_| Broken::Reset(code::RESET))?;
            return match self.0.try_write(data) {
                Ok(len) => Ok(len),
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => continue,
                    // It had closed before: what it sent until then has an end.
                    io::ErrorKind::BrokenPipe => Err(Broken::Stopped(code::CLOSED)),
                    _ => {
                        self.0.reset.store(true, Ordering::Relaxed);
                        Err(Broken::Stopped(code::RESET))
                    }
                },
            };
        }
    }

    async fn stopped(&mut self) -> Broken {
        // Who closes a socket is heard of with the next write.
        pending().await
    }

    fn finish(&mut self) {
        self.0.shutdown(Shutdown::Write);
    }

    fn reset(&mut self, _code: u64) {
        self.0.abort();
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    async fn pair() -> (TcpStream, Socket) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let peer = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (peer, Socket::from(listener.accept().await.unwrap().0))
    }

    #[tokio::test]
    async fn a_reset_that_a_write_meets_is_no_end_for_reads() {
        let (peer, socket) = pair().await;
        SockRef::from(&peer).set_linger(Some(Duration::ZERO)).unwrap();
        drop(peer);
        let mut ends = socket.ends(100);
        let broken = loop {
            if let Err(broken) = ends.writer.write(b"x").await {
                break broken;
            }
        };
        assert_eq!(broken, Broken::Stopped(code::RESET));
        assert_eq!(ends.reader.next().await, Err(Broken::Reset(code::RESET)));
    }

    #[tokio::test]
    async fn who_has_closed_before_has_sent_all() {
        let (mut peer, socket) = pair().await;
        peer.write_all(b"whole").await.unwrap();
        drop(peer);
        let mut ends = socket.ends(100);
        let broken = loop {
            if let Err(broken) = ends.writer.write(b"x").await {
                break broken;
            }
        };
        assert_eq!(broken, Broken::Stopped(code::CLOSED));
        assert_eq!(ends.reader.next().await.unwrap().unwrap(), &b"whole"[..]);
        assert_eq!(ends.reader.next().await, Ok(None));
    }

    #[tokio::test]
    async fn an_abort_is_a_reset() {
        let (mut peer, socket) = pair().await;
        socket.ends(100).writer.reset(0);
        drop(socket);
        let error = peer.read(&mut [0; 10]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    }
}
