//! quiche as the benchmark's loads want it: streams whose calls wait.

use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::ops::Range;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use quiche::Error;
use quicket_workload::bench::tasks::Transport;
use quicket_workload::bench::{Failure, Link, Session};
use tokio::runtime::Runtime;
use tokio::task::LocalSet;

use super::endpoint::{Connection, Endpoint};

/// quiche, its endpoint and the runtime of one thread.
pub struct Quiche {
    pub runtime: Runtime,
    pub tasks: LocalSet,
    pub endpoint: Rc<Endpoint>,
    pub server: SocketAddr,
}

/// The sending half of a stream.
pub struct Send {
    connection: Connection,
    id: u64,
}

/// The receiving half of a stream.
pub struct Recv {
    connection: Connection,
    id: u64,
    ended: bool,
}

impl Drop for Recv {
    fn drop(&mut self) {
        let mut conn = self.connection.conn.borrow_mut();
        conn.readers.remove(&self.id);
        conn.streams.remove(&self.id);
    }
}

fn halves(connection: &Connection, id: u64) -> (Send, Recv) {
    let send = Send { connection: connection.clone(), id };
    (send, Recv { connection: connection.clone(), id, ended: false })
}

fn over(connection: &quiche::Connection) -> Result<(), Failure> {
    if connection.is_closed() || connection.is_draining() || connection.local_error().is_some() {
        return Err("the connection is closed".into());
    }
    Ok(())
}

impl Transport for Quiche {
    type Connection = Connection;
    type Acceptor = Connection;
    type Pending = ();
    type Send = Send;
    type Recv = Recv;
    type Block = Rc<[u8]>;

    fn block(bytes: Vec<u8>) -> Rc<[u8]> {
        bytes.into()
    }

    fn block_on<T>(&self, work: impl Future<Output = T>) -> T {
        self.tasks.block_on(&self.runtime, work)
    }

    fn spawn(work: impl Future<Output = ()> + 'static) {
        tokio::task::spawn_local(work);
    }

    async fn sleep(duration: Duration) {
        tokio::time::sleep(duration).await;
    }

    async fn connect(&self, session: Session) -> Result<(Connection, ()), Failure> {
        let connection = self.endpoint.connect(self.server, session)?;
        let early = session == Session::Early;
        poll_fn(|context| {
            let mut conn = connection.conn.borrow_mut();
            if conn.quic.is_established() || early && conn.quic.is_in_early_data() {
                return Poll::Ready(Ok(()));
            }
            if let Err(failure) = over(&conn.quic) {
                return Poll::Ready(Err(failure));
            }
            conn.others.push(context.waker().clone());
            Poll::Pending
        })
        .await?;
        Ok((connection, ()))
    }

    async fn confirm(connection: &Connection, (): (), session: Session) -> Result<(), Failure> {
        if session == Session::None || connection.conn.borrow().quic.is_resumed() {
            Ok(())
        } else {
            Err("the server did not resume the session".into())
        }
    }

    fn close(connection: &Connection, code: u32, reason: &[u8]) {
        // It may be closed already.
        let _ = connection.conn.borrow_mut().quic.close(true, code.into(), reason);
        connection.touch();
    }

    async fn finished(&self) {
        // What is to be said is said as soon as the endpoint has its turn.
        tokio::time::sleep(Duration::from_millis(5)).await;
    }

    async fn open(connection: &Connection) -> Result<(Send, Recv), Failure> {
        let id = poll_fn(|context| {
            let mut conn = connection.conn.borrow_mut();
            if let Err(failure) = over(&conn.quic) {
                return Poll::Ready(Err(failure));
            }
            if conn.quic.peer_streams_left_bidi() == 0 {
                conn.others.push(context.waker().clone());
                return Poll::Pending;
            }
            let id = conn.next_stream;
            conn.next_stream += 4;
            Poll::Ready(Ok(id))
        })
        .await?;
        Ok(halves(connection, id))
    }

    async fn accept(connection: &mut Connection) -> Result<(Send, Recv), Failure> {
        let id = poll_fn(|context| {
            let mut conn = connection.conn.borrow_mut();
            if let Some(id) = conn.incoming.pop_front() {
                return Poll::Ready(Ok(id));
            }
            if let Err(failure) = over(&conn.quic) {
                return Poll::Ready(Err(failure));
            }
            conn.others.push(context.waker().clone());
            Poll::Pending
        })
        .await?;
        Ok(halves(connection, id))
    }

    async fn write(send: &mut Send, mut data: &[u8]) -> Result<(), Failure> {
        let Send { connection, id } = send;
        poll_fn(|context| {
            let mut conn = connection.conn.borrow_mut();
            match conn.quic.stream_send(*id, data, false) {
                Ok(length) => data = &data[length..],
                Err(Error::Done | Error::StreamLimit) => {}
                Err(error) => return Poll::Ready(Err(Failure::from(error))),
            }
            if data.is_empty() {
                return Poll::Ready(Ok(()));
            }
            if let Err(failure) = over(&conn.quic) {
                return Poll::Ready(Err(failure));
            }
            conn.writers.insert(*id, context.waker().clone());
            drop(conn);
            connection.touch();
            Poll::Pending
        })
        .await?;
        connection.touch();
        Ok(())
    }

    async fn write_block(
        send: &mut Send,
        block: &Rc<[u8]>,
        range: Range<usize>,
    ) -> Result<(), Failure> {
        Self::write(send, &block[range]).await
    }

    fn finish(send: &mut Send) -> Result<(), Failure> {
        send.connection.conn.borrow_mut().quic.stream_send(send.id, b"", true)?;
        send.connection.touch();
        Ok(())
    }

    async fn read(recv: &mut Recv, sink: &mut dyn FnMut(&[u8])) -> Result<bool, Failure> {
        if recv.ended {
            return Ok(false);
        }
        let Recv { connection, id, ended } = recv;
        let endpoint = connection.endpoint.clone();
        poll_fn(|context| {
            let mut conn = connection.conn.borrow_mut();
            let mut buffer = endpoint.buffer.borrow_mut();
            match conn.quic.stream_recv(*id, &mut buffer) {
                Ok((length, fin)) => {
                    drop(conn);
                    connection.touch();
                    sink(&buffer[..length]);
                    *ended = fin;
                    return Poll::Ready(Ok(length > 0 || !fin));
                }
                // A client's stream is known once it has sent.
                Err(Error::Done | Error::InvalidStreamState(_)) => {}
                Err(error) => return Poll::Ready(Err(error.into())),
            }
            if let Err(failure) = over(&conn.quic) {
                return Poll::Ready(Err(failure));
            }
            conn.readers.insert(*id, context.waker().clone());
            Poll::Pending
        })
        .await
    }

    fn link(connection: &Connection) -> Link {
        connection.conn.borrow().link()
    }
}
