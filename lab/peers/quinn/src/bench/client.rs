//! The client of the benchmark.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::try_join_all;
use quicket_workload::bench::{
    Assignment, Client, EXCHANGE_LENGTH, Failure, HEADER_LENGTH, Latencies, Link, Pattern, Request,
    Role, SERVER_NAME, Transfer, Usage, client_config,
};
use quinn::crypto::rustls::QuicClientConfig;
use quinn::{ClientConfig, Connection, Endpoint, RecvStream, SendStream};
use tokio::runtime::Runtime;

use super::server::{receive, transmit};
use super::{endpoint_config, runtime, socket, transport};
use crate::tls::initial_suite;

/// A client over quinn.
pub struct QuinnClient {
    runtime: Runtime,
    endpoint: Endpoint,
    server: SocketAddr,
    block: Bytes,
}

impl QuinnClient {
    pub fn new(assignment: &Assignment) -> Result<Self, Failure> {
        let Role::Client { connect, roots, .. } = &assignment.role else {
            return Err("not told to be a client".into());
        };
        let crypto = client_config(assignment.cipher, roots)?;
        let crypto = QuicClientConfig::with_initial(Arc::new(crypto), initial_suite()?)?;
        let mut config = ClientConfig::new(Arc::new(crypto));
        config.transport_config(transport(assignment)?);
        let local = if connect.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let runtime = runtime()?;
        let entered = runtime.enter();
        let mut endpoint = Endpoint::new(
            endpoint_config(assignment)?,
            None,
            socket(local.parse()?)?,
            Arc::new(quinn::TokioRuntime),
        )?;
        drop(entered);
        endpoint.set_default_client_config(config);
        let block = Bytes::from(Pattern::new(false).block());
        Ok(Self { runtime, endpoint, server: *connect, block })
    }

    fn request(&self, connection: &Connection, request: Request) -> Result<Vec<u8>, Failure> {
        self.runtime.block_on(async {
            let (mut send, mut recv) = connection.open_bi().await?;
            send.write_all(&request.encode()).await?;
            send.finish()?;
            Ok(recv.read_to_end(EXCHANGE_LENGTH).await?)
        })
    }
}

impl Client for QuinnClient {
    type Connection = Connection;

    fn connect(&mut self) -> Result<Connection, Failure> {
        self.runtime.block_on(async { Ok(self.endpoint.connect(self.server, SERVER_NAME)?.await?) })
    }

    fn close(&mut self, connection: Connection) -> Result<(), Failure> {
        connection.close(0_u32.into(), b"");
        drop(connection);
        self.runtime.block_on(self.endpoint.wait_idle());
        Ok(())
    }

    fn link(&mut self, connection: &Connection) -> Link {
        let stats = connection.stats();
        let datagrams = stats.udp_tx.datagrams.max(1);
        Link {
            cipher: None,
            mean_udp_payload: Some(stats.udp_tx.bytes as f64 / datagrams as f64),
            lost_packets: Some(stats.path.lost_packets),
        }
    }

    fn upload(&mut self, connection: &mut Connection, transfer: Transfer) -> Result<(), Failure> {
        let Transfer { bytes, unique } = transfer;
        self.runtime.block_on(async {
            let (mut send, mut recv) = connection.open_bi().await?;
            send.write_all(&Request::Upload { bytes, unique }.encode()).await?;
            transmit(&mut send, bytes, unique, &self.block).await?;
            send.finish()?;
            confirmed(&mut recv, bytes).await
        })
    }

    fn download(&mut self, connection: &mut Connection, transfer: Transfer) -> Result<(), Failure> {
        let Transfer { bytes, unique } = transfer;
        self.runtime.block_on(async {
            let (mut send, mut recv) = connection.open_bi().await?;
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
                let (mut send, mut recv) = connection.open_bi().await?;
                exchange(&mut send, &mut recv, number).await?;
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
        let begun = AtomicU64::new(0);
        let lane = async || {
            let mut latencies = Latencies::default();
            while more(begun.fetch_add(1, Ordering::Relaxed)) {
                let start = Instant::now();
                let connection = self.endpoint.connect(self.server, SERVER_NAME)?.await?;
                latencies.record(start, Instant::now());
                connection.close(0_u32.into(), b"");
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
        let answer = self.request(connection, Request::Usage)?;
        let answer = answer.as_slice().try_into()?;
        Ok(Usage::decode(answer))
    }

    fn hold(&mut self, connection: &mut Connection) -> Result<(), Failure> {
        let answer = self.request(connection, Request::Hold)?;
        if answer.len() == HEADER_LENGTH {
            Ok(())
        } else {
            Err("the server does not hold the connection".into())
        }
    }

    fn rest(&mut self, duration: Duration) {
        self.runtime.block_on(async { tokio::time::sleep(duration).await });
    }
}

async fn confirmed(recv: &mut RecvStream, bytes: u64) -> Result<(), Failure> {
    let mut answer = [0; 8];
    recv.read_exact(&mut answer).await?;
    if u64::from_be_bytes(answer) == bytes {
        Ok(())
    } else {
        Err("the server confirms another number of bytes".into())
    }
}

async fn exchange(
    send: &mut SendStream,
    recv: &mut RecvStream,
    number: u64,
) -> Result<(), Failure> {
    let message = Request::exchange(number);
    send.write_all(&message).await?;
    send.finish()?;
    let mut answer = [0; EXCHANGE_LENGTH];
    recv.read_exact(&mut answer).await?;
    // The end of the stream, so that it is over for both ends.
    let rest = recv.read_to_end(0).await?;
    if answer == message && rest.is_empty() {
        Ok(())
    } else {
        Err(format!("the answer to exchange {number} differs").into())
    }
}
