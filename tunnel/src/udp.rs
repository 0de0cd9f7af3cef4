//! Sockets with outer IP fields per datagram: of UDP with segmentation and receive offload, or raw.
//!
//! A tunnel has sockets of its own and not those of `quicket-udp`: that crate sends through quinn-udp,
//! which sets neither TTL nor DSCP of a datagram, and has no sockets without UDP. The trait
//! [`Datagrams`] is all that others need of a socket.

use std::io::{self, IoSlice, IoSliceMut};
use std::net::{IpAddr, SocketAddr, SocketAddrV6, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::libc;
use nix::sys::socket::{
    AddressFamily, ControlMessage, ControlMessageOwned, MsgFlags, SockFlag, SockType,
    SockaddrStorage, bind, connect, getsockopt, recvmsg, sendmsg, setsockopt, socket, sockopt,
};
use nix::{getsockopt_impl, setsockopt_impl, sockopt_impl};

use quicket_gue::encapsulation_limit_header;

use crate::config::FlowLabel;
use crate::inbound::Outer;
use crate::sys;

/// Bytes of a receive buffer: the longest train that the system hands over.
pub(crate) const BUFFER: usize = 65_535;
/// Bytes of what the system keeps of a socket in each direction.
const BUFFERS: usize = 4 << 20;

/// Options without a name in libc (linux/udp.h, linux/in6.h).
const UDP_NO_CHECK6_TX: libc::c_int = 101;
const UDP_NO_CHECK6_RX: libc::c_int = 102;
const IPV6_FLOWINFO_SEND: libc::c_int = 33;

sockopt_impl!(MtuV6, GetOnly, libc::IPPROTO_IPV6, libc::IPV6_MTU, libc::c_int);
sockopt_impl!(MtuDiscoverV4, SetOnly, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::c_int);
sockopt_impl!(MtuDiscoverV6, SetOnly, libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::c_int);
sockopt_impl!(FlowinfoSend, SetOnly, libc::IPPROTO_IPV6, IPV6_FLOWINFO_SEND, bool);
sockopt_impl!(NoCheckV4, SetOnly, libc::SOL_SOCKET, libc::SO_NO_CHECK, bool);
sockopt_impl!(NoCheckV6Sent, SetOnly, libc::IPPROTO_UDP, UDP_NO_CHECK6_TX, bool);
sockopt_impl!(NoCheckV6Received, SetOnly, libc::IPPROTO_UDP, UDP_NO_CHECK6_RX, bool);

/// Datagrams to be sent in one call, all with these outer fields.
#[derive(Debug)]
pub(crate) struct Burst<'a> {
    pub(crate) parts: &'a [IoSlice<'a>],
    /// Bytes of each datagram but the last, if there are several.
    pub(crate) segment: Option<u16>,
    pub(crate) tos: u8,
    pub(crate) ttl: u8,
    /// Where to, if not to the address that the socket is connected to; with the flow label.
    pub(crate) to: Option<SockaddrStorage>,
}

/// A train of received datagrams.
#[derive(Debug)]
pub(crate) struct Train {
    pub(crate) outer: Outer,
    /// Where the first begins: raw sockets hand over the header of IPv4.
    pub(crate) start: usize,
    /// Where the last one ends.
    pub(crate) bytes: usize,
    /// Bytes of each datagram but the last.
    pub(crate) stride: usize,
}

/// Where datagrams come from and go to.
pub(crate) trait Datagrams {
    /// Sends to the address that the socket is connected to, or to another one.
    fn send(&self, burst: &Burst<'_>) -> io::Result<()>;
    /// Receives a train; `WouldBlock` if nothing is there.
    fn receive(&self, buffer: &mut [u8], control: &mut [u8]) -> io::Result<Train>;
    /// MTU of the path to the address that the socket is connected to, in bytes.
    fn path_mtu(&self) -> io::Result<u16>;
}

/// How a socket is made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Options<'a> {
    /// The protocol of a raw socket, which has no ports; UDP without.
    pub(crate) protocol: Option<u8>,
    pub(crate) local: SocketAddr,
    pub(crate) remote: Option<SocketAddr>,
    pub(crate) dev: Option<&'a str>,
    /// Whether sent datagrams have a checksum.
    pub(crate) checksum: bool,
    /// Whether outer packets may not be fragmented.
    pub(crate) dont_fragment: bool,
    /// The encapsulation limit of outer packets.
    pub(crate) limit: Option<u8>,
    /// Their flow label.
    pub(crate) label: FlowLabel,
    /// Their mark.
    pub(crate) mark: Option<u32>,
    /// Whether it only sends.
    pub(crate) deaf: bool,
}

