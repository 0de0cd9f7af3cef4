//! Errors as programs know them.

use std::io::{self, ErrorKind};

use rustix::io::Errno;

/// The number of an error of a connection.
pub(crate) fn number(error: &io::Error) -> i32 {
    if let Some(number) = error.raw_os_error() {
        return number;
    }
    let error = match error.kind() {
        ErrorKind::ConnectionRefused => Errno::CONNREFUSED,
        ErrorKind::ConnectionReset => Errno::CONNRESET,
        ErrorKind::ConnectionAborted => Errno::CONNABORTED,
        ErrorKind::TimedOut => Errno::TIMEDOUT,
        ErrorKind::AddrInUse => Errno::ADDRINUSE,
        ErrorKind::AddrNotAvailable => Errno::ADDRNOTAVAIL,
        ErrorKind::PermissionDenied => Errno::ACCESS,
        ErrorKind::InvalidInput => Errno::INVAL,
        ErrorKind::NotConnected => Errno::NOTCONN,
        ErrorKind::BrokenPipe => Errno::PIPE,
        ErrorKind::QuotaExceeded | ErrorKind::OutOfMemory => Errno::NOBUFS,
        ErrorKind::HostUnreachable => Errno::HOSTUNREACH,
        ErrorKind::NetworkUnreachable => Errno::NETUNREACH,
        ErrorKind::Unsupported => Errno::OPNOTSUPP,
        _ => Errno::IO,
    };
    error.raw_os_error()
}

/// The same of a call on the stack: a switch that has gone resets no connection of who makes one.
pub(crate) fn of_stack(error: &io::Error) -> i32 {
    match error.kind() {
        ErrorKind::ConnectionReset | ErrorKind::NotFound | ErrorKind::UnexpectedEof => {
            Errno::NETDOWN.raw_os_error()
        }
        _ => number(error),
    }
}
