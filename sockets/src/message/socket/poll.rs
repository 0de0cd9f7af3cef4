//! What can be done without waiting, and how much waits.

use std::task::Waker;

use super::{Control, Phase, Socket, State, state_of};
use crate::core::{Conn, Interest, Waiter, WaiterId};
use crate::message::errno::Errno;

/// What poll(2) would say of a socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PollState {
    /// Something can be received, or a client accepted (POLLIN).
    pub readable: bool,
    /// Something can be sent (POLLOUT).
    pub writable: bool,
    /// The connection has ended (POLLHUP, POLLRDHUP).
    pub hup: bool,
    /// The connection has ended (POLLERR).
    pub err: bool,
}

/// A connection that has ended: everything, so that nobody waits for anything.
const ENDED: PollState = PollState { readable: true, writable: true, hup: true, err: true };

impl Socket {
    /// What can be done now.
    #[must_use]
    pub fn poll_state(&self) -> PollState {
        self.poll_with(None)
    }

    /// What can be done now; `waker` is woken once when that may have changed. `id` names who
    /// waits: a later call with the same one replaces the earlier.
    #[must_use]
    pub fn poll_change(&self, id: &PollId, waker: &Waker) -> PollState {
        self.poll_with(Some(Waiter::task(id.0, waker)))
    }

    fn poll_with(&self, waiter: Option<Waiter<'_>>) -> PollState {
        let control = self.control();
        let session = match &control.phase {
            Phase::Idle => return ENDED,
            Phase::Listening(listener) => {
                let readable = listener.is_readable(waiter);
                return PollState { readable, ..PollState::default() };
            }
            Phase::Inherited(inherited) => {
                let readable = inherited.claim.is_readable(waiter);
                return PollState { readable, ..PollState::default() };
            }
            Phase::Connection(session) => session.clone(),
        };
        drop(control);
        session.conn.look(|conn| {
            conn.wait(Interest::Message, waiter);
            if state_of(conn) == State::Closed {
                return ENDED;
            }
            let ledger = self.ledger();
            let streams = ledger.delivers_streams(&conn.engine);
            let mut account = ledger.lock();
            let readable = account.inbox.is_readable(&mut conn.engine, streams);
            let writable = account.check_room(&conn.engine);
            PollState { readable, writable, ..PollState::default() }
        })
    }

    /// How many bytes wait to be received (SIOCINQ).
    ///
    /// # Errors
    ///
    /// EINVAL on a listener.
    pub fn bytes_to_receive(&self) -> Result<usize, Errno> {
        let control = self.control();
        let Some(session) = control.connection()? else { return Ok(0) };
        Ok(session.conn.look(|conn| self.ledger().lock().inbox.waiting(&mut conn.engine)))
    }

    /// How many bytes of streams were written and are not acknowledged, and of datagrams are not
    /// sent (SIOCOUTQ).
    ///
    /// # Errors
    ///
    /// EINVAL on a listener.
    pub fn bytes_to_send(&self) -> Result<usize, Errno> {
        let control = self.control();
        let Some(session) = control.connection()? else { return Ok(0) };
        let held = |conn: &mut Conn| conn.engine.bytes_held() + conn.engine.datagram_bytes_unsent();
        Ok(session.conn.look(held))
    }

    /// How many bytes of streams and datagrams were written and are not sent (SIOCOUTQNSD).
    ///
    /// # Errors
    ///
    /// EINVAL on a listener.
    pub fn bytes_unsent(&self) -> Result<usize, Errno> {
        let control = self.control();
        let Some(session) = control.connection()? else { return Ok(0) };
        let (of_streams, of_datagrams) = session
            .conn
            .look(|conn| (conn.engine.bytes_unsent(), conn.engine.datagram_bytes_unsent()));
        Ok(usize::try_from(of_streams).unwrap_or(usize::MAX).saturating_add(of_datagrams))
    }
}

impl Control {
    /// The connection, if there is one.
    const fn connection(&self) -> Result<Option<&super::Session>, Errno> {
        match &self.phase {
            Phase::Idle => Ok(None),
            Phase::Listening(_) | Phase::Inherited(_) => Err(Errno::EINVAL),
            Phase::Connection(session) => Ok(Some(session)),
        }
    }
}

/// Names a party that polls a socket.
#[derive(Clone, Debug)]
pub struct PollId(WaiterId);

impl PollId {
    /// A name that nobody else has.
    #[must_use]
    pub fn unique() -> Self {
        Self(WaiterId::unique())
    }
}

impl Default for PollId {
    fn default() -> Self {
        Self::unique()
    }
}
