//! System calls, without the functions that this library stands before.

use std::ffi::{c_int, c_long, c_void};
use std::mem::{MaybeUninit, offset_of, size_of, zeroed};

use libc::{iovec, msghdr, sockaddr_un, socklen_t, syscall};

/// Octets that stand before the name in an address.
const PATH: usize = offset_of!(sockaddr_un, sun_path);
/// Where one descriptor comes, and what stands before it.
const CONTROL: usize = 32;

/// A name of a local socket.
pub(super) struct Name {
    octets: [u8; size_of::<sockaddr_un>()],
    len: usize,
}

impl Name {
    /// The address of a name in the abstract namespace.
    pub(super) fn of_abstract(name: &[u8]) -> Self {
        let mut octets = [0; size_of::<sockaddr_un>()];
        let family = (libc::AF_UNIX as libc::sa_family_t).to_ne_bytes();
        octets[..family.len()].copy_from_slice(&family);
        let name = name.get(..octets.len() - PATH - 1).unwrap_or(name);
        octets[PATH + 1..][..name.len()].copy_from_slice(name);
        Self { octets, len: PATH + 1 + name.len() }
    }

    /// The name in the abstract namespace, without the zero in front. None if it is another address.
    pub(super) fn abstract_name(&self) -> Option<&[u8]> {
        let [low, high, ..] = self.octets;
        let is_local = libc::sa_family_t::from_ne_bytes([low, high]) == libc::AF_UNIX as u16;
        is_local.then(|| self.octets.get(PATH..self.len))??.strip_prefix(&[0])
    }

    /// Whether it is that of a local socket that has no name.
    pub(super) fn is_none(&self) -> bool {
        let [low, high, ..] = self.octets;
        let is_local = libc::sa_family_t::from_ne_bytes([low, high]) == libc::AF_UNIX as u16;
        is_local && self.len <= PATH
    }
}

pub(super) fn errno() -> c_int {
    // SAFETY: the function returns the address of a variable of this thread.
    unsafe { *libc::__errno_location() }
}

fn checked(answer: c_long) -> Result<c_long, c_int> {
    if answer < 0 { Err(errno()) } else { Ok(answer) }
}

fn name(call: c_long, fd: c_int) -> Option<Name> {
    let mut name = Name { octets: [0; size_of::<sockaddr_un>()], len: 0 };
    let mut len = name.octets.len() as socklen_t;
    let before = errno();
    // SAFETY: the kernel writes at most as many octets as there are, and how long it is.
    let got = unsafe { syscall(call, fd, name.octets.as_mut_ptr(), &raw mut len) };
    crate::next::set_errno(before);
    name.len = (len as usize).min(name.octets.len());
    (got == 0).then_some(name)
}

/// The name of a socket's other end.
pub(super) fn peer_name(fd: c_int) -> Option<Name> {
    name(libc::SYS_getpeername, fd)
}

/// The name of a socket.
pub(super) fn own_name(fd: c_int) -> Option<Name> {
    name(libc::SYS_getsockname, fd)
}

pub(super) fn bind(fd: c_int, name: &Name) -> Result<(), c_int> {
    // SAFETY: the kernel reads as many octets as it is told.
    checked(unsafe { syscall(libc::SYS_bind, fd, name.octets.as_ptr(), name.len) }).map(drop)
}

/// A connection to a place that takes requests.
pub(super) fn connect(to: &Name) -> Result<c_int, c_int> {
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
    // SAFETY: numbers.
    let fd = checked(unsafe { syscall(libc::SYS_socket, libc::AF_UNIX, kind, 0) })? as c_int;
    loop {
        // SAFETY: the kernel reads as many octets as it is told.
        match checked(unsafe { syscall(libc::SYS_connect, fd, to.octets.as_ptr(), to.len) }) {
            Ok(_) => return Ok(fd),
            Err(libc::EINTR) => {}
            Err(error) => {
                close(fd);
                return Err(error);
            }
        }
    }
}

pub(super) fn close(fd: c_int) {
    // SAFETY: a number of this library's.
    unsafe { syscall(libc::SYS_close, fd) };
}

/// Sends without a signal.
pub(super) fn send(fd: c_int, octets: &[u8], flags: c_int) -> Result<usize, c_int> {
    let (none, flags) = (0usize, flags | libc::MSG_NOSIGNAL);
    // SAFETY: the kernel reads a slice of that length.
    let sent =
        unsafe { syscall(libc::SYS_sendto, fd, octets.as_ptr(), octets.len(), flags, none, none) };
    checked(sent).map(|sent| sent as usize)
}

