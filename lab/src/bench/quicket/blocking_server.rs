//! The server of the benchmark over blocking sockets: threads that accept, each serving one
//! connection at a time.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};

use quicket::{Connection, Listener, Stream};
use quicket_workload::bench::{
    Assignment, Counters, EXCHANGE_LENGTH, Failure, HEADER_LENGTH, Pattern, Request, Role,
    usage_answer,
};

use super::server_config;

/// Connections served at once; more than any load has busy.
const WORKERS: usize = 64;

struct Server {
    listener: Listener,
    counters: Counters,
    block: Vec<u8>,
    /// Connections that do nothing but stay open, for as long as this process lives.
    held: Mutex<Vec<Connection>>,
}

pub(in crate::bench) fn serve(
    assignment: &Assignment,
    ready: &mut dyn FnMut(SocketAddr),
) -> Result<(), Failure> {
    let Role::Server { listen, .. } = &assignment.role else {
        return Err("not told to be a server".into());
    };
    let server = Server {
        listener: Listener::bind(listen, server_config(assignment)?)?,
        counters: Counters::default(),
        block: Pattern::new(false).block(),
        held: Mutex::default(),
    };
    ready(server.listener.local_addr());
    std::thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| server.work());
        }
    });
    Err("no thread accepts any more".into())
}

impl Server {
    fn work(&self) {
        while let Ok(connection) = self.listener.accept() {
            self.counters.handshake();
            self.serve(&connection);
        }
    }

    /// Serves a connection to its end, or until it is to be held.
    fn serve(&self, connection: &Connection) {
        while let Ok(stream) = connection.accept_bi() {
            match self.answer(stream) {
                Ok(Request::Hold) => {
                    let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
                    return held.push(connection.clone());
                }
                Ok(_) => {}
                // It is the client who reports.
                Err(failure) => connection.close(1, failure.to_string().as_bytes()),
            }
        }
    }

    fn answer(&self, mut stream: Stream) -> Result<Request, Failure> {
        let mut header = [0; HEADER_LENGTH];
        stream.read_exact(&mut header)?;
        let request = Request::decode(&header)?;
        if let Request::Upload { bytes, unique } = request {
            let received = receive(&mut stream, Pattern::new(unique))?;
            if received != bytes {
                return Err(format!("{received} bytes came of {bytes}").into());
            }
            stream.write_all(&received.to_be_bytes())?;
            stream.finish()?;
            return Ok(request);
        }
        let mut message = stream.read_to_end(EXCHANGE_LENGTH)?;
        match request {
            Request::Download { bytes, unique } => {
                transmit(&mut stream, bytes, unique, &self.block)?;
            }
            Request::Usage => stream.write_all(&usage_answer(&self.counters)?)?,
            Request::Upload { .. } | Request::Exchange { .. } | Request::Hold => {
                message.splice(..0, header);
                stream.write_all(&message)?;
            }
        }
        stream.finish()?;
        Ok(request)
    }
}

/// Reads to the end, in place; returns the number of bytes.
pub(super) fn receive(stream: &mut Stream, pattern: Pattern) -> Result<u64, Failure> {
    let mut offset = 0;
    let mut wrong = None;
    while stream
        .recv()
        .read_chunk(|bytes, _| {
            wrong = wrong.take().or(pattern.check(offset, bytes).err());
            offset += bytes.len() as u64;
            bytes.len()
        })?
        .is_some()
    {}
    wrong.map_or(Ok(offset), Err)
}

/// Writes `bytes` bytes of the pattern.
pub(super) fn transmit(
    stream: &mut Stream,
    bytes: u64,
    unique: bool,
    block: &[u8],
) -> Result<(), Failure> {
    let mut own = if unique { vec![0; block.len()] } else { Vec::new() };
    let mut offset = 0;
    while offset < bytes {
        let length = usize::try_from(bytes - offset)?.min(block.len());
        if unique {
            Pattern::new(true).fill(offset, &mut own[..length]);
            stream.write_all(&own[..length])?;
        } else {
            stream.write_all(&block[..length])?;
        }
        offset += length as u64;
    }
    Ok(())
}
