//! Tunnels and ports as plain values, checked against each other.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use quicket_gue::{
    ENCAPSULATION_LIMIT_LEN, EcnIngress, Gre, GreRules, MIN_MTU_V6, Outer, Overhead, Shim, Tos,
    Ttl, protocol,
};

use crate::ethernet::ETHERNET_LEN;

/// The types of tunnels, as `ip link` names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// IPv4 in IPv4.
    Ipip,
    /// IPv6, or IPv4, in IPv4.
    Sit,
    /// GRE in IPv4.
    Gre,
    /// IPv6 or IPv4 in IPv6.
    Ip6tnl,
    /// GRE in IPv6.
    Ip6gre,
    /// Ethernet in GRE in IPv4.
    Gretap,
    /// Ethernet in GRE in IPv6.
    Ip6gretap,
}

impl Kind {
    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ipip => "ipip",
            Self::Sit => "sit",
            Self::Gre => "gre",
            Self::Ip6tnl => "ip6tnl",
            Self::Ip6gre => "ip6gre",
            Self::Gretap => "gretap",
            Self::Ip6gretap => "ip6gretap",
        }
    }

    /// Whether it is GRE.
    #[must_use]
    pub const fn is_gre(self) -> bool {
        matches!(self, Self::Gre | Self::Ip6gre | Self::Gretap | Self::Ip6gretap)
    }

    /// Whether the outer addresses are of IPv6.
    #[must_use]
    pub const fn is_v6(self) -> bool {
        matches!(self, Self::Ip6tnl | Self::Ip6gre | Self::Ip6gretap)
    }

    /// Whether it carries frames of Ethernet.
    #[must_use]
    pub const fn is_ethernet(self) -> bool {
        matches!(self, Self::Gretap | Self::Ip6gretap)
    }
}

/// Which packets a tunnel carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Families {
    /// IPv4.
    pub v4: bool,
    /// IPv6.
    pub v6: bool,
}

/// What is between the outer IP header and what is carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encap {
    /// Nothing, not even UDP.
    None,
    /// Directly: the port says what comes (foo over UDP).
    Fou,
    /// With the header of Generic UDP Encapsulation, version 0.
    Gue,
    /// Version 1: without a header, IPv4 and IPv6 only.
    Gue1,
}

/// A range of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    /// The address.
    pub address: IpAddr,
    /// How many of its bits count.
    pub len: u8,
}

impl Prefix {
    /// Whether an address is within.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                let bits = own.to_bits() ^ other.to_bits();
                bits.checked_shr(32u32.saturating_sub(self.len.into())).unwrap_or(0) == 0
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                let bits = own.to_bits() ^ other.to_bits();
                bits.checked_shr(128u32.saturating_sub(self.len.into())).unwrap_or(0) == 0
            }
            _ => false,
        }
    }

    /// Its address with those bits alone that count.
    #[must_use]
    pub fn network(&self) -> IpAddr {
        match self.address {
            IpAddr::V4(own) => {
                let mask = u32::MAX.checked_shl(32u32.saturating_sub(self.len.into())).unwrap_or(0);
                Ipv4Addr::from_bits(own.to_bits() & mask).into()
            }
            IpAddr::V6(own) => {
                let mask =
                    u128::MAX.checked_shl(128u32.saturating_sub(self.len.into())).unwrap_or(0);
                Ipv6Addr::from_bits(own.to_bits() & mask).into()
            }
        }
    }
}

/// The other ends of a tunnel that has many.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct External {
    /// Which addresses inside are behind which other end, the longest prefix first.
    pub table: Vec<(Prefix, IpAddr)>,
    /// The other ends from which more is learned; from none if empty.
    pub learn: Vec<Prefix>,
    /// The most addresses that are learned.
    pub most: u32,
    /// The seconds after which one is forgotten that nothing came from.
    pub age: u32,
}

/// The flow label of outer packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FlowLabel {
    /// The system chooses one for each flow.
    #[default]
    Auto,
    /// That of the packet inside; chosen by the system where there is none.
    Inherit,
    /// Always this one, 1 to 2^20 - 1.
    Fixed(u32),
}

