//! What C sees: `include/quicket/packets.h`.

use std::cell::UnsafeCell;
use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use libc::{size_t, ssize_t};
use quicket_packets::client::{Port, Registrar, inherited};
use quicket_packets::{Layout, Queue, REASONS, Tuple};

use crate::address::{put, storage, tuple_of};
use crate::error;

/// A port, or another queue of one. C has its address. One thread at a time has the queue, and any of them asks the switch.
#[derive(Debug)]
#[allow(non_camel_case_types, reason = "its name in C")]
pub struct quicket_port {
    /// None for a queue that is none of the port's own.
    registrar: Option<Mutex<Registrar>>,
    queue: UnsafeCell<Queue>,
}

fn set_errno(number: c_int) {
    // SAFETY: the place of this thread's errno, which is always there.
    unsafe { *libc::__errno_location() = number };
}

pub(crate) fn answer<T>(failure: T, call: impl FnOnce() -> io::Result<T>) -> T {
    error::answer(failure, call).unwrap_or_else(|(failure, number)| {
        set_errno(number);
        failure
    })
}

/// What frames go by.
///
/// # Safety
///
/// The address is null or one that `quicket_port_open` has given, and no other call for frames is under way with it.
unsafe fn queue_of<'a>(port: *mut quicket_port) -> io::Result<&'a mut Queue> {
    // SAFETY: as the caller says; nobody has more than a shared reference to all of it.
    let port = unsafe { port.as_ref() }.ok_or(io::ErrorKind::InvalidInput)?;
    // SAFETY: calls for frames are one at a time, and others leave the queue alone.
    Ok(unsafe { &mut *port.queue.get() })
}

/// What has addresses and makes queues.
///
/// # Safety
///
/// The address is null or one that `quicket_port_open` has given.
pub(crate) unsafe fn registrar_of<'a>(
    port: *mut quicket_port,
) -> io::Result<MutexGuard<'a, Registrar>> {
    // SAFETY: as the caller says.
    let port = unsafe { port.as_ref() }.ok_or(io::ErrorKind::InvalidInput)?;
    let registrar = port.registrar.as_ref().ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::InvalidInput,
            "this is another queue of a port: the port itself has addresses and makes queues",
        )
    })?;
    Ok(registrar.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Opens a port.
///
/// # Safety
///
/// `path` is a string with a zero at its end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quicket_port_open(
    path: *const c_char,
    send: u32,
    receive: u32,
    slot: u32,
) -> *mut quicket_port {
    answer(ptr::null_mut(), || {
        if path.is_null() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // SAFETY: as the caller says.
        let path = unsafe { CStr::from_ptr(path) };
        let path = Path::new(OsStr::from_bytes(path.to_bytes()));
        Ok(boxed(Port::open(path, layout(send, receive, slot)?)?))
    })
}

/// Opens the port of a connection that was handed to this program.
#[unsafe(no_mangle)]
pub extern "C" fn quicket_port_open_on(
    descriptor: c_int,
    send: u32,
    receive: u32,
    slot: u32,
) -> *mut quicket_port {
    answer(ptr::null_mut(), || {
        let layout = layout(send, receive, slot)?;
        Ok(boxed(Port::open_on(inherited(descriptor)?, layout)?))
    })
}

fn layout(send: u32, receive: u32, slot: u32) -> io::Result<Layout> {
    Layout::new(send, receive, slot).ok_or_else(|| {
        let why = "rings have 16 to 4096 positions, a power of two, and slots 128 to 16384 octets, a multiple of 64";
        io::Error::new(io::ErrorKind::InvalidInput, why)
    })
}

fn boxed(port: Port) -> *mut quicket_port {
    let (registrar, queue) = port.split();
    let registrar = Some(Mutex::new(registrar));
    Box::into_raw(Box::new(quicket_port { registrar, queue: UnsafeCell::new(queue) }))
}

/// Ends a port, or lets a queue go.
///
/// # Safety
///
/// `port` is null, or of `quicket_port_open` or `quicket_port_add_queue` and not closed yet.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quicket_port_close(port: *mut quicket_port) {
    if !port.is_null() {
        // SAFETY: as the caller says, it is such a box, and nobody uses it any more.
        let port = unsafe { Box::from_raw(port) };
        answer((), || {
            drop(port);
            Ok(())
        });
    }
}

