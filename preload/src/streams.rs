//! Ways to a descriptor's data that lead past the calls of sockets. To the system a QUIC socket is
//! something else, which must see nothing of them: what it took would be lost.

use std::cell::Cell;
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::ptr::null_mut;
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

use libc::{FILE, iovec, loff_t, msghdr, off_t, off64_t, size_t, ssize_t};

use crate::next::{next, set_errno};
use crate::{Whose, lent, no_descriptor, whose};

/// What a stream calls, as the C library declares it (fopencookie(3)).
#[repr(C)]
struct Functions {
    read: unsafe extern "C" fn(*mut c_void, *mut c_char, size_t) -> ssize_t,
    write: unsafe extern "C" fn(*mut c_void, *const c_char, size_t) -> ssize_t,
    /// There is none: as of other sockets, the position cannot be changed.
    seek: Option<unsafe extern "C" fn(*mut c_void, *mut off64_t, c_int) -> c_int>,
    close: unsafe extern "C" fn(*mut c_void) -> c_int,
}

unsafe extern "C" {
    fn fopencookie(cookie: *mut c_void, mode: *const c_char, functions: Functions) -> *mut FILE;
    fn ftrylockfile(file: *mut FILE) -> c_int;
    fn funlockfile(file: *mut FILE);
}

/// A stream's descriptor.
fn descriptor(cookie: *mut c_void) -> c_int {
    cookie as usize as c_int
}

unsafe extern "C" fn read(cookie: *mut c_void, data: *mut c_char, len: size_t) -> ssize_t {
    // SAFETY: the stream's buffer.
    unsafe { quicket_c::quicket_read(descriptor(cookie), data.cast(), len) }
}

/// All of it: the stream does not ask again. An error is that nothing was written.
unsafe extern "C" fn write(cookie: *mut c_void, data: *const c_char, len: size_t) -> ssize_t {
    let mut done = 0;
    while done < len {
        // SAFETY: within the stream's buffer.
        let rest = unsafe { data.add(done) };
        // SAFETY: the rest of that buffer.
        let wrote =
            unsafe { quicket_c::quicket_write(descriptor(cookie), rest.cast(), len - done) };
        match usize::try_from(wrote) {
            Ok(wrote) if wrote > 0 => done += wrote,
            _ => break,
        }
    }
    done.cast_signed()
}

unsafe extern "C" fn close(cookie: *mut c_void) -> c_int {
    open().retain(|stream| stream.fd != descriptor(cookie));
    // SAFETY: a number.
    unsafe { quicket_c::quicket_close(descriptor(cookie)) }
}

/// A stream of a QUIC socket.
struct Stream {
    fd: c_int,
    file: *mut FILE,
}

// SAFETY: any thread may use a stream of the C library, which has a lock of its own.
unsafe impl Send for Stream {}

/// Those that are open. A stream is taken out before the C library frees it.
static OPEN: Mutex<Vec<Stream>> = Mutex::new(Vec::new());

type Open = MutexGuard<'static, Vec<Stream>>;

thread_local! {
    /// From before a fork until after it, in the thread that forks.
    static FORKING: Cell<Option<Open>> = const { Cell::new(None) };
}

fn open() -> Open {
    OPEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Enters a stream, which is written out before the library closes connections because the process ends: the C library
/// writes its streams out after that.
fn note(stream: Stream) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        quicket_c::before_exit(flush_all);
        // SAFETY: the functions live as long as the library, and unwind into nothing.
        unsafe { libc::pthread_atfork(Some(before_fork), Some(after_fork), Some(after_fork)) };
    });
    open().push(stream);
}

extern "C" fn before_fork() {
    let mut held = Some(open());
    // A thread that ends may have no such place any more: an exit handler may fork.
    let _ = FORKING.try_with(|place| place.set(held.take()));
}

extern "C" fn after_fork() {
    drop(FORKING.try_with(Cell::take));
}

/// A stream that another thread uses, and may wait in for ever, stays as it is.
fn flush_all() {
    for stream in &*open() {
        // SAFETY: the stream is not freed while it is in the list, which is locked; its own lock is free or not waited for.
        unsafe {
            if ftrylockfile(stream.file) == 0 {
                libc::fflush(stream.file);
                funlockfile(stream.file);
            }
        }
    }
}

