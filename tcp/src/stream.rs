//! Streams, as those of `std::net`.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use crate::connection::{Connection, Side};
use crate::connections::Id;
use crate::segment::Ends;
use crate::shared::Handle;
use crate::stack::Stack;
use crate::state::Core;
use crate::watch::Watch;

/// How long [`TcpStream::connect`] waits for an answer: as long as RFC 9293, Section 3.8.3, asks for at least.
pub const CONNECT_TIME: Duration = Duration::from_secs(180);

/// A connection. Clones share it ([`TcpStream::try_clone`]).
#[derive(Debug)]
pub struct TcpStream {
    held: Arc<Held>,
}

/// A connection that somebody holds. Dropped, it ends as a socket that is closed does: what was written leaves, and unread
/// data makes it a reset.
#[derive(Debug)]
struct Held {
    handle: Arc<Handle>,
    id: Id,
    ends: Ends,
}

impl TcpStream {
    /// Connects to an address, from the address that the system would send from, and a port that nobody can foresee.
    ///
    /// # Errors
    ///
    /// `ConnectionRefused` when nobody listens there, `TimedOut` without an answer in [`CONNECT_TIME`], and what the switch and
    /// the system say.
    pub fn connect(stack: &Stack, address: SocketAddr) -> io::Result<Self> {
        Self::connect_timeout(stack, address, CONNECT_TIME)
    }

