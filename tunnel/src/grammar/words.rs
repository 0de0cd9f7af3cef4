//! The tables of words: those that there are, and those of iproute2 that are refused.

use super::draft::{Draft, MAX_LEARNED};
use super::values::{
    address, device_name, ecn, encap, flow_label, key, kind, mark, mode, number, port_number,
    prefix, tos, ttl,
};

pub(super) type Apply = fn(&mut Draft, &str) -> Result<(), String>;

/// A word: its names, what its value is called (nothing if it has none), and what it does.
pub(super) struct Word(
    pub(super) &'static [&'static str],
    pub(super) &'static str,
    pub(super) Apply,
);

/// Remembers a word that is for GRE only.
fn gre_word(draft: &mut Draft, word: &'static str) -> Result<(), String> {
    set(&mut draft.gre_word, Some(word))
}

pub(super) fn set<T>(place: &mut T, value: T) -> Result<(), String> {
    *place = value;
    Ok(())
}

pub(super) const WORDS: &[Word] = &[
    Word(&["type"], "TYPE", |d, v| kind(v).map(|kind| d.kind = Some(kind))),
    Word(&["remote"], "ADDRESS", |d, v| address(v).map(|address| d.remote = address)),
    Word(&["local"], "ADDRESS", |d, v| address(v).map(|address| d.local = address)),
    Word(&["ttl", "hoplimit", "hlim"], "N|inherit", |d, v| ttl(v).map(|ttl| d.ttl = Some(ttl))),
    Word(&["tos", "tclass", "tc", "dsfield"], "N|inherit", |d, v| tos(v).map(|tos| d.tos = tos)),
    Word(&["pmtudisc"], "", |d, _| set(&mut d.nopmtudisc, false)),
    Word(&["nopmtudisc"], "", |d, _| set(&mut d.nopmtudisc, true)),
    Word(&["ignore-df"], "", |d, _| set(&mut d.ignore_df, true)),
    Word(&["noignore-df"], "", |d, _| set(&mut d.ignore_df, false)),
    Word(&["dev"], "DEVICE", |d, v| device_name(v).map(|name| d.dev = Some(name))),
    Word(&["mode"], "MODE", |d, v| mode(v).map(|families| d.families = Some(families))),
    Word(&["key"], "KEY", |d, v| {
        let key = key(v)?;
        (d.okey, d.gre.key) = (Some(key), Some(key));
        gre_word(d, "key")
    }),
    Word(&["ikey"], "KEY", |d, v| {
        d.gre.key = Some(key(v)?);
        gre_word(d, "ikey")
    }),
    Word(&["okey"], "KEY", |d, v| {
        d.okey = Some(key(v)?);
        gre_word(d, "okey")
    }),
    Word(&["nokey"], "", |d, _| {
        (d.okey, d.gre.key) = (None, None);
        gre_word(d, "nokey")
    }),
    Word(&["noikey"], "", |d, _| {
        d.gre.key = None;
        gre_word(d, "noikey")
    }),
    Word(&["nookey"], "", |d, _| {
        d.okey = None;
        gre_word(d, "nookey")
    }),
    Word(&["seq"], "", |d, _| {
        (d.oseq, d.gre.sequence) = (true, true);
        gre_word(d, "seq")
    }),
    Word(&["iseq"], "", |d, _| {
        d.gre.sequence = true;
        gre_word(d, "iseq")
    }),
    Word(&["oseq"], "", |d, _| {
        d.oseq = true;
        gre_word(d, "oseq")
    }),
    Word(&["noseq"], "", |d, _| {
        (d.oseq, d.gre.sequence) = (false, false);
        gre_word(d, "noseq")
    }),
    Word(&["noiseq"], "", |d, _| {
        d.gre.sequence = false;
        gre_word(d, "noiseq")
    }),
    Word(&["nooseq"], "", |d, _| {
        d.oseq = false;
        gre_word(d, "nooseq")
    }),
    Word(&["csum"], "", |d, _| {
        (d.ocsum, d.gre.checksum) = (true, true);
        gre_word(d, "csum")
    }),
    Word(&["icsum"], "", |d, _| {
        d.gre.checksum = true;
        gre_word(d, "icsum")
    }),
    Word(&["ocsum"], "", |d, _| {
        d.ocsum = true;
        gre_word(d, "ocsum")
    }),
    Word(&["nocsum"], "", |d, _| {
        (d.ocsum, d.gre.checksum) = (false, false);
        gre_word(d, "nocsum")
    }),
    Word(&["noicsum"], "", |d, _| {
        d.gre.checksum = false;
        gre_word(d, "noicsum")
    }),
    Word(&["noocsum"], "", |d, _| {
        d.ocsum = false;
        gre_word(d, "noocsum")
    }),
    Word(&["encap"], "none|fou|gue", |d, v| encap(v).map(|encap| d.set_encap(encap))),
    Word(&["noencap"], "", |d, _| {
        d.set_encap(None);
        Ok(())
    }),
    Word(&["encap-sport"], "PORT|auto", |d, v| match v {
        "auto" => set(&mut d.sport, None),
        _ => {
            d.sport = Some(port_number(v)?);
            d.for_udp("encap-sport")
        }
    }),
    Word(&["encap-dport"], "PORT", |d, v| {
        d.dport = Some(port_number(v)?);
        d.for_udp("encap-dport")
    }),
    Word(&["encap-csum"], "", |d, _| {
        d.csum = Some((true, "encap-csum"));
        d.for_udp("encap-csum")
    }),
    Word(&["noencap-csum"], "", |d, _| {
        d.csum = Some((false, "noencap-csum"));
        d.for_udp("noencap-csum")
    }),
    Word(&["encap-udp6-csum", "encap-csum6"], "", |d, _| {
        d.csum6 = Some((true, "encap-udp6-csum"));
        d.for_udp("encap-udp6-csum")
    }),
    Word(&["noencap-udp6-csum", "noencap-csum6"], "", |d, _| {
        d.csum6 = Some((false, "noencap-udp6-csum"));
        d.for_udp("noencap-udp6-csum")
    }),
    Word(&["encap-remcsum"], "", |d, _| {
        d.remcsum = true;
        d.for_udp("encap-remcsum")
    }),
    Word(&["noencap-remcsum"], "", |d, _| set(&mut d.remcsum, false)),
    Word(&["encaplimit"], "N|none", |d, v| match v {
        "none" => set(&mut d.encaplimit, None),
        _ => set(&mut d.encaplimit, Some(number(v, 255)? as u8)),
    }),
    Word(&["flowlabel", "fl"], "N|inherit|auto", |d, v| {
        flow_label(v).map(|label| d.flowlabel = label)
    }),
    Word(&["fwmark"], "MARK", |d, v| mark(v).map(|mark| d.fwmark = mark)),
    Word(&["external"], "", |d, _| set(&mut d.external, true)),
    // As ip route add PREFIX encap ip dst ADDRESS dev NAME.
    Word(&["to"], "PREFIX", |d, v| d.add_inside(prefix(v)?)),
    Word(&["dst"], "ADDRESS", |d, v| d.add_peer(address(v)?)),
    Word(&["noto"], "", |d, _| {
        d.table.clear();
        Ok(())
    }),
    Word(&["learn"], "PREFIX", |d, v| prefix(v).map(|prefix| d.learn.push(prefix))),
    Word(&["nolearn"], "", |d, _| set(&mut d.learn, Vec::new())),
    // As for vxlan.
    Word(&["maxaddress"], "N", |d, v| number(v, MAX_LEARNED).map(|most| d.most = Some(most))),
    Word(&["ageing"], "SECONDS", |d, v| number(v, 86_400).map(|age| d.age = Some(age))),
    // Ours.
    Word(&["encap-version"], "0|1", |d, v| match v {
        "0" => set(&mut d.version, 0),
        "1" => set(&mut d.version, 1),
        _ => Err("the version of GUE is 0 or 1".into()),
    }),
    Word(&["discovery"], "", |d, _| set(&mut d.discovery, true)),
    Word(&["nodiscovery"], "", |d, _| set(&mut d.discovery, false)),
    Word(&["ecn"], "copy|reset-ce|none", |d, v| ecn(v).map(|ecn| d.ecn = ecn)),
    Word(&["allow"], "PREFIX", |d, v| prefix(v).map(|prefix| d.allow.push(prefix))),
    Word(&["noallow"], "", |d, _| set(&mut d.allow, Vec::new())),
];

