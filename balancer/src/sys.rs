//! Calls of the system that no library has in safe form: many messages at once, each with a size of
//! segments and an ECN mark of its own.
#![allow(unsafe_code, reason = "recvmmsg and sendmmsg take pointers")]

use std::io::{self, IoSlice};
use std::mem::{MaybeUninit, zeroed};
use std::net::{SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

use nix::errno::Errno;
use nix::libc;
use nix::sys::socket::{SockaddrLike, SockaddrStorage};

/// Messages of one call.
pub(crate) const BATCH: usize = 32;
/// Bytes for a train of datagrams: the longest that the system hands over.
const BUFFER: usize = 65_535;
/// Bytes for control messages, in words: three numbers take 72.
const CONTROL: usize = 16;

/// Datagrams of one client that came together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Train {
    pub(crate) client: SocketAddr,
    /// Where it begins in the buffer.
    pub(crate) start: usize,
    pub(crate) len: usize,
    /// Bytes of each datagram but the last.
    pub(crate) stride: usize,
    /// DSCP and ECN.
    pub(crate) tos: u8,
    pub(crate) ttl: u8,
}

/// Where trains are received to.
pub(crate) struct Arrivals {
    bytes: Vec<u8>,
    control: Vec<[u64; CONTROL]>,
    trains: Vec<Train>,
}

impl Arrivals {
    pub(crate) fn new() -> Self {
        Self {
            bytes: vec![0; BATCH * BUFFER],
            control: vec![[0; CONTROL]; BATCH],
            trains: Vec::with_capacity(BATCH),
        }
    }

