//! How many connections to a server there are, and how many there may be.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::line::Line;

/// Requests to one server that wait in each line. Beyond that it is busy at once.
const MAX_WAITING: usize = 512;

/// What connections to one server take.
#[derive(Debug)]
pub(super) struct Seats {
    taken: AtomicUsize,
    max: AtomicUsize,
    /// Those that wait for a connection, or for a stream of HTTP/2.
    pub(super) line: Arc<Line>,
    /// Those that wait for a connection of their own, which no stream helps.
    pub(super) apart: Arc<Line>,
}

impl Seats {
    pub(super) fn new(max: usize) -> Arc<Self> {
        let (taken, max) = (AtomicUsize::new(0), AtomicUsize::new(max));
        let (line, apart) = (Line::new(MAX_WAITING), Line::new(MAX_WAITING));
        Arc::new(Self { taken, max, line, apart })
    }

    /// A seat, if there is one.
    pub(super) fn take(self: &Arc<Self>) -> Option<Seat> {
        let max = self.max.load(Ordering::Relaxed);
        let more = |taken: usize| (taken < max).then(|| taken + 1);
        let taken = self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        taken.is_ok().then(|| Seat(Arc::clone(self)))
    }

    /// A seat whether there is one or not: for a health check, which must not wait for those whose server may hang.
    pub(super) fn beside(self: &Arc<Self>) -> Seat {
        self.taken.fetch_add(1, Ordering::Relaxed);
        Seat(Arc::clone(self))
    }

    pub(super) fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }

    pub(super) fn are_taken(&self) -> bool {
        self.taken() >= self.max.load(Ordering::Relaxed)
    }

    /// From now on there may be so many. Of those that are too many each is there until it ends.
    pub(super) fn limit(&self, max: usize) {
        self.max.store(max, Ordering::Relaxed);
        self.wake();
    }

    /// There may be something for those who wait.
    pub(super) fn wake(&self) {
        for line in [&self.apart, &self.line] {
            if line.is_waited_in() {
                line.free();
            }
        }
    }
}

/// What a connection takes from before it is made until it has ended.
#[derive(Debug)]
pub(super) struct Seat(Arc<Seats>);

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, Ordering::Relaxed);
        self.0.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_no_more_than_may_be_and_a_limit_can_change() {
        let seats = Seats::new(2);
        let (first, second) = (seats.take().unwrap(), seats.take().unwrap());
        assert!(seats.take().is_none() && seats.are_taken());
        seats.limit(3);
        let third = seats.take().unwrap();
        assert_eq!(seats.taken(), 3);
        seats.limit(1);
        drop((first, second));
        assert!(seats.take().is_none(), "the third is there");
        drop(third);
        assert_eq!(seats.taken(), 0);
        let beside = (seats.take().unwrap(), seats.beside());
        assert_eq!(seats.taken(), 2);
        drop(beside);
        assert_eq!(seats.taken(), 0);
    }
}
