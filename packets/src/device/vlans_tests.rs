use super::*;

impl Vlans {
    /// Of the devices and addresses that the system has, when those devices are attached.
    fn new(links: &[Link], addresses: &Addresses, attached: &[u32]) -> Self {
        let mut vlans = Self::default();
        vlans.follow(links, addresses, attached);
        vlans
    }
}

/// The attached device, another one, and those of VLANs: two on the first, one on the other.
const BELOW: u32 = 2;
const OTHER: u32 = 3;
const HUNDRED: u32 = 10;
const TWO_HUNDRED: u32 = 11;
const ELSEWHERE: u32 = 12;

fn link(index: u32, vlan: Option<(u32, u16)>) -> Link {
    Link {
        index,
        name: format!("device{index}"),
        kind: if index == LOOPBACK { 772 } else { 1 },
        mac: [2, 0, 0, 0, 0, index as u8],
        mtu: 1500,
        is_up: true,
        virtual_kind: vlan.map(|_| "vlan".to_owned()),
        below: vlan.map(|(below, _)| below),
        master: None,
        vlan: vlan.map(|(below, number)| Vlan { below, number }),
        is_queueless: true,
        gso_size: 65_536,
        gso_segments: 65_535,
    }
}

fn links() -> Vec<Link> {
    vec![
        link(LOOPBACK, None),
        link(BELOW, None),
        link(OTHER, None),
        link(HUNDRED, Some((BELOW, 100))),
        link(TWO_HUNDRED, Some((BELOW, 200))),
        link(ELSEWHERE, Some((OTHER, 100))),
    ]
}

fn addresses() -> Addresses {
    let own = [
        ("192.0.2.1", BELOW),
        ("192.0.2.2", OTHER),
        ("198.51.100.1", HUNDRED),
        ("2001:db8::1", HUNDRED),
        ("203.0.113.1", TWO_HUNDRED),
        ("203.0.113.2", ELSEWHERE),
        ("10.0.0.1", LOOPBACK),
        // Of two devices.
        ("10.0.0.2", BELOW),
        ("10.0.0.2", HUNDRED),
        ("10.0.0.3", HUNDRED),
        ("10.0.0.3", TWO_HUNDRED),
    ];
    let own = own.map(|(address, device)| (address.parse().unwrap(), device)).to_vec();
    Addresses { own, broadcasts: Vec::new() }
}

fn reaches(arrival: Arrival<'_>, address: &str) -> bool {
    match arrival.admit(key(address.parse().unwrap())) {
        Ok(()) => true,
        Err(reason) => {
            assert_eq!(reason, Reason::Vlan);
            false
        }
    }
}

/// Each address, and whether it is reached without a tag, in VLAN 100, and in VLAN 200.
const REACHED: [(&str, [bool; 3]); 9] = [
    ("192.0.2.1", [true, false, false]),
    ("192.0.2.2", [true, false, false]),
    ("198.51.100.1", [false, true, false]),
    ("2001:db8::1", [false, true, false]),
    ("203.0.113.1", [false, false, true]),
    ("203.0.113.2", [false, false, false]),
    ("10.0.0.1", [true, true, true]),
    ("10.0.0.2", [true, true, false]),
    ("10.0.0.3", [false, true, true]),
];

#[test]
fn an_address_is_reached_in_its_own_vlan_alone() {
    let links = links();
    let vlans = Vlans::new(&links, &addresses(), &[BELOW]);
    let by = |number| vlans.tagged(BELOW, number).unwrap();
    for (address, expected) in REACHED {
        let arrivals = [vlans.untagged(&links[1]), by(100), by(200)];
        assert_eq!(arrivals.map(|arrival| reaches(arrival, address)), expected, "{address}");
        assert!(reaches(vlans.untagged(&links[0]), address), "this host reaches {address}");
        // The device of the VLAN itself, if that is attached; and what the system says to have come by it.
        assert_eq!(reaches(vlans.untagged(&links[3]), address), expected[1], "{address}");
        assert_eq!(reaches(vlans.by(&links[1], HUNDRED), address), expected[1], "{address}");
        assert_eq!(reaches(vlans.by(&links[1], BELOW), address), expected[0], "{address}");
        for device in [ELSEWHERE, OTHER, 99] {
            assert!(!reaches(vlans.by(&links[1], device), address), "{address} by {device}");
        }
    }
    // Nobody is in those, or their device is not attached.
    for (below, number) in [(BELOW, 300), (BELOW, 1), (OTHER, 100), (OTHER, 200)] {
        assert_eq!(vlans.tagged(below, number).err(), Some(Reason::Vlan), "{below}, {number}");
    }
    assert_eq!(vlans.on(BELOW).iter().map(|it| it.vlan.number).collect::<Vec<_>>(), [100, 200]);
    assert_eq!(vlans.of_device(HUNDRED).map(|it| it.mac[5]), Some(HUNDRED as u8));
    assert_eq!((vlans.of_device(ELSEWHERE), vlans.of_device(BELOW)), (None, None));
}

