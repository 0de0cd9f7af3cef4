//! The server of the benchmark over blocking sockets: threads that accept, each serving one
//! connection at a time.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};

use quicket::{Connection, Endpoint, Listener, Stream};
use quicket_workload::bench::{
    Arrival, Assignment, Counters, EXCHANGE_LENGTH, Failure, HEADER_LENGTH, Pattern, Request, Role,
    Transfer, usage_answer_with, workers,
};

use super::{Sharing, port, server_config};

struct Server {
    sharing: Sharing,
    listener: Listener,
    counters: Counters,
    block: Vec<u8>,
    /// Connections that do nothing but stay open, for as long as this process lives.
    held: Mutex<Vec<Connection>>,
}

pub(in crate::bench) fn serve(
    sharing: Sharing,
    assignment: &Assignment,
    ready: &mut dyn FnMut(SocketAddr),
) -> Result<(), Failure> {
    let Role::Server { listen, .. } = &assignment.role else {
        return Err("not told to be a server".into());
    };
    let server = Server {
        sharing,
        listener: listen_on(*listen, sharing, assignment)?,
        counters: Counters::default(),
        block: Pattern::new(false).block(),
        held: Mutex::default(),
    };
    ready(server.listener.local_addr());
    std::thread::scope(|scope| {
        for _ in 0..workers(assignment) {
            scope.spawn(|| server.work());
        }
    });
    Err("no thread accepts any more".into())
}

/// Listens; where there are tickets, early data is read as soon as it comes.
fn listen_on(
    address: SocketAddr,
    sharing: Sharing,
    assignment: &Assignment,
) -> Result<Listener, Failure> {
    let config = server_config(assignment)?;
    let endpoint = match sharing {
        Sharing::Port => port::serve(address, assignment)?,
        _ => Endpoint::bind_with(address, sharing.endpoint())?,
    };
    Ok(if assignment.conditions.tickets {
        endpoint.listen_early(config)?
    } else {
        endpoint.listen(config)?
    })
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
            receive(&mut stream, Transfer { unique, ..Transfer::new(bytes) })?;
            stream.write_all(&bytes.to_be_bytes())?;
            stream.finish()?;
            return Ok(request);
        }
        let mut message = stream.read_to_end(EXCHANGE_LENGTH)?;
        match request {
            Request::Download { bytes, unique, write } => Transfer { bytes, unique, write }
                .send(&self.block, |piece| Ok(stream.write_all(piece)?))?,
            Request::Usage => {
                let others = self.sharing.others_cpu_ns()?;
                stream.write_all(&usage_answer_with(&self.counters, others)?)?;
            }
            Request::Upload { .. } | Request::Exchange { .. } | Request::Hold => {
                message.splice(..0, header);
                stream.write_all(&message)?;
            }
        }
        stream.finish()?;
        Ok(request)
    }
}

/// Reads to the end, in place, and checks.
pub(super) fn receive(stream: &mut Stream, transfer: Transfer) -> Result<(), Failure> {
    let mut arrival = Arrival::of(transfer);
    while stream
        .recv()
        .read_chunk(|bytes, _| {
            arrival.take(bytes);
            bytes.len()
        })?
        .is_some()
    {}
    arrival.finish()
}
