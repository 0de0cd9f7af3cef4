//! Attaching programs to sockets: no library has it in safe form.
#![allow(unsafe_code, reason = "setsockopt takes pointers")]

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use nix::libc;

use crate::classic::Instruction;
use crate::owner::OwnerProgram;

/// Has the kernel choose by `program` among the sockets of the SO_REUSEPORT group of `socket`, one
/// for all of them, those that join later included. It replaces the program that was there.
/// Sockets are counted in the order in which they were bound.
///
/// # Errors
/// `EINVAL` when the socket is not bound or SO_REUSEPORT was not set before.
pub fn attach_reuseport(socket: impl AsFd, program: &OwnerProgram) -> io::Result<()> {
    let instructions = program.instructions();
    // No more than BPF_MAXINSNS.
    let len = u16::try_from(instructions.len())
        .map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
    let filter = libc::sock_fprog {
        len,
        filter: instructions.as_ptr().cast::<libc::sock_filter>().cast_mut(),
    };
    // The cast is between two layouts of struct sock_filter.
    const { assert!(size_of::<Instruction>() == size_of::<libc::sock_filter>()) };
    const { assert!(align_of::<Instruction>() == align_of::<libc::sock_filter>()) };
    // SAFETY: `filter` lives for the call and names `len` instructions that live as long; the kernel
    // copies them, does not write through the pointer, and checks the program.
    let answer = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_REUSEPORT_CBPF,
            (&raw const filter).cast(),
            size_of::<libc::sock_fprog>() as libc::socklen_t,
        )
    };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Has the kernel choose by address again.
///
/// # Errors
/// `ENOENT` when there was no program; `EINVAL` when the socket shares no port.
pub fn detach_reuseport(socket: impl AsFd) -> io::Result<()> {
    let unused: libc::c_int = 0;
    // SAFETY: the option takes an int, which lives for the call.
    let answer = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_DETACH_REUSEPORT_BPF,
            (&raw const unused).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
