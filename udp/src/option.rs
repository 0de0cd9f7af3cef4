//! Options of UDP sockets beyond those that QUIC needs.

use std::io;
use std::mem::discriminant;

use nix::sys::socket::{getsockopt, setsockopt, sockopt};
use socket2::{Domain, SockRef};

/// An option of the UDP sockets of an endpoint, as socket(7), ip(7) and ipv6(7) describe it. Those of a
/// version of IP say nothing to sockets of the other.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum UdpOption {
    /// The interface that packets come from and go to (SO_BINDTODEVICE); any if it is empty.
    Device(Vec<u8>),
    /// The mark of packets, for routing and filters (SO_MARK); needs CAP_NET_ADMIN.
    Mark(u32),
    /// The priority of packets in the queues of this host (SO_PRIORITY).
    Priority(i32),
    /// Packets go to neighbours only, not through gateways (SO_DONTROUTE).
    DontRoute(bool),
    /// The time to live of IPv4 packets (IP_TTL), 1 to 255.
    Ttl(u32),
    /// The hop limit of IPv6 packets (IPV6_UNICAST_HOPS), 0 to 255.
    HopLimit(u32),
    /// The Differentiated Services field of IPv4 packets (IP_TOS). Its two lower bits are ECN's
    /// and ignored.
    TrafficClassV4(u8),
    /// ... of IPv6 packets, where it is called Traffic Class (IPV6_TCLASS).
    TrafficClassV6(u8),
    /// Addresses that this host does not have yet can be bound (IP_FREEBIND).
    FreebindV4(bool),
    /// ... of IPv6 (IPV6_FREEBIND).
    FreebindV6(bool),
    /// Addresses of others can be bound (IP_TRANSPARENT); needs CAP_NET_ADMIN.
    TransparentV4(bool),
    /// ... of IPv6 (IPV6_TRANSPARENT).
    TransparentV6(bool),
}

impl UdpOption {
    /// True if both are the same option, whatever their values.
    #[must_use]
    pub fn is_kind_of(&self, other: &Self) -> bool {
        discriminant(self) == discriminant(other)
    }

    /// True if it says nothing to sockets of IPv4.
    #[must_use]
    pub const fn is_for_v6(&self) -> bool {
        matches!(
            self,
            Self::HopLimit(_)
                | Self::TrafficClassV6(_)
                | Self::FreebindV6(_)
                | Self::TransparentV6(_)
        )
    }

    /// Sets the option, unless it says nothing to the socket.
    ///
    /// # Errors
    ///
    /// Those of setsockopt(2).
    pub fn set(&self, socket: SockRef<'_>) -> io::Result<()> {
        if self.is_for_v6() && socket.domain()? != Domain::IPV6 {
            return Ok(());
        }
        match self {
            Self::Device(name) => socket.bind_device(Some(&**name).filter(|name| !name.is_empty())),
            Self::Mark(mark) => socket.set_mark(*mark),
            Self::Priority(priority) => {
                setsockopt(&*socket, sockopt::Priority, priority).map_err(io::Error::from)
            }
            Self::DontRoute(on) => {
                setsockopt(&*socket, sockopt::DontRoute, on).map_err(io::Error::from)
            }
            Self::Ttl(hops) => socket.set_ttl_v4(*hops),
            Self::HopLimit(hops) => socket.set_unicast_hops_v6(*hops),
            Self::TrafficClassV4(class) => {
                setsockopt(&*socket, sockopt::Ipv4Tos, &without_ecn(*class))
                    .map_err(io::Error::from)
            }
            Self::TrafficClassV6(class) => {
                setsockopt(&*socket, sockopt::Ipv6TClass, &without_ecn(*class))
                    .map_err(io::Error::from)
            }
            Self::FreebindV4(on) => socket.set_freebind_v4(*on),
            Self::FreebindV6(on) => socket.set_freebind_v6(*on),
            Self::TransparentV4(on) => socket.set_ip_transparent_v4(*on),
            Self::TransparentV6(on) => socket.set_ip_transparent_v6(*on),
        }
    }

    /// Whether a socket has the option with this value, or it says nothing to the socket.
    ///
    /// # Errors
    ///
    /// Those of getsockopt(2).
    pub fn is_set(&self, socket: SockRef<'_>) -> io::Result<bool> {
        if self.is_for_v6() && socket.domain()? != Domain::IPV6 {
            return Ok(true);
        }
        let class = |class: &u8| class & !0b11;
        Ok(match (self, self.get(socket)?) {
            (Self::TrafficClassV4(wanted), Self::TrafficClassV4(had))
            | (Self::TrafficClassV6(wanted), Self::TrafficClassV6(had)) => {
                class(wanted) == class(&had)
            }
            (wanted, had) => *wanted == had,
        })
    }

    /// The same option with the value that a socket has.
    ///
    /// # Errors
    ///
    /// Those of getsockopt(2).
    pub fn get(&self, socket: SockRef<'_>) -> io::Result<Self> {
        Ok(match self {
            Self::Device(_) => Self::Device(socket.device()?.unwrap_or_default()),
            Self::Mark(_) => Self::Mark(socket.mark()?),
            Self::Priority(_) => Self::Priority(getsockopt(&*socket, sockopt::Priority)?),
            Self::DontRoute(_) => Self::DontRoute(getsockopt(&*socket, sockopt::DontRoute)?),
            Self::Ttl(_) => Self::Ttl(socket.ttl_v4()?),
            Self::HopLimit(_) => Self::HopLimit(socket.unicast_hops_v6()?),
            Self::TrafficClassV4(_) => {
                Self::TrafficClassV4(getsockopt(&*socket, sockopt::Ipv4Tos)? as u8)
            }
            Self::TrafficClassV6(_) => {
                Self::TrafficClassV6(getsockopt(&*socket, sockopt::Ipv6TClass)? as u8)
            }
            Self::FreebindV4(_) => Self::FreebindV4(socket.freebind_v4()?),
            Self::FreebindV6(_) => Self::FreebindV6(socket.freebind_v6()?),
            Self::TransparentV4(_) => Self::TransparentV4(socket.ip_transparent_v4()?),
            Self::TransparentV6(_) => Self::TransparentV6(socket.ip_transparent_v6()?),
        })
    }

