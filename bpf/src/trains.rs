//! A packet socket that sends.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use nix::sys::socket::{AddressFamily, SockFlag, SockProtocol, SockType, socket};

use crate::sys;

/// A packet socket (packet(7)) that sends by a device, and receives nothing. Each packet is a whole frame behind a header of 10
/// octets that says what the device, or else the system, is to do to it: to cut a long segment of TCP, and to write checksums
/// (`struct virtio_net_hdr`, linux/virtio_net.h).
///
/// # Errors
///
/// `PermissionDenied` without CAP_NET_RAW; `NoSuchDevice` (ENODEV) when there is no such device.
pub fn train_socket(device: u32) -> io::Result<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC;
    let socket = socket(AddressFamily::Packet, SockType::Raw, flags, None::<SockProtocol>)?;
    sys::expect_virtual_headers(socket.as_fd())?;
    // Without a protocol it gets nothing.
    sys::bind_packets(socket.as_fd(), 0, device)?;
    Ok(socket)
}
