//! Sending messages.

use std::task::Poll;

use quicket_engine::WhenFull;
use quicket_engine::crypto::Level;
use quicket_wire::StreamId;

use super::streams::{Refusal, Wanted};
use super::{Patience, Session, Socket};
use crate::core::{Conn, Effect, Interest, Rank, Waiter};
use crate::error::{DatagramError, WriteError};
use crate::message::buffer::Data;
use crate::message::errno::Errno;
use crate::message::flags::{MsgFlags, StreamFlags};
use crate::message::ledger::{Ledger, signed};
use crate::message::notification::CryptoLevel;
use crate::message::raw::StreamInfo;
use crate::ops::{Ahead, now_or};

/// No UDP datagram carries more, in bytes.
const MAX_DATAGRAM: usize = u16::MAX as usize;

/// A message on its way into a stream.
struct Sending<'a> {
    data: &'a dyn Data,
    /// Where pieces of it are copied that cannot be borrowed.
    scratch: Vec<u8>,
    /// How much of it is written.
    written: usize,
    /// Where it goes, once that is settled.
    stream: Option<StreamId>,
    /// As the program named it.
    wanted: Wanted,
    msg_flags: MsgFlags,
    /// The program named a stream, or at least gave flags for it.
    has_info: bool,
    /// Small data does not wait for what is in flight.
    nodelay: bool,
}

impl Socket {
    /// Sends data of a stream, or a datagram with [`MsgFlags::DATAGRAM`]; returns how much of it
    /// was taken.
    ///
    /// Without `info` the stream's flags count that are among `flags`, and the data goes to the
    /// latest stream that was opened by either side and not ended, or to the next to open.
    /// [`StreamFlags::NEW`] opens a stream; [`StreamFlags::FIN`] ends it once all was taken.
    ///
    /// # Errors
    ///
    /// EINVAL for flags that there are not, a stream that is not open for it, or a datagram to a
    /// peer that takes none; ENOSTR for a closed stream; EPIPE without a connection; EMSGSIZE for
    /// an empty message that ends nothing, and a datagram that is too large; without waiting,
    /// EAGAIN, or with `info` ENOSPC, if the peer's limits leave no room.
    pub fn send_message(
        &self,
        data: &[u8],
        info: Option<StreamInfo>,
        flags: MsgFlags,
    ) -> Result<usize, Errno> {
        self.send_message_from(&data, info, flags)
    }

    /// Like [`Socket::send_message`], from memory that is not Rust's.
    ///
    /// # Errors
    ///
    /// As [`Socket::send_message`].
    pub fn send_message_from(
        &self,
        data: &dyn Data,
        info: Option<StreamInfo>,
        flags: MsgFlags,
    ) -> Result<usize, Errno> {
        self.begin_early()?;
        let (session, timeout, nodelay) = self.sender(flags)?;
        if info.is_some_and(|info| info.flags.intersects(!StreamFlags::ALL)) {
            return Err(Errno::EINVAL);
        }
        let nonblocking = self.is_nonblocking() || flags.contains(MsgFlags::DONTWAIT);
        let patience = Patience::new(nonblocking, timeout);
        if flags.contains(MsgFlags::DATAGRAM) {
            return self.send_datagram(&session, data, flags, patience);
        }
        let wanted = Wanted {
            stream_id: info.map_or(-1, |info| info.stream_id),
            flags: info.map_or(flags.stream_flags(), |info| info.flags),
            or_latest: true,
        };
        // Opening a stream has a flag of its own for not waiting.
        let for_stream = wanted.flags.contains(StreamFlags::DONTWAIT);
        let sending = Sending {
            data,
            scratch: Vec::new(),
            written: 0,
            stream: None,
            wanted,
            msg_flags: flags,
            has_info: info.is_some(),
            nodelay,
        };
        let patience = [Patience::new(for_stream, timeout), patience];
        self.send_stream(&session, sending, patience)
    }

