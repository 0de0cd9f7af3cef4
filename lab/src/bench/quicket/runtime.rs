//! The client of the benchmark over tokio, on a runtime of one thread.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::try_join_all;
use quicket::ClientConfig;
use quicket::tokio::{Connection, Endpoint};
use quicket_workload::bench::{
    Assignment, Client, EXCHANGE_LENGTH, Failure, HEADER_LENGTH, Latencies, Link, Pattern, Request,
    Role, SERVER_NAME, Transfer, Usage,
};
use tokio::runtime::{Builder, Runtime};

use super::runtime_server::{receive, transmit};
use super::{client_config, link};
use crate::bench::network::unspecified_for;

/// A client over Quicket's sockets for tokio.
pub(in crate::bench) struct TokioClient {
    runtime: Runtime,
    endpoint: Arc<Endpoint>,
    config: ClientConfig,
    server: SocketAddr,
    block: Vec<u8>,
}

impl TokioClient {
    pub(in crate::bench) fn new(assignment: &Assignment) -> Result<Self, Failure> {
        let Role::Client { connect, .. } = &assignment.role else {
            return Err("not told to be a client".into());
        };
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let endpoint = runtime.block_on(Endpoint::bind(unspecified_for(*connect)))?;
        Ok(Self {
            runtime,
            endpoint: Arc::new(endpoint),
            config: client_config(assignment)?,
            server: *connect,
            block: Pattern::new(false).block(),
        })
    }

    fn ask(&self, connection: &Connection, request: Request) -> Result<Vec<u8>, Failure> {
        self.runtime.block_on(async {
            let mut stream = connection.open_bi().await?;
            stream.send().write_all(&request.encode()).await?;
            stream.finish()?;
            Ok(stream.read_to_end(EXCHANGE_LENGTH).await?)
        })
    }
}

impl Client for TokioClient {
    type Connection = Connection;

    fn connect(&mut self) -> Result<Connection, Failure> {
        let connect = self.endpoint.connect(self.server, SERVER_NAME, &self.config);
        Ok(self.runtime.block_on(connect)?)
    }

    fn close(&mut self, connection: Connection) -> Result<(), Failure> {
        connection.close(0, b"");
        drop(connection);
        self.runtime.block_on(self.endpoint.wait_idle());
        Ok(())
    }

    fn link(&mut self, connection: &Connection) -> Link {
        link(connection.handshake(), &connection.stats())
    }

    fn upload(&mut self, connection: &mut Connection, transfer: Transfer) -> Result<(), Failure> {
        let Transfer { bytes, unique } = transfer;
        self.runtime.block_on(async {
            let (mut send, mut recv) = connection.open_bi().await?.split();
            send.write_all(&Request::Upload { bytes, unique }.encode()).await?;
            transmit(&mut send, bytes, unique, &self.block).await?;
            send.finish()?;
            if recv.read_to_end(8).await? == bytes.to_be_bytes() {
                Ok(())
            } else {
                Err("the server confirms another number of bytes".into())
            }
        })
    }

    fn download(&mut self, connection: &mut Connection, transfer: Transfer) -> Result<(), Failure> {
        let Transfer { bytes, unique } = transfer;
        self.runtime.block_on(async {
            let (mut send, mut recv) = connection.open_bi().await?.split();
            send.write_all(&Request::Download { bytes, unique }.encode()).await?;
            send.finish()?;
            let received = receive(&mut recv, Pattern::new(unique)).await?;
            if received == bytes {
                Ok(())
            } else {
                Err(format!("{received} bytes came of {bytes}").into())
            }
        })
    }

    fn exchange_while(
        &mut self,
        connection: &mut Connection,
        more: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Latencies, Failure> {
        self.runtime.block_on(async {
            let mut latencies = Latencies::with_capacity(1 << 20);
            let mut number = 0;
            while more(number) {
                let start = Instant::now();
                let message = Request::exchange(number);
                let mut stream = connection.open_bi().await?;
                stream.send().write_all(&message).await?;
                stream.finish()?;
                if stream.read_to_end(EXCHANGE_LENGTH).await? != message {
                    return Err(format!("the answer to exchange {number} differs").into());
                }
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
        let begun = std::cell::Cell::new(0);
        let lane = async || {
            let mut latencies = Latencies::default();
            while more(begun.replace(begun.get() + 1)) {
                let start = Instant::now();
                let connection =
                    self.endpoint.connect(self.server, SERVER_NAME, &self.config).await?;
                latencies.record(start, Instant::now());
                connection.close(0, b"");
            }
            Ok::<_, Failure>(latencies)
        };
        self.runtime.block_on(async {
            let mut all = Latencies::default();
            for latencies in try_join_all((0..concurrency).map(|_| lane())).await? {
                all.merge(latencies);
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
        self.runtime.block_on(async { tokio::time::sleep(duration).await });
    }
}
