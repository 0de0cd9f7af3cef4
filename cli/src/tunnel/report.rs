//! What programs and people are told of tunnels at work.

use std::fmt::Write;

use quicket_tunnel::{Counters, Port, PortKind, Tunnel, Tunnels};
use serde_json::{Map, Value, json};

use crate::control::printable;
use crate::exposition::{Families, Kind, Labels, OTHER_VERSION};

/// All tunnels and ports, and what was for none of them; names as `ip -j` has them.
pub(super) fn json(tunnels: &Tunnels) -> Value {
    let setup = tunnels.setup();
    let all = setup.tunnels.iter().enumerate().map(|(index, tunnel)| {
        let mut shown = json!({
            "ifname": tunnel.name,
            "mtu": tunnels.mtu(index),
            "linkinfo": { "info_kind": tunnel.kind.name(), "info_data": words(tunnel) },
            "words": tunnel.to_string(),
            "counters": tunnels.counters(index).map(values),
        });
        if let Some((state, mtu)) = tunnels.discovery(index) {
            shown["discovery"] = json!({ "state": state, "path_mtu": mtu });
        }
        if tunnel.external.is_some() {
            let learned = tunnels.learned(index).into_iter();
            let learned = learned.map(|(address, peer, age)| {
                json!({ "to": address.to_string(), "dst": peer.to_string(), "age": age })
            });
            shown["learned"] = learned.collect();
        }
        shown
    });
    json!({
        "tunnels": all.collect::<Vec<_>>(),
        "ports": setup.ports.iter().map(port).collect::<Vec<_>>(),
        "strays": values(tunnels.strays()),
        "workers": tunnels.workers(),
        "pid": std::process::id(),
    })
}

/// The words of a tunnel: those with a value, and `true` for others. A word that is there several
/// times has a list.
fn words(tunnel: &Tunnel) -> Value {
    let mut map = Map::new();
    for (word, value) in tunnel.words() {
        match (word, value) {
            ("type", _) => {}
            ("allow" | "to" | "dst" | "learn", Some(value)) => {
                let list = map.entry(word).or_insert_with(|| json!([]));
                if let Some(list) = list.as_array_mut() {
                    list.push(value.into());
                }
            }
            (_, Some(value)) => {
                map.insert(word.to_owned(), value.into());
            }
            (_, None) => {
                map.insert(word.to_owned(), true.into());
            }
        }
    }
    map.into()
}

fn port(port: &Port) -> Value {
    let mut map = Map::new();
    map.insert("port".to_owned(), port.port.into());
    match port.kind {
        PortKind::Gue => map.insert("gue".to_owned(), true.into()),
        PortKind::Direct(protocol) => map.insert("ipproto".to_owned(), protocol.into()),
    };
    map.insert("family".to_owned(), if port.v6 { "inet6" } else { "inet" }.into());
    for (word, address) in [("local", port.local), ("peer", port.peer)] {
        if let Some(address) = address {
            map.insert(word.to_owned(), address.to_string().into());
        }
    }
    map.insert("words".to_owned(), port.to_string().into());
    map.into()
}

fn values(counters: &Counters) -> Map<String, Value> {
    counters.values().into_iter().map(|(name, value)| (name.to_owned(), value.into())).collect()
}

/// What programs report that carry tunnels, in the text format of Prometheus: all tunnels, or one of them.
pub(super) fn prometheus<'a>(
    reports: impl Iterator<Item = &'a Value>,
    only: Option<&str>,
) -> String {
    let mut families = Families::default();
    let mut all = |part: &str, labels: &Labels, counters: &Value, side: &str| {
        let counters = counters.as_object().into_iter().flatten();
        for (name, value) in counters.filter(|(name, _)| name.starts_with(side)) {
            let help = Counters::help(name).unwrap_or(OTHER_VERSION);
            let name = format!("quicket_tunnel_{part}{name}_total");
            families.add(Kind::Counter, &name, help, labels, value);
        }
    };
    let mut mtus = Vec::new();
    for report in reports {
        for tunnel in report["tunnels"].as_array().into_iter().flatten() {
            let name = tunnel["ifname"].as_str().unwrap_or_default();
            if only.is_none_or(|only| only == name) {
                let labels = Labels::default().with("tunnel", name);
                all("", &labels, &tunnel["counters"], "");
                mtus.push((labels, &tunnel["mtu"]));
            }
        }
        if only.is_none() {
            // Nothing is sent for no tunnel.
            let labels = Labels::default().with("pid", &report["pid"].to_string());
            all("strays_", &labels, &report["strays"], "rx_");
        }
    }
    for (labels, mtu) in mtus {
        let help = "The longest packet that the tunnel takes, in bytes";
        families.add(Kind::Gauge, "quicket_tunnel_mtu_bytes", help, &labels, mtu);
    }
    families.text()
}

/// A tunnel as text: the words that would make it, and its counters on request.
pub(super) fn tunnel_text(tunnel: &Value, counters: bool) -> String {
    let mut text = printable(tunnel["words"].as_str().unwrap_or_default());
    // A word after the name, as in ip -d link show.
    if let Some((name, rest)) = text.split_once(' ') {
        text = format!("{name}: {rest} mtu {}", tunnel["mtu"]);
    }
    if let Some(state) = tunnel["discovery"]["state"].as_str() {
        let _ = write!(text, " path {} ({})", tunnel["discovery"]["path_mtu"], printable(state));
    }
    if counters {
        text.push_str(&counters_text(&tunnel["counters"]));
        for one in tunnel["learned"].as_array().into_iter().flatten() {
            let word = |name: &str| printable(one[name].as_str().unwrap_or_default());
            let age = &one["age"];
            let _ =
                write!(text, "\n    learned: to {} dst {}, {age} s ago", word("to"), word("dst"));
        }
    }
    text
}

/// Counters as text: packets and bytes, and of what was dropped only what there is.
pub(super) fn counters_text(counters: &Value) -> String {
    let mut text = String::new();
    for (title, side) in [("RX", "rx_"), ("TX", "tx_")] {
        let mine = counters.as_object().into_iter().flatten();
        let mine = mine.filter_map(|(name, value)| Some((name.strip_prefix(side)?, value)));
        let told =
            mine.filter(|(name, value)| matches!(*name, "packets" | "bytes") || **value != 0);
        let _ = write!(text, "\n    {title}:");
        let mut told: Vec<_> = told.collect();
        told.sort_by_key(|(name, _)| (*name != "packets", *name != "bytes", *name));
        for (name, value) in told {
            let _ = write!(text, " {} {value}", printable(name));
        }
    }
    text
}