    pub(crate) fn trains(&self) -> &[Train] {
        &self.trains
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Receives what is there, without waiting; `WouldBlock` if nothing is.
    pub(crate) fn receive(&mut self, socket: BorrowedFd<'_>) -> io::Result<()> {
        self.trains.clear();
        // SAFETY: all of these are plain numbers and pointers, for which zero is a value.
        let mut names: [libc::sockaddr_storage; BATCH] = unsafe { zeroed() };
        // SAFETY: as above.
        let mut parts: [libc::iovec; BATCH] = unsafe { zeroed() };
        // SAFETY: as above.
        let mut messages: [libc::mmsghdr; BATCH] = unsafe { zeroed() };
        let places = self.bytes.chunks_exact_mut(BUFFER).zip(&mut self.control);
        let all = messages.iter_mut().zip(&mut names).zip(&mut parts).zip(places);
        for (((message, name), part), (buffer, control)) in all {
            part.iov_base = buffer.as_mut_ptr().cast();
            part.iov_len = buffer.len();
            let header = &mut message.msg_hdr;
            header.msg_name = ptr::from_mut(name).cast();
            header.msg_namelen = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
            header.msg_iov = part;
            header.msg_iovlen = 1;
            header.msg_control = control.as_mut_ptr().cast();
            header.msg_controllen = size_of_val(control) as _;
        }
        // SAFETY: there are BATCH messages, whose pointers are to a name, a part, a buffer and room for
        // control messages of their own with their lengths, all of which outlive the call.
        let count = unsafe {
            libc::recvmmsg(
                socket.as_raw_fd(),
                messages.as_mut_ptr(),
                BATCH as libc::c_uint,
                libc::MSG_DONTWAIT as _,
                ptr::null_mut(),
            )
        };
        let count = usize::try_from(count).map_err(|_| io::Error::last_os_error())?;
        for (at, (message, name)) in messages.iter().zip(&names).take(count).enumerate() {
            let Some(client) = address(name) else { continue };
            let len = message.msg_len as usize;
            let mut train =
                Train { client, start: at * BUFFER, len, stride: len.max(1), tos: 0, ttl: 64 };
            read_control(&message.msg_hdr, &mut train);
            self.trains.push(train);
        }
        Ok(())
    }
}

/// Takes from control messages what a train has to tell.
fn read_control(header: &libc::msghdr, train: &mut Train) {
    // SAFETY: the header is one that the system has filled in, and its control buffer is alive.
    let mut next = unsafe { libc::CMSG_FIRSTHDR(header) };
    while !next.is_null() {
        // SAFETY: the macros give headers that lie within the buffer as a whole, aligned as it is.
        let message = unsafe { *next };
        // SAFETY: the data follow the header.
        let data = unsafe { libc::CMSG_DATA(next) };
        let empty = size_of::<libc::cmsghdr>();
        // SAFETY: the system writes at least one octet where the length says so.
        let octet = || unsafe { data.read() };
        let number = || match message.cmsg_len as usize >= empty + size_of::<libc::c_int>() {
            // SAFETY: there is a whole number, by the length.
            true => unsafe { data.cast::<libc::c_int>().read_unaligned() },
            false => 0,
        };
        if message.cmsg_len as usize > empty {
            match (message.cmsg_level, message.cmsg_type) {
                (libc::IPPROTO_IP, libc::IP_TOS) => train.tos = octet(),
                (libc::IPPROTO_IP, libc::IP_TTL) | (libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT) => {
                    train.ttl = number() as u8;
                }
                (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => train.tos = number() as u8,
                (libc::SOL_UDP, libc::UDP_GRO) => {
                    train.stride = usize::try_from(number()).unwrap_or(0).max(1);
                }
                _ => {}
            }
        }
        // SAFETY: as with the first.
        next = unsafe { libc::CMSG_NXTHDR(header, next) };
    }
}

fn address(name: &libc::sockaddr_storage) -> Option<SocketAddr> {
    match libc::c_int::from(name.ss_family) {
        libc::AF_INET => {
            // SAFETY: the family says which address it is, and a storage has room and alignment for it.
            let name = unsafe { &*ptr::from_ref(name).cast::<libc::sockaddr_in>() };
            let ip = u32::from_be(name.sin_addr.s_addr).into();
            Some(SocketAddrV4::new(ip, u16::from_be(name.sin_port)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let name = unsafe { &*ptr::from_ref(name).cast::<libc::sockaddr_in6>() };
            let ip = name.sin6_addr.s6_addr.into();
            Some(SocketAddrV6::new(ip, u16::from_be(name.sin6_port), 0, 0).into())
        }
        _ => None,
    }
}

/// Datagrams that one message carries.
#[derive(Debug)]
pub(crate) struct Message<'a> {
    pub(crate) parts: &'a [IoSlice<'a>],
    pub(crate) to: SocketAddr,
    /// Bytes of each datagram but the last, if there are several.
    pub(crate) segment: Option<u16>,
    /// The outer field.
    pub(crate) tos: u8,
}

/// Sends up to [`BATCH`] messages without waiting; returns how many, or why not even the first.
pub(crate) fn send(socket: BorrowedFd<'_>, batch: &[Message<'_>]) -> Result<usize, Errno> {
    let mut names: [MaybeUninit<SockaddrStorage>; BATCH] = [const { MaybeUninit::uninit() }; BATCH];
    let mut controls = [[0_u64; CONTROL / 2]; BATCH];
    // SAFETY: plain numbers and pointers, for which zero is a value.
    let mut messages: [libc::mmsghdr; BATCH] = unsafe { zeroed() };
    let places = messages.iter_mut().zip(&mut names).zip(&mut controls);
    for (one, ((message, name), control)) in batch.iter().zip(places) {
        let name = name.write(SockaddrStorage::from(one.to));
        let header = &mut message.msg_hdr;
        header.msg_name = name.as_ptr().cast_mut().cast();
        header.msg_namelen = name.len();
        // An `IoSlice` is an iovec; the system only reads.
        header.msg_iov = one.parts.as_ptr().cast_mut().cast();
        header.msg_iovlen = one.parts.len() as _;
        header.msg_control = control.as_mut_ptr().cast();
        header.msg_controllen = size_of_val(control) as _;
        write_control(header, one);
    }
    let count = batch.len().min(BATCH) as libc::c_uint;
    let flags = (libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) as _;
    // SAFETY: `count` messages have been filled in, with pointers to names, parts and control messages that
    // outlive the call, and their lengths.
    let sent = unsafe { libc::sendmmsg(socket.as_raw_fd(), messages.as_mut_ptr(), count, flags) };
    usize::try_from(sent).map_err(|_| Errno::last())
}

/// Writes the outer field and the size of segments, and how long both are.
fn write_control(header: &mut libc::msghdr, one: &Message<'_>) {
    let (level, kind) = match one.to {
        SocketAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_TOS),
        SocketAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_TCLASS),
    };
    let tos = libc::c_int::from(one.tos).to_ne_bytes();
    let segment = one.segment.map(u16::to_ne_bytes);
    let fields = [(level, kind, Some(&tos[..]))];
    let segment = (libc::SOL_UDP, libc::UDP_SEGMENT, segment.as_ref().map(|size| &size[..]));
    let mut used = 0;
    // SAFETY: the control buffer of the header is alive, zeroed, aligned and has room for two fields.
    let mut place = unsafe { libc::CMSG_FIRSTHDR(header) };
    for (level, kind, value) in fields.into_iter().chain([segment]) {
        let Some(value) = value else { continue };
        if place.is_null() {
            break;
        }
        // SAFETY: the place is one that the macros gave, within the buffer and with room for a number
        // behind it.
        unsafe {
            (*place).cmsg_level = level;
            (*place).cmsg_type = kind;
            (*place).cmsg_len = libc::CMSG_LEN(value.len() as libc::c_uint) as _;
            ptr::copy_nonoverlapping(value.as_ptr(), libc::CMSG_DATA(place), value.len());
            used += libc::CMSG_SPACE(value.len() as libc::c_uint) as usize;
            place = libc::CMSG_NXTHDR(header, place);
        }
    }
    header.msg_controllen = used as _;
}
