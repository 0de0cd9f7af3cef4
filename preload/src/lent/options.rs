//! Options of sockets: those that the stack has, those that the system has for the program's end, hints, and no others.

use std::ffi::{c_int, c_void};
use std::mem::size_of;

use libc::{linger, socklen_t};
use quicket_tcp_protocol::{Call, Setting};

use super::calls::succeed;
use super::{answer, ask, lent, names, native};

/// Who knows of an option.
enum Whose {
    /// The stack.
    Stack(Setting),
    /// The system, of the program's end.
    System,
    /// Nobody: it is taken, as what it asks for changes nothing that a program can rely on.
    Hint,
    /// Nobody: it is refused.
    None,
}

fn whose(level: c_int, name: c_int) -> Whose {
    match (level, name) {
        (libc::IPPROTO_TCP, libc::TCP_NODELAY) => Whose::Stack(Setting::NoDelay),
        (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY) => Whose::Stack(Setting::V6Only),
        (
            libc::SOL_SOCKET,
            libc::SO_REUSEADDR
            | libc::SO_RCVBUF
            | libc::SO_SNDBUF
            | libc::SO_RCVTIMEO
            | libc::SO_SNDTIMEO
            | libc::SO_RCVLOWAT
            | libc::SO_SNDLOWAT
            | libc::SO_TYPE,
        ) => Whose::System,
        (libc::SOL_SOCKET, libc::SO_KEEPALIVE | libc::SO_PRIORITY | libc::SO_DONTROUTE)
        | (
            libc::IPPROTO_TCP,
            libc::TCP_CORK
            | libc::TCP_QUICKACK
            | libc::TCP_KEEPIDLE
            | libc::TCP_KEEPINTVL
            | libc::TCP_KEEPCNT
            | libc::TCP_DEFER_ACCEPT
            | libc::TCP_NOTSENT_LOWAT
            | libc::TCP_SYNCNT,
        )
        | (
            libc::IPPROTO_IP,
            libc::IP_TOS | libc::IP_BIND_ADDRESS_NO_PORT | libc::IP_MTU_DISCOVER,
        )
        | (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => Whose::Hint,
        _ => Whose::None,
    }
}

/// setsockopt(2). None if the system is to do it.
pub(crate) unsafe fn setsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: socklen_t,
) -> Option<c_int> {
    let errno = native::errno();
    let id = lent(fd)?;
    let set = match whose(level, name) {
        Whose::System => return None,
        Whose::Hint => Ok(0),
        Whose::Stack(setting) => {
            // SAFETY: the caller's.
            unsafe { read(value, len) }.and_then(|value: c_int| set(id, setting, value != 0))
        }
        Whose::None if (level, name) == (libc::SOL_SOCKET, libc::SO_LINGER) => {
            // SAFETY: the caller's. A close never waits; one that lingers for no time is a reset.
            unsafe { read(value, len) }.and_then(|value: linger| {
                set(id, Setting::Reset, value.l_onoff != 0 && value.l_linger == 0)
            })
        }
        Whose::None => Err(libc::ENOPROTOOPT),
    };
    Some(answer(set, errno))
}

fn set(id: u64, setting: Setting, value: bool) -> Result<c_int, c_int> {
    let answer = ask::ask(id, Call::Set(setting, value))?;
    if answer.error == 0 { Ok(0) } else { Err(answer.error) }
}

/// getsockopt(2). None if the system is to do it.
pub(crate) unsafe fn getsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut socklen_t,
) -> Option<c_int> {
    let errno = native::errno();
    let id = lent(fd)?;
    let got = match (level, name) {
        (libc::SOL_SOCKET, libc::SO_ERROR) => ask::ask(id, Call::Error).map(|answer| answer.error),
        (libc::SOL_SOCKET, libc::SO_PROTOCOL) => Ok(libc::IPPROTO_TCP),
        (libc::SOL_SOCKET, libc::SO_DOMAIN) => succeed(ask::ask(id, Call::Names))
            .map(|answer| if answer.value { libc::AF_INET6 } else { libc::AF_INET }),
        (libc::SOL_SOCKET, libc::SO_ACCEPTCONN) => Ok(c_int::from(listens(fd))),
        (libc::SOL_SOCKET, libc::SO_LINGER) => {
            let resets = ask::ask(id, Call::Get(Setting::Reset)).map(|answer| answer.value);
            let got = resets.and_then(|resets| {
                let found = linger { l_onoff: c_int::from(resets), l_linger: 0 };
                // SAFETY: the caller's.
                unsafe { write(found, value, len) }
            });
            return Some(answer(got, errno));
        }
        (libc::IPPROTO_TCP, libc::TCP_MAXSEG) => Ok(1460),
        _ => match whose(level, name) {
            Whose::System => return None,
            Whose::Hint => Ok(0),
            Whose::Stack(setting) => {
                ask::ask(id, Call::Get(setting)).map(|answer| c_int::from(answer.value))
            }
            Whose::None => Err(libc::ENOPROTOOPT),
        },
    };
    // SAFETY: the caller's.
    let got = got.and_then(|found| unsafe { write(found, value, len) });
    Some(answer(got, errno))
}

fn listens(fd: c_int) -> bool {
    let name = native::own_name(fd);
    let name = name.as_ref().and_then(native::Name::abstract_name);
    name.zip(names()).is_some_and(|(name, names)| names.is_listener(name).is_some())
}

/// Reads a value of the program.
unsafe fn read<T: Copy>(value: *const c_void, len: socklen_t) -> Result<T, c_int> {
    if value.is_null() {
        return Err(libc::EFAULT);
    }
    if (len as usize) < size_of::<T>() {
        return Err(libc::EINVAL);
    }
    // SAFETY: the program says that so many octets are there; all of them are a value of integers.
    Ok(unsafe { value.cast::<T>().read_unaligned() })
}

/// Writes a value for the program, as much of it as has room.
unsafe fn write<T: Copy>(
    found: T,
    value: *mut c_void,
    len: *mut socklen_t,
) -> Result<c_int, c_int> {
    if value.is_null() || len.is_null() {
        return Err(libc::EFAULT);
    }
    // SAFETY: the program says how many octets have room, and is told how many were written.
    unsafe {
        let size = (len.read_unaligned() as usize).min(size_of::<T>());
        std::ptr::copy_nonoverlapping((&raw const found).cast::<u8>(), value.cast::<u8>(), size);
        len.write_unaligned(size as socklen_t);
    }
    Ok(0)
}
