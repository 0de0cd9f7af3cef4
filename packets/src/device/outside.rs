//! Which addresses do not come by a device, whoever says so (RFC 1812, Section 5.3.7; RFC 4291, Sections 2.5.3 and 2.7).
//! What this host sends to itself comes by the loopback device, and nothing else does.

use std::collections::HashSet;
use std::net::IpAddr;

use super::netlink::Addresses;
use crate::tuple::{Key, Tuple};

/// What is above an address of IPv4 in a [`Key`].
const MAPPED: u128 = 0xffff;
/// The first octet of addresses of IPv4 that are those of groups, or reserved, broadcasts among them.
const FIRST_GROUP: u32 = 224;

/// The addresses of this host and the broadcasts of its networks, as a [`Key`] has them.
#[derive(Debug, Default)]
pub(crate) struct Outside {
    own: HashSet<u128>,
    broadcasts: HashSet<u128>,
}

impl Outside {
    /// What the system has.
    pub(super) fn new(addresses: &Addresses) -> Self {
        let Addresses { own, broadcasts } = addresses;
        Self {
            own: own.iter().map(|(address, _)| key(*address)).collect(),
            broadcasts: broadcasts.iter().copied().map(key).collect(),
        }
    }

    /// By the loopback device, or by another one.
    pub(super) const fn by(&self, is_loopback: bool) -> Entrance<'_> {
        Entrance { outside: self, is_loopback }
    }
}

/// The kind of device that frames come by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entrance<'a> {
    outside: &'a Outside,
    is_loopback: bool,
}

impl Entrance<'_> {
    /// Whether a frame may come that way from one of these addresses to the other one: by the loopback device from this host
    /// alone, and by others from elsewhere alone.
    pub(crate) fn may_come(self, source: u128, destination: u128) -> bool {
        let Self { outside: Outside { own, broadcasts }, is_loopback: is_here } = self;
        let is_one_host = match source >> 32 == MAPPED {
            true => (source as u32) >> 24 != 0 && (source as u32) >> 24 < FIRST_GROUP,
            false => source != 0 && source >> 120 != 0xff,
        };
        is_one_host
            && !broadcasts.contains(&source)
            && is_here == (is_loopback(source) || own.contains(&source))
            && (is_here || !is_loopback(destination))
    }
}

/// An address as a [`Key`] has it.
pub(super) fn key(address: IpAddr) -> u128 {
    Key::from(Tuple { address, protocol: 0, port: 0 }).address
}

/// Whether it is an address that no frame has outside of this host.
#[inline]
pub(crate) const fn is_loopback(address: u128) -> bool {
    address == 1 || address >> 24 == (MAPPED << 8 | 127)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each source, and whether it comes by a device, and by the loopback device.
    const SOURCES: [(&str, bool, bool); 21] = [
        ("192.0.2.2", true, false),
        ("126.255.255.255", true, false),
        ("128.0.0.1", true, false),
        ("223.255.255.255", true, false),
        ("192.0.2.1", false, true),
        ("192.0.2.255", false, false),
        ("127.0.0.1", false, true),
        ("127.1.2.3", false, true),
        ("127.255.255.255", false, false),
        ("0.0.0.0", false, false),
        ("0.1.2.3", false, false),
        ("224.0.0.1", false, false),
        ("240.0.0.1", false, false),
        ("255.255.255.255", false, false),
        ("2001:db8::2", true, false),
        ("fe80::1", true, false),
        ("::2", true, false),
        ("2001:db8::1", false, true),
        ("::1", false, true),
        ("::", false, false),
        ("ff02::1", false, false),
    ];

    #[test]
    fn what_this_host_sends_comes_by_loopback_alone_and_what_no_host_sends_by_nothing() {
        let parse = |text: &str| text.parse::<IpAddr>().unwrap();
        let key = |text| key(parse(text));
        let own = ["192.0.2.1", "127.0.0.1", "::1", "2001:db8::1"];
        let own = own.map(|text| (parse(text), 1)).to_vec();
        let broadcasts = ["192.0.2.255", "127.255.255.255"].map(parse).to_vec();
        let outside = Outside::new(&Addresses { own, broadcasts });
        let [by_device, by_loopback] = [false, true].map(|is_loopback| outside.by(is_loopback));
        for (source, by_others, by_itself) in SOURCES {
            for destination in ["192.0.2.1", "2001:db8::1"].map(key) {
                let may = by_device.may_come(key(source), destination);
                assert_eq!(may, by_others, "{source}");
                let may = by_loopback.may_come(key(source), destination);
                assert_eq!(may, by_itself, "{source}");
            }
            for destination in ["127.0.0.9", "::1"].map(key) {
                assert!(!by_device.may_come(key(source), destination), "{source}");
                let may = by_loopback.may_come(key(source), destination);
                assert_eq!(may, by_itself, "{source}");
            }
        }
    }
}
