//! A library to be preloaded (`LD_PRELOAD`): it stands before the C library and sends calls on
//! descriptors of QUIC sockets to `quicket-c`, all others to whoever would have had them without it.
//! It decides nothing else.
//!
//! The way past it is one look into an array of bytes, by the number of the descriptor, and a jump.
//! poll, select and epoll go to the system in any case; if there are QUIC sockets, they are
//! announced first.
//!
//! Where another process lends the program TCP sockets (`quicket run --tcp-by`), calls on those come to `lent`: what the system
//! does not do for a local socket as for one of TCP, which is not much.
//!
//! # What the library has for itself
//!
//! Quicket, which is inside this library, has descriptors of its own, such as UDP sockets, and
//! opens and closes them through the very functions below. A thread that is at work for it is marked
//! ([`Inside`]); what it opens is noted as hidden, and to the program a hidden descriptor is none:
//! a loop that closes everything gets EBADF and does no harm. dup2 to such a number is EBUSY.
//!
//! The mark is the thread's. The handler of a signal that interrupts such a thread at work is within the mark: what it opens is
//! hidden, too, and it reaches what is hidden. It is not so where the thread sleeps ([`Inside::pause`]), which is nearly all
//! of the time. To leave the mark for handlers would take two system calls in each call, which block signals, or functions in
//! place of the program's handlers (sigaction(2)), which the program could see and which vfork(2) and `siginfo_t` would
//! have to survive. The manual says what programs do instead.
//!
//! # What goes around it
//!
//! Programs that are statically linked or privileged (the loader ignores the variable), syscall(2),
//! io_uring, and calls within the C library, such as those of dprintf(3).
#![allow(unsafe_code, reason = "functions for C, and nothing else")]
#![allow(unreachable_pub, reason = "the loader reaches them")]
#![allow(clippy::missing_safety_doc, reason = "they are those of the C library")]

mod descriptors;
mod lent;
mod next;
mod streams;
mod threads;
mod transfer;
mod waiting;

use std::ffi::c_int;

use quicket_c::{Inside, Kind, kind};

/// Whose a call is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whose {
    /// The system's.
    System,
    Quicket,
    /// Nobody's: the program cannot know the descriptor.
    Nobody,
}

#[inline]
fn whose(fd: c_int) -> Whose {
    match kind(fd) {
        Kind::Other => Whose::System,
        kind => whose_is(kind),
    }
}

#[cold]
fn whose_is(kind: Kind) -> Whose {
    match kind {
        Kind::Hidden if Inside::is() => Whose::System,
        Kind::Hidden => Whose::Nobody,
        Kind::Socket | Kind::Inherited => Whose::Quicket,
        Kind::Other => Whose::System,
    }
}

/// The answer to a call on a descriptor that there is not.
#[cold]
fn no_descriptor<T: From<i8>>() -> T {
    next::set_errno(libc::EBADF);
    T::from(-1)
}

/// Notes what a thread opens for the library.
#[inline]
fn opened(fd: c_int) -> c_int {
    if fd >= 0 && Inside::is() {
        quicket_c::hide(fd);
    }
    fd
}
