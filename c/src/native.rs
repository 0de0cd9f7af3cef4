//! The system's own calls.
//!
//! They go by number and not by name: where this library is preloaded, the names of the C library
//! lead back to it.

use std::ffi::{c_int, c_long, c_void};
use std::mem::MaybeUninit;
use std::os::fd::{FromRawFd, OwnedFd};

use libc::syscall;

use crate::fork;

/// Of pthread_setcancelstate(3).
const PTHREAD_CANCEL_DISABLE: c_int = 1;

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
}

/// What a call gives, or the number of its error.
pub(crate) type Result<T> = std::result::Result<T, c_int>;

fn answer(value: c_long) -> Result<c_long> {
    if value == -1 { Err(errno()) } else { Ok(value) }
}

/// The thread's error number.
pub(crate) fn errno() -> c_int {
    // SAFETY: the function returns the address of a variable of this thread.
    unsafe { *libc::__errno_location() }
}

/// Sets the thread's error number.
pub(crate) fn set_errno(number: c_int) {
    // SAFETY: as in `errno`.
    unsafe { *libc::__errno_location() = number }
}

/// The process, asked anew each time: a child that shares memory with its parent must notice.
pub(crate) fn pid() -> c_int {
    // SAFETY: the call takes nothing and cannot fail.
    unsafe { syscall(libc::SYS_getpid) as c_int }
}

/// Two connected stream sockets that do not wait, closed by exec.
pub(crate) fn pair() -> Result<[c_int; 2]> {
    let mut pair: [c_int; 2] = [-1; 2];
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: the kernel writes two descriptors to an array of two.
    answer(unsafe { syscall(libc::SYS_socketpair, libc::AF_UNIX, kind, 0, pair.as_mut_ptr()) })?;
    Ok(pair)
}

/// Closes a descriptor.
pub(crate) fn close(fd: c_int) -> Result<()> {
    // SAFETY: a number; whoever calls this owns what it stands for.
    answer(unsafe { syscall(libc::SYS_close, fd) }).map(drop)
}

/// Takes a descriptor over that was the parent's before this process was forked.
pub(crate) fn own(fd: c_int) -> OwnedFd {
    // SAFETY: the descriptor is open, for it was when the process forked, and nothing else closes it in this
    // process: whatever owned it belongs to the memory of the parent, of which nothing is dropped here
    // (`Locked::disinherit`), and the program does not know it.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// Closes a range of descriptors.
pub(crate) fn close_range(first: u32, last: u32, flags: c_int) -> Result<()> {
    // SAFETY: numbers; the program asked for it.
    answer(unsafe { syscall(libc::SYS_close_range, first, last, flags) }).map(drop)
}

/// Duplicates a descriptor to a number.
pub(crate) fn dup3(old: c_int, new: c_int, flags: c_int) -> Result<c_int> {
    // SAFETY: numbers; the program asked for it.
    answer(unsafe { syscall(libc::SYS_dup3, old, new, flags) }).map(|fd| fd as c_int)
}

/// fcntl(2) with an argument that is a number, or that the kernel checks.
pub(crate) fn fcntl(fd: c_int, command: c_int, argument: usize) -> Result<c_int> {
    // SAFETY: the kernel checks addresses.
    answer(unsafe { syscall(libc::SYS_fcntl, fd, command, argument) }).map(|value| value as c_int)
}

/// ioctl(2) with an argument that is a number, or that the kernel checks.
pub(crate) fn ioctl(fd: c_int, request: usize, argument: usize) -> Result<c_int> {
    // SAFETY: the kernel checks addresses.
    answer(unsafe { syscall(libc::SYS_ioctl, fd, request, argument) }).map(|value| value as c_int)
}

/// Sends without waiting and without a signal.
pub(crate) fn send(fd: c_int, bytes: &[u8]) -> Result<usize> {
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    let (none, at, len) = (0usize, bytes.as_ptr(), bytes.len());
    // SAFETY: the kernel reads `len` bytes of a slice of that length.
    answer(unsafe { syscall(libc::SYS_sendto, fd, at, len, flags, none, none) })
        .map(|sent| sent as usize)
}

/// Receives without waiting.
pub(crate) fn recv(fd: c_int, bytes: &mut [u8]) -> Result<usize> {
    let (none, at, len) = (0usize, bytes.as_mut_ptr(), bytes.len());
    // SAFETY: the kernel writes at most `len` bytes to a slice of that length.
    answer(unsafe { syscall(libc::SYS_recvfrom, fd, at, len, libc::MSG_DONTWAIT, none, none) })
        .map(|received| received as usize)
}

/// Ends both ways of a socket.
pub(crate) fn shutdown(fd: c_int) -> Result<()> {
    // SAFETY: numbers.
    answer(unsafe { syscall(libc::SYS_shutdown, fd, libc::SHUT_RDWR) }).map(drop)
}

/// Sets an option of the socket level that is an integer.
pub(crate) fn set_option(fd: c_int, name: c_int, value: c_int) -> Result<()> {
    let size = size_of::<c_int>();
    // SAFETY: the kernel reads the integer.
    let set = unsafe {
        syscall(libc::SYS_setsockopt, fd, libc::SOL_SOCKET, name, &raw const value, size)
    };
    answer(set).map(drop)
}

/// setsockopt(2) with the program's memory, which the kernel checks.
pub(crate) fn setsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: usize,
    len: u32,
) -> Result<()> {
    // SAFETY: the kernel checks addresses.
    answer(unsafe { syscall(libc::SYS_setsockopt, fd, level, name, value, len) }).map(drop)
}

/// getsockopt(2) with the program's memory, which the kernel checks.
pub(crate) fn getsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: usize,
    len: usize,
) -> Result<()> {
    // SAFETY: the kernel checks addresses.
    answer(unsafe { syscall(libc::SYS_getsockopt, fd, level, name, value, len) }).map(drop)
}

