//! Which tunnel a received packet is for.

use std::collections::HashMap;
use std::net::IpAddr;

use quicket_gue::{Gre, protocol};

use crate::config::Tunnel;

/// Tunnels by the addresses of their other ends.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    by_remote: HashMap<IpAddr, Vec<Entry>>,
}

#[derive(Debug)]
struct Entry {
    index: usize,
    local: Option<IpAddr>,
    gre: bool,
    ethernet: bool,
    key: Option<u32>,
    v4: bool,
    v6: bool,
}

impl Registry {
    pub(crate) fn new(tunnels: &[Tunnel]) -> Self {
        let mut registry = Self::default();
        for (index, tunnel) in tunnels.iter().enumerate() {
            registry.by_remote.entry(tunnel.remote).or_default().push(Entry {
                index,
                local: tunnel.local,
                gre: tunnel.kind.is_gre(),
                ethernet: tunnel.kind.is_ethernet(),
                key: tunnel.gre.key,
                v4: tunnel.carries(true),
                v6: tunnel.carries(false),
            });
        }
        registry
    }

    /// The tunnel for packets of `protocol` from `source` to `destination`.
    pub(crate) fn find(
        &self,
        source: IpAddr,
        destination: Option<IpAddr>,
        protocol: u8,
    ) -> Option<usize> {
        self.first(source, destination, |entry| match protocol {
            protocol::IPIP => !entry.gre && entry.v4,
            protocol::IPV6 => !entry.gre && entry.v6,
            _ => false,
        })
    }

    /// The tunnel for what GRE carries with this header.
    pub(crate) fn find_gre(
        &self,
        source: IpAddr,
        destination: Option<IpAddr>,
        gre: &Gre,
    ) -> Option<usize> {
        let ethernet = gre.protocol == Gre::ETHERNET;
        self.first(source, destination, |entry| {
            entry.gre && entry.key == gre.key && entry.ethernet == ethernet
        })
    }

    fn first(
        &self,
        source: IpAddr,
        destination: Option<IpAddr>,
        is_for: impl Fn(&Entry) -> bool,
    ) -> Option<usize> {
        let matches = |entry: &&Entry| {
            let local = match (entry.local, destination) {
                (Some(local), Some(destination)) => local == destination,
                _ => true,
            };
            local && is_for(entry)
        };
        self.by_remote.get(&source)?.iter().find(matches).map(|entry| entry.index)
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
        ]);
        let (two, one) = ([192, 0, 2, 2].into(), Some([192, 0, 2, 1].into()));
        let find = |source, destination, protocol| registry.find(source, destination, protocol);
        let gre = |protocol, key| {
            registry.find_gre(two, one, &Gre { protocol, checksum: false, key, sequence: None })
        };
        assert_eq!(find(two, one, 4), Some(0));
        assert_eq!(find(two, one, 41), Some(1));
        assert_eq!(gre(Gre::IPV4, Some(7)), Some(2));
        assert_eq!(gre(Gre::IPV6, None), Some(3));
        assert_eq!(gre(Gre::IPV4, Some(8)), None);
        assert_eq!(gre(Gre::ETHERNET, Some(7)), Some(5));
        assert_eq!(gre(Gre::ETHERNET, None), None);
        assert_eq!(find(two, Some([192, 0, 2, 9].into()), 4), None);
        assert_eq!(find([192, 0, 2, 3].into(), one, 4), None);
        assert_eq!(find(two, one, 17), None);
        assert_eq!(find("2001:db8::2".parse().unwrap(), None, 4), Some(4));
    }
}
