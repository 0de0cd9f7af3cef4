//! Requests to the switch, and its answers.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use crate::local;
use crate::protocol::{Answer, MAX_MESSAGE, Request};

/// Connects to the switch that listens at a path.
pub(crate) fn connect(path: &Path) -> io::Result<OwnedFd> {
    connect_until(path, None)
}

/// How long there is until a time; an error if it is over.
fn left(until: Option<Instant>) -> io::Result<Option<Duration>> {
    let left = until.map(|until| until.saturating_duration_since(Instant::now()));
    if left.is_some_and(|left| left < Duration::from_millis(1)) {
        return Err(too_late());
    }
    Ok(left)
}

fn too_late() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "the switch for packets does not answer in time")
}

pub(crate) fn connect_until(path: &Path, until: Option<Instant>) -> io::Result<OwnedFd> {
    let address = SocketAddrUnix::new(path)?;
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    let control = rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
    // It waits for as long as others do, whom nobody accepts.
    let left = left(until)?;
    if left.is_some() {
        set_socket_timeout(&control, Timeout::Send, left)?;
    }
    match rustix::net::connect(&control, &address) {
        Err(Errno::AGAIN) if until.is_some() => Err(too_late()),
        // A socket of streams or datagrams.
        Err(Errno::PROTOTYPE) => Err(foreign()),
        result => Ok(result.map(|()| control)?),
    }
}

/// Asks the switch, and waits for its answer.
pub(crate) fn ask(
    control: BorrowedFd<'_>,
    request: Request,
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<(Answer, Vec<OwnedFd>)> {
    ask_until(control, request, descriptors, None)
}

pub(crate) fn ask_until(
    control: BorrowedFd<'_>,
    request: Request,
    descriptors: &[BorrowedFd<'_>],
    until: Option<Instant>,
) -> io::Result<(Answer, Vec<OwnedFd>)> {
    if !say(control, request, descriptors)? {
        return Err(Errno::AGAIN.into());
    }
    hear_until(control, until)
}

fn gone() -> io::Error {
    let text = "the switch for packets has gone, or has closed this port: open another";
    io::Error::new(io::ErrorKind::ConnectionReset, text)
}

/// What somebody hears who has come to something else.
fn foreign() -> io::Error {
    let text = "what listens there is something else, such as the switch for connections (quicket switch), or another release";
    io::Error::new(io::ErrorKind::InvalidData, text)
}

/// Sends a request. Returns whether there was room for it.
pub(crate) fn say(
    control: BorrowedFd<'_>,
    request: Request,
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<bool> {
    match local::send(control, &request.encode(), descriptors) {
        Ok(()) => Ok(true),
        Err(Errno::AGAIN) => Ok(false),
        Err(Errno::PIPE | Errno::CONNRESET) => Err(gone()),
        Err(error) => Err(error.into()),
    }
}

/// The next answer, if it is there.
pub(crate) fn hear(control: BorrowedFd<'_>) -> io::Result<Option<(Answer, Vec<OwnedFd>)>> {
    let mut buffer = [0; MAX_MESSAGE];
    match quicket_clerk::receive_message(control, &mut buffer) {
        Ok((0, _)) | Err(Errno::CONNRESET) => Err(gone()),
        Ok((len, descriptors)) => {
            let answer = buffer.get(..len).and_then(Answer::decode);
            Ok(Some((answer.ok_or_else(foreign)?, descriptors)))
        }
        Err(Errno::AGAIN) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Waits for the next answer.
pub(crate) fn hear_until(
    control: BorrowedFd<'_>,
    until: Option<Instant>,
) -> io::Result<(Answer, Vec<OwnedFd>)> {
    loop {
        if let Some(heard) = hear(control)? {
            return Ok(heard);
        }
        wait(control, PollFlags::IN, until)?;
    }
}

/// Waits until there may be room for a request, or the switch has gone.
pub(crate) fn wait_for_room(control: BorrowedFd<'_>, until: Option<Instant>) -> io::Result<()> {
    wait(control, PollFlags::OUT, until)
}

/// Returns early at times.
fn wait(control: BorrowedFd<'_>, what: PollFlags, until: Option<Instant>) -> io::Result<()> {
    let time = left(until)?.map(|left| Timespec {
        tv_sec: left.as_secs().try_into().unwrap_or(i64::MAX),
        tv_nsec: left.subsec_nanos().into(),
    });
    match poll(&mut [PollFd::new(&control, what)], time.as_ref()) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use quicket_ring::Layout;

    use super::*;
    use crate::client::Port;

    #[test]
    fn a_switch_that_says_nothing_is_waited_for_until_a_time() {
        let dir = std::env::temp_dir().join(format!("quicket-silent-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let path = dir.join("switch");
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let listener = rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None).unwrap();
        rustix::net::bind(&listener, &SocketAddrUnix::new(&*path).unwrap()).unwrap();
        rustix::net::listen(&listener, 0).unwrap();
        let layout = Layout::new(16, 16, 2048).unwrap();
        // Nobody accepts: the first is in the queue, and waits for its answer; the others wait for room in it.
        let _queued = connect(&path).unwrap();
        for _ in 0..3 {
            let begun = Instant::now();
            let until = begun + Duration::from_millis(50);
            let error = Port::open_until(&path, layout, Some(until)).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{error}");
            assert!(begun.elapsed() < Duration::from_secs(10));
        }
        // One that is accepted, and no more.
        drop(rustix::net::accept(&listener).unwrap());
        let control = connect(&path).unwrap();
        let _accepted = rustix::net::accept(&listener).unwrap();
        let until = Instant::now() + Duration::from_millis(50);
        let error = ask_until(control.as_fd(), Request::Count, &[], Some(until)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{error}");
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn who_comes_to_something_else_hears_so() {
        let dir = std::env::temp_dir().join(format!("quicket-foreign-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let path = dir.join("streams");
        let _streams = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let error = connect(&path).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{error}");
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let (ours, theirs) =
            rustix::net::socketpair(family, kind, SocketFlags::CLOEXEC, None).unwrap();
        local::send(theirs.as_fd(), b"{\"answer\":1}", &[]).unwrap();
        let error = hear(ours.as_fd()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{error}");
        assert!(error.to_string().contains("something else"), "{error}");
        std::fs::remove_dir_all(dir).unwrap();
    }
}
