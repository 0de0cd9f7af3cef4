//! What programs ask for, done.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::Instant;

use quicket_tcp::{CONNECT_TIME, MAX_BACKLOG, Stack, TcpStream, Watch};
use quicket_tcp_protocol::{Answer, Setting};
use rustix::io::Errno;

use crate::addresses::Taken;
use crate::listening::Listening;
use crate::socket::{Bound, Connecting, Socket, State};
use crate::{addresses, errors};

/// Where calls are done.
pub(crate) struct Place<'a> {
    pub(crate) stack: &'a Stack,
    pub(crate) watch: &'a Watch,
    pub(crate) id: u64,
    /// What other sockets are bound to, where addresses are reserved for the stack.
    pub(crate) taken: &'a [Taken],
}

/// An answer, or the number of an error.
type Done = Result<Answer, i32>;

fn refuse<T>(error: Errno) -> Result<T, i32> {
    Err(error.raw_os_error())
}

fn by_stack(error: io::Error) -> i32 {
    log::debug!("a call of a program fails: {error}");
    errors::of_stack(&error)
}

impl Socket {
    /// bind(2).
    pub(crate) fn bind(&mut self, place: &Place<'_>, address: SocketAddr) -> Done {
        if !matches!(self.state, State::Idle(None)) {
            return refuse(Errno::INVAL);
        }
        if address.is_ipv6() != self.is_v6 {
            return refuse(Errno::AFNOSUPPORT);
        }
        let (v6_only, is_any) = (self.settings.v6_only, address.port() == 0);
        let bound = match addresses::reserve(place.stack, place.taken, address, v6_only) {
            Ok((reservation, address)) => Bound { address, _reservation: reservation },
            // The system keeps what the stack has. Whether somebody listens there is told when it is listened.
            Err(error)
                if error.kind() == io::ErrorKind::AddrInUse
                    && !is_any
                    && self.is_of_stack(place.stack, address) =>
            {
                Bound { address, _reservation: None }
            }
            Err(error) => return Err(errors::number(&error)),
        };
        self.state = State::Idle(Some(bound));
        Ok(Answer::default())
    }

    fn is_of_stack(&self, stack: &Stack, address: SocketAddr) -> bool {
        let all =
            addresses::all(stack.reserved(), address, self.settings.v6_only).unwrap_or_default();
        all.into_iter().any(|address| stack.has(address))
    }

    /// listen(2).
    pub(crate) fn listen(&mut self, place: &Place<'_>, backlog: u32) -> Done {
        let bound = match &mut self.state {
            State::Listening(_) => return Ok(Answer::default()),
            State::Idle(bound) => bound.take().map(|bound| bound.address),
            _ => return refuse(Errno::INVAL),
        };
        let v6_only = self.settings.v6_only;
        let address = match bound {
            Some(address) => address,
            None => {
                let any = if self.is_v6 { "[::]:0" } else { "0.0.0.0:0" };
                let any = any.parse().map_err(|_| Errno::INVAL.raw_os_error())?;
                let reserved = addresses::reserve(place.stack, place.taken, any, v6_only);
                reserved.map_err(|error| errors::number(&error))?.1
            }
        };
        // What kept it for this socket is closed by now: the stack asks the system for it itself.
        let backlog = (backlog as usize).clamp(1, MAX_BACKLOG);
        let Place { stack, watch, id, taken } = *place;
        let listening = Listening::begin(stack, watch, id, address, v6_only, backlog);
        let listening = listening.map_err(|error| {
            // It is bound as before.
            self.state = State::Idle(bound.map(|address| {
                let reserved = addresses::reserve(stack, taken, address, v6_only).ok();
                Bound { address, _reservation: reserved.and_then(|(reservation, _)| reservation) }
            }));
            by_stack(error)
        })?;
        self.state = State::Listening(listening);
        Ok(Answer::default())
    }

