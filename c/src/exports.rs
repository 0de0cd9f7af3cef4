//! What C sees: the calls by name, with errno.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

use libc::{
    epoll_event, fd_set, iovec, mmsghdr, msghdr, nfds_t, off_t, pollfd, sigset_t, size_t, sockaddr,
    socklen_t, ssize_t, timespec, timeval,
};

use crate::calls::{descriptors, names, options, reason, receive, send, setup, tls, watch};
use crate::inside::{self, Inside};
use crate::memory::Memory;
use crate::native::{self, Result};
use crate::table::{self, Kind};

/// Does a call as the kernel would: the value, or -1 and errno, which is left alone otherwise.
fn answer<T: From<i8>>(call: impl FnOnce() -> Result<T>) -> T {
    let before = native::errno();
    let inside = Inside::enter();
    let answer = catch_unwind(AssertUnwindSafe(call)).unwrap_or(Err(libc::EIO));
    drop(inside);
    inside::pay_sigpipe();
    native::set_errno(answer.as_ref().err().copied().unwrap_or(before));
    answer.unwrap_or(T::from(-1))
}

/// Exports calls that take what the kernel takes. `$memory` is what reaches the program's memory.
macro_rules! exports {
    ($memory:ident; $($(#[$doc:meta])* $name:ident($($argument:ident: $kind:ty),*) -> $result:ty = $call:expr;)*) => {
        $(
            $(#[$doc])*
            ///
            /// # Safety
            ///
            /// Memory that arguments point to is the caller's to have written to. Wild pointers give
            /// EFAULT.
            #[unsafe(no_mangle)]
            #[allow(unused_variables, reason = "few calls take no address")]
            pub unsafe extern "C" fn $name($($argument: $kind),*) -> $result {
                // SAFETY: the addresses that the call is given are the program's, for its time.
                let $memory = &mut unsafe { Memory::of_program() };
                answer(|| $call)
            }
        )*
    };
}

exports! {
    memory;

    /// socket(2), for IPPROTO_QUIC.
    quicket_socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int =
        setup::socket(domain, kind, protocol);
    /// bind(2).
    quicket_bind(fd: c_int, address: *const sockaddr, len: socklen_t) -> c_int =
        setup::bind(memory, fd, address as usize, len);
    /// listen(2).
    quicket_listen(fd: c_int, backlog: c_int) -> c_int = setup::listen(fd, backlog);
    /// accept(2).
    quicket_accept(fd: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int =
        setup::accept4(memory, fd, address as usize, len as usize, 0);
    /// accept4(2).
    quicket_accept4(fd: c_int, address: *mut sockaddr, len: *mut socklen_t, flags: c_int) -> c_int =
        setup::accept4(memory, fd, address as usize, len as usize, flags);
    /// connect(2).
    quicket_connect(fd: c_int, address: *const sockaddr, len: socklen_t) -> c_int =
        setup::connect(memory, fd, address as usize, len);
    /// shutdown(2).
    quicket_shutdown(fd: c_int, how: c_int) -> c_int = setup::shutdown(fd, how);
    /// getsockname(2).
    quicket_getsockname(fd: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int =
        names::getsockname(memory, fd, address as usize, len as usize);
    /// getpeername(2).
    quicket_getpeername(fd: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int =
        names::getpeername(memory, fd, address as usize, len as usize);
    /// getsockopt(2).
    quicket_getsockopt(fd: c_int, level: c_int, name: c_int, value: *mut c_void, len: *mut socklen_t)
        -> c_int = options::get(memory, fd, level, name, value as usize, len as usize);
    /// setsockopt(2).
    quicket_setsockopt(fd: c_int, level: c_int, name: c_int, value: *const c_void, len: socklen_t)
        -> c_int = options::set(memory, fd, level, name, value as usize, len);

    /// send(2).
    quicket_send(fd: c_int, data: *const c_void, len: size_t, flags: c_int) -> ssize_t =
        send::send(memory, fd, data as usize, len, flags);
    /// sendto(2); the address is not looked at.
    quicket_sendto(
        fd: c_int, data: *const c_void, len: size_t, flags: c_int,
        _address: *const sockaddr, _address_len: socklen_t
    ) -> ssize_t = send::send(memory, fd, data as usize, len, flags);
    /// sendmsg(2).
    quicket_sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t =
        send::sendmsg(memory, fd, message as usize, flags);
    /// sendmmsg(2).
    quicket_sendmmsg(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int =
        send::sendmmsg(memory, fd, messages as usize, count, flags);
    /// write(2).
    quicket_write(fd: c_int, data: *const c_void, len: size_t) -> ssize_t =
        send::send(memory, fd, data as usize, len, 0);
    /// writev(2).
    quicket_writev(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t =
        send::writev(memory, fd, parts as usize, count);
    /// sendfile(2).
    quicket_sendfile(fd: c_int, file: c_int, offset: *mut off_t, count: size_t) -> ssize_t =
        send::sendfile(memory, fd, file, offset as usize, count);
    /// recv(2).
    quicket_recv(fd: c_int, data: *mut c_void, len: size_t, flags: c_int) -> ssize_t =
        receive::recv(memory, fd, data as usize, len, flags);
    /// recvfrom(2).
    quicket_recvfrom(
        fd: c_int, data: *mut c_void, len: size_t, flags: c_int,
        address: *mut sockaddr, address_len: *mut socklen_t
    ) -> ssize_t =
        receive::recvfrom(memory, fd, data as usize, len, flags, address as usize, address_len as usize);
    /// recvmsg(2).
    quicket_recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t =
        receive::recvmsg(memory, fd, message as usize, flags);
    /// recvmmsg(2).
    quicket_recvmmsg(
        fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int, _timeout: *mut timespec
    ) -> c_int = receive::recvmmsg(memory, fd, messages as usize, count, flags);
    /// read(2).
    quicket_read(fd: c_int, data: *mut c_void, len: size_t) -> ssize_t =
        receive::recv(memory, fd, data as usize, len, 0);
    /// readv(2).
    quicket_readv(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t =
        receive::readv(memory, fd, parts as usize, count);

    /// close(2).
    quicket_close(fd: c_int) -> c_int = descriptors::close(fd);
    /// dup(2).
    quicket_dup(fd: c_int) -> c_int = descriptors::dup(fd);
    /// dup2(2), where one of both is a QUIC socket.
    quicket_dup2(old: c_int, new: c_int) -> c_int = descriptors::dup3(old, new, None);
    /// dup3(2), where one of both is a QUIC socket.
    quicket_dup3(old: c_int, new: c_int, flags: c_int) -> c_int =
        descriptors::dup3(old, new, Some(flags));
    /// close_range(2), sparing what the library has for itself.
    quicket_close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int =
        descriptors::close_range(first, last, flags);
    /// fcntl(2): its third argument is a number or a pointer, which travel alike.
    quicket_fcntl(fd: c_int, command: c_int, argument: usize) -> c_int =
        descriptors::fcntl(fd, command, argument);
    /// ioctl(2).
    quicket_ioctl(fd: c_int, request: usize, argument: usize) -> c_int =
        descriptors::ioctl(memory, fd, request, argument);

    /// A client's handshake by Quicket's TLS.
    quicket_client_handshake(
        fd: c_int, hostname: *const c_char, alpns: *const c_char,
        ca_file: *const c_char, pin: *const c_char
    ) -> c_int = tls::client_handshake(memory, fd, by(hostname, alpns, ca_file, pin));
    /// Begins one, so that early data can be sent.
    quicket_client_early_handshake(
        fd: c_int, hostname: *const c_char, alpns: *const c_char,
        ca_file: *const c_char, pin: *const c_char
    ) -> c_int = tls::client_early_handshake(memory, fd, by(hostname, alpns, ca_file, pin));
    /// A server's handshake by Quicket's TLS.
    quicket_server_handshake(
        fd: c_int, key_file: *const c_char, cert_file: *const c_char, alpns: *const c_char
    ) -> c_int = tls::server_handshake(
        memory, fd, key_file as usize, cert_file as usize, alpns as usize, false
    );
    /// One that takes early data.
    quicket_server_early_handshake(
        fd: c_int, key_file: *const c_char, cert_file: *const c_char, alpns: *const c_char
    ) -> c_int = tls::server_handshake(
        memory, fd, key_file as usize, cert_file as usize, alpns as usize, true
    );
    /// Goes on with a handshake on a socket that does not wait.
    quicket_continue_handshake(fd: c_int) -> c_int = tls::continue_handshake(fd);
    /// What resumes a client's session in another connection.
    quicket_session_get_data(fd: c_int, data: *mut c_void, size: *mut size_t) -> c_int =
        tls::session_get_data(memory, fd, data as usize, size as usize);
    /// Has a client resume a session.
    quicket_session_set_data(fd: c_int, data: *const c_void, size: size_t) -> c_int =
        tls::session_set_data(memory, fd, data as usize, size);
    /// The application protocol that both sides speak.
    quicket_session_get_alpn(fd: c_int, alpn: *mut c_void, size: *mut size_t) -> c_int =
        tls::session_get_alpn(memory, fd, alpn as usize, size as usize);
}

/// What an error number means and, of a QUIC socket, why a call failed; see
/// `reason::strerror`.
#[unsafe(no_mangle)]
pub extern "C" fn quicket_strerror(fd: c_int, error: c_int) -> *const c_char {
    let before = native::errno();
    let inside = Inside::enter();
    let told = catch_unwind(|| reason::strerror(fd, error));
    drop(inside);
    native::set_errno(before);
    told.unwrap_or(c"unknown".as_ptr())
}

fn by(
    hostname: *const c_char,
    alpns: *const c_char,
    ca_file: *const c_char,
    pin: *const c_char,
) -> tls::ClientHandshake {
    tls::ClientHandshake {
        hostname: hostname as usize,
        alpns: alpns as usize,
        ca_file: ca_file as usize,
        pin: pin as usize,
    }
}

/// The C library's own, which a cancellation may unwind.
mod system {
    use super::{c_int, fd_set, nfds_t, pollfd, sigset_t, timespec, timeval};

    unsafe extern "C-unwind" {
        pub(super) fn poll(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int;
        pub(super) fn ppoll(
            fds: *mut pollfd,
            count: nfds_t,
            timeout: *const timespec,
            signals: *const sigset_t,
        ) -> c_int;
        pub(super) fn select(
            count: c_int,
            read: *mut fd_set,
            write: *mut fd_set,
            except: *mut fd_set,
            timeout: *mut timeval,
        ) -> c_int;
    }
}

/// poll(2) by way of `next`, the system's.
///
/// # Safety
///
/// As for poll(2).
pub unsafe fn poll_with<T>(fds: *mut pollfd, count: nfds_t, next: impl FnOnce() -> T) -> T {
    // SAFETY: the address is the program's, for the time of the call.
    let memory = &mut unsafe { Memory::of_program() };
    let watched = watched(|| watch::Watched::polled(memory, fds as usize, count));
    // A cancellation (pthread_cancel(3)) passes here: nothing in this frame waits to be dropped.
    let answer = next();
    leave(watched);
    answer
}

/// select(2) by way of `next`, the system's.
///
/// # Safety
///
/// As for select(2).
pub unsafe fn select_with<T>(count: c_int, sets: [*mut fd_set; 3], next: impl FnOnce() -> T) -> T {
    // SAFETY: the addresses are the program's, for the time of the call.
    let memory = &mut unsafe { Memory::of_program() };
    let sets = sets.map(|set| set as usize);
    let watched = watched(|| watch::Watched::selected(memory, count, sets));
    // As in `poll_with`.
    let answer = next();
    leave(watched);
    answer
}

/// Has the library look after sockets while the program waits for them.
fn watched(look: impl FnOnce() -> watch::Watched) -> watch::Kept {
    let before = native::errno();
    let _inside = Inside::enter();
    let kept = catch_unwind(AssertUnwindSafe(|| watch::keep(look())));
    native::set_errno(before);
    kept.unwrap_or_default()
}

/// A socket may end with this; errno is that of the call.
fn leave(kept: watch::Kept) {
    let before = native::errno();
    let _inside = Inside::enter();
    let _ = catch_unwind(AssertUnwindSafe(|| watch::leave(kept)));
    native::set_errno(before);
}

/// epoll_ctl(2) by way of `next`, the system's.
///
/// # Safety
///
/// As for epoll_ctl(2).
pub unsafe fn epoll_ctl_with(
    operation: c_int,
    fd: c_int,
    event: *mut epoll_event,
    next: impl FnOnce() -> c_int,
) -> c_int {
    let done = next();
    if done == 0 && operation != libc::EPOLL_CTL_DEL && table::kind(fd) == Kind::Socket {
        // SAFETY: the kernel has just read it; the events come first.
        let events = unsafe { event.cast::<u32>().read_unaligned() };
        let _: c_int = answer(|| watch::by_epoll(fd, events).map(|()| 0));
    }
    done
}

/// poll(2) for programs that are linked to this library.
///
/// # Safety
///
/// As for poll(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn quicket_poll(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: c_int,
) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { poll_with(fds, count, || system::poll(fds, count, timeout)) }
}

/// ppoll(2) for programs that are linked to this library.
///
/// # Safety
///
/// As for ppoll(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn quicket_ppoll(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    signals: *const sigset_t,
) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { poll_with(fds, count, || system::ppoll(fds, count, timeout, signals)) }
}

/// select(2) for programs that are linked to this library.
///
/// # Safety
///
/// As for select(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn quicket_select(
    count: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *mut timeval,
) -> c_int {
    let next = || {
        // SAFETY: the caller's arguments.
        unsafe { system::select(count, read, write, except, timeout) }
    };
    // SAFETY: the caller's arguments.
    unsafe { select_with(count, [read, write, except], next) }
}

/// epoll_ctl(2) for programs that are linked to this library.
///
/// # Safety
///
/// As for epoll_ctl(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quicket_epoll_ctl(
    epoll: c_int,
    operation: c_int,
    fd: c_int,
    event: *mut epoll_event,
) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { epoll_ctl_with(operation, fd, event, || libc::epoll_ctl(epoll, operation, fd, event)) }
}
