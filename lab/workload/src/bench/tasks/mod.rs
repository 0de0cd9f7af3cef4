//! The benchmark over QUIC implementations whose interface is made of futures, all on one thread.

mod client;
mod server;

use std::future::Future;
use std::ops::Range;
use std::time::Duration;

pub use client::TaskClient;
pub use server::serve_connection;

use super::{Failure, Link, Session};

/// An implementation of QUIC.
#[expect(async_fn_in_trait, reason = "everything runs on one thread")]
pub trait Transport {
    /// A connection; clones lead to the same.
    type Connection: Clone + 'static;
    /// What streams of the peer are accepted from.
    type Acceptor: 'static;
    /// What is known of a handshake only later: whether early data was accepted.
    type Pending;
    /// The sending half of a stream.
    type Send: 'static;
    /// The receiving half of a stream.
    type Recv: 'static;
    /// Bytes that can be sent again and again, if possible without a copy.
    type Block: Clone + 'static;

    /// Makes a block.
    fn block(bytes: Vec<u8>) -> Self::Block;

    /// Runs `work` on the one thread.
    fn block_on<T>(&self, work: impl Future<Output = T>) -> T;

    /// Starts a task of a server on the one thread.
    fn spawn(work: impl Future<Output = ()> + 'static);

    /// Waits.
    async fn sleep(duration: Duration);

    /// Opens a connection. With [`Session::Early`] its streams can be written at once; otherwise
    /// the handshake is complete.
    ///
    /// # Errors
    ///
    /// When the handshake fails.
    async fn connect(&self, session: Session)
    -> Result<(Self::Connection, Self::Pending), Failure>;

    /// Checks, after an answer has come, that the handshake was of the kind asked for.
    ///
    /// # Errors
    ///
    /// When it was another one.
    async fn confirm(
        connection: &Self::Connection,
        pending: Self::Pending,
        session: Session,
    ) -> Result<(), Failure>;

    /// Closes a connection.
    fn close(connection: &Self::Connection, code: u32, reason: &[u8]);

    /// Waits until nothing is left to be said on connections that are closed.
    async fn finished(&self);

    /// Opens a stream.
    ///
    /// # Errors
    ///
    /// When the connection is over.
    async fn open(connection: &Self::Connection) -> Result<(Self::Send, Self::Recv), Failure>;

    /// Waits for a stream of the client.
    ///
    /// # Errors
    ///
    /// When the connection is over.
    async fn accept(acceptor: &mut Self::Acceptor) -> Result<(Self::Send, Self::Recv), Failure>;

    /// Writes all of `data`.
    ///
    /// # Errors
    ///
    /// When the stream or the connection is over.
    async fn write(send: &mut Self::Send, data: &[u8]) -> Result<(), Failure>;

    /// Writes a part of a block.
    ///
    /// # Errors
    ///
    /// When the stream or the connection is over.
    async fn write_block(
        send: &mut Self::Send,
        block: &Self::Block,
        range: Range<usize>,
    ) -> Result<(), Failure>;

    /// Ends a stream.
    ///
    /// # Errors
    ///
    /// When it has ended already.
    fn finish(send: &mut Self::Send) -> Result<(), Failure>;

    /// Hands what is there to `sink`, and waits for it if that is nothing; false at the end of the
    /// stream.
    ///
    /// # Errors
    ///
    /// When the stream or the connection is over.
    async fn read(recv: &mut Self::Recv, sink: &mut dyn FnMut(&[u8])) -> Result<bool, Failure>;

    /// What can be told of the connection.
    fn link(connection: &Self::Connection) -> Link;
}

/// Writes the transfer piece by piece.
async fn transmit<T: Transport>(
    send: &mut T::Send,
    transfer: super::Transfer,
    block: &T::Block,
) -> Result<(), Failure> {
    let period = super::Pattern::PERIOD;
    for (offset, length) in transfer.pieces() {
        if transfer.unique {
            let mut own = vec![0; length];
            transfer.pattern().fill(offset, &mut own);
            T::write(send, &own).await?;
        } else {
            let start = (offset % period) as usize;
            T::write_block(send, block, start..start + length).await?;
        }
    }
    Ok(())
}
