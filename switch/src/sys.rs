//! Calls of the system that no library has in safe form: many messages at once on a local socket, and
//! descriptors that travel with a message.
#![allow(
    unsafe_code,
    reason = "recvmmsg and sendmmsg take pointers, and descriptors come as numbers"
)]

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::zeroed;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;

use nix::cmsg_space;
use nix::errno::Errno;
use nix::libc;
use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, recvmsg, sendmsg};

/// Messages of one call.
pub(crate) const BATCH: usize = 32;
/// Descriptors that may come with one message; the system takes no more (SCM_MAX_FD).
pub(crate) const MAX_DESCRIPTORS: usize = 253;

/// Sends up to [`BATCH`] messages of two parts each, without waiting. Returns how many, or why not even
/// the first.
pub(crate) fn send_many(to: BorrowedFd<'_>, messages: &[[IoSlice<'_>; 2]]) -> io::Result<usize> {
    // SAFETY: plain numbers and pointers, for which zero is a value.
    let mut headers: [libc::mmsghdr; BATCH] = unsafe { zeroed() };
    let count = messages.len().min(BATCH);
    for (header, parts) in headers.iter_mut().zip(messages) {
        // An `IoSlice` is an iovec; the system only reads.
        header.msg_hdr.msg_iov = parts.as_ptr().cast_mut().cast();
        header.msg_hdr.msg_iovlen = parts.len() as _;
    }
    let flags = (libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) as _;
    // SAFETY: `count` headers have been filled in, with pointers to parts that outlive the call and are
    // only read; none has a name or control messages.
    let sent = unsafe {
        libc::sendmmsg(to.as_raw_fd(), headers.as_mut_ptr(), count as libc::c_uint, flags)
    };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

/// Receives up to [`BATCH`] messages, without waiting: of each, the first octets into `heads` and the
/// rest into `buffers`. `each` hears the place and length of each, zero if it was longer than its room.
/// Returns how many there were; none at the end of the connection.
pub(crate) fn receive_many<const HEAD: usize>(
    from: BorrowedFd<'_>,
    heads: &mut [[u8; HEAD]; BATCH],
    buffers: &mut [IoSliceMut<'_>],
    mut each: impl FnMut(usize, usize),
) -> io::Result<usize> {
    // SAFETY: plain numbers and pointers, for which zero is a value.
    let mut headers: [libc::mmsghdr; BATCH] = unsafe { zeroed() };
    // SAFETY: as above.
    let mut parts: [[libc::iovec; 2]; BATCH] = unsafe { zeroed() };
    let count = buffers.len().min(BATCH);
    let places = headers.iter_mut().zip(&mut parts).zip(heads.iter_mut().zip(buffers));
    for ((header, parts), (head, buffer)) in places {
        let [first, rest] = parts;
        (first.iov_base, first.iov_len) = (head.as_mut_ptr().cast(), HEAD);
        (rest.iov_base, rest.iov_len) = (buffer.as_mut_ptr().cast(), buffer.len());
        header.msg_hdr.msg_iov = parts.as_mut_ptr();
        header.msg_hdr.msg_iovlen = parts.len() as _;
    }
    // SAFETY: `count` headers have been filled in, each with two parts of its own, which point to memory
    // that is borrowed mutably for the length of the call and have its lengths. There is no room for
    // control messages, so that no descriptor comes.
    let received = unsafe {
        libc::recvmmsg(
            from.as_raw_fd(),
            headers.as_mut_ptr(),
            count as libc::c_uint,
            libc::MSG_DONTWAIT as _,
            ptr::null_mut(),
        )
    };
    let received = usize::try_from(received).map_err(|_| io::Error::last_os_error())?;
    let mut whole = 0;
    for (at, header) in headers.iter().enumerate().take(received) {
        let len = header.msg_len as usize;
        // The end of the connection reads as an empty message, again and again.
        if len == 0 {
            break;
        }
        whole += 1;
        let cut = header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0;
        each(at, if cut { 0 } else { len });
    }
    Ok(whole)
}

/// Sends a message with descriptors, without waiting.
pub(crate) fn send_with(
    to: BorrowedFd<'_>,
    bytes: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let raw: Vec<_> = descriptors.iter().map(AsRawFd::as_raw_fd).collect();
    let rights = [ControlMessage::ScmRights(&raw)];
    let control = if raw.is_empty() { &[][..] } else { &rights[..] };
    let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
    loop {
        match sendmsg::<()>(to.as_raw_fd(), &[IoSlice::new(bytes)], control, flags, None) {
            Err(Errno::EINTR) => {}
            result => return result.map(|_| ()).map_err(io::Error::from),
        }
    }
}

/// Receives a message with its descriptors into `buffer`, waiting as the socket does. Returns its length,
/// zero at the end; who drops the descriptors closes them.
///
/// # Errors
///
/// `InvalidData` for a message that is longer than the buffer, or has more descriptors than may come.
pub(crate) fn receive_with(
    from: BorrowedFd<'_>,
    buffer: &mut [u8],
) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut control = cmsg_space!([i32; MAX_DESCRIPTORS]);
    let (len, flags, descriptors) = loop {
        let mut parts = [IoSliceMut::new(buffer)];
        let flags = MsgFlags::MSG_CMSG_CLOEXEC;
        match recvmsg::<()>(from.as_raw_fd(), &mut parts, Some(&mut control), flags) {
            Err(Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
            Ok(message) => {
                let mut descriptors = Vec::new();
                for control in message.cmsgs().into_iter().flatten() {
                    let ControlMessageOwned::ScmRights(raw) = control else { continue };
                    // SAFETY: the system has just made these descriptors for this process, and nobody
                    // else knows of them.
                    let owned = |fd| unsafe { OwnedFd::from_raw_fd(fd) };
                    descriptors.extend(raw.into_iter().map(owned));
                }
                break (message.bytes, message.flags, descriptors);
            }
        }
    };
    if flags.intersects(MsgFlags::MSG_TRUNC | MsgFlags::MSG_CTRUNC) {
        let message = "a message is longer than messages are, or brings more descriptors";
        return Err(io::Error::new(io::ErrorKind::InvalidData, message));
    }
    Ok((len, descriptors))
}

/// Accepts a connection.
pub(crate) fn accept(listener: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let flags =
        nix::sys::socket::SockFlag::SOCK_CLOEXEC | nix::sys::socket::SockFlag::SOCK_NONBLOCK;
    let raw = nix::sys::socket::accept4(listener.as_raw_fd(), flags)?;
    // SAFETY: the system has just made this descriptor for this process, and nobody else knows of it.
    Ok(unsafe { OwnedFd::from_raw_fd(raw) })
}

/// Has calls on a descriptor not wait.
pub(crate) fn set_nonblocking(descriptor: BorrowedFd<'_>) -> io::Result<()> {
    use nix::fcntl::{FcntlArg, OFlag, fcntl};
    let flags = OFlag::from_bits_truncate(fcntl(descriptor, FcntlArg::F_GETFL)?);
    fcntl(descriptor, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
    Ok(())
}

/// The descriptor with a number that this process was started with.
///
/// # Errors
///
/// When it is not open.
pub(crate) fn inherited(number: i32) -> io::Result<OwnedFd> {
    // SAFETY: the descriptor is only asked for its flags within the call.
    nix::fcntl::fcntl(unsafe { BorrowedFd::borrow_raw(number) }, nix::fcntl::FcntlArg::F_GETFD)?;
    // SAFETY: it is open. Who started the process made it for this use (sd_listen_fds(3)), and
    // `daemon::activated` comes here once.
    let descriptor = unsafe { OwnedFd::from_raw_fd(number) };
    let flags = nix::fcntl::FcntlArg::F_SETFD(nix::fcntl::FdFlag::FD_CLOEXEC);
    nix::fcntl::fcntl(&descriptor, flags)?;
    Ok(descriptor)
}
