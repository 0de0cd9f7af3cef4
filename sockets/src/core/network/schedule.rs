//! When the watcher looks: no I/O. Changes come in bursts, and a network may come and go; both cost few looks.

use std::time::{Duration, Instant};

/// How long a change waits for those that come with it.
const GATHERING: Duration = Duration::from_millis(10);
/// The shortest time between two looks.
const MIN_PAUSE: Duration = Duration::from_millis(100);
/// The longest time between two looks while something is under way that no change tells of.
const MAX_PAUSE: Duration = Duration::from_secs(3);

/// When to look next.
#[derive(Debug)]
pub(super) struct Schedule {
    due: Option<Instant>,
    last: Option<Instant>,
    pause: Duration,
}

impl Default for Schedule {
    fn default() -> Self {
        Self { due: None, last: None, pause: MIN_PAUSE }
    }
}

impl Schedule {
    /// Something has changed.
    pub(super) fn on_change(&mut self, now: Instant) {
        self.pause = MIN_PAUSE;
        let earliest = self.last.map_or(now, |last| last + MIN_PAUSE).max(now + GATHERING);
        self.due = Some(self.due.map_or(earliest, |due| due.min(earliest)));
    }

    /// How long to wait for a change; none if as long as it takes.
    pub(super) fn patience(&self, now: Instant) -> Option<Duration> {
        self.due.map(|due| due.saturating_duration_since(now))
    }

    /// True if it is time to look.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.due.is_some_and(|due| due <= now)
    }

    /// It was looked.
    pub(super) fn on_look(&mut self, now: Instant, unsettled: bool) {
        self.last = Some(now);
        self.due = unsettled.then(|| now + self.pause);
        self.pause = if unsettled { (self.pause * 2).min(MAX_PAUSE) } else { MIN_PAUSE };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_of_changes_is_one_look() {
        let start = Instant::now();
        let mut schedule = Schedule::default();
        assert_eq!(schedule.patience(start), None);
        let mut looks = 0;
        for millis in 0..1000 {
            let now = start + Duration::from_millis(millis);
            schedule.on_change(now);
            if schedule.is_due(now) {
                looks += 1;
                schedule.on_look(now, false);
            }
        }
        // The first after 10 ms, then one every 100 ms.
        assert_eq!(looks, 10);
        let end = start + Duration::from_secs(1);
        assert!(schedule.patience(end).is_some_and(|patience| patience <= MIN_PAUSE));
        schedule.on_look(end, false);
        assert_eq!(schedule.patience(end), None);
    }

    #[test]
    fn what_is_under_way_is_looked_at_less_and_less_until_something_changes() {
        let mut now = Instant::now();
        let mut schedule = Schedule::default();
        let mut pauses = Vec::new();
        for _ in 0..7 {
            schedule.on_look(now, true);
            let pause = schedule.patience(now).unwrap();
            pauses.push(pause.as_millis());
            now += pause;
            assert!(schedule.is_due(now));
        }
        assert_eq!(pauses, [100, 200, 400, 800, 1600, 3000, 3000]);
        schedule.on_change(now);
        assert_eq!(schedule.patience(now), Some(Duration::ZERO), "it is due, and stays so");
        schedule.on_look(now, true);
        schedule.on_change(now);
        assert_eq!(schedule.patience(now), Some(MIN_PAUSE));
    }
}
