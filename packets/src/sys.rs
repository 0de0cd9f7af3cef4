//! Options of sockets that no library has in safe form, and descriptors that are known by their numbers.
#![allow(unsafe_code, reason = "getsockopt takes a pointer, and a number is no descriptor yet")]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// What tells network namespaces apart (SO_NETNS_COOKIE, Linux 5.14). Anybody may ask, of any socket.
const NETNS_COOKIE: libc::c_int = 71;
/// The device that a socket is bound to, as a number (SO_BINDTOIFINDEX).
const BIND_TO_INDEX: libc::c_int = 62;

/// The network namespace of a socket.
///
/// # Errors
///
/// When the system is older than Linux 5.14, or it is no socket.
pub(crate) fn namespace(socket: BorrowedFd<'_>) -> io::Result<u64> {
    option(socket, NETNS_COOKIE)
}

/// The number of the device that a socket is bound to; 0 if it is bound to none.
pub(crate) fn device(socket: BorrowedFd<'_>) -> io::Result<i32> {
    option(socket, BIND_TO_INDEX)
}

/// Does something with a descriptor of that number, which this process may have.
///
/// # Errors
///
/// `EBADF` for a number that can be none; otherwise those of `what`, whose calls find out whether there is one.
pub(crate) fn with_number<T>(
    number: i32,
    what: impl FnOnce(BorrowedFd<'_>) -> io::Result<T>,
) -> io::Result<T> {
    if number < 0 {
        return Err(rustix::io::Errno::BADF.into());
    }
    // SAFETY: it is not -1. The borrow ends with this call, in which it is only given to calls of the system; of a number that is not
    // open, or is another one's, these say so or leave it open.
    what(unsafe { BorrowedFd::borrow_raw(number) })
}

/// An option of the level SOL_SOCKET that is a number.
fn option<T: Copy + Default + Number>(socket: BorrowedFd<'_>, name: libc::c_int) -> io::Result<T> {
    let mut value = T::default();
    let mut len = size_of::<T>() as libc::socklen_t;
    // SAFETY: the system writes at most `len` octets, which is the size of a number that may have any value, and
    // into `len` how many there are. Both live for the call.
    let got = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            name,
            (&raw mut value).cast(),
            &raw mut len,
        )
    };
    match got {
        0 if len as usize == size_of::<T>() => Ok(value),
        0 => Err(io::Error::from(io::ErrorKind::InvalidData)),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Numbers: each pattern of bits is one.
trait Number {}
impl Number for u64 {}
impl Number for i32 {}
