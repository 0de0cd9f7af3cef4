//! That a host's networks are not what they were.

use quicket_packets::device::Changes;
use socket2::SockRef;

use crate::is_permitted;
use crate::wire::{DEVICE, Wire, ip, until};

#[test]
fn each_change_of_devices_addresses_and_routes_is_heard_of() {
    if !is_permitted() {
        return;
    }
    let wire = Wire::new("");
    let changes = Changes::open().unwrap();
    for change in [
        format!("addr add 198.51.100.1/24 dev {DEVICE}"),
        format!("addr del 198.51.100.1/24 dev {DEVICE}"),
        format!("addr add 2001:db8:1::1/64 dev {DEVICE} nodad"),
        "route add default via 192.0.2.2".to_owned(),
        "route del default".to_owned(),
        format!("link set {DEVICE} down"),
        format!("link set {DEVICE} up"),
    ] {
        // Some changes have consequences a moment later.
        until("quiet", || !changes.hear().unwrap());
        ip(&change);
        until(&change, || changes.hear().unwrap());
    }
    // What becomes of the other end's device is no business of this host, but that there is no carrier.
    until("quiet", || !changes.hear().unwrap());
    wire.there(|| ip("link set vb down"));
    until("the carrier", || changes.hear().unwrap());
}

#[test]
fn what_is_lost_of_a_burst_is_heard_of_as_a_change() {
    if !is_permitted() {
        return;
    }
    let _wire = Wire::new("");
    let changes = Changes::open().unwrap();
    // The least that the system allows: a message or two.
    SockRef::from(&changes).set_recv_buffer_size(1).unwrap();
    for number in 1..=50 {
        ip(&format!("addr add 203.0.113.{number}/32 dev {DEVICE}"));
    }
    let sockets = std::fs::read_to_string("/proc/thread-self/net/netlink").unwrap();
    let drops = sockets.lines().skip(1).filter_map(|line| line.split_whitespace().nth(8));
    assert!(drops.map(|drops| drops.parse::<u64>().unwrap()).any(|drops| drops > 0), "{sockets}");
    assert!(changes.hear().unwrap());
    until("all of it is taken", || !changes.hear().unwrap());
    ip(&format!("addr del 203.0.113.1/32 dev {DEVICE}"));
    assert!(changes.hear().unwrap(), "and it goes on");
}