    /// connect(2). None if the answer comes later.
    pub(crate) fn connect(
        &mut self,
        place: &Place<'_>,
        to: SocketAddr,
        waiter: Option<u64>,
    ) -> Result<Option<Answer>, i32> {
        let bound = match &mut self.state {
            State::Idle(bound) => bound.as_ref().map(|bound| bound.address),
            State::Connecting(_) => return refuse(Errno::ALREADY),
            State::Connected(_) | State::Listening(_) => return refuse(Errno::ISCONN),
            State::Failed { error, .. } => return Err(*error),
        };
        if to.is_ipv6() != self.is_v6 {
            return refuse(Errno::AFNOSUPPORT);
        }
        // What has come until now is no data (`Call::Connect`).
        let filler = rustix::io::ioctl_fionread(&self.end).map_err(Errno::raw_os_error)?;
        let mut to = addresses::plain(to);
        // This host, by custom.
        if to.ip().is_unspecified() {
            let v4 = std::net::Ipv4Addr::LOCALHOST.into();
            to.set_ip(if to.is_ipv4() { v4 } else { std::net::Ipv6Addr::LOCALHOST.into() });
        }
        let stream = TcpStream::begin(place.stack, to).map_err(by_stack)?;
        let from = stream.local_addr().map_err(by_stack)?;
        // The stack chooses from where: another address is not to be had.
        if let Some(bound) = bound.map(addresses::plain)
            && (!bound.ip().is_unspecified() && bound.ip() != from.ip())
        {
            let _ = stream.set_reset_on_drop(true);
            return refuse(Errno::ADDRNOTAVAIL);
        }
        stream.set_nonblocking(true).map_err(by_stack)?;
        stream.watch(place.watch, place.id).map_err(by_stack)?;
        let until = Instant::now() + CONNECT_TIME;
        self.state = State::Connecting(Connecting { stream, filler, waiter, until });
        if waiter.is_some() { Ok(None) } else { refuse(Errno::INPROGRESS) }
    }

    /// getsockname(2) and getpeername(2).
    pub(crate) fn names(&self) -> Answer {
        let any = || -> Option<SocketAddr> {
            (if self.is_v6 { "[::]:0" } else { "0.0.0.0:0" }).parse().ok()
        };
        let shown = |address| Some(addresses::shown(address, self.is_v6));
        let of = |stream: &TcpStream| stream.local_addr().ok().and_then(shown);
        let (local, remote) = match &self.state {
            State::Idle(None) | State::Failed { .. } => (any(), None),
            State::Idle(Some(bound)) => (shown(bound.address), None),
            State::Listening(listening) => (shown(listening.address), None),
            State::Connecting(connecting) => (of(&connecting.stream), None),
            State::Connected(pump) => {
                (of(&pump.stream), pump.stream.peer_addr().ok().and_then(shown))
            }
        };
        Answer { local, remote, value: self.is_v6, ..Answer::default() }
    }

    /// setsockopt(2).
    pub(crate) fn set(&mut self, setting: Setting, value: bool) -> Done {
        match setting {
            Setting::NoDelay => self.settings.no_delay = value,
            Setting::Reset => self.settings.reset = value,
            Setting::V6Only if self.is_v6 && matches!(self.state, State::Idle(None)) => {
                self.settings.v6_only = value;
            }
            Setting::V6Only => return refuse(Errno::INVAL),
        }
        if let State::Connected(pump) = &self.state {
            self.apply(&pump.stream);
        }
        Ok(Answer::default())
    }

    /// Has a stream be as the program has said.
    pub(crate) fn apply(&self, stream: &TcpStream) {
        // Of a stack that is over, the program hears anyway.
        let _ = stream.set_nodelay(self.settings.no_delay);
        let _ = stream.set_reset_on_drop(self.settings.reset);
    }

    /// getsockopt(2).
    pub(crate) const fn get(&self, setting: Setting) -> bool {
        match setting {
            Setting::NoDelay => self.settings.no_delay,
            Setting::Reset => self.settings.reset,
            Setting::V6Only => self.settings.v6_only,
        }
    }
}

/// A connection that was accepted, as a socket that was lent.
pub(crate) fn accepted(
    place: &Place<'_>,
    names: &quicket_tcp_protocol::Names,
    is_v6: bool,
    stream: TcpStream,
) -> io::Result<(Socket, OwnedFd)> {
    let (mut socket, theirs) = Socket::new(names, place.id, is_v6)?;
    let name = rustix::net::SocketAddrUnix::new_abstract_name(names.client(place.id).as_bytes())?;
    rustix::net::bind(&theirs, &name)?;
    stream.set_nonblocking(true)?;
    stream.watch(place.watch, place.id)?;
    socket.state = State::Connected(crate::pump::Pump::new(stream));
    Ok((socket, theirs))
}
