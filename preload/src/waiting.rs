//! poll, select and epoll: the system's, announced where QUIC sockets are among them.
//!
//! A cancellation (pthread_cancel(3)) unwinds poll and select, in which nothing waits to be dropped.

use std::ffi::c_int;

use libc::{epoll_event, fd_set, nfds_t, pollfd, sigset_t, size_t, timespec, timeval};

use quicket_c::Inside;

use crate::next::{Name, next};

/// Declares functions that take what poll(2) takes.
macro_rules! polls {
    ($($name:ident($($argument:ident: $kind:ty),*);)*) => {
        $(
            #[unsafe(no_mangle)]
            pub unsafe extern "C-unwind" fn $name(
                fds: *mut pollfd, count: nfds_t $(, $argument: $kind)*
            ) -> c_int {
                type Function =
                    unsafe extern "C-unwind" fn(*mut pollfd, nfds_t $(, $kind)*) -> c_int;

                // By itself, so that the way past it needs no room on the stack.
                #[cold]
                #[inline(never)]
                unsafe extern "C-unwind" fn with_sockets(
                    fds: *mut pollfd, count: nfds_t $(, $argument: $kind)*
                ) -> c_int {
                    let next = || {
                        // SAFETY: the arguments are the caller's.
                        unsafe { next!($name: Function)(fds, count $(, $argument)*) }
                    };
                    // The library's own sleep in a call of the program is nothing to announce.
                    if Inside::is() {
                        return Inside::pause(next);
                    }
                    // SAFETY: the arguments are the caller's, and addresses are checked.
                    unsafe { quicket_c::poll_with(fds, count, next) }
                }

                let known = Name::$name.known();
                if quicket_c::has_sockets() || known.is_null() {
                    // SAFETY: the arguments are the caller's.
                    return unsafe { with_sockets(fds, count $(, $argument)*) };
                }
                // SAFETY: the arguments are the caller's.
                unsafe { next!(@ known, Function)(fds, count $(, $argument)*) }
            }
        )*
    };
}

polls! {
    poll(timeout: c_int);
    __poll(timeout: c_int);
    ppoll(timeout: *const timespec, signals: *const sigset_t);
    __poll_chk(timeout: c_int, room: size_t);
    __ppoll_chk(timeout: *const timespec, signals: *const sigset_t, room: size_t);
}

/// Declares functions that take what select(2) takes.
macro_rules! selects {
    ($($name:ident($($argument:ident: $kind:ty),*);)*) => {
        $(
            #[unsafe(no_mangle)]
            pub unsafe extern "C-unwind" fn $name(
                count: c_int,
                read: *mut fd_set,
                write: *mut fd_set,
                except: *mut fd_set
                $(, $argument: $kind)*
            ) -> c_int {
                type Function = unsafe extern "C-unwind" fn(
                    c_int, *mut fd_set, *mut fd_set, *mut fd_set $(, $kind)*
                ) -> c_int;
                let next = || {
                    // SAFETY: the arguments are the caller's.
                    unsafe { next!($name: Function)(count, read, write, except $(, $argument)*) }
                };
                if !quicket_c::has_sockets() || Inside::is() {
                    return next();
                }
                // SAFETY: the arguments are the caller's, and addresses are checked.
                unsafe { quicket_c::select_with(count, [read, write, except], next) }
            }
        )*
    };
}

selects! {
    select(timeout: *mut timeval);
    __select(timeout: *mut timeval);
    pselect(timeout: *const timespec, signals: *const sigset_t);
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn epoll_ctl(
    epoll: c_int,
    operation: c_int,
    fd: c_int,
    event: *mut epoll_event,
) -> c_int {
    type Function = unsafe extern "C" fn(c_int, c_int, c_int, *mut epoll_event) -> c_int;
    // SAFETY: the arguments are the caller's.
    let next = || unsafe { next!(epoll_ctl: Function)(epoll, operation, fd, event) };
    // SAFETY: the arguments are the caller's.
    unsafe { quicket_c::epoll_ctl_with(operation, fd, event, next) }
}