#[test]
fn a_vlan_that_is_down_or_gone_opens_its_addresses_to_nobody() {
    let mut down = links();
    down[3].is_up = false;
    // Of a bridge, of another network namespace, or with tags of providers: such are not read.
    let mut strange = links();
    strange[3].vlan = None;
    for links in [down, strange] {
        let vlans = Vlans::new(&links, &addresses(), &[BELOW]);
        assert_eq!(vlans.tagged(BELOW, 100).err(), Some(Reason::Vlan));
        assert!(!reaches(vlans.untagged(&links[1]), "198.51.100.1"));
        assert!(reaches(vlans.tagged(BELOW, 200).unwrap(), "203.0.113.1"));
        assert!(vlans.has_device(HUNDRED) && !vlans.has_device(BELOW));
    }
    let links = links();
    let mut vlans = Vlans::new(&links, &addresses(), &[BELOW]);
    vlans.forget();
    assert_eq!(vlans.tagged(BELOW, 100).err(), Some(Reason::Vlan));
    assert!(!reaches(vlans.untagged(&links[1]), "198.51.100.1"));
    assert_eq!((vlans.on(BELOW), vlans.of_device(HUNDRED)), (Vec::new(), None));
    // With the device, its addresses go.
    let mut left = addresses();
    left.own.retain(|(_, device)| *device != HUNDRED);
    // Known before or not.
    let mut followed = Vlans::new(&links, &addresses(), &[BELOW, OTHER]);
    followed.follow(&links, &left, &[BELOW, OTHER]);
    for vlans in [Vlans::new(&links, &left, &[BELOW]), followed] {
        assert!(!reaches(vlans.tagged(BELOW, 100).unwrap(), "198.51.100.1"));
        assert!(!reaches(vlans.untagged(&links[1]), "198.51.100.1"));
        assert!(!reaches(vlans.untagged(&links[1]), "2001:db8::1"));
        assert!(reaches(vlans.untagged(&links[1]), "192.0.2.1"));
    }
}

#[test]
fn an_address_that_was_in_a_vlan_is_open_once_it_is_elsewhere_and_not_before() {
    let all = links();
    let mut vlans = Vlans::new(&all, &addresses(), &[BELOW, OTHER]);
    let mut own = addresses();
    own.own.retain(|(_, device)| *device != HUNDRED);
    // The device has gone as well, and it was the last VLAN on it.
    let mut left = all.clone();
    left.retain(|link| !link.is_of_vlan());
    vlans.follow(&left, &own, &[BELOW, OTHER]);
    for link in &left[1..] {
        assert!(!reaches(vlans.untagged(link), "198.51.100.1"), "{}", link.name);
        assert!(reaches(vlans.untagged(link), "192.0.2.1"), "{}", link.name);
    }
    // Neither is one of a device that is not known yet.
    own.own.push(("198.51.100.1".parse().unwrap(), 99));
    vlans.follow(&left, &own, &[BELOW, OTHER]);
    assert!(!reaches(vlans.untagged(&left[1]), "198.51.100.1"));
    own.own.push(("198.51.100.1".parse().unwrap(), OTHER));
    vlans.follow(&left, &own, &[BELOW, OTHER]);
    for link in &left[1..] {
        assert!(reaches(vlans.untagged(link), "198.51.100.1"), "{}", link.name);
    }
    // A device that has never had VLANs is as before to what the system has not: it may be reached by a route.
    let absent = "192.0.2.77";
    let vlans = Vlans::new(&left, &own, &[BELOW]);
    assert!(reaches(vlans.untagged(&left[1]), absent));
    let mut vlans = Vlans::new(&all, &addresses(), &[BELOW]);
    assert!(!reaches(vlans.untagged(&all[1]), absent));
    // It has had one.
    vlans.follow(&left, &own, &[BELOW]);
    assert!(!reaches(vlans.untagged(&left[1]), absent));
}

