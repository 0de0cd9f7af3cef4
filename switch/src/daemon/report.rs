//! What the switch tells of itself.

use serde_json::{Map, Value, json};

use super::Daemon;
use super::address::Counters;
use crate::registry::{ListenerStatus, Phase};
use crate::router::DropReason;

impl Daemon {
    /// All that there is, as JSON.
    pub(super) fn report(&self) -> Value {
        let status = self.registry.status();
        let addresses = status.addresses.iter().map(|each| {
            let id = self.registry.address_id(&each.address);
            let address = id.and_then(|id| self.addresses.get(&id));
            let own = address.map(|address| address.counters).unwrap_or_default();
            let routed = id.and_then(|id| self.router.counters(id)).unwrap_or_default();
            json!({
                "address": each.address.to_string(),
                "programs": each.listeners.iter().map(|each| self.program(each)).collect::<Vec<_>>(),
                "generations_known_dead": each.dead,
                "datagrams": datagrams(own, &routed),
                "dropped": dropped(&routed),
            })
        });
        json!({
            "pid": std::process::id(),
            "uid": self.own_uid,
            "uptime_seconds": self.begun.elapsed().as_secs(),
            "pins": self.router.pins.len(),
            "half_read_first_packets": self.router.first_packets().len(),
            "addresses": addresses.collect::<Vec<_>>(),
        })
    }

    fn program(&self, listener: &ListenerStatus) -> Value {
        let pid = self.programs.get(&listener.process).map(|program| program.pid);
        let state = match listener.phase {
            Phase::Joined => "joined",
            Phase::Preparing => "preparing",
            Phase::Active => "serving",
            Phase::Draining { .. } => "draining",
        };
        json!({
            "program": listener.program,
            "pid": pid,
            "uid": listener.uid,
            "generation": listener.generation,
            "state": state,
            "workers": listener.workers,
            "protocols": listener.protocols,
            "server_names": listener.servers,
            "first_packets": listener.counters.first_packets,
            "datagrams": listener.counters.datagrams,
            "lost": listener.counters.lost,
        })
    }
}

/// What became of datagrams that were not dropped.
fn datagrams(own: Counters, routed: &crate::router::Counters) -> Value {
    json!({
        "received": own.received,
        "forwarded": own.forwarded,
        "lost": own.lost,
        "by_owner": routed.by_owner,
        "by_pin": routed.by_pin,
        "first_packets": routed.first_packets,
        "held": routed.held,
        "stateless_resets": routed.resets,
        "version_negotiations": routed.version_negotiations,
        "refusals": routed.refusals,
    })
}

/// How many were dropped for which reason.
fn dropped(routed: &crate::router::Counters) -> Value {
    let reasons = DropReason::ALL.into_iter();
    let counted = reasons.map(|why| (why.name().to_owned(), routed.dropped(why).into()));
    Value::Object(counted.collect::<Map<_, _>>())
}
