//! Why a registration is refused, and what to do about it.

use std::fmt;

use quicket_engine::time::Duration;

use super::address::ListenAddress;
use super::{MAX_ADDRESSES, MAX_PROGRAM_NAME, MAX_WORKERS};

/// Why a program does not get what it asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RegisterError {
    /// Somebody has these names at this address.
    NamesInUse {
        /// What, in words.
        names: String,
        /// Who, if it is a program of the same user.
        by: Option<String>,
    },
    /// The address excludes one that somebody has.
    AddressInUse(ListenAddress),
    /// Port 0: nobody knows yet which one it will be.
    NoPort,
    /// No worker, or more than [`MAX_WORKERS`].
    Workers(u16),
    /// The program's name is empty or longer than [`MAX_PROGRAM_NAME`] bytes.
    ProgramName(usize),
    /// More than [`MAX_ADDRESSES`].
    TooManyAddresses,
    /// The user has so many listeners at this address, those included that died lately:
    /// [`MAX_LISTENERS_PER_USER`](super::MAX_LISTENERS_PER_USER), or
    /// [`MAX_LISTENERS_PER_TENANT`](super::MAX_LISTENERS_PER_TENANT).
    TooManyListeners(usize),
    /// Every slot is in use, or was until lately; the next one comes free after this time, if it
    /// depends on time.
    NoSlot(Option<Duration>),
    /// The switch has taken over from one that died, and for so long programs come back that had a
    /// number.
    Reclaiming(Duration),
    /// A generation that drained comes back, and its number is somebody else's.
    NumberTaken,
}

impl RegisterError {
    /// Whether the system's call would answer EADDRINUSE.
    #[must_use]
    pub const fn is_in_use(&self) -> bool {
        matches!(self, Self::NamesInUse { .. } | Self::AddressInUse(_))
    }

    /// When to ask again, if that helps.
    #[must_use]
    pub const fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::NoSlot(wait) => *wait,
            Self::Reclaiming(wait) => Some(*wait),
            _ => None,
        }
    }
}

impl fmt::Display for RegisterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NamesInUse { names, by: Some(by) } => write!(
                f,
                "the program \"{by}\" serves {names} at this address: choose other protocols or \
                 server names, replace it (an upgrade, --replace), or have both share the port"
            ),
            Self::NamesInUse { names, by: None } => write!(
                f,
                "a program of another user serves {names} at this address: choose other protocols \
                 or server names"
            ),
            Self::AddressInUse(address) => write!(
                f,
                "a program listens on {address}, whose datagrams would be these: use the same \
                 address, or another port"
            ),
            Self::NoPort => f.write_str("an address has a port other than 0 once it is bound"),
            Self::Workers(count) => {
                write!(f, "a program has 1 to {MAX_WORKERS} workers, not {count}")
            }
            Self::ProgramName(bytes) => {
                write!(f, "a program's name has 1 to {MAX_PROGRAM_NAME} bytes, not {bytes}")
            }
            Self::TooManyAddresses => write!(
                f,
                "the switch has {MAX_ADDRESSES} addresses: close one, or start another switch"
            ),
            Self::TooManyListeners(most) => write!(
                f,
                "this user has {most} listeners at the address, those included \
                 that ended lately: close some, or wait a minute"
            ),
            Self::NoSlot(Some(wait)) => write!(
                f,
                "every owner number of the address is taken, or was until lately: try again in {} s",
                wait.as_nanos().div_ceil(1_000_000_000)
            ),
            Self::Reclaiming(wait) => write!(
                f,
                "the switch has taken over from one that died, and waits for its programs: try again \
                 in {} ms",
                wait.as_nanos().div_ceil(1_000_000)
            ),
            Self::NumberTaken => f.write_str(
                "this generation drained, and its owner number is somebody else's by now: its \
                 connections are lost, end it",
            ),
            Self::NoSlot(None) => f.write_str(
                "every owner number of the address is taken: close a listener, or let old \
                 generations end",
            ),
        }
    }
}

impl std::error::Error for RegisterError {}

/// The listener is gone: its program ended, closed it, or had to leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownListener;

impl fmt::Display for UnknownListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("there is no such listener any more: register again")
    }
}

impl std::error::Error for UnknownListener {}

/// Why a listener does not become ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadyError {
    /// It is gone.
    Gone(UnknownListener),
    /// It drained, and somebody else has its names by now.
    Names(RegisterError),
}

impl fmt::Display for ReadyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gone(error) => error.fmt(f),
            Self::Names(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ReadyError {}

impl From<UnknownListener> for ReadyError {
    fn from(error: UnknownListener) -> Self {
        Self::Gone(error)
    }
}

impl From<RegisterError> for ReadyError {
    fn from(error: RegisterError) -> Self {
        Self::Names(error)
    }
}
