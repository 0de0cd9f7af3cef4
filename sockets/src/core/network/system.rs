//! What the system would do now: from where it sends, and what its devices are.

use std::cell::{OnceCell, RefCell};
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};

use nix::errno::Errno;
use nix::ifaddrs::getifaddrs;
use nix::net::if_::InterfaceFlags;
use quicket_packets::device::{Labels, Routes};
use quicket_udp::UdpOption;
use socket2::SockRef;

use crate::common::unspecified_for;

/// What the system says when there is no way. Whatever else it says is about this process, and not about the network.
const NO_WAY: [Errno; 7] = [
    Errno::ENETUNREACH,
    Errno::EHOSTUNREACH,
    Errno::ENETDOWN,
    Errno::EADDRNOTAVAIL,
    Errno::EINVAL,
    Errno::EACCES,
    Errno::ENODEV,
];

/// The address of this host from which the kernel would send to `remote` by a socket with these options. Sends
/// nothing.
pub(crate) fn source_towards(remote: SocketAddr, options: &[UdpOption]) -> io::Result<IpAddr> {
    let socket = UdpSocket::bind(unspecified_for(remote))?;
    for option in options {
        option.set(SockRef::from(&socket))?;
    }
    socket.connect(remote)?;
    Ok(socket.local_addr()?.ip())
}

