//! Messages with descriptors on a local socket. No call waits here, whatever flags the socket has.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, sockopt,
};

/// The most descriptors that the system lets come with a message (SCM_MAX_FD).
pub(crate) const MAX_DESCRIPTORS: usize = 253;
/// Room for them, and for the alignment of what is before them.
const CONTROL_LEN: usize = rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS));

/// Sends a message, whole or not at all.
pub(crate) fn send(
    to: BorrowedFd<'_>,
    bytes: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(Errno::INVAL);
    }
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    rustix::io::retry_on_intr(|| {
        rustix::net::sendmsg(to, &[IoSlice::new(bytes)], &mut control, flags)
    })
    .map(drop)
}

/// Receives a message and all descriptors that came with it: closing one may wait, for as long as who sent it
/// likes, so that it is the caller's business. The length is 0 at the end. A message that is longer than `buffer` is
/// cut off.
pub(crate) fn receive(
    from: BorrowedFd<'_>,
    buffer: &mut [u8],
) -> Result<(usize, Vec<OwnedFd>), Errno> {
    let mut space = [MaybeUninit::uninit(); CONTROL_LEN];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let message = rustix::io::retry_on_intr(|| {
        rustix::net::recvmsg(from, &mut [IoSliceMut::new(buffer)], &mut control, flags)
    })?;
    let mut descriptors = Vec::new();
    for part in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = part {
            descriptors.extend(rights);
        }
    }
    Ok((message.bytes, descriptors))
}

/// Whether there is another message, were it an empty one, which [`receive`] does not tell from the end: a message says who has sent it
/// (SO_PASSCRED), if that is asked for when it is looked at.
pub(crate) fn has_more(from: BorrowedFd<'_>) -> bool {
    let _ = sockopt::set_socket_passcred(from, true);
    let has_more = brings_descriptors(from);
    let _ = sockopt::set_socket_passcred(from, false);
    has_more
}

/// Whether descriptors come with the next message, which stays where it is, and so do they.
pub(crate) fn brings_descriptors(from: BorrowedFd<'_>) -> bool {
    let (mut buffer, mut none) = ([0; 1], RecvAncillaryBuffer::default());
    let flags = RecvFlags::DONTWAIT | RecvFlags::PEEK;
    let seen = rustix::io::retry_on_intr(|| {
        rustix::net::recvmsg(from, &mut [IoSliceMut::new(&mut buffer)], &mut none, flags)
    });
    seen.is_ok_and(|seen| seen.flags.contains(ReturnFlags::CTRUNC))
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use rustix::net::{AddressFamily, Shutdown, SocketFlags, SocketType, shutdown, socketpair};

    use super::*;

    #[test]
    fn an_empty_message_is_not_the_end() {
        let flags = SocketFlags::CLOEXEC;
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        let file = std::fs::File::open("/dev/null").unwrap();
        for (bytes, files) in [(&b""[..], 0), (b"", 1), (b"said", 0), (b"", 0)] {
            send(theirs.as_fd(), bytes, &vec![file.as_fd(); files]).unwrap();
        }
        shutdown(&ours, Shutdown::Both).unwrap();
        let mut came = Vec::new();
        while has_more(ours.as_fd()) {
            let (len, descriptors) = receive(ours.as_fd(), &mut [0; 16]).unwrap();
            came.push((len, descriptors.len()));
        }
        assert_eq!(came, [(0, 0), (0, 1), (4, 0), (0, 0)]);
    }
}
