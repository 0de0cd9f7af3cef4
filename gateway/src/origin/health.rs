//! Servers that fail are left out for a while.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// What requests and checks have found.
#[derive(Debug, Default)]
pub(super) struct Health(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Failures since the last success.
    failures: u32,
    /// It is left out until then.
    until: Option<Instant>,
    /// Checks have found that it is not well.
    is_down: bool,
    /// Checks in a row that found otherwise.
    against: u32,
}

impl Health {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_well(&self) -> bool {
        let state = self.lock();
        !state.is_down && state.until.is_none_or(|until| until <= Instant::now())
    }

    /// A request has succeeded. What checks have found stays.
    pub(super) fn succeeded(&self) {
        let mut state = self.lock();
        (state.failures, state.until) = (0, None);
    }

    /// A failure: the `max`-th in a row leaves the server out for `pause`, and each further one does.
    pub(super) fn failed(&self, max: u32, pause: Duration) {
        let mut state = self.lock();
        state.failures = state.failures.saturating_add(1);
        if state.failures >= max {
            state.until = Instant::now().checked_add(pause);
        }
    }

    /// A check came out well or not; so many of a kind in a row decide. True if that changed anything.
    pub(super) fn checked(&self, is_well: bool, healthy_after: u32, unhealthy_after: u32) -> bool {
        let mut state = self.lock();
        if is_well != state.is_down {
            state.against = 0;
            return false;
        }
        state.against = state.against.saturating_add(1);
        let needed = if is_well { healthy_after } else { unhealthy_after };
        if state.against < needed {
            return false;
        }
        // Well again, it is well for requests at once.
        *state = State { is_down: !is_well, ..State::default() };
        true
    }

    /// Nobody checks any more: what checks have found does not stay for ever.
    pub(super) fn unchecked(&self) {
        let mut state = self.lock();
        (state.is_down, state.against) = (false, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_left_out_after_failures_in_a_row() {
        let (health, pause) = (Health::default(), Duration::from_secs(60));
        health.failed(2, pause);
        assert!(health.is_well());
        health.succeeded();
        health.failed(2, pause);
        assert!(health.is_well(), "they were not in a row");
        health.failed(2, pause);
        assert!(!health.is_well());
        health.succeeded();
        assert!(health.is_well());
        health.failed(1, Duration::ZERO);
        assert!(health.is_well(), "the pause is over");
    }

    #[test]
    fn checks_in_a_row_decide() {
        let health = Health::default();
        let check = |is_well| health.checked(is_well, 2, 3);
        assert!(!check(false) && !check(false) && !check(true));
        assert!(!check(false) && !check(false) && health.is_well(), "they were not in a row");
        assert!(check(false) && !health.is_well());
        health.succeeded();
        assert!(!health.is_well(), "one request is no check");
        assert!(!check(true) && !check(false) && !check(true) && !health.is_well());
        assert!(check(true) && health.is_well());
        assert!(!check(false) && !check(false) && check(false) && !health.is_well());
        health.unchecked();
        assert!(health.is_well());
    }
}
