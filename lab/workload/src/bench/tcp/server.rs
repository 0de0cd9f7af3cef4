//! The server of the benchmark: threads that accept, each serving one connection at a time.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Mutex, PoisonError};

use super::{Lane, Peer, Protocol, prepare};
use crate::bench::{
    Assignment, Congestion, Counters, EXCHANGE_LENGTH, Failure, HEADER_LENGTH,
    MAX_IDLE_CONNECTIONS, Pattern, Request, Role, Transfer, raise_open_files, usage_answer,
    workers,
};

/// Open files beside those of connections.
const OTHER_FILES: u64 = 100;

struct Server<P: Protocol> {
    listener: TcpListener,
    protocol: P,
    congestion: Congestion,
    counters: Counters,
    block: Vec<u8>,
    /// Connections that do nothing but stay open, for as long as this process lives.
    held: Mutex<Vec<P::Channel>>,
}

/// Serves; calls `ready` once it listens.
///
/// # Errors
///
/// When it cannot.
pub fn serve<P: Protocol>(
    assignment: &Assignment,
    ready: &mut dyn FnMut(SocketAddr),
) -> Result<(), Failure> {
    let Role::Server { listen, .. } = &assignment.role else {
        return Err("not told to be a server".into());
    };
    // Where so many are not permitted, fewer may do.
    let _ = raise_open_files(u64::from(MAX_IDLE_CONNECTIONS) + OTHER_FILES);
    let server = Server {
        listener: TcpListener::bind(listen)?,
        protocol: P::new(assignment)?,
        congestion: assignment.conditions.congestion,
        counters: Counters::default(),
        block: Pattern::new(false).block(),
        held: Mutex::default(),
    };
    ready(server.listener.local_addr()?);
    std::thread::scope(|scope| {
        for _ in 0..workers(assignment) {
            scope.spawn(|| server.work());
        }
    });
    Err("no thread accepts any more".into())
}

impl<P: Protocol> Server<P> {
    fn work(&self) {
        let mut lane = Lane::default();
        while let Ok((tcp, _)) = self.listener.accept() {
            // What fails here fails for the client too, and it is the client who reports.
            if let Ok(Some(channel)) = self.serve(tcp, &mut lane) {
                self.held.lock().unwrap_or_else(PoisonError::into_inner).push(channel);
            }
        }
    }

    /// Serves a connection to its end, or until it is to be held.
    fn serve(&self, tcp: TcpStream, lane: &mut Lane<P>) -> Result<Option<P::Channel>, Failure> {
        lane.clear();
        prepare(&tcp, self.congestion)?;
        let mut channel = self.protocol.accept(tcp, &mut lane.buffers)?;
        self.counters.handshake();
        let mut header = [0; HEADER_LENGTH];
        while lane.read_exact(&mut channel, &mut header)? == Peer::Open {
            let request = Request::decode(&header)?;
            self.answer(request, &header, &mut channel, lane)?;
            if request == Request::Hold {
                return Ok(Some(channel));
            }
        }
        Ok(None)
    }

    fn answer(
        &self,
        request: Request,
        header: &[u8; HEADER_LENGTH],
        channel: &mut P::Channel,
        lane: &mut Lane<P>,
    ) -> Result<(), Failure> {
        match request {
            Request::Upload { bytes, unique } => {
                lane.receive(channel, Transfer { unique, ..Transfer::new(bytes) })?;
                lane.write(channel, &bytes.to_be_bytes())
            }
            Request::Download { bytes, unique, write } => Transfer { bytes, unique, write }
                .send(&self.block, |piece| lane.write(channel, piece)),
            Request::Exchange { .. } => {
                let mut message = [0; EXCHANGE_LENGTH];
                let (head, rest) = message.split_at_mut(HEADER_LENGTH);
                head.copy_from_slice(header);
                lane.read_exact(channel, rest)?;
                lane.write(channel, &message)
            }
            Request::Usage => lane.write(channel, &usage_answer(&self.counters)?),
            Request::Hold => lane.write(channel, header),
        }
    }
}
