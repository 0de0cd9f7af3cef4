//! What programs and people are told of a key process at work.

use std::fmt::Write;

use quicket_keyd::Server;
use serde_json::{Map, Value, json};

use super::PREFIX;
use crate::args::Status;
use crate::control::{ask, names, printable};
use crate::exit::{Failure, Kind};

/// Shows the key processes of this network namespace.
pub(super) fn show(arguments: &Status) -> Result<(), Failure> {
    let all: Vec<Value> = names(PREFIX)?.iter().filter_map(|name| ask(name, "show").ok()).collect();
    if arguments.json {
        return crate::print(&json!(all).to_string());
    }
    if all.is_empty() {
        return Err(Failure::new(
            Kind::Environment,
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
    let mut out = String::new();
    let label = |report: &Value| {
        let place = printable(report["listen"][0].as_str().unwrap_or_default());
        place.replace('\\', "\\\\").replace('"', "\\\"")
    };
    let mut family = |name: &str, kind: &str, value: &dyn Fn(&Value) -> Value| {
        let _ = writeln!(out, "# TYPE {name} {kind}");
        for report in reports {
            let _ = writeln!(out, "{name}{{listen=\"{}\"}} {}", label(report), value(report));
        }
    };
    family("quicket_keyd_open_connections", "gauge", &|report| report["open_connections"].clone());
    let counters = reports.first().and_then(|report| report["counters"].as_object());
    for name in counters.into_iter().flat_map(Map::keys) {
        // Only what a process of ours counts.
        let is_name = name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
        if is_name {
            let value = |report: &Value| match &report["counters"][name] {
                Value::Number(number) => number.clone().into(),
                _ => json!(0),
            };
            family(&format!("quicket_keyd_{name}_total"), "counter", &value);
        }
    }
    out.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

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