/// Defines functions that have a port and numbers.
macro_rules! calls {
    ($port:ident; $($(#[$doc:meta])* $name:ident($($argument:ident: $kind:ty),*) -> $result:ty = $failure:expr, $call:expr;)*) => {
        $(
            $(#[$doc])*
            ///
            /// # Safety
            ///
            /// The port is null, or of `quicket_port_open` or `quicket_port_add_queue` and not closed yet, and no other of these calls is under
            /// way with it.
            /// Other addresses are of what the header says.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($port: *mut quicket_port $(, $argument: $kind)*) -> $result {
                answer($failure, || {
                    // SAFETY: as the caller says.
                    let $port = unsafe { queue_of($port) }?;
                    $call
                })
            }
        )*
    };
}

calls! {
    port;

    /// Its descriptor for poll.
    quicket_port_fd() -> c_int = -1, Ok(port.as_fd().as_raw_fd());
    /// How many frames may be written.
    quicket_port_room(wanted: u32) -> i64 = -1, port.room(wanted).map(i64::from);
    /// The slot of the `n`th of them.
    quicket_port_slot(n: u32, len: *mut size_t) -> *mut c_void = ptr::null_mut(), {
        let slot = port.slot(n).ok_or(io::ErrorKind::InvalidInput)?;
        // SAFETY: the caller's, for one number, or null.
        unsafe { put(len, slot.len()) };
        Ok(slot.as_mut_ptr().cast())
    };
    /// How long the `n`th of them is.
    quicket_port_set_len(n: u32, len: u16) -> c_int = -1, {
        port.set_len(n, len);
        Ok(0)
    };
    /// Sends the first `n`.
    quicket_port_publish(n: u32) -> c_int = -1, port.publish(n).map(|()| 0);
    /// Copies a frame, and sends it.
    quicket_port_send(frame: *const c_void, len: size_t) -> ssize_t = -1, send(port, frame, len);
    /// How many frames have come.
    quicket_port_ready() -> i64 = -1, port.ready().map(i64::from);
    /// The `n`th of them.
    quicket_port_frame(n: u32, len: *mut size_t) -> *const c_void = ptr::null(), {
        let frame = port.frame(n).ok_or(io::ErrorKind::InvalidInput)?;
        // SAFETY: the caller's, for one number, or null.
        unsafe { put(len, frame.len()) };
        Ok(frame.as_ptr().cast())
    };
    /// Gives the first `n` back.
    quicket_port_release(n: u32) -> c_int = -1, {
        port.release(n);
        Ok(0)
    };
    /// Waits for frames.
    quicket_port_wait(milliseconds: c_int) -> c_int = -1, {
        let time = u64::try_from(milliseconds).ok().map(Duration::from_millis);
        port.wait(time).map(c_int::from)
    };
    /// Waits for room.
    quicket_port_wait_for_room(milliseconds: c_int) -> c_int = -1, {
        let time = u64::try_from(milliseconds).ok().map(Duration::from_millis);
        port.wait_for_room(time).map(c_int::from)
    };
    /// Before poll.
    quicket_port_sleep() -> c_int = -1, port.sleep().map(c_int::from);
    /// After poll.
    quicket_port_awake() -> c_int = -1, port.awake().map(|()| 0);
    /// In place of these two, for poll before anything else.
    quicket_port_rest(held: u32) -> c_int = -1, port.rest(held).map(c_int::from);
    /// Before poll for room.
    quicket_port_hold() -> c_int = -1, port.hold().map(|()| 0);
}

/// Registers what a socket is bound to.
///
/// # Safety
///
/// As with all calls: the port is null, or of `quicket_port_open` or `quicket_port_add_queue` and not closed yet.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quicket_port_register(port: *mut quicket_port, socket: c_int) -> c_int {
    answer(-1, || {
        // SAFETY: as the caller says.
        let mut port = unsafe { registrar_of(port) }?;
        register(&mut port, socket)
    })
}

/// Gives an address back.
///
/// # Safety
///
/// As with all calls: the port is null, or of `quicket_port_open` or `quicket_port_add_queue` and not closed yet. `address` has `len` octets.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quicket_port_remove(
    port: *mut quicket_port,
    protocol: c_int,
    address: *const libc::sockaddr,
    len: libc::socklen_t,
) -> c_int {
    // SAFETY: as the caller says.
    unsafe { ask_for_tuple(port, protocol, address, len, Registrar::remove) }
}

/// Registers an address that was reserved.
///
/// # Safety
///
/// As with all calls: the port is null, or of `quicket_port_open` or `quicket_port_add_queue` and not closed yet. `address` has `len`
/// octets.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quicket_port_claim(
    port: *mut quicket_port,
    protocol: c_int,
    address: *const libc::sockaddr,
    len: libc::socklen_t,
) -> c_int {
    let claim = |port: &mut Registrar, tuple| port.claim(tuple).map(drop);
    // SAFETY: as the caller says.
    unsafe { ask_for_tuple(port, protocol, address, len, claim) }
}

