//! The register as one server of the cluster has it.

use quicket_engine::UsedLately;

use crate::clock::{Clock, is_to_come};
use crate::{
    Breaker, BreakerState, Info, LOOK_COUNTS, LOOK_EVERY, MAX_SKEW, Mark, Millis, Refusal, Ticket,
    WINDOW,
};

/// Tickets that a server remembers to have seen, in each window. Of more the store is asked.
pub const MAX_SEEN: usize = 65_536;
/// Questions that wait for answers.
pub const MAX_ASKED: usize = 1_024;
/// For how long more, in milliseconds, early data is refused when a clock was set back at most. Where that of servers
/// was set back too, copies are as young as before once more, after as much time. No ticket lives for longer (RFC 8446, Section 4.6.1).
const LONGEST_BACK: Millis = 604_800_000;
/// What a clock with seconds says too little, in milliseconds.
const SECOND: Millis = 1_000;

/// What the operator has said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// How long an answer may take, in milliseconds.
    pub deadline: Millis,
    /// Replicas of the store that must keep up: as many as there are, where one of them may become the master. With
    /// fewer, a master that was replaced may still have one, and go on beside the other.
    pub replicas: usize,
}

/// What a look at the store has found.
#[derive(Clone, Copy, Debug)]
pub struct Look<'a> {
    /// What it says of itself.
    pub info: &'a Info,
    /// Its time, in milliseconds since 1970.
    pub time: Millis,
    /// What stands where its mark belongs.
    pub mark: Option<&'a [u8]>,
    /// It says no to a key that is there.
    pub denies: bool,
    /// A random name for a mark that is to be written.
    pub name: [u8; 8],
}

/// What follows of a look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// The store is known.
    Known,
    /// This mark is to be written, unless another one has been written since the look; and then to be looked at.
    Write(Mark),
    /// The store is of no use as it is.
    Unfit(Refusal),
}

/// What comes behind answers.
#[derive(Clone, Copy, Debug)]
pub struct Trailer<'a> {
    /// The mark, read after all keys were set.
    pub mark: Option<&'a [u8]>,
    /// The store's time, in milliseconds since 1970.
    pub time: Millis,
    /// Keys that were evicted, if [`Register::wants_evicted`].
    pub evicted: Option<u64>,
}

/// Why there are no answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// They have not come in time.
    Late,
    /// The store has said that it cannot, or what is no answer; or its connection has ended.
    Error,
}

/// What a store has said about a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetReply {
    /// It is set now.
    Set,
    /// It was there.
    Held,
}

/// What answers that came together are worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Judgement(Result<(), Refusal>);

impl Judgement {
    /// Whether early data is taken.
    ///
    /// # Errors
    /// If not.
    pub const fn of(&self, reply: SetReply) -> Result<(), Refusal> {
        match (self.0, reply) {
            (Err(Refusal::NoAnswer | Refusal::Failed), _) | (_, SetReply::Set) => self.0,
            (_, SetReply::Held) => Err(Refusal::Used),
        }
    }
}

/// The register as one server of the cluster has it. Who has it asks the store, and says what it has answered.
#[derive(Debug)]
pub struct Register {
    config: Config,
    seen: UsedLately<Ticket>,
    breaker: Breaker,
    /// Questions that wait for answers.
    asked: usize,
    clock: Option<Clock>,
    /// The store's clock has jumped: until then it may have forgotten uses before their time.
    jumped_until: Millis,
    /// Marks from before this time of the store are from before a jump.
    jumped_at: Millis,
    /// When the clocks last went alike.
    agreed_at: Millis,
    known: Result<Known, Refusal>,
    look_at: Millis,
}

/// What is known of the store.
#[derive(Debug)]
struct Known {
    mark: Mark,
    evicted: u64,
    may_evict: bool,
    looked_at: Millis,
}

impl Register {
    /// One that knows nothing of its store.
    #[must_use]
    pub const fn new(now: Millis, config: Config) -> Self {
        Self {
            config,
            seen: UsedLately::new(now / SECOND, WINDOW / SECOND, MAX_SEEN),
            breaker: Breaker::new(),
            asked: 0,
            clock: None,
            jumped_until: 0,
            jumped_at: 0,
            agreed_at: now,
            known: Err(Refusal::Unknown),
            look_at: now,
        }
    }

    /// A ticket came with early data; `unix` is the time by which the ticket's age is told, in seconds since 1970.
    /// The store is to be asked, and [`Self::judge`] to be told of the answer, whatever comes of it.
    ///
    /// # Errors
    /// If nobody needs to be asked: the early data is refused.
    pub fn ask(&mut self, now: Millis, unix: u64, ticket: &Ticket) -> Result<(), Refusal> {
        self.seen.turn(now / SECOND);
        if self.seen.contains(ticket) {
            return Err(Refusal::Seen);
        }
        self.standing(now)?;
        let store = self.clock.map_or(0, |clock| clock.store(now));
        if unix.saturating_mul(SECOND).abs_diff(store) > MAX_SKEW + SECOND {
            return Err(Refusal::Clock);
        }
        if self.asked >= MAX_ASKED {
            return Err(Refusal::TooMany);
        }
        // Where there is no room for it the store says the same.
        self.seen.first_use(*ticket);
        self.asked += 1;
        Ok(())
    }

