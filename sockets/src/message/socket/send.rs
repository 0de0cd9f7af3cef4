//! Sending messages.

use std::task::Poll;

use quicket_engine::crypto::Level;
use quicket_engine::{Connection, DatagramError, WhenFull};
use quicket_wire::StreamId;

use super::streams::{self, Refusal};
use super::{Patience, Session, Socket};
use crate::core::{Conn, Interest, Rank, Waiter};
use crate::message::buffer::Data;
use crate::message::errno::Errno;
use crate::message::flags::{MsgFlags, StreamFlags};
use crate::message::ledger::Ledger;
use crate::message::notification::CryptoLevel;
use crate::message::raw::StreamInfo;
use crate::ops::now_or;

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
    stream_id: i64,
    flags: StreamFlags,
    msg_flags: MsgFlags,
    /// The program named a stream, or at least gave flags for it.
    has_info: bool,
    /// Small data does not wait for what is in flight.
    nodelay: bool,
}

/// What stands in the way.
enum Blocked {
    /// Too few streams are permitted.
    Streams,
    /// The stream's or the connection's limits, or the buffer.
    Room,
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
        let sending = Sending {
            data,
            scratch: Vec::new(),
            written: 0,
            stream: None,
            stream_id: info.map_or(-1, |info| info.stream_id),
            flags: info.map_or(flags.stream_flags(), |info| info.flags),
            msg_flags: flags,
            has_info: info.is_some(),
            nodelay,
        };
        // Opening a stream has a flag of its own for not waiting.
        let for_stream = sending.flags.contains(StreamFlags::DONTWAIT);
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
        let is_large = data.len() > MAX_DATAGRAM;
        let data = if is_large { Vec::new() } else { data.to_vec() };
        let attempt = |conn: &mut Conn, waiter: Option<Waiter<'_>>| {
            if conn.engine.is_closed() {
                return Poll::Ready(Err(Errno::EPIPE));
            }
            if conn.engine.max_datagram_size().is_none() {
                return Poll::Ready(Err(Errno::EINVAL));
            }
            if data.is_empty() {
                return Poll::Ready(Err(Errno::EMSGSIZE));
            }
            let sent = match conn.engine.send_datagram(&data, WhenFull::Block) {
                Ok(_) => Ok(data.len()),
                Err(DatagramError::Blocked) => {
                    conn.wait(Interest::Message, waiter);
                    return Poll::Pending;
                }
                Err(DatagramError::TooLarge { .. }) => Err(Errno::EMSGSIZE),
                Err(DatagramError::Unsupported) => Err(Errno::EINVAL),
                Err(_) => Err(Errno::ENOMEM),
            };
            Poll::Ready(sent)
        };
        let corked = flags.contains(MsgFlags::MORE);
        let poll = |waiter: Option<Waiter<'_>>| {
            session.conn.act_if(|conn, _| {
                let answer = attempt(conn, waiter);
                // What waits behind a cork goes out before the program does wait.
                let changed = !corked || answer.is_pending();
                (answer, changed)
            })
        };
        self.wait(session, patience, poll)
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
    session.conn.act_if(|conn, _| {
        let result = attempt(conn, ledger, sending);
        let answer = match result {
            Ok(()) => Poll::Ready(Ok(Step::Done)),
            Err(Ok(Blocked::Room)) if opening => Poll::Ready(Ok(Step::Blocked)),
            Err(Ok(_)) => {
                // Limits of the stream itself are told of when they rise.
                ledger.lock().check_room(&conn.engine);
                conn.wait(Interest::Message, waiter);
                Poll::Pending
            }
            Err(Err(error)) => Poll::Ready(Err(error)),
        };
        let finished = matches!(answer, Poll::Ready(Ok(Step::Done)));
        let delay = if finished { delay(&conn.engine, sending) } else { Delay::None };
        conn.engine.cork_streams(delay == Delay::UntilMore);
        (answer, delay == Delay::None)
    })
}

/// Whether what was written waits for more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Delay {
    None,
    /// Until a packet goes out anyway, such as when others are acknowledged.
    UntilTurn,
    /// Until there is a packet full of it, or the program says that nothing follows.
    UntilMore,
}

