//! Which addresses do not come by a device, whoever says so (RFC 1812, Section 5.3.7; RFC 4291, Sections 2.5.3 and 2.7).

use std::collections::HashSet;
use std::net::IpAddr;

use crate::tuple::{Key, Tuple};

/// What is above an address of IPv4 in a [`Key`].
const MAPPED: u128 = 0xffff;
/// The first octet of addresses of IPv4 that are those of groups, or reserved, broadcasts among them.
const FIRST_GROUP: u32 = 224;

/// The addresses of this host, as a [`Key`] has them, and the broadcasts of its networks.
#[derive(Debug, Default)]
pub(crate) struct Outside {
    own: HashSet<u128>,
}

impl Outside {
    /// What the system has.
    pub(super) fn new(own: impl IntoIterator<Item = IpAddr>) -> Self {
        let address = |address| Key::from(Tuple { address, protocol: 0, port: 0 }).address;
        Self { own: own.into_iter().map(address).collect() }
    }

    /// Whether a frame may come by a device from one of these addresses to the other one.
    pub(crate) fn may_come(&self, source: u128, destination: u128) -> bool {
        let is_one_host = match source >> 32 == MAPPED {
            true => (source as u32) >> 24 != 0 && (source as u32) >> 24 < FIRST_GROUP,
            false => source != 0 && source >> 120 != 0xff,
        };
        is_one_host
            && !is_loopback(source)
            && !is_loopback(destination)
            && !self.own.contains(&source)
    }
}

/// Whether it is an address that no frame leaves this host with, and none comes to it with.
#[inline]
pub(crate) const fn is_loopback(address: u128) -> bool {
    address == 1 || address >> 24 == (MAPPED << 8 | 127)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_that_are_this_hosts_or_no_hosts_do_not_come_from_outside() {
        let parse = |text: &str| text.parse::<IpAddr>().unwrap();
        let key = |text| Key::from(Tuple { address: parse(text), protocol: 17, port: 7 }).address;
        let outside = Outside::new(["192.0.2.1", "192.0.2.255", "2001:db8::1"].map(parse));
        let own = ["192.0.2.1", "2001:db8::1"].map(key);
        for (source, may) in [
            ("192.0.2.2", true),
            ("126.255.255.255", true),
            ("128.0.0.1", true),
            ("223.255.255.255", true),
            ("192.0.2.1", false),
            ("192.0.2.255", false),
            ("127.0.0.1", false),
            ("127.255.255.255", false),
            ("0.0.0.0", false),
            ("0.1.2.3", false),
            ("224.0.0.1", false),
            ("240.0.0.1", false),
            ("255.255.255.255", false),
            ("2001:db8::2", true),
            ("fe80::1", true),
            ("::2", true),
            ("2001:db8::1", false),
            ("::1", false),
            ("::", false),
            ("ff02::1", false),
        ] {
            for destination in own {
                assert_eq!(outside.may_come(key(source), destination), may, "{source}");
            }
            assert!(!outside.may_come(key(source), key("127.0.0.9")), "{source}");
            assert!(!outside.may_come(key(source), key("::1")), "{source}");
        }
    }
}
