//! Calls that set sockets up, send and receive.

use std::ffi::{c_int, c_uint, c_ulong, c_void};

use libc::{
    iovec, mmsghdr, msghdr, off_t, off64_t, size_t, sockaddr, socklen_t, ssize_t, timespec,
};
use quicket_c::Inside;
use quicket_c::constants::IPPROTO_QUIC;

use crate::next::{Name, by_descriptor, by_owner, next, receiving, set_errno};
use crate::{Whose, lent, no_descriptor, opened, whose};

#[unsafe(no_mangle)]
pub unsafe extern "C" fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    if protocol == IPPROTO_QUIC && matches!(domain, libc::AF_INET | libc::AF_INET6) {
        // SAFETY: numbers.
        return unsafe { quicket_c::quicket_socket(domain, kind, protocol) };
    }
    if !Inside::is()
        && let Some(fd) = lent::socket(domain, kind, protocol)
    {
        return fd;
    }
    type Function = unsafe extern "C" fn(c_int, c_int, c_int) -> c_int;
    // SAFETY: numbers.
    opened(unsafe { next!(socket: Function)(domain, kind, protocol) })
}

/// The kernel has none of QUIC sockets, as of TCP's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn socketpair(
    domain: c_int,
    kind: c_int,
    protocol: c_int,
    pair: *mut c_int,
) -> c_int {
    if protocol == IPPROTO_QUIC && matches!(domain, libc::AF_INET | libc::AF_INET6) {
        set_errno(libc::EOPNOTSUPP);
        return -1;
    }
    type Function = unsafe extern "C" fn(c_int, c_int, c_int, *mut c_int) -> c_int;
    // SAFETY: the arguments are the caller's.
    let answer = unsafe { next!(socketpair: Function)(domain, kind, protocol, pair) };
    if answer == 0 && Inside::is() {
        // SAFETY: the C library has just written two descriptors there.
        let pair = unsafe { [*pair, *pair.add(1)] };
        for fd in pair {
            opened(fd);
        }
    }
    answer
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
    type Function = unsafe extern "C" fn(c_int, *mut msghdr, c_int) -> ssize_t;

    // By itself, so that the way past it needs no room on the stack.
    #[cold]
    #[inline(never)]
    unsafe extern "C" fn not_the_systems(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
        match whose(fd) {
            Whose::System => {
                // SAFETY: the arguments are the caller's.
                let answer = unsafe { next!(recvmsg: Function)(fd, message, flags) };
                if answer >= 0 && Inside::is() {
                    // SAFETY: the C library has just filled the caller's message.
                    unsafe { opened_by_message(message) };
                }
                lent::received(fd, answer)
            }
            // SAFETY: the arguments are the caller's, and addresses are checked.
            Whose::Quicket => unsafe { quicket_c::quicket_recvmsg(fd, message, flags) },
            Whose::Nobody => no_descriptor(),
        }
    }

    let known = Name::recvmsg.known();
    if quicket_c::kind(fd) != quicket_c::Kind::Other || known.is_null() || lent::is_on() {
        // SAFETY: the arguments are the caller's.
        return unsafe { not_the_systems(fd, message, flags) };
    }
    // SAFETY: the arguments are the caller's.
    unsafe { next!(@ known, Function)(fd, message, flags) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn recvmmsg(
    fd: c_int,
    messages: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
    timeout: *mut timespec,
) -> c_int {
    type Function =
        unsafe extern "C" fn(c_int, *mut mmsghdr, c_uint, c_int, *mut timespec) -> c_int;
    match whose(fd) {
        Whose::System => {
            // SAFETY: the arguments are the caller's.
            let got = unsafe { next!(recvmmsg: Function)(fd, messages, count, flags, timeout) };
            // An end is a message of no octets.
            // SAFETY: the C library has filled as many messages as it says.
            let is_end = got > 0 && lent::is_on() && unsafe { (*messages).msg_len } == 0;
            if is_end && lent::received(fd, 0) < 0 { -1 } else { got }
        }
        // SAFETY: the arguments are the caller's, and addresses are checked.
        Whose::Quicket => unsafe {
            quicket_c::quicket_recvmmsg(fd, messages, count, flags, timeout)
        },
        Whose::Nobody => no_descriptor(),
    }
}

/// Notes the descriptors that came with a message to the library.
unsafe fn opened_by_message(message: *const msghdr) {
    // SAFETY: the macros of the C library walk the control messages of a message that was received.
    unsafe {
        let mut control = libc::CMSG_FIRSTHDR(message);
        while let Some(header) = control.as_ref() {
            if (header.cmsg_level, header.cmsg_type) == (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
                let bytes = header.cmsg_len.saturating_sub(libc::CMSG_LEN(0) as usize);
                let first = libc::CMSG_DATA(control).cast::<c_int>();
                for index in 0..bytes / size_of::<c_int>() {
                    opened(first.add(index).read_unaligned());
                }
            }
            control = libc::CMSG_NXTHDR(message, control);
        }
    }
}

by_owner! {
    bind(fd: c_int, address: *const sockaddr, len: socklen_t) -> c_int = quicket_bind, bind;
    listen(fd: c_int, backlog: c_int) -> c_int = quicket_listen, listen;
    accept(fd: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int
        = quicket_accept, accept;
    accept4(fd: c_int, address: *mut sockaddr, len: *mut socklen_t, flags: c_int) -> c_int
        = quicket_accept4, accept4;
    connect(fd: c_int, address: *const sockaddr, len: socklen_t) -> c_int
        = quicket_connect, connect;
    __connect(fd: c_int, address: *const sockaddr, len: socklen_t) -> c_int
        = quicket_connect, connect;
    getsockname(fd: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int
        = quicket_getsockname, getsockname;
    getpeername(fd: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int
        = quicket_getpeername, getpeername;
    getsockopt(fd: c_int, level: c_int, name: c_int, value: *mut c_void, len: *mut socklen_t)
        -> c_int = quicket_getsockopt, getsockopt;
    setsockopt(fd: c_int, level: c_int, name: c_int, value: *const c_void, len: socklen_t)
        -> c_int = quicket_setsockopt, setsockopt;
}

receiving! {
    recv(fd: c_int, data: *mut c_void, len: size_t, flags: c_int) = quicket_recv;
    recvfrom(
        fd: c_int, data: *mut c_void, len: size_t, flags: c_int,
        from: *mut sockaddr, from_len: *mut socklen_t
    ) = quicket_recvfrom;
    read(fd: c_int, data: *mut c_void, len: size_t) = quicket_read;
    __read(fd: c_int, data: *mut c_void, len: size_t) = quicket_read;
    readv(fd: c_int, parts: *const iovec, count: c_int) = quicket_readv;
}

by_descriptor! {
    shutdown(fd: c_int, how: c_int) -> c_int = quicket_shutdown(fd, how);

    send(fd: c_int, data: *const c_void, len: size_t, flags: c_int) -> ssize_t
        = quicket_send(fd, data, len, flags);
    __send(fd: c_int, data: *const c_void, len: size_t, flags: c_int) -> ssize_t
        = quicket_send(fd, data, len, flags);
    sendto(
        fd: c_int, data: *const c_void, len: size_t, flags: c_int,
        to: *const sockaddr, to_len: socklen_t
    ) -> ssize_t = quicket_sendto(fd, data, len, flags, to, to_len);
    sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t
        = quicket_sendmsg(fd, message, flags);
    sendmmsg(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int
        = quicket_sendmmsg(fd, messages, count, flags);
    write(fd: c_int, data: *const c_void, len: size_t) -> ssize_t
        = quicket_write(fd, data, len);
    __write(fd: c_int, data: *const c_void, len: size_t) -> ssize_t
        = quicket_write(fd, data, len);
    writev(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t
        = quicket_writev(fd, parts, count);
    sendfile(fd: c_int, file: c_int, offset: *mut off_t, count: size_t) -> ssize_t
        = quicket_sendfile(fd, file, offset, count);
    sendfile64(fd: c_int, file: c_int, offset: *mut off64_t, count: size_t) -> ssize_t
        = quicket_sendfile(fd, file, offset, count);

    ioctl(fd: c_int, request: c_ulong, argument: usize) -> c_int
        = quicket_ioctl(fd, request as usize, argument);
}

/// What the compiler makes of calls whose buffers it knows the size of: a size that is too small is
/// for the C library to complain about.
macro_rules! checked {
    ($($name:ident($($argument:ident: $kind:ty),*; $asked:ident <= $room:ident) = $plain:ident($($given:expr),*);)*) => {
        $(
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name(fd: c_int $(, $argument: $kind)*) -> ssize_t {
                if (whose(fd) != Whose::System || lent::is_on()) && $asked <= $room {
                    // SAFETY: the arguments are the caller's.
                    return unsafe { $plain(fd $(, $given)*) };
                }
                type Function = unsafe extern "C" fn(c_int $(, $kind)*) -> ssize_t;
                // SAFETY: the arguments are the caller's.
                unsafe { next!($name: Function)(fd $(, $argument)*) }
            }
        )*
    };
}

checked! {
    __read_chk(data: *mut c_void, len: size_t, room: size_t; len <= room) = read(data, len);
    __recv_chk(data: *mut c_void, len: size_t, room: size_t, flags: c_int; len <= room)
        = recv(data, len, flags);
    __recvfrom_chk(
        data: *mut c_void, len: size_t, room: size_t, flags: c_int,
        from: *mut sockaddr, from_len: *mut socklen_t; len <= room
    ) = recvfrom(data, len, flags, from, from_len);
}
