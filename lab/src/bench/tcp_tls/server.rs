//! The server of the benchmark: threads that accept, each serving one connection at a time.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};

use quicket_workload::bench::{
    Assignment, Counters, EXCHANGE_LENGTH, Failure, HEADER_LENGTH, MAX_IDLE_CONNECTIONS, Pattern,
    Request, Role, raise_open_files, server_config, usage_answer,
};
use rustls::ServerConfig;
use rustls::server::UnbufferedServerConnection;

use super::channel::{Buffers, Channel, Peer};

/// Connections served at once; more than any load has busy.
const WORKERS: usize = 64;
/// Open files beside those of connections.
const OTHER_FILES: u64 = 100;

type ServerChannel = Channel<UnbufferedServerConnection>;

struct Server {
    listener: TcpListener,
    config: Arc<ServerConfig>,
    counters: Counters,
    block: Vec<u8>,
    /// Connections that do nothing but stay open, for as long as this process lives.
    held: Mutex<Vec<ServerChannel>>,
}

pub(in crate::bench) fn serve(
    assignment: &Assignment,
    ready: &mut dyn FnMut(SocketAddr),
) -> Result<(), Failure> {
    let Role::Server { listen, certificate, key } = &assignment.role else {
        return Err("not told to be a server".into());
    };
    // Where so many are not permitted, fewer may do.
    let _ = raise_open_files(u64::from(MAX_IDLE_CONNECTIONS) + OTHER_FILES);
    let server = Server {
        listener: TcpListener::bind(listen)?,
        config: Arc::new(server_config(assignment.cipher, certificate, key)?),
        counters: Counters::default(),
        block: Pattern::new(false).block(),
        held: Mutex::default(),
    };
    ready(server.listener.local_addr()?);
    std::thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| server.work());
        }
    });
    Err("no thread accepts any more".into())
}

impl Server {
    fn work(&self) {
        let mut buffers = Buffers::default();
        while let Ok((tcp, _)) = self.listener.accept() {
            // What fails here fails for the client too, and it is the client who reports.
            if let Ok(Some(channel)) = self.serve(tcp, &mut buffers) {
                self.held.lock().unwrap_or_else(PoisonError::into_inner).push(channel);
            }
        }
    }

    /// Serves a connection to its end, or until it is to be held.
    fn serve(
        &self,
        tcp: TcpStream,
        buffers: &mut Buffers,
    ) -> Result<Option<ServerChannel>, Failure> {
        let tls = UnbufferedServerConnection::new(self.config.clone())?;
        let mut channel = Channel::establish(tcp, tls, buffers)?;
        self.counters.handshake();
        let mut header = [0; HEADER_LENGTH];
        while channel.read_exact(buffers, &mut header)? == Peer::Open {
            let request = Request::decode(&header)?;
            self.answer(request, &header, &mut channel, buffers)?;
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
        channel: &mut ServerChannel,
        buffers: &mut Buffers,
    ) -> Result<(), Failure> {
        match request {
            Request::Upload { bytes, unique } => {
                let pattern = Pattern::new(unique);
                channel.read_stream(buffers, bytes, |offset, data| pattern.check(offset, data))?;
                channel.write(buffers, &bytes.to_be_bytes())
            }
            Request::Download { bytes, unique } => {
                transmit(channel, buffers, bytes, unique, &self.block)
            }
            Request::Exchange { .. } => {
                let mut message = [0; EXCHANGE_LENGTH];
                let (head, rest) = message.split_at_mut(HEADER_LENGTH);
                head.copy_from_slice(header);
                channel.read_exact(buffers, rest)?;
                channel.write(buffers, &message)
            }
            Request::Usage => channel.write(buffers, &usage_answer(&self.counters)?),
            Request::Hold => channel.write(buffers, header),
        }
    }
}

/// Writes `bytes` bytes of the pattern.
pub(super) fn transmit<T: super::channel::Tls>(
    channel: &mut Channel<T>,
    buffers: &mut Buffers,
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
            channel.write(buffers, &own[..length])?;
        } else {
            channel.write(buffers, &block[..length])?;
        }
        offset += length as u64;
    }
    Ok(())
}