    /// Sends a TLS message, or a piece of one, for a program that performs the handshake.
    ///
    /// # Errors
    ///
    /// EINVAL for flags that there are not, [`CryptoLevel::Early`], or a level whose secret for
    /// sending has not come; EPIPE without a connection; EMSGSIZE for an empty message.
    pub fn send_handshake(
        &self,
        data: &[u8],
        level: CryptoLevel,
        flags: MsgFlags,
    ) -> Result<usize, Errno> {
        self.sender(flags)?;
        let level = match level {
            CryptoLevel::Initial => Level::Initial,
            CryptoLevel::Handshake => Level::Handshake,
            CryptoLevel::App => Level::OneRtt,
            CryptoLevel::Early => return Err(Errno::EINVAL),
        };
        if !self.ledger().mailbox.can_send(level) {
            return Err(Errno::EINVAL);
        }
        if data.is_empty() {
            return Err(Errno::EMSGSIZE);
        }
        let session = self.begin_external()?;
        self.ledger().mailbox.send(level, data);
        if !flags.contains(MsgFlags::MORE) {
            session.conn.act(|conn, now| conn.engine.handshake_progressed(now));
        }
        Ok(data.len())
    }

    /// What every message needs.
    fn sender(
        &self,
        flags: MsgFlags,
    ) -> Result<(Session, Option<std::time::Duration>, bool), Errno> {
        if flags.intersects(!MsgFlags::SENDING) {
            return Err(Errno::EINVAL);
        }
        let control = self.control();
        let session = control.session(Errno::EPIPE)?.clone();
        let settings = &control.settings;
        let (timeout, nodelay) = (settings.send_timeout, settings.config.stream_data_nodelay != 0);
        drop(control);
        if session.conn.look(|conn| conn.engine.is_closed()) {
            return Err(Errno::EPIPE);
        }
        Ok((session, timeout, nodelay))
    }

    fn send_datagram(
        &self,
        session: &Session,
        data: &dyn Data,
        flags: MsgFlags,
        patience: Patience,
    ) -> Result<usize, Errno> {
        let takes = session.conn.look(|conn| match conn.end() {
            Some(_) => Err(Errno::EPIPE),
            None => conn.engine.max_datagram_size().ok_or(Errno::EINVAL),
        });
        takes?;
        if data.is_empty() || data.len() > MAX_DATAGRAM {
            return Err(Errno::EMSGSIZE);
        }
        let data = data.to_vec();
        let effect = if flags.contains(MsgFlags::MORE) { Effect::None } else { Effect::Now };
        self.wait(session, patience, |waiter| {
            let sent = session.conn.poll_send_datagram(&data, WhenFull::Block, effect, waiter);
            sent.map(|sent| match sent {
                Ok(()) => Ok(data.len()),
                Err(DatagramError::Lost(_)) => Err(Errno::EPIPE),
                Err(DatagramError::TooLarge { .. }) => Err(Errno::EMSGSIZE),
                Err(DatagramError::OutOfMemory) => Err(Errno::ENOMEM),
                Err(_) => Err(Errno::EINVAL),
            })
        })
    }

    fn send_stream(
        &self,
        session: &Session,
        mut sending: Sending<'_>,
        [for_stream, for_room]: [Patience; 2],
    ) -> Result<usize, Errno> {
        let ledger = self.ledger();
        // Which wait it is decides which patience holds: first for a stream, then for room.
        let opened = self
            .wait(session, for_stream, |waiter| step(session, ledger, &mut sending, waiter, true));
        match opened {
            Ok(Step::Blocked) => {}
            Ok(Step::Done) => return Ok(sending.written),
            Err(_) if sending.written > 0 => return Ok(sending.written),
            Err(error) => return Err(error),
        }
        let result = match for_room {
            // Not even for an answer to what the peer was just told.
            Patience::None => Err(Errno::EAGAIN),
            Patience::Until(_) => self.wait(session, for_room, |waiter| {
                step(session, ledger, &mut sending, waiter, false)
            }),
        };
        match result {
            Ok(_) => Ok(sending.written),
            // Part of it is taken: that is what counts.
            Err(_) if sending.written > 0 => Ok(sending.written),
            Err(Errno::EAGAIN) if sending.has_info => Err(Errno::ENOSPC),
            Err(error) => Err(error),
        }
    }
}

/// How far sending got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// All is taken.
    Done,
    /// There is a stream, and no room in it.
    Blocked,
}

