//! Packets with a Differentiated Services field of the application's (RFC 2474): quinn-udp leaves
//! no bits of it to anybody but ECN.

use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU8, Ordering};

use nix::libc;
use nix::sys::socket::{ControlMessage, MsgFlags, SockaddrStorage, getsockopt, sendmsg, sockopt};

/// The bits that ECN has of the field (RFC 3168, Section 5).
const ECN: u8 = 0b11;

/// What the packets of a socket carry in their Differentiated Services field.
#[derive(Debug, Default)]
pub(super) struct Classes {
    v4: AtomicU8,
    v6: AtomicU8,
}

impl Classes {
    /// Takes over what the socket's options say.
    pub(super) fn read(&self, io: &std::net::UdpSocket, is_v6: bool) -> io::Result<()> {
        let class = |value: i32| value.to_le_bytes()[0] & !ECN;
        // Sockets for IPv6 have both: they send IPv4 packets too.
        self.v4.store(class(getsockopt(io, sockopt::Ipv4Tos)?), Ordering::Relaxed);
        if is_v6 {
            self.v6.store(class(getsockopt(io, sockopt::Ipv6TClass)?), Ordering::Relaxed);
        }
        Ok(())
    }

    /// The class of packets to `destination`, as the socket writes it, in the six upper bits;
    /// `None` if it is the usual one.
    pub(super) fn of(&self, destination: SocketAddr) -> Option<u8> {
        let class = if is_v4(destination) { &self.v4 } else { &self.v6 };
        Some(class.load(Ordering::Relaxed)).filter(|class| *class != 0)
    }
}

/// True for packets of IPv4, whatever the socket.
fn is_v4(address: SocketAddr) -> bool {
    address.ip().to_canonical().is_ipv4()
}

/// Sends as quinn-udp does, with `class` beside the ECN mark.
pub(super) fn send(
    io: &std::net::UdpSocket,
    transmit: &quinn_udp::Transmit<'_>,
    class: u8,
) -> io::Result<()> {
    let field = class | transmit.ecn.map_or(0, |ecn| ecn as u8);
    let (wide, v4_source, v6_source, segment);
    let mut control = Vec::with_capacity(3);
    if is_v4(transmit.destination) {
        control.push(ControlMessage::Ipv4Tos(&field));
    } else {
        wide = i32::from(field);
        control.push(ControlMessage::Ipv6TClass(&wide));
    }
    match transmit.src_ip {
        Some(IpAddr::V4(ip)) => {
            v4_source = libc::in_pktinfo {
                ipi_ifindex: 0,
                ipi_spec_dst: libc::in_addr { s_addr: u32::from_ne_bytes(ip.octets()) },
                ipi_addr: libc::in_addr { s_addr: 0 },
            };
            control.push(ControlMessage::Ipv4PacketInfo(&v4_source));
        }
        Some(IpAddr::V6(ip)) => {
            v6_source = libc::in6_pktinfo {
                ipi6_addr: libc::in6_addr { s6_addr: ip.octets() },
                ipi6_ifindex: 0,
            };
            control.push(ControlMessage::Ipv6PacketInfo(&v6_source));
        }
        None => {}
    }
    if let Some(size) = transmit.segment_size {
        segment = u16::try_from(size).map_err(|_| io::ErrorKind::InvalidInput)?;
        control.push(ControlMessage::UdpGsoSegments(&segment));
    }
    let to = SockaddrStorage::from(transmit.destination);
    let parts = [IoSlice::new(transmit.contents)];
    sendmsg(io.as_raw_fd(), &parts, &control, MsgFlags::MSG_DONTWAIT, Some(&to))?;
    Ok(())
}
