//! The states of the seat, without threads: who has it, who waits for it, and who is to be roused
//! when it changes hands.
//!
//! There is one token, and whoever receives for the endpoint holds it. So two cannot.

use quicket_engine::time::{Duration, Time};

/// How long nobody may have led before a thread in the background takes over.
pub(crate) const HANDOVER: Duration = Duration::from_millis(1);

/// Who should lead rather than whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rank {
    /// The background driver.
    Background,
    /// A caller that waits for something rare, such as the next connection.
    Patient,
    /// A caller that waits for data.
    Eager,
}

/// A caller as it can be reached while it waits.
pub(crate) trait Party: Clone {
    /// True if both are the same caller.
    fn is(&self, other: &Self) -> bool;

    /// True if it was woken for what it waits for: it does not sleep, and looks for itself.
    fn is_awake(&self) -> bool;
}

/// Where the token is.
#[derive(Debug)]
enum State<T, P> {
    /// Nobody leads.
    Vacant(T),
    /// Somebody of this rank leads, and holds the token.
    Held(Rank),
    /// This caller was promoted and has not come for it yet.
    Promised(T, Rank, P),
}

/// The seat and those who wait for it.
#[derive(Debug)]
pub(crate) struct Machine<T, P> {
    state: State<T, P>,
    /// Callers that wait while somebody else leads.
    queue: Vec<(Rank, P)>,
    /// When a caller last left the seat; the origin before the first did.
    left: Time,
    /// `left` when the background looked last.
    seen: Time,
    /// The background's thread sleeps until a caller leaves and none follows.
    background_sleeps: bool,
    /// When a leader that sleeps looks again at what was postponed; the origin if it does so
    /// before it sleeps.
    looks_at: Time,
    /// Something was to be postponed while somebody led.
    is_watched_for: bool,
    /// When a caller last came that does not wait, and found somebody of lower rank there; and when such callers
    /// last did that one's work.
    visited: Time,
    relieved: Time,
    /// Such callers come so often that whoever leads is to leave.
    is_relieved: bool,
}

/// What came of asking for the seat.
#[derive(Debug)]
pub(crate) enum Entry<T> {
    /// The caller leads.
    Seated(T),
    /// Somebody else does, and the caller is in the queue.
    Queued {
        /// The leader is to be interrupted: it should leave.
        interrupt: bool,
    },
}

/// What came of a caller's coming that does not wait.
#[derive(Debug)]
pub(crate) enum Visit<T> {
    /// The caller leads, and is to leave when it has received.
    Seated(T),
    /// Somebody else does.
    Refused {
        /// The leader is to be interrupted: it should leave.
        interrupt: bool,
    },
}

/// Whom to rouse after somebody left.
#[derive(Debug)]
pub(crate) struct Left<P> {
    /// The caller that was promoted.
    pub(crate) promoted: Option<P>,
    /// The seat is vacant, and a caller had it: a task in the background is to look.
    pub(crate) task: bool,
    /// The same, and a thread in the background sleeps.
    pub(crate) thread: bool,
}

/// When what was postponed is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// Nobody leads: whoever comes for the seat looks first, and that may be the caller in a moment.
    ByNext,
    /// Somebody leads, and looks within [`HANDOVER`].
    Soon,
    /// Somebody leads, and may sleep for longer.
    TooLate,
}

/// What the background's thread does next.
#[derive(Debug)]
pub(crate) enum Shift<T> {
    /// Lead.
    Seated(T),
    /// Look again after so long, or when roused.
    Nap(Duration),
    /// Sleep until roused.
    Sleep,
}

impl<T, P: Party> Machine<T, P> {
    pub(crate) const fn new(token: T) -> Self {
        Self {
            state: State::Vacant(token),
            queue: Vec::new(),
            left: Time::ZERO,
            seen: Time::ZERO,
            background_sleeps: false,
            looks_at: Time::ZERO,
            is_watched_for: false,
            visited: Time::ZERO,
            relieved: Time::ZERO,
            is_relieved: false,
        }
    }

    /// True if nobody leads and nobody was called to.
    pub(crate) const fn is_vacant(&self) -> bool {
        matches!(self.state, State::Vacant(_))
    }

    /// Takes the seat if it is vacant.
    pub(crate) fn try_enter(&mut self, rank: Rank) -> Option<T> {
        self.replace(rank, |state| match state {
            State::Vacant(token) => Ok(token),
            other => Err(other),
        })
    }

    /// Takes the seat if it is vacant, or waits for it: also while callers that do not wait have it again and again,
    /// for one that they have relieved. The background hands it on when they are done.
    pub(crate) fn enter(&mut self, rank: Rank, party: &P, now: Time) -> Entry<T> {
        let may_lead = rank == Rank::Eager || !self.is_visited_often(now);
        if let Some(token) = may_lead.then(|| self.try_enter(rank)).flatten() {
            return Entry::Seated(token);
        }
        let before = self.is_wanted();
        self.queue.push((rank, party.clone()));
        Entry::Queued { interrupt: !before && self.is_wanted() }
    }

