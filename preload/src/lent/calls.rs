//! Calls that set connections up. Each answers None for a descriptor that was not lent.

use std::ffi::c_int;
use std::mem::{size_of, zeroed};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use libc::{sockaddr, sockaddr_in, sockaddr_in6, socklen_t};
use quicket_tcp_protocol::{Accepted, Answer, Call};

use super::{answer, ask, is_on, lent, names, native};

/// Octets that are sent at once to have no room.
const PIECE: usize = 16 << 10;
/// The most of them all.
const MAX_FILLER: usize = 4 << 20;
/// How long a call for connections takes that never come.
const PAUSE: Duration = Duration::from_millis(200);

/// socket(2), for TCP.
pub(crate) fn socket(domain: c_int, kind: c_int, protocol: c_int) -> Option<c_int> {
    let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    let is_tcp = kind & !flags == libc::SOCK_STREAM
        && matches!(protocol, 0 | libc::IPPROTO_TCP)
        && matches!(domain, libc::AF_INET | libc::AF_INET6);
    if !is_on() || !is_tcp {
        return None;
    }
    let errno = native::errno();
    let made = ask::borrow(domain == libc::AF_INET6).map(|(fd, _)| {
        with_flags(fd, kind);
        fd
    });
    Some(answer(made, errno))
}

fn with_flags(fd: c_int, flags: c_int) {
    if flags & libc::SOCK_NONBLOCK != 0 {
        native::set_nonblocking(fd);
    }
    if flags & libc::SOCK_CLOEXEC == 0 {
        native::keep_at_exec(fd);
    }
}

/// bind(2).
pub(crate) unsafe fn bind(fd: c_int, address: *const sockaddr, len: socklen_t) -> Option<c_int> {
    let errno = native::errno();
    let id = lent(fd)?;
    // SAFETY: the caller's.
    let bound = unsafe { read(address, len) }
        .and_then(|address| succeed(ask::ask(id, Call::Bind(address))))
        .map(|_| 0);
    Some(answer(bound, errno))
}

/// listen(2).
pub(crate) unsafe fn listen(fd: c_int, backlog: c_int) -> Option<c_int> {
    let errno = native::errno();
    let id = lent(fd)?;
    // A negative one is the most, as to the system.
    let backlog = u32::try_from(backlog).unwrap_or(u32::MAX);
    let listens = succeed(ask::ask(id, Call::Listen { backlog })).map(|_| {
        // It has the name already if it has listened before.
        let name = names().map(|names| native::Name::of_abstract(names.listener(id).as_bytes()));
        let _ = name.map(|name| native::bind(fd, &name));
        0
    });
    Some(answer(listens, errno))
}

/// accept(2).
pub(crate) unsafe fn accept(
    fd: c_int,
    address: *mut sockaddr,
    len: *mut socklen_t,
) -> Option<c_int> {
    // SAFETY: the caller's.
    unsafe { accept4(fd, address, len, 0) }
}

/// accept4(2). The listener carries descriptors, each with who is at the other end: several processes may wait for them.
pub(crate) unsafe fn accept4(
    fd: c_int,
    address: *mut sockaddr,
    len: *mut socklen_t,
    flags: c_int,
) -> Option<c_int> {
    let errno = native::errno();
    let names = names()?;
    let name = native::own_name(fd)?;
    if flags & !(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC) != 0 {
        return Some(answer(Err(libc::EINVAL), errno));
    }
    if name.abstract_name().and_then(|name| names.is_listener(name)).is_none() {
        lent(fd)?;
        return Some(answer(Err(libc::EINVAL), errno));
    }
    let mut octets = [0; Accepted::LEN];
    let accepted = match native::receive(fd, &mut octets, libc::MSG_CMSG_CLOEXEC) {
        Ok((Accepted::LEN, Some(accepted))) if accepted >= 0 => {
            with_flags(accepted, flags);
            let remote = Accepted::read(&octets).map(|accepted| accepted.remote);
            // SAFETY: the caller's.
            unsafe { write(remote, address, len) };
            Ok(accepted)
        }
        // The connection has gone with its descriptor, for which there was no room.
        Ok((Accepted::LEN, _)) => Err(libc::EMFILE),
        // The lender has gone. The listener is readable for ever, and programs that poll ask again at once.
        Ok(_) => {
            native::pause(PAUSE);
            Err(libc::EINVAL)
        }
        Err(error) => Err(error),
    };
    Some(answer(accepted, errno))
}

/// connect(2).
pub(crate) unsafe fn connect(fd: c_int, address: *const sockaddr, len: socklen_t) -> Option<c_int> {
    let errno = native::errno();
    let id = lent(fd)?;
    // SAFETY: the caller's.
    let connected = unsafe { read(address, len) }.and_then(|to| begin(fd, id, to)).map(|_| 0);
    Some(answer(connected, errno))
}

fn begin(fd: c_int, id: u64, to: SocketAddr) -> Result<Answer, c_int> {
    let is_fresh = native::own_name(fd).is_some_and(|name| name.is_none());
    if is_fresh && let Some(names) = names() {
        let _ = native::bind(fd, &native::Name::of_abstract(names.client(id).as_bytes()));
    }
    if !native::is_nonblocking(fd) {
        return succeed(ask::wait(id, Call::Connect { to, waits: true }));
    }
    // What was sent ahead once is not again: it would be data to a connection that is there by now.
    if is_fresh {
        fill(fd);
    }
    succeed(ask::ask(id, Call::Connect { to, waits: false }))
}

