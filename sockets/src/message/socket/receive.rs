//! Receiving messages.

use std::task::Poll;

use super::{Patience, Session, Socket, State, state_of};
use crate::core::{Conn, Interest, Waiter};
use crate::message::buffer::Room;
use crate::message::errno::Errno;
use crate::message::flags::MsgFlags;
use crate::message::inbox::Message;

impl Socket {
    /// Receives the next message, or as much of it as fits into `buffer`. TLS messages come
    /// first, then notifications, then stream data and datagrams as they came. Data of different
    /// streams is never mixed.
    ///
    /// Of the flags, [`MsgFlags::PEEK`] and [`MsgFlags::DONTWAIT`] count.
    ///
    /// # Errors
    ///
    /// EAGAIN if nothing comes in time; ENOTCONN without a connection, or when it has ended and
    /// all was received.
    pub fn recv_message(&self, mut buffer: &mut [u8], flags: MsgFlags) -> Result<Message, Errno> {
        self.recv_message_into(&mut buffer, flags)
    }

    /// Like [`Socket::recv_message`], into memory that is not Rust's.
    ///
    /// # Errors
    ///
    /// As [`Socket::recv_message`].
    pub fn recv_message_into(
        &self,
        buffer: &mut dyn Room,
        flags: MsgFlags,
    ) -> Result<Message, Errno> {
        let (session, timeout) = {
            let control = self.control();
            let session = control.session(Errno::ENOTCONN)?.clone();
            (session, control.settings.receive_timeout)
        };
        let peek = flags.contains(MsgFlags::PEEK);
        let nonblocking = self.is_nonblocking() || flags.contains(MsgFlags::DONTWAIT);
        let patience = Patience::new(nonblocking, timeout);
        self.wait(&session, patience, |waiter| self.poll_receive(&session, buffer, peek, waiter))
    }

    fn poll_receive(
        &self,
        session: &Session,
        buffer: &mut dyn Room,
        peek: bool,
        waiter: Option<Waiter<'_>>,
    ) -> Poll<Result<Message, Errno>> {
        session.conn.act_if(|conn, _| {
            let answer = self.try_receive(conn, buffer, peek);
            // Reading opens windows, of which the peer should hear.
            let changed = answer.is_ready() && !peek;
            if answer.is_pending() {
                conn.wait(Interest::Message, waiter);
            }
            (answer, changed)
        })
    }

    fn try_receive(
        &self,
        conn: &mut Conn,
        buffer: &mut dyn Room,
        peek: bool,
    ) -> Poll<Result<Message, Errno>> {
        let streams = self.ledger().delivers_streams(&conn.engine);
        let mut account = self.ledger().lock();
        match account.inbox.receive(&mut conn.engine, buffer, peek, streams) {
            Some(message) => Poll::Ready(Ok(message)),
            None if state_of(conn) == State::Closed => Poll::Ready(Err(Errno::ENOTCONN)),
            None => Poll::Pending,
        }
    }
}
