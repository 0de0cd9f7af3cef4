//! Path validation: PATH_CHALLENGE out, PATH_RESPONSE in (RFC 9000, Section 8.2).

use crate::random::Random;
use crate::time::{Duration, Time};

/// Challenges in flight that a response may still answer.
const MAX_OUTSTANDING: usize = 4;
/// Lost challenges that are replaced at once. Any others wait for their interval: no more often
/// than a client sends Initial packets (RFC 9000, Section 8.2.1).
const MAX_HURRIED: u8 = 2;
/// Validation is given up after this many PTOs (RFC 9000, Section 8.2.4).
const GIVE_UP_PTOS: u64 = 3;

#[derive(Clone, Copy, Debug)]
struct Challenge {
    data: [u8; 8],
    /// It was in a datagram of at least 1200 bytes.
    expanded: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nothing is known, nothing is asked.
    Unvalidated,
    /// Challenges go out until `deadline`; one is due at `next`, or now if that is `None`.
    Validating {
        deadline: Time,
        next: Option<Time>,
        interval: Duration,
        hurried: u8,
    },
    Validated,
    Failed,
}

/// What a PATH_RESPONSE meant for a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResponseOutcome {
    /// Its data is not of a challenge sent on this path.
    NotOurs,
    /// The peer is reachable on this path, and the path carries 1200 bytes.
    Validated,
    /// The peer is reachable; a second challenge, in a datagram of 1200 bytes, follows because
    /// the first could not be expanded (RFC 9000, Section 8.2.1).
    AddressOnly,
}

/// What the passing of time meant for a validation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ValidationTimeout {
    /// Nothing, or another challenge is due.
    None,
    /// The path is not usable (RFC 9000, Section 8.2.4).
    Failed,
}

/// The validation state of one path.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PathValidation {
    state: State,
    /// The peer has answered on this path at some time: its address is good.
    address_validated: bool,
    outstanding: [Option<Challenge>; MAX_OUTSTANDING],
    /// Where the next challenge is remembered.
    slot: usize,
}

impl PathValidation {
    /// A path of whose peer nothing is known.
    pub(crate) fn unvalidated() -> Self {
        Self {
            state: State::Unvalidated,
            address_validated: false,
            outstanding: [None; MAX_OUTSTANDING],
            slot: 0,
        }
    }

    /// A path that needs no validation: a client's first one.
    pub(crate) fn validated() -> Self {
        Self { state: State::Validated, address_validated: true, ..Self::unvalidated() }
    }

    /// Starts validation, or starts it over. `pto` is the larger of the connection's current PTO
    /// and that of a new path (RFC 9000, Section 8.2.4).
    pub(crate) fn start(&mut self, now: Time, pto: Duration) {
        let deadline = now + pto.times(GIVE_UP_PTOS);
        let interval = pto.over(GIVE_UP_PTOS);
        self.state = State::Validating { deadline, next: None, interval, hurried: 0 };
    }

    /// The address was proved by other means: the handshake or a token
    /// (RFC 9000, Section 8.1).
    pub(crate) fn set_validated(&mut self) {
        self.state = State::Validated;
        self.address_validated = true;
    }

    /// True once the peer's address is known to be its own.
    #[inline]
    pub(crate) fn is_validated(&self) -> bool {
        self.address_validated
    }

    /// True while challenges go out.
    #[inline]
    pub(crate) fn is_validating(&self) -> bool {
        matches!(self.state, State::Validating { .. })
    }

    /// True if a PATH_CHALLENGE is due.
    #[inline]
    pub(crate) fn is_challenge_due(&self, now: Time) -> bool {
        matches!(self.state, State::Validating { next, .. } if next.is_none_or(|t| t <= now))
    }

    /// Draws the data of a PATH_CHALLENGE that goes out now: new for every one, so that a
    /// response tells which was answered (RFC 9000, Section 8.2.1). `expanded` tells whether its
    /// datagram has at least 1200 bytes. The next one is due after a third of the PTO, doubling:
    /// one may well be lost, and so may its answer, and there are no more than three PTOs.
    pub(crate) fn challenge(
        &mut self,
        now: Time,
        expanded: bool,
        random: &mut dyn Random,
    ) -> [u8; 8] {
        let mut data = [0; 8];
        random.fill(&mut data);
        if let Some(slot) = self.outstanding.get_mut(self.slot) {
            *slot = Some(Challenge { data, expanded });
        }
        self.slot = self.slot.saturating_add(1) % MAX_OUTSTANDING;
        if let State::Validating { next, interval, .. } = &mut self.state {
            *next = Some(now + *interval);
            *interval = interval.times(2);
        }
        data
    }

    /// A packet with this challenge was lost: the next one is due at once, the first times.
    pub(crate) fn on_challenge_lost(&mut self, data: [u8; 8]) {
        let is_ours = self.outstanding.iter().flatten().any(|c| c.data == data);
        if let State::Validating { next, hurried, .. } = &mut self.state
            && is_ours
            && *hurried < MAX_HURRIED
        {
            *hurried = (*hurried).saturating_add(1);
            *next = None;
        }
    }

    /// A PATH_RESPONSE arrived, on whatever path (RFC 9000, Section 8.2.3).
    pub(crate) fn on_response(
        &mut self,
        now: Time,
        data: [u8; 8],
        pto: Duration,
    ) -> ResponseOutcome {
        let answered = self.outstanding.iter().flatten().find(|c| c.data == data).copied();
        let Some(challenge) = answered else { return ResponseOutcome::NotOurs };
        self.address_validated = true;
        self.outstanding = [None; MAX_OUTSTANDING];
        if challenge.expanded {
            self.state = State::Validated;
            ResponseOutcome::Validated
        } else {
            self.start(now, pto);
            ResponseOutcome::AddressOnly
        }
    }

    /// When [`Self::on_timeout`] or the next challenge is due.
    pub(crate) fn timeout(&self) -> Option<Time> {
        match self.state {
            State::Validating { deadline, next, .. } => {
                Some(next.map_or(deadline, |next| next.min(deadline)))
            }
            _ => None,
        }
    }

    /// Time passed. A challenge that is due stays so until it is sent, without a timer: what
    /// holds it back ends by another event.
    pub(crate) fn on_timeout(&mut self, now: Time) -> ValidationTimeout {
        let State::Validating { deadline, next, .. } = &mut self.state else {
            return ValidationTimeout::None;
        };
        if *deadline > now {
            *next = next.filter(|&t| t > now);
            return ValidationTimeout::None;
        }
        self.state = State::Failed;
        self.outstanding = [None; MAX_OUTSTANDING];
        ValidationTimeout::Failed
    }
}

#[cfg(test)]
#[path = "validation_tests.rs"]
mod tests;
