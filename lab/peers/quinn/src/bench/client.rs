//! quinn as the benchmark's loads want it, and the client.

use std::future::Future;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use quicket_workload::bench::tasks::{TaskClient, Transport};
use quicket_workload::bench::{
    Assignment, Failure, Link, Role, SERVER_NAME, Session, client_config,
};
use quinn::crypto::rustls::QuicClientConfig;
use quinn::{ClientConfig, Connection, Endpoint, RecvStream, SendStream, ZeroRttAccepted};
use tokio::runtime::Runtime;

use super::{endpoint_config, runtime, socket, transport};
use crate::tls::initial_suite;

/// quinn, its endpoint and the runtime of one thread.
pub struct Quinn {
    runtime: Runtime,
    endpoint: Endpoint,
    server: SocketAddr,
}

pub fn client(assignment: &Assignment) -> Result<TaskClient<Quinn>, Failure> {
    let Role::Client { connect, roots, .. } = &assignment.role else {
        return Err("not told to be a client".into());
    };
    let mut crypto = client_config(assignment.conditions, roots)?;
    crypto.enable_early_data = assignment.conditions.tickets;
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
    Ok(TaskClient::new(Quinn { runtime, endpoint, server: *connect }))
}

impl Transport for Quinn {
    type Connection = Connection;
    type Acceptor = Connection;
    type Pending = Option<ZeroRttAccepted>;
    type Send = SendStream;
    type Recv = RecvStream;
    type Block = Bytes;

    fn block(bytes: Vec<u8>) -> Bytes {
        bytes.into()
    }

    fn block_on<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.block_on(work)
    }

    fn spawn(work: impl Future<Output = ()> + 'static) {
        tokio::task::spawn_local(work);
    }

    async fn sleep(duration: Duration) {
        tokio::time::sleep(duration).await;
    }

    async fn connect(&self, session: Session) -> Result<(Connection, Self::Pending), Failure> {
        let connecting = self.endpoint.connect(self.server, SERVER_NAME)?;
        if session != Session::Early {
            return Ok((connecting.await?, None));
        }
        match connecting.into_0rtt() {
            Ok((connection, accepted)) => Ok((connection, Some(accepted))),
            Err(_) => Err("there is no session for early data".into()),
        }
    }

    async fn confirm(_: &Connection, accepted: Self::Pending, _: Session) -> Result<(), Failure> {
        let Some(accepted) = accepted else { return Ok(()) };
        if accepted.await { Ok(()) } else { Err("early data was rejected".into()) }
    }

    fn close(connection: &Connection, code: u32, reason: &[u8]) {
        connection.close(code.into(), reason);
    }

    async fn finished(&self) {
        self.endpoint.wait_idle().await;
    }

    async fn open(connection: &Connection) -> Result<(SendStream, RecvStream), Failure> {
        Ok(connection.open_bi().await?)
    }

    async fn accept(connection: &mut Connection) -> Result<(SendStream, RecvStream), Failure> {
        Ok(connection.accept_bi().await?)
    }

    async fn write(send: &mut SendStream, data: &[u8]) -> Result<(), Failure> {
        Ok(send.write_all(data).await?)
    }

    async fn write_block(
        send: &mut SendStream,
        block: &Bytes,
        range: Range<usize>,
    ) -> Result<(), Failure> {
        Ok(send.write_chunk(block.slice(range)).await?)
    }

    fn finish(send: &mut SendStream) -> Result<(), Failure> {
        Ok(send.finish()?)
    }

    async fn read(recv: &mut RecvStream, sink: &mut dyn FnMut(&[u8])) -> Result<bool, Failure> {
        let chunk = recv.read_chunk(usize::MAX, true).await?;
        if let Some(chunk) = &chunk {
            sink(&chunk.bytes);
        }
        Ok(chunk.is_some())
    }

    fn link(connection: &Connection) -> Link {
        let stats = connection.stats();
        let mean = |bytes: u64, datagrams: u64| Some(bytes as f64 / datagrams.max(1) as f64);
        Link {
            cipher: None,
            mean_udp_payload: mean(stats.udp_tx.bytes, stats.udp_tx.datagrams),
            mean_udp_payload_received: mean(stats.udp_rx.bytes, stats.udp_rx.datagrams),
            lost_packets: Some(stats.path.lost_packets),
        }
    }
}
