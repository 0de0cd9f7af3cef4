//! What came of the runs, as a table for a terminal, as JSON and as Markdown.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde::{Deserialize, Serialize};

use super::case::{CASES, Case};
use super::{html, pairs_with};
use crate::peers::{End, Implementation};

/// What came of all runs.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Report {
    /// The day, in UTC.
    pub date: String,
    /// The versions of the implementations.
    pub versions: BTreeMap<Implementation, String>,
    /// Sorted by pair, then by case.
    pub runs: Vec<Run>,
}

/// What came of one case between one client and one server.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Run {
    /// The case.
    pub case: String,
    /// The client.
    pub client: Implementation,
    /// The server.
    pub server: Implementation,
    /// Whether it passed.
    #[serde(flatten)]
    pub outcome: Outcome,
    /// How long it took in seconds.
    pub seconds: f64,
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
    /// An implementation cannot do it.
    Unsupported {
        /// Which one, and how that is known.
        reason: String,
    },
}

/// The folder of what a run has left.
pub(super) fn folder(client: Implementation, server: Implementation, case: &str) -> String {
    format!("{client}-{server}-{case}")
}

impl Run {
    /// Why it failed, if it did, and by which fault of an implementation, if that is known.
    pub(super) fn failure(&self) -> Option<(&str, Option<String>)> {
        let Outcome::Failed { reason } = &self.outcome else { return None };
        let fault = |who: Implementation, end| Some((who, who.fault(&self.case, end, reason)?));
        let fault = fault(self.client, End::Client).or_else(|| fault(self.server, End::Server));
        Some((reason, fault.map(|(who, evidence)| format!("{who}: {evidence}"))))
    }
}

impl Report {
    /// Whether something passed, and nothing failed but by known faults of others.
    #[must_use]
    pub fn passed(&self) -> bool {
        let open = |run: &Run| matches!(run.failure(), Some((_, None)));
        self.runs.iter().any(|run| run.outcome == Outcome::Passed) && !self.runs.iter().any(open)
    }

    /// This report, and what `earlier` has of other runs, in the order of a whole one.
    #[must_use]
    pub fn onto(mut self, earlier: Self) -> Self {
        let is_new = |old: &Run| {
            let same = |run: &&Run| {
                (&run.case, run.client, run.server) == (&old.case, old.client, old.server)
            };
            !self.runs.iter().any(|run| same(&run))
        };
        let kept: Vec<_> = earlier.runs.into_iter().filter(is_new).collect();
        self.runs.extend(kept);
        for (implementation, version) in earlier.versions {
            self.versions.entry(implementation).or_insert(version);
        }
        let pairs = pairs_with(Implementation::Quicket, &Implementation::ALL);
        self.runs.sort_by_key(|run| {
            let pair = pairs.iter().position(|&pair| pair == (run.client, run.server));
            let case = CASES.iter().position(|case| case.name == run.case);
            (pair.unwrap_or(usize::MAX), case)
        });
        self
    }

    /// Pairs of client and server, each once.
    pub(super) fn pairs(&self) -> Vec<(Implementation, Implementation)> {
        let mut pairs = Vec::new();
        for run in &self.runs {
            if !pairs.contains(&(run.client, run.server)) {
                pairs.push((run.client, run.server));
            }
        }
        pairs
    }

