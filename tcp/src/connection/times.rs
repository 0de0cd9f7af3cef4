//! What a connection waits for beside smoltcp's timers.

use std::time::Duration;

use smoltcp::time::Instant;

use super::{ACK_DELAY, USER_TIMEOUT};

/// How long data is left without a timer: as long as smoltcp's timers are at least (RFC 6298, Section 2.4).
const STALL_TIME: Duration = Duration::from_secs(1);
/// Between two acknowledgments for segments that are not shown to smoltcp.
const CHALLENGE_TIME: Duration = Duration::from_secs(1);

/// Times of a connection that are ours.
#[derive(Debug, Default)]
pub(crate) struct Times {
    /// When it is given up, if its end is not acknowledged.
    end: Option<Instant>,
    /// When it ends, whatever happens.
    deadline: Option<Instant>,
    /// When smoltcp is made to send again what it has no timer for.
    again: Option<Instant>,
    /// When an acknowledgment was sent last for a segment that was not shown.
    challenged: Option<Instant>,
}

impl Times {
    /// It has so long from now on, whatever happens.
    pub(crate) fn give(&mut self, time: Duration, now: Instant) {
        self.deadline = Some(now + time.into());
    }

    /// It may stay.
    pub(crate) const fn spare(&mut self) {
        self.deadline = None;
    }

    /// Whether the time that it was given is over. That is said once.
    pub(crate) fn is_up(&mut self, now: Instant) -> bool {
        self.deadline.take_if(|deadline| *deadline <= now).is_some()
    }

    /// Only a FIN waits for its acknowledgment, or not. Returns whether it has for too long, once.
    pub(super) fn is_end_given_up(&mut self, waits: bool, now: Instant) -> bool {
        let end = self.end.unwrap_or_else(|| now + USER_TIMEOUT.into());
        self.end = waits.then_some(end);
        self.end.take_if(|end| *end <= now).is_some()
    }

    /// Data waits, and `next` is when smoltcp wants to be asked for it.
    pub(super) fn watch_over(&mut self, next: Option<Instant>, now: Instant) {
        self.again = match next {
            None => self.again.or(Some(now + STALL_TIME.into())),
            // That may be an acknowledgment which waits, and nothing else.
            Some(next) if next <= now + ACK_DELAY => self.again,
            Some(_) => None,
        };
    }

    /// Nothing waits that smoltcp has no timer for.
    pub(super) const fn rest(&mut self) {
        self.again = None;
    }

    /// Whether smoltcp is to be made to send again. That is said once.
    pub(super) fn is_stalled(&mut self, now: Instant) -> bool {
        self.again.take_if(|again| *again <= now).is_some()
    }

    /// Whether a segment that is not shown may be answered: once in a second, whoever asks for more (RFC 5961, Section 7).
    pub(super) fn may_challenge(&mut self, now: Instant) -> bool {
        let may = self.challenged.is_none_or(|last| now >= last + CHALLENGE_TIME.into());
        if may {
            self.challenged = Some(now);
        }
        may
    }

    /// When it is to be looked at next for one of them.
    pub(super) fn next(&self) -> Option<Instant> {
        [self.again, self.end, self.deadline].into_iter().flatten().min()
    }

    /// When smoltcp is made to send again.
    #[cfg(test)]
    pub(crate) const fn again(&self) -> Option<Instant> {
        self.again
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant::from_millis_const(1_000_000);

    fn after(time: Duration) -> Instant {
        NOW + time.into()
    }

    #[test]
    fn what_is_over_is_said_once() {
        let mut times = Times::default();
        assert!(!times.is_up(NOW) && !times.is_stalled(NOW) && times.next().is_none());
        times.give(Duration::from_secs(5), NOW);
        assert_eq!(times.next(), Some(after(Duration::from_secs(5))));
        assert!(!times.is_up(after(Duration::from_secs(4))));
        assert!(times.is_up(after(Duration::from_secs(5))) && !times.is_up(after(USER_TIMEOUT)));
        times.give(Duration::from_secs(5), NOW);
        times.spare();
        assert!(!times.is_up(after(USER_TIMEOUT)));
    }

    /// RFC 9293, Section 3.8.3.
    #[test]
    fn an_end_is_given_up_that_waits_without_a_break() {
        let mut times = Times::default();
        assert!(!times.is_end_given_up(true, NOW));
        assert!(!times.is_end_given_up(false, after(USER_TIMEOUT)), "it is acknowledged");
        let later = after(USER_TIMEOUT);
        assert!(!times.is_end_given_up(true, later));
        assert!(!times.is_end_given_up(true, later + Duration::from_secs(119).into()));
        assert!(times.is_end_given_up(true, later + USER_TIMEOUT.into()));
        assert_eq!(times.next(), None);
    }

    #[test]
    fn data_without_a_timer_is_left_for_a_second() {
        let mut times = Times::default();
        times.watch_over(None, NOW);
        // An acknowledgment that waits says nothing of data.
        times.watch_over(Some(NOW + ACK_DELAY), NOW);
        times.watch_over(None, after(STALL_TIME / 2));
        assert!(!times.is_stalled(after(STALL_TIME / 2)));
        assert!(times.is_stalled(after(STALL_TIME)) && !times.is_stalled(after(STALL_TIME)));
        times.watch_over(None, NOW);
        times.watch_over(Some(after(STALL_TIME)), NOW);
        assert_eq!(times.again(), None, "smoltcp has one");
        times.watch_over(None, NOW);
        times.rest();
        assert_eq!(times.next(), None);
    }

    /// RFC 5961, Section 7.
    #[test]
    fn one_segment_in_a_second_is_answered() {
        let mut times = Times::default();
        assert!(times.may_challenge(NOW) && !times.may_challenge(NOW));
        assert!(!times.may_challenge(after(CHALLENGE_TIME / 2)));
        assert!(times.may_challenge(after(CHALLENGE_TIME)));
    }
}
