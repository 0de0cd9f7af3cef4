//! s2n-quic as the benchmark's loads want it, and the client.

use std::net::SocketAddr;
use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;
use quicket_workload::bench::tasks::{TaskClient, Transport};
use quicket_workload::bench::{
    Assignment, Failure, Link, Role, SERVER_NAME, Session, Unsupported, client_config,
};
use s2n_quic::Client;
use s2n_quic::client::Connect;
use s2n_quic::connection::{Handle, StreamAcceptor};
use s2n_quic::provider::congestion_controller::{Bbr, Cubic};
use s2n_quic::provider::tls::rustls;
use s2n_quic::stream::{ReceiveStream, SendStream};
use tokio::runtime::Runtime;

use super::payloads::Payloads;
use super::{io, is_bbr, limits, runtime};

/// s2n-quic, its endpoint and the runtime of one thread.
pub struct S2n {
    runtime: Runtime,
    client: Client,
    server: SocketAddr,
    payloads: Payloads,
}

/// A connection, and what counts the datagrams of its endpoint.
#[derive(Clone)]
pub struct Connection {
    handle: Handle,
    payloads: Payloads,
}

impl From<Handle> for Connection {
    fn from(handle: Handle) -> Self {
        Self { handle, payloads: Payloads::default() }
    }
}

pub fn client(assignment: &Assignment) -> Result<TaskClient<S2n>, Failure> {
    let Role::Client { connect, roots, .. } = &assignment.role else {
        return Err("not told to be a client".into());
    };
    let tls = client_config(assignment.conditions, roots)?;
    let local = if connect.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let payloads = Payloads::new(assignment);
    let runtime = runtime()?;
    let client = runtime.block_on(async {
        let builder = Client::builder()
            .with_tls(rustls::Client::from(tls))?
            .with_io(io(assignment, local.parse()?)?)?
            .with_limits(limits()?)?
            .with_event(payloads.clone())?;
        Ok::<_, Failure>(if is_bbr(assignment) {
            builder.with_congestion_controller(Bbr::default())?.start()?
        } else {
            builder.with_congestion_controller(Cubic::default())?.start()?
        })
    })?;
    Ok(TaskClient::new(S2n { runtime, client, server: *connect, payloads }))
}

impl Transport for S2n {
    type Connection = Connection;
    type Acceptor = StreamAcceptor;
    type Pending = ();
    type Send = SendStream;
    type Recv = ReceiveStream;
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

    async fn connect(&self, session: Session) -> Result<(Connection, ()), Failure> {
        if session == Session::Early {
            return Err(Unsupported("s2n-quic has no 0-RTT").into());
        }
        let connect = Connect::new(self.server).with_server_name(SERVER_NAME);
        let handle = self.client.connect(connect).await?.handle();
        Ok((Connection { handle, payloads: self.payloads.clone() }, ()))
    }

    async fn confirm(_: &Connection, (): (), _: Session) -> Result<(), Failure> {
        Ok(())
    }

    fn close(connection: &Connection, code: u32, _: &[u8]) {
        connection.handle.close(code.into());
    }

    async fn finished(&self) {
        // Only the endpoint's owner may wait for that; it has nothing to say after this time.
        tokio::time::sleep(Duration::from_millis(50)).await;
    }

    async fn open(connection: &Connection) -> Result<(SendStream, ReceiveStream), Failure> {
        let (recv, send) = connection.handle.clone().open_bidirectional_stream().await?.split();
        Ok((send, recv))
    }

    async fn accept(acceptor: &mut StreamAcceptor) -> Result<(SendStream, ReceiveStream), Failure> {
        let stream = acceptor.accept_bidirectional_stream().await?;
        let (recv, send) = stream.ok_or("the connection is closed")?.split();
        Ok((send, recv))
    }

    async fn write(send: &mut SendStream, data: &[u8]) -> Result<(), Failure> {
        Ok(send.send(Bytes::copy_from_slice(data)).await?)
    }

    async fn write_block(
        send: &mut SendStream,
        block: &Bytes,
        range: Range<usize>,
    ) -> Result<(), Failure> {
        Ok(send.send(block.slice(range)).await?)
    }

    fn finish(send: &mut SendStream) -> Result<(), Failure> {
        Ok(send.finish()?)
    }

    async fn read(recv: &mut ReceiveStream, sink: &mut dyn FnMut(&[u8])) -> Result<bool, Failure> {
        let chunk = recv.receive().await?;
        if let Some(chunk) = &chunk {
            sink(chunk);
        }
        Ok(chunk.is_some())
    }

    fn link(connection: &Connection) -> Link {
        let (mean_udp_payload, mean_udp_payload_received) = connection.payloads.means();
        Link { mean_udp_payload, mean_udp_payload_received, ..Link::default() }
    }
}