/// A tunnel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tunnel {
    /// The name of its device.
    pub name: String,
    /// Its type.
    pub kind: Kind,
    /// What it carries.
    pub families: Families,
    /// The other end; the unspecified address if there are many.
    pub remote: IpAddr,
    /// The other ends, if there are many.
    pub external: Option<External>,
    /// The address of this end, if it matters which of this host's.
    pub local: Option<IpAddr>,
    /// TTL of outer headers.
    pub ttl: Ttl,
    /// Differentiated services of outer headers.
    pub tos: Tos,
    /// How the outer ECN field is made.
    pub ecn: EcnIngress,
    /// Whether outer packets must not be fragmented on their way; if not, they must not where the packet
    /// of IPv4 inside must not.
    pub pmtudisc: bool,
    /// Whether that of the packet inside does not count.
    pub ignore_df: bool,
    /// Whether the MTU of the path is found out by probes as well, which the other end answers if it is
    /// one of ours (RFC 8899).
    pub discovery: bool,
    /// How many tunnels outer packets may still enter, if they say so (RFC 2473, Section 4.1.1).
    pub encaplimit: Option<u8>,
    /// The flow label of outer packets.
    pub flowlabel: FlowLabel,
    /// The mark that the system routes and filters outer packets by.
    pub fwmark: Option<u32>,
    /// The device that outer packets take.
    pub dev: Option<String>,
    /// The key of sent packets (GRE).
    pub okey: Option<u32>,
    /// Whether sent packets are numbered (GRE).
    pub oseq: bool,
    /// Whether sent packets have a checksum (GRE).
    pub ocsum: bool,
    /// What received packets must have (GRE).
    pub gre: GreRules,
    /// How packets are put into UDP, if they are.
    pub encap: Encap,
    /// The source port; by flow if there is none.
    pub sport: Option<u16>,
    /// The destination port; 0 without UDP.
    pub dport: u16,
    /// Whether sent datagrams have a checksum; true without UDP.
    pub csum: bool,
    /// Whether the other end may complete checksums of the packets inside.
    pub remcsum: bool,
    /// Where packets inside may come from; from anywhere if empty.
    pub allow: Vec<Prefix>,
}

impl Tunnel {
    /// The protocol that the encapsulation announces for a packet.
    #[must_use]
    pub const fn protocol(&self, is_v4: bool) -> u8 {
        if self.kind.is_gre() {
            protocol::GRE
        } else if is_v4 {
            protocol::IPIP
        } else {
            protocol::IPV6
        }
    }

    /// The protocols that outer packets have without UDP.
    #[must_use]
    pub fn protocols(&self) -> Vec<u8> {
        let all = [protocol::GRE, protocol::IPIP, protocol::IPV6];
        let has = |number: &u8| {
            self.carries(true) && self.protocol(true) == *number
                || self.carries(false) && self.protocol(false) == *number
        };
        all.into_iter().filter(has).collect()
    }

    /// The protocol of a port for direct encapsulation that serves this tunnel.
    #[must_use]
    pub const fn direct_protocol(&self) -> u8 {
        self.protocol(!self.families.v6)
    }

    /// Whether it carries packets of a family. Direct encapsulation has one protocol per port.
    #[must_use]
    pub fn carries(&self, is_v4: bool) -> bool {
        let family = if is_v4 { self.families.v4 } else { self.families.v6 };
        family && (self.encap != Encap::Fou || self.protocol(is_v4) == self.direct_protocol())
    }

    /// The header of GRE for a packet; the sequence number is filled in by the sender.
    #[must_use]
    pub fn gre_header(&self, is_v4: bool, sequence: u32) -> Option<Gre> {
        self.kind.is_gre().then(|| Gre {
            protocol: match is_v4 {
                _ if self.kind.is_ethernet() => Gre::ETHERNET,
                true => Gre::IPV4,
                false => Gre::IPV6,
            },
            checksum: self.ocsum,
            key: self.okey,
            sequence: self.oseq.then_some(sequence),
        })
    }

    /// Whether the outer packet of one inside must not be fragmented. The least that IPv6 asks for is
    /// carried in any case (RFC 2473, Section 7.1; RFC 4213, Section 3.2.1).
    #[must_use]
    pub fn dont_fragment(&self, is_v4: bool, inner: bool, mtu: u16) -> bool {
        match self.pmtudisc {
            true => is_v4 || mtu >= MIN_MTU_V6,
            false => is_v4 && inner && !self.ignore_df,
        }
    }

    /// Whether some outer packets may be fragmented and others not.
    #[must_use]
    pub fn fragments_some(&self) -> bool {
        match self.pmtudisc {
            true => self.carries(false),
            false => self.carries(true) && !self.ignore_df,
        }
    }