    /// Has `to` have all options that `from` has. What both have is left alone: some take privileges also
    /// to be set to what they are.
    ///
    /// # Errors
    ///
    /// Those of setsockopt(2).
    pub(crate) fn copy_all(from: SockRef<'_>, to: SockRef<'_>) -> io::Result<()> {
        // IP_TOS sets SO_PRIORITY, too, which therefore comes behind it.
        let all = [
            Self::Device(Vec::new()),
            Self::Mark(0),
            Self::DontRoute(false),
            Self::Ttl(0),
            Self::HopLimit(0),
            Self::TrafficClassV4(0),
            Self::TrafficClassV6(0),
            Self::Priority(0),
            Self::FreebindV4(false),
            Self::FreebindV6(false),
            Self::TransparentV4(false),
            Self::TransparentV6(false),
        ];
        let is_v6 = from.domain()? == Domain::IPV6;
        for option in all.iter().filter(|option| is_v6 || !option.is_for_v6()) {
            // What the system does not know no socket has.
            let Ok(wanted) = option.get(SockRef::from(&*from)) else { continue };
            if option.get(SockRef::from(&*to))? != wanted {
                wanted.set(SockRef::from(&*to))?;
            }
        }
        Ok(())
    }

    /// Puts the option among others, in the place of one of its kind.
    pub fn put_into(self, options: &mut Vec<Self>) {
        options.retain(|other| !other.is_kind_of(&self));
        options.push(self);
    }
}

/// The two lower bits are of each packet (RFC 3168, Section 5).
fn without_ecn(class: u8) -> i32 {
    i32::from(class & !0b11)
}

#[cfg(test)]
mod tests {
    use socket2::{Socket, Type};

    use super::*;

    #[test]
    fn sockets_have_what_was_set_and_those_of_ipv4_no_hop_limit() {
        let options = [
            UdpOption::Device(b"lo".to_vec()),
            UdpOption::Priority(3),
            UdpOption::DontRoute(true),
            UdpOption::Ttl(7),
            UdpOption::HopLimit(9),
            UdpOption::TrafficClassV4(0xb8),
            UdpOption::TrafficClassV6(0x28),
            UdpOption::FreebindV4(true),
            UdpOption::FreebindV6(true),
        ];
        for domain in [Domain::IPV4, Domain::IPV6] {
            let socket = Socket::new(domain, Type::DGRAM, None).unwrap();
            for option in &options {
                option.set(SockRef::from(&socket)).unwrap();
                assert!(option.is_set(SockRef::from(&socket)).unwrap());
                if domain == Domain::IPV6 || !option.is_for_v6() {
                    assert_eq!(option.get(SockRef::from(&socket)).unwrap(), *option);
                }
            }
        }
        let socket = Socket::new(Domain::IPV4, Type::DGRAM, None).unwrap();
        for option in [UdpOption::Ttl(7), UdpOption::Priority(3), UdpOption::TrafficClassV4(4)] {
            assert!(!option.is_set(SockRef::from(&socket)).unwrap(), "{option:?}");
        }
        // Of these bits only ECN's differ.
        assert!(UdpOption::TrafficClassV4(3).is_set(SockRef::from(&socket)).unwrap());
        let none = UdpOption::Device(b"no such one".to_vec());
        let socket = Socket::new(Domain::IPV4, Type::DGRAM, None).unwrap();
        assert!(none.set(SockRef::from(&socket)).is_err());
    }

    #[test]
    fn a_twin_has_the_address_the_options_and_the_buffers() {
        let options = [UdpOption::Ttl(7), UdpOption::TrafficClassV4(0xb8), UdpOption::Priority(3)];
        let config = crate::UdpConfig {
            receive_buffer: 100_000,
            options: options.to_vec(),
            ..crate::UdpConfig::default()
        };
        let first = crate::UdpSocket::bind("127.0.0.1:0".parse().unwrap(), &config).unwrap();
        assert_eq!(crate::twin(&first).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        first.share_port().unwrap();
        let second = crate::twin(&first).unwrap();
        assert_eq!(second.local_addr().unwrap(), first.local_addr());
        for option in &options {
            assert_eq!(option.get(SockRef::from(&second)).unwrap(), *option);
        }
        let size = |socket: SockRef<'_>| socket.recv_buffer_size().unwrap();
        assert_eq!(size(SockRef::from(&second)), size(SockRef::from(&first)));
        let any = crate::UdpConfig { only_v6: true, ..crate::UdpConfig::default() };
        let first = crate::UdpSocket::bind("[::]:0".parse().unwrap(), &any).unwrap();
        first.share_port().unwrap();
        assert!(SockRef::from(&crate::twin(&first).unwrap()).only_v6().unwrap());
    }

    #[test]
    fn an_option_takes_the_place_of_one_of_its_kind() {
        let mut options = vec![UdpOption::Ttl(1), UdpOption::Priority(2)];
        UdpOption::Ttl(3).put_into(&mut options);
        assert_eq!(options, [UdpOption::Priority(2), UdpOption::Ttl(3)]);
    }
}
