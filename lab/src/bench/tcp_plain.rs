//! TCP with nothing above it as a contender of the benchmark: what QUIC without encryption has to
//! be compared with.

use std::io::{Read, Write};
use std::net::TcpStream;

use quicket_workload::bench::tcp::{Peer, Protocol};
use quicket_workload::bench::{Assignment, Failure, Link, Session, Unsupported};

/// Bytes read from the socket at once, at most.
const READ: usize = 256 * 1024;

/// TCP.
pub(super) struct Plain;

/// What is read into.
pub(super) struct Buffer(Vec<u8>);

impl Default for Buffer {
    fn default() -> Self {
        Self(vec![0; READ])
    }
}

impl Protocol for Plain {
    type Channel = TcpStream;
    type Buffers = Buffer;

    fn new(_: &Assignment) -> Result<Self, Failure> {
        Ok(Self)
    }

    fn connect(
        &self,
        tcp: TcpStream,
        session: Session,
        _: &mut Buffer,
    ) -> Result<TcpStream, Failure> {
        match session {
            Session::None => Ok(tcp),
            Session::Resumed | Session::Early => Err(Unsupported("TCP has no sessions").into()),
        }
    }

    fn accept(&self, tcp: TcpStream, _: &mut Buffer) -> Result<TcpStream, Failure> {
        Ok(tcp)
    }

    fn write(tcp: &mut TcpStream, _: &mut Buffer, data: &[u8]) -> Result<(), Failure> {
        Ok(tcp.write_all(data)?)
    }

    fn read(
        tcp: &mut TcpStream,
        buffer: &mut Buffer,
        sink: &mut dyn FnMut(&[u8]),
    ) -> Result<Peer, Failure> {
        let length = tcp.read(&mut buffer.0)?;
        sink(&buffer.0[..length]);
        Ok(if length == 0 { Peer::Closed } else { Peer::Open })
    }

    fn close(_: TcpStream, _: &mut Buffer) -> Result<(), Failure> {
        Ok(())
    }

    fn link(_: &TcpStream) -> Link {
        Link::default()
    }
}