    /// Whether the store would be asked now.
    ///
    /// # Errors
    /// If not: why.
    pub fn standing(&self, now: Millis) -> Result<(), Refusal> {
        if self.breaker.state(now) != BreakerState::Closed {
            return Err(Refusal::BreakerOpen);
        }
        let known = self.known.as_ref().map_err(|why| *why)?;
        let clock = self.clock.ok_or(Refusal::Unknown)?;
        if now.saturating_sub(known.looked_at) > LOOK_COUNTS {
            return Err(Refusal::Unknown);
        }
        if now < self.jumped_until {
            return Err(Refusal::Clock);
        }
        let age = clock.store(now).saturating_sub(known.mark.began());
        if age < WINDOW { Err(Refusal::Young) } else { Ok(()) }
    }

    /// What the breaker does.
    #[must_use]
    pub const fn breaker(&self, now: Millis) -> BreakerState {
        self.breaker.state(now)
    }

    /// How long an answer may take, in milliseconds.
    #[must_use]
    pub const fn deadline(&self) -> Millis {
        self.config.deadline
    }

    /// Answers are to come with how many keys were evicted.
    #[must_use]
    pub fn wants_evicted(&self) -> bool {
        self.known.as_ref().is_ok_and(|known| known.may_evict)
    }

    /// When the store is to be looked at.
    #[must_use]
    pub const fn look_at(&self) -> Millis {
        match self.breaker.open_until() {
            Some(until) => until,
            None => self.look_at,
        }
    }

    /// The store was looked at.
    pub fn looked(&mut self, now: Millis, look: Look<'_>) -> Next {
        self.breaker.looked();
        self.see_clock(now, look.time);
        self.look_at = now.saturating_add(LOOK_EVERY);
        let why = match look.info {
            _ if !look.denies => Some(Refusal::Lies),
            info if info.is_replica => Some(Refusal::Replica),
            info if info.replicas < self.config.replicas => Some(Refusal::Replicas),
            _ => None,
        };
        if let Some(why) = why {
            self.known = Err(why);
            return Next::Unfit(why);
        }
        let mark = look.mark.and_then(|text| Mark::of(look.info, text));
        // A jump counts for all servers, of which some have not seen it.
        let counts =
            |mark: &Mark| mark.began() >= self.jumped_at && !is_to_come(mark.began(), look.time);
        let Some(mark) = mark.filter(counts) else {
            self.known = Err(Refusal::Unknown);
            self.look_at = now;
            return Next::Write(Mark::new(look.info, look.time, look.name));
        };
        let Info { evicted, may_evict, .. } = *look.info;
        self.known = Ok(Known { mark, evicted, may_evict, looked_at: now });
        Next::Known
    }

    /// The connection has ended, there is none, or a look has failed.
    pub fn broken(&mut self, now: Millis) {
        self.breaker.broken(now);
        self.known = Err(Refusal::Unknown);
    }

    /// So many questions, the first of which was asked at `asked`, have come to their end: with answers, behind which
    /// `told` came, or without.
    pub fn judge(
        &mut self,
        now: Millis,
        count: usize,
        asked: Millis,
        told: Result<Trailer<'_>, Failure>,
    ) -> Judgement {
        self.asked = self.asked.saturating_sub(count);
        let is_late = now.saturating_sub(asked) > self.config.deadline;
        let trailer = match told {
            Ok(trailer) if !is_late => trailer,
            told => {
                self.breaker.failed(now);
                return Judgement(Err(match told {
                    Err(Failure::Error) => Refusal::Failed,
                    _ => Refusal::NoAnswer,
                }));
            }
        };
        self.breaker.answered();
        Judgement(self.weigh(now, trailer))
    }

    /// Whether the store is the one that was known when it was asked.
    fn weigh(&mut self, now: Millis, trailer: Trailer<'_>) -> Result<(), Refusal> {
        self.see_clock(now, trailer.time);
        let known = self.known.as_ref().map_err(|why| *why)?;
        let is_same = trailer.mark == Some(known.mark.text().as_bytes());
        let has_evicted = known.may_evict && trailer.evicted != Some(known.evicted);
        if !is_same || has_evicted {
            self.known = Err(Refusal::Changed);
            self.look_at = now;
            return Err(Refusal::Changed);
        }
        self.standing(now)
    }

    fn see_clock(&mut self, now: Millis, store: Millis) {
        match &mut self.clock {
            Some(clock) if clock.agrees(now, store) => {
                clock.follow(now, store);
                self.agreed_at = now;
            }
            Some(clock) => {
                let back = clock.store(now).saturating_sub(store).min(LONGEST_BACK);
                *clock = Clock::new(now, store);
                let until = now.saturating_add(WINDOW).saturating_add(back);
                self.jumped_until = self.jumped_until.max(until);
                // It may have jumped right after the clocks last went alike.
                self.jumped_at = store.saturating_sub(now.saturating_sub(self.agreed_at));
                (self.agreed_at, self.look_at) = (now, now);
            }
            None => {
                self.clock = Some(Clock::new(now, store));
                self.agreed_at = now;
            }
        }
    }
}

#[cfg(test)]
#[path = "register_tests.rs"]
mod tests;