#[test]
fn addresses_that_were_in_vlans_are_remembered_within_bounds_and_all_are_closed_beyond() {
    let all = links();
    let other = &all[2];
    let many = |base: u32, n: u32| {
        let own = (base..base + n).map(|n| (std::net::Ipv4Addr::from_bits(n).into(), HUNDRED));
        Addresses { own: own.collect(), broadcasts: Vec::new() }
    };
    let mut left = all.clone();
    left.retain(|link| link.vlan.is_none_or(|vlan| vlan.below == BELOW));
    let mut vlans = Vlans::default();
    for (at, n) in [(0x0a00_0000, MAX_CLOSED as u32), (0x0b00_0000, 1)] {
        vlans.follow(&left, &many(at, n), &[BELOW, OTHER]);
        assert!(!vlans.is_full && reaches(vlans.untagged(other), "192.0.2.77"));
    }
    vlans.follow(&left, &Addresses::default(), &[BELOW, OTHER]);
    assert!(vlans.is_full && vlans.closed.is_empty());
    assert!(!reaches(vlans.untagged(other), "10.0.0.1"));
    vlans.follow(&left, &addresses(), &[BELOW, OTHER]);
    assert!(reaches(vlans.untagged(other), "192.0.2.2"));
    assert!(!reaches(vlans.untagged(other), "192.0.2.77"));
}

#[test]
fn what_is_above_a_vlan_is_in_it() {
    let above = |index, below: Option<u32>, kind: &str| Link {
        below,
        virtual_kind: Some(kind.to_owned()),
        ..link(index, None)
    };
    let mut all = links();
    // A bridge over the VLAN, a device above that, and another one; and such as have nothing to do with it.
    all[3].master = Some(20);
    all[3].vlan = None;
    all.push(above(21, Some(20), "macvlan"));
    all.push(above(22, Some(21), "ipvlan"));
    all.push(above(20, None, "bridge"));
    all.push(above(23, Some(BELOW), "macvlan"));
    let mut own = Addresses::default();
    for device in [20, 21, 22, 23] {
        own.own.push((format!("198.51.100.{device}").parse().unwrap(), device));
    }
    let vlans = Vlans::new(&all, &own, &[BELOW, 20]);
    for device in [20, 21, 22] {
        assert!(!reaches(vlans.untagged(&all[1]), &format!("198.51.100.{device}")), "{device}");
        assert!(vlans.has_device(device));
    }
    assert!(reaches(vlans.untagged(&all[1]), "198.51.100.23") && !vlans.has_device(23));
    // Attached itself, the bridge is reached as a VLAN's device is.
    let bridge = all.iter().find(|link| link.index == 20).unwrap();
    assert!(reaches(vlans.untagged(bridge), "198.51.100.20"));
    assert!(!reaches(vlans.untagged(bridge), "198.51.100.21"));
    // Devices that are above each other come to an end.
    let ring = [above(30, Some(31), "macvlan"), above(31, Some(30), "macvlan")];
    assert_eq!(in_vlans(&ring), HashSet::new());
    // So many are not followed that no kernel has them.
    let chain = (0..40).rev().map(|n| above(100 + n, Some(99 + n), "macvlan"));
    let chain: Vec<_> = chain.chain([link(99, Some((BELOW, 5)))]).collect();
    assert_eq!(in_vlans(&chain).len(), 1 + MAX_ABOVE);
}

#[test]
fn where_tags_are_hidden_no_vlan_may_be() {
    let mut all = links();
    assert!(refuse_hidden(&all[1], &all).is_ok());
    for kind in ["bridge", "bond", "team", "macvlan", "openvswitch"] {
        all[1].virtual_kind = Some(kind.to_owned());
        let said = refuse_hidden(&all[1], &all).unwrap_err().to_string();
        assert!(said.contains("device2") && said.contains("attach device10"), "{said}");
    }
    // Of a kind that nobody knows, with a device that is part of it.
    all[1].virtual_kind = None;
    all[2].master = Some(BELOW);
    assert!(refuse_hidden(&all[1], &all).is_err());
    // Without VLANs there is nothing to be taken for something else but what this host is not in.
    let others: Vec<_> = all.iter().filter(|link| !link.is_of_vlan()).cloned().collect();
    assert!(refuse_hidden(&all[1], &others).is_ok());
    // The VLANs themselves have had their tags looked at.
    assert!(refuse_hidden(&all[3], &all).is_ok());
}

#[test]
fn more_vlans_than_there_may_be_are_the_systems() {
    let all = (0..300).map(|n| link(1000 - n, Some((BELOW, 1 + n as u16)))).collect::<Vec<_>>();
    let vlans = Vlans::new(&all, &Addresses::default(), &[BELOW, OTHER]);
    let mut again = Vlans::default();
    assert!(vlans.has_warned && !again.has_warned);
    for _ in 0..2 {
        again.follow(&all, &Addresses::default(), &[BELOW]);
        assert!(again.has_warned, "it is said once");
    }
    // Those whose devices have the lowest numbers.
    let served: Vec<_> = vlans.on(BELOW).iter().map(|it| it.vlan.number).collect();
    assert_eq!(served, (45..=300).collect::<Vec<u16>>());
    assert_eq!(served.len(), MAX_VLANS);
    assert_eq!(vlans.tagged(BELOW, 44).err(), Some(Reason::Vlan));
}