/// The streams of the C library make system calls of their own: those of QUIC sockets call back.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdopen(fd: c_int, mode: *const c_char) -> *mut FILE {
    type Function = unsafe extern "C" fn(c_int, *const c_char) -> *mut FILE;
    match whose(fd) {
        // SAFETY: the arguments are the caller's.
        Whose::System => unsafe { next!(fdopen: Function)(fd, mode) },
        Whose::Quicket => {
            let functions = Functions { read, write, seek: None, close };
            // SAFETY: a string, says fdopen(3); the functions take a descriptor for a cookie.
            let file = unsafe { fopencookie(fd as usize as *mut c_void, mode, functions) };
            if !file.is_null() {
                note(Stream { fd, file });
            }
            file
        }
        Whose::Nobody => {
            set_errno(libc::EBADF);
            null_mut()
        }
    }
}

/// Declares calls that read or write parts, with flags.
macro_rules! with_flags {
    ($($name:ident($offset:ty) = $ours:ident, $heard:path;)*) => {
        $(
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name(
                fd: c_int, parts: *const iovec, count: c_int, offset: $offset, flags: c_int
            ) -> ssize_t {
                type Function =
                    unsafe extern "C" fn(c_int, *const iovec, c_int, $offset, c_int) -> ssize_t;
                match whose(fd) {
                    // SAFETY: the arguments are the caller's.
                    Whose::System => $heard(fd, unsafe {
                        next!($name: Function)(fd, parts, count, offset, flags)
                    }),
                    Whose::Quicket => {
                        let Some((mut header, flags)) = message(parts, count, offset, flags) else {
                            return -1;
                        };
                        // SAFETY: the caller's addresses are checked.
                        unsafe { quicket_c::$ours(fd, &raw mut header, flags) }
                    }
                    Whose::Nobody => no_descriptor(),
                }
            }
        )*
    };
}

with_flags! {
    preadv2(off_t) = quicket_recvmsg, lent::received;
    preadv64v2(off64_t) = quicket_recvmsg, lent::received;
    pwritev2(off_t) = quicket_sendmsg, sent;
    pwritev64v2(off64_t) = quicket_sendmsg, sent;
}

/// Of what is sent, the system says all.
const fn sent(_: c_int, sent: ssize_t) -> ssize_t {
    sent
}

/// The message of parts, and how it is received or sent; else sets the error.
fn message(
    parts: *const iovec,
    count: c_int,
    offset: i64,
    flags: c_int,
) -> Option<(msghdr, c_int)> {
    let waits = flags & libc::RWF_NOWAIT == 0;
    let wrong = match usize::try_from(count) {
        // As of other sockets.
        _ if offset != -1 => libc::ESPIPE,
        _ if flags & !libc::RWF_NOWAIT != 0 => libc::EOPNOTSUPP,
        Err(_) => libc::EINVAL,
        Ok(count) => {
            // SAFETY: zeros are a value of it.
            let mut header: msghdr = unsafe { std::mem::zeroed() };
            header.msg_iov = parts.cast_mut();
            header.msg_iovlen = count;
            return Some((header, if waits { 0 } else { libc::MSG_DONTWAIT }));
        }
    };
    set_errno(wrong);
    None
}

/// Declares calls that move data within the system: not to or from QUIC sockets.
macro_rules! moving {
    ($($name:ident($($argument:ident: $kind:ty),*; $($fd:ident),*);)*) => {
        $(
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($argument: $kind),*) -> ssize_t {
                type Function = unsafe extern "C" fn($($kind),*) -> ssize_t;
                for fd in [$($fd),*] {
                    match whose(fd) {
                        Whose::System => {}
                        Whose::Quicket => {
                            set_errno(libc::EINVAL);
                            return -1;
                        }
                        Whose::Nobody => return no_descriptor(),
                    }
                }
                // SAFETY: the arguments are the caller's.
                unsafe { next!($name: Function)($($argument),*) }
            }
        )*
    };
}

moving! {
    splice(
        from: c_int, from_offset: *mut loff_t, to: c_int, to_offset: *mut loff_t, len: size_t,
        flags: c_uint; from, to
    );
    tee(from: c_int, to: c_int, len: size_t, flags: c_uint; from, to);
    vmsplice(fd: c_int, parts: *const iovec, count: size_t, flags: c_uint; fd);
}
