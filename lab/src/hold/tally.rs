//! What has become of the connections, counted.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::Serialize;

/// Reasons that are told apart; others are counted together.
const MAX_REASONS: usize = 20;
const OTHERS: &str = "others";

/// Ends that are told apart by what they answer; others are counted together.
const MAX_HOMES: usize = 256;

/// The counts.
#[derive(Debug, Default)]
pub(super) struct Tally(Mutex<Counts>);

#[derive(Debug, Default, Serialize)]
struct Counts {
    /// Connections that are used, by their first answer: who is at the other end.
    open: BTreeMap<String, u64>,
    /// ... of which so many have waited too long for an answer that is still to come.
    silent: usize,
    /// Those that were lost.
    lost: BTreeMap<String, u64>,
    /// Those that never came to be, or were lost before the first answer.
    refused: u64,
    /// Questions without an answer, on connections that live on.
    failed: u64,
    /// Answers.
    answers: u64,
    /// ... from somebody else than before on the same connection.
    strayed: u64,
    /// How long answers took: so many less than so many milliseconds, a power of two.
    waits: BTreeMap<u64, u64>,
    /// Why connections were lost or refused, or ports stayed.
    reasons: BTreeMap<String, u64>,
    /// Since when questions are open, by the number of their connection.
    #[serde(skip)]
    asked: HashMap<usize, Instant>,
}

impl Counts {
    /// As whom a home is counted.
    fn home(&self, home: &str) -> String {
        let known = self.open.contains_key(home) || self.open.len() < MAX_HOMES;
        if known { home } else { OTHERS }.to_owned()
    }

    fn reason(&mut self, reason: String) {
        let known = self.reasons.contains_key(&reason) || self.reasons.len() < MAX_REASONS;
        *self.reasons.entry(if known { reason } else { OTHERS.to_owned() }).or_default() += 1;
    }
}

impl Tally {
    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection has had its first answer.
    pub(super) fn opened(&self, home: &str) {
        let mut counts = self.counts();
        let home = counts.home(home);
        *counts.open.entry(home).or_default() += 1;
    }

    /// A connection has asked.
    pub(super) fn asked(&self, number: usize, at: Instant) {
        self.counts().asked.insert(number, at);
    }

    /// It has an answer, or there is no connection any more.
    pub(super) fn asks_no_more(&self, number: usize) {
        self.counts().asked.remove(&number);
    }

    /// An answer after `wait` on a connection whose first one was `home`.
    pub(super) fn answered(&self, home: &str, answer: &str, wait: Duration) {
        let milliseconds = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        let limit = milliseconds.saturating_add(1).checked_next_power_of_two();
        let mut counts = self.counts();
        counts.answers += 1;
        *counts.waits.entry(limit.unwrap_or(u64::MAX)).or_default() += 1;
        counts.strayed += u64::from(home != answer);
    }

    /// A port was not exchanged for another.
    pub(super) fn stayed(&self, reason: String) {
        self.counts().reason(reason);
    }

    /// There is no connection.
    pub(super) fn refused(&self, reason: String) {
        let mut counts = self.counts();
        counts.refused += 1;
        counts.reason(reason);
    }

    /// A connection has ended whose first answer was `home`, if it had one.
    pub(super) fn lost(&self, home: Option<&str>, reason: String) {
        let Some(home) = home else { return self.refused(reason) };
        let mut counts = self.counts();
        let home = counts.home(home);
        if let Some(open) = counts.open.get_mut(&home) {
            *open -= 1;
        }
        *counts.lost.entry(home).or_default() += 1;
        counts.reason(reason);
    }

    /// A question has failed, and its connection has not.
    pub(super) fn failed(&self, reason: String) {
        let mut counts = self.counts();
        counts.failed += 1;
        counts.reason(reason);
    }

