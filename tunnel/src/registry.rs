//! Which tunnel a received packet is for.

use std::collections::HashMap;
use std::net::IpAddr;

use quicket_gue::{Gre, protocol};

use crate::config::{Encap, Tunnel};

/// Tunnels by the addresses of their other ends.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    by_remote: HashMap<IpAddr, Vec<Entry>>,
    /// Those that have many other ends; what is for another tunnel is not for them.
    external: Vec<Entry>,
}

/// Between which addresses a packet came, and how.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ends {
    pub(crate) source: IpAddr,
    pub(crate) destination: Option<IpAddr>,
    /// Without UDP.
    pub(crate) raw: bool,
}

#[derive(Debug)]
struct Entry {
    index: usize,
    local: Option<IpAddr>,
    gre: bool,
    ethernet: bool,
    key: Option<u32>,
    /// Whether its packets come without UDP.
    raw: bool,
    /// Whether the outer addresses are of IPv6.
    outer_v6: bool,
    v4: bool,
    v6: bool,
}

impl Registry {
    pub(crate) fn new(tunnels: &[Tunnel]) -> Self {
        let mut registry = Self::default();
        for (index, tunnel) in tunnels.iter().enumerate() {
            let entries = match tunnel.external {
                Some(_) => &mut registry.external,
                None => registry.by_remote.entry(tunnel.remote).or_default(),
            };
            entries.push(Entry {
                index,
                local: tunnel.local,
                gre: tunnel.kind.is_gre(),
                ethernet: tunnel.kind.is_ethernet(),
                key: tunnel.gre.key,
                raw: tunnel.encap == Encap::None,
                outer_v6: tunnel.kind.is_v6(),
                v4: tunnel.carries(true),
                v6: tunnel.carries(false),
            });
        }
        registry
    }

    /// The tunnel for packets of `protocol`.
    pub(crate) fn find(&self, ends: Ends, protocol: u8) -> Option<usize> {
        self.first(ends, |entry| match protocol {
            protocol::IPIP => !entry.gre && entry.v4,
            protocol::IPV6 => !entry.gre && entry.v6,
            _ => false,
        })
    }

    /// The tunnel for what GRE carries with this header.
    pub(crate) fn find_gre(&self, ends: Ends, gre: &Gre) -> Option<usize> {
        let ethernet = gre.protocol == Gre::ETHERNET;
        self.first(ends, |entry| entry.gre && entry.key == gre.key && entry.ethernet == ethernet)
    }

    /// The first of the tunnels whose sockets get a copy of such a packet.
    pub(crate) fn find_any(&self, ends: Ends, protocol: u8) -> Option<usize> {
        self.first(ends, |entry| entry.gre == (protocol == protocol::GRE))
    }

    fn first(&self, ends: Ends, is_for: impl Fn(&Entry) -> bool) -> Option<usize> {
        let matches = |entry: &&Entry| {
            let local = match (entry.local, ends.destination) {
                (Some(local), Some(destination)) => local == destination,
                _ => true,
            };
            let family = entry.outer_v6 == ends.source.is_ipv6();
            local && family && entry.raw == ends.raw && is_for(entry)
        };
        let known = self.by_remote.get(&ends.source).into_iter().flatten();
        known.chain(&self.external).find(matches).map(|entry| entry.index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::tunnel;

    #[test]
    fn packets_find_their_tunnel_by_address_protocol_and_key() {
        let registry = Registry::new(&[
            tunnel("a type ipip remote 192.0.2.2 local 192.0.2.1 encap gue"),
            tunnel("b type sit mode ip6ip remote 192.0.2.2 local 192.0.2.1 encap gue"),
            tunnel("c type gre remote 192.0.2.2 encap gue key 7"),
            tunnel("d type gre remote 192.0.2.2 encap gue"),
            tunnel("e type ip6tnl remote 2001:db8::2 encap gue"),
            tunnel("f type gretap remote 192.0.2.2 encap gue key 7"),
            tunnel("g type gre remote 192.0.2.2 key 6"),
            tunnel("h type gre remote 192.0.2.2 key 7"),
            tunnel("i type sit external learn 0.0.0.0/0 local 192.0.2.1 encap gue"),
        ]);
        let (two, one) = ([192, 0, 2, 2].into(), Some([192, 0, 2, 1].into()));
        let ends = |source, destination| Ends { source, destination, raw: false };
        let find =
            |source, destination, protocol| registry.find(ends(source, destination), protocol);
        let header = |protocol, key| Gre { protocol, checksum: false, key, sequence: None };
        let gre = |protocol, key| registry.find_gre(ends(two, one), &header(protocol, key));
        let raw = Ends { raw: true, ..ends(two, one) };
        assert_eq!(registry.find_gre(raw, &header(Gre::IPV4, Some(7))), Some(7));
        assert_eq!(registry.find_gre(raw, &header(Gre::IPV4, None)), None);
        assert_eq!((registry.find_any(raw, 47), registry.find_any(raw, 4)), (Some(6), None));
        assert_eq!(registry.find(raw, 4), None);
        assert_eq!(find(two, one, 4), Some(0));
        assert_eq!(find(two, one, 41), Some(1));
        assert_eq!(gre(Gre::IPV4, Some(7)), Some(2));
        assert_eq!(gre(Gre::IPV6, None), Some(3));
        assert_eq!(gre(Gre::IPV4, Some(8)), None);
        assert_eq!(gre(Gre::ETHERNET, Some(7)), Some(5));
        assert_eq!(gre(Gre::ETHERNET, None), None);
        assert_eq!(find(two, Some([192, 0, 2, 9].into()), 4), None);
        assert_eq!(find([192, 0, 2, 3].into(), one, 4), Some(8), "one of many other ends");
        assert_eq!(find([192, 0, 2, 3].into(), Some([192, 0, 2, 9].into()), 4), None);
        assert_eq!(find("2001:db8::3".parse().unwrap(), None, 4), None);
        assert_eq!(find(two, one, 17), None);
        assert_eq!(find("2001:db8::2".parse().unwrap(), None, 4), Some(4));
    }
}
