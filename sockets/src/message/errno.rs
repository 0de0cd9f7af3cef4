//! Errors as numbers of the system, which is how a socket reports them.

use std::fmt;
use std::io;

use quicket_engine::{ConnectionError, TransportErrorCode};

use crate::ops::NoSuchOption;

/// Declares the errors with their numbers on Linux and what they mean here.
macro_rules! errnos {
    ($($name:ident = $number:literal, $text:literal;)*) => {
        /// Why a call failed.
        ///
        /// The numbers are those of Linux, so that a C binding can pass them on as they are.
        #[allow(clippy::upper_case_acronyms)]
        #[derive(Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        #[repr(i32)]
        pub enum Errno {
            $(#[doc = $text] $name = $number,)*
        }

        impl Errno {
            /// What it means.
            #[must_use]
            pub const fn message(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }

            const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)*
                }
            }

            /// The error of a number, if it is one of those that sockets report here.
            #[must_use]
            pub const fn from_number(number: i32) -> Option<Self> {
                match number {
                    $($number => Some(Self::$name),)*
                    _ => None,
                }
            }
        }
    };
}

errnos! {
    EPERM = 1, "not permitted";
    ENOENT = 2, "the program of the switch is not found";
    EINTR = 4, "interrupted";
    EIO = 5, "input or output failed";
    EBADF = 9, "the socket is closed";
    EAGAIN = 11, "not ready: try again later";
    ENOMEM = 12, "out of memory";
    EACCES = 13, "not allowed in this state or by this peer";
    EFAULT = 14, "the data cannot be read from memory";
    ENODEV = 19, "there is no such network interface";
    EINVAL = 22, "an argument does not fit the state of the socket";
    ENFILE = 23, "the host has too many files open";
    EMFILE = 24, "the process has too many files open: close some, or raise the limit";
    ENOSPC = 28, "flow control leaves no room to send, or the switch has no room for the program";
    EPIPE = 32, "the connection is closed";
    ENOSTR = 60, "there is no such stream";
    EPROTO = 71, "the handshake failed";
    EMSGSIZE = 90, "the message has a size that cannot be sent";
    ENOPROTOOPT = 92, "there is no such option";
    EPROTONOSUPPORT = 93, "the peer speaks no version that fits";
    EOPNOTSUPP = 95, "sockets of this kind cannot do that";
    EADDRINUSE = 98, "the address is in use";
    EADDRNOTAVAIL = 99, "the address is not available";
    ENETUNREACH = 101, "the network cannot be reached";
    ECONNABORTED = 103, "this host's address has changed; connect again";
    ECONNRESET = 104, "the peer reset the connection";
    ENOBUFS = 105, "out of buffers";
    EISCONN = 106, "the socket is connected already";
    ENOTCONN = 107, "the socket is not connected";
    ETIMEDOUT = 110, "it took too long";
    ECONNREFUSED = 111, "the peer refused the connection";
    EHOSTUNREACH = 113, "the host cannot be reached";
    EINPROGRESS = 115, "the handshake is under way";
}

impl Errno {
    /// Its number on Linux.
    #[must_use]
    pub const fn number(self) -> i32 {
        self as i32
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.message(), self.name())
    }
}

/// In words, for it is what a `main` that returns the error shows.
impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Errno {}

impl From<Errno> for io::Error {
    fn from(errno: Errno) -> Self {
        Self::from_raw_os_error(errno.number())
    }
}

impl From<&io::Error> for Errno {
    fn from(error: &io::Error) -> Self {
        match error.raw_os_error() {
            Some(number) => Self::from_number(number).unwrap_or(Self::EIO),
            None if error.get_ref().is_some_and(|inner| inner.is::<NoSuchOption>()) => {
                Self::ENOPROTOOPT
            }
            None => Self::of_kind(error.kind()),
        }
    }
}

/// Why a handshake came to nothing, or how a connection has ended.
impl From<&ConnectionError> for Errno {
    fn from(error: &ConnectionError) -> Self {
        match error {
            ConnectionError::PeerTransport { code, .. }
                if *code == TransportErrorCode::CONNECTION_REFUSED =>
            {
                Self::ECONNREFUSED
            }
            ConnectionError::PortUnreachable => Self::ECONNREFUSED,
            ConnectionError::HostUnreachable => Self::EHOSTUNREACH,
            ConnectionError::PeerTransport { .. }
            | ConnectionError::PeerApplication { .. }
            | ConnectionError::StatelessReset => Self::ECONNRESET,
            ConnectionError::IdleTimeout
            | ConnectionError::HandshakeTimeout
            | ConnectionError::NoViablePath => Self::ETIMEDOUT,
            ConnectionError::Local { .. } => Self::EPIPE,
            ConnectionError::Transport(_) | ConnectionError::VersionNegotiation { .. } => {
                Self::EPROTO
            }
        }
    }
}

impl Errno {
    /// The error of what others than the system say, such as the switch.
    const fn of_kind(kind: io::ErrorKind) -> Self {
        match kind {
            io::ErrorKind::AddrInUse => Self::EADDRINUSE,
            io::ErrorKind::InvalidInput => Self::EINVAL,
            io::ErrorKind::PermissionDenied => Self::EACCES,
            io::ErrorKind::WouldBlock => Self::EAGAIN,
            io::ErrorKind::StorageFull => Self::ENOSPC,
            io::ErrorKind::Unsupported => Self::EPROTONOSUPPORT,
            io::ErrorKind::TimedOut => Self::ETIMEDOUT,
            io::ErrorKind::NotFound => Self::ENOENT,
            io::ErrorKind::NotConnected => Self::ENOTCONN,
            io::ErrorKind::ConnectionRefused => Self::ECONNREFUSED,
            io::ErrorKind::ConnectionReset => Self::ECONNRESET,
            io::ErrorKind::BrokenPipe => Self::EPIPE,
            _ => Self::EIO,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_number_is_told_by_its_kind() {
        let said = |kind| Errno::from(&io::Error::new(kind, "the switch said so"));
        assert_eq!(said(io::ErrorKind::AddrInUse), Errno::EADDRINUSE);
        assert_eq!(said(io::ErrorKind::StorageFull), Errno::ENOSPC);
        assert_eq!(said(io::ErrorKind::Other), Errno::EIO);
        // EDQUOT is none of those that sockets report.
        assert_eq!(Errno::from(&io::Error::from_raw_os_error(122)), Errno::EIO);
        assert_eq!(Errno::from(&io::Error::from(Errno::EMFILE)), Errno::EMFILE);
    }
}
