//! What came of requests.

use std::cell::{Cell, RefCell};
use std::time::Instant;

use quicket_workload::bench::{Failure, Latencies};

/// What came of requests since the clock was started. Requests that began before it count when they end.
#[derive(Default)]
pub(super) struct Tally {
    bytes: Cell<u64>,
    /// None before the clock is started.
    latencies: RefCell<Option<Latencies>>,
    failure: RefCell<Option<Failure>>,
}

impl Tally {
    pub(super) fn start(&self) {
        self.bytes.set(0);
        *self.latencies.borrow_mut() = Some(Latencies::with_capacity(1 << 18));
    }

    /// So many bytes of a body have come.
    pub(super) fn came(&self, bytes: usize) {
        self.bytes.set(self.bytes.get() + bytes as u64);
    }

    /// An answer has come to its end.
    pub(super) fn ended(&self, begun: Instant) {
        if let Some(latencies) = self.latencies.borrow_mut().as_mut() {
            latencies.record(begun, Instant::now());
        }
    }

    pub(super) fn failed(&self, failure: Failure) {
        self.failure.borrow_mut().get_or_insert(failure);
    }

    /// Bytes of bodies, and how long answers took.
    pub(super) fn end(&self) -> Result<(u64, Latencies), Failure> {
        match self.failure.take() {
            Some(failure) => Err(failure),
            None => Ok((self.bytes.get(), self.latencies.take().unwrap_or_default())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_before_the_clock_does_not_count_and_one_failure_does() {
        let tally = Tally::default();
        tally.came(5);
        tally.ended(Instant::now());
        tally.start();
        tally.came(7);
        tally.ended(Instant::now());
        let (bytes, latencies) = tally.end().unwrap();
        assert_eq!((bytes, latencies.len()), (7, 1));
        tally.failed("first".into());
        tally.failed("second".into());
        assert_eq!(tally.end().unwrap_err().to_string(), "first");
    }
}
