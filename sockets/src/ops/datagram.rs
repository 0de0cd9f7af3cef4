//! Datagrams (RFC 9221).

use std::task::Poll;

use quicket_engine::WhenFull;

use crate::core::{Conn, ConnRef, Effect, Interest, Waiter};
use crate::error::DatagramError;

impl Conn {
    /// Queues a datagram.
    fn send_datagram(&mut self, data: &[u8], full: WhenFull) -> Poll<Result<(), DatagramError>> {
        use quicket_engine::DatagramError as Refused;
        if let Some(error) = self.end() {
            return Poll::Ready(Err(DatagramError::Lost(error)));
        }
        Poll::Ready(match self.engine.send_datagram(data, full) {
            Ok(_) => Ok(()),
            Err(Refused::TooLarge { max }) => Err(DatagramError::TooLarge { max }),
            Err(Refused::OutOfMemory) => Err(DatagramError::OutOfMemory),
            Err(Refused::Blocked) => return Poll::Pending,
            // Before the handshake is complete it is not known yet.
            Err(_) if !self.established => return Poll::Pending,
            Err(_) => Err(DatagramError::Unsupported),
        })
    }
}

impl ConnRef {
    /// Queues a datagram, and sends it if `effect` says so.
    pub(crate) fn poll_send_datagram(
        &self,
        data: &[u8],
        full: WhenFull,
        effect: Effect,
        waiter: Option<Waiter<'_>>,
    ) -> Poll<Result<(), DatagramError>> {
        self.act_as(|conn, _| {
            let sent = conn.send_datagram(data, full);
            if sent.is_pending() {
                conn.wait(Interest::SendDatagram, waiter);
                // What waits for more goes out before the caller does wait.
                return (sent, Effect::Now);
            }
            (sent, effect)
        })
    }

    /// Shows the next datagram that came to `take`, and drops it.
    pub(crate) fn poll_recv_datagram<T>(
        &self,
        take: impl FnOnce(&[u8]) -> T,
        waiter: Option<Waiter<'_>>,
    ) -> Poll<Result<T, DatagramError>> {
        self.try_act(|conn| {
            if let Some(datagram) = conn.engine.peek_datagram() {
                let taken = take(datagram);
                conn.engine.pop_datagram();
                return Poll::Ready(Ok(taken));
            }
            if let Some(error) = conn.lost() {
                return Poll::Ready(Err(DatagramError::Lost(error)));
            }
            conn.wait(Interest::ReceiveDatagram, waiter);
            Poll::Pending
        })
    }
}
