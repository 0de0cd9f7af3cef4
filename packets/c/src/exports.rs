//! What C sees: `include/quicket/packets.h`.

use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;
use std::time::Duration;

use libc::{size_t, ssize_t};
use quicket_packets::client::Port;
use quicket_packets::{Layout, Queue, REASONS, Tuple};

use crate::error;

/// A port, or another queue of one. C has its address.
#[derive(Debug)]
#[allow(non_camel_case_types, reason = "its name in C")]
pub struct quicket_port(Handle);

#[derive(Debug)]
enum Handle {
    Port(Port),
    Queue(Queue),
}

impl Handle {
    /// What frames go by.
    const fn queue(&mut self) -> &mut Queue {
        match self {
            Self::Port(port) => port.queue(),
            Self::Queue(queue) => queue,
        }
    }

    /// What has tuples.
    fn port(&mut self) -> io::Result<&mut Port> {
        match self {
            Self::Port(port) => Ok(port),
            Self::Queue(_) => Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "this is another queue of a port: the port itself has addresses and makes queues",
            )),
        }
    }
}

fn set_errno(number: c_int) {
    // SAFETY: the place of this thread's errno, which is always there.
    unsafe { *libc::__errno_location() = number };
}

fn answer<T>(failure: T, call: impl FnOnce() -> io::Result<T>) -> T {
    error::answer(failure, call).unwrap_or_else(|(failure, number)| {
        set_errno(number);
        failure
    })
}

/// The port at an address that `quicket_port_open` has given.
///
/// # Safety
///
/// It is null or such an address, and no other call with it is under way.
unsafe fn handle_of<'a>(port: *mut quicket_port) -> io::Result<&'a mut Handle> {
    // SAFETY: as the caller says.
    let port = unsafe { port.as_mut() };
    port.map(|port| &mut port.0).ok_or_else(|| io::ErrorKind::InvalidInput.into())
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
        Ok(boxed(Handle::Port(Port::open(path, layout(send, receive, slot)?)?)))
    })
}

fn layout(send: u32, receive: u32, slot: u32) -> io::Result<Layout> {
    Layout::new(send, receive, slot).ok_or_else(|| {
        let why = "rings have 16 to 4096 positions, a power of two, and slots 128 to 16384 octets, a multiple of 64";
        io::Error::new(io::ErrorKind::InvalidInput, why)
    })
}

fn boxed(handle: Handle) -> *mut quicket_port {
    Box::into_raw(Box::new(quicket_port(handle)))
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
            /// The port is null, or of `quicket_port_open` or `quicket_port_add_queue` and not closed yet, and no other call with it is under way.
            /// Other addresses are of what the header says.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($port: *mut quicket_port $(, $argument: $kind)*) -> $result {
                answer($failure, || {
                    // SAFETY: as the caller says.
                    let handle = unsafe { handle_of($port) }?;
                    let $port = handle.queue();
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
        put(len, slot.len());
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
        put(len, frame.len());
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
}

/// Registers what a socket is bound to.
///
/// # Safety
///
/// As with all calls: the port is null, or of `quicket_port_open` or `quicket_port_add_queue` and not closed yet, and no other call
/// with it is under way.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quicket_port_register(port: *mut quicket_port, socket: c_int) -> c_int {
    answer(-1, || {
        // SAFETY: as the caller says.
        register(unsafe { handle_of(port) }?.port()?, socket)
    })
}

/// Gives an address back.
///
/// # Safety
///
/// As with all calls: the port is null, or of `quicket_port_open` or `quicket_port_add_queue` and not closed yet, and no other call
/// with it is under way. `address` has `len` octets.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quicket_port_remove(
    port: *mut quicket_port,
    protocol: c_int,
    address: *const libc::sockaddr,
    len: libc::socklen_t,
) -> c_int {
    answer(-1, || {
        // SAFETY: as the caller says.
        let port = unsafe { handle_of(port) }?.port()?;
        let protocol = u8::try_from(protocol).map_err(|_| io::ErrorKind::InvalidInput)?;
        // SAFETY: as the caller says.
        let address = unsafe { address_of(address, len) }.ok_or(io::ErrorKind::InvalidInput)?;
        let has_ports = matches!(c_int::from(protocol), libc::IPPROTO_TCP | libc::IPPROTO_UDP);
        let number = if has_ports { address.port() } else { 0 };
        port.remove(Tuple { address: address.ip().to_canonical(), protocol, port: number })?;
        Ok(0)
    })
}

/// An address as C has it; none if it is none of IP, or cut off.
///
/// # Safety
///
/// It is null, or there are `len` octets.
unsafe fn address_of(address: *const libc::sockaddr, len: libc::socklen_t) -> Option<SocketAddr> {
    let len = len as usize;
    if address.is_null() || len < size_of::<libc::sa_family_t>() {
        return None;
    }
    // SAFETY: the family is at the beginning, and there; it need not be aligned.
    let family = unsafe { ptr::read_unaligned(address.cast::<libc::sa_family_t>()) };
    if c_int::from(family) == libc::AF_INET && len >= size_of::<libc::sockaddr_in>() {
        // SAFETY: there are as many octets, and any of them are such a structure; it need not be aligned.
        let v4 = unsafe { ptr::read_unaligned(address.cast::<libc::sockaddr_in>()) };
        let ip = Ipv4Addr::from_bits(u32::from_be(v4.sin_addr.s_addr));
        return Some((ip, u16::from_be(v4.sin_port)).into());
    }
    if c_int::from(family) == libc::AF_INET6 && len >= size_of::<libc::sockaddr_in6>() {
        // SAFETY: as before.
        let v6 = unsafe { ptr::read_unaligned(address.cast::<libc::sockaddr_in6>()) };
        let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
        return Some((ip, u16::from_be(v6.sin6_port)).into());
    }
    None
}

/// What became of the port's frames.
///
/// # Safety
///
/// As with all calls: the port is null, or of `quicket_port_open` or `quicket_port_add_queue` and not closed yet, and no other call
/// with it is under way. `name` is a string with a zero at its end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quicket_port_counter(port: *mut quicket_port, name: *const c_char) -> i64 {
    answer(-1, || {
        // SAFETY: as the caller says.
        let port = unsafe { handle_of(port) }?.port()?;
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
/// As with all calls: the port is null, or of `quicket_port_open` or `quicket_port_add_queue` and not closed yet, and no other call
/// with it is under way.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quicket_port_add_queue(
    port: *mut quicket_port,
    send: u32,
    receive: u32,
    slot: u32,
) -> *mut quicket_port {
    answer(ptr::null_mut(), || {
        // SAFETY: as the caller says.
        let port = unsafe { handle_of(port) }?.port()?;
        Ok(boxed(Handle::Queue(port.add_queue(layout(send, receive, slot)?)?)))
    })
}

/// Writes a length where the caller wants it.
fn put(to: *mut size_t, len: usize) {
    if !to.is_null() {
        // SAFETY: the caller's, for one number, as all functions that take such an address say.
        unsafe { to.write(len) };
    }
}

fn register(port: &mut Port, socket: c_int) -> io::Result<c_int> {
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
