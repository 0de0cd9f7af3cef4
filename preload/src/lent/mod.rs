//! TCP sockets that another process lends this program: `docs/tcp.md`, and the crate `quicket-tcp-lender`.
//!
//! A descriptor is an end of a pair of local sockets, and all calls on it are the system's, but for those here. Nothing is
//! kept about it in this process: the name of its other end says that it is one, and its own name what became of it. So
//! it may be duplicated, inherited and passed on.

mod ask;
mod calls;
mod native;
mod options;

use std::ffi::{CStr, c_int};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use libc::ssize_t;
use quicket_tcp_protocol::{Call, Names, VARIABLE};

pub(crate) use calls::{accept, accept4, bind, connect, getpeername, getsockname, listen, socket};
pub(crate) use options::{getsockopt, setsockopt};

static IS_ON: AtomicBool = AtomicBool::new(false);
static NAMES: OnceLock<Names> = OnceLock::new();

/// The environment is read when the library is loaded: programs may change it.
#[used]
#[unsafe(link_section = ".init_array")]
static FIND_LENDER: extern "C" fn() = find_lender;

extern "C" fn find_lender() {
    let mut variable = [0; VARIABLE.len() + 1];
    variable[..VARIABLE.len()].copy_from_slice(VARIABLE.as_bytes());
    // SAFETY: the name ends with a zero, and no other thread changes the environment yet.
    let value = unsafe { libc::getenv(variable.as_ptr().cast()) };
    if value.is_null() {
        return;
    }
    // SAFETY: a string of the environment.
    let value = unsafe { CStr::from_ptr(value) };
    if let Some(names) = Names::from_variable(value.to_bytes()) {
        let _ = NAMES.set(names);
        IS_ON.store(true, Ordering::Release);
    }
}

/// Whether this program is lent sockets.
#[inline]
pub(crate) fn is_on() -> bool {
    IS_ON.load(Ordering::Relaxed)
}

fn names() -> Option<&'static Names> {
    is_on().then(|| NAMES.get())?
}

/// The socket that a descriptor is, if it was lent.
fn lent(fd: c_int) -> Option<u64> {
    let names = names()?;
    names.is_socket(native::peer_name(fd)?.abstract_name()?)
}

/// What has come of a call that receives. A connection that was reset looks like one that has ended: the lender knows.
pub(crate) fn received(fd: c_int, received: ssize_t) -> ssize_t {
    if received != 0 || !is_on() || !native::is_hung_up(fd) {
        return received;
    }
    let Some(id) = lent(fd) else { return received };
    match ask::ask(id, Call::Error) {
        Ok(answer) if answer.error != 0 => {
            crate::next::set_errno(answer.error);
            -1
        }
        _ => received,
    }
}

/// The answer to a call: a number, or -1 with errno, which is left alone otherwise.
fn answer(result: Result<c_int, c_int>, errno: c_int) -> c_int {
    crate::next::set_errno(result.as_ref().err().copied().unwrap_or(errno));
    result.unwrap_or(-1)
}