/// Asks for something that a port can do with one address.
///
/// # Safety
///
/// As with all calls: the port is null, or of `quicket_port_open` or `quicket_port_add_queue` and not closed yet. The address is null, or has
/// `len` octets.
unsafe fn ask_for_tuple(
    port: *mut quicket_port,
    protocol: c_int,
    address: *const libc::sockaddr,
    len: libc::socklen_t,
    ask: impl FnOnce(&mut Registrar, Tuple) -> io::Result<()>,
) -> c_int {
    answer(-1, || {
        // SAFETY: as the caller says.
        let mut port = unsafe { registrar_of(port) }?;
        // SAFETY: as the caller says.
        ask(&mut port, unsafe { tuple_of(protocol, address, len) }?)?;
        Ok(0)
    })
}

/// The `n`th address that was reserved.
///
/// # Safety
///
/// As with all calls: the port is null, or of `quicket_port_open` or `quicket_port_add_queue` and not closed yet. The other two are
/// null or of that kind.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quicket_port_reserved(
    port: *mut quicket_port,
    n: u32,
    protocol: *mut c_int,
    address: *mut libc::sockaddr_storage,
) -> c_int {
    answer(-1, || {
        // SAFETY: as the caller says.
        let port = unsafe { registrar_of(port) }?;
        let Some(tuple) = port.reserved().get(n as usize) else { return Ok(0) };
        // SAFETY: as the caller says.
        unsafe {
            put(protocol, c_int::from(tuple.protocol));
            put(address, storage(tuple));
        }
        Ok(1)
    })
}

/// What became of the port's frames.
///
/// # Safety
///
/// As with all calls: the port is null, or of `quicket_port_open` or `quicket_port_add_queue` and not closed yet. `name` is a string with a zero at its end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quicket_port_counter(port: *mut quicket_port, name: *const c_char) -> i64 {
    answer(-1, || {
        // SAFETY: as the caller says.
        let mut port = unsafe { registrar_of(port) }?;
        if name.is_null() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // SAFETY: as the caller says.
        let name = unsafe { CStr::from_ptr(name) }.to_bytes();
        let reason = REASONS.into_iter().find(|reason| reason.name().as_bytes() == name);
        if reason.is_none() && name != b"sent" && name != b"received" {
            let why = "there is no such counter: sent, received, and those of docs/packets.md";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let counters = port.counters()?;
        let count = match reason {
            Some(reason) => counters.dropped(reason),
            None if name == b"sent" => counters.sent,
            None => counters.received,
        };
        Ok(i64::try_from(count).unwrap_or(i64::MAX))
    })
}

/// Adds a queue to a port.
///
/// # Safety
///
/// As with all calls: the port is null, or of `quicket_port_open` or `quicket_port_add_queue` and not closed yet.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quicket_port_add_queue(
    port: *mut quicket_port,
    send: u32,
    receive: u32,
    slot: u32,
) -> *mut quicket_port {
    answer(ptr::null_mut(), || {
        // SAFETY: as the caller says.
        let queue = unsafe { registrar_of(port) }?.add_queue(layout(send, receive, slot)?)?;
        let queue = UnsafeCell::new(queue);
        Ok(Box::into_raw(Box::new(quicket_port { registrar: None, queue })))
    })
}

fn register(port: &mut Registrar, socket: c_int) -> io::Result<c_int> {
    if socket < 0 {
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    }
    // SAFETY: the caller's descriptor, which it does not close while this call runs; one that is not open is an
    // error of the system's.
    let socket = unsafe { BorrowedFd::borrow_raw(socket) };
    port.register(socket).map(|_| 0)
}

fn send(port: &mut Queue, frame: *const c_void, len: size_t) -> io::Result<ssize_t> {
    if frame.is_null() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    if port.room(1)? == 0 {
        return Ok(0);
    }
    let slot = port.slot(0).ok_or(io::ErrorKind::InvalidInput)?;
    let (Some(slot), Ok(short)) = (slot.get_mut(..len), u16::try_from(len)) else {
        return Err(io::Error::from_raw_os_error(libc::EMSGSIZE));
    };
    // SAFETY: the caller's octets, as many as it says; the slot is the port's own, and has as many. They may overlap: the caller
    // has addresses of slots, and may have written the frame into one.
    unsafe { ptr::copy(frame.cast(), slot.as_mut_ptr(), len) };
    port.set_len(0, short);
    port.publish(1)?;
    Ok(len as ssize_t)
}

/// Why the last call failed that failed on this thread.
#[unsafe(no_mangle)]
pub extern "C" fn quicket_port_error() -> *const c_char {
    error::last(CStr::as_ptr)
}
