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
        let mut err = std::io::stderr().lock();
        if !self.on_terminal {
            let _ = writeln!(err, "{client} to {server}, {case}: {word} ({seconds:.1} s)");
            return;
        }
        if matches!(run.outcome, Outcome::Failed { .. }) {
            let _ = writeln!(err, "\r\x1b[K{client} to {server}, {case}: {word}");
        }
        let _ = write!(err, "\r\x1b[K{}", self.line(run));
        let _ = err.flush();
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
            Progress { all: 2, passed: 0, failed: 0, unsupported: 0, on_terminal: false };
        let run = Run {
            case: "retry".into(),
            client: Implementation::Quinn,
            server: Implementation::Quicket,
            outcome: Outcome::Failed { reason: "no Retry".into() },
            seconds: 1.0,
        };
        progress.ended(&run);
        let line = progress.line(&run);
        assert!(line.contains("1/2, 1 failed, 0 unsupported; quinn to quicket, retry"), "{line}");
        assert_eq!(line.matches('=').count(), WIDTH / 2);
    }
}
