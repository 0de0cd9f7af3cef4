//! The client of the benchmark.

use std::cell::Cell;
use std::time::{Duration, Instant};

use futures_util::future::try_join_all;

use super::{Transport, transmit};
use crate::bench::{
    Arrival, Client, Failure, HEADER_LENGTH, Latencies, Link, Pattern, Request, Session, Transfer,
    Usage,
};

/// A client over an implementation of QUIC.
pub struct TaskClient<T: Transport> {
    transport: T,
    block: T::Block,
}

impl<T: Transport> TaskClient<T> {
    /// A client.
    pub fn new(transport: T) -> Self {
        Self { transport, block: T::block(Pattern::new(false).block()) }
    }
}

/// Sends a request and reads the answer.
async fn ask<T: Transport>(connection: &T::Connection, request: &[u8]) -> Result<Vec<u8>, Failure> {
    let (mut send, mut recv) = T::open(connection).await?;
    T::write(&mut send, request).await?;
    T::finish(&mut send)?;
    let mut answer = Vec::new();
    while T::read(&mut recv, &mut |bytes| answer.extend_from_slice(bytes)).await? {}
    Ok(answer)
}

async fn exchange<T: Transport>(connection: &T::Connection, number: u64) -> Result<(), Failure> {
    let message = Request::exchange(number);
    if ask::<T>(connection, &message).await? == message {
        Ok(())
    } else {
        Err(format!("the answer to exchange {number} differs").into())
    }
}

async fn upload<T: Transport>(
    connection: &T::Connection,
    transfer: Transfer,
    block: &T::Block,
) -> Result<(), Failure> {
    let Transfer { bytes, unique, .. } = transfer;
    let (mut send, mut recv) = T::open(connection).await?;
    T::write(&mut send, &Request::Upload { bytes, unique }.encode()).await?;
    transmit::<T>(&mut send, transfer, block).await?;
    T::finish(&mut send)?;
    let mut answer = Vec::new();
    while T::read(&mut recv, &mut |bytes| answer.extend_from_slice(bytes)).await? {}
    if answer == bytes.to_be_bytes() {
        Ok(())
    } else {
        Err("the server confirms another number of bytes".into())
    }
}

/// Asks for a transfer.
async fn request<T: Transport>(
    connection: &T::Connection,
    transfer: Transfer,
) -> Result<T::Recv, Failure> {
    let (mut send, recv) = T::open(connection).await?;
    T::write(&mut send, &Request::download(transfer).encode()).await?;
    T::finish(&mut send)?;
    Ok(recv)
}

async fn download<T: Transport>(
    connection: &T::Connection,
    transfer: Transfer,
) -> Result<(), Failure> {
    let mut recv = request::<T>(connection, transfer).await?;
    let mut arrival = Arrival::of(transfer);
    while T::read(&mut recv, &mut |bytes| arrival.take(bytes)).await? {}
    arrival.finish()
}

/// Downloads one transfer after the other as long as `more` says so.
async fn downloads<T: Transport>(
    connection: &T::Connection,
    transfer: Transfer,
    more: &dyn Fn() -> bool,
) -> Result<Latencies, Failure> {
    let mut latencies = Latencies::default();
    while more() {
        let start = Instant::now();
        download::<T>(connection, transfer).await?;
        latencies.record(start, Instant::now());
    }
    Ok(latencies)
}

/// Asks `more` with the number of those begun, from several tasks.
fn counted<'a>(more: &'a mut dyn FnMut(u64) -> bool) -> impl Fn() -> bool + 'a {
    let begun = Cell::new(0);
    let more = std::cell::RefCell::new(more);
    move || (more.borrow_mut())(begun.replace(begun.get() + 1))
}

fn merged(all: Vec<Latencies>) -> Latencies {
    let mut merged = Latencies::default();
    for latencies in all {
        merged.merge(latencies);
    }
    merged
}

impl<T: Transport> Client for TaskClient<T> {
    type Connection = T::Connection;

    fn connect(&mut self) -> Result<T::Connection, Failure> {
        Ok(self.transport.block_on(self.transport.connect(Session::None))?.0)
    }

    fn close(&mut self, connection: T::Connection) -> Result<(), Failure> {
        T::close(&connection, 0, b"");
        drop(connection);
        self.transport.block_on(self.transport.finished());
        Ok(())
    }

    fn link(&mut self, connection: &T::Connection) -> Link {
        T::link(connection)
    }

