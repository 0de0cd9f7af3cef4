//! Progress bars, on terminals only.

use std::fmt::Write;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

use crate::out::tell;
use crate::units::{Bytes, Rate};

/// More files than this have no bars of their own.
const MAX_BARS: usize = 8;

/// The bars of a run.
#[derive(Debug)]
pub(crate) struct Progress {
    all: MultiProgress,
    total: ProgressBar,
    files: usize,
    verbose: bool,
    /// How many of them have begun: before all have, nobody knows how much there is.
    begun: AtomicUsize,
}

impl Progress {
    /// Bars for so many files; none if `quiet`. What is done is told if `verbose`.
    pub(crate) fn new(files: usize, quiet: bool, verbose: bool) -> Self {
        // Hides itself where standard error is no terminal.
        let target =
            if quiet { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
        let all = MultiProgress::with_draw_target(target);
        let total = all.add(ProgressBar::new(0));
        total.set_style(style_of("{spinner} {msg}"));
        total.set_message("connecting");
        total.enable_steady_tick(Duration::from_millis(100));
        Self { all, total, files, verbose, begun: AtomicUsize::new(0) }
    }

    /// A file begins, `kept` bytes of it being here already.
    pub(crate) fn begin(&self, name: &str, kept: u64, len: Option<u64>) -> FileProgress {
        let expected = len.unwrap_or(0);
        self.total.inc_length(expected);
        let begun = self.begun.fetch_add(1, Ordering::Relaxed) + 1;
        if begun == 1 {
            self.ended(0);
        }
        if begun >= self.files {
            self.total.set_style(style_of("{msg}{bar:30} {done} of {all}, {rate}"));
        } else if begun == 1 {
            self.total.set_style(style_of("{spinner} {msg}{done}, {rate}"));
        }
        let own = (1 < self.files && self.files <= MAX_BARS).then(|| {
            let bar = self.all.insert_before(&self.total, ProgressBar::new(kept + expected));
            bar.set_style(style_of("{msg:20!} {bar:30} {done} of {all}"));
            bar.set_message(name.to_owned());
            bar.inc(kept);
            bar
        });
        FileProgress { total: self.total.clone(), own }
    }

    /// So many files have ended.
    pub(crate) fn ended(&self, files: usize) {
        self.total.set_message(counted(files, self.files));
    }

    /// Prints a line above the bars.
    pub(crate) fn say(&self, line: &str) {
        self.all.suspend(|| tell!("{line}"));
    }

    /// Prints what is done, if that is wanted.
    pub(crate) fn trace(&self, lines: impl FnOnce() -> String) {
        if self.verbose {
            self.say(&lines());
        }
    }

    /// Removes the bars.
    pub(crate) fn clear(&self) {
        self.total.finish_and_clear();
    }
}

fn counted(ended: usize, files: usize) -> String {
    if files == 1 { String::new() } else { format!("{ended} of {files} files ") }
}

fn style_of(template: &str) -> ProgressStyle {
    let style = ProgressStyle::with_template(template);
    // What cannot be written is not shown.
    style
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .with_key("done", |state: &ProgressState, out: &mut dyn Write| {
            let _ = write!(out, "{}", Bytes(state.pos()));
        })
        .with_key("all", |state: &ProgressState, out: &mut dyn Write| {
            let _ = write!(out, "{}", Bytes(state.len().unwrap_or_default()));
        })
        .with_key("rate", |state: &ProgressState, out: &mut dyn Write| {
            let _ = write!(out, "{}", Rate::of(state.pos(), state.elapsed()));
        })
}

/// The progress of one file.
#[derive(Debug)]
pub(crate) struct FileProgress {
    total: ProgressBar,
    own: Option<ProgressBar>,
}

impl FileProgress {
    /// So many bytes more are here.
    pub(crate) fn advance(&self, bytes: u64) {
        self.total.inc(bytes);
        if let Some(own) = &self.own {
            own.inc(bytes);
        }
    }
}

impl Drop for FileProgress {
    fn drop(&mut self) {
        if let Some(own) = &self.own {
            own.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_count_all_bytes_of_all_files() {
        let progress = Progress::new(2, true, false);
        assert_eq!(progress.total.message(), "connecting");
        let first = progress.begin("a", 5, Some(10));
        let second = progress.begin("b", 0, None);
        first.advance(10);
        second.advance(7);
        assert_eq!((progress.total.position(), progress.total.length()), (17, Some(10)));
        assert_eq!(first.own.as_ref().unwrap().position(), 15);
        progress.ended(1);
        assert_eq!(progress.total.message(), "1 of 2 files ");
    }
}
