use std::process::Command;

use rustix::io::Errno;

use super::super::netlink::{Netlink, Vlan};
use super::super::record::Record;
use super::shared::{GATHERING, REFUSED};
use super::*;
use crate::device::attached::Mode;
use crate::device::permitted::is_permitted;
use crate::device::rates::Wire;

const ADDRESS: &str = "198.51.100.1";

/// A network with a device, in a network namespace of this thread.
fn network() -> (Network, Wire) {
    let wire = Wire::new().unwrap();
    // Addresses of IPv6 come when they will. There may be none.
    let _ = std::fs::write("/proc/sys/net/ipv6/conf/all/disable_ipv6", "1");
    let mut network = Network::new();
    let tuples = network.prepare(std::iter::empty()).unwrap();
    let record = Arc::new(Record::nowhere());
    let device = Device::attach("va", Mode::Generic, &tuples, &record).unwrap();
    network.add(device).unwrap();
    network.hear();
    assert_eq!(network.take_broken(), None);
    (network, wire)
}

impl Network {
    fn known(&mut self) -> &mut Shared {
        self.shared.as_mut().unwrap()
    }

    /// Hears, and asks the system if that is owed: the time for it has come.
    fn settle(&mut self) {
        self.hear();
        self.known().asked = Instant::now().checked_sub(2 * REFUSED).unwrap();
        self.begin();
    }

    fn has(&mut self, address: &str) -> bool {
        let address: std::net::IpAddr = address.parse().unwrap();
        self.known().addresses.own.iter().any(|(own, _)| *own == address)
    }
}

impl Network {
    /// VLANs of the first device that the system has not: the higher the number of one, the earlier came its device.
    pub(crate) fn pretend(&mut self, vlans: u16) {
        let below = self.devices[0].index();
        for number in 1..=vlans {
            let mut link = absent(self);
            (link.index, link.name) = (100_000 - u32::from(number), format!("va.{number}"));
            (link.virtual_kind, link.below) = (Some("vlan".to_owned()), Some(below));
            link.vlan = Some(Vlan { below, number });
            self.known().known.push(link);
        }
        self.arrange();
        assert_eq!(self.take_broken(), None);
    }
}

fn ip(words: &str) {
    assert!(Command::new("ip").args(words.split(' ')).status().unwrap().success(), "ip {words}");
}

/// A device that the system has not.
fn absent(network: &mut Network) -> Link {
    let link = network.devices[0].link.clone();
    Link { index: 9999, name: "absent".to_owned(), ..link }
}

#[test]
fn devices_are_asked_for_when_one_has_changed_and_nothing_is_done_for_nothing() {
    if !is_permitted() {
        return;
    }
    let (mut network, _wire) = network();
    let absent = absent(&mut network);
    network.known().known.push(absent.clone());
    ip(&format!("addr add {ADDRESS}/24 dev va"));
    // Changes gather for a while.
    network.known().asked = Instant::now() + REFUSED;
    network.hear();
    assert!(network.patience() == Some(GATHERING) && !network.has(ADDRESS));
    network.settle();
    assert!(network.patience().is_none() && network.has(ADDRESS));
    assert!(network.known().known.contains(&absent), "devices were asked for");
    // It comes and goes between two looks.
    network.known().outside = Outside::default();
    let is_outside = |network: &mut Network| {
        let key = |text: &str| super::super::outside::key(text.parse().unwrap());
        network.known().outside.by(false).may_come(key(ADDRESS), key("192.0.2.2"))
    };
    ip("addr add 203.0.113.1/24 dev va");
    ip("addr del 203.0.113.1/24 dev va");
    network.settle();
    assert!(is_outside(&mut network), "all is as it was");
    ip("link set vb down");
    network.settle();
    assert!(!network.known().known.contains(&absent) && !is_outside(&mut network));
    assert_eq!(network.take_broken(), None);
}

