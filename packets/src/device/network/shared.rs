//! What devices share, and what is known of this host's devices and addresses.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use quicket_bpf::Tuples;

use super::super::netlink::{Addresses, Link, Links};
use super::super::outside::Outside;
use super::super::vlans::{ServedVlan, Vlans};
use super::super::ways::Ways;

/// How long changes of this host's devices and addresses gather until it is asked what there is: each time takes the longer the more
/// there are.
pub(super) const GATHERING: Duration = Duration::from_millis(20);
/// The same if the system has not answered, or the kernel has refused something.
pub(super) const REFUSED: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) tuples: Arc<Tuples>,
    pub(super) ways: Ways,
    pub(super) links: Links,
    pub(super) outside: Outside,
    pub(super) vlans: Vlans,
    /// What the system has said last of its devices and addresses.
    pub(super) known: Vec<Link>,
    pub(super) addresses: Addresses,
    /// It has to be asked again for addresses, or the kernel has refused something.
    pub(super) is_owed: bool,
    /// ... and for devices.
    pub(super) is_relinked: bool,
    /// When it was asked last.
    pub(super) asked: Instant,
    /// It did not answer then, or the kernel refused something.
    pub(super) is_refused: bool,
}

impl Shared {
    /// Asks for this host's addresses, and for its devices where those have changed. Returns whether something is different.
    ///
    /// # Errors
    ///
    /// What the system says: then it is asked again later.
    pub(super) fn look(&mut self) -> io::Result<bool> {
        self.asked = Instant::now();
        let was_refused = std::mem::replace(&mut self.is_refused, true);
        self.is_owed = true;
        let is_relinked = std::mem::replace(&mut self.is_relinked, true) || was_refused;
        let tables = self.ways.tables();
        let addresses = tables.addresses()?;
        let links = if is_relinked { Some(tables.links()?) } else { None };
        (self.is_owed, self.is_relinked, self.is_refused) = (false, false, false);
        let is_same =
            addresses == self.addresses && links.as_ref().is_none_or(|links| *links == self.known);
        self.addresses = addresses;
        if let Some(links) = links {
            self.known = links;
        }
        Ok(was_refused || !is_same)
    }

    /// The VLANs that are served on a device, from that number on, in their order.
    pub(super) fn served(&self, device: u32, from: u16) -> Vec<ServedVlan> {
        let served = self.known.iter().filter_map(|link| {
            let vlan = link.vlan.filter(|vlan| vlan.below == device && vlan.number >= from)?;
            self.vlans.of_device(link.index)?;
            Some(ServedVlan { number: vlan.number, device: link.name.clone() })
        });
        let mut served: Vec<_> = served.collect();
        served.sort_by_key(|vlan| vlan.number);
        served.dedup_by_key(|vlan| vlan.number);
        served
    }

    /// How long it is until it is asked again, if it has to be.
    pub(super) fn patience(&self) -> Option<Duration> {
        let pause = if self.is_refused { REFUSED } else { GATHERING };
        self.is_owed.then(|| pause.saturating_sub(self.asked.elapsed()))
    }

    /// The kernel has refused something: that is tried again.
    pub(super) const fn refuse(&mut self) {
        (self.is_owed, self.is_refused) = (true, true);
    }
}
