//! What both kinds of TCP have in common.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::time::Duration;

use quicket_tcp::Stack;

/// Accepts connections.
pub(crate) trait Listener: Sync {
    type Stream: Stream;

    fn accept(&self) -> io::Result<Self::Stream>;
}

/// Makes connections.
pub(crate) trait Dialer: Sync {
    type Stream: Stream;

    fn connect(&self, address: SocketAddr, time: Duration) -> io::Result<Self::Stream>;
}

/// A connection.
pub(crate) trait Stream: Read + Write {
    /// Nothing more is written.
    fn end(&self) -> io::Result<()>;

    fn set_timeout(&self, time: Duration) -> io::Result<()>;
}

/// TCP of the system.
pub(crate) struct System;

impl Listener for std::net::TcpListener {
    type Stream = std::net::TcpStream;

    fn accept(&self) -> io::Result<Self::Stream> {
        let (stream, _) = self.accept()?;
        Ok(stream)
    }
}

impl Dialer for System {
    type Stream = std::net::TcpStream;

    fn connect(&self, address: SocketAddr, time: Duration) -> io::Result<Self::Stream> {
        std::net::TcpStream::connect_timeout(&address, time)
    }
}

impl Stream for std::net::TcpStream {
    fn end(&self) -> io::Result<()> {
        self.shutdown(Shutdown::Write)
    }

    fn set_timeout(&self, time: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(time))?;
        self.set_write_timeout(Some(time))
    }
}

impl Listener for quicket_tcp::TcpListener {
    type Stream = quicket_tcp::TcpStream;

    fn accept(&self) -> io::Result<Self::Stream> {
        let (stream, _) = self.accept()?;
        Ok(stream)
    }
}

impl Dialer for Stack {
    type Stream = quicket_tcp::TcpStream;

    fn connect(&self, address: SocketAddr, time: Duration) -> io::Result<Self::Stream> {
        quicket_tcp::TcpStream::connect_timeout(self, address, time)
    }
}

impl Stream for quicket_tcp::TcpStream {
    fn end(&self) -> io::Result<()> {
        self.shutdown(Shutdown::Write)
    }

    fn set_timeout(&self, time: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(time))?;
        self.set_write_timeout(Some(time))
    }
}
