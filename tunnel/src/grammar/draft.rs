//! What the words of a line have said so far, and what they say together.

use std::net::IpAddr;

use quicket_gue::{EcnIngress, GUE_PORT, GreRules, Tos, Ttl};

use crate::config::{Encap, Families, Kind, Prefix, Tunnel};

use super::{ParseError, fail};

/// GRE in UDP (RFC 8086, Section 8).
const GRE_IN_UDP_PORT: u16 = 4754;

/// What the words have said so far.
#[derive(Default)]
pub(super) struct Draft {
    pub(super) kind: Option<Kind>,
    pub(super) families: Option<Families>,
    pub(super) remote: Option<IpAddr>,
    pub(super) local: Option<IpAddr>,
    pub(super) ttl: Option<Ttl>,
    pub(super) tos: Tos,
    pub(super) ecn: EcnIngress,
    pub(super) nopmtudisc: bool,
    pub(super) encaplimit: Option<u8>,
    pub(super) flowlabel: Option<u32>,
    pub(super) dev: Option<String>,
    pub(super) okey: Option<u32>,
    pub(super) oseq: bool,
    pub(super) ocsum: bool,
    pub(super) gre: GreRules,
    pub(super) gre_word: Option<&'static str>,
    encap: Option<Encap>,
    pub(super) version: u8,
    pub(super) sport: Option<u16>,
    pub(super) dport: Option<u16>,
    pub(super) csum: Option<(bool, &'static str)>,
    pub(super) csum6: Option<(bool, &'static str)>,
    pub(super) remcsum: bool,
    pub(super) allow: Vec<Prefix>,
}

impl Draft {
    /// Puts packets into UDP, or not. What was said of UDP before is forgotten with it.
    pub(super) fn set_encap(&mut self, encap: Option<Encap>) {
        self.encap = encap;
        if encap.is_none() {
            (self.sport, self.dport, self.csum, self.csum6) = (None, None, None, None);
            (self.remcsum, self.version) = (false, 0);
        }
    }

    pub(super) fn finish(self, name: String) -> Result<Tunnel, ParseError> {
        let Some(kind) = self.kind else {
            return fail(
                "the type is missing: type ipip, sit, gre, gretap, ip6tnl, ip6gre or ip6gretap",
            );
        };
        let Some(remote) = self.remote else {
            return fail("the other end is missing: remote ADDRESS");
        };
        for (word, address) in [("remote", Some(remote)), ("local", self.local)] {
            if address.is_some_and(|address| address.is_ipv6() != kind.is_v6()) {
                let family = if kind.is_v6() { "IPv6" } else { "IPv4" };
                return fail(format!("\"{word}\" needs an address of {family} with this type"));
            }
        }
        if let (false, Some(word)) = (kind.is_gre(), self.gre_word) {
            return fail(format!(
                "\"{word}\" is for GRE: with type gre, gretap, ip6gre or ip6gretap"
            ));
        }
        let ttl = self.ttl.unwrap_or(if kind.is_v6() { Ttl::Fixed(64) } else { Ttl::Inherit });
        if self.nopmtudisc && (kind.is_v6() || self.ttl.is_some_and(|ttl| ttl != Ttl::Inherit)) {
            return fail(if kind.is_v6() {
                "\"nopmtudisc\" is for tunnels over IPv4"
            } else {
                "a fixed ttl and nopmtudisc are incompatible: with both, loops would not end"
            });
        }
        if self.encaplimit.is_some() && !kind.is_v6() {
            return fail("\"encaplimit\" is for tunnels over IPv6");
        }
        if self.flowlabel.is_some() && !kind.is_v6() {
            return fail("\"flowlabel\" is for tunnels over IPv6");
        }
        let encap = self.encap(kind)?;
        let csum = self.checksum(kind, encap)?;
        let dport = match (self.dport, encap) {
            (Some(_), Encap::None) => {
                return fail("\"encap-dport\" is for encap fou and encap gue");
            }
            (None, Encap::None) => 0,
            (Some(port), _) => port,
            (None, Encap::Gue | Encap::Gue1) => GUE_PORT,
            (None, Encap::Fou) if kind.is_gre() => GRE_IN_UDP_PORT,
            (None, Encap::Fou) => return fail("encap fou needs a port: encap-dport PORT"),
        };
        let families = self.families(kind)?;
        Ok(Tunnel {
            name,
            kind,
            families,
            remote,
            local: self.local,
            ttl,
            tos: self.tos,
            ecn: self.ecn,
            pmtudisc: !self.nopmtudisc,
            encaplimit: self.encaplimit,
            flowlabel: self.flowlabel,
            dev: self.dev,
            okey: self.okey,
            oseq: self.oseq,
            ocsum: self.ocsum,
            gre: self.gre,
            encap,
            sport: self.sport,
            dport,
            csum,
            remcsum: self.remcsum,
            allow: self.allow,
        })
    }

    fn families(&self, kind: Kind) -> Result<Families, ParseError> {
        let both = Families { v4: true, v6: true };
        match (kind, self.families) {
            (kind, Some(_)) if kind.is_gre() => {
                fail("\"mode\" is not for GRE, which says of each packet what it is")
            }
            (Kind::Ipip, Some(Families { v4: false, .. })) => {
                fail("type ipip carries IPv4; type sit mode ip6ip carries IPv6")
            }
            (Kind::Ipip, _) => Ok(Families { v4: true, v6: false }),
            (_, families) => Ok(families.unwrap_or(both)),
        }
    }

    fn encap(&self, kind: Kind) -> Result<Encap, ParseError> {
        match (self.encap, self.version) {
            (None, _) if self.sport.is_some() => {
                fail("\"encap-sport\" is for encap fou and encap gue")
            }
            (None | Some(Encap::Fou), 1) => fail("\"encap-version\" is for encap gue"),
            (Some(Encap::Gue), 1) if kind.is_gre() => {
                fail("version 1 of GUE carries IPv4 and IPv6, not GRE")
            }
            (Some(Encap::Gue), 1) => Ok(Encap::Gue1),
            (encap, _) => Ok(encap.unwrap_or(Encap::None)),
        }
    }

    /// Whether datagrams have a checksum, by the word that counts for the outer family.
    fn checksum(&self, kind: Kind, encap: Encap) -> Result<bool, ParseError> {
        let (own, other, family) = if kind.is_v6() {
            (self.csum6, self.csum, "IPv4; over IPv6 it is encap-udp6-csum")
        } else {
            (self.csum, self.csum6, "IPv6; over IPv4 it is encap-csum")
        };
        if let Some((_, word)) = other {
            return fail(format!("\"{word}\" is for tunnels over {family}"));
        }
        if let (Some((_, word)), Encap::None) = (own, encap) {
            return fail(format!("\"{word}\" is for encap fou and encap gue"));
        }
        let checksum = own.is_none_or(|(on, _)| on);
        if self.remcsum && encap != Encap::Gue {
            return fail("\"encap-remcsum\" is for encap gue, version 0");
        }
        if self.remcsum && !checksum {
            return fail(
                "\"encap-remcsum\" needs the checksum outside: it vouches for what is inside",
            );
        }
        Ok(checksum)
    }
}
