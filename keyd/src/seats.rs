//! How many signatures are made at once.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Rights to make a signature. Files and a token have their own each: a token that hangs takes none from files.
#[derive(Debug)]
pub(crate) struct Seats {
    free: Mutex<usize>,
    freed: Condvar,
}

impl Seats {
    pub(crate) fn new(count: usize) -> Self {
        Self { free: Mutex::new(count.max(1)), freed: Condvar::new() }
    }

    /// Waits for one; nothing, if there is none in time.
    pub(crate) fn take(&self, patience: Duration) -> Option<Seat<'_>> {
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.freed.wait_timeout_while(free, patience, |free| *free == 0);
        let (mut free, _) = waited.unwrap_or_else(PoisonError::into_inner);
        *free = free.checked_sub(1)?;
        Some(Seat(self))
    }
}

/// The right to make a signature now.
#[derive(Debug)]
pub(crate) struct Seat<'a>(&'a Seats);

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        *self.0.free.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.0.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_finds_no_seat_in_time_goes_without() {
        let seats = Seats::new(1);
        let seat = seats.take(Duration::ZERO).unwrap();
        assert!(seats.take(Duration::from_millis(10)).is_none());
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| seats.take(Duration::from_secs(60)).is_some());
            drop(seat);
            assert!(waiting.join().unwrap());
        });
        assert!(seats.take(Duration::ZERO).is_some(), "it was given back");
    }
}
