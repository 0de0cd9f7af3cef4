//! Sockets that a generation hands to the next one: through its standard input, which is a local socket then.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::Stdio;

use rustix::fs::{Mode, OFlags, open};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg,
    sendmsg, socketpair,
};

/// The most sockets that are handed over.
const MAX_SOCKETS: usize = 64;
/// Descriptors come with a message.
const MESSAGE: &[u8] = b"sockets";

/// The standard input of a process that gets these.
pub(crate) fn give(sockets: &[OwnedFd]) -> io::Result<Stdio> {
    if sockets.is_empty() {
        return Ok(Stdio::null());
    }
    if sockets.len() > MAX_SOCKETS {
        return Err(io::Error::other(format!("more than {MAX_SOCKETS} sockets")));
    }
    let (ours, theirs) =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    // It waits there until it is read.
    send(ours.as_fd(), sockets)?;
    Ok(Stdio::from(theirs))
}

fn send(to: BorrowedFd<'_>, sockets: &[OwnedFd]) -> io::Result<()> {
    let borrowed: Vec<BorrowedFd<'_>> = sockets.iter().map(AsFd::as_fd).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_SOCKETS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(&borrowed)) {
        return Err(io::ErrorKind::OutOfMemory.into());
    }
    sendmsg(to, &[IoSlice::new(MESSAGE)], &mut control, SendFlags::empty())?;
    Ok(())
}

/// What the generation before has handed to this process.
///
/// # Errors
///
/// If its standard input is not what [`give`] makes.
pub(crate) fn take() -> io::Result<Vec<OwnedFd>> {
    let input = rustix::stdio::stdin();
    match rustix::net::sockopt::socket_domain(input) {
        Ok(AddressFamily::UNIX) => {}
        // It had nothing to give.
        _ => return Ok(Vec::new()),
    }
    let sockets = receive(input)?;
    let nothing = open("/dev/null", OFlags::RDONLY, Mode::empty())?;
    rustix::stdio::dup2_stdin(nothing)?;
    Ok(sockets)
}

fn receive(from: BorrowedFd<'_>) -> io::Result<Vec<OwnedFd>> {
    let mut message = [0; MESSAGE.len()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_SOCKETS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let received = recvmsg(from, &mut [IoSliceMut::new(&mut message)], &mut control, flags)?;
    let mut sockets = Vec::new();
    for part in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = part {
            sockets.extend(rights);
        }
    }
    if received.flags.contains(ReturnFlags::CTRUNC) || message != *MESSAGE {
        let text = "the generation before has handed over something else than its sockets";
        return Err(io::Error::new(io::ErrorKind::InvalidData, text));
    }
    Ok(sockets)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::process::Command;

    /// Through a process, as a `Stdio` cannot be looked into: the shell's standard input has the name of a socket.
    #[test]
    fn what_is_given_is_a_socket_and_nothing_is_none() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let read = |stdio| {
            let output = Command::new("readlink").arg("/proc/self/fd/0").stdin(stdio).output();
            String::from_utf8(output.unwrap().stdout).unwrap()
        };
        assert!(read(give(&[listener.into()]).unwrap()).starts_with("socket:"));
        assert!(read(give(&[]).unwrap()).starts_with("/dev/null"));
    }

    #[test]
    fn connections_that_wait_are_taken_by_who_has_the_socket_next() {
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        client.write_all(b"x").unwrap();
        let sockets = [OwnedFd::from(listener)];
        send(ours.as_fd(), &sockets).unwrap();
        drop(sockets);
        let next = TcpListener::from(receive(theirs.as_fd()).unwrap().pop().unwrap());
        let mut byte = [0];
        next.accept().unwrap().0.read_exact(&mut byte).unwrap();
        assert_eq!(&byte, b"x");
    }

    #[test]
    fn something_else_is_an_error() {
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .unwrap();
        rustix::net::send(&ours, b"hello!!", SendFlags::empty()).unwrap();
        assert!(receive(theirs.as_fd()).unwrap_err().to_string().contains("something else"));
    }
}