/// A socket of the system.
#[derive(Debug)]
pub(crate) struct Socket {
    fd: OwnedFd,
    v6: bool,
    raw: bool,
    port: u16,
    /// What it is connected to.
    remote: Option<SockaddrStorage>,
}

impl Socket {
    pub(crate) fn open(options: Options<'_>) -> io::Result<Self> {
        let v6 = options.local.is_ipv6();
        let raw = options.protocol.is_some();
        let fd = match options.protocol {
            Some(protocol) => sys::raw_socket(v6, protocol)?,
            None => {
                let family = if v6 { AddressFamily::Inet6 } else { AddressFamily::Inet };
                let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
                let fd = socket(family, SockType::Datagram, flags, None)?;
                setsockopt(&fd, sockopt::ReusePort, &true)?;
                // Trains are faster; without them it works as well.
                let _ = setsockopt(&fd, sockopt::UdpGroSegment, &true);
                fd
            }
        };
        if v6 {
            if !raw {
                setsockopt(&fd, sockopt::Ipv6V6Only, &true)?;
            }
            setsockopt(&fd, sockopt::Ipv6RecvTClass, &true)?;
            setsockopt(&fd, sockopt::Ipv6RecvPacketInfo, &true)?;
        } else {
            setsockopt(&fd, sockopt::IpRecvTos, &true)?;
            setsockopt(&fd, sockopt::Ipv4PacketInfo, &true)?;
        }
        if let Some(mark) = options.mark {
            setsockopt(&fd, sockopt::Mark, &mark)?;
        }
        if options.label == FlowLabel::Inherit {
            setsockopt(&fd, FlowinfoSend, &true)?;
        }
        if let Some(dev) = options.dev {
            setsockopt(&fd, sockopt::BindToDevice, &dev.into())?;
        }
        // Room for what arrives while another queue has its turn; more than the system's limit
        // takes a right that not everybody has.
        let _ = setsockopt(&fd, sockopt::SndBufForce, &BUFFERS);
        let _ = match options.deaf {
            true => setsockopt(&fd, sockopt::RcvBuf, &1),
            false => setsockopt(&fd, sockopt::RcvBufForce, &BUFFERS),
        };
        let mut this = Self { fd, v6, raw, port: 0, remote: None };
        this.set_fragmentation(options.dont_fragment)?;
        if !raw {
            this.set_checksum(options.checksum)?;
        }
        if let Some(limit) = options.limit {
            this.set_limit(limit)?;
        }
        bind(this.fd.as_raw_fd(), &SockaddrStorage::from(options.local))?;
        this.remote = match (options.remote, options.label) {
            (Some(SocketAddr::V6(remote)), FlowLabel::Fixed(label)) => {
                Some(this.with_label(remote, label)?)
            }
            (remote, _) => remote.map(SockaddrStorage::from),
        };
        this.connect()?;
        if raw {
            return Ok(this);
        }
        let bound = UdpSocket::from(this.fd.try_clone()?).local_addr()?;
        Ok(Self { port: bound.port(), ..this })
    }

    /// The port that it is bound to; 0 if it is raw.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Connects, and so has the system look for the route.
    fn connect(&self) -> io::Result<()> {
        match &self.remote {
            Some(remote) => Ok(connect(self.fd.as_raw_fd(), remote)?),
            None => Ok(()),
        }
    }

    /// The address with a flow label of our choice. The system lends it, to whoever asks.
    fn with_label(&self, mut remote: SocketAddrV6, label: u32) -> io::Result<SockaddrStorage> {
        sys::lease_flow_label(self.fd.as_fd(), *remote.ip(), label)?;
        setsockopt(&self.fd, FlowinfoSend, &true)?;
        remote.set_flowinfo(label.to_be());
        Ok(SockaddrStorage::from(remote))
    }

    /// Sets the encapsulation limit of what is sent from now on. Takes CAP_NET_RAW.
    pub(crate) fn set_limit(&self, limit: u8) -> io::Result<()> {
        sys::set_destination_options(self.fd.as_fd(), &encapsulation_limit_header(limit))
    }

