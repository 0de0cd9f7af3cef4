//! Calls on descriptors as such.

use std::ffi::{c_int, c_uint};

use crate::next::next;
use crate::{Whose, no_descriptor, opened, whose};

type OfTwo = unsafe extern "C" fn(c_int, c_int) -> c_int;
type OfThree = unsafe extern "C" fn(c_int, c_int, c_int) -> c_int;
type OfOne = unsafe extern "C" fn(c_int) -> c_int;

/// Declares functions that close.
macro_rules! closing {
    ($($name:ident)*) => {
        $(
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name(fd: c_int) -> c_int {
                match whose(fd) {
                    Whose::System => {
                        // The library's own, before the number can be somebody else's.
                        quicket_c::unhide(fd);
                        // SAFETY: a number.
                        unsafe { next!($name: OfOne)(fd) }
                    }
                    // SAFETY: a number.
                    Whose::Quicket => unsafe { quicket_c::quicket_close(fd) },
                    Whose::Nobody => close_hidden(fd),
                }
            }
        )*
    };
}

closing! { close __close }

/// A child that shares memory with its parent has copies of descriptors, which it may well close.
#[cold]
fn close_hidden(fd: c_int) -> c_int {
    // SAFETY: a number.
    unsafe { quicket_c::quicket_close(fd) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    // SAFETY: numbers. It passes by what is not ours.
    unsafe { quicket_c::quicket_close_range(first, last, flags) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn closefrom(first: c_int) {
    let first = first.max(0);
    // SAFETY: numbers.
    let closed = unsafe { quicket_c::quicket_close_range(first.cast_unsigned(), c_uint::MAX, 0) };
    if closed < 0 {
        close_listed(first);
    }
}

/// Closes what the system lists, without close_range(2): Linux before 5.9, or a filter of system calls, has none. It must
/// not take memory: it may be the handler of a signal, or a child of a process with threads, that closes.
#[cold]
fn close_listed(first: c_int) {
    /// What comes before the name in a `struct linux_dirent64`: inode, offset, the entry's length, type.
    const NAME: usize = 19;
    const LENGTH: usize = 16;
    let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC;
    // SAFETY: a string.
    let list = unsafe { libc::open(c"/proc/self/fd".as_ptr(), flags) };
    let mut entries = [0u8; 2048];
    loop {
        let (to, room) = (entries.as_mut_ptr(), entries.len());
        // SAFETY: the kernel writes at most as many octets as there is room for.
        let read = unsafe { libc::syscall(libc::SYS_getdents64, list, to, room) };
        let Ok(read @ 1..) = usize::try_from(read) else { break };
        let mut rest = entries.get(..read).unwrap_or_default();
        while let Some(length) = rest.get(LENGTH..).and_then(|length| length.first_chunk()) {
            let length = usize::from(u16::from_ne_bytes(*length));
            let name = rest.get(NAME..length).unwrap_or_default();
            match number(name) {
                // SAFETY: a number.
                Some(fd) if fd >= first && fd != list => unsafe {
                    close(fd);
                },
                _ => {}
            }
            rest = rest.get(length.max(NAME)..).unwrap_or_default();
        }
    }
    // SAFETY: this function's own.
    unsafe { libc::syscall(libc::SYS_close, list) };
}

/// The number that an entry is named after; its name ends with a zero.
fn number(name: &[u8]) -> Option<c_int> {
    let name = name.split(|octet| *octet == 0).next()?;
    std::str::from_utf8(name).ok()?.parse().ok()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup(fd: c_int) -> c_int {
    match whose(fd) {
        // SAFETY: a number.
        Whose::System => opened(unsafe { next!(dup: OfOne)(fd) }),
        // SAFETY: a number.
        Whose::Quicket => unsafe { quicket_c::quicket_dup(fd) },
        Whose::Nobody => no_descriptor(),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup2(old: c_int, new: c_int) -> c_int {
    if (whose(old), whose(new)) == (Whose::System, Whose::System) {
        // SAFETY: numbers.
        return unsafe { next!(dup2: OfTwo)(old, new) };
    }
    // SAFETY: numbers.
    unsafe { quicket_c::quicket_dup2(old, new) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn __dup2(old: c_int, new: c_int) -> c_int {
    // SAFETY: numbers.
    unsafe { dup2(old, new) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup3(old: c_int, new: c_int, flags: c_int) -> c_int {
    if (whose(old), whose(new)) == (Whose::System, Whose::System) {
        // SAFETY: numbers.
        return unsafe { next!(dup3: OfThree)(old, new, flags) };
    }
    // SAFETY: numbers.
    unsafe { quicket_c::quicket_dup3(old, new, flags) }
}

/// Declares the names of fcntl(2). It takes its third argument as the variable one that it is: on
/// the machines where Quicket runs, both travel in the same register.
macro_rules! fcntls {
    ($($name:ident)*) => {
        $(
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name(fd: c_int, command: c_int, argument: usize) -> c_int {
                type Function = unsafe extern "C" fn(c_int, c_int, ...) -> c_int;
                match whose(fd) {
                    Whose::System => {
                        // SAFETY: the arguments are the caller's.
                        let answer = unsafe { next!($name: Function)(fd, command, argument) };
                        if matches!(command, libc::F_DUPFD | libc::F_DUPFD_CLOEXEC) {
                            opened(answer);
                        }
                        answer
                    }
                    // SAFETY: the arguments are the caller's, and addresses are checked.
                    Whose::Quicket => unsafe { quicket_c::quicket_fcntl(fd, command, argument) },
                    Whose::Nobody => no_descriptor(),
                }
            }
        )*
    };
}

fcntls! { fcntl fcntl64 __fcntl }

#[unsafe(no_mangle)]
pub unsafe extern "C" fn eventfd(count: c_uint, flags: c_int) -> c_int {
    type Function = unsafe extern "C" fn(c_uint, c_int) -> c_int;
    // SAFETY: numbers.
    opened(unsafe { next!(eventfd: Function)(count, flags) })
}
