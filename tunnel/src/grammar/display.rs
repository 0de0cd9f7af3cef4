//! A tunnel as the words that would make it again.

use std::fmt;

use quicket_gue::{EcnIngress, Tos, Ttl};

use crate::config::{Encap, External, Families, FlowLabel, Kind, Prefix, Tunnel};

impl Tunnel {
    /// The words that would make this tunnel, each with its value if it has one, in the order of
    /// `ip -d link show`.
    #[must_use]
    pub fn words(&self) -> Vec<(&'static str, Option<String>)> {
        let mut words = Vec::new();
        let mut value = |word, value: String| words.push((word, Some(value)));
        value("type", self.kind.name().to_owned());
        match &self.external {
            Some(external) => external_words(external, &mut words),
            None => words.push(("remote", Some(self.remote.to_string()))),
        }
        let mut value = |word, value: String| words.push((word, Some(value)));
        if let Some(local) = self.local {
            value("local", local.to_string());
        }
        if let Some(dev) = &self.dev {
            value("dev", dev.clone());
        }
        value("ttl", ttl(self.ttl));
        value("tos", tos(self.tos));
        if let Some(mode) = self.mode() {
            value("mode", mode.to_owned());
        }
        if !self.kind.is_v6() {
            words.push((if self.pmtudisc { "pmtudisc" } else { "nopmtudisc" }, None));
        }
        if self.ignore_df {
            words.push(("ignore-df", None));
        }
        if let Some(limit) = self.encaplimit {
            words.push(("encaplimit", Some(limit.to_string())));
        }
        match self.flowlabel {
            FlowLabel::Auto => {}
            FlowLabel::Inherit => words.push(("flowlabel", Some("inherit".to_owned()))),
            FlowLabel::Fixed(label) => words.push(("flowlabel", Some(format!("0x{label:05x}")))),
        }
        if let Some(mark) = self.fwmark {
            words.push(("fwmark", Some(format!("0x{mark:x}"))));
        }
        self.gre_words(&mut words);
        self.encap_words(&mut words);
        words
    }

    /// What it carries, where its type leaves a choice.
    fn mode(&self) -> Option<&'static str> {
        let modes = match self.kind {
            Kind::Sit => ["any", "ipip", "ip6ip"],
            Kind::Ip6tnl => ["any", "ipip6", "ip6ip6"],
            _ => return None,
        };
        Some(match self.families {
            Families { v4: true, v6: true } => modes[0],
            Families { v6: false, .. } => modes[1],
            Families { .. } => modes[2],
        })
    }

    fn gre_words(&self, words: &mut Vec<(&'static str, Option<String>)>) {
        let keys = (self.gre.key, self.okey);
        match keys {
            (Some(key), Some(other)) if key == other => {
                words.push(("key", Some(key.to_string())));
            }
            (ikey, okey) => {
                words.extend(ikey.map(|key| ("ikey", Some(key.to_string()))));
                words.extend(okey.map(|key| ("okey", Some(key.to_string()))));
            }
        }
        let flags = [
            (self.gre.sequence, self.oseq, ["seq", "iseq", "oseq"]),
            (self.gre.checksum, self.ocsum, ["csum", "icsum", "ocsum"]),
        ];
        for (received, sent, [both, only_received, only_sent]) in flags {
            match (received, sent) {
                (true, true) => words.push((both, None)),
                (true, false) => words.push((only_received, None)),
                (false, true) => words.push((only_sent, None)),
                (false, false) => {}
            }
        }
    }

    fn encap_words(&self, words: &mut Vec<(&'static str, Option<String>)>) {
        let encap = match self.encap {
            Encap::None => "none",
            Encap::Fou => "fou",
            Encap::Gue | Encap::Gue1 => "gue",
        };
        words.push(("encap", Some(encap.to_owned())));
        if self.encap != Encap::None {
            self.udp_words(words);
        }
        let ecn = match self.ecn {
            EcnIngress::Normal => "copy",
            EcnIngress::ResetCe => "reset-ce",
            EcnIngress::Compatibility => "none",
        };
        words.push(("ecn", Some(ecn.to_owned())));
        if self.discovery {
            words.push(("discovery", None));
        }
        words.extend(self.allow.iter().map(|prefix| ("allow", Some(shown(prefix)))));
    }

    fn udp_words(&self, words: &mut Vec<(&'static str, Option<String>)>) {
        if self.encap == Encap::Gue1 {
            words.push(("encap-version", Some("1".to_owned())));
        }
        let sport = self.sport.map_or_else(|| "auto".to_owned(), |port| port.to_string());
        words.push(("encap-sport", Some(sport)));
        words.push(("encap-dport", Some(self.dport.to_string())));
        let csum = match (self.kind.is_v6(), self.csum) {
            (false, true) => "encap-csum",
            (false, false) => "noencap-csum",
            (true, true) => "encap-udp6-csum",
            (true, false) => "noencap-udp6-csum",
        };
        words.push((csum, None));
        if self.remcsum {
            words.push(("encap-remcsum", None));
        }
    }
}

impl fmt::Display for Tunnel {
    /// The name, and the words that would make it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        for (word, value) in self.words() {
            write!(f, " {word}")?;
            if let Some(value) = value {
                write!(f, " {value}")?;
            }
        }
        Ok(())
    }
}

fn shown(prefix: &Prefix) -> String {
    format!("{}/{}", prefix.address, prefix.len)
}

fn external_words(external: &External, words: &mut Vec<(&'static str, Option<String>)>) {
    words.push(("external", None));
    for (prefix, peer) in &external.table {
        words.extend([("to", Some(shown(prefix))), ("dst", Some(peer.to_string()))]);
    }
    words.extend(external.learn.iter().map(|prefix| ("learn", Some(shown(prefix)))));
    if !external.learn.is_empty() {
        words.push(("maxaddress", Some(external.most.to_string())));
        words.push(("ageing", Some(external.age.to_string())));
    }
}

fn ttl(ttl: Ttl) -> String {
    match ttl {
        Ttl::Inherit => "inherit".to_owned(),
        Ttl::Fixed(ttl) => ttl.to_string(),
    }
}

fn tos(tos: Tos) -> String {
    match tos {
        Tos::Inherit => "inherit".to_owned(),
        Tos::Fixed(tos) => format!("0x{tos:02x}"),
    }
}