    /// The same with a time to wait for an answer.
    ///
    /// # Errors
    ///
    /// As [`TcpStream::connect`].
    pub fn connect_timeout(stack: &Stack, address: SocketAddr, time: Duration) -> io::Result<Self> {
        let stream = Self::begin(stack, address)?;
        let connected = stream.block(Side::Writing, Some(time), |core, id| {
            Ok(core.connections.get(id)?.is_connected()?.then_some(()))
        });
        match connected {
            Ok(()) => Ok(stream),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                Err(io::Error::new(ErrorKind::TimedOut, format!("{address} does not answer")))
            }
            Err(error) => Err(error),
        }
    }

    /// Begins to connect, and does not wait for the answer: [`TcpStream::is_connected`] says whether it has come. It is to be
    /// waited for [`CONNECT_TIME`], or as long as the caller likes. Until then, reading and writing wait.
    ///
    /// # Errors
    ///
    /// As [`TcpStream::connect`], but for those of the other side.
    pub fn begin(stack: &Stack, address: SocketAddr) -> io::Result<Self> {
        let id = stack.shared().connect(address)?;
        Self::new(Arc::clone(&stack.handle), id)
    }

    /// Whether the other side has taken the connection by now.
    ///
    /// # Errors
    ///
    /// `ConnectionRefused` when nobody listens there, and what else has ended it. It is said once.
    pub fn is_connected(&self) -> io::Result<bool> {
        self.change(|connection| connection.is_connected())?
    }

    /// Has a watch say `token` whenever there may be something to read, or room to write, and once at the beginning.
    ///
    /// # Errors
    ///
    /// None but that of a stack that is over.
    pub fn watch(&self, watch: &Watch, token: u64) -> io::Result<()> {
        let watched = watch.watched(token);
        self.held.handle.0.act(|core| core.connections.watch(self.held.id, watched))
    }

    /// Whether the connection ends with a reset when the last handle is dropped, whatever was written and not sent: what a
    /// socket does that lingers for no time (SO_LINGER).
    ///
    /// # Errors
    ///
    /// None but that of a stack that is over.
    pub fn set_reset_on_drop(&self, resets: bool) -> io::Result<()> {
        self.change(|connection| connection.settings.resets = resets)
    }

    pub(crate) fn new(handle: Arc<Handle>, id: Id) -> io::Result<Self> {
        let ends = handle.0.lock().connections.get(id)?.place.ends;
        Ok(Self { held: Arc::new(Held { handle, id, ends }) })
    }

    /// Another handle of this connection.
    ///
    /// # Errors
    ///
    /// None: it is as in `std::net`.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self { held: Arc::clone(&self.held) })
    }

    /// The other side's address.
    ///
    /// # Errors
    ///
    /// None: it is as in `std::net`.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.held.ends.remote)
    }

    /// This side's address.
    ///
    /// # Errors
    ///
    /// None: it is as in `std::net`.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.held.ends.local)
    }

    /// Whether data is sent at once, also if it is little and some is on its way (RFC 1122, Section 4.2.3.4, without the
    /// algorithm of Nagle). What is held back by then is sent, too.
    ///
    /// # Errors
    ///
    /// None but that of a stack that is over.
    pub fn set_nodelay(&self, is_nodelay: bool) -> io::Result<()> {
        self.held.handle.0.act(|core| {
            let now = core.now();
            let connection = core.connections.get(self.held.id)?;
            connection.socket().set_nagle_enabled(!is_nodelay);
            if is_nodelay {
                core.connections.settle(self.held.id, &mut core.out, now);
            }
            Ok(())
        })
    }

    /// What [`TcpStream::set_nodelay`] has said.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn nodelay(&self) -> io::Result<bool> {
        self.change(|connection| !connection.socket().nagle_enabled())
    }

    /// How long a call that reads waits at most; without end, if there is no time. It fails with `WouldBlock` then.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for no time at all.
    pub fn set_read_timeout(&self, time: Option<Duration>) -> io::Result<()> {
        check_timeout(time)?;
        self.change(|connection| connection.settings.read_timeout = time)
    }

    /// How long a call that writes waits at most; without end, if there is no time. It fails with `WouldBlock` then.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for no time at all.
    pub fn set_write_timeout(&self, time: Option<Duration>) -> io::Result<()> {
        check_timeout(time)?;
        self.change(|connection| connection.settings.write_timeout = time)
    }

    /// Whether calls fail with `WouldBlock` instead of waiting.
    ///
    /// # Errors
    ///
    /// None but that of a stack that is over.
    pub fn set_nonblocking(&self, is_nonblocking: bool) -> io::Result<()> {
        self.change(|connection| connection.settings.is_nonblocking = is_nonblocking)
    }

    /// Ends reading, which finds nothing from then on; writing, which the other side hears of behind all data; or both.
    ///
    /// # Errors
    ///
    /// `NotConnected` when the connection is over.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.held.handle.0.act(|core| {
            let now = core.now();
            let connection = core.connections.get(self.held.id)?;
            if connection.is_over() {
                return Err(ErrorKind::NotConnected.into());
            }
            if how != Shutdown::Write {
                connection.settings.is_read_shut = true;
            }
            if how != Shutdown::Read {
                connection.close();
            }
            core.connections.settle(self.held.id, &mut core.out, now);
            core.connections.rouse(self.held.id);
            Ok(())
        })
    }

    /// Reads what is there, without taking it. At most as much as stands together in the buffer.
    ///
    /// # Errors
    ///
    /// As reading.
    pub fn peek(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.receive(buffer, true)
    }

    fn receive(&self, buffer: &mut [u8], is_peek: bool) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        let time = self.change(|connection| {
            let settings = &connection.settings;
            if settings.is_nonblocking { Some(Duration::ZERO) } else { settings.read_timeout }
        })?;
        self.block(Side::Reading, time, |core, id| {
            let now = core.now();
            let connection = core.connections.get(id)?;
            if connection.settings.is_read_shut {
                return Ok(Some(0));
            }
            match (connection.read(buffer, is_peek), connection.error) {
                (Some(0), None) => Ok(None),
                (Some(0) | None, Some(kind)) => {
                    connection.error = None;
                    Err(kind.into())
                }
                (None, None) if connection.is_pending() => Ok(None),
                (None, None) => Ok(Some(0)),
                (Some(len), _) => {
                    // Room that there is again may have to be said.
                    let is_due = connection.next(now).is_some_and(|next| next <= now);
                    if !connection.place.is_detached() && is_due {
                        core.connections.settle(id, &mut core.out, now);
                    }
                    Ok(Some(len))
                }
            }
        })
    }

    fn send(&self, data: &[u8]) -> io::Result<usize> {
        if data.is_empty() {
            return Ok(0);
        }
        let time = self.change(|connection| {
            let settings = &connection.settings;
            if settings.is_nonblocking { Some(Duration::ZERO) } else { settings.write_timeout }
        })?;
        self.block(Side::Writing, time, |core, id| {
            let now = core.now();
            let connection = core.connections.get(id)?;
            match connection.write(data) {
                Some(0) => Ok(None),
                Some(len) => {
                    core.connections.settle(id, &mut core.out, now);
                    Ok(Some(len))
                }
                None if connection.error.is_none() && connection.is_pending() => Ok(None),
                None => Err(connection.error.take().unwrap_or(ErrorKind::BrokenPipe).into()),
            }
        })
    }

    fn change<T>(&self, what: impl FnOnce(&mut Connection) -> T) -> io::Result<T> {
        Ok(what(self.held.handle.0.lock().connections.get(self.held.id)?))
    }

    /// Tries something until it is done.
    fn block<T>(
        &self,
        side: Side,
        time: Option<Duration>,
        mut attempt: impl FnMut(&mut Core, Id) -> io::Result<Option<T>>,
    ) -> io::Result<T> {
        let id = self.held.id;
        self.held.handle.0.block(
            time,
            |core| match attempt(core, id) {
                Ok(Some(result)) => Poll::Ready(Ok(result)),
                Ok(None) => Poll::Pending,
                Err(error) => Poll::Ready(Err(error)),
            },
            |core, step| Ok(core.connections.get(id)?.audience.step(side, step)),
        )
    }
}

fn check_timeout(time: Option<Duration>) -> io::Result<()> {
    if time == Some(Duration::ZERO) {
        let text = "a timeout of no time at all: without one, say none";
        return Err(io::Error::new(ErrorKind::InvalidInput, text));
    }
    Ok(())
}

impl Drop for Held {
    fn drop(&mut self) {
        self.handle.0.act(|core| {
            let now = core.now();
            core.connections.release(self.id, &mut core.out, now);
        });
    }
}

impl Read for &TcpStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.receive(buffer, false)
    }
}

impl Write for &TcpStream {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.send(data)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for TcpStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        (&*self).read(buffer)
    }
}

impl Write for TcpStream {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        (&*self).write(data)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
