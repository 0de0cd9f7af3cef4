//! Quicket's sockets for tokio, on a runtime of one thread.

use std::net::SocketAddr;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use quicket::ClientConfig;
use quicket::tokio::{Connection, Endpoint, Listener, RecvStream, SendStream};
use quicket_workload::bench::tasks::{TaskClient, Transport, serve_connection};
use quicket_workload::bench::{
    Assignment, Counters, Failure, Link, Pattern, Role, SERVER_NAME, Session,
};
use tokio::runtime::{Builder, Runtime};
use tokio::task::{LocalSet, spawn_local};

use super::{client_config, confirm, link, server_config};
use crate::bench::network::unspecified_for;

/// Quicket over tokio.
pub(in crate::bench) struct Tokio {
    runtime: Runtime,
    endpoint: Endpoint,
    config: ClientConfig,
    server: SocketAddr,
}

/// A client over Quicket's sockets for tokio.
pub(in crate::bench) fn client(assignment: &Assignment) -> Result<TaskClient<Tokio>, Failure> {
    let Role::Client { connect, .. } = &assignment.role else {
        return Err("not told to be a client".into());
    };
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let endpoint = runtime.block_on(Endpoint::bind(unspecified_for(*connect)))?;
    let config = client_config(assignment)?;
    Ok(TaskClient::new(Tokio { runtime, endpoint, config, server: *connect }))
}

/// The server.
pub(in crate::bench) fn serve(
    assignment: &Assignment,
    ready: &mut dyn FnMut(SocketAddr),
) -> Result<(), Failure> {
    let Role::Server { listen, .. } = &assignment.role else {
        return Err("not told to be a server".into());
    };
    let runtime = Builder::new_current_thread().enable_all().build()?;
    LocalSet::new().block_on(&runtime, async {
        let config = server_config(assignment)?;
        // Where there are tickets, early data is read as soon as it comes.
        let listener = if assignment.conditions.tickets {
            Endpoint::bind(*listen).await?.listen_early(config)?
        } else {
            Listener::bind(*listen, config).await?
        };
        ready(listener.local_addr());
        let counters = Rc::new(Counters::default());
        let block = Tokio::block(Pattern::new(false).block());
        loop {
            let connection = listener.accept().await?;
            let (counters, block) = (counters.clone(), block.clone());
            Tokio::spawn(serve_connection::<Tokio>(
                connection.clone(),
                connection,
                counters,
                block,
            ));
        }
    })
}

impl Transport for Tokio {
    type Connection = Connection;
    type Acceptor = Connection;
    type Pending = ();
    type Send = SendStream;
    type Recv = RecvStream;
    type Block = Arc<[u8]>;

    fn block(bytes: Vec<u8>) -> Arc<[u8]> {
        bytes.into()
    }

    fn block_on<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.block_on(work)
    }

    fn spawn(work: impl Future<Output = ()> + 'static) {
        spawn_local(work);
    }

    async fn sleep(duration: Duration) {
        tokio::time::sleep(duration).await;
    }

    async fn connect(&self, session: Session) -> Result<(Connection, ()), Failure> {
        let Self { endpoint, config, server, .. } = self;
        let connection = match session {
            Session::Early => endpoint.connect_early(*server, SERVER_NAME, config)?,
            Session::None | Session::Resumed => {
                endpoint.connect(*server, SERVER_NAME, config).await?
            }
        };
        Ok((connection, ()))
    }

    async fn confirm(connection: &Connection, (): (), session: Session) -> Result<(), Failure> {
        connection.wait_established().await?;
        confirm(session, connection.handshake(), connection.early_data())
    }

    fn close(connection: &Connection, code: u32, reason: &[u8]) {
        connection.close(code.into(), reason);
    }

    async fn finished(&self) {
        self.endpoint.wait_idle().await;
    }

    async fn open(connection: &Connection) -> Result<(SendStream, RecvStream), Failure> {
        Ok(connection.open_bi().await?.split())
    }

    async fn accept(connection: &mut Connection) -> Result<(SendStream, RecvStream), Failure> {
        Ok(connection.accept_bi().await?.split())
    }

    async fn write(send: &mut SendStream, data: &[u8]) -> Result<(), Failure> {
        Ok(send.write_all(data).await?)
    }

    async fn write_block(
        send: &mut SendStream,
        block: &Arc<[u8]>,
        range: Range<usize>,
    ) -> Result<(), Failure> {
        Ok(send.write_all(&block[range]).await?)
    }

    fn finish(send: &mut SendStream) -> Result<(), Failure> {
        Ok(send.finish()?)
    }

    async fn read(recv: &mut RecvStream, sink: &mut dyn FnMut(&[u8])) -> Result<bool, Failure> {
        let read = recv.read_chunk(|bytes, _| {
            sink(bytes);
            bytes.len()
        });
        Ok(read.await?.is_some())
    }

    fn link(connection: &Connection) -> Link {
        link(connection.handshake(), &connection.stats())
    }
}
