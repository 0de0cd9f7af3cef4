use super::*;

impl Netlink {
    /// One that the system does not answer.
    pub(in crate::device) fn deaf() -> Self {
        let socket = rustix::net::socket(AddressFamily::INET, SocketType::DGRAM, None).unwrap();
        Self { socket, ..Self::open().unwrap() }
    }

    /// One whose lists change all the time while they are made, as long as the other one is there.
    pub(in crate::device) fn restless() -> (Self, OwnedFd) {
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let pair = rustix::net::socketpair(family, kind, SocketFlags::CLOEXEC, None);
        let (socket, other) = pair.unwrap();
        for sequence in 1..=64 {
            let end = Request::new(DONE, &[0; 4]).finish(INTERRUPTED, sequence);
            rustix::net::send(&other, &end, SendFlags::DONTWAIT).unwrap();
        }
        (Self { socket, ..Self::open().unwrap() }, other)
    }
}

#[test]
fn the_system_tells_of_its_devices_and_routes() {
    let mut tables = Netlink::open().unwrap();
    let link = tables.link("lo").unwrap();
    // ARPHRD_LOOPBACK.
    assert_eq!((link.name.as_str(), link.kind, link.mac), ("lo", 772, [0; 6]));
    let error = tables.link("nothing").unwrap_err();
    assert_eq!(error.raw_os_error(), Some(Errno::NODEV.raw_os_error()));
    // To this host itself by the loopback device, to a group by none.
    for (address, device) in [("127.0.0.1", link.index), ("224.0.0.251", 0)] {
        let to: IpAddr = address.parse().unwrap();
        if let Ok(route) = tables.route("127.0.0.1".parse().unwrap(), to) {
            assert_eq!(route.device, device, "{address}");
        }
    }
    assert!(link.is_loopback() && link.index == LOOPBACK);
    let all = tables.addresses().unwrap();
    let own = "127.0.0.1".parse().unwrap();
    assert!(all.own.contains(&(own, LOOPBACK)) && !all.broadcasts.contains(&own), "{all:?}");
    assert!(tables.links().unwrap().contains(&link));
    assert!(all.broadcasts.contains(&"127.255.255.255".parse().unwrap()), "{all:?}");
    let absent = "192.0.2.77".parse().unwrap();
    assert_eq!(tables.neighbour(link.index, absent).ok().flatten(), None);
}

/// Attributes.
fn nested(all: &[(u16, &[u8])]) -> Vec<u8> {
    let mut request = Request(Vec::new());
    all.iter().for_each(|(kind, value)| request.attribute(*kind, value));
    request.0
}

/// A message about a device that is up, with attributes.
pub(super) fn link_message(index: u32, all: &[(u16, &[u8])]) -> Vec<u8> {
    let mut header = [0; 16];
    header[4..8].copy_from_slice(&index.to_ne_bytes());
    // IFF_UP.
    header[8..12].copy_from_slice(&1_u32.to_ne_bytes());
    [&header[..], &nested(all)].concat()
}

/// A message about a device of a VLAN, with attributes of it beside those that each has, and within it.
fn vlan_message(more: &[(u16, &[u8])], data: &[(u16, &[u8])]) -> Vec<u8> {
    let info = nested(&[(1, b"vlan\0"), (2, &nested(data))]);
    let (mtu, below) = (1500_u32.to_ne_bytes(), 7_u32.to_ne_bytes());
    let all = [&[(4, &mtu[..]), (5, &below), (18, &info)], more].concat();
    link_message(9, &all)
}

/// Wireless extensions tell of scans and the like by messages that begin as those about a device do (IFLA_IFNAME, IFLA_WIRELESS).
#[test]
fn what_wireless_extensions_say_is_no_change_of_a_device() {
    let event = link_message(9, &[(3, b"wlan0\0"), (11, &[8, 0, 0x19, 0x8b, 0, 0, 0, 0])]);
    assert_eq!(link(&event), None);
    let mtu = 1500_u32.to_ne_bytes();
    let whole = link_message(9, &[(3, b"wlan0\0"), (4, &mtu)]);
    let of = |body: &[u8]| Request::new(NEW_LINK, body).finish(0, 0);
    let changes: Vec<_> = heard(&[of(&event), of(&whole), of(&event)].concat()).collect();
    assert_eq!(changes, [Change::Is(link(&whole).unwrap())]);
}

