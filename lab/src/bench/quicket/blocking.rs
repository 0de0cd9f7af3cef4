//! The client of the benchmark over blocking sockets.

use std::collections::VecDeque;
use std::io::Write;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use quicket::{ClientConfig, Connection, Endpoint, Stream};
use quicket_workload::bench::{
    Assignment, Client, EXCHANGE_LENGTH, Failure, HEADER_LENGTH, Latencies, Link, Pattern, Request,
    Role, SERVER_NAME, Session, Transfer, Usage,
};

use super::blocking_server::receive;
use super::{Sharing, client_config, confirm, link, port};
use crate::bench::network::unspecified_for;

/// A client over Quicket's blocking sockets.
pub(in crate::bench) struct BlockingClient {
    sharing: Sharing,
    endpoint: Endpoint,
    config: ClientConfig,
    server: SocketAddr,
    block: Vec<u8>,
}

impl BlockingClient {
    pub(in crate::bench) fn new(
        sharing: Sharing,
        assignment: &Assignment,
    ) -> Result<Self, Failure> {
        let Role::Client { connect, .. } = &assignment.role else {
            return Err("not told to be a client".into());
        };
        Ok(Self {
            sharing,
            endpoint: match sharing {
                Sharing::Port => port::connect(*connect, assignment)?,
                _ => Endpoint::bind(unspecified_for(*connect))?,
            },
            config: client_config(assignment)?,
            server: *connect,
            block: Pattern::new(false).block(),
        })
    }

    fn ask(&self, connection: &Connection, request: Request) -> Result<Vec<u8>, Failure> {
        let mut stream = connection.open_bi()?;
        stream.write_all(&request.encode())?;
        stream.finish()?;
        Ok(stream.read_to_end(EXCHANGE_LENGTH)?)
    }
}

fn exchange(connection: &Connection, number: u64) -> Result<(), Failure> {
    let message = Request::exchange(number);
    let mut stream = connection.open_bi()?;
    stream.write_all(&message)?;
    stream.finish()?;
    if stream.read_to_end(EXCHANGE_LENGTH)? == message {
        Ok(())
    } else {
        Err(format!("the answer to exchange {number} differs").into())
    }
}

/// Asks for a transfer.
fn request(connection: &Connection, transfer: Transfer) -> Result<Stream, Failure> {
    let mut stream = connection.open_bi()?;
    stream.write_all(&Request::download(transfer).encode())?;
    stream.finish()?;
    Ok(stream)
}

/// Keeps one transfer under way for each item of `connections`, as long as `more` says so.
///
/// They are awaited in the order in which they were asked for, and each that ends is followed by the
/// next one on its connection at once.
fn transfers<'a>(
    connections: impl Iterator<Item = &'a Connection>,
    transfer: Transfer,
    more: &mut dyn FnMut(u64) -> bool,
) -> Result<Latencies, Failure> {
    let mut latencies = Latencies::default();
    let mut begun = 0;
    let mut begin = |connection: &'a Connection| {
        if !more(begun) {
            return Ok::<_, Failure>(None);
        }
        begun += 1;
        Ok(Some((connection, Instant::now(), request(connection, transfer)?)))
    };
    let mut under_way = VecDeque::new();
    for connection in connections {
        under_way.extend(begin(connection)?);
    }
    while let Some((connection, start, mut stream)) = under_way.pop_front() {
        receive(&mut stream, transfer)?;
        latencies.record(start, Instant::now());
        under_way.extend(begin(connection)?);
    }
    Ok(latencies)
}

impl Client for BlockingClient {
    type Connection = Connection;

    fn connect(&mut self) -> Result<Connection, Failure> {
        let connection = self.endpoint.connect(self.server, SERVER_NAME, &self.config)?;
        if self.sharing.moves() {
            self.endpoint.rebind(unspecified_for(self.server))?;
            exchange(&connection, 0)?;
        }
        Ok(connection)
    }

    fn close(&mut self, connection: Connection) -> Result<(), Failure> {
        connection.close(0, b"");
        drop(connection);
        self.endpoint.wait_idle();
        Ok(())
    }

    fn link(&mut self, connection: &Connection) -> Link {
        link(connection.handshake(), &connection.stats())
    }