    fn upload(
        &mut self,
        connection: &mut T::Connection,
        transfer: Transfer,
    ) -> Result<(), Failure> {
        self.transport.block_on(upload::<T>(connection, transfer, &self.block))
    }

    fn download(
        &mut self,
        connection: &mut T::Connection,
        transfer: Transfer,
    ) -> Result<(), Failure> {
        self.transport.block_on(download::<T>(connection, transfer))
    }

    fn exchange_while(
        &mut self,
        connection: &mut T::Connection,
        more: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Latencies, Failure> {
        self.transport.block_on(async {
            let mut latencies = Latencies::with_capacity(1 << 20);
            let mut number = 0;
            while more(number) {
                let start = Instant::now();
                exchange::<T>(connection, number).await?;
                latencies.record(start, Instant::now());
                number += 1;
            }
            Ok(latencies)
        })
    }

    fn handshake_while(
        &mut self,
        concurrency: usize,
        more: &(dyn Fn(u64) -> bool + Sync),
    ) -> Result<Latencies, Failure> {
        let begun = Cell::new(0);
        let lane = async || {
            let mut latencies = Latencies::default();
            while more(begun.replace(begun.get() + 1)) {
                let start = Instant::now();
                let (connection, _) = self.transport.connect(Session::None).await?;
                latencies.record(start, Instant::now());
                T::close(&connection, 0, b"");
            }
            Ok::<_, Failure>(latencies)
        };
        let lanes = try_join_all((0..concurrency).map(|_| lane()));
        Ok(merged(self.transport.block_on(lanes)?))
    }

    fn first_byte_while(
        &mut self,
        session: Session,
        more: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Latencies, Failure> {
        self.transport.block_on(async {
            let mut latencies = Latencies::default();
            let mut begun = 0;
            while more(begun) {
                let start = Instant::now();
                let (connection, pending) = self.transport.connect(session).await?;
                // The whole answer is in one packet.
                exchange::<T>(&connection, begun).await?;
                latencies.record(start, Instant::now());
                T::confirm(&connection, pending, session).await?;
                if session == Session::Early {
                    // The first answer came before the ticket for the next connection.
                    exchange::<T>(&connection, begun).await?;
                }
                T::close(&connection, 0, b"");
                begun += 1;
            }
            Ok(latencies)
        })
    }

    fn streams_while(
        &mut self,
        connection: &mut T::Connection,
        concurrency: usize,
        transfer: Transfer,
        more: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Latencies, Failure> {
        let more = counted(more);
        let lanes = (0..concurrency).map(|_| downloads::<T>(connection, transfer, &more));
        Ok(merged(self.transport.block_on(try_join_all(lanes))?))
    }

    fn connections_while(
        &mut self,
        connections: &mut [T::Connection],
        transfer: Transfer,
        more: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Latencies, Failure> {
        let more = counted(more);
        let lanes = connections.iter().map(|one| downloads::<T>(one, transfer, &more));
        Ok(merged(self.transport.block_on(try_join_all(lanes))?))
    }

    fn flow(
        &mut self,
        connection: &mut T::Connection,
        more: &mut dyn FnMut(usize) -> bool,
    ) -> Result<(), Failure> {
        self.transport.block_on(async {
            let mut recv = request::<T>(connection, Transfer::new(u64::MAX)).await?;
            loop {
                let mut length = 0;
                let open = T::read(&mut recv, &mut |bytes| length += bytes.len()).await?;
                if !more(length) {
                    T::close(connection, 0, b"");
                    return Ok(());
                }
                if !open {
                    return Err("the stream without end has ended".into());
                }
            }
        })
    }

    fn usage(&mut self, connection: &mut T::Connection) -> Result<Usage, Failure> {
        let request = Request::Usage.encode();
        let answer = self.transport.block_on(ask::<T>(connection, &request))?;
        Ok(Usage::decode(answer.as_slice().try_into()?))
    }

    fn hold(&mut self, connection: &mut T::Connection) -> Result<(), Failure> {
        let request = Request::Hold.encode();
        let answer = self.transport.block_on(ask::<T>(connection, &request))?;
        if answer.len() == HEADER_LENGTH {
            Ok(())
        } else {
            Err("the server does not hold the connection".into())
        }
    }

    fn rest(&mut self, duration: Duration) {
        self.transport.block_on(T::sleep(duration));
    }
}
