//! What can be done with connections, as poll functions under both APIs.
//!
//! Each takes the party that will wait if it has to; without one it only tries. Sockets of messages
//! have rules of their own for which stream it is and what errors are called; what they do to a
//! connection is the same, and is here.

mod connect;

mod connection;
mod datagram;
mod listening;
mod stream;
mod switched;
mod workers;

pub(crate) use connection::source_for;
pub(crate) use listening::Listening;
pub(crate) use stream::Ahead;
pub(crate) use switched::{NoSuchOption, check_option_of, remain};
pub(crate) use workers::{endpoint, endpoint_from};

use std::task::Poll;

use crate::core::{Conn, ConnRef, Effect, Interest, Waiter};

/// How often an attempt to connect begins again because this host's address has changed.
pub(crate) const MAX_RESTARTS: usize = 8;

/// Turns [`Poll`] into an answer for callers that do not wait.
pub(crate) fn now_or<T, E>(poll: Poll<Result<T, E>>, would_block: E) -> Result<T, E> {
    match poll {
        Poll::Ready(result) => result,
        Poll::Pending => Err(would_block),
    }
}

impl Conn {
    /// Registers `waiter` for `interest`, if there is one.
    pub(crate) fn wait(&mut self, interest: Interest, waiter: Option<Waiter<'_>>) {
        if let Some(waiter) = waiter {
            self.waiters.register(interest, waiter);
        }
    }
}

impl ConnRef {
    /// Like [`ConnRef::act`], for something that may have to wait: then nothing has changed but
    /// perhaps the window, as in [`ConnRef::try_later`].
    fn try_act<T>(&self, action: impl FnOnce(&mut Conn) -> Poll<T>) -> Poll<T> {
        self.act_if(|conn, _| {
            let poll = action(conn);
            let changed = poll.is_ready() || conn.engine.is_window_update_due();
            (poll, changed)
        })
    }

    /// Like [`ConnRef::try_act`], for what may be sent later; `effect` says how much there is.
    fn try_later<T>(
        &self,
        effect: impl FnOnce(&T) -> Effect,
        action: impl FnOnce(&mut Conn) -> Poll<T>,
    ) -> Poll<T> {
        self.act_untimed(|conn| {
            let poll = action(conn);
            let effect = match &poll {
                Poll::Ready(answer) => effect(answer),
                // Whoever waits for data may call for a larger window.
                Poll::Pending if conn.engine.is_window_update_due() => Effect::Now,
                Poll::Pending => Effect::None,
            };
            (poll, effect)
        })
    }

    /// Like [`ConnRef::act`], for what may be sent later.
    fn later<T>(&self, action: impl FnOnce(&mut Conn) -> T) -> T {
        self.act_untimed(|conn| (action(conn), Effect::Later(0)))
    }
}
