//! What programs and people are told of a key process at work.

use std::fmt::Write;
use std::time::Duration;

use quicket_keyd::{Counters, Server};
use serde_json::{Map, Value, json};

use super::PREFIX;
use crate::args::Status;
use crate::control::{ask, names, printable};
use crate::exit::{Failure, Kind as Blame};
use crate::exposition::{Families, Kind, OTHER_VERSION, place};

/// Shows the key processes of this network namespace.
pub(super) fn show(arguments: &Status) -> Result<(), Failure> {
    let all: Vec<Value> = names(PREFIX)?.iter().filter_map(|name| ask(name, "show").ok()).collect();
    if arguments.json {
        return crate::print(&json!(all).to_string());
    }
    if all.is_empty() {
        return Err(Failure::new(
            Blame::Environment,
            "no key process of yours runs in this network namespace: quicket keyd --help shows how one is started",
        ));
    }
    if arguments.prometheus {
        return crate::print(&prometheus(&all));
    }
    crate::print(&all.iter().map(text).collect::<Vec<_>>().join("\n"))
}

/// Keys and counters; never a key itself.
pub(super) fn json(server: &Server, places: &[String], refused: Option<String>) -> Value {
    let keys = server.keys();
    let mut all: Vec<_> = keys.iter().collect();
    all.sort_unstable_by_key(|key| key.name());
    let key = |key: &&quicket_keyd::Key| json!({ "id": key.id().to_string(), "type": key.kind().name(), "name": key.name() });
    let counters = server.counters();
    let values = counters.values().into_iter().map(|(name, value)| (name.to_owned(), value.into()));
    json!({
        "listen": places,
        "keys": all.iter().map(key).collect::<Vec<_>>(),
        "open_connections": counters.open(),
        "counters": values.collect::<Map<_, _>>(),
        "not_read_again": refused,
        "pid": std::process::id(),
    })
}

fn text(report: &Value) -> String {
    let list = report["listen"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let list = printable(&list.collect::<Vec<_>>().join(" "));
    let mut out = format!("{list} by process {}\n", report["pid"]);
    if let Some(error) = report["not_read_again"].as_str() {
        let _ = writeln!(out, "  the keys are not those of the files: {}", printable(error));
    }
    for key in report["keys"].as_array().into_iter().flatten() {
        let word = |name: &str| printable(key[name].as_str().unwrap_or_default());
        let _ = writeln!(out, "  {:11} {} {}", word("type"), word("id"), word("name"));
    }
    let _ = write!(out, "  open_connections {}", report["open_connections"]);
    for (name, value) in report["counters"].as_object().into_iter().flatten() {
        let _ = write!(out, ", {} {value}", printable(name));
    }
    out
}

fn prometheus(reports: &[Value]) -> String {
    let mut families = Families::default();
    for report in reports {
        let labels = place("listen", report, reports);
        let open = &report["open_connections"];
        let name = "quicket_keyd_open_connections";
        families.add(Kind::Gauge, name, "Connections that are open now", &labels, open);
        for (name, value) in report["counters"].as_object().into_iter().flatten() {
            let help = Counters::help(name).unwrap_or(OTHER_VERSION);
            // Prometheus has times in seconds.
            if let (Some(what), Some(value)) = (name.strip_suffix("_microseconds"), value.as_u64())
            {
                let name = format!("quicket_keyd_{what}_seconds_total");
                let (help, value) = (
                    help.replace("microseconds", "seconds"),
                    json!(Duration::from_micros(value).as_secs_f64()),
                );
                families.add(Kind::Counter, &name, &help, &labels, &value);
                continue;
            }
            let name = format!("quicket_keyd_{name}_total");
            families.add(Kind::Counter, &name, help, &labels, value);
        }
    }
    families.text()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_counter_has_a_help() {
        for (name, _) in Counters::default().values() {
            assert!(Counters::help(name).is_some(), "{name}");
        }
    }

    #[test]
    fn prometheus_gets_each_family_once() {
        let report = json!({
            "listen": ["unix:/run/\"x"],
            "open_connections": 2,
            "counters": { "signatures": 7, "unknown_key": 0 },
            "keys": [{ "id": "sha256:00", "type": "RSA", "name": "a.key" }],
            "pid": 1,
        });
        let lines = prometheus(&[report.clone(), report.clone()]);
        assert_eq!(lines.matches("# TYPE quicket_keyd_signatures_total counter").count(), 1);
        assert!(lines.contains("quicket_keyd_signatures_total{listen=\"unix:/run/\\\"x\"} 7"));
        let text = text(&report);
        assert!(text.contains("RSA") && text.contains("signatures 7"), "{text}");
    }
}
