//! What came of a simulation.

use std::collections::BTreeMap;
use std::fmt;

use quicket_register::Refusal;

#[derive(Default)]
pub(crate) struct Tally {
    /// Clients that came back with a ticket and early data.
    pub(crate) returns: u64,
    /// ... and had it taken.
    pub(crate) taken: u64,
    /// ... and whose ticket was of a key that is accepted no more.
    pub(crate) expired: u64,
    pub(crate) replays: u64,
    pub(crate) replays_taken: u64,
    pub(crate) refusals: BTreeMap<Refusal, u64>,
    /// Questions to stores, looks, and commands in all.
    pub(crate) questions: u64,
    pub(crate) looks: u64,
    pub(crate) commands: u64,
    /// The most commands in a second.
    pub(crate) peak: u64,
    pub(crate) seconds: u64,
}

impl Tally {
    /// Of those who tried with a ticket that was resumed.
    pub(crate) fn share(&self) -> f64 {
        self.taken as f64 / (self.returns - self.expired).max(1) as f64
    }

    pub(crate) fn refused(&self, why: &str) -> u64 {
        self.refusals
            .iter()
            .filter(|(refusal, _)| refusal.name() == why)
            .map(|(_, count)| count)
            .sum()
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { returns, taken, expired, replays, replays_taken, .. } = self;
        writeln!(f, "{returns} clients came back, {expired} of them with keys that are gone")?;
        writeln!(f, "{taken} had early data taken: {:.3} % of the others", 100.0 * self.share())?;
        writeln!(f, "{replays} replays, {replays_taken} of them taken")?;
        let seconds = self.seconds.max(1);
        writeln!(
            f,
            "the store: {} questions, {} looks, {} commands in a second, {} at most",
            self.questions / seconds,
            self.looks / seconds,
            self.commands / seconds,
            self.peak
        )?;
        let refused = self.refusals.iter().map(|(why, count)| format!("{} {count}", why.name()));
        writeln!(f, "refused, replays too: {}", refused.collect::<Vec<_>>().join(", "))
    }
}
