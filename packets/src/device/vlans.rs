//! VLANs of attached devices (IEEE 802.1Q), and whom what comes by them may reach.
//!
//! The system has a device for each VLAN that this host is in, above the one that frames come by. An address of such a device is one of
//! that VLAN: nothing reaches it that has come without the tag, or with another one. The system itself is not so strict: it
//! takes what is for any address of its own, by whatever device it comes. But a stack on a port cannot see how a frame has come, nor do
//! firewalls look at it, so that nobody else would keep one network from another.
//!
//! A tuple stays when its address goes: so what has been an address of a VLAN is none of another network until it is one of a device
//! there.

use std::collections::{HashMap, HashSet};
use std::io;

use super::netlink::{Addresses, LOOPBACK, Link, Vlan};
use super::outside::key;
use crate::counters::Reason;

/// VLANs of a device that are served; what is of more is the system's.
pub const MAX_VLANS: usize = 256;
/// Addresses of VLANs that nobody has any more and that are remembered. With more of them, what comes without a tag reaches by all devices
/// what the system has outside of VLANs, and nothing else.
const MAX_CLOSED: usize = 4096;
/// Devices above one another that are followed (MAX_NEST_DEV of linux/netdevice.h is 8).
const MAX_ABOVE: usize = 16;

/// A VLAN that is served on a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServedVlan {
    /// From 1 to 4094.
    pub number: u16,
    /// The name of the system's device for it.
    pub device: String,
}

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
    /// Devices of VLANs, be they served or not, and those above them, such as a bridge.
    all: HashSet<u32>,
    /// What each of them has for addresses.
    addresses: HashSet<(u32, u128)>,
    /// The addresses of the loopback device, which are those of no network.
    everywhere: HashSet<u128>,
    /// Those of devices that have nothing to do with VLANs.
    open: HashSet<u128>,
    /// What none but devices of VLANs have, or had.
    closed: HashSet<u128>,
    /// Attached devices that have a VLAN of any kind, or have had one since they were attached.
    below: HashSet<u32>,
    /// There were more addresses of VLANs than are remembered.
    is_full: bool,
    /// What there is now is not known.
    is_unknown: bool,
    /// That there are more VLANs than are served has been said.
    has_warned: bool,
}

impl Vlans {
    /// Follows what the system has for devices and addresses, when those devices are attached.
    pub(super) fn follow(&mut self, links: &[Link], addresses: &Addresses, attached: &[u32]) {
        let Self { closed, below, is_full, has_warned, .. } = std::mem::take(self);
        let all = in_vlans(links);
        *self = Self { all, closed, below, is_full, has_warned, ..Self::default() };
        let there: HashSet<u32> = links.iter().map(|link| link.index).collect();
        for &(address, device) in &addresses.own {
            let address = key(address);
            if device == LOOPBACK {
                self.everywhere.insert(address);
            } else if self.all.contains(&device) {
                self.addresses.insert((device, address));
            } else if there.contains(&device) {
                // Of one that is not known (yet) nobody knows what it is.
                self.open.insert(address);
            }
        }
        let Self { addresses, everywhere, open, closed, .. } = self;
        closed.retain(|address| !open.contains(address) && !everywhere.contains(address));
        let now: HashSet<u128> = addresses.iter().map(|(_, address)| *address).collect();
        if closed.difference(&now).count() > MAX_CLOSED {
            closed.clear();
            log::warn!(
                "addresses of VLANs come and go: without a tag, only those of other devices are reached"
            );
            self.is_full = true;
        }
        closed.extend(now.difference(open).filter(|address| !everywhere.contains(address)));
        let of_vlans = links.iter().filter(|link| link.is_of_vlan());
        self.below.extend(of_vlans.filter_map(|link| link.below));
        self.below.retain(|device| attached.contains(device));
        for device in attached {
            self.serve(links, *device);
        }
    }

    /// Serves those on a device that are up.
    fn serve(&mut self, links: &[Link], below: u32) {
        let members = links.iter().filter(|link| link.is_up).filter_map(|link| {
            let vlan = link.vlan.filter(|vlan| vlan.below == below)?;
            Some(Member { device: link.index, vlan, mac: link.mac, mtu: link.mtu })
        });
        let mut members: Vec<_> = members.collect();
        if members.len() > MAX_VLANS {
            if !std::mem::replace(&mut self.has_warned, true) {
                log::warn!("a device has {} VLANs, of which {MAX_VLANS} are served", members.len());
            }
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
        self.is_unknown = true;
    }

    /// Whether it is known what there is.
    pub(super) const fn are_known(&self) -> bool {
        !self.is_unknown
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

    /// Whether that device is one of a VLAN, or above such a one.
    pub(super) fn has_device(&self, device: u32) -> bool {
        self.all.contains(&device)
    }

    /// What comes by an attached device without the tag of a VLAN.
    pub(super) fn untagged(&self, link: &Link) -> Arrival<'_> {
        let way = match link {
            _ if link.is_loopback() => Way::Loopback,
            _ if link.is_of_vlan() || self.all.contains(&link.index) => Way::Vlan(link.index),
            _ if self.is_full || self.is_unknown || self.below.contains(&link.index) => {
                Way::BesideVlans
            }
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
    /// By a device without VLANs.
    Untagged,
    /// By a device with VLANs, without the tag of one.
    BesideVlans,
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
        let Self { vlans: Vlans { addresses, everywhere, open, closed, .. }, way } = self;
        let may_come = match way {
            Way::Loopback => true,
            // Most hosts have no VLANs.
            Way::Untagged => closed.is_empty() || !closed.contains(&destination),
            Way::BesideVlans => open.contains(&destination) || everywhere.contains(&destination),
            Way::Vlan(device) => {
                addresses.contains(&(device, destination)) || everywhere.contains(&destination)
            }
            Way::Unknown => false,
        };
        may_come.then_some(()).ok_or(Reason::Vlan)
    }
}

/// The devices of VLANs, and all above them: what comes by those is of that VLAN, too.
fn in_vlans(links: &[Link]) -> HashSet<u32> {
    let mut all: HashSet<u32> =
        links.iter().filter(|link| link.is_of_vlan()).map(|link| link.index).collect();
    for _ in 0..MAX_ABOVE {
        let before = all.len();
        for link in links {
            if link.below.is_some_and(|below| all.contains(&below)) {
                all.insert(link.index);
            }
            if all.contains(&link.index) {
                all.extend(link.master);
            }
        }
        if all.len() == before {
            break;
        }
    }
    all
}

/// Refuses a device with VLANs by which frames come with their tags taken out: what is of a VLAN would look like all else.
///
/// # Errors
///
/// With which device of a VLAN to attach.
pub(super) fn refuse_hidden(link: &Link, links: &[Link]) -> io::Result<()> {
    let on_it = links.iter().find(|it| it.is_of_vlan() && it.below == Some(link.index));
    let Some(vlan) = on_it.filter(|_| link.hides_tags(links)) else { return Ok(()) };
    let (name, vlan) = (&link.name, &vlan.name);
    let why = format!(
        "{name} is above other devices, which take the tags of VLANs out of frames, and has the VLAN {vlan}: attach \
         {vlan}"
    );
    Err(io::Error::new(io::ErrorKind::InvalidInput, why))
}

#[cfg(test)]
#[path = "vlans_tests.rs"]
mod tests;
