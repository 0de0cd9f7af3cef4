//! What the words of a line have said so far, and what they say together.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use quicket_gue::{EcnIngress, GUE_PORT, GreRules, Tos, Ttl};

use crate::config::{Encap, External, Families, FlowLabel, Kind, Prefix, Tunnel};

use super::{ParseError, fail};

/// GRE in UDP (RFC 8086, Section 8).
const GRE_IN_UDP_PORT: u16 = 4754;
/// The most entries of the table of other ends.
const MAX_TABLE: usize = 4096;
/// The most addresses that may be learned, and how many are without a word.
pub(super) const MAX_LEARNED: u32 = 1 << 20;
const LEARNED: u32 = 4096;
/// Seconds after which a learned address is forgotten: as long as bridges keep theirs.
const AGEING: u32 = 300;

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
    pub(super) ignore_df: bool,
    pub(super) discovery: bool,
    pub(super) encaplimit: Option<u8>,
    pub(super) flowlabel: FlowLabel,
    pub(super) fwmark: Option<u32>,
    pub(super) external: bool,
    /// Each prefix with its other end, which the word after it says.
    pub(super) table: Vec<(Prefix, Option<IpAddr>)>,
    pub(super) learn: Vec<Prefix>,
    pub(super) most: Option<u32>,
    pub(super) age: Option<u32>,
    pub(super) dev: Option<String>,
    pub(super) okey: Option<u32>,
    pub(super) oseq: bool,
    pub(super) ocsum: bool,
    pub(super) gre: GreRules,
    pub(super) gre_word: Option<&'static str>,
    encap: Option<Encap>,
    /// A word that is for UDP, of those that the line has.
    udp_word: Option<&'static str>,
    pub(super) version: u8,
    pub(super) sport: Option<u16>,
    pub(super) dport: Option<u16>,
    pub(super) csum: Option<(bool, &'static str)>,
    pub(super) csum6: Option<(bool, &'static str)>,
    pub(super) remcsum: bool,
    pub(super) allow: Vec<Prefix>,
}

impl Draft {
    /// The words that follow change what there is.
    pub(super) fn begin_change(&mut self) {
        self.udp_word = None;
    }

    /// Remembers a word that is for UDP only.
    pub(super) fn for_udp(&mut self, word: &'static str) -> Result<(), String> {
        self.udp_word = Some(word);
        Ok(())
    }

    /// Puts packets into UDP, or not. What a tunnel had of UDP before a change is forgotten with it.
    pub(super) fn set_encap(&mut self, encap: Option<Encap>) {
        self.encap = encap;
        if encap.is_none() {
            (self.sport, self.dport, self.csum, self.csum6) = (None, None, None, None);
            (self.remcsum, self.version) = (false, 0);
        }
    }

    /// Begins an entry of the table. The last one for a prefix counts.
    pub(super) fn add_inside(&mut self, prefix: Prefix) -> Result<(), String> {
        let prefix = Prefix { address: prefix.network(), ..prefix };
        self.table.retain(|(known, peer)| *known != prefix || peer.is_none());
        if self.table.len() >= MAX_TABLE {
            return Err(format!("the table has {MAX_TABLE} entries at most"));
        }
        self.table.push((prefix, None));
        Ok(())
    }

    /// Ends it.
    pub(super) fn add_peer(&mut self, peer: Option<IpAddr>) -> Result<(), String> {
        let peer = peer.ok_or("it has to be one address")?;
        match self.table.last_mut() {
            Some((_, open @ None)) => *open = Some(peer),
            _ => return Err("it belongs behind \"to PREFIX\"".into()),
        }
        Ok(())
    }

    /// The other ends, if there are many.
    fn external(&mut self, kind: Kind) -> Result<Option<External>, ParseError> {
        let table = std::mem::take(&mut self.table);
        let given = [
            ("to", !table.is_empty()),
            ("learn", !self.learn.is_empty()),
            ("maxaddress", self.most.is_some()),
            ("ageing", self.age.is_some()),
        ];
        if !self.external {
            return match given.iter().find(|(_, given)| *given) {
                Some((word, _)) => fail(format!("\"{word}\" is for tunnels with \"external\"")),
                None => Ok(None),
            };
        }
        if self.remote.is_some() {
            return fail(
                "\"external\" and \"remote\" exclude each other: many other ends, and one",
            );
        }
        if kind.is_ethernet() {
            return fail("\"external\" goes by addresses of IP: with other types than gretap");
        }
        if self.gre.sequence || self.oseq {
            return fail(
                "\"external\" and sequence numbers exclude each other: they are for one end",
            );
        }
        if matches!(self.flowlabel, FlowLabel::Fixed(_)) {
            return fail("\"external\" takes flowlabel auto or inherit");
        }
        let complete = |(prefix, peer): (Prefix, Option<IpAddr>)| match peer {
            Some(peer) if peer.is_ipv6() == kind.is_v6() => Ok((prefix, peer)),
            Some(_) => fail("\"dst\" needs an address of the version that the type has outside"),
            None => fail("\"to PREFIX\" needs \"dst ADDRESS\" behind it: the other end"),
        };
        let table = table.into_iter().map(complete).collect::<Result<Vec<_>, _>>()?;
        if table.is_empty() && self.learn.is_empty() {
            return fail(
                "\"external\" needs other ends: to PREFIX dst ADDRESS, or learn PREFIX for those \
                 whose packets say what is behind them",
            );
        }
        if let Some(prefix) = self.learn.iter().find(|one| one.address.is_ipv6() != kind.is_v6()) {
            return fail(format!(
                "\"learn {}/{}\" is of another version than the type has outside",
                prefix.address, prefix.len
            ));
        }
        let (most, age) = (self.most.unwrap_or(LEARNED), self.age.unwrap_or(AGEING));
        let learn = std::mem::take(&mut self.learn);
        Ok(Some(External { table, learn, most, age }))
    }

    pub(super) fn finish(mut self, name: String) -> Result<Tunnel, ParseError> {
        let Some(kind) = self.kind else {
            return fail(
                "the type is missing: type ipip, sit, gre, gretap, ip6tnl, ip6gre or ip6gretap",
            );
        };
        let external = self.external(kind)?;
        let any = match kind.is_v6() {
            true => Ipv6Addr::UNSPECIFIED.into(),
            false => Ipv4Addr::UNSPECIFIED.into(),
        };
        let Some(remote) = self.remote.or(external.as_ref().map(|_| any)) else {
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
        if self.ignore_df && !self.nopmtudisc {
            return fail("\"ignore-df\" needs \"nopmtudisc\"");
        }
        if self.encaplimit.is_some() && !kind.is_v6() {
            return fail("\"encaplimit\" is for tunnels over IPv6");
        }
        if self.flowlabel != FlowLabel::Auto && !kind.is_v6() {
            return fail("\"flowlabel\" is for tunnels over IPv6");
        }
        let encap = self.encap(kind)?;
        if let (Encap::None, Some(word)) = (encap, self.udp_word) {
            return fail(format!("\"{word}\" is for encap fou and encap gue"));
        }
        let csum = self.checksum(kind, encap)?;
        if self.discovery && (!matches!(encap, Encap::Gue | Encap::Gue1) || external.is_some()) {
            return fail("\"discovery\" is for encap gue, towards one other end");
        }
        if self.discovery && self.nopmtudisc {
            return fail("\"discovery\" and \"nopmtudisc\" exclude each other");
        }
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
            external,
            local: self.local,
            ttl,
            tos: self.tos,
            ecn: self.ecn,
            pmtudisc: !self.nopmtudisc,
            ignore_df: self.ignore_df,
            discovery: self.discovery,
            encaplimit: self.encaplimit,
            flowlabel: self.flowlabel,
            fwmark: self.fwmark,
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