#[test]
fn what_the_system_has_not_said_is_asked_for_again() {
    if !is_permitted() {
        return;
    }
    let (mut network, _wire) = network();
    *network.known().ways.tables() = Netlink::deaf();
    ip(&format!("addr add {ADDRESS}/24 dev va"));
    network.settle();
    assert!(network.known().is_refused && !network.has(ADDRESS));
    let untagged = |network: &mut Network| {
        let link = network.devices[0].link.clone();
        let destination = super::super::outside::key("203.0.113.9".parse().unwrap());
        network.known().vlans.untagged(&link).admit(destination)
    };
    assert!(untagged(&mut network).is_err(), "what is not known may be in a VLAN");
    // With a device that comes meanwhile, its user is told.
    let device = network.remove(network.devices[0].index()).unwrap();
    let index = device.index();
    assert!(network.add(device).is_err());
    assert_eq!(network.take_broken(), Some(index));
    let device = network.remove(index).unwrap();
    *network.known().ways.tables() = Netlink::open().unwrap();
    network.add(device).unwrap();
    assert!(!network.known().is_owed && network.has(ADDRESS));
    assert!(untagged(&mut network).is_ok());
    // By the clock, too.
    *network.known().ways.tables() = Netlink::deaf();
    ip(&format!("addr del {ADDRESS}/24 dev va"));
    network.settle();
    assert!(network.known().is_owed && network.has(ADDRESS));
    assert!(network.patience().is_some_and(|time| time > GATHERING), "not at once");
    *network.known().ways.tables() = Netlink::open().unwrap();
    network.settle();
    assert!(!network.known().is_owed && !network.has(ADDRESS));
    assert_eq!(network.take_broken(), None);
}

#[test]
fn what_changes_while_it_is_listed_closes_nothing_and_is_asked_for_again() {
    if !is_permitted() {
        return;
    }
    let (mut network, _wire) = network();
    let vlan = Vlan { below: network.devices[0].index(), number: 7 };
    network.pretend(7);
    let has_vlan =
        |network: &mut Network| network.known().vlans.tagged(vlan.below, vlan.number).is_ok();
    let (tables, _other) = Netlink::restless();
    *network.known().ways.tables() = tables;
    ip(&format!("addr add {ADDRESS}/24 dev va"));
    network.settle();
    assert!(network.known().is_owed && !network.has(ADDRESS));
    assert!(has_vlan(&mut network), "it is served on");
    assert!(network.patience().is_some_and(|time| time > GATHERING), "not at once");
    // A whole list says that there is no such device.
    *network.known().ways.tables() = Netlink::open().unwrap();
    network.settle();
    assert!(!network.known().is_owed && network.has(ADDRESS));
    assert!(!has_vlan(&mut network));
    assert_eq!(network.take_broken(), None);
}

#[test]
fn a_device_whose_vlans_cannot_be_served_is_tried_again_and_then_let_go() {
    if !is_permitted() {
        return;
    }
    let (mut network, _wire) = network();
    let index = network.devices[0].index();
    let mut vlan = absent(&mut network);
    // The program has no such number.
    (vlan.virtual_kind, vlan.below) = (Some("vlan".to_owned()), Some(index));
    vlan.vlan = Some(Vlan { below: index, number: 4096 });
    network.known().known.push(vlan);
    for _ in 1..MAX_REFUSALS {
        network.arrange();
        assert!(network.known().is_owed);
        assert_eq!(network.take_broken(), None);
    }
    network.arrange();
    assert_eq!(network.take_broken(), Some(index));
}

#[test]
fn a_device_that_hides_tags_is_let_go_when_it_gets_a_vlan() {
    if !is_permitted() {
        return;
    }
    let (mut network, _wire) = network();
    let index = network.devices[0].index();
    let mut part = absent(&mut network);
    part.master = Some(index);
    let mut vlan = absent(&mut network);
    (vlan.index, vlan.virtual_kind, vlan.below) = (9998, Some("vlan".to_owned()), Some(index));
    network.known().known.push(part);
    network.arrange();
    assert_eq!(network.take_broken(), None);
    network.known().known.push(vlan);
    network.arrange();
    assert_eq!(network.take_broken(), Some(index));
}

/// A device whose switch has no descriptors or memory left for a moment stays attached.
#[test]
fn a_device_has_gone_if_the_system_says_so_and_not_if_it_does_not_answer() {
    let of = |error: Errno| said(7, Err(error.into()));
    assert_eq!(of(Errno::NODEV), Some(Change::Gone(7)));
    for error in [Errno::MFILE, Errno::NOBUFS, Errno::NOMEM, Errno::AGAIN, Errno::PERM] {
        assert_eq!(of(error), None, "{error}");
    }
}
