//! How far it is, on a terminal's last line; elsewhere a line for each run.

use std::io::{IsTerminal, Write};

use super::report::{Outcome, Run};

/// Columns of the bar.
const WIDTH: usize = 30;

/// Counts runs.
pub(super) struct Progress {
    all: usize,
    passed: usize,
    failed: usize,
    unsupported: usize,
    on_terminal: bool,
}

impl Progress {
    pub(super) fn new(all: usize) -> Self {
        let on_terminal = std::io::stderr().is_terminal();
        Self { all, passed: 0, failed: 0, unsupported: 0, on_terminal }
    }

    /// Counts a run, and shows it.
    pub(super) fn ended(&mut self, run: &Run) {
        let text = self.count(run);
        let mut err = std::io::stderr().lock();
        let _ = err.write_all(text.as_bytes()).and_then(|()| err.flush());
    }

    /// Counts a run; returns what is to be shown.
    fn count(&mut self, run: &Run) -> String {
        let word = match &run.outcome {
            Outcome::Passed => {
                self.passed += 1;
                "ok".to_owned()
            }
            Outcome::Failed { reason } => {
                self.failed += 1;
                format!("FAILED: {reason}")
            }
            Outcome::Unsupported { .. } => {
                self.unsupported += 1;
                "unsupported".to_owned()
            }
        };
        let Run { case, client, server, seconds, .. } = run;
        if !self.on_terminal {
            return format!("{client} to {server}, {case}: {word} ({seconds:.1} s)\n");
        }
        let mut text = String::new();
        if matches!(run.outcome, Outcome::Failed { .. }) {
            text = format!("\r\x1b[K{client} to {server}, {case}: {word}\n");
        }
        text + "\r\x1b[K" + &self.line(run)
    }

    /// Takes the bar away.
    pub(super) fn clear(&self) {
        if self.on_terminal {
            let mut err = std::io::stderr().lock();
            let _ = write!(err, "\r\x1b[K").and_then(|()| err.flush());
        }
    }

    fn line(&self, run: &Run) -> String {
        let done = self.passed + self.failed + self.unsupported;
        let filled = (done * WIDTH).checked_div(self.all).unwrap_or(WIDTH).min(WIDTH);
        format!(
            "[{}{}] {done}/{}, {} failed, {} unsupported; {} to {}, {}",
            "=".repeat(filled),
            " ".repeat(WIDTH - filled),
            self.all,
            self.failed,
            self.unsupported,
            run.client,
            run.server,
            run.case
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::Implementation;

    #[test]
    fn the_bar_fills_as_runs_end() {
        let mut progress =
            Progress { all: 2, passed: 0, failed: 0, unsupported: 0, on_terminal: true };
        let run = Run {
            case: "retry".into(),
            client: Implementation::Quinn,
            server: Implementation::Quicket,
            outcome: Outcome::Failed { reason: "no Retry".into() },
            seconds: 1.0,
        };
        let text = progress.count(&run);
        let (before, line) = text.rsplit_once('\r').unwrap();
        assert!(before.contains("quinn to quicket, retry: FAILED: no Retry\n"), "{before}");
        assert!(line.contains("1/2, 1 failed, 0 unsupported; quinn to quicket, retry"), "{line}");
        assert_eq!(line.matches('=').count(), WIDTH / 2);
    }
}