    /// A caller comes that receives what is there and goes on. Where it finds the background's thread, or a caller
    /// that waits for something rare, and one has come within [`HANDOVER`] before, such callers do the work of whoever
    /// leads: that one is to leave, and keeps away while they go on. Otherwise both would want the same connections
    /// all the time.
    pub(crate) fn visit(&mut self, now: Time) -> Visit<T> {
        let is_often = self.is_visited_often(now);
        if let Some(token) = self.try_enter(Rank::Eager) {
            if is_often {
                self.relieved = now;
            }
            return Visit::Seated(token);
        }
        if !matches!(self.state, State::Held(Rank::Background | Rank::Patient)) {
            return Visit::Refused { interrupt: false };
        }
        let before = std::mem::replace(&mut self.visited, now);
        let relieves = before != Time::ZERO && now.since(before) < HANDOVER && !self.is_wanted();
        if relieves {
            self.is_relieved = true;
            self.relieved = now;
        }
        Visit::Refused { interrupt: relieves }
    }

    /// True if callers that do not wait do the work of others, and one came just now.
    fn is_visited_often(&self, now: Time) -> bool {
        self.relieved != Time::ZERO && now.since(self.relieved) < HANDOVER
    }

    /// True if whoever leads should leave: somebody of higher rank sleeps meanwhile, or does its work.
    pub(crate) fn is_wanted(&self) -> bool {
        let State::Held(rank) = self.state else { return false };
        self.is_relieved
            || self.queue.iter().any(|(other, party)| *other > rank && !party.is_awake())
    }

    /// Whoever leads leaves. A caller that sleeps follows at once, unless its rank is lower: of
    /// what it waits for there is less, and the leader is likely to be back soon.
    pub(crate) fn leave(&mut self, token: T, now: Time) -> Left<P> {
        let from = match self.state {
            State::Held(rank) => rank,
            // Without the token nobody can leave.
            State::Vacant(_) | State::Promised(..) => Rank::Background,
        };
        let by_caller = from > Rank::Background;
        if std::mem::take(&mut self.is_relieved) || by_caller {
            self.left = now.max(self.left + Duration::from_nanos(1));
        }
        // Of equals the last to come, whose cache is warmest.
        let sleeping =
            |(_, (rank, party)): &(usize, &(Rank, P))| *rank >= from && !party.is_awake();
        let sleepers = self.queue.iter().enumerate().filter(sleeping);
        if let Some(place) = sleepers.max_by_key(|(_, (rank, _))| *rank).map(|(place, _)| place) {
            let (rank, party) = self.queue.swap_remove(place);
            self.state = State::Promised(token, rank, party.clone());
            return Left { promoted: Some(party), task: false, thread: false };
        }
        self.state = State::Vacant(token);
        let thread = by_caller && std::mem::take(&mut self.background_sleeps);
        Left { promoted: None, task: by_caller, thread }
    }

    /// A caller comes for the seat, if it was promoted.
    pub(crate) fn claim(&mut self, party: &P) -> Option<T> {
        let State::Promised(_, rank, _) = self.state else { return None };
        self.replace(rank, |state| match state {
            State::Promised(token, _, promoted) if promoted.is(party) => Ok(token),
            other => Err(other),
        })
    }

    /// A caller waits no more. If it was promoted meanwhile it leads now, and must leave.
    pub(crate) fn withdraw(&mut self, party: &P) -> Option<T> {
        let claimed = self.claim(party);
        if claimed.is_none() {
            self.queue.retain(|(_, other)| !other.is(party));
        }
        claimed
    }

    /// The background's thread asks what to do. It keeps away while callers do its work, and for
    /// [`HANDOVER`] after: one that goes on at once should not have to displace it.
    pub(crate) fn drive(&mut self, now: Time) -> Shift<T> {
        let seen = std::mem::replace(&mut self.seen, self.left);
        if !self.is_vacant() {
            // To be roused costs those who leave: only where they do not do so all the time.
            self.background_sleeps = seen == self.left;
            return if self.background_sleeps { Shift::Sleep } else { Shift::Nap(HANDOVER) };
        }
        let idle = now.since(self.left);
        if self.left != Time::ZERO && idle < HANDOVER {
            return Shift::Nap(Duration::from_nanos(HANDOVER.as_nanos() - idle.as_nanos()));
        }
        self.try_enter(Rank::Background).map_or(Shift::Nap(HANDOVER), Shift::Seated)
    }

    /// For whoever has put something on the list of what was postponed: when it will be looked at
    /// without anybody's doing. A leader that sleeps for longer will sleep for shorter next time.
    pub(crate) fn next_look(&mut self, now: Time) -> Look {
        if self.is_vacant() {
            return Look::ByNext;
        }
        self.is_watched_for = true;
        if self.looks_at <= now + HANDOVER { Look::Soon } else { Look::TooLate }
    }

    /// A leader is going to sleep, but will look at what was postponed before: until when it may
    /// sleep, if somebody relies on it.
    pub(crate) fn plan_look(&mut self, now: Time) -> Option<Time> {
        let look = std::mem::take(&mut self.is_watched_for).then_some(now + HANDOVER);
        self.looks_at = look.unwrap_or(Time::from_nanos(u64::MAX));
        look
    }

    /// A leader no longer sleeps.
    pub(crate) const fn has_woken(&mut self) {
        self.looks_at = Time::ZERO;
    }

    /// Gives the token away if `take` finds it, to somebody of this rank.
    fn replace(
        &mut self,
        rank: Rank,
        take: impl FnOnce(State<T, P>) -> Result<T, State<T, P>>,
    ) -> Option<T> {
        match take(std::mem::replace(&mut self.state, State::Held(rank))) {
            Ok(token) => Some(token),
            Err(state) => {
                self.state = state;
                None
            }
        }
    }
}
