//! Sockets that get copies of the errors of ICMP that come by a device.
//!
//! The system gets all of them as before: a packet socket is shown what goes there (packet(7)). It is one for each version
//! of IP and not one for everything, so that it is not shown what leaves. What is of a VLAN comes to it, too, when the system has taken
//! the tag out and knows by which of its devices it came (`__netif_receive_skb_core` of net/core/dev.c shows it to sockets of the device
//! below). The program lets through what is for this host, by devices that are wanted, whole, and says that it is such an
//! error; whom it is about is for its reader to find out.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::sys::socket::{
    AddressFamily, LinkAddr, SockFlag, SockProtocol, SockType, recvfrom, socket,
};

use crate::classic::{Assembler, Condition, Instruction, Operation, Size};
use crate::sys;

const IPV4: u16 = 0x800;
const IPV6: u16 = 0x86dd;
/// Where the packet begins, behind the header of Ethernet: tags are not in it any more.
const IP: u32 = 14;
/// What kind of packet the system takes it for (SKF_AD_OFF + SKF_AD_PKTTYPE of linux/filter.h): 0 is one for this host.
const KIND: u32 = (-0x1000_i32 + 4) as u32;
/// The number of the device that it came by, last (SKF_AD_OFF + SKF_AD_IFINDEX): of a VLAN, the device of that.
const DEVICE: u32 = (-0x1000_i32 + 8) as u32;
const ICMP: u32 = 1;
const ICMPV6: u32 = 58;
/// Destination unreachable, time exceeded, parameter problem (RFC 792).
const V4_TYPES: [u32; 3] = [3, 11, 12];
/// Destination unreachable, packet too big, time exceeded, parameter problem (RFC 4443).
const V6_TYPES: [u32; 4] = [1, 2, 3, 4];
/// Whole packets.
const ALL: u32 = 0xffff;

/// Devices whose errors a socket gets. A filter has 16 octets for each, and two of them have room in what a socket may have of the
/// kernel's memory (`net.core.optmem_max`, 20 KiB): the one that is there, and the one that takes its place.
const MAX_DEVICES: usize = 512;

/// A socket that gets a copy of each error of ICMP, or of ICMPv6, that comes by a device for this host, with its header of
/// Ethernet. Such with extension headers before ICMPv6 are left out. It never waits.
///
/// # Errors
///
/// `PermissionDenied` without CAP_NET_RAW; `NoSuchDevice` (ENODEV) when there is no such device.
pub fn error_socket(device: u32, is_v4: bool) -> io::Result<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    // Without a protocol it gets nothing yet, so that the program is there first.
    let socket = socket(AddressFamily::Packet, SockType::Raw, flags, None::<SockProtocol>)?;
    hear_errors_of(socket.as_fd(), &[device])?;
    sys::bind_packets(socket.as_fd(), if is_v4 { IPV4 } else { IPV6 }, device)?;
    Ok(socket)
}

/// Has such a socket get those that come by these devices alone: its own one, and those of VLANs on that.
///
/// # Errors
///
/// `InvalidInput` when there are more than 512; what setsockopt(2) says.
pub fn hear_errors_of(socket: BorrowedFd<'_>, devices: &[u32]) -> io::Result<()> {
    if devices.len() > MAX_DEVICES {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let program = filter(devices).ok_or(io::ErrorKind::InvalidInput)?;
    sys::attach_filter(socket, &program)
}

/// Copies the next error of such a socket, cut off if `to` is shorter. Returns how many octets it has there, and by which device it
/// came: of a VLAN, the device of that.
///
/// # Errors
///
/// `WouldBlock` when there are no more; what recvfrom(2) says.
pub fn receive_error(socket: BorrowedFd<'_>, to: &mut [u8]) -> io::Result<(usize, u32)> {
    let (len, from) = recvfrom::<LinkAddr>(socket.as_raw_fd(), to)?;
    let device = from.and_then(|from| u32::try_from(from.ifindex()).ok());
    Ok((len.min(to.len()), device.ok_or(io::ErrorKind::InvalidData)?))
}

fn filter(devices: &[u32]) -> Option<Vec<Instruction>> {
    let mut program = Assembler::default();
    let [v4, v6, take, whole, leave] = std::array::from_fn(|_| program.label());
    program.load(Size::Word, KIND);
    program.jump_unless(Condition::Equal(0), leave);
    program.load(Size::Half, IP - 2);
    program.jump_if(Condition::Equal(IPV4.into()), v4);
    program.jump_if(Condition::Equal(IPV6.into()), v6);
    program.jump(leave);
    program.place(v4);
    program.load(Size::Octet, IP + 9);
    program.jump_unless(Condition::Equal(ICMP), leave);
    // No fragment: neither more to come nor an offset.
    program.load(Size::Half, IP + 6);
    program.jump_if(Condition::AnyOf(0x3fff), leave);
    program.load(Size::Octet, IP);
    program.with(Operation::And, 0xf);
    program.with(Operation::ShiftLeft, 2);
    program.copy_to_x();
    program.load_at_x(Size::Octet, IP);
    for kind in V4_TYPES {
        program.jump_if(Condition::Equal(kind), take);
    }
    program.jump(leave);
    program.place(v6);
    program.load(Size::Octet, IP + 6);
    program.jump_unless(Condition::Equal(ICMPV6), leave);
    program.load(Size::Octet, IP + 40);
    for kind in V6_TYPES {
        program.jump_if(Condition::Equal(kind), take);
    }
    program.jump(leave);
    // Few packets are errors: devices come last, as there may be many.
    program.place(take);
    program.load(Size::Word, DEVICE);
    for device in devices {
        program.jump_if(Condition::Equal(*device), whole);
    }
    program.place(leave);
    program.answer(0);
    program.place(whole);
    program.answer(ALL);
    program.finish()
}
