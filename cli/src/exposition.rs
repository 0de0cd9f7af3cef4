//! The text format of Prometheus, for what programs report of themselves.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde_json::Value;

use crate::control::printable;

/// What is said of a counter that this version does not know.
pub(crate) const OTHER_VERSION: &str = "Counted by a program of another version";

/// What the samples of a family are.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// They only grow; the family's name ends with `_total`.
    Counter,
    Gauge,
}

/// A sample's labels, in their order.
#[derive(Clone, Default)]
pub(crate) struct Labels(String);

impl Labels {
    /// These, and another one.
    pub(crate) fn with(&self, name: &str, value: &str) -> Self {
        let value = printable(value).replace('\\', "\\\\").replace('"', "\\\"");
        let comma = if self.0.is_empty() { "" } else { "," };
        Self(format!("{}{comma}{name}=\"{value}\"", self.0))
    }
}

/// Labels of what reports: what it listens at. Processes that listen at what is called the same are told apart.
pub(crate) fn place(name: &str, report: &Value, all: &[Value]) -> Labels {
    let of = |report: &Value| report["listen"][0].as_str().unwrap_or_default().to_owned();
    let labels = Labels::default().with(name, &of(report));
    match all.iter().any(|other| of(other) == of(report) && other["pid"] != report["pid"]) {
        true => labels.with("pid", &report["pid"].to_string()),
        false => labels,
    }
}

struct Family {
    kind: Kind,
    help: String,
    /// By their labels: no series is there twice, whatever others report.
    samples: BTreeMap<String, String>,
}

/// Families of samples, each told once.
#[derive(Default)]
pub(crate) struct Families(BTreeMap<String, Family>);

impl Families {
    /// Adds a sample, if it is a number. Whoever reports may be another version: a name that is none is left out.
    pub(crate) fn add(
        &mut self,
        kind: Kind,
        name: &str,
        help: &str,
        labels: &Labels,
        value: &Value,
    ) {
        let is_name = name.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_'));
        if !value.is_number() || !is_name {
            return;
        }
        let family = self.0.entry(name.to_owned()).or_insert_with(|| {
            let help = help.trim().trim_end_matches('.').replace('\\', "\\\\").replace('\n', " ");
            Family { kind, help, samples: BTreeMap::new() }
        });
        family.samples.entry(labels.0.clone()).or_insert_with(|| value.to_string());
    }

    /// All of it, without the last line break.
    pub(crate) fn text(&self) -> String {
        let mut out = String::new();
        for (name, Family { kind, help, samples }) in &self.0 {
            let kind = match kind {
                Kind::Counter => "counter",
                Kind::Gauge => "gauge",
            };
            let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
            for (labels, value) in samples {
                let labels = if labels.is_empty() { labels } else { &format!("{{{labels}}}") };
                let _ = writeln!(out, "{name}{labels} {value}");
            }
        }
        out.trim_end().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn processes_at_what_is_called_the_same_are_told_apart() {
        let report = |listen: &str, pid| json!({ "listen": [listen], "pid": pid });
        let all = [report("a", 1), report("b", 2), report("a", 3)];
        let labels = all.iter().map(|report| place("listen", report, &all).0);
        let told = [r#"listen="a",pid="1""#, r#"listen="b""#, r#"listen="a",pid="3""#];
        assert_eq!(labels.collect::<Vec<_>>(), told);
    }

    #[test]
    fn each_family_and_each_series_is_told_once() {
        let mut families = Families::default();
        let mut add = |name: &str, labels: &Labels, value| {
            families.add(Kind::Counter, name, " What it is.", labels, &value);
        };
        let place = Labels::default().with("place", "a\"b\\");
        add("b_total", &place, json!(1));
        add("b_total", &place, json!(2));
        add("a_total", &Labels::default(), json!(2.5));
        add("b_total", &place.with("x", "y"), json!(3));
        add("c_total", &place, json!("many"));
        add("d} 1\ne_total", &place, json!(4));
        assert_eq!(
            families.text(),
            "# HELP a_total What it is\n# TYPE a_total counter\na_total 2.5\n\
             # HELP b_total What it is\n# TYPE b_total counter\nb_total{place=\"a\\\"b\\\\\"} 1\n\
             b_total{place=\"a\\\"b\\\\\",x=\"y\"} 3"
        );
    }
}
