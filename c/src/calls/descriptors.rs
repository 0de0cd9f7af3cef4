//! Descriptors as such: close, close_range, dup, dup2, dup3, fcntl, ioctl.

use std::ffi::c_int;
use std::sync::Arc;

use super::number;
use super::receive::put_count;
use crate::constants::{SIOCINQ, SIOCOUTQ, SIOCOUTQNSD};
use crate::entry::Entry;
use crate::memory::Memory;
use crate::native::{self, Result};
use crate::table::{self, Kind};

/// The request of close_range(2) that only marks descriptors.
const CLOSE_RANGE_CLOEXEC: c_int = 4;

/// close(2).
pub(crate) fn close(fd: c_int) -> Result<c_int> {
    match table::kind(fd) {
        // A child that shares our memory closes what it has; a forked one, what it got.
        Kind::Socket | Kind::Hidden if table::is_guest() => native::close(fd)?,
        Kind::Inherited => {
            table::forget_inherited(fd);
            native::close(fd)?;
        }
        Kind::Socket => table::get(fd)?.close(fd)?,
        Kind::Hidden | Kind::Other => return Err(libc::EBADF),
    }
    Ok(0)
}

/// close_range(2), where some of the range is ours.
pub(crate) fn close_range(first: u32, last: u32, flags: c_int) -> Result<c_int> {
    if first > last || flags & !(CLOSE_RANGE_CLOEXEC | libc::CLOSE_RANGE_UNSHARE as c_int) != 0 {
        return Err(libc::EINVAL);
    }
    if table::is_guest() {
        native::close_range(first, last, flags)?;
        return Ok(0);
    }
    let marks = flags & CLOSE_RANGE_CLOEXEC != 0;
    let mut from = first;
    let end = table::end().cast_unsigned();
    for number in first..end.min(last.saturating_add(1)) {
        let fd = number.cast_signed();
        let kind = table::kind(fd);
        if kind == Kind::Other {
            continue;
        }
        if from < number {
            native::close_range(from, number - 1, flags)?;
        }
        from = number + 1;
        match kind {
            Kind::Socket | Kind::Inherited if marks => table::lock().set_cloexec(fd, true),
            // Another thread may have been faster.
            Kind::Socket | Kind::Inherited => {
                let _ = close(fd);
            }
            Kind::Hidden | Kind::Other => {}
        }
    }
    if from <= last {
        native::close_range(from, last, flags)?;
    }
    Ok(0)
}

/// dup(2), and fcntl(2) with F_DUPFD, of a socket.
fn dup_from(fd: c_int, command: c_int, least: usize) -> Result<c_int> {
    if table::is_guest() {
        return Err(libc::EBADFD);
    }
    let entry = table::get(fd)?;
    let cloexec = command == libc::F_DUPFD_CLOEXEC;
    let new = native::fcntl(fd, libc::F_DUPFD_CLOEXEC, least)?;
    entry.adopt(new, cloexec)?;
    Ok(new)
}

/// dup(2) of a socket.
pub(crate) fn dup(fd: c_int) -> Result<c_int> {
    dup_from(fd, libc::F_DUPFD, 0)
}

/// dup2(2) and dup3(2), where at least one of both is ours.
pub(crate) fn dup3(old: c_int, new: c_int, flags: Option<c_int>) -> Result<c_int> {
    let cloexec = flags.is_some_and(|flags| flags & libc::O_CLOEXEC != 0);
    match flags {
        Some(flags) if old == new || flags & !libc::O_CLOEXEC != 0 => return Err(libc::EINVAL),
        None if old == new => return table::get(old).map(|_| new),
        _ => {}
    }
    match (table::kind(old), table::is_guest()) {
        // It would be none under its new number.
        (Kind::Inherited, _) | (Kind::Socket, true) => return Err(libc::EBADFD),
        (_, true) => return native::dup3(old, new, flags.unwrap_or(0)),
        _ => {}
    }
    // The library needs it; to the program nothing is there.
    if table::kind(new) == Kind::Hidden {
        return Err(libc::EBUSY);
    }
    if table::kind(old) == Kind::Hidden {
        return Err(libc::EBADF);
    }
    let source = match table::kind(old) {
        Kind::Socket => Some(table::get(old)?),
        _ => None,
    };
    // That there is an old one is known before the new one is given up.
    native::fcntl(old, libc::F_GETFD, 0)?;
    let replaced = replaced(new)?;
    let flags = if source.is_some() || cloexec { libc::O_CLOEXEC } else { 0 };
    let done = native::dup3(old, new, flags);
    drop(replaced);
    done?;
    if let Some(source) = source {
        source.adopt(new, cloexec)?;
    }
    Ok(new)
}

/// Gives up what the program has under a number; the socket ends with what is returned.
fn replaced(fd: c_int) -> Result<Option<Arc<Entry>>> {
    match table::kind(fd) {
        Kind::Socket => {
            let entry = table::get(fd)?;
            entry.release(fd);
            Ok(Some(entry))
        }
        Kind::Inherited => {
            table::forget_inherited(fd);
            Ok(None)
        }
        Kind::Hidden | Kind::Other => Ok(None),
    }
}

/// fcntl(2).
pub(crate) fn fcntl(fd: c_int, command: c_int, argument: usize) -> Result<c_int> {
    let entry = table::get(fd)?;
    match command {
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => dup_from(fd, command, argument),
        // It is closed by exec in any case: the state of a connection cannot follow there.
        libc::F_GETFD => {
            let cloexec = table::cloexec(fd).ok_or(libc::EBADF)?;
            Ok(if cloexec { libc::FD_CLOEXEC } else { 0 })
        }
        // A child that shares our memory has flags of its own, which its exec will not look at.
        libc::F_SETFD if table::is_guest() => Ok(0),
        libc::F_SETFD => {
            table::lock().set_cloexec(fd, argument as c_int & libc::FD_CLOEXEC != 0);
            Ok(0)
        }
        libc::F_SETFL => {
            let done = native::fcntl(fd, command, argument)?;
            entry.socket.set_nonblocking(argument as c_int & libc::O_NONBLOCK != 0);
            Ok(done)
        }
        _ => native::fcntl(fd, command, argument),
    }
}

/// ioctl(2).
pub(crate) fn ioctl(
    memory: &mut Memory,
    fd: c_int,
    request: usize,
    argument: usize,
) -> Result<c_int> {
    let entry = table::get(fd)?;
    match request {
        SIOCINQ => put_count(memory, entry.socket.bytes_to_receive().map_err(number)?, argument),
        SIOCOUTQ => put_count(memory, entry.socket.bytes_to_send().map_err(number)?, argument),
        SIOCOUTQNSD => put_count(memory, entry.socket.bytes_unsent().map_err(number)?, argument),
        _ if request == libc::FIONBIO as usize => {
            let nonblocking = memory.value::<i32>(argument)? != 0;
            let done = native::ioctl(fd, request, argument)?;
            entry.socket.set_nonblocking(nonblocking);
            Ok(done)
        }
        _ if request == libc::FIOCLEX as usize => {
            fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC as usize)
        }
        _ if request == libc::FIONCLEX as usize => fcntl(fd, libc::F_SETFD, 0),
        _ => Err(libc::ENOTTY),
    }
}