    /// What it adds to each packet.
    #[must_use]
    pub fn overhead(&self) -> Overhead {
        let encapsulation_limit = self.encaplimit.is_some();
        let outer = if self.kind.is_v6() { Outer::V6 { encapsulation_limit } } else { Outer::V4 };
        let shim = match self.encap {
            Encap::None => Shim::None,
            Encap::Fou | Encap::Gue1 => Shim::Udp,
            Encap::Gue => Shim::Gue { remote_checksum: self.remcsum },
        };
        let gre = self.gre_header(true, 0).map_or(0, |gre| gre.len() as u16);
        // See `path`: without a checksum Linux does not segment, and counts the option twice.
        let twice =
            if encapsulation_limit && !self.csum { ENCAPSULATION_LIMIT_LEN as u16 } else { 0 };
        let link = if self.kind.is_ethernet() { ETHERNET_LEN as u16 } else { 0 };
        Overhead { outer, shim, gre: gre + link + twice }
    }
}

/// What a port for encapsulated packets expects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortKind {
    /// Generic UDP Encapsulation, versions 0 and 1.
    Gue,
    /// Packets of this IP protocol, without a header in between.
    Direct(u8),
}

/// A port that encapsulated packets come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Port {
    /// Its number.
    pub port: u16,
    /// What it expects.
    pub kind: PortKind,
    /// Whether it is a port of IPv6.
    pub v6: bool,
    /// The address of this host, if not all.
    pub local: Option<IpAddr>,
    /// The only sender, if not all that tunnels have.
    pub peer: Option<IpAddr>,
}

impl Port {
    fn serves(&self, tunnel: &Tunnel) -> bool {
        let protocol = match self.kind {
            PortKind::Gue => matches!(tunnel.encap, Encap::Gue | Encap::Gue1),
            PortKind::Direct(protocol) => {
                tunnel.encap == Encap::Fou && protocol == tunnel.direct_protocol()
            }
        };
        let local = match (self.local, tunnel.local) {
            (Some(own), Some(local)) => own == local,
            _ => true,
        };
        protocol && local && self.v6 == tunnel.kind.is_v6()
    }
}

/// Tunnels and ports that one process has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Setup {
    /// The tunnels.
    pub tunnels: Vec<Tunnel>,
    /// The ports.
    pub ports: Vec<Port>,
}

/// Why tunnels and ports do not go together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetupError(pub(crate) String);

impl fmt::Display for SetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for SetupError {}

impl Setup {
    /// Gives a port to each tunnel that no port was made for: the one that it sends to. Refuses
    /// what contradicts itself.
    ///
    /// # Errors
    ///
    /// Two tunnels of one name or with the same addresses and keys, and two meanings of a port.
    pub fn complete(mut self) -> Result<Self, SetupError> {
        for (index, tunnel) in self.tunnels.iter().enumerate() {
            for other in &self.tunnels[..index] {
                if other.name == tunnel.name {
                    return Err(SetupError(format!("there are two tunnels named {}", tunnel.name)));
                }
                if same_packets(tunnel, other) {
                    return Err(SetupError(format!(
                        "{} and {} have the same addresses and keys: packets for one cannot be \
                         told from packets for the other",
                        other.name, tunnel.name
                    )));
                }
            }
        }
        for tunnel in &self.tunnels {
            let kind = match tunnel.encap {
                Encap::None => continue,
                Encap::Fou => PortKind::Direct(tunnel.direct_protocol()),
                Encap::Gue | Encap::Gue1 => PortKind::Gue,
            };
            if !self.ports.iter().any(|port| port.serves(tunnel)) {
                let v6 = tunnel.kind.is_v6();
                let (port, local) = (tunnel.dport, tunnel.local);
                self.ports.push(Port { port, kind, v6, local, peer: None });
            }
        }
        for (index, port) in self.ports.iter().enumerate() {
            for other in &self.ports[..index] {
                let overlap =
                    port.local.is_none() || other.local.is_none() || port.local == other.local;
                if port == other {
                    let text = "is there already: quicket tunnel port show lists all";
                    return Err(SetupError(format!("port {} {text}", port.port)));
                }
                if (port.port, port.v6) == (other.port, other.v6) && overlap {
                    return Err(SetupError(format!(
                        "port {} has two meanings: give the tunnels ports of their own by \
                         encap-dport, or by lines \"port add\"",
                        port.port
                    )));
                }
            }
        }
        Ok(self)
    }
}

