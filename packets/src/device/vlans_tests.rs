use super::*;

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
        ("fe80::1", BELOW),
        ("fe80::1", HUNDRED),
        ("fe80::2", HUNDRED),
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
const REACHED: [(&str, [bool; 3]); 11] = [
    ("192.0.2.1", [true, false, false]),
    ("192.0.2.2", [true, false, false]),
    ("198.51.100.1", [false, true, false]),
    ("2001:db8::1", [false, true, false]),
    ("203.0.113.1", [false, false, true]),
    ("203.0.113.2", [false, false, false]),
    ("10.0.0.1", [true, true, true]),
    ("10.0.0.2", [true, true, false]),
    ("10.0.0.3", [false, true, true]),
    ("fe80::1", [true, false, false]),
    ("fe80::2", [false, false, false]),
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
    let vlans = Vlans::new(&links, &left, &[BELOW]);
    assert!(!reaches(vlans.tagged(BELOW, 100).unwrap(), "198.51.100.1"));
}

#[test]
fn more_vlans_than_there_may_be_are_the_systems() {
    let all = (0..300).map(|n| link(1000 - n, Some((BELOW, 1 + n as u16)))).collect::<Vec<_>>();
    let vlans = Vlans::new(&all, &Addresses::default(), &[BELOW, OTHER]);
    // Those whose devices have the lowest numbers.
    let served: Vec<_> = vlans.on(BELOW).iter().map(|it| it.vlan.number).collect();
    assert_eq!(served, (45..=300).collect::<Vec<u16>>());
    assert_eq!(served.len(), MAX_VLANS);
    assert_eq!(vlans.tagged(BELOW, 44).err(), Some(Reason::Vlan));
}
