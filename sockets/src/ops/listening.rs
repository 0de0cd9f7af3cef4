//! Listening on an endpoint, for both APIs.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

use crate::core::{ConnRef, CoreRef, Waiter};
use crate::error::AcceptError;

/// That an endpoint listens: until this is closed or dropped.
pub(crate) struct Listening {
    core: CoreRef,
    /// Another listener may have taken its place on the endpoint since.
    closed: AtomicBool,
}

impl Listening {
    /// Of an endpoint that listens.
    pub(crate) const fn new(core: CoreRef) -> Self {
        Self { core, closed: AtomicBool::new(false) }
    }

    /// The next connection.
    pub(crate) fn poll_accept(
        &self,
        waiter: Option<Waiter<'_>>,
    ) -> Poll<Result<ConnRef, AcceptError>> {
        if self.is_closed() {
            return Poll::Ready(Err(AcceptError::EndpointClosed));
        }
        match self.core.poll_accept_connection(waiter) {
            // Whoever closes it wakes those who wait by then.
            Poll::Pending if self.is_closed() => Poll::Ready(Err(AcceptError::EndpointClosed)),
            answer => answer,
        }
    }

    /// Accepts no more, and turns away who was not accepted yet.
    pub(crate) fn close(&self) {
        if !self.closed.swap(true, Ordering::SeqCst) {
            self.core.stop_listening();
        }
    }

    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }
}

impl fmt::Debug for Listening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listening").field("closed", &self.is_closed()).finish_non_exhaustive()
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.close();
    }
}