    fn upload(&mut self, connection: &mut Connection, transfer: Transfer) -> Result<(), Failure> {
        let Transfer { bytes, unique, .. } = transfer;
        let mut stream = connection.open_bi()?;
        stream.write_all(&Request::Upload { bytes, unique }.encode())?;
        transfer.send(&self.block, |piece| Ok(stream.write_all(piece)?))?;
        stream.finish()?;
        if stream.read_to_end(8)? == bytes.to_be_bytes() {
            Ok(())
        } else {
            Err("the server confirms another number of bytes".into())
        }
    }

    fn download(&mut self, connection: &mut Connection, transfer: Transfer) -> Result<(), Failure> {
        receive(&mut request(connection, transfer)?, transfer)
    }

    fn exchange_while(
        &mut self,
        connection: &mut Connection,
        more: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Latencies, Failure> {
        let mut latencies = Latencies::with_capacity(1 << 20);
        let mut number = 0;
        while more(number) {
            let start = Instant::now();
            exchange(connection, number)?;
            latencies.record(start, Instant::now());
            number += 1;
        }
        Ok(latencies)
    }

    fn handshake_while(
        &mut self,
        concurrency: usize,
        more: &(dyn Fn(u64) -> bool + Sync),
    ) -> Result<Latencies, Failure> {
        let begun = AtomicU64::new(0);
        let lane = || {
            let mut latencies = Latencies::default();
            while more(begun.fetch_add(1, Ordering::Relaxed)) {
                let start = Instant::now();
                let connection = self.endpoint.connect(self.server, SERVER_NAME, &self.config)?;
                latencies.record(start, Instant::now());
                connection.close(0, b"");
            }
            Ok::<_, Failure>(latencies)
        };
        if concurrency == 1 {
            return lane();
        }
        Latencies::of_threads(concurrency, lane)
    }

    fn first_byte_while(
        &mut self,
        session: Session,
        more: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Latencies, Failure> {
        let Self { endpoint, server, config, .. } = self;
        let mut latencies = Latencies::default();
        let mut begun = 0;
        while more(begun) {
            let start = Instant::now();
            let connection = match session {
                Session::Early => endpoint.connect_early(*server, SERVER_NAME, config)?,
                Session::None | Session::Resumed => {
                    endpoint.connect(*server, SERVER_NAME, config)?
                }
            };
            // The whole answer is in one packet.
            exchange(&connection, begun)?;
            latencies.record(start, Instant::now());
            connection.wait_established()?;
            confirm(session, connection.handshake(), connection.early_data())?;
            if session == Session::Early {
                // The first answer came before the ticket for the next connection.
                exchange(&connection, begun)?;
            }
            connection.close(0, b"");
            begun += 1;
        }
        Ok(latencies)
    }

    fn streams_while(
        &mut self,
        connection: &mut Connection,
        concurrency: usize,
        transfer: Transfer,
        more: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Latencies, Failure> {
        transfers(std::iter::repeat_n(&*connection, concurrency), transfer, more)
    }

    fn connections_while(
        &mut self,
        connections: &mut [Connection],
        transfer: Transfer,
        more: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Latencies, Failure> {
        transfers(connections.iter(), transfer, more)
    }

    fn flow(
        &mut self,
        connection: &mut Connection,
        more: &mut dyn FnMut(usize) -> bool,
    ) -> Result<(), Failure> {
        let mut stream = request(connection, Transfer::new(u64::MAX))?;
        while let Some(length) = stream.recv().read_chunk(|bytes, _| bytes.len())? {
            if !more(length) {
                connection.close(0, b"");
                return Ok(());
            }
        }
        Err("the stream without end has ended".into())
    }

    fn usage(&mut self, connection: &mut Connection) -> Result<Usage, Failure> {
        let answer = self.ask(connection, Request::Usage)?;
        Ok(Usage::decode(answer.as_slice().try_into()?))
    }

    fn hold(&mut self, connection: &mut Connection) -> Result<(), Failure> {
        if self.ask(connection, Request::Hold)?.len() == HEADER_LENGTH {
            Ok(())
        } else {
            Err("the server does not hold the connection".into())
        }
    }

    fn rest(&mut self, duration: Duration) {
        std::thread::sleep(duration);
    }
}