/// What is less than a packet waits if the program says that more follows, or (as Nagle has it)
/// while others are in flight.
fn delay(engine: &Connection, sending: &Sending<'_>) -> Delay {
    let corked = sending.msg_flags.contains(MsgFlags::MORE);
    let waits = corked || (!sending.nodelay && engine.bytes_in_flight() > 0);
    let fills_a_packet = || engine.bytes_unsent() >= engine.max_packet_payload() as u64;
    if !engine.is_established() || !waits || fills_a_packet() {
        Delay::None
    } else if corked {
        Delay::UntilMore
    } else {
        Delay::UntilTurn
    }
}

/// Writes as much as there is room for. The error tells what is in the way, or what is wrong.
fn attempt(
    conn: &mut Conn,
    ledger: &Ledger,
    sending: &mut Sending<'_>,
) -> Result<(), Result<Blocked, Errno>> {
    if conn.engine.is_closed() {
        return Err(Err(Errno::EPIPE));
    }
    let engine = &mut conn.engine;
    let id = match sending.stream {
        Some(id) => id,
        None => open(engine, ledger, sending)?,
    };
    let ends = sending.flags.contains(StreamFlags::FIN);
    if sending.data.is_empty() && !ends {
        return Err(Err(Errno::EMSGSIZE));
    }
    while sending.written < sending.data.len() {
        let piece = sending.data.piece(sending.written, &mut sending.scratch);
        let written = write(engine, id, piece).map_err(Err)?;
        sending.written += written;
        if written < piece.len() || piece.is_empty() {
            if sending.flags.contains(StreamFlags::SNDBLOCK) {
                engine.tell_blocked(id);
            }
            return Err(Ok(Blocked::Room));
        }
    }
    if ends {
        engine.finish(id).map_err(|_| Err(Errno::EINVAL))?;
        ledger.lock().release_stream(id);
    }
    Ok(())
}

/// Settles which stream it is.
fn open(
    engine: &mut Connection,
    ledger: &Ledger,
    sending: &mut Sending<'_>,
) -> Result<StreamId, Result<Blocked, Errno>> {
    let mut account = ledger.lock();
    let id = streams::resolve(engine, &account, sending.stream_id, sending.flags).map_err(Err)?;
    match streams::for_sending(engine, ledger, &mut account, id, sending.flags) {
        Ok(()) => {
            sending.stream = Some(id);
            Ok(id)
        }
        Err(Refusal::Error(error)) => Err(Err(error)),
        Err(Refusal::Limit) => {
            // The next one by name, whatever is opened meanwhile.
            sending.stream_id = crate::message::ledger::signed(id);
            Err(Ok(Blocked::Streams))
        }
    }
}

/// Writes what the limits and the buffer have room for.
fn write(engine: &mut Connection, id: StreamId, data: &[u8]) -> Result<usize, Errno> {
    // It may have been stopped or reset while this waited.
    let room = engine.send_room(id).ok_or(Errno::EINVAL)?;
    let credit = usize::try_from(room.credit).unwrap_or(usize::MAX);
    let len = data.len().min(credit).min(room.buffer);
    if len == 0 {
        return Ok(0);
    }
    let data = data.get(..len).unwrap_or_default();
    engine.write(id, data).map_err(|error| match error {
        quicket_engine::WriteError::OutOfMemory => Errno::ENOMEM,
        _ => Errno::EINVAL,
    })
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
        let ledger = self.ledger();
        let mut wanted = None;
        let patience = Patience::new(info.flags.contains(StreamFlags::DONTWAIT), timeout);
        let id = self.wait(&session, patience, |waiter| {
            session.conn.act(|conn, _| {
                if conn.engine.is_closed() {
                    return Poll::Ready(Err(Errno::EPIPE));
                }
                let engine = &mut conn.engine;
                let id = match (wanted, info.stream_id) {
                    (Some(id), _) => id,
                    (None, -1) => streams::next_to_open(engine, flags),
                    (None, number) => match streams::parse(number) {
                        Ok(id) => id,
                        Err(error) => return Poll::Ready(Err(error)),
                    },
                };
                wanted = Some(id);
                let mut account = ledger.lock();
                match streams::for_sending(engine, ledger, &mut account, id, flags) {
                    Ok(()) => Poll::Ready(Ok(id)),
                    Err(Refusal::Error(error)) => Poll::Ready(Err(error)),
                    Err(Refusal::Limit) => {
                        conn.wait(Interest::Message, waiter);
                        Poll::Pending
                    }
                }
            })
        })?;
        Ok(StreamInfo::new(crate::message::ledger::signed(id), flags))
    }
}
