//! Messages with descriptors on a local socket. No call waits here, whatever flags the socket has.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

use quicket_clerk::MAX_DESCRIPTORS;
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};

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
