//! Calls of the system that no library has in safe form: many messages at once on a local socket, and
//! descriptors that travel with a message.
#![allow(
    unsafe_code,
    reason = "recvmmsg and sendmmsg take pointers, and descriptors come as numbers"
)]

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::{MaybeUninit, zeroed};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;

use nix::errno::Errno;
use nix::libc;
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};

use crate::protocol::MAX_WORKERS;

/// Messages of one call.
pub(crate) const BATCH: usize = 32;
/// Descriptors that may come with one message: a channel or a socket for each worker, the address's
/// socket, both ends of what keeps the workers' sockets, what ends with a family, and a ledger.
pub(crate) const MAX_DESCRIPTORS: usize = MAX_WORKERS + 5;
/// Room for control messages, in words, so that they are aligned: for 253 descriptors, which are all that the system lets
/// come (SCM_MAX_FD), and as much for what else the options of a socket bring. What finds no room the system closes,
/// which may wait.
const CONTROL_WORDS: usize = 256;

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
/// Returns how many there were; none at the end of the connection. Descriptors that come along are added to `rights`;
/// without that there is no room for any, and the system closes them before this returns.
pub(crate) fn receive_many<const HEAD: usize>(
    from: BorrowedFd<'_>,
    heads: &mut [[u8; HEAD]; BATCH],
    buffers: &mut [IoSliceMut<'_>],
    mut rights: Option<&mut Rights>,
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
    let mut control: Vec<MaybeUninit<u64>> = Vec::new();
    if rights.is_some() {
        control.resize(count * CONTROL_WORDS, MaybeUninit::uninit());
    }
    for (header, room) in headers.iter_mut().zip(control.chunks_exact_mut(CONTROL_WORDS)) {
        header.msg_hdr.msg_control = room.as_mut_ptr().cast();
        header.msg_hdr.msg_controllen = size_of_val(room) as _;
    }
    // SAFETY: `count` headers have been filled in, each with two parts of its own, which point to memory
    // that is borrowed mutably for the length of the call and have its lengths; and with no room for control
    // messages, or some of its own in `control`, which outlives all use of the headers.
    let received = unsafe {
        libc::recvmmsg(
            from.as_raw_fd(),
            headers.as_mut_ptr(),
            count as libc::c_uint,
            (libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC) as _,
            ptr::null_mut(),
        )
    };
    let received = usize::try_from(received).map_err(|_| io::Error::last_os_error())?;
    if let Some(rights) = &mut rights {
        for header in headers.iter().take(received) {
            // SAFETY: the system has just filled in the header, and what it has written to its room has not
            // changed since.
            rights.descriptors.extend(unsafe { descriptors(&header.msg_hdr) });
            rights.is_cut |= header.msg_hdr.msg_flags & libc::MSG_CTRUNC != 0;
        }
    }
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

/// Descriptors that came with messages. Closing one may wait, for as long as who sent it likes.
#[derive(Debug, Default)]
pub(crate) struct Rights {
    pub(crate) descriptors: Vec<OwnedFd>,
    /// There were more, which the system has closed: this process has no room for them.
    pub(crate) is_cut: bool,
}

impl Rights {
    pub(crate) fn is_none(&self) -> bool {
        self.descriptors.is_empty() && !self.is_cut
    }
}

/// A message, and what came with it.
#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) len: usize,
    pub(crate) rights: Rights,
    /// It is longer than its room.
    is_long: bool,
}

impl Received {
    /// Whether it is no message of the protocol: longer, or with more descriptors than may come.
    pub(crate) fn is_too_much(&self) -> bool {
        self.is_long || self.rights.is_cut || self.rights.descriptors.len() > MAX_DESCRIPTORS
    }
}

/// What is said about such a message.
pub(crate) const TOO_MUCH: &str =
    "a message is longer than messages are, or brings more descriptors than may come";

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
/// `InvalidData` for a message that is longer than the buffer, or has more descriptors than may come, or
/// than this process has room for; those that came are closed.
pub(crate) fn receive_with(
    from: BorrowedFd<'_>,
    buffer: &mut [u8],
) -> io::Result<(usize, Vec<OwnedFd>)> {
    receive_as(from, buffer, 0)
}

/// The same for a message that stays: the next one is looked at next time ([`look_from_the_first`]). Does
/// not wait.
pub(crate) fn look_with(
    from: BorrowedFd<'_>,
    buffer: &mut [u8],
) -> io::Result<(usize, Vec<OwnedFd>)> {
    receive_as(from, buffer, libc::MSG_PEEK | libc::MSG_DONTWAIT)
}

/// Has [`look_with`] begin with the first message (SO_PEEK_OFF).
pub(crate) fn look_from_the_first(from: BorrowedFd<'_>) -> io::Result<()> {
    let offset: libc::c_int = 0;
    // SAFETY: the option takes an int, which lives for the call.
    let set = unsafe {
        libc::setsockopt(
            from.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEEK_OFF,
            ptr::from_ref(&offset).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    Errno::result(set).map(drop).map_err(io::Error::from)
}

/// Receives a message and all that comes with it, without waiting, also what is too much: closing that is the caller's
/// business. The length is zero at the end.
pub(crate) fn receive_all(from: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<Received> {
    receive_whole(from, buffer, libc::MSG_DONTWAIT)
}

fn receive_as(
    from: BorrowedFd<'_>,
    buffer: &mut [u8],
    flags: libc::c_int,
) -> io::Result<(usize, Vec<OwnedFd>)> {
    let received = receive_whole(from, buffer, flags)?;
    if received.is_too_much() {
        return Err(io::Error::new(io::ErrorKind::InvalidData, TOO_MUCH));
    }
    Ok((received.len, received.rights.descriptors))
}

fn receive_whole(
    from: BorrowedFd<'_>,
    buffer: &mut [u8],
    flags: libc::c_int,
) -> io::Result<Received> {
    let flags = flags | libc::MSG_CMSG_CLOEXEC;
    let mut control = [0_u64; CONTROL_WORDS];
    let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    // SAFETY: plain numbers and pointers, for which zero is a value.
    let mut header: libc::msghdr = unsafe { zeroed() };
    let len = loop {
        header.msg_iov = &raw mut part;
        header.msg_iovlen = 1;
        header.msg_control = control.as_mut_ptr().cast();
        header.msg_controllen = size_of_val(&control) as _;
        // SAFETY: the header points to one part, which is `buffer` and borrowed mutably, and to
        // `control`, with their lengths; both outlive the call. There is no room for a name.
        let len = unsafe { libc::recvmsg(from.as_raw_fd(), &raw mut header, flags) };
        match usize::try_from(len) {
            Ok(len) => break len,
            Err(_) if Errno::last() == Errno::EINTR => {}
            Err(_) => return Err(io::Error::last_os_error()),
        }
    };
    // SAFETY: the system has just filled in the header, and `control` has not changed since.
    let descriptors = unsafe { descriptors(&header) };
    let is_cut = header.msg_flags & libc::MSG_CTRUNC != 0;
    let is_long = header.msg_flags & libc::MSG_TRUNC != 0;
    Ok(Received { len, rights: Rights { descriptors, is_cut }, is_long })
}

/// Of which domain and type a socket is, which no other call on it holds up. An error for what is no socket.
pub(crate) fn kind(descriptor: BorrowedFd<'_>) -> io::Result<(libc::c_int, libc::c_int)> {
    let ask = |name| {
        let mut value: libc::c_int = 0;
        let mut len = size_of::<libc::c_int>() as libc::socklen_t;
        // SAFETY: the system writes at most `len` bytes, which is what the number has, and into `len` how many.
        let got = unsafe {
            libc::getsockopt(
                descriptor.as_raw_fd(),
                libc::SOL_SOCKET,
                name,
                (&raw mut value).cast(),
                &raw mut len,
            )
        };
        Errno::result(got).map(|_| value)
    };
    Ok((ask(libc::SO_DOMAIN)?, ask(libc::SO_TYPE)?))
}

/// Takes the descriptors that came with a message, also those of a list that was cut off.
///
/// # Safety
///
/// `recvmsg` has filled in the header, and this is called once for it, while its control messages are as
/// the system wrote them.
unsafe fn descriptors(header: &libc::msghdr) -> Vec<OwnedFd> {
    let mut all = Vec::new();
    // SAFETY: the header describes valid control messages, as the caller says.
    let mut next = unsafe { libc::CMSG_FIRSTHDR(header) };
    // SAFETY: a pointer of CMSG_FIRSTHDR or CMSG_NXTHDR is null, or leads to a header within the buffer,
    // which is aligned for it.
    while let Some(message) = unsafe { next.as_ref() } {
        if message.cmsg_level == libc::SOL_SOCKET && message.cmsg_type == libc::SCM_RIGHTS {
            // SAFETY: only computes how long a control message without data is.
            let head = unsafe { libc::CMSG_LEN(0) } as usize;
            // The system writes a length that tells how many descriptors it has installed.
            let count = message.cmsg_len.saturating_sub(head) / size_of::<i32>();
            // SAFETY: a pointer to the data behind this header.
            let data = unsafe { libc::CMSG_DATA(next) }.cast::<i32>();
            for at in 0..count {
                // SAFETY: within the data, by its length; what is read is a number. The system has just
                // made that descriptor for this process, and nobody else knows of it.
                all.push(unsafe { OwnedFd::from_raw_fd(data.add(at).read_unaligned()) });
            }
        }
        // SAFETY: as for the first.
        next = unsafe { libc::CMSG_NXTHDR(header, next) };
    }
    all
}

/// Accepts a connection.
pub(crate) fn accept(listener: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let flags =
        nix::sys::socket::SockFlag::SOCK_CLOEXEC | nix::sys::socket::SockFlag::SOCK_NONBLOCK;
    let raw = nix::sys::socket::accept4(listener.as_raw_fd(), flags)?;
    // SAFETY: the system has just made this descriptor for this process, and nobody else knows of it.
    Ok(unsafe { OwnedFd::from_raw_fd(raw) })
}

/// The groups beside the first of who has the other end of a connection, as they were when it was made
/// (SO_PEERGROUPS); none where the system does not tell.
pub(crate) fn peer_groups(connection: BorrowedFd<'_>) -> Vec<u32> {
    // What a process may be in (NGROUPS_MAX), and so much memory only if there are as many.
    const MOST: usize = 65_536;
    let mut groups: Vec<libc::gid_t> = vec![0; 64];
    loop {
        let mut len = size_of_val(groups.as_slice()) as libc::socklen_t;
        // SAFETY: the system writes at most `len` bytes, which is what the vector has, of whole numbers, and
        // into `len` how many there are.
        let got = unsafe {
            libc::getsockopt(
                connection.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERGROUPS,
                groups.as_mut_ptr().cast(),
                &raw mut len,
            )
        };
        let count = len as usize / size_of::<libc::gid_t>();
        match Errno::result(got) {
            Ok(_) => {
                groups.truncate(count);
                return groups;
            }
            Err(Errno::ERANGE) if count > groups.len() && count <= MOST => groups.resize(count, 0),
            Err(error) => {
                log::debug!("the system does not tell a program's groups: {error}");
                return Vec::new();
            }
        }
    }
}

/// What a socket holds of what came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SocketMemory {
    /// What the packets that wait in it take, in bytes.
    pub(crate) held: u32,
    /// What they may take.
    pub(crate) room: u32,
    /// How many packets it had no room for since it was made.
    pub(crate) dropped: u32,
}

/// What a socket holds, as the system says (SO_MEMINFO).
pub(crate) fn memory(socket: BorrowedFd<'_>) -> io::Result<SocketMemory> {
    // Where it stands among the numbers (SK_MEMINFO_RMEM_ALLOC, SK_MEMINFO_RCVBUF, SK_MEMINFO_DROPS).
    const HELD: usize = 0;
    const ROOM: usize = 1;
    const DROPS: usize = 8;
    let mut numbers = [0_u32; DROPS + 1];
    let mut len = size_of_val(&numbers) as libc::socklen_t;
    // SAFETY: the system writes at most `len` bytes, which is what the array has, of whole numbers, and into `len`
    // how many there are.
    let got = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MEMINFO,
            numbers.as_mut_ptr().cast(),
            &raw mut len,
        )
    };
    Errno::result(got)?;
    Ok(SocketMemory { held: numbers[HELD], room: numbers[ROOM], dropped: numbers[DROPS] })
}

/// A descriptor of a process, which is readable once that has ended (pidfd_open(2)).
///
/// # Errors
///
/// When there is no such process here, or the system is older than Linux 5.3.
pub(crate) fn process(pid: i32) -> io::Result<OwnedFd> {
    // SAFETY: numbers, which the system checks.
    let raw = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    let raw = Errno::result(raw)? as i32;
    // SAFETY: the system has just made this descriptor for this process, and nobody else knows of it.
    Ok(unsafe { OwnedFd::from_raw_fd(raw) })
}

/// Whether the process has more rights than who started it, as the system said when it began (AT_SECURE).
pub(crate) fn is_secure() -> bool {
    // SAFETY: a number goes in and a number comes out; the vector that it reads never changes.
    let secure = unsafe { libc::getauxval(libc::AT_SECURE) };
    secure != 0
}

/// Keeps from programs that this process will run all descriptors but the standard ones.
pub(crate) fn hand_nothing_on() -> io::Result<()> {
    const FIRST: libc::c_uint = 3;
    let (last, flags) = (libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC);
    // SAFETY: numbers, which the system checks. Nothing is closed before this process runs another program.
    let marked = unsafe { libc::syscall(libc::SYS_close_range, FIRST, last, flags) };
    match Errno::result(marked) {
        Ok(_) => Ok(()),
        // Linux before 5.11.
        Err(Errno::ENOSYS | Errno::EINVAL) => {
            for entry in std::fs::read_dir("/proc/self/fd")? {
                let number = entry?.file_name().to_str().and_then(|name| name.parse::<i32>().ok());
                let Some(number) = number.filter(|number| *number >= FIRST as i32) else {
                    continue;
                };
                // SAFETY: as above: a flag of the descriptor changes, if there is such a one.
                unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) };
            }
            Ok(())
        }
        Err(error) => Err(error.into()),
    }
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
    // `activation::sockets` comes here once.
    let descriptor = unsafe { OwnedFd::from_raw_fd(number) };
    let flags = nix::fcntl::FcntlArg::F_SETFD(nix::fcntl::FdFlag::FD_CLOEXEC);
    nix::fcntl::fcntl(&descriptor, flags)?;
    Ok(descriptor)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, pipe};
    use std::os::fd::AsFd;

    use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};

    use super::*;

    #[test]
    fn of_too_many_descriptors_none_is_kept() {
        let (ours, theirs) =
            socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)
                .unwrap();
        let (mut reader, writer) = pipe().unwrap();
        let mut buffer = [0; 16];
        let all = vec![writer.as_fd(); MAX_DESCRIPTORS];
        send_with(theirs.as_fd(), b"all", &all).unwrap();
        let (len, came) = receive_with(ours.as_fd(), &mut buffer).unwrap();
        assert_eq!((&buffer[..len], came.len()), (&b"all"[..], MAX_DESCRIPTORS));
        drop(came);
        send_with(theirs.as_fd(), b"more", &vec![writer.as_fd(); 253]).unwrap();
        let error = receive_with(ours.as_fd(), &mut buffer).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        send_with(theirs.as_fd(), &[0; 17], &[writer.as_fd()]).unwrap();
        assert!(receive_with(ours.as_fd(), &mut buffer).is_err(), "it is too long");
        // The end comes when nobody has the other one any more.
        drop(writer);
        nix::fcntl::fcntl(&reader, nix::fcntl::FcntlArg::F_SETFL(nix::fcntl::OFlag::O_NONBLOCK))
            .unwrap();
        assert_eq!(reader.read(&mut buffer).unwrap(), 0, "a descriptor was kept");
    }
}
