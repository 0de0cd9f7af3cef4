//! Whether a store that fails is asked.

use crate::Millis;

/// Failures in a row after which the store is not asked.
const MAX_FAILURES: u32 = 5;
/// How long it is left alone the first time, in milliseconds.
const SHORTEST: Millis = 250;
/// ... and at most; each time is twice as long as the one before.
const LONGEST: Millis = 4_000;

/// A circuit breaker. It opens after failures in a row. After a while a look at the store is the trial. If that
/// succeeds questions are asked, and the first that fails has it open again, for longer.
#[derive(Clone, Debug)]
pub struct Breaker {
    failures: u32,
    /// For how long it opens next.
    pause: Millis,
    open_until: Option<Millis>,
}

/// What a breaker does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BreakerState {
    /// Questions are asked.
    Closed,
    /// Looks are tried, and no questions.
    HalfOpen,
    /// The store is left alone.
    Open,
}

impl Default for Breaker {
    fn default() -> Self {
        Self::new()
    }
}

impl Breaker {
    /// One that is closed.
    #[must_use]
    pub const fn new() -> Self {
        Self { failures: 0, pause: SHORTEST, open_until: None }
    }

    /// What it does at a time.
    #[must_use]
    pub const fn state(&self, now: Millis) -> BreakerState {
        match self.open_until {
            None => BreakerState::Closed,
            Some(until) if now >= until => BreakerState::HalfOpen,
            Some(_) => BreakerState::Open,
        }
    }

    /// Until when the store is left alone, if it is.
    #[must_use]
    pub const fn open_until(&self) -> Option<Millis> {
        self.open_until
    }

    /// A question has failed.
    pub const fn failed(&mut self, now: Millis) {
        self.failures = self.failures.saturating_add(1);
        // Questions that were on their way when it opened tell nothing new.
        if self.failures >= MAX_FAILURES && self.open_until.is_none() {
            self.open(now);
        }
    }

    /// A look has failed, or the connection: no question would succeed.
    pub const fn broken(&mut self, now: Millis) {
        if !matches!(self.state(now), BreakerState::Open) {
            self.open(now);
        }
    }

    const fn open(&mut self, now: Millis) {
        self.open_until = Some(now.saturating_add(self.pause));
        let twice = self.pause.saturating_mul(2);
        self.pause = if twice > LONGEST { LONGEST } else { twice };
    }

    /// A look has succeeded: questions may be asked, until the first that fails.
    pub const fn looked(&mut self) {
        if self.open_until.take().is_some() {
            self.failures = MAX_FAILURES - 1;
        }
    }

    /// A question was answered.
    pub const fn answered(&mut self) {
        if self.open_until.is_none() {
            self.failures = 0;
            self.pause = SHORTEST;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opened() -> Breaker {
        let mut breaker = Breaker::default();
        (0..MAX_FAILURES).for_each(|_| breaker.failed(100));
        breaker
    }

    #[test]
    fn it_opens_after_failures_in_a_row() {
        let mut breaker = Breaker::default();
        for _ in 0..3 {
            (1..MAX_FAILURES).for_each(|_| breaker.failed(100));
            assert_eq!(breaker.state(100), BreakerState::Closed);
            breaker.answered();
        }
        let breaker = opened();
        assert_eq!(breaker.state(100), BreakerState::Open);
        assert_eq!(breaker.state(100 + SHORTEST - 1), BreakerState::Open);
        assert_eq!(breaker.state(100 + SHORTEST), BreakerState::HalfOpen);
    }

    #[test]
    fn after_a_look_the_first_question_that_fails_decides() {
        let mut breaker = opened();
        breaker.looked();
        assert_eq!(breaker.state(400), BreakerState::Closed);
        breaker.failed(400);
        assert_eq!(breaker.open_until(), Some(400 + 2 * SHORTEST));
        breaker.looked();
        breaker.answered();
        (1..MAX_FAILURES).for_each(|_| breaker.failed(2_000));
        assert_eq!(breaker.state(2_000), BreakerState::Closed);
    }

    #[test]
    fn pauses_grow_up_to_a_bound_and_late_failures_prolong_none() {
        let mut breaker = opened();
        breaker.failed(120);
        breaker.answered();
        assert_eq!(breaker.open_until(), Some(100 + SHORTEST));
        let mut now = 10_000;
        for _ in 0..10 {
            breaker.broken(now);
            breaker.broken(now);
            let pause = breaker.open_until().unwrap() - now;
            assert!(pause <= LONGEST);
            now += pause;
        }
        breaker.broken(now);
        assert_eq!(breaker.open_until(), Some(now + LONGEST));
    }
}
