//! Why early data is refused.

use core::fmt;

/// Why early data is refused. The session is resumed without it in each case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Refusal {
    /// This server was shown the ticket before.
    Seen,
    /// The store knows a use.
    Used,
    /// The store has not answered in time.
    NoAnswer,
    /// The store has answered with an error, or with what is no answer.
    Failed,
    /// The store has failed of late, and is not asked.
    BreakerOpen,
    /// Nothing is known of the store.
    Unknown,
    /// The store does not know all uses of the window yet.
    Young,
    /// What the store knows is not what it knew at the last look.
    Changed,
    /// The clocks of store and server do not agree, or the store's has jumped.
    Clock,
    /// The store is the replica of another one.
    Replica,
    /// Too few replicas of the store keep up.
    Replicas,
    /// The store says yes to what it has said yes to before.
    Lies,
    /// Too many questions wait for answers.
    TooMany,
}

impl Refusal {
    /// All of them.
    pub const ALL: [Self; 13] = [
        Self::Seen,
        Self::Used,
        Self::NoAnswer,
        Self::Failed,
        Self::BreakerOpen,
        Self::Unknown,
        Self::Young,
        Self::Changed,
        Self::Clock,
        Self::Replica,
        Self::Replicas,
        Self::Lies,
        Self::TooMany,
    ];

    /// A word for it, as counters have it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Seen => "seen",
            Self::Used => "used",
            Self::NoAnswer => "no_answer",
            Self::Failed => "failed",
            Self::BreakerOpen => "breaker_open",
            Self::Unknown => "unknown",
            Self::Young => "young",
            Self::Changed => "changed",
            Self::Clock => "clock",
            Self::Replica => "replica",
            Self::Replicas => "replicas",
            Self::Lies => "lies",
            Self::TooMany => "too_many",
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Seen => "the ticket was shown to this server before",
            Self::Used => "the ticket was used before",
            Self::NoAnswer => "the store does not answer in time",
            Self::Failed => "the store answers with errors",
            Self::BreakerOpen => "the store has failed, and is not asked for a while",
            Self::Unknown => "nothing is known of the store yet",
            Self::Young => "the store does not know all uses of the last three minutes yet",
            Self::Changed => "the store has forgotten what it knew",
            Self::Clock => {
                "the clocks of store and server do not agree: is the time synchronized on both?"
            }
            Self::Replica => "the store is a replica: give the address of the master",
            Self::Replicas => "too few replicas of the store keep up",
            Self::Lies => "the store says yes to what it has already",
            Self::TooMany => "too many questions wait for the store",
        })
    }
}