    pub(crate) fn set_fragmentation(&self, dont_fragment: bool) -> io::Result<()> {
        // IPV6_PMTUDISC_DO and DONT have the same numbers.
        let value = if dont_fragment { libc::IP_PMTUDISC_DO } else { libc::IP_PMTUDISC_DONT };
        match self.v6 {
            true => setsockopt(&self.fd, MtuDiscoverV6, &value)?,
            false => setsockopt(&self.fd, MtuDiscoverV4, &value)?,
        }
        Ok(())
    }

    /// Received datagrams without a checksum are for a tunnel to judge: over IPv6 they are taken
    /// only where the tunnel sends such itself (RFC 6935, Section 5).
    fn set_checksum(&self, checksum: bool) -> io::Result<()> {
        let off = !checksum;
        if self.v6 {
            setsockopt(&self.fd, NoCheckV6Sent, &off)?;
            setsockopt(&self.fd, NoCheckV6Received, &off)?;
        } else {
            setsockopt(&self.fd, NoCheckV4, &off)?;
        }
        Ok(())
    }
}

impl Datagrams for Socket {
    fn send(&self, burst: &Burst<'_>) -> io::Result<()> {
        let (tos, class, ttl) = (burst.tos, i32::from(burst.tos), i32::from(burst.ttl));
        let segment = burst.segment.unwrap_or(0);
        let outer = if self.v6 {
            [ControlMessage::Ipv6TClass(&class), ControlMessage::Ipv6HopLimit(&ttl)]
        } else {
            [ControlMessage::Ipv4Tos(&tos), ControlMessage::Ipv4Ttl(&ttl)]
        };
        let all = [outer[0], outer[1], ControlMessage::UdpGsoSegments(&segment)];
        let messages = if burst.segment.is_some() { &all[..] } else { &all[..2] };
        let flags = MsgFlags::MSG_NOSIGNAL;
        sendmsg(self.fd.as_raw_fd(), burst.parts, messages, flags, burst.to.as_ref())?;
        Ok(())
    }

    fn receive(&self, buffer: &mut [u8], control: &mut [u8]) -> io::Result<Train> {
        let mut parts = [IoSliceMut::new(buffer)];
        let fd = self.fd.as_raw_fd();
        let message = recvmsg::<SockaddrStorage>(fd, &mut parts, Some(control), MsgFlags::empty())?;
        let source = message.address.as_ref().and_then(ip_of);
        let source = source.ok_or_else(|| io::Error::other("a datagram without a source"))?;
        let mut train = Train {
            outer: Outer { source, destination: None, tos: 0 },
            start: 0,
            bytes: message.bytes,
            stride: message.bytes,
        };
        for message in message.cmsgs()? {
            match message {
                ControlMessageOwned::UdpGroSegments(stride) if stride > 0 => {
                    train.stride = stride as usize;
                }
                ControlMessageOwned::Ipv4Tos(tos) => train.outer.tos = tos,
                ControlMessageOwned::Ipv6TClass(class) => train.outer.tos = class as u8,
                ControlMessageOwned::Ipv4PacketInfo(info) => {
                    let address = u32::from_be(info.ipi_addr.s_addr);
                    train.outer.destination = Some(IpAddr::V4(address.into()));
                }
                ControlMessageOwned::Ipv6PacketInfo(info) => {
                    train.outer.destination = Some(IpAddr::V6(info.ipi6_addr.s6_addr.into()));
                }
                _ => {}
            }
        }
        if self.raw && !self.v6 {
            let words = buffer.first().map_or(0, |first| first & 0xf);
            train.start = train.bytes.min(usize::from(words) * 4);
        }
        Ok(train)
    }

    fn path_mtu(&self) -> io::Result<u16> {
        // Otherwise the system tells what it found when the socket last sent: if that route has gone
        // since, the MTU of a device that stands in its place, 68.
        self.connect()?;
        let mtu = match self.v6 {
            true => getsockopt(&self.fd, MtuV6)?,
            false => getsockopt(&self.fd, sockopt::IpMtu)?,
        };
        Ok(u16::try_from(mtu).unwrap_or(u16::MAX))
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn ip_of(address: &SockaddrStorage) -> Option<IpAddr> {
    let v4 = || address.as_sockaddr_in().map(|address| IpAddr::V4(address.ip()));
    v4().or_else(|| address.as_sockaddr_in6().map(|address| IpAddr::V6(address.ip())))
}

/// Room for the control messages of a train.
pub(crate) fn control_buffer() -> Vec<u8> {
    nix::cmsg_space!(i32, i32, libc::in6_pktinfo, [libc::timespec; 2])
}
