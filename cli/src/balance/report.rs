//! What programs and people are told of a balancer at work.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde_json::{Map, Value, json};

use quicket_balancer::{Counters, ServerCounters};

use super::rule::Rule;
use crate::control::printable;
use crate::exposition::{Families, Kind, Labels, OTHER_VERSION, place};

/// Servers, counters and files.
pub(super) fn json(rule: &Rule) -> Value {
    let snapshot = rule.balancer.snapshot();
    let state = rule.state();
    let config = &state.files.config;
    let ids: BTreeMap<&str, Vec<String>> = config
        .servers
        .iter()
        .map(|server| (server.name.as_str(), server.ids.iter().map(ToString::to_string).collect()))
        .collect();
    let servers = snapshot.members().iter().map(|member| {
        let mut fields = json!({
            "name": member.name,
            "address": member.address.to_string(),
            "ids": ids.get(member.name.as_str()),
            "state": member.standing.name(),
            "weight": f64::from(member.weight) / 100.0,
        });
        for (name, value) in member.counters.values() {
            fields[name] = value.into();
        }
        fields
    });
    let reports = state.reports;
    let xdp = config.xdp.as_ref().map(|xdp| {
        let (left_out, why) = match rule.balancer.in_kernel() {
            Some(Ok(count)) => (Some(count), None),
            Some(Err(why)) => (None, Some(why)),
            None => (None, None),
        };
        json!({
            "device": xdp.device,
            "attached": why.is_none(),
            "error": why,
            "servers_left_out": left_out,
        })
    });
    // These bring those of servers up to date.
    let counters = rule.balancer.counters().into_iter();
    json!({
        "listen": config.listen.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "servers": servers.collect::<Vec<_>>(),
        "no_server_known_to_serve": snapshot.is_desperate(),
        "flows": { "most": config.flows, "lifetime_seconds": config.lifetime },
        "workers": config.workers,
        "xdp": xdp,
        "mtu": config.mtu,
        "counters": counters.map(|(name, value)| (name.to_owned(), value.into()))
            .collect::<Map<_, _>>(),
        "reports": {
            "accepted": reports.accepted,
            "malformed": reports.malformed,
            "forged": reports.forged,
            "stale": reports.stale,
            "unknown": reports.unknown,
        },
        "files_taken_up": state.taken_up,
        "not_read_again": state.refused,
        "pid": std::process::id(),
    })
}

/// The answer of a balancer, for people.
pub(super) fn text(report: &Value) -> String {
    let list = |value: &Value| {
        let words = value.as_array().into_iter().flatten().filter_map(Value::as_str);
        printable(&words.collect::<Vec<_>>().join(" "))
    };
    let mut out = format!("{} by process {}\n", list(&report["listen"]), report["pid"]);
    if let Some(error) = report["not_read_again"].as_str() {
        let _ = writeln!(out, "  the files are not those in use: {}", printable(error));
    }
    if report["no_server_known_to_serve"] == true {
        out += "  no server takes connections as far as is known: all are tried\n";
    }
    if let (Some(device), attached) = (report["xdp"]["device"].as_str(), &report["xdp"]["attached"])
    {
        let why = report["xdp"]["error"]
            .as_str()
            .map_or(String::new(), |why| format!(": {}", printable(why)));
        let state = if *attached == true { "forwards what it can" } else { "forwards nothing" };
        let _ = writeln!(out, "  the kernel {state} on {}{why}", printable(device));
        if let Some(count @ 1..) = report["xdp"]["servers_left_out"].as_u64() {
            let _ =
                writeln!(out, "  ... and nothing to {count} servers without a route it can take");
        }
    }
    for server in report["servers"].as_array().into_iter().flatten() {
        let word = |name: &str| printable(server[name].as_str().unwrap_or_default());
        let _ = writeln!(
            out,
            "  {:20} {:9} weight {:<7} {} id {}: {} datagrams, {} bytes",
            word("name"),
            word("state"),
            server["weight"],
            word("address"),
            list(&server["ids"]),
            server["sent"],
            server["sent_bytes"],
        );
    }
    for part in ["counters", "reports"] {
        let values = report[part].as_object().into_iter().flatten();
        let shown = values.filter(|(_, value)| **value != 0);
        let shown: Vec<String> =
            shown.map(|(name, value)| format!("{} {value}", printable(name))).collect();
        let _ = writeln!(out, "  {part}: {}", shown.join(", "));
    }
    out.trim_end().to_owned()
}

/// The answers of balancers in the text format of Prometheus.
pub(super) fn prometheus(reports: &[Value]) -> String {
    let mut families = Families::default();
    for report in reports {
        let site = place("site", report, reports);
        for (name, value) in report["counters"].as_object().into_iter().flatten() {
            let help = Counters::help(name).unwrap_or(OTHER_VERSION);
            let name = format!("quicket_balance_{name}_total");
            families.add(Kind::Counter, &name, help, &site, value);
        }
        for (name, value) in report["reports"].as_object().into_iter().flatten() {
            let name = format!("quicket_balance_reports_{name}_total");
            let help = "Reports of servers, by what became of them";
            families.add(Kind::Counter, &name, help, &site, value);
        }
        for server in report["servers"].as_array().into_iter().flatten() {
            let labels = site.with("server", server["name"].as_str().unwrap_or_default());
            for name in ["sent", "sent_bytes"] {
                let help = ServerCounters::help(name).unwrap_or(OTHER_VERSION);
                let family = format!("quicket_balance_server_{name}_total");
                families.add(Kind::Counter, &family, help, &labels, &server[name]);
            }
            let mut gauge = |name: &str, help: &str, labels: &Labels, value: &Value| {
                families.add(Kind::Gauge, name, help, labels, value);
            };
            let help = "The share of new flows that the server is to get, beside those of others";
            gauge("quicket_balance_server_weight", help, &labels, &server["weight"]);
            for state in ["serving", "draining", "down"] {
                let labels = labels.with("state", state);
                let is = json!(i32::from(server["state"] == state));
                let help = "1 for the state that the server is in, 0 for the others";
                gauge("quicket_balance_server_state", help, &labels, &is);
            }
        }
    }
    families.text()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prometheus_gets_each_family_once_with_escaped_labels() {
        let report = json!({
            "listen": ["192.0.2.1:443"],
            "servers": [{ "name": "a\"b\\", "state": "down", "weight": 1.5, "sent": 3, "sent_bytes": 4 }],
            "counters": { "received": 7 },
            "reports": { "forged": 1 },
        });
        let text = prometheus(&[report.clone(), report]);
        assert_eq!(text.matches("# TYPE quicket_balance_received_total counter").count(), 1);
        assert!(
            text.contains("quicket_balance_received_total{site=\"192.0.2.1:443\"} 7"),
            "{text}"
        );
        assert!(text.contains("quicket_balance_reports_forged_total{"), "{text}");
        assert!(text.contains("server=\"a\\\"b\\\\\",state=\"down\"} 1"), "{text}");
        assert!(text.contains("state=\"serving\"} 0") && text.contains("} 1.5"), "{text}");
    }
}