/// Words of iproute2 that are refused, and why.
pub(super) const REFUSED: &[(&str, &str)] = &[
    ("dscp", "the inner DSCP is left as it is"),
    ("allow-localremote", "the other end is never this host: its datagrams would be a loop"),
    ("noallow-localremote", "that is so in any case"),
    ("id", "the key of GRE is the same for all other ends: key KEY"),
    ("src", "the address of this end is the same for all other ends: local ADDRESS"),
    ("isatap", "ISATAP is not supported"),
    ("6rd-prefix", "6rd is not supported"),
    ("6rd-relay_prefix", "6rd is not supported"),
    ("6rd-reset", "6rd is not supported"),
    ("erspan", "ERSPAN is not supported"),
    ("erspan_ver", "ERSPAN is not supported"),
    ("erspan_dir", "ERSPAN is not supported"),
    ("erspan_hwid", "ERSPAN is not supported"),
    ("numtxqueues", "queues come with workers: --workers"),
    ("mtu", "use \"ip link set NAME mtu N\""),
];

pub(super) fn unknown(word: &str) -> String {
    if let Some((_, why)) = REFUSED.iter().find(|(refused, _)| *refused == word) {
        return format!("\"{word}\" is not supported: {why}");
    }
    let names = WORDS.iter().flat_map(|known| known.0.iter().copied());
    let nearest = names.map(|name| (distance(name, word), name)).min();
    match nearest {
        Some((0..=2, name)) => format!("\"{word}\" is unknown; did you mean \"{name}\"?"),
        _ => format!("\"{word}\" is unknown; quicket tunnel --help lists the words"),
    }
}

/// How many letters have to change to make one word of the other.
fn distance(one: &str, other: &str) -> usize {
    // Of words that long none is meant.
    if other.len() > 32 {
        return usize::MAX;
    }
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (i, a) in one.bytes().enumerate() {
        let mut diagonal = i;
        row[0] = i + 1;
        for (j, b) in other.bytes().enumerate() {
            let changed = diagonal + usize::from(a != b);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[other.len()]
}
