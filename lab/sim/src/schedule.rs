//! Things that happen at set times.

use std::fmt;

use quicket_engine::time::{Duration, Time};

use crate::units::print_time;

/// When something happens, counted from the start of a scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// Once.
    At(Duration),
    /// Again and again.
    Every {
        /// The time between two, above zero.
        period: Duration,
        /// The first; one period after the start unless stated.
        first: Duration,
    },
}

impl When {
    /// Every `period`, for the first time after one.
    pub const fn every(period: Duration) -> Self {
        Self::Every { period, first: period }
    }

    fn first(self) -> Duration {
        match self {
            Self::At(at) => at,
            Self::Every { first, .. } => first,
        }
    }
}

impl fmt::Display for When {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::At(at) => write!(f, "at {}", print_time(at)),
            Self::Every { period, first } if first == period => {
                write!(f, "every {}", print_time(period))
            }
            Self::Every { period, first } => {
                write!(f, "every {} from {}", print_time(period), print_time(first))
            }
        }
    }
}

/// Changes with their times. Those due at the same time come in the order in which they were
/// listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule<T> {
    entries: Vec<Entry<T>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry<T> {
    next: Option<Time>,
    period: Option<Duration>,
    change: T,
}

impl<T> Default for Schedule<T> {
    fn default() -> Self {
        Self { entries: Vec::new() }
    }
}

impl<T: Clone> Schedule<T> {
    /// A schedule whose times count from `start`.
    pub fn new(start: Time, changes: impl IntoIterator<Item = (When, T)>) -> Self {
        let entries = changes.into_iter().map(|(when, change)| Entry {
            next: Some(start + when.first()),
            period: match when {
                When::At(_) => None,
                When::Every { period, .. } => Some(period),
            },
            change,
        });
        Self { entries: entries.collect() }
    }

    /// When the next change is due.
    pub fn next_time(&self) -> Option<Time> {
        self.entries.iter().filter_map(|entry| entry.next).min()
    }

    /// Takes the next change due by `now`, with the time at which it was due.
    pub fn next_due(&mut self, now: Time) -> Option<(Time, T)> {
        let (at, entry) = self
            .entries
            .iter_mut()
            .filter_map(|entry| Some((entry.next.filter(|at| *at <= now)?, entry)))
            .min_by_key(|(at, _)| *at)?;
        entry.next = entry.period.filter(|period| !period.is_zero()).map(|period| at + period);
        Some((at, entry.change.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    #[test]
    fn changes_come_in_order_of_time_then_of_listing() {
        let changes = [
            (When::At(ms(20)), 'a'),
            (When::every(ms(10)), 'b'),
            (When::Every { period: ms(30), first: ms(5) }, 'c'),
        ];
        let start = Time::ZERO + ms(100);
        let mut schedule = Schedule::new(start, changes);
        assert_eq!(schedule.next_due(start), None);
        assert_eq!(schedule.next_time(), Some(start + ms(5)));
        let mut due = Vec::new();
        while let Some((at, change)) = schedule.next_due(start + ms(35)) {
            due.push((at.since(start).as_millis(), change));
        }
        assert_eq!(due, [(5, 'c'), (10, 'b'), (20, 'a'), (20, 'b'), (30, 'b'), (35, 'c')]);
        assert_eq!(schedule.next_time(), Some(start + ms(40)));
    }

    #[test]
    fn what_happens_once_is_over_then() {
        let mut schedule = Schedule::new(Time::ZERO, [(When::At(ms(1)), ())]);
        assert!(schedule.next_due(Time::ZERO + ms(1)).is_some());
        assert_eq!(schedule.next_time(), None);
        assert_eq!(Schedule::<()>::default().next_time(), None);
    }
}
