//! Whether a device leads somewhere.

use std::io;
use std::net::IpAddr;

use rustix::io::Errno;

use super::netlink::Netlink;

/// What the system says when there is no route.
const NO_ROUTE: [Errno; 7] = [
    Errno::NETUNREACH,
    Errno::HOSTUNREACH,
    Errno::NETDOWN,
    Errno::INVAL,
    Errno::ACCESS,
    Errno::NODEV,
    Errno::ADDRNOTAVAIL,
];

/// What packets carry besides their addresses that rules of routing may ask for (ip-rule(8)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Labels {
    /// The mark (SO_MARK); 0 if there is none.
    pub mark: u32,
    /// Of packets of IPv4, the Differentiated Services field (IP_TOS).
    pub tos: u8,
}

/// Asks the routing tables of a network namespace.
#[derive(Debug)]
pub struct Routes(Netlink);

impl Routes {
    /// Of the network namespace of this thread.
    ///
    /// # Errors
    ///
    /// When the system has no rtnetlink(7), or no descriptor is left.
    pub fn open() -> io::Result<Self> {
        Netlink::open().map(Self)
    }

    /// True if a route leads packets with these labels from one address to another by this device. A socket that is bound to a device without one
    /// takes every address of IPv4 for a neighbour's; such a guess is no route.
    ///
    /// # Errors
    ///
    /// When it is not known: what netlink(7) says.
    pub fn lead(
        &mut self,
        device: &str,
        from: IpAddr,
        to: IpAddr,
        labels: Labels,
    ) -> io::Result<bool> {
        let found =
            self.0.link(device).and_then(|link| self.0.route_by(link.index, from, to, labels));
        match found {
            Ok(()) => Ok(true),
            Err(error) if is_no_route(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

fn is_no_route(error: &io::Error) -> bool {
    error.raw_os_error().is_some_and(|code| NO_ROUTE.iter().any(|no| no.raw_os_error() == code))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_device_leads_to_itself_only() {
        let mut routes = Routes::open().unwrap();
        let [own, other] = ["127.0.0.1", "192.0.2.77"].map(|text| text.parse().unwrap());
        for labels in [Labels::default(), Labels { mark: 7, tos: 0xbb }] {
            assert!(routes.lead("lo", own, own, labels).unwrap());
            assert!(!routes.lead("lo", own, other, labels).unwrap(), "a guess is no route");
            assert!(!routes.lead("lo", other, own, labels).unwrap(), "nobody has that address");
            assert!(!routes.lead("nothing", own, own, labels).unwrap());
        }
    }
}
