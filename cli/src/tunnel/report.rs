//! Counters for programs.

use quicket_tunnel::{Counters, Tunnels};
use serde_json::{Map, Value, json};

/// All tunnels, and what was for none of them.
pub(crate) fn json(tunnels: &Tunnels) -> Value {
    let all = tunnels.setup().tunnels.iter().enumerate();
    let all = all.map(|(index, tunnel)| {
        json!({
            "name": tunnel.name,
            "remote": tunnel.remote.to_string(),
            "mtu": tunnels.mtu(index),
            "counters": tunnels.counters(index).map(values),
        })
    });
    json!({ "tunnels": all.collect::<Vec<_>>(), "strays": values(tunnels.strays()) })
}

fn values(counters: &Counters) -> Map<String, Value> {
    counters.values().into_iter().map(|(name, value)| (name.to_owned(), value.into())).collect()
}
