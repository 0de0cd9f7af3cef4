//! A socket that a program was lent.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use quicket_tcp::TcpStream;
use quicket_tcp_protocol::Names;
use rustix::net::{
    AddressFamily, RecvFlags, Shutdown, SocketAddrUnix, SocketFlags, SocketType, bind, recv,
    shutdown, socketpair,
};

use crate::addresses::Taken;
use crate::listening::Listening;
use crate::pump::Pump;

/// How long an error waits to be asked for.
pub const ERROR_TIME: Duration = Duration::from_secs(60);

/// What the system has said of this end since it was looked at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ready {
    pub(crate) readable: bool,
    pub(crate) writable: bool,
    /// The program has closed its last descriptor, or ended both ways.
    pub(crate) hung_up: bool,
}

/// What a program has set.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Settings {
    pub(crate) no_delay: bool,
    pub(crate) reset: bool,
    pub(crate) v6_only: bool,
}

/// An address that a socket is bound to.
#[derive(Debug)]
pub(crate) struct Bound {
    /// As the program sees it.
    pub(crate) address: SocketAddr,
    /// Has the system keep it. None for one that the stack has already.
    pub(crate) _reservation: Option<OwnedFd>,
}

/// A connection that this side has begun.
#[derive(Debug)]
pub(crate) struct Connecting {
    pub(crate) stream: TcpStream,
    /// Octets from the program that are no data.
    pub(crate) filler: u64,
    /// The visitor that waits for the answer.
    pub(crate) waiter: Option<u64>,
    pub(crate) until: Instant,
}

#[derive(Debug)]
pub(crate) enum State {
    Idle(Option<Bound>),
    Listening(Listening),
    Connecting(Connecting),
    Connected(Pump),
    /// Over, with an error that the program has not heard of.
    Failed {
        error: i32,
        until: Instant,
    },
}

#[derive(Debug)]
pub(crate) struct Socket {
    /// The lender's end.
    pub(crate) end: OwnedFd,
    pub(crate) is_v6: bool,
    pub(crate) settings: Settings,
    pub(crate) ready: Ready,
    /// It waits for its turn.
    pub(crate) is_due: bool,
    /// The deadline that the lender has noted.
    pub(crate) noted: Option<Instant>,
    pub(crate) state: State,
}

impl Socket {
    /// Makes one, and the end that is the program's.
    pub(crate) fn new(names: &Names, id: u64, is_v6: bool) -> io::Result<(Self, OwnedFd)> {
        let flags = SocketFlags::CLOEXEC;
        let (end, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        bind(&end, &SocketAddrUnix::new_abstract_name(names.socket(id).as_bytes())?)?;
        let this = Self {
            end,
            is_v6,
            settings: Settings::default(),
            ready: Ready { readable: false, writable: true, hung_up: false },
            is_due: false,
            noted: None,
            state: State::Idle(None),
        };
        Ok((this, theirs))
    }

    /// Takes what the program has sent ahead of its connection. False if it is not there.
    pub(crate) fn discard(&self, filler: u64, scratch: &mut [u8]) -> bool {
        let mut left = usize::try_from(filler).unwrap_or(usize::MAX);
        while left > 0 {
            let most = left.min(scratch.len());
            match recv(&self.end, &mut scratch[..most], RecvFlags::DONTWAIT) {
                Ok((_, taken @ 1..)) => left -= taken,
                _ => return false,
            }
        }
        true
    }

    /// It is over, and the program hears of it when it asks: until then, its end is hung up.
    pub(crate) fn fail(&mut self, error: i32) {
        let _ = shutdown(&self.end, Shutdown::Both);
        self.state = State::Failed { error, until: Instant::now() + ERROR_TIME };
    }

    /// Whether there is something that keeps the lender.
    pub(crate) const fn is_alive(&self) -> bool {
        !matches!(self.state, State::Failed { .. })
    }

    /// What it is bound to, if it does not listen yet.
    pub(crate) const fn taken(&self) -> Option<Taken> {
        match &self.state {
            State::Idle(Some(bound)) => Some((bound.address, self.settings.v6_only)),
            _ => None,
        }
    }

    /// When it is to be looked at, whatever happens.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        match &self.state {
            State::Connecting(connecting) => Some(connecting.until),
            State::Failed { until, .. } => Some(*until),
            State::Listening(listening) => listening.again,
            State::Connected(pump) => pump.deadline(),
            State::Idle(_) => None,
        }
    }
}
