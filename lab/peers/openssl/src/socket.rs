//! A socket that sends records together.

use std::io::{self, Read, Write};
use std::net::TcpStream;

/// Bytes that are sent at once, at most: a write of the benchmark with its records' headers.
const TOGETHER: usize = 66 << 10;

/// A blocking socket. What is written waits until it is flushed, or there is enough of it: OpenSSL
/// writes each record by itself.
pub struct Socket {
    tcp: TcpStream,
    waiting: Vec<u8>,
}

impl Socket {
    pub fn new(tcp: TcpStream) -> Self {
        Self { tcp, waiting: Vec::new() }
    }
}

impl Read for Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.tcp.read(buffer)
    }
}

impl Write for Socket {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        if self.waiting.len() + data.len() > TOGETHER {
            self.flush()?;
        }
        self.waiting.extend_from_slice(data);
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let sent = self.tcp.write_all(&self.waiting);
        self.waiting.clear();
        sent
    }
}
