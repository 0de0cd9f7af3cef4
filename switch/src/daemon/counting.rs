//! Programs say how many connections they have, for those who want a report.

use std::collections::BTreeSet;
use std::time::Instant;

use quicket_engine::time::Duration;

use super::MAX_PROGRAMS;
use super::program::refused;
use crate::protocol::{Refusal, Reply};
use crate::registry::ProcessId;

/// How long programs may take to say that.
const COUNT_TIME: std::time::Duration = std::time::Duration::from_millis(200);

/// Who has asked for a report, and who has not said anything yet.
#[derive(Debug, Default)]
pub(super) struct Counting {
    /// Who asked, with the numbers of their questions.
    askers: Vec<(ProcessId, u32)>,
    waits_for: BTreeSet<ProcessId>,
    /// None: nobody has asked.
    until: Option<Instant>,
}

impl Counting {
    /// Whether programs are counting.
    pub(super) const fn is_under_way(&self) -> bool {
        self.until.is_some()
    }

    /// Programs count from now on, as somebody has asked.
    pub(super) fn begin(&mut self, asker: (ProcessId, u32), waits_for: BTreeSet<ProcessId>) {
        self.until = Some(Instant::now() + COUNT_TIME);
        self.askers = vec![asker];
        self.waits_for = waits_for;
    }

    /// Somebody else asks meanwhile.
    pub(super) fn join(&mut self, process: ProcessId, number: u32) -> Result<(), Reply> {
        // Its reports would all wait for it.
        if self.askers.iter().any(|(asker, _)| *asker == process) {
            let text = "one question about the status at a time: wait for the answer";
            return Err(refused(Refusal::Later, text));
        }
        if self.askers.len() >= MAX_PROGRAMS {
            return Err(refused(Refusal::Full, "too many ask for the status: ask again"));
        }
        self.askers.push((process, number));
        Ok(())
    }

    /// A program is not waited for any more.
    pub(super) fn count_no_more(&mut self, process: ProcessId) {
        self.waits_for.remove(&process);
    }

    /// Those who asked, once all have counted, or time is up.
    pub(super) fn take_over(&mut self) -> Vec<(ProcessId, u32)> {
        let is_over = |until: &mut Instant| self.waits_for.is_empty() || *until <= Instant::now();
        if self.until.take_if(is_over).is_none() {
            return Vec::new();
        }
        self.waits_for.clear();
        std::mem::take(&mut self.askers)
    }

    /// Until it is over at the latest.
    pub(super) fn time_left(&self) -> Option<Duration> {
        let left = self.until?.saturating_duration_since(Instant::now());
        Some(Duration::from_nanos(u64::try_from(left.as_nanos()).unwrap_or(u64::MAX)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_who_ask_are_answered_once_all_have_counted_or_time_is_up() {
        let [one, two, three] = [1, 2, 3].map(ProcessId);
        let mut counting = Counting::default();
        assert!(!counting.is_under_way() && counting.take_over().is_empty());
        counting.begin((one, 7), [two, three].into());
        assert!(counting.is_under_way() && counting.time_left().is_some());
        assert!(counting.join(one, 8).is_err(), "it waits already");
        counting.join(two, 9).unwrap();
        counting.count_no_more(two);
        counting.until = Some(Instant::now() + 1000 * COUNT_TIME);
        assert!(counting.take_over().is_empty());
        counting.count_no_more(three);
        assert_eq!(counting.take_over(), [(one, 7), (two, 9)]);
        assert!(!counting.is_under_way() && counting.take_over().is_empty());
        counting.begin((one, 10), [two].into());
        counting.until = Some(Instant::now());
        assert_eq!(counting.take_over(), [(one, 10)], "time is up");
    }

    #[test]
    fn so_many_ask_at_a_time() {
        let mut counting = Counting::default();
        counting.begin((ProcessId(0), 1), [ProcessId(0)].into());
        let more = 1..MAX_PROGRAMS as u64;
        more.for_each(|number| counting.join(ProcessId(number), 1).unwrap());
        assert!(counting.join(ProcessId(u64::MAX), 1).is_err());
    }
}
