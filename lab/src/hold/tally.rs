//! What has become of the connections, counted.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::Serialize;

/// Reasons that are told apart; others are counted together.
const MAX_REASONS: usize = 20;
const OTHERS: &str = "others";

/// The counts.
#[derive(Debug, Default)]
pub(super) struct Tally(Mutex<Counts>);

#[derive(Debug, Default, Serialize)]
struct Counts {
    /// Connections that are used, by their first answer: who is at the other end.
    open: BTreeMap<String, u64>,
    /// Those that were lost.
    lost: BTreeMap<String, u64>,
    /// Those that never came to be, or were lost before the first answer.
    refused: u64,
    /// Answers.
    answers: u64,
    /// ... from somebody else than before on the same connection.
    strayed: u64,
    /// Why connections were lost or refused.
    reasons: BTreeMap<String, u64>,
}

impl Counts {
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
        *self.counts().open.entry(home.to_owned()).or_default() += 1;
    }

    /// An answer on a connection whose first one was `home`.
    pub(super) fn answered(&self, home: &str, answer: &str) {
        let mut counts = self.counts();
        counts.answers += 1;
        counts.strayed += u64::from(home != answer);
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
        if let Some(open) = counts.open.get_mut(home) {
            *open -= 1;
        }
        *counts.lost.entry(home.to_owned()).or_default() += 1;
        counts.reason(reason);
    }

    /// Whether so many connections are open, and all of them where they have always been.
    pub(super) fn is_whole(&self, connections: usize) -> bool {
        let counts = self.counts();
        counts.open.values().sum::<u64>() == connections as u64 && counts.strayed == 0
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
            for answer in answers {
                tally.answered(home, answer);
            }
        }
        assert!(!tally.is_whole(2), "one of them strayed");
        tally.lost(Some("east"), "timed out".to_owned());
        tally.lost(None, "timed out".to_owned());
        tally.refused("refused".to_owned());
        let counts: Value = serde_json::from_str(&tally.json()).unwrap();
        let reasons = json!({ "timed out": 2, "refused": 1 });
        let expected = json!({
            "open": { "east": 0, "west": 1 }, "lost": { "east": 1 }, "refused": 2, "answers": 4,
            "strayed": 1, "reasons": reasons,
        });
        assert_eq!(counts, expected);
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
