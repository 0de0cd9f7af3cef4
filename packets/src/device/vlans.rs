//! VLANs of attached devices (IEEE 802.1Q), and whom what comes by them may reach.
//!
//! The system has a device for each VLAN that this host is in, above the one that frames come by. An address of such a device is one of
//! that VLAN: nothing reaches it that has come without the tag, or with another one. The system itself is not so strict: it
//! takes what is for any address of its own, by whatever device it comes. But a stack on a port cannot see how a frame has come, nor do
//! firewalls look at it, so that nobody else would keep one network from another.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

use super::netlink::{Addresses, LOOPBACK, Link, Vlan};
use super::outside::key;
use crate::counters::Reason;

/// VLANs of a device that are served; what is of more is the system's.
pub const MAX_VLANS: usize = 256;

/// This host in a VLAN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Member {
    /// The number of the system's device for it.
    pub(super) device: u32,
    pub(super) vlan: Vlan,
    pub(super) mac: [u8; 6],
    pub(super) mtu: u32,
}

/// The VLANs that this host is in, and where its addresses are.
#[derive(Debug, Default)]
pub(crate) struct Vlans {
    /// Those that are served.
    members: HashMap<Vlan, Member>,
    /// The same by their devices.
    of_devices: HashMap<u32, Member>,
    /// Devices of VLANs, be they served or not.
    all: HashSet<u32>,
    /// What each of them has for addresses.
    addresses: HashSet<(u32, u128)>,
    /// The addresses of the loopback device, which are those of no network.
    everywhere: HashSet<u128>,
    /// What none but devices of VLANs have.
    closed: HashSet<u128>,
}

impl Vlans {
    /// Of the devices and addresses that the system has, when those devices are attached.
    pub(super) fn new(links: &[Link], addresses: &Addresses, attached: &[u32]) -> Self {
        let all: HashSet<_> =
            links.iter().filter(|link| link.is_of_vlan()).map(|link| link.index).collect();
        let mut vlans = Self { all, ..Self::default() };
        let mut open = HashSet::new();
        for &(address, device) in &addresses.own {
            let address = (key(address), is_of_each_link(address));
            match device {
                LOOPBACK => drop(vlans.everywhere.insert(address.0)),
                _ if !vlans.all.contains(&device) => drop(open.insert(address.0)),
                _ => {
                    vlans.closed.insert(address.0);
                    if !address.1 {
                        vlans.addresses.insert((device, address.0));
                    }
                }
            }
        }
        vlans
            .closed
            .retain(|address| !open.contains(address) && !vlans.everywhere.contains(address));
        for device in attached {
            vlans.serve(links, *device);
        }
        vlans
    }

    /// Serves those on a device that are up.
    fn serve(&mut self, links: &[Link], below: u32) {
        let members = links.iter().filter(|link| link.is_up).filter_map(|link| {
            let vlan = link.vlan.filter(|vlan| vlan.below == below)?;
            Some(Member { device: link.index, vlan, mac: link.mac, mtu: link.mtu })
        });
        let mut members: Vec<_> = members.collect();
        if members.len() > MAX_VLANS {
            log::warn!("a device has {} VLANs, of which {MAX_VLANS} are served", members.len());
            // The same ones each time.
            members.sort_by_key(|member| member.device);
            members.truncate(MAX_VLANS);
        }
        self.members.extend(members.iter().map(|member| (member.vlan, *member)));
        self.of_devices.extend(members.iter().map(|member| (member.device, *member)));
    }

    /// Serves none any more: they are not known.
    pub(super) fn forget(&mut self) {
        self.members.clear();
        self.of_devices.clear();
    }

    /// Those that are served on a device.
    pub(super) fn on(&self, device: u32) -> Vec<Member> {
        let mut members: Vec<_> =
            self.members.values().copied().filter(|member| member.vlan.below == device).collect();
        members.sort_by_key(|member| member.vlan.number);
        members
    }

    /// The one of a device of the system's, if it is served.
    pub(super) fn of_device(&self, device: u32) -> Option<Member> {
        self.of_devices.get(&device).copied()
    }

    /// Whether that device was one of a VLAN.
    pub(super) fn has_device(&self, device: u32) -> bool {
        self.all.contains(&device)
    }

    /// What comes by an attached device without the tag of a VLAN.
    pub(super) fn untagged(&self, link: &Link) -> Arrival<'_> {
        let way = match link {
            _ if link.is_loopback() => Way::Loopback,
            _ if link.is_of_vlan() => Way::Vlan(link.index),
            _ => Way::Untagged,
        };
        Arrival { vlans: self, way }
    }

    /// What comes by an attached device with the tag of a VLAN.
    ///
    /// # Errors
    ///
    /// When that is not served.
    pub(super) fn tagged(&self, below: u32, number: u16) -> Result<Arrival<'_>, Reason> {
        let member = self.members.get(&Vlan { below, number }).ok_or(Reason::Vlan)?;
        Ok(Arrival { vlans: self, way: Way::Vlan(member.device) })
    }

    /// What the system says to have come by one of its devices, of which it is the attached one, or that of a VLAN on it.
    pub(super) fn by(&self, link: &Link, device: u32) -> Arrival<'_> {
        match self.of_device(device) {
            _ if device == link.index => self.untagged(link),
            Some(member) if member.vlan.below == link.index => {
                Arrival { vlans: self, way: Way::Vlan(device) }
            }
            _ => Arrival { vlans: self, way: Way::Unknown },
        }
    }
}

/// How a frame has come.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// By the loopback device, from this host.
    Loopback,
    /// By a device, without the tag of a VLAN.
    Untagged,
    /// In a VLAN, of which the system has this device.
    Vlan(u32),
    /// By a device that is not known any more.
    Unknown,
}

/// How a frame has come, and whom it may reach.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival<'a> {
    vlans: &'a Vlans,
    way: Way,
}

impl Arrival<'_> {
    /// Lets a frame come to an address.
    ///
    /// # Errors
    ///
    /// When that is in another VLAN, or in none.
    #[inline]
    pub(crate) fn admit(self, destination: u128) -> Result<(), Reason> {
        let Self { vlans: Vlans { addresses, everywhere, closed, .. }, way } = self;
        let may_come = match way {
            Way::Loopback => true,
            // Most hosts have no VLANs.
            Way::Untagged => closed.is_empty() || !closed.contains(&destination),
            Way::Vlan(device) => {
                addresses.contains(&(device, destination)) || everywhere.contains(&destination)
            }
            Way::Unknown => false,
        };
        may_come.then_some(()).ok_or(Reason::Vlan)
    }
}

/// Whether devices have an address each for themselves, so that it says nothing about which of them is meant (RFC 4291, Section
/// 2.5.6): a tuple has no scope.
fn is_of_each_link(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.is_unicast_link_local())
}

#[cfg(test)]
#[path = "vlans_tests.rs"]
mod tests;