    /// Notes how many have waited for longer than `patience`.
    pub(super) fn look(&self, now: Instant, patience: Duration) {
        let mut counts = self.counts();
        let late = |asked: &&Instant| now.saturating_duration_since(**asked) > patience;
        counts.silent = counts.asked.values().filter(late).count();
    }

    /// Whether so many connections are open, all of them where they have always been, none silent, and
    /// all questions answered.
    pub(super) fn is_whole(&self, connections: usize) -> bool {
        let counts = self.counts();
        let open = counts.open.values().sum::<u64>() == connections as u64;
        open && counts.strayed == 0 && counts.silent == 0 && counts.failed == 0
    }

    /// All of it, as one line of JSON.
    pub(super) fn json(&self) -> String {
        serde_json::to_string(&*self.counts()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn connections_are_counted_by_who_answered_first() {
        let tally = Tally::default();
        for (home, answers) in [("east", &["east", "east"][..]), ("west", &["west", "east"])] {
            tally.opened(home);
            for (answer, wait) in answers.iter().zip([0, 4]) {
                tally.answered(home, answer, Duration::from_millis(wait));
            }
        }
        assert!(!tally.is_whole(2), "one of them strayed");
        tally.lost(Some("east"), "timed out".to_owned());
        tally.lost(None, "timed out".to_owned());
        tally.refused("refused".to_owned());
        let counts: Value = serde_json::from_str(&tally.json()).unwrap();
        let reasons = json!({ "timed out": 2, "refused": 1 });
        let expected = json!({
            "open": { "east": 0, "west": 1 }, "silent": 0, "lost": { "east": 1 }, "refused": 2, "failed": 0,
            "answers": 4, "strayed": 1, "waits": { "1": 2, "8": 2 }, "reasons": reasons,
        });
        assert_eq!(counts, expected);
    }

    #[test]
    fn connections_that_wait_for_an_answer_are_not_whole() {
        let (tally, start) = (Tally::default(), Instant::now());
        let silent = |seconds| {
            tally.look(start + Duration::from_secs(seconds), Duration::from_secs(2));
            tally.counts().silent
        };
        tally.opened("east");
        tally.asked(7, start);
        assert_eq!([silent(2), silent(3)], [0, 1]);
        assert!(!tally.is_whole(1));
        tally.asks_no_more(7);
        assert_eq!(silent(9), 0);
        assert!(tally.is_whole(1));
    }

    #[test]
    fn a_question_that_fails_does_not_lose_its_connection() {
        let tally = Tally::default();
        tally.opened("east");
        assert!(tally.is_whole(1));
        tally.failed("the stream was reset".to_owned());
        assert!(!tally.is_whole(1));
        let counts: Value = serde_json::from_str(&tally.json()).unwrap();
        assert_eq!((&counts["open"], &counts["failed"]), (&json!({ "east": 1 }), &json!(1)));
        assert_eq!(
            (&counts["lost"], &counts["reasons"]["the stream was reset"]),
            (&json!({}), &json!(1))
        );
    }

    #[test]
    fn homes_are_bounded() {
        let tally = Tally::default();
        (0..1000).for_each(|home| tally.opened(&home.to_string()));
        tally.lost(Some("999"), "timed out".to_owned());
        let counts: Value = serde_json::from_str(&tally.json()).unwrap();
        assert_eq!(counts["open"].as_object().unwrap().len(), MAX_HOMES + 1);
        assert_eq!((&counts["open"][OTHERS], &counts["lost"][OTHERS]), (&json!(743), &json!(1)));
    }

    #[test]
    fn reasons_are_bounded() {
        let tally = Tally::default();
        for number in 0..100 {
            tally.refused(number.to_string());
        }
        let counts: Value = serde_json::from_str(&tally.json()).unwrap();
        assert_eq!(counts["reasons"].as_object().unwrap().len(), MAX_REASONS + 1);
        assert_eq!(counts["reasons"][OTHERS], 100 - MAX_REASONS);
    }
}
