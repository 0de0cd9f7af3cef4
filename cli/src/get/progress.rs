//! Progress bars, on terminals only.

use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

/// More files than this have no bars of their own.
const MAX_BARS: usize = 8;

/// The bars of a run.
#[derive(Debug)]
pub(crate) struct Progress {
    all: MultiProgress,
    total: ProgressBar,
    files: usize,
}

impl Progress {
    /// Bars for so many files; none if `quiet`.
    pub(crate) fn new(files: usize, quiet: bool) -> Self {
        // Hides itself where standard error is no terminal.
        let target =
            if quiet { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
        let all = MultiProgress::with_draw_target(target);
        let total = all.add(ProgressBar::new(0));
        let style = "{msg} {bar:30} {decimal_bytes}/{decimal_total_bytes} \
                     {decimal_bytes_per_sec} {elapsed}";
        total.set_style(style_of(style));
        total.set_message(counted(0, files));
        total.enable_steady_tick(Duration::from_millis(100));
        Self { all, total, files }
    }

    /// A file begins, `kept` bytes of it being here already.
    pub(crate) fn begin(&self, name: &str, kept: u64, len: Option<u64>) -> FileProgress {
        let expected = len.unwrap_or(0);
        self.total.inc_length(expected);
        let own = (1 < self.files && self.files <= MAX_BARS).then(|| {
            let bar = self.all.insert_before(&self.total, ProgressBar::new(kept + expected));
            bar.set_style(style_of("{msg:20!} {bar:30} {decimal_bytes}/{decimal_total_bytes}"));
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
        self.all.suspend(|| eprintln!("{line}"));
    }

    /// Removes the bars.
    pub(crate) fn clear(&self) {
        self.total.finish_and_clear();
    }
}

fn counted(ended: usize, files: usize) -> String {
    if files == 1 { String::new() } else { format!("{ended} of {files} files") }
}

fn style_of(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
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
        let progress = Progress::new(2, true);
        let first = progress.begin("a", 5, Some(10));
        let second = progress.begin("b", 0, None);
        first.advance(10);
        second.advance(7);
        assert_eq!((progress.total.position(), progress.total.length()), (17, Some(10)));
        assert_eq!(first.own.as_ref().unwrap().position(), 15);
        progress.ended(1);
        assert_eq!(progress.total.message(), "1 of 2 files");
    }
}
