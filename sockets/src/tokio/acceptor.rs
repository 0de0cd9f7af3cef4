//! Streams that a peer opens, for those who poll.

use std::fmt;
use std::task::{Context, Poll};

use quicket_wire::Dir;

use super::{Connection, RecvStream, Stream};
use crate::core::{Interest, Waiter, WaiterId};
use crate::error::AcceptError;

/// Takes the streams that a peer opens, by polling: what [`Connection::accept_bi`] and
/// [`Connection::accept_uni`] do, without a future for each stream.
///
/// Several of one connection take turns, as calls of those do.
pub struct Acceptor {
    connection: Connection,
    waiter: WaiterId,
}

impl Acceptor {
    pub(super) fn new(connection: Connection) -> Self {
        Self { connection, waiter: WaiterId::unique() }
    }

    /// Polls for a bidirectional stream.
    ///
    /// # Errors
    ///
    /// If the connection ended.
    pub fn poll_bi(&mut self, context: &mut Context<'_>) -> Poll<Result<Stream, AcceptError>> {
        let waiter = Waiter::task(self.waiter, context.waker());
        self.connection.poll_accept_bi(waiter)
    }

    /// Polls for a unidirectional stream.
    ///
    /// # Errors
    ///
    /// If the connection ended.
    pub fn poll_uni(&mut self, context: &mut Context<'_>) -> Poll<Result<RecvStream, AcceptError>> {
        let waiter = Waiter::task(self.waiter, context.waker());
        self.connection.poll_accept_uni(waiter)
    }
}

impl Drop for Acceptor {
    /// Who polls no more is not woken.
    fn drop(&mut self) {
        for dir in [Dir::Bidi, Dir::Uni] {
            self.connection.unregister(Interest::Accept(dir), self.waiter);
        }
    }
}

impl fmt::Debug for Acceptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Acceptor").field(&self.connection).finish()
    }
}
