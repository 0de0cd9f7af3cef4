//! Datagrams (RFC 9221).

use std::task::Poll;

use quicket_engine::WhenFull;

use crate::core::{ConnRef, Interest, Waiter};
use crate::error::DatagramError;

impl ConnRef {
    /// Queues a datagram.
    pub(crate) fn poll_send_datagram(
        &self,
        data: &[u8],
        full: WhenFull,
        waiter: Option<Waiter<'_>>,
    ) -> Poll<Result<(), DatagramError>> {
        self.try_act(|conn| {
            if let Some(error) = conn.lost() {
                return Poll::Ready(Err(DatagramError::Lost(error)));
            }
            match conn.engine.send_datagram(data, full) {
                Ok(_) => Poll::Ready(Ok(())),
                // Before the handshake is complete it is not known yet.
                Err(quicket_engine::DatagramError::Unsupported) if conn.established => {
                    Poll::Ready(Err(DatagramError::Unsupported))
                }
                Err(quicket_engine::DatagramError::TooLarge { max }) => {
                    Poll::Ready(Err(DatagramError::TooLarge { max }))
                }
                Err(_) => {
                    conn.wait(Interest::SendDatagram, waiter);
                    Poll::Pending
                }
            }
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
