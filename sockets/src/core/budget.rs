//! The memory that all connections of an endpoint share for the data of streams, and for datagrams.
//!
//! Each connection has limits of its own, and that is no bound where there are many. So what they
//! hold together is counted, and a connection may hold as much as is left: one that is greedy gets
//! half of the budget, two a third each, and a further one always finds some. Nobody waits for
//! another connection: whoever may write no more has data of its own on the way, and looks again
//! when the peer acknowledges it. Datagrams that come have older ones dropped that nobody has taken.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use quicket_engine::Connection;

/// What a connection may hold in each direction however little is left, in bytes: no connection
/// starves because of others.
const FLOOR: usize = 64 << 10;

/// What the connections of an endpoint may hold together.
#[derive(Debug)]
pub(crate) struct Budget {
    total: usize,
    held: AtomicUsize,
}

impl Budget {
    /// A budget of `total` bytes.
    pub(super) fn new(total: usize) -> Arc<Self> {
        Arc::new(Self { total, held: AtomicUsize::new(0) })
    }

    /// What nobody holds, in bytes.
    fn left(&self) -> usize {
        // A look that is a moment old is good enough: the sum is exceeded by what the threads
        // that look at once write at once.
        self.total.saturating_sub(self.held.load(Ordering::Relaxed))
    }

    /// What connections hold, in bytes.
    pub(super) fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    /// True if there is nothing left for another connection.
    pub(super) fn is_used_up(&self) -> bool {
        self.left() < FLOOR.min(self.total)
    }
}

/// What one connection holds of the budget. Dropping it gives it back.
#[derive(Debug)]
pub(crate) struct Share {
    budget: Arc<Budget>,
    held: usize,
}

impl Share {
    pub(super) const fn new(budget: Arc<Budget>) -> Self {
        Self { budget, held: 0 }
    }

    /// Counts what a connection holds now, and tells it how much it may.
    pub(super) fn settle(&mut self, connection: &mut Connection) {
        self.charge(connection.stream_memory().saturating_add(connection.datagram_memory()));
        connection.set_memory_allowance(self.budget.left().max(FLOOR));
    }

    fn charge(&mut self, held: usize) {
        if held > self.held {
            self.budget.held.fetch_add(held - self.held, Ordering::Relaxed);
        } else if held < self.held {
            self.budget.held.fetch_sub(self.held - held, Ordering::Relaxed);
        }
        self.held = held;
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.charge(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_sum_up_and_come_back() {
        let budget = Budget::new(10 * FLOOR);
        let (mut a, mut b) = (Share::new(budget.clone()), Share::new(budget.clone()));
        a.charge(6 * FLOOR);
        b.charge(3 * FLOOR);
        assert_eq!(budget.left(), FLOOR);
        assert!(!budget.is_used_up());
        b.charge(4 * FLOOR);
        assert!(budget.is_used_up());
        a.charge(7 * FLOOR);
        assert_eq!(budget.left(), 0, "more than there is, and no wrap");
        drop(a);
        b.charge(FLOOR);
        assert_eq!(budget.left(), 9 * FLOOR);
    }
}