/// True if poll(2) says at once that the descriptor can be written to.
pub(crate) fn is_writable(fd: c_int) -> bool {
    let mut poll = libc::pollfd { fd, events: libc::POLLOUT, revents: 0 };
    let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel reads and writes one structure, and reads the time.
    let ready =
        unsafe { syscall(libc::SYS_ppoll, &raw mut poll, 1usize, &raw const now, 0usize, 0usize) };
    ready == 1 && poll.revents & libc::POLLOUT != 0
}

/// Where a file stands.
pub(crate) fn position(fd: c_int) -> Result<i64> {
    // SAFETY: numbers.
    answer(unsafe { syscall(libc::SYS_lseek, fd, 0i64, libc::SEEK_CUR) })
}

/// Moves a file to a place.
pub(crate) fn seek(fd: c_int, to: i64) -> Result<i64> {
    // SAFETY: numbers.
    answer(unsafe { syscall(libc::SYS_lseek, fd, to, libc::SEEK_SET) })
}

/// Reads from a place of a file.
pub(crate) fn pread(fd: c_int, bytes: &mut [u8], at: i64) -> Result<usize> {
    let (to, len) = (bytes.as_mut_ptr(), bytes.len());
    // SAFETY: the kernel writes at most `len` bytes to a slice of that length.
    answer(unsafe { syscall(libc::SYS_pread64, fd, to, len, at) }).map(|read| read as usize)
}

/// The size of a page in bytes, a power of two.
pub(crate) fn page_size() -> usize {
    // SAFETY: the call takes a number; it cannot fail for this one.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(size).ok().filter(|size| size.is_power_of_two()).unwrap_or(4096)
}

/// madvise(2).
pub(crate) fn madvise(start: usize, len: usize, advice: c_int) -> Result<()> {
    // SAFETY: only used with advice that loads pages and changes nothing.
    answer(unsafe { syscall(libc::SYS_madvise, start, len, advice) }).map(drop)
}

/// Reads one byte at each of some addresses of this process; how many could be read.
pub(crate) fn peek(addresses: &[libc::iovec]) -> Result<usize> {
    let mut bytes = vec![0u8; addresses.len()];
    let local = libc::iovec { iov_base: bytes.as_mut_ptr().cast::<c_void>(), iov_len: bytes.len() };
    let (remote, count) = (addresses.as_ptr(), addresses.len());
    // SAFETY: the kernel writes one byte for each address to a vector of that many, and checks the
    // addresses.
    let read = unsafe {
        syscall(libc::SYS_process_vm_readv, pid(), &raw const local, 1usize, remote, count, 0usize)
    };
    answer(read).map(|read| read as usize)
}

/// The signal for writing to what nobody reads, to this thread.
pub(crate) fn raise_sigpipe() {
    // SAFETY: numbers; what the signal does is the program's concern.
    unsafe {
        let thread = syscall(libc::SYS_gettid);
        syscall(libc::SYS_tgkill, pid(), thread, libc::SIGPIPE);
    }
}

/// True if all signals that the program handles let calls go on (SA_RESTART).
pub(crate) fn signals_restart() -> bool {
    (1..=libc::SIGRTMAX()).all(|signal| {
        let mut action = MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: the call writes a structure, and changes nothing; zeros are one, too.
        let action = unsafe {
            libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr());
            action.assume_init()
        };
        let handled = !matches!(action.sa_sigaction, libc::SIG_DFL | libc::SIG_IGN);
        !handled || action.sa_flags & libc::SA_RESTART != 0
    })
}

/// Does something while no signal is handled by this thread; threads that it starts inherit that.
pub fn without_signals<T>(work: impl FnOnce() -> T) -> T {
    let mut before = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: the calls write and read sets of this frame.
    unsafe {
        let mut all = MaybeUninit::<libc::sigset_t>::zeroed();
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
    }
    let done = work();
    // SAFETY: as above.
    unsafe {
        libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut());
    }
    done
}

/// Has this thread not be cancelled. Returns the state before.
pub(crate) fn forbid_cancellation() -> c_int {
    set_cancel_state(PTHREAD_CANCEL_DISABLE)
}

/// Sets whether this thread can be cancelled, as [`forbid_cancellation`] returned it. Returns the state before.
pub(crate) fn set_cancel_state(state: c_int) -> c_int {
    let mut before = 0;
    // Where Rust's rules on memory are checked, nobody cancels threads.
    if !cfg!(miri) {
        // SAFETY: a state that the C library knows, and a variable of this frame for the one before. A cancellation that
        // waits acts at the next cancellation point; at once only if the program has set PTHREAD_CANCEL_ASYNCHRONOUS,
        // under which POSIX allows it no call that leads here.
        unsafe { pthread_setcancelstate(state, &raw mut before) };
    }
    before
}

/// What the process calls when it ends is called in the opposite order: what is entered when the library is loaded comes
/// after all that the program has entered, and may use its sockets.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = at_load;

extern "C" fn at_load() {
    if cfg!(miri) {
        return;
    }
    // SAFETY: the function lives as long as the library, and unwinds into nothing. It fails for
    // want of memory: then peers wait for as long as they would after a crash.
    unsafe { libc::atexit(fork::at_exit) };
}

/// Has functions called around fork(2).
pub(crate) fn at_fork(
    before: extern "C" fn(),
    in_parent: extern "C" fn(),
    in_child: extern "C" fn(),
) -> Result<()> {
    // SAFETY: the functions live as long as the library, and unwind into nothing.
    match unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) } {
        0 => Ok(()),
        error => Err(error),
    }
}
