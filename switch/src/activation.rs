//! Sockets that a service manager hands over to a process that it starts (sd_listen_fds(3)).

use std::env;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::sys;

/// The first of the descriptors.
const FIRST: i32 = 3;
/// The most that are taken.
pub const MAX_HANDED: u32 = 16;

/// They are taken once: a descriptor has one owner.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// The sockets that were handed to this process, in their order; none if it was started otherwise, and at
/// every call but the first.
///
/// # Errors
///
/// When there are more than [`MAX_HANDED`], or one that is not open.
pub fn sockets() -> io::Result<Vec<OwnedFd>> {
    sockets_up_to(MAX_HANDED)
}

/// The same for so many.
pub(crate) fn sockets_up_to(most: u32) -> io::Result<Vec<OwnedFd>> {
    let number = |name| env::var(name).ok().and_then(|text| text.parse::<u32>().ok());
    if number("LISTEN_PID") != Some(std::process::id()) || TAKEN.swap(true, Ordering::SeqCst) {
        return Ok(Vec::new());
    }
    let count = number("LISTEN_FDS").unwrap_or(0);
    if count > most {
        let text = format!("the service manager hands over {count} sockets: give at most {most}");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    (FIRST..).take(count as usize).map(sys::inherited).collect()
}
