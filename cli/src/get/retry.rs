//! When to try again, and how long to wait before.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use super::download::Job;
use crate::exit::Failure;

/// The wait before the second try; it doubles with each.
const FIRST: Duration = Duration::from_millis(500);
/// ... up to this.
const LONGEST: Duration = Duration::from_secs(60);

/// How long to wait before `job` is tried again after `failure`; `None` if it is over.
pub(crate) fn wait(failure: &Failure, job: &Job) -> Option<Duration> {
    let asked = failure.again?;
    if job.tries >= job.max_tries || !job.order.is_idempotent() {
        return None;
    }
    let doubled = FIRST.saturating_mul(1 << job.tries.min(16)).min(LONGEST);
    // Many clients that lost one server do not come back in step.
    let quarter = doubled / 4;
    let share = RandomState::new().hash_one(()) % 1024;
    let spread = quarter.saturating_mul(share as u32) / 1024;
    Some((doubled + spread).max(asked))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::Kind;
    use crate::get::download::tests::job;

    #[test]
    fn waits_grow_and_end() {
        let lost = Failure::new(Kind::Connection, "lost");
        let mut job = job("https://a.test/", &["--retry", "30"]);
        let mut before = Duration::ZERO;
        for tries in 0..30 {
            job.tries = tries;
            let wait = wait(&lost, &job).unwrap();
            assert!(wait <= LONGEST * 5 / 4, "{wait:?}");
            assert!(wait > before || before >= LONGEST, "{wait:?} after {before:?}");
            before = wait;
        }
        job.tries = 30;
        assert_eq!(wait(&lost, &job), None);
    }

    #[test]
    fn what_the_server_asks_for_is_waited_and_what_stays_is_not_tried_again() {
        let mut job = job("https://a.test/", &["--retry", "1"]);
        let later = Failure::new(Kind::Refused, "503").passing(Duration::from_secs(90));
        assert_eq!(wait(&later, &job), Some(Duration::from_secs(90)));
        assert_eq!(wait(&Failure::new(Kind::Refused, "404"), &job), None);
        assert_eq!(wait(&Failure::new(Kind::Trust, "who"), &job), None);
        job = super::super::download::tests::job("https://a.test/", &["--retry", "1", "-d", "x"]);
        assert_eq!(wait(&later, &job), None, "POST could be done twice");
    }
}
