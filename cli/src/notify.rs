//! Tells the service manager how a service is (sd_notify(3)), if it wants to know.
//!
//! A service of systemd is one main process. Where generations follow each other, the one that has been
//! replaced names the next one, and says nothing more.

use std::env;
use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Where the service manager listens.
const SOCKET: &str = "NOTIFY_SOCKET";
/// Set for a process that another one has started to take its place. That one says when it has.
pub(crate) const SUCCESSOR: &str = "QUICKET_SUCCESSOR";
/// The longest status text in bytes.
const MAX_STATUS: usize = 512;
/// How long one who is busy is waited for: what is not said is not said again.
const PATIENCE: Duration = Duration::from_secs(1);

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

/// What people are to see; nothing else changes.
pub(crate) fn status(status: &str) {
    say(&line(status));
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
    if let Err(error) = send(&path, message) {
        log::warn!("cannot tell the service manager how this service is: {error}");
    }
}

fn send(path: &OsStr, message: &str) -> io::Result<()> {
    let address = match path.as_encoded_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(path)?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.set_write_timeout(Some(PATIENCE))?;
    socket.send_to_addr(message.as_bytes(), &address)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manager_who_is_busy_gets_the_message_later() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let manager = UnixDatagram::bind(&path).unwrap();
        let others = UnixDatagram::unbound().unwrap();
        others.set_nonblocking(true).unwrap();
        while others.send_to(b"another service", &path).is_ok() {}
        let manager = std::thread::spawn(move || {
            manager.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            let mut message = [0; 100];
            loop {
                let len = manager.recv(&mut message).unwrap();
                if &message[..len] == b"READY=1" {
                    return;
                }
            }
        });
        send(path.as_os_str(), "READY=1").unwrap();
        manager.join().unwrap();
    }

    #[test]
    fn a_status_is_one_line_of_bounded_length() {
        assert_eq!(line("a\nMAINPID=1\u{1b}"), "STATUS=a MAINPID=1 ");
        assert_eq!(line(&"\u{e4}".repeat(1000)).len(), "STATUS=".len() + MAX_STATUS);
    }
}
