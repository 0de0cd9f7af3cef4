//! Lines of the log that programs can cause as often as they like.

use std::fmt::Arguments;
use std::time::{Duration, Instant};

use log::Level;

/// Time from one of them to the next.
const PAUSE: Duration = Duration::from_secs(1);

/// When one of them was written last, and how many were left out since then.
#[derive(Debug, Default)]
pub(crate) struct Told {
    last: Option<Instant>,
    left_out: u64,
}

impl Told {
    /// Writes a line, unless there was one within a second. Then it is counted, and the next one says so.
    pub(crate) fn say(&mut self, level: Level, line: Arguments<'_>) {
        match self.may_say(Instant::now()) {
            Some(0) => log::log!(level, "{line}"),
            Some(n) => log::log!(level, "{line} ({n} more were left out)"),
            None => {}
        }
    }

    /// A line has just been written.
    pub(crate) fn is_recent(&self) -> bool {
        self.last.is_some_and(|last| last.elapsed() < PAUSE)
    }

    /// How many were left out before this one; none if it is, too.
    fn may_say(&mut self, now: Instant) -> Option<u64> {
        if self.last.is_some_and(|last| now.saturating_duration_since(last) < PAUSE) {
            self.left_out += 1;
            return None;
        }
        self.last = Some(now);
        Some(std::mem::take(&mut self.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_a_line_in_a_second_which_says_how_many_were_left_out() {
        let (mut told, begun) = (Told::default(), Instant::now());
        let mut said = Vec::new();
        for n in 0..2500 {
            said.extend(told.may_say(begun + Duration::from_millis(n)));
        }
        assert_eq!(said, [0, 999, 999]);
    }
}
