//! Devices of the network namespace, as far as the kernel's program has to know them.

use std::io;

use nix::ifaddrs::getifaddrs;
use nix::libc;
use nix::sys::socket::LinkAddr;
use quicket_bpf::MAX_EGRESS;

use crate::config::XdpMode;

/// The device that datagrams come by, and those that a program there may send by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Its number.
    pub index: u32,
    /// Its address of Ethernet.
    pub mac: [u8; 6],
    /// The numbers of the devices that frames may leave by.
    pub egress: Vec<u32>,
}

impl Device {
    /// Looks a device up. Natively attached programs send by the device itself alone, as drivers of
    /// others may drop their frames without a word; behind the driver, all devices of type Ethernet
    /// will do, up to [`MAX_EGRESS`] with this one.
    ///
    /// # Errors
    /// When there is no such device, or it is not of type Ethernet.
    pub fn find(name: &str, mode: XdpMode) -> io::Result<Self> {
        let all: Vec<_> = getifaddrs()?.collect();
        // Devices without an address of their own, such as tunnels, have entries without one.
        if !all.iter().any(|one| one.interface_name == name) {
            return Err(io::Error::new(io::ErrorKind::NotFound, "there is no such device"));
        }
        let links = all.iter().filter_map(|one| {
            let link = one.address.as_ref()?.as_link_addr()?;
            Some((one.interface_name.as_str(), link, mac_of(link)?))
        });
        let found = links.clone().find(|(other, ..)| *other == name);
        let (_, link, mac) = found.ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::InvalidInput,
                "the device is not of type Ethernet: name the one that its packets come by",
            )
        })?;
        let own = index(link)?;
        let mut egress = vec![own];
        if mode == XdpMode::Generic {
            let others = links.filter_map(|(_, link, _)| index(link).ok()).filter(|at| *at != own);
            egress.extend(others.take(MAX_EGRESS - 1));
        }
        Ok(Self { index: own, mac, egress })
    }
}

fn index(link: &LinkAddr) -> io::Result<u32> {
    u32::try_from(link.ifindex()).map_err(|_| io::ErrorKind::InvalidData.into())
}

/// The address of a device of type Ethernet.
fn mac_of(link: &LinkAddr) -> Option<[u8; 6]> {
    link.addr().filter(|_| link.hatype() == libc::ARPHRD_ETHER && link.halen() == 6)
}

/// Whether the system forwards what comes by the device over IPv4 or IPv6: the program's look at its
/// routes fails otherwise.
///
/// # Errors
/// That it does not, or that this cannot be read.
pub(crate) fn check_forwarding(device: &str, v6: bool) -> io::Result<()> {
    let family = if v6 { "ipv6" } else { "ipv4" };
    let file = format!("/proc/sys/net/{family}/conf/{device}/forwarding");
    let value = std::fs::read_to_string(&file)
        .map_err(|error| io::Error::new(error.kind(), format!("cannot read {file}: {error}")))?;
    if value.trim() != "0" {
        return Ok(());
    }
    // sysctl(8) has dots between words, and slashes for the dots of names.
    let name = device.replace('.', "/");
    Err(io::Error::other(format!(
        "the system does not forward what comes by the device: sysctl \
         net.{family}.conf.{name}.forwarding=1"
    )))
}
