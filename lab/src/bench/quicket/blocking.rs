//! The client of the benchmark over blocking sockets.

use std::io::Write;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use quicket::{ClientConfig, Connection, Endpoint};
use quicket_workload::bench::{
    Assignment, Client, EXCHANGE_LENGTH, Failure, HEADER_LENGTH, Latencies, Link, Pattern, Request,
    Role, SERVER_NAME, Transfer, Usage,
};

use super::blocking_server::{receive, transmit};
use super::{client_config, link};
use crate::bench::network::unspecified_for;

/// A client over Quicket's blocking sockets.
pub(in crate::bench) struct BlockingClient {
    endpoint: Endpoint,
    config: ClientConfig,
    server: SocketAddr,
    block: Vec<u8>,
}

impl BlockingClient {
    pub(in crate::bench) fn new(assignment: &Assignment) -> Result<Self, Failure> {
        let Role::Client { connect, .. } = &assignment.role else {
            return Err("not told to be a client".into());
        };
        Ok(Self {
            endpoint: Endpoint::bind(unspecified_for(*connect))?,
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

impl Client for BlockingClient {
    type Connection = Connection;

    fn connect(&mut self) -> Result<Connection, Failure> {
        Ok(self.endpoint.connect(self.server, SERVER_NAME, &self.config)?)
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
        let Transfer { bytes, unique } = transfer;
        let mut stream = connection.open_bi()?;
        stream.write_all(&Request::Upload { bytes, unique }.encode())?;
        transmit(&mut stream, bytes, unique, &self.block)?;
        stream.finish()?;
        if stream.read_to_end(8)? == bytes.to_be_bytes() {
            Ok(())
        } else {
            Err("the server confirms another number of bytes".into())
        }
    }

    fn download(&mut self, connection: &mut Connection, transfer: Transfer) -> Result<(), Failure> {
        let Transfer { bytes, unique } = transfer;
        let mut stream = connection.open_bi()?;
        stream.write_all(&Request::Download { bytes, unique }.encode())?;
        stream.finish()?;
        let received = receive(&mut stream, Pattern::new(unique))?;
        if received == bytes {
            Ok(())
        } else {
            Err(format!("{received} bytes came of {bytes}").into())
        }
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
            let message = Request::exchange(number);
            let mut stream = connection.open_bi()?;
            stream.write_all(&message)?;
            stream.finish()?;
            if stream.read_to_end(EXCHANGE_LENGTH)? != message {
                return Err(format!("the answer to exchange {number} differs").into());
            }
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
        std::thread::scope(|scope| {
            let lanes: Vec<_> = (0..concurrency).map(|_| scope.spawn(lane)).collect();
            let mut all = Latencies::default();
            for lane in lanes {
                all.merge(lane.join().map_err(|_| "a thread panicked")??);
            }
            Ok(all)
        })
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