#[test]
fn devices_of_vlans_say_what_comes_by_them() {
    let number = 100_u16.to_ne_bytes();
    let customer: (u16, &[u8]) = (5, &[0x81, 0]);
    let message = vlan_message(&[], &[(1, &number), customer]);
    let found = link(&message).unwrap();
    assert!(found.is_of_vlan() && found.is_up);
    assert_eq!((found.index, found.vlan), (9, Some(Vlan { below: 7, number: 100 })));
    assert_eq!((found.below, found.master), (Some(7), None));
    for len in 0..message.len() {
        let _ = link(&message[..len]);
    }
    // The device below is one of another network namespace (IFLA_LINK_NETNSID); it is part of a bridge (IFLA_MASTER).
    for more in [(37, &0_u32.to_ne_bytes()), (10, &3_u32.to_ne_bytes())] {
        let message = vlan_message(&[(more.0, &more.1[..])], &[(1, &number), customer]);
        let found = link(&message).unwrap();
        assert!(found.is_of_vlan() && found.vlan.is_none(), "{more:?}");
        let expected = if more.0 == 10 { (Some(7), Some(3)) } else { (None, None) };
        assert_eq!((found.below, found.master), expected);
    }
    // Tags of providers, and numbers that are none.
    let others: [&[(u16, &[u8])]; 5] = [
        &[(1, &number), (5, &[0x88, 0xa8])],
        &[(1, &[0, 0]), customer],
        &[(1, &4095_u16.to_ne_bytes()), customer],
        &[(1, &[1]), customer],
        &[customer],
    ];
    for data in others {
        let found = link(&vlan_message(&[], data)).unwrap();
        assert!(found.is_of_vlan() && found.vlan.is_none(), "{data:?}");
    }
    assert!(!Netlink::open().unwrap().link("lo").unwrap().is_of_vlan());
}

#[test]
fn attributes_are_read_and_whatever_is_cut_off_ends_them() {
    let to: IpAddr = "192.0.2.2".parse().unwrap();
    let mut request = Request::new(NEW_ROUTE, &[2, 32, 0, 0, 0, 0, 0, UNICAST, 0, 0, 0, 0]);
    request.attribute(ROUTE_DEVICE, &7_u32.to_ne_bytes());
    request.attribute(ROUTE_GATEWAY, &[192, 0, 2, 1]);
    let mut metrics = Request(Vec::new());
    metrics.attribute(METRIC_MTU, &1400_u32.to_ne_bytes());
    request.attribute(ROUTE_METRICS, &metrics.0);
    let bytes = request.finish(0, 5);
    let [Message { kind, sequence, body, .. }] = messages(&bytes).collect::<Vec<_>>()[..] else {
        panic!()
    };
    assert_eq!((kind, sequence), (NEW_ROUTE, 5));
    let next = "192.0.2.1".parse().unwrap();
    assert_eq!(route(body, to), Some(Route { device: 7, next, mtu: Some(1400) }));
    for len in 0..bytes.len() {
        assert_eq!(messages(&bytes[..len]).count(), 0);
    }
    for len in 0..body.len() {
        let _ = (route(&body[..len], to), neighbour(&body[..len]), link(&body[..len]));
    }
    // Lengths that cannot be: shorter than what says so, or beyond the end.
    for len in [0_u16, 1, 3, 200, u16::MAX] {
        let mut wrong = body.to_vec();
        wrong[12..14].copy_from_slice(&len.to_ne_bytes());
        assert_eq!(route(&wrong, to), Some(Route { device: 0, next: to, mtu: None }), "{len}");
    }
}
