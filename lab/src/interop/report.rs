//! What came of the runs, as a table and as JSON.

use std::collections::BTreeSet;
use std::fmt::Write;

use serde::{Deserialize, Serialize};

use super::Case;
use super::session::Record;
use crate::peers::Implementation;

/// What came of all runs.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Report {
    /// In the order in which they were run.
    pub runs: Vec<Run>,
}

/// What came of one case between one client and one server.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Run {
    /// The case.
    pub case: Case,
    /// The client.
    pub client: Implementation,
    /// The server.
    pub server: Implementation,
    /// Whether it passed.
    #[serde(flatten)]
    pub outcome: Outcome,
    /// How long it took in seconds.
    pub seconds: f64,
    /// What both ends have told, if they came to their end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub record: Option<Record>,
}

/// Whether a run passed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Outcome {
    /// All that had to happen has happened.
    Passed,
    /// Something else has.
    Failed {
        /// What.
        reason: String,
    },
}

impl Report {
    /// Whether there are runs and all of them passed.
    #[must_use]
    pub fn passed(&self) -> bool {
        !self.runs.is_empty() && self.runs.iter().all(|run| run.outcome == Outcome::Passed)
    }

    /// A table for a terminal: a line for each pair, a column for each case; then what failed.
    #[must_use]
    pub fn table(&self) -> String {
        let mut cases = Vec::new();
        for run in &self.runs {
            if !cases.contains(&run.case) {
                cases.push(run.case);
            }
        }
        let mut table = format!("{:<9} {:<9}", "client", "server");
        for case in &cases {
            let _ = write!(table, " {case}");
        }
        table.push('\n');
        let mut seen = BTreeSet::new();
        for Run { client, server, .. } in &self.runs {
            if seen.insert((*client, *server)) {
                let _ = write!(table, "{client:<9} {server:<9}");
                for case in &cases {
                    let _ = write!(
                        table,
                        " {:^width$}",
                        self.cell(*client, *server, *case),
                        width = case.name().len()
                    );
                }
                table.truncate(table.trim_end().len());
                table.push('\n');
            }
        }
        for run in &self.runs {
            if let Outcome::Failed { reason } = &run.outcome {
                let Run { case, client, server, .. } = run;
                let _ = writeln!(table, "{client} to {server}, {case}: {reason}");
            }
        }
        table
    }

    /// The report as JSON.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_default()
    }

    fn cell(&self, client: Implementation, server: Implementation, case: Case) -> &'static str {
        let run = self
            .runs
            .iter()
            .find(|run| (run.client, run.server, run.case) == (client, server, case));
        match run.map(|run| &run.outcome) {
            Some(Outcome::Passed) => "ok",
            Some(Outcome::Failed { .. }) => "FAIL",
            None => "-",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(case: Case, server: Implementation, outcome: Outcome) -> Run {
        let client = Implementation::Quinn;
        Run { case, client, server, outcome, seconds: 0.5, record: None }
    }

    #[test]
    fn the_table_has_a_line_for_each_pair_and_tells_why_something_failed() {
        let failed = Outcome::Failed { reason: "no Retry".into() };
        let report = Report {
            runs: vec![
                run(Case::Handshake, Implementation::Quinn, Outcome::Passed),
                run(Case::Retry, Implementation::Quinn, failed),
                run(Case::Handshake, Implementation::QuicGo, Outcome::Passed),
            ],
        };
        assert!(!report.passed());
        let expected = "\
client    server    handshake retry
quinn     quinn        ok     FAIL
quinn     quic-go      ok       -
quinn to quinn, retry: no Retry
";
        assert_eq!(report.table(), expected);
        let back: Report = serde_json::from_str(&report.to_json()).unwrap();
        assert_eq!(back.runs[1].outcome, report.runs[1].outcome);
    }

    #[test]
    fn a_report_of_nothing_has_not_passed() {
        assert!(!Report::default().passed());
    }
}