/// Receives a message, and the descriptor that may come with it. The descriptor is -1 if there was no room for one.
pub(super) fn receive(
    fd: c_int,
    octets: &mut [u8],
    flags: c_int,
) -> Result<(usize, Option<c_int>), c_int> {
    #[repr(C, align(8))]
    struct Control([u8; CONTROL]);
    let mut control = Control([0; CONTROL]);
    let mut part = iovec { iov_base: octets.as_mut_ptr().cast::<c_void>(), iov_len: octets.len() };
    // SAFETY: zeros are a message without anything.
    let mut message: msghdr = unsafe { zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    // SAFETY: a computation with a number.
    message.msg_controllen = unsafe { libc::CMSG_SPACE(size_of::<c_int>() as u32) } as usize;
    // SAFETY: the message has the places of this frame.
    let got = checked(unsafe { syscall(libc::SYS_recvmsg, fd, &raw mut message, flags) })?;
    let mut with = (message.msg_flags & libc::MSG_CTRUNC != 0).then_some(-1);
    // SAFETY: the kernel has filled the message, which still has these places.
    if let Some(header) = unsafe { libc::CMSG_FIRSTHDR(&raw const message).as_ref() }
        && (header.cmsg_level, header.cmsg_type) == (libc::SOL_SOCKET, libc::SCM_RIGHTS)
        // SAFETY: a computation with a number.
        && header.cmsg_len >= unsafe { libc::CMSG_LEN(size_of::<c_int>() as u32) } as usize
    {
        // SAFETY: its length says that a descriptor is there.
        with = Some(unsafe { libc::CMSG_DATA(header).cast::<c_int>().read_unaligned() });
    }
    Ok((got as usize, with))
}

fn fcntl(fd: c_int, command: c_int, argument: c_int) -> Result<c_int, c_int> {
    // SAFETY: numbers.
    checked(unsafe { syscall(libc::SYS_fcntl, fd, command, argument) }).map(|value| value as c_int)
}

pub(super) fn is_nonblocking(fd: c_int) -> bool {
    fcntl(fd, libc::F_GETFL, 0).is_ok_and(|flags| flags & libc::O_NONBLOCK != 0)
}

pub(super) fn set_nonblocking(fd: c_int) {
    if let Ok(flags) = fcntl(fd, libc::F_GETFL, 0) {
        let _ = fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK);
    }
}

pub(super) fn keep_at_exec(fd: c_int) {
    let _ = fcntl(fd, libc::F_SETFD, 0);
}

/// The lowest free number from one on, for a descriptor that has another one.
pub(super) fn lower(fd: c_int, from: c_int) -> c_int {
    match fcntl(fd, libc::F_DUPFD_CLOEXEC, from) {
        Ok(lower) if lower < fd => {
            close(fd);
            lower
        }
        Ok(other) => {
            close(other);
            fd
        }
        Err(_) => fd,
    }
}

fn events(fd: c_int, wanted: i16) -> i16 {
    let mut poll = libc::pollfd { fd, events: wanted, revents: 0 };
    let now = MaybeUninit::<libc::timespec>::zeroed();
    let before = errno();
    // SAFETY: the kernel reads and writes one structure, and reads the time.
    unsafe { syscall(libc::SYS_ppoll, &raw mut poll, 1usize, now.as_ptr(), 0usize, 0usize) };
    crate::next::set_errno(before);
    poll.revents
}

/// Waits, or until a signal comes.
pub(super) fn pause(time: std::time::Duration) {
    let time = libc::timespec {
        tv_sec: time.as_secs().cast_signed(),
        tv_nsec: time.subsec_nanos().into(),
    };
    // SAFETY: there are no descriptors, and the kernel reads the time, of which this is a copy.
    unsafe { syscall(libc::SYS_ppoll, 0usize, 0usize, &raw const time, 0usize, 0usize) };
}

pub(super) fn is_hung_up(fd: c_int) -> bool {
    events(fd, 0) & libc::POLLHUP != 0
}

pub(super) fn is_writable(fd: c_int) -> bool {
    events(fd, libc::POLLOUT) & libc::POLLOUT != 0
}
