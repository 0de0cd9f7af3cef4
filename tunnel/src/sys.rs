//! Calls of the system that no library has in safe form: control of TUN devices, raw sockets, and socket
//! options that are structures.
#![allow(unsafe_code, reason = "ioctl and setsockopt take pointers, socket gives a descriptor")]

use std::fs::File;
use std::io;
use std::net::{Ipv6Addr, UdpSocket};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use nix::libc;
use quicket_gue::ENCAPSULATION_LIMIT_LEN;

/// Features of `struct virtio_net_hdr` that the program takes (linux/if_tun.h).
pub(crate) const TUN_F_CSUM: libc::c_int = 0x01;
pub(crate) const TUN_F_TSO4: libc::c_int = 0x02;
pub(crate) const TUN_F_TSO6: libc::c_int = 0x04;
pub(crate) const TUN_F_TSO_ECN: libc::c_int = 0x08;
pub(crate) const TUN_F_USO4: libc::c_int = 0x20;
pub(crate) const TUN_F_USO6: libc::c_int = 0x40;

/// Of linux/in6.h.
const IPV6_FLOWLABEL_MGR: libc::c_int = 32;

/// `struct in6_flowlabel_req` of linux/in6.h.
#[repr(C)]
struct FlowLabelRequest {
    destination: [u8; 16],
    /// In network byte order.
    label: [u8; 4],
    action: u8,
    share: u8,
    flags: u16,
    expires: u16,
    linger: u16,
    pad: u32,
}

/// `struct ifreq` of linux/if.h: a name, and a number of which flags take two bytes and an MTU
/// takes four.
#[repr(C)]
struct Request {
    name: [u8; libc::IFNAMSIZ],
    value: [u8; 4],
    rest: [u8; 20],
}

impl Request {
    fn new(name: &str, value: [u8; 4]) -> Self {
        let mut request = Self { name: [0; libc::IFNAMSIZ], value, rest: [0; 20] };
        for (to, from) in request.name.iter_mut().take(libc::IFNAMSIZ - 1).zip(name.bytes()) {
            *to = from;
        }
        request
    }
}

mod ioctl {
    use nix::libc::c_int;

    // The numbers of linux/if_tun.h say that the arguments are ints; TUNSETIFF takes an ifreq.
    nix::ioctl_readwrite_bad!(
        set_interface,
        nix::request_code_write!(b'T', 202, size_of::<c_int>()),
        super::Request
    );
    nix::ioctl_write_int_bad!(set_persist, nix::request_code_write!(b'T', 203, size_of::<c_int>()));
    nix::ioctl_write_int_bad!(
        set_offload,
        nix::request_code_write!(b'T', 208, size_of::<nix::libc::c_uint>())
    );
    nix::ioctl_readwrite_bad!(mtu, nix::libc::SIOCGIFMTU, super::Request);
    nix::ioctl_readwrite_bad!(set_mtu, nix::libc::SIOCSIFMTU, super::Request);
}

/// A socket for packets of an IP protocol. Takes CAP_NET_RAW.
pub(crate) fn raw_socket(v6: bool, protocol: u8) -> io::Result<OwnedFd> {
    let family = if v6 { libc::AF_INET6 } else { libc::AF_INET };
    let kind = libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: the arguments are numbers.
    let fd = unsafe { libc::socket(family, kind, protocol.into()) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new, open, and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Attaches an open `/dev/net/tun` to a device, which is made if there is none.
pub(crate) fn set_interface(file: &File, name: &str, flags: libc::c_int) -> io::Result<()> {
    let [low, high] = (flags as u16).to_ne_bytes();
    let mut request = Request::new(name, [low, high, 0, 0]);
    // SAFETY: the file is open, and the request is a whole `struct ifreq` (16 + 24 bytes), which
    // TUNSETIFF reads, and into which it writes the name.
    unsafe { ioctl::set_interface(file.as_raw_fd(), &raw mut request) }?;
    Ok(())
}

/// Keeps the device when the program ends, or not.
pub(crate) fn set_persist(file: &File, persist: bool) -> io::Result<()> {
    // SAFETY: the file is open, and the argument is a number.
    unsafe { ioctl::set_persist(file.as_raw_fd(), libc::c_int::from(persist)) }?;
    Ok(())
}

/// Says which super-packets the program takes.
pub(crate) fn set_offload(file: &File, features: libc::c_int) -> io::Result<()> {
    // SAFETY: the file is open, and the argument is a number.
    unsafe { ioctl::set_offload(file.as_raw_fd(), features) }?;
    Ok(())
}

/// The MTU of a device of this network namespace.
pub(crate) fn mtu(any: &UdpSocket, name: &str) -> io::Result<u32> {
    let mut request = Request::new(name, [0; 4]);
    // SAFETY: the socket is open, and the request is a whole `struct ifreq`, into which the number
    // is written.
    unsafe { ioctl::mtu(any.as_raw_fd(), &raw mut request) }?;
    Ok(u32::from_ne_bytes(request.value))
}

/// Sets the MTU of a device of this network namespace.
pub(crate) fn set_mtu(any: &UdpSocket, name: &str, mtu: u16) -> io::Result<()> {
    let mut request = Request::new(name, i32::from(mtu).to_ne_bytes());
    // SAFETY: the socket is open, and the request is a whole `struct ifreq`.
    unsafe { ioctl::set_mtu(any.as_raw_fd(), &raw mut request) }?;
    Ok(())
}

/// Borrows a flow label from the system, for packets to a destination. Others may have it, too.
pub(crate) fn lease_flow_label(
    socket: BorrowedFd<'_>,
    destination: Ipv6Addr,
    label: u32,
) -> io::Result<()> {
    const GET: u8 = 0;
    const SHARED_BY_ANY: u8 = 255;
    const CREATE: u16 = 1;
    let request = FlowLabelRequest {
        destination: destination.octets(),
        label: label.to_be_bytes(),
        action: GET,
        share: SHARED_BY_ANY,
        flags: CREATE,
        expires: 0,
        linger: 0,
        pad: 0,
    };
    // SAFETY: the pointer is to a whole `struct in6_flowlabel_req` that lives as long as the call,
    // with its length; a label that is given is not written back.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_IPV6,
            IPV6_FLOWLABEL_MGR,
            (&raw const request).cast(),
            size_of::<FlowLabelRequest>() as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Has a socket put a destination options header into each packet of IPv6.
pub(crate) fn set_destination_options(
    socket: BorrowedFd<'_>,
    header: &[u8; ENCAPSULATION_LIMIT_LEN],
) -> io::Result<()> {
    // SAFETY: the pointer is to bytes that live as long as the call, with their length.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_IPV6,
            libc::IPV6_DSTOPTS,
            header.as_ptr().cast(),
            header.len() as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
