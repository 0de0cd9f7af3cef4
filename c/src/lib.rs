//! QUIC sockets for C: the calls of the in-kernel QUIC module, on descriptors of the process.
//!
//! `quicket_socket(AF_INET, SOCK_DGRAM, IPPROTO_QUIC)` gives a descriptor, and `quicket_bind`,
//! `quicket_sendmsg` and so on do with it what bind(2) and sendmsg(2) do with a QUIC socket of the
//! kernel: `quicket/quic.h` has the structures and numbers, `quicket/quicket.h` the functions.
//! Behind them are the sockets of [`quicket::message`], whose documentation lists what differs from
//! the kernel. The library `quicket-preload` gives these calls the names of the C library, for
//! programs that know nothing of Quicket.
//!
//! # The descriptor
//!
//! A QUIC socket here is state in memory; what the program holds is one end of a pair of Unix
//! sockets (see `shadow.rs`) which is made to look readable, writable or closed as the QUIC socket
//! is. The alternative, numbers of our own making, would mean to do poll, select and epoll, and all
//! that libraries build on them, ourselves, and could not be mixed with other descriptors. So:
//!
//! - poll, ppoll, select and epoll, level- or edge-triggered, are the kernel's. They only need to be
//!   announced (`quicket_poll` and so on do that), because a socket that nobody polls is not kept
//!   in step: calls that wait do so by themselves and cost no system call for it.
//! - A polled socket costs one or two system calls whenever what can be done changes, and a thread
//!   for all of them that makes these calls.
//! - Each socket takes two descriptors, and each UDP address of the process two more.
//! - fstat says that it is a socket. dup shares it, and the last descriptor that is closed ends it.
//!
//! # Where descriptors go that memory does not
//!
//! - **fork**: connections stay with the parent, which goes on undisturbed. In the child their
//!   descriptors can be closed; every other call fails with EBADFD, and poll(2) says of them what it says in the
//!   parent, or nothing. A listener is one of the child's own there, too, which joins the switch when the child first
//!   accepts or polls; the parent shares its address through the switch then, if it has not before. The child can have sockets of its own, even though POSIX promises little to
//!   children of processes with threads.
//! - **vfork**: as after fork.
//! - **exit**: connections are closed once all that the program has given to atexit(3) was called, and peers hear of it;
//!   threads that still send get EPIPE, and no SIGPIPE. Not after _exit, a signal that ends the
//!   process, or exec, where peers wait until the connection is idle for too long.
//! - **exec**: they are closed, whatever FD_CLOEXEC says (which can be set and read as ever): in
//!   the new program they would be no QUIC sockets.
//! - **SCM_RIGHTS**: whoever gets one has a Unix socket with nothing to read.
//! - **fdopen**, **io_uring**, and syscall(2): what the C library does within itself and what goes
//!   around it reaches the Unix socket, not the QUIC socket.
//!
//! # What differs from the kernel, beyond what [`quicket::message`] lists
//!
//! - A socket that neither listens nor has had a connection polls as readable and writable; in the
//!   kernel also as hung up.
//! - A signal ends a call that waits (EINTR, or what was done so far) unless all handlers of the
//!   program let calls go on (SA_RESTART); one that comes in the moment before the thread sleeps
//!   does not. No call is a cancellation point of pthreads, but for poll and select; a request that comes in a call
//!   waits until the next one.
//! - Handlers of signals must not use QUIC sockets: calls take locks, which the interrupted one may hold.
//! - One call receives 256 KiB at most.
//! - SO_ERROR is always 0: each call tells of its own errors.
//! - The time of recvmmsg(2) is not looked at: it waits for the first message only.
#![deny(unsafe_code)]

mod address;
mod calls;
pub mod constants;
mod control;
mod entry;
#[allow(unsafe_code, reason = "functions for C, and what C gives them")]
mod exports;
mod fork;
mod inside;
mod keeper;
#[allow(unsafe_code, reason = "the program's memory")]
mod memory;
#[allow(unsafe_code, reason = "system calls")]
mod native;
mod servers;
#[cfg_attr(test, allow(unsafe_code, reason = "tests ask the kernel"))]
mod shadow;
mod table;

pub use exports::*;
pub use fork::before_exit;
pub use inside::Inside;
pub use native::without_signals;
pub use table::{Kind, has_sockets, hide, kind, unhide};