/// Sends so much that the system finds no room for more: until the lender takes it, it is not writable, as a socket that
/// is not connected yet. Of one whose buffer the program has made larger than that, it believes too early that it is.
fn fill(fd: c_int) {
    static NOTHING: [u8; PIECE] = [0; PIECE];
    for _ in 0..MAX_FILLER / PIECE {
        if !native::is_writable(fd) || native::send(fd, &NOTHING, libc::MSG_DONTWAIT).is_err() {
            return;
        }
    }
}

/// getsockname(2).
pub(crate) unsafe fn getsockname(
    fd: c_int,
    address: *mut sockaddr,
    len: *mut socklen_t,
) -> Option<c_int> {
    // SAFETY: the caller's.
    unsafe { name(fd, address, len, |answer| answer.local) }
}

/// getpeername(2).
pub(crate) unsafe fn getpeername(
    fd: c_int,
    address: *mut sockaddr,
    len: *mut socklen_t,
) -> Option<c_int> {
    // SAFETY: the caller's.
    unsafe { name(fd, address, len, |answer| answer.remote) }
}

unsafe fn name(
    fd: c_int,
    address: *mut sockaddr,
    len: *mut socklen_t,
    which: impl FnOnce(Answer) -> Option<SocketAddr>,
) -> Option<c_int> {
    let errno = native::errno();
    let id = lent(fd)?;
    let named = succeed(ask::ask(id, Call::Names))
        .and_then(|answer| which(answer).ok_or(libc::ENOTCONN))
        .map(|found| {
            // SAFETY: the caller's.
            unsafe { write(Some(found), address, len) };
            0
        });
    Some(answer(named, errno))
}

/// An answer, or the error that it says.
pub(super) fn succeed(answer: Result<Answer, c_int>) -> Result<Answer, c_int> {
    let answer = answer?;
    if answer.error == 0 { Ok(answer) } else { Err(answer.error) }
}

/// Reads an address of the program.
unsafe fn read(address: *const sockaddr, len: socklen_t) -> Result<SocketAddr, c_int> {
    if address.is_null() {
        return Err(libc::EFAULT);
    }
    let len = len as usize;
    if len < size_of::<libc::sa_family_t>() {
        return Err(libc::EINVAL);
    }
    // SAFETY: the program says that so many octets are there.
    let family = unsafe { address.cast::<libc::sa_family_t>().read_unaligned() };
    match c_int::from(family) {
        libc::AF_INET if len >= size_of::<sockaddr_in>() => {
            // SAFETY: as above.
            let read = unsafe { address.cast::<sockaddr_in>().read_unaligned() };
            let ip = Ipv4Addr::from(u32::from_be(read.sin_addr.s_addr));
            Ok((ip, u16::from_be(read.sin_port)).into())
        }
        // Without the number of a link, as RFC 2133 had it, too.
        libc::AF_INET6 if len >= size_of::<sockaddr_in6>() - 4 => {
            // SAFETY: zeros are an address.
            let mut read: sockaddr_in6 = unsafe { zeroed() };
            let most = len.min(size_of::<sockaddr_in6>());
            // SAFETY: the program says that so many octets are there; there are as many places.
            unsafe {
                std::ptr::copy_nonoverlapping(
                    address.cast::<u8>(),
                    (&raw mut read).cast::<u8>(),
                    most,
                );
            }
            Ok((Ipv6Addr::from(read.sin6_addr.s6_addr), u16::from_be(read.sin6_port)).into())
        }
        libc::AF_INET | libc::AF_INET6 => Err(libc::EINVAL),
        _ => Err(libc::EAFNOSUPPORT),
    }
}

/// Writes an address for the program, as much of it as has room.
unsafe fn write(found: Option<SocketAddr>, address: *mut sockaddr, len: *mut socklen_t) {
    let Some(found) = found.filter(|_| !address.is_null() && !len.is_null()) else { return };
    // SAFETY: zeros are an address.
    let mut v4: sockaddr_in = unsafe { zeroed() };
    // SAFETY: as above.
    let mut v6: sockaddr_in6 = unsafe { zeroed() };
    let (from, size) = match found {
        SocketAddr::V4(found) => {
            v4.sin_family = libc::AF_INET as libc::sa_family_t;
            v4.sin_port = found.port().to_be();
            v4.sin_addr.s_addr = u32::from(*found.ip()).to_be();
            ((&raw const v4).cast::<u8>(), size_of::<sockaddr_in>())
        }
        SocketAddr::V6(found) => {
            v6.sin6_family = libc::AF_INET6 as libc::sa_family_t;
            v6.sin6_port = found.port().to_be();
            v6.sin6_addr.s6_addr = found.ip().octets();
            ((&raw const v6).cast::<u8>(), size_of::<sockaddr_in6>())
        }
    };
    // SAFETY: the program says how many octets have room, and is told how long the address is.
    unsafe {
        let room = len.read_unaligned() as usize;
        std::ptr::copy_nonoverlapping(from, address.cast::<u8>(), room.min(size));
        len.write_unaligned(size as socklen_t);
    }
}