/// Whether a packet could be for both.
fn same_packets(one: &Tunnel, other: &Tunnel) -> bool {
    let local = one.local.is_none() || other.local.is_none() || one.local == other.local;
    let inside = if one.kind.is_gre() && other.kind.is_gre() {
        one.gre.key == other.gre.key && one.kind.is_ethernet() == other.kind.is_ethernet()
    } else {
        one.kind.is_gre() == other.kind.is_gre()
            && (one.carries(true) && other.carries(true)
                || one.carries(false) && other.carries(false))
    };
    let outside = (one.encap == Encap::None) == (other.encap == Encap::None);
    one.remote == other.remote && local && inside && outside
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::tunnel;

    fn setup(lines: &[&str]) -> Result<Setup, SetupError> {
        let tunnels = lines.iter().map(|line| tunnel(line)).collect();
        Setup { tunnels, ports: Vec::new() }.complete()
    }

    #[test]
    fn a_tunnel_without_a_port_listens_where_it_sends_to() {
        let setup = setup(&[
            "a type ipip remote 192.0.2.2 local 192.0.2.1 encap fou encap-dport 5555",
            "b type sit remote 192.0.2.2 local 192.0.2.1 encap gue encap-dport 6080 mode ip6ip",
        ])
        .unwrap();
        let kinds: Vec<_> = setup.ports.iter().map(|port| (port.port, port.kind)).collect();
        assert_eq!(kinds, [(5555, PortKind::Direct(4)), (6080, PortKind::Gue)]);
    }

    #[test]
    fn tunnels_share_a_port_and_a_port_has_one_meaning() {
        let gre = "type gre remote 192.0.2.2 local 192.0.2.1 encap gue";
        let two = setup(&[&format!("a {gre} key 1"), &format!("b {gre} key 2")]).unwrap();
        assert_eq!(two.ports.len(), 1);
        let same = setup(&[&format!("a {gre} key 1"), &format!("b {gre} key 1")]);
        assert!(same.unwrap_err().0.contains("same addresses and keys"));
        let fou = "remote 192.0.2.2 local 192.0.2.1 encap fou encap-dport 7";
        let twice = setup(&[&format!("a type ipip {fou}"), &format!("b type gre {fou}")]);
        assert!(twice.unwrap_err().0.contains("two meanings"));
        let raw = "b type gre remote 192.0.2.2 local 192.0.2.1 key 1";
        let both = setup(&[&format!("a {gre} key 1"), raw]).unwrap();
        assert_eq!(both.ports.len(), 1, "one comes by UDP, one without");
        let same = setup(&[raw, &raw.replace("b type", "c type")]);
        assert!(same.unwrap_err().0.contains("same addresses and keys"));
        let names = setup(&[&format!("a {gre}"), "a type ipip remote 192.0.2.9 encap gue"]);
        assert!(names.unwrap_err().0.contains("two tunnels named a"));
    }

    #[test]
    fn prefixes_contain_what_they_should() {
        let prefix = |text: &str| {
            let (address, len) = text.split_once('/').unwrap();
            Prefix { address: address.parse().unwrap(), len: len.parse().unwrap() }
        };
        let is_in = |address: &str, text| prefix(text).contains(address.parse().unwrap());
        assert!(is_in("10.1.2.3", "10.0.0.0/8") && !is_in("11.1.2.3", "10.0.0.0/8"));
        assert!(is_in("10.1.2.3", "0.0.0.0/0") && !is_in("::1", "0.0.0.0/0"));
        assert!(is_in("10.1.2.3", "10.1.2.3/32") && !is_in("10.1.2.2", "10.1.2.3/32"));
        assert!(is_in("2001:db8::9", "2001:db8::/32") && !is_in("2001:db9::9", "2001:db8::/32"));
        assert!(is_in("2001:db8::9", "::/0"));
        for (text, network) in [
            ("10.1.2.3/8", "10.0.0.0"),
            ("10.1.2.3/32", "10.1.2.3"),
            ("10.1.2.3/0", "0.0.0.0"),
            ("2001:db8::9/32", "2001:db8::"),
            ("2001:db8::9/128", "2001:db8::9"),
            ("2001:db8::9/0", "::"),
        ] {
            assert_eq!(prefix(text).network(), network.parse::<IpAddr>().unwrap());
        }
    }
}