    /// The cases that were run, in their usual order.
    pub(super) fn cases(&self) -> Vec<&'static Case> {
        let ran = |case: &&Case| self.runs.iter().any(|run| run.case == case.name);
        CASES.iter().filter(ran).collect()
    }

    pub(super) fn run_of(
        &self,
        (client, server): (Implementation, Implementation),
        case: &Case,
    ) -> Option<&Run> {
        self.runs
            .iter()
            .find(|run| (run.client, run.server, run.case.as_str()) == (client, server, case.name))
    }

    /// How many runs passed, failed, failed by a known fault of another, and were not supported.
    pub(super) fn counts(&self) -> [usize; 4] {
        let mut counts = [0; 4];
        for run in &self.runs {
            let [passed, failed, faulty, unsupported] = &mut counts;
            *match (&run.outcome, run.failure()) {
                (Outcome::Passed, _) => passed,
                (_, Some((_, Some(_)))) => faulty,
                (Outcome::Failed { .. }, _) => failed,
                (Outcome::Unsupported { .. }, _) => unsupported,
            } += 1;
        }
        counts
    }

    /// A table for a terminal: a line for each case, a column for each pair; then what failed.
    #[must_use]
    pub fn table(&self) -> String {
        let pairs = self.pairs();
        let heads: Vec<[String; 2]> = pairs
            .iter()
            .map(|(client, server)| [format!("{client} ▸"), server.to_string()])
            .collect();
        let widths: Vec<usize> = heads
            .iter()
            .map(|lines| lines.iter().map(|line| line.chars().count()).max().unwrap_or(0))
            .collect();
        let mut table = String::new();
        for line in 0..2 {
            let _ = write!(table, "{:<20}", "");
            for (head, width) in heads.iter().zip(&widths) {
                let _ = write!(table, " {:<width$}", head[line]);
            }
            end_line(&mut table);
        }
        for case in self.cases() {
            let _ = write!(table, "{case:<20}");
            for (pair, width) in pairs.iter().zip(&widths) {
                let _ = write!(table, " {:<width$}", cell(self.run_of(*pair, case)));
            }
            end_line(&mut table);
        }
        let [passed, failed, faulty, unsupported] = self.counts();
        let _ = writeln!(
            table,
            "\n{passed} passed, {failed} failed, {faulty} failed by a known fault of the peer, \
             {unsupported} unsupported"
        );
        for run in &self.runs {
            if let Some((reason, fault)) = run.failure() {
                let Run { case, client, server, .. } = run;
                let fault = fault.map(|fault| format!(" [{fault}]")).unwrap_or_default();
                let _ = writeln!(table, "{client} to {server}, {case}: {reason}{fault}");
            }
        }
        table
    }

    /// The report as JSON.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_default()
    }

    /// The report as a page.
    #[must_use]
    pub fn to_html(&self) -> String {
        html::page(self)
    }

    /// The report for the documentation.
    #[must_use]
    pub fn to_markdown(&self) -> String {
        let mut text = String::from("# Interoperability\n\n");
        let _ = writeln!(
            text,
            "Made by `quicket lab interop --markdown docs/interop.md` on {}. Each case runs between\n\
             two processes over `quicket lab link`; the verdict comes from the files that arrived\n\
             and from the captured packets, decrypted. Cases and rules are those of the [QUIC\n\
             interop runner](https://github.com/quic-interop/quic-interop-runner), then our own.\n",
            self.date
        );
        for (implementation, version) in &self.versions {
            let _ = writeln!(text, "- {implementation} {version}");
        }
        let is_client = |pair: &(Implementation, _)| pair.0 == Implementation::Quicket;
        let (as_client, others): (Vec<_>, Vec<_>) = self.pairs().into_iter().partition(is_client);
        self.markdown_table(&mut text, &as_client);
        self.markdown_table(&mut text, &others);
        text.push_str(
            "\n✓ passed, ✗ failed, ✗ᵖ failed by a known fault of the peer, – not supported:\n\n",
        );
        for (reason, cases) in self.unsupported() {
            let _ = writeln!(text, "- {}: {reason}", cases.join(", "));
        }
        let failures: Vec<_> =
            self.runs.iter().filter_map(|run| Some((run, run.failure()?))).collect();
        if !failures.is_empty() {
            text.push_str("\nWhat failed:\n\n");
        }
        for (Run { case, client, server, .. }, (reason, fault)) in failures {
            let reason = reason.replace(['\n', '\r'], " ");
            let fault = fault.map(|fault| format!(". {fault}")).unwrap_or_default();
            let _ = writeln!(text, "- {client} to {server}, {case}: {reason}{fault}");
        }
        text
    }

    /// A line for each case, a column for each pair.
    fn markdown_table(&self, text: &mut String, pairs: &[(Implementation, Implementation)]) {
        if pairs.is_empty() {
            return;
        }
        text.push_str("\n| client<br>server |");
        for (client, server) in pairs {
            let _ = write!(text, " {client}<br>{server} |");
        }
        text.push_str("\n| --- |");
        text.push_str(&" :-: |".repeat(pairs.len()));
        for case in self.cases() {
            let _ = write!(text, "\n| {case} |");
            for pair in pairs {
                let run = self.run_of(*pair, case);
                let mark = match run.map(|run| (&run.outcome, run.failure())) {
                    Some((Outcome::Passed, _)) => "✓",
                    Some((_, Some((_, Some(_))))) => "✗ᵖ",
                    Some((Outcome::Failed { .. }, _)) => "**✗**",
                    Some((Outcome::Unsupported { .. }, _)) => "–",
                    None => "",
                };
                let _ = write!(text, " {mark} |");
            }
        }
        text.push('\n');
    }

    /// Why something is not supported, and which cases it concerns.
    pub(super) fn unsupported(&self) -> BTreeMap<&str, Vec<&str>> {
        let mut reasons = BTreeMap::<&str, Vec<&str>>::new();
        for run in &self.runs {
            if let Outcome::Unsupported { reason } = &run.outcome {
                let cases = reasons.entry(reason).or_default();
                if !cases.contains(&run.case.as_str()) {
                    cases.push(&run.case);
                }
            }
        }
        reasons
    }
}

fn end_line(table: &mut String) {
    table.truncate(table.trim_end().len());
    table.push('\n');
}