/// The same; none if there is no way. An error says that it is not known.
pub(super) fn way_to(remote: SocketAddr, options: &[UdpOption]) -> io::Result<Option<IpAddr>> {
    match source_towards(remote, options) {
        Ok(source) => Ok(Some(source)),
        Err(error) if is_no_way(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

fn is_no_way(error: &io::Error) -> bool {
    error.raw_os_error().is_some_and(|code| NO_WAY.contains(&Errno::from_raw(code)))
}

/// What rules of routing may ask for of packets that are sent with these options.
pub(super) fn labels(options: &[UdpOption]) -> Labels {
    let mut labels = Labels::default();
    for option in options {
        match option {
            UdpOption::Mark(mark) => labels.mark = *mark,
            UdpOption::TrafficClassV4(class) => labels.tos = *class,
            _ => {}
        }
    }
    labels
}

/// An address of this host. Several devices may have the same one.
#[derive(Debug)]
struct Interface {
    address: IpAddr,
    device: String,
    is_up: bool,
}

/// The devices of this host at one time, read when somebody asks. An error says that something is not known.
#[derive(Debug, Default)]
pub(in crate::core) struct System {
    interfaces: OnceCell<Vec<Interface>>,
    routes: RefCell<Option<Routes>>,
    /// What was asked before: whether the interface of that number leads packets with these labels to that address.
    led: RefCell<HashMap<(usize, IpAddr, Labels), bool>>,
}

impl System {
    fn interfaces(&self) -> io::Result<&[Interface]> {
        if let Some(interfaces) = self.interfaces.get() {
            return Ok(interfaces);
        }
        let found = read()?;
        Ok(self.interfaces.get_or_init(|| found))
    }

    /// False if this host has the address, from which the system would send, only on devices that are down or have no carrier.
    /// An address of no device is one of a whole network that is this host's (a route of type `local`).
    pub(super) fn is_up(&self, address: IpAddr) -> io::Result<bool> {
        let mut having = self.interfaces()?.iter().filter(|it| it.address == address).peekable();
        Ok(having.peek().is_none() || having.any(|it| it.is_up))
    }

    /// The device that has this address, is up, has a carrier, and a route for packets with these labels to `remote`; if one
    /// is named, none but that one.
    pub(super) fn device_towards(
        &self,
        remote: IpAddr,
        address: IpAddr,
        labels: Labels,
        named: Option<&str>,
    ) -> io::Result<Option<&str>> {
        for (number, interface) in self.interfaces()?.iter().enumerate() {
            let is_it = interface.address == address
                && interface.is_up
                && named.is_none_or(|named| named == interface.device);
            if is_it && self.leads(number, interface, remote, labels)? {
                return Ok(Some(&interface.device));
            }
        }
        Ok(None)
    }

    fn leads(
        &self,
        number: usize,
        interface: &Interface,
        remote: IpAddr,
        labels: Labels,
    ) -> io::Result<bool> {
        let key = (number, remote, labels);
        if let Some(leads) = self.led.borrow().get(&key) {
            return Ok(*leads);
        }
        let mut routes = self.routes.borrow_mut();
        let routes = match &mut *routes {
            Some(routes) => routes,
            none => none.insert(Routes::open()?),
        };
        let leads = routes.lead(&interface.device, interface.address, remote, labels)?;
        self.led.borrow_mut().insert(key, leads);
        Ok(leads)
    }
}

fn read() -> io::Result<Vec<Interface>> {
    let needed = InterfaceFlags::IFF_UP | InterfaceFlags::IFF_RUNNING;
    let found = getifaddrs()?.filter_map(|interface| {
        let address = interface.address?;
        let v4 = address.as_sockaddr_in().map(|v4| IpAddr::from(v4.ip()));
        let v6 = || address.as_sockaddr_in6().map(|v6| IpAddr::from(v6.ip()));
        Some(Interface {
            address: v4.or_else(v6)?,
            device: interface.interface_name,
            is_up: interface.flags.contains(needed),
        })
    });
    Ok(found.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_device_leads_to_this_host_and_an_address_of_nobody_nowhere() {
        let remote: SocketAddr = "127.0.0.1:9".parse().unwrap();
        let system = System::default();
        let source = way_to(remote, &[]).unwrap().unwrap();
        assert_eq!(source, remote.ip());
        let device = |to, from, named: Option<&str>| {
            let device = system.device_towards(to, from, Labels::default(), named).unwrap();
            device.map(str::to_owned)
        };
        assert!(system.is_up(source).unwrap());
        assert_eq!(device(remote.ip(), source, None).as_deref(), Some("lo"));
        assert_eq!(device(remote.ip(), source, Some("lo")).as_deref(), Some("lo"));
        assert_eq!(device(remote.ip(), source, Some("another")), None);
        let nobodys = "192.0.2.77".parse().unwrap();
        assert_eq!(device(remote.ip(), nobodys, None), None);
        // A device without a route there takes an address of IPv4 for a neighbour's; that is no way.
        assert_eq!(device(nobodys, source, None), None);
    }

    #[test]
    fn of_two_devices_with_one_address_the_one_that_is_up_counts() {
        let address: IpAddr = "127.0.0.1".parse().unwrap();
        let on = |device: &str, is_up| Interface { address, device: device.to_owned(), is_up };
        let of =
            |interfaces| System { interfaces: OnceCell::from(interfaces), ..System::default() };
        let system = of(vec![on("down", false), on("nothing", true), on("lo", true)]);
        assert!(system.is_up(address).unwrap());
        let device = system.device_towards(address, address, Labels::default(), None).unwrap();
        assert_eq!(device, Some("lo"), "the others are down, or are no devices");
        let system = of(vec![on("lo", false), on("down", false)]);
        assert!(!system.is_up(address).unwrap());
        assert_eq!(system.device_towards(address, address, Labels::default(), None).unwrap(), None);
    }

    #[test]
    fn rules_of_routing_see_marks_and_traffic_classes() {
        let options = [UdpOption::Priority(3), UdpOption::Mark(7), UdpOption::TrafficClassV4(0x28)];
        assert_eq!(labels(&options), Labels { mark: 7, tos: 0x28 });
        assert_eq!(labels(&[]), Labels::default());
    }

    #[test]
    fn what_the_system_says_of_this_process_is_not_said_of_the_network() {
        let error = |code: Errno| io::Error::from_raw_os_error(code as i32);
        assert!([Errno::ENETUNREACH, Errno::EHOSTUNREACH].map(error).iter().all(is_no_way));
        let others = [Errno::EMFILE, Errno::ENFILE, Errno::ENOMEM, Errno::ENOBUFS, Errno::EPERM];
        assert!(!others.map(error).iter().any(is_no_way));
    }
}
