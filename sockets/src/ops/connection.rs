//! Connections: the handshake, the end, and what is known of them.

use std::task::Poll;

use quicket_engine::ConnectionError;

use crate::core::{ConnRef, Interest, Waiter};
use crate::error::ConnectError;

impl ConnRef {
    /// Waits until the handshake is complete.
    pub(crate) fn poll_established(
        &self,
        waiter: Option<Waiter<'_>>,
    ) -> Poll<Result<(), ConnectError>> {
        self.try_act(|conn| {
            if conn.established {
                return Poll::Ready(Ok(()));
            }
            if let Some(error) = conn.lost() {
                let tls = conn.engine.handshake_error();
                let error = tls.map_or(ConnectError::Lost(error), |tls| {
                    ConnectError::Handshake(tls.to_string())
                });
                return Poll::Ready(Err(error));
            }
            conn.wait(Interest::Established, waiter);
            Poll::Pending
        })
    }

    /// Waits until the connection has ended.
    pub(crate) fn poll_closed(&self, waiter: Option<Waiter<'_>>) -> Poll<ConnectionError> {
        self.try_act(|conn| {
            if let Some(error) = conn.lost() {
                return Poll::Ready(error);
            }
            conn.wait(Interest::Closed, waiter);
            Poll::Pending
        })
    }

    /// Closes the connection.
    pub(crate) fn close(&self, code: u64, reason: &[u8]) {
        self.act(|conn, now| conn.engine.close(now, code, reason));
    }

    /// Why the connection ended; `None` while it lives.
    pub(crate) fn close_reason(&self) -> Option<ConnectionError> {
        self.look(|conn| conn.lost())
    }
}