fn cell(run: Option<&Run>) -> &'static str {
    match run.map(|run| (&run.outcome, run.failure())) {
        Some((Outcome::Passed, _)) => "ok",
        Some((_, Some((_, Some(_))))) => "peer's",
        Some((Outcome::Failed { .. }, _)) => "FAILED",
        Some((Outcome::Unsupported { .. }, _)) => "-",
        None => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(case: &str, server: Implementation, outcome: Outcome) -> Run {
        let client = Implementation::Quicket;
        Run { case: case.into(), client, server, outcome, seconds: 0.5 }
    }

    pub(crate) fn report() -> Report {
        let failed = Outcome::Failed { reason: "no <Retry>".into() };
        let unsupported = Outcome::Unsupported { reason: "aioquic: it has no ECN".into() };
        Report {
            date: "2026-11-21".into(),
            versions: BTreeMap::from([(Implementation::Quinn, "0.11.12".into())]),
            runs: vec![
                run("handshake", Implementation::Quinn, Outcome::Passed),
                run("retry", Implementation::Quinn, failed),
                run("handshake", Implementation::Aioquic, Outcome::Passed),
                run("ecn", Implementation::Aioquic, unsupported),
            ],
        }
    }

    #[test]
    fn the_table_has_a_line_for_each_case_and_tells_why_something_failed() {
        let report = report();
        assert!(!report.passed());
        let expected = "                     quicket ▸ quicket ▸
                     quinn     aioquic
handshake            ok        ok
retry                FAILED
ecn                            -

2 passed, 1 failed, 0 failed by a known fault of the peer, 1 unsupported
quicket to quinn, retry: no <Retry>
";
        assert_eq!(report.table(), expected);
        let back: Report = serde_json::from_str(&report.to_json()).unwrap();
        assert_eq!(back.runs[1].outcome, report.runs[1].outcome);
    }

    #[test]
    fn markdown_has_versions_marks_evidence_and_what_failed() {
        let text = report().to_markdown();
        for line in [
            "- quinn 0.11.12",
            "| retry | **✗** |  |",
            "| ecn |  | – |",
            "- ecn: aioquic: it has no ECN",
            "- quicket to quinn, retry: no <Retry>",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
    }

    #[test]
    fn the_page_is_whole_escapes_what_it_quotes_and_links_to_what_failed() {
        let page = report().to_html();
        for part in
            ["</html>", "no &lt;Retry&gt;", "href=\"quicket-quinn-retry/", "prefers-color-scheme"]
        {
            assert!(page.contains(part), "{part}");
        }
        assert!(!page.contains("quicket-quinn-handshake/"), "what passed leaves nothing");
    }

    #[test]
    fn runs_that_are_repeated_replace_those_of_an_earlier_report() {
        let mut again = Report {
            date: "2026-11-22".into(),
            runs: vec![run("retry", Implementation::Quinn, Outcome::Passed)],
            ..Report::default()
        };
        again = again.onto(report());
        assert_eq!((again.counts(), again.date.as_str()), ([3, 0, 0, 1], "2026-11-22"));
        assert_eq!(again.versions.len(), 1);
        let order: Vec<_> = again.runs.iter().map(|run| (run.server, run.case.as_str())).collect();
        let (quinn, aioquic) = (Implementation::Quinn, Implementation::Aioquic);
        let expected =
            [(quinn, "handshake"), (quinn, "retry"), (aioquic, "handshake"), (aioquic, "ecn")];
        assert_eq!(order, expected);
    }

    #[test]
    fn a_failure_by_a_known_fault_of_the_peer_is_told_apart_with_its_evidence() {
        let failed = |why: &str| Outcome::Failed { reason: why.into() };
        let silent = || failed("idle timeout: nothing was heard from the peer");
        let passed = run("handshake", Implementation::Quiche, Outcome::Passed);
        let mut report = Report {
            runs: vec![passed, run("rebind-port", Implementation::Quiche, silent())],
            ..Report::default()
        };
        assert!(report.passed());
        assert_eq!(report.counts(), [1, 0, 1, 0]);
        for text in [report.table(), report.to_markdown(), report.to_html()] {
            assert!(text.contains("cloudflare/quiche/issues/2452"), "{text}");
        }
        assert!(report.to_markdown().contains("| rebind-port | ✗ᵖ |"));
        report.runs.push(run("rebind-port", Implementation::Quinn, silent()));
        assert!(!report.passed());
        report.runs.pop();
        assert!(report.passed());
        report.runs.push(run("rebind-addr", Implementation::Quiche, failed("a file differs")));
        assert!(!report.passed(), "the fault has another symptom");
    }

    #[test]
    fn a_report_of_nothing_has_not_passed() {
        assert!(!Report::default().passed());
    }
}