/// Tries to send. `opening`: returns once there is a stream.
fn step(
    session: &Session,
    ledger: &Ledger,
    sending: &mut Sending<'_>,
    waiter: Option<Waiter<'_>>,
    opening: bool,
) -> Poll<Result<Step, Errno>> {
    session.conn.act_as(|conn, _| {
        let answer = match attempt(conn, ledger, sending) {
            Ok(()) => Poll::Ready(Ok(Step::Done)),
            Err(Refusal::Room) if opening => Poll::Ready(Ok(Step::Blocked)),
            Err(Refusal::Room | Refusal::Limit) => {
                // Limits of the stream itself are told of when they rise.
                ledger.lock().check_room(&conn.engine);
                conn.wait(Interest::Message, waiter);
                Poll::Pending
            }
            Err(Refusal::Error(error)) => Poll::Ready(Err(error)),
        };
        let effect = if matches!(answer, Poll::Ready(Ok(Step::Done))) {
            conn.gather(sending.msg_flags.contains(MsgFlags::MORE), sending.nodelay)
        } else {
            conn.engine.cork_streams(false);
            Effect::Now
        };
        (answer, effect)
    })
}

/// Writes as much as there is room for. The error tells what is in the way, or what is wrong.
fn attempt(conn: &mut Conn, ledger: &Ledger, sending: &mut Sending<'_>) -> Result<(), Refusal> {
    let id = match sending.stream {
        Some(id) => id,
        None => *sending.stream.insert(sending.wanted.open(conn, ledger)?),
    };
    let flags = sending.wanted.flags;
    let ends = flags.contains(StreamFlags::FIN);
    if sending.data.is_empty() && !ends {
        return Err(Errno::EMSGSIZE.into());
    }
    while sending.written < sending.data.len() {
        let piece = sending.data.piece(sending.written, &mut sending.scratch);
        if piece.is_empty() {
            return Err(Errno::EFAULT.into());
        }
        // It may have been stopped or reset while this waited.
        let written = match conn.write(id, piece, Ahead::Credit) {
            Poll::Ready(written) => written.map_err(|error| errno_of(&error))?,
            Poll::Pending => 0,
        };
        sending.written += written;
        if written < piece.len() {
            if flags.contains(StreamFlags::SNDBLOCK) {
                conn.engine.tell_blocked(id);
            }
            return Err(Refusal::Room);
        }
    }
    if ends {
        conn.finish(id).map_err(|error| errno_of(&error))?;
        ledger.lock().release_stream(id);
    }
    Ok(())
}

fn errno_of(error: &WriteError) -> Errno {
    match error {
        WriteError::Lost(_) => Errno::EPIPE,
        WriteError::OutOfMemory => Errno::ENOMEM,
        _ => Errno::EINVAL,
    }
}

impl Socket {
    /// Polls until there is an answer or patience ends.
    pub(super) fn wait<T>(
        &self,
        session: &Session,
        patience: Patience,
        mut poll: impl FnMut(Option<Waiter<'_>>) -> Poll<Result<T, Errno>>,
    ) -> Result<T, Errno> {
        match patience {
            Patience::None => now_or(poll(None), Errno::EAGAIN),
            Patience::Until(deadline) => {
                let core = session.conn.core().core();
                self.wait_for(core, Rank::Eager, deadline, |waiter| poll(Some(waiter)))
            }
        }
    }

    /// Opens a stream (STREAM_OPEN): that of `info`, or with -1 the next one, unidirectional
    /// with [`StreamFlags::UNI`]. A stream that is open and unused is returned as it is.
    ///
    /// # Errors
    ///
    /// EPIPE without a connection; EINVAL for flags that there are not, or a stream that is not
    /// this side's to open or in use; ENOSTR for a closed one; EAGAIN if the peer permits no
    /// more and [`StreamFlags::DONTWAIT`] says not to wait.
    pub fn open_stream(&self, info: StreamInfo) -> Result<StreamInfo, Errno> {
        self.begin_early()?;
        let (session, timeout, _) = self.sender(MsgFlags::NONE)?;
        if info.flags.intersects(!StreamFlags::ALL) {
            return Err(Errno::EINVAL);
        }
        let flags = info.flags | StreamFlags::NEW;
        let mut wanted = Wanted { stream_id: info.stream_id, flags, or_latest: false };
        let patience = Patience::new(info.flags.contains(StreamFlags::DONTWAIT), timeout);
        let id = self.wait(&session, patience, |waiter| {
            session.conn.act(|conn, _| match wanted.open(conn, self.ledger()) {
                Ok(id) => Poll::Ready(Ok(id)),
                Err(Refusal::Error(error)) => Poll::Ready(Err(error)),
                Err(Refusal::Limit | Refusal::Room) => {
                    conn.wait(Interest::Message, waiter);
                    Poll::Pending
                }
            })
        })?;
        Ok(StreamInfo::new(signed(id), flags))
    }
}
