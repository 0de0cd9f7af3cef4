//! Tells the service manager how a service is (sd_notify(3)), if it wants to know.
//!
//! A service of systemd is one main process. Where generations follow each other, the one that has been
//! replaced names the next one, and says nothing more.

use std::env;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::time::{ClockId, clock_gettime};

/// Where the service manager listens.
const SOCKET: &str = "NOTIFY_SOCKET";
/// Set for a process that another one has started to take its place. That one says when it has.
pub(crate) const SUCCESSOR: &str = "QUICKET_SUCCESSOR";
/// The longest status text in bytes.
const MAX_STATUS: usize = 512;

/// This process is not the main one of its service, or not any more.
static HANDED_OVER: AtomicBool = AtomicBool::new(false);

/// All is ready, or ready again.
pub(crate) fn ready(status: &str) {
    if env::var_os(SUCCESSOR).is_none() {
        say(&format!("READY=1\n{}", line(status)));
    }
}

/// Files are being read again, or the next generation is being started: until it is ready again.
pub(crate) fn reloading(status: &str) {
    let now = clock_gettime(ClockId::Monotonic);
    let micros = now.tv_sec as i128 * 1_000_000 + now.tv_nsec as i128 / 1000;
    say(&format!("RELOADING=1\nMONOTONIC_USEC={micros}\n{}", line(status)));
}

/// That is over, whatever came of it.
pub(crate) fn reloaded(status: &str) {
    say(&format!("READY=1\n{}", line(status)));
}

/// The process is about to end.
pub(crate) fn stopping(status: &str) {
    say(&format!("STOPPING=1\n{}", line(status)));
}

/// Another process is the service from now on.
pub(crate) fn hand_over(pid: u32, status: &str) {
    say(&format!("MAINPID={pid}\nREADY=1\n{}", line(status)));
    HANDED_OVER.store(true, Ordering::SeqCst);
}

/// What people see of the state.
fn line(status: &str) -> String {
    let mut text: String = status.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    while text.len() > MAX_STATUS {
        text.pop();
    }
    format!("STATUS={text}")
}

fn say(message: &str) {
    let Some(path) = env::var_os(SOCKET).filter(|_| !HANDED_OVER.load(Ordering::SeqCst)) else {
        return;
    };
    let address = match path.as_encoded_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(&path),
    };
    let send = |address: SocketAddr| -> io::Result<usize> {
        let socket = UnixDatagram::unbound()?;
        // One who does not listen is not waited for.
        socket.set_nonblocking(true)?;
        socket.send_to_addr(message.as_bytes(), &address)
    };
    if let Err(error) = address.and_then(send) {
        log::warn!("cannot tell the service manager how this service is: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_one_line_of_bounded_length() {
        assert_eq!(line("a\nMAINPID=1\u{1b}"), "STATUS=a MAINPID=1 ");
        assert_eq!(line(&"\u{e4}".repeat(1000)).len(), "STATUS=".len() + MAX_STATUS);
    }
}
