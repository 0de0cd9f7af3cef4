//! Idle timeout, keep-alive and probes for an answer that stays away (RFC 9000, Section 10.1), and
//! quiet.

use crate::time::{Duration, Time};

/// A connection without packets for this long is quiet, and for three probe timeouts at least: no
/// late ACKs are to be expected then.
const QUIET_AFTER: Duration = Duration::from_secs(1);

/// How often a peer that owes data is probed before it sends any: a connection on which nothing
/// else happens is not kept by that.
const MAX_ANSWER_PROBES: u8 = 3;

/// Watches for silence.
#[derive(Debug)]
pub(crate) struct Idle {
    /// The effective timeout; `None` when both sides turned it off.
    timeout: Option<Duration>,
    keep_alive: Option<Duration>,
    /// When the timeout last began anew.
    restarted: Time,
    /// True after an ack-eliciting packet was sent since the last one received: only the first
    /// restarts the timer.
    sent_since_received: bool,
    /// When anything was last sent or received, for keep-alive.
    last_activity: Time,
    /// A keep-alive PING went out and the peer has not been heard since.
    keep_alive_sent: bool,
    /// After how much silence a peer that owes data is probed.
    answer_probe: Option<Duration>,
    /// How often it was since it last sent more than ACKs.
    answer_probes: u8,
    /// Since when it may owe data: when it was last heard, or first told something after that.
    answer_since: Time,
    /// When memory that is kept for speed alone was last of use; `None` once it is given back.
    in_use: Option<Time>,
}

impl Idle {
    pub(crate) fn new(
        now: Time,
        ours: Duration,
        keep_alive: Duration,
        answer_probe: Duration,
    ) -> Self {
        Self {
            timeout: nonzero(ours),
            keep_alive: nonzero(keep_alive),
            restarted: now,
            sent_since_received: false,
            last_activity: now,
            keep_alive_sent: false,
            answer_probe: nonzero(answer_probe),
            answer_probes: 0,
            answer_since: now,
            in_use: Some(now),
        }
    }

    /// Learns the peer's max_idle_timeout: the smaller one holds; zero is none.
    pub(crate) fn negotiate(&mut self, theirs: Duration) {
        self.timeout = match (self.timeout, nonzero(theirs)) {
            (Some(ours), Some(theirs)) => Some(ours.min(theirs)),
            (ours, theirs) => ours.or(theirs),
        };
    }

    /// A packet of the peer was processed, with more in it than acknowledgments or not.
    pub(crate) fn on_received(&mut self, now: Time, ack_eliciting: bool) {
        self.restarted = now;
        self.answer_since = now;
        if ack_eliciting {
            self.answer_probes = 0;
        }
        self.last_activity = now;
        self.sent_since_received = false;
        self.keep_alive_sent = false;
        self.in_use = Some(now);
    }

    /// An ack-eliciting packet was sent.
    pub(crate) fn on_sent_ack_eliciting(&mut self, now: Time) {
        self.last_activity = now;
        self.in_use = Some(now);
        if !core::mem::replace(&mut self.sent_since_received, true) {
            self.restarted = now;
            if !self.keep_alive_sent {
                // Perhaps a question.
                self.answer_since = now;
                self.answer_probes = 0;
            }
        }
    }

    /// When the connection ends if nothing happens. RFC 9000, Section 10.1: never sooner than
    /// three times the current probe timeout, which is that of RFC 9002, Section 6.2.1, before any
    /// back-off: what the path needs does not grow while nothing comes.
    pub(crate) fn deadline(&self, pto: Duration) -> Option<Time> {
        self.timeout.map(|timeout| self.restarted + timeout.max(pto.times(3)))
    }

    /// When to send a PING to keep the connection.
    pub(crate) fn keep_alive_deadline(&self) -> Option<Time> {
        let interval = self.keep_alive?;
        if self.keep_alive_sent {
            // PTO repeats the PING; the idle timeout decides.
            return None;
        }
        Some(self.last_activity + interval)
    }

    /// When to look whether the peer owes data, and to probe it if so: after twice as long each
    /// time. `None` once it was probed often enough.
    pub(crate) fn answer_deadline(&self, pto: Duration) -> Option<Time> {
        let interval = self.answer_probe?.max(pto.times(3));
        (self.answer_probes < MAX_ANSWER_PROBES).then(|| {
            self.answer_since + interval.times(1_u64.wrapping_shl(self.answer_probes.into()))
        })
    }

    /// The deadline has come, and the peer owes something.
    ///
    /// A probe is nothing that the application does. It does not restart the timeout, as
    /// packets do that are the first after one was received; its acknowledgment does.
    pub(crate) fn on_answer_probe(&mut self) {
        self.answer_probes = self.answer_probes.saturating_add(1);
        self.sent_since_received = true;
    }

    /// The deadline has come, and the peer owes nothing: no more of them before it is heard.
    pub(crate) fn on_nothing_owed(&mut self) {
        self.answer_probes = MAX_ANSWER_PROBES;
    }

    pub(crate) fn on_keep_alive(&mut self) {
        self.keep_alive_sent = true;
    }

    /// When the connection is quiet if nothing happens; `None` if it is already.
    pub(crate) fn quiet_deadline(&self, pto: Duration) -> Option<Time> {
        self.in_use.map(|at| at + QUIET_AFTER.max(pto.times(3)))
    }

    /// True from [`Self::on_quiet`] until something happens.
    pub(crate) fn is_quiet(&self) -> bool {
        self.in_use.is_none()
    }

    /// Memory was given back.
    pub(crate) fn on_quiet(&mut self) {
        self.in_use = None;
    }

    /// Some of it is in use again, without a packet of the peer.
    pub(crate) fn on_woken(&mut self, now: Time) {
        self.in_use = Some(now);
    }

    /// The timeout in force; `None` if there is none.
    #[cfg(test)]
    pub(crate) fn timeout(&self) -> Option<Duration> {
        self.timeout
    }
}

fn nonzero(duration: Duration) -> Option<Duration> {
    (!duration.is_zero()).then_some(duration)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// RFC 9000, Section 10.1: the minimum of both values; zero is no limit.
    #[test]
    fn smaller_timeout_holds_and_zero_is_none() {
        for (ours, theirs, effective) in
            [(3, 2, Some(2)), (0, 2, Some(2)), (3, 0, Some(3)), (0, 0, None)]
        {
            let mut idle =
                Idle::new(Time::ZERO, SECOND.times(ours), Duration::ZERO, Duration::ZERO);
            idle.negotiate(SECOND.times(theirs));
            assert_eq!(idle.timeout(), effective.map(|secs| SECOND.times(secs)));
        }
    }

    /// RFC 9000, Section 10.1: sending restarts the timer only once after receiving.
    #[test]
    fn only_first_sent_packet_restarts() {
        let mut idle = Idle::new(Time::ZERO, SECOND.times(10), Duration::ZERO, Duration::ZERO);
        let at = |secs| Time::ZERO + SECOND.times(secs);
        idle.on_sent_ack_eliciting(at(1));
        idle.on_sent_ack_eliciting(at(5));
        assert_eq!(idle.deadline(Duration::ZERO), Some(at(11)));
        idle.on_received(at(6), true);
        assert_eq!(idle.deadline(Duration::ZERO), Some(at(16)));
        assert_eq!(idle.deadline(SECOND.times(4)), Some(at(18)));
    }

    #[test]
    fn quiet_comes_once_after_each_time_of_use() {
        let mut idle = Idle::new(Time::ZERO, Duration::ZERO, Duration::ZERO, Duration::ZERO);
        let at = |secs| Time::ZERO + SECOND.times(secs);
        assert_eq!(idle.quiet_deadline(Duration::ZERO), Some(at(1)));
        assert_eq!(idle.quiet_deadline(SECOND), Some(at(3)), "three probe timeouts");
        let uses: [fn(&mut Idle, Time); 3] =
            [|idle, at| idle.on_received(at, true), Idle::on_sent_ack_eliciting, Idle::on_woken];
        for (used, n) in uses.into_iter().zip(5..) {
            idle.on_quiet();
            assert_eq!(idle.quiet_deadline(Duration::ZERO), None);
            used(&mut idle, at(n));
            assert_eq!(idle.quiet_deadline(Duration::ZERO), Some(at(n + 1)));
        }
    }

    #[test]
    fn a_peer_that_owes_data_is_probed_a_few_times_ever_more_rarely() {
        let mut idle = Idle::new(Time::ZERO, SECOND.times(30), Duration::ZERO, SECOND.times(2));
        let at = |secs| Time::ZERO + SECOND.times(secs);
        assert_eq!(idle.answer_deadline(SECOND), Some(at(3)), "three probe timeouts");
        let mut now = 0;
        for silence in [2, 4, 8] {
            now += silence;
            assert_eq!(idle.answer_deadline(Duration::ZERO), Some(at(now)));
            idle.on_answer_probe();
            // Acknowledged, and no more.
            idle.on_received(at(now), false);
        }
        assert_eq!(idle.answer_deadline(Duration::ZERO), None);
        idle.on_received(at(20), true);
        assert_eq!(idle.answer_deadline(Duration::ZERO), Some(at(22)));
        idle.on_nothing_owed();
        assert_eq!(idle.answer_deadline(Duration::ZERO), None);
        idle.on_sent_ack_eliciting(at(25));
        assert_eq!(idle.answer_deadline(Duration::ZERO), Some(at(27)), "perhaps a question");
    }

    #[test]
    fn what_keeps_a_connection_is_no_question() {
        let mut idle = Idle::new(Time::ZERO, SECOND.times(30), SECOND.times(5), SECOND.times(2));
        idle.on_nothing_owed();
        idle.on_keep_alive();
        idle.on_sent_ack_eliciting(Time::ZERO + SECOND.times(5));
        assert_eq!(idle.answer_deadline(Duration::ZERO), None);
    }

    /// RFC 9000, Section 10.1: what restarts the timer is new activity, or a packet of the peer.
    #[test]
    fn a_probe_that_nobody_acknowledges_does_not_put_off_the_end() {
        let mut idle = Idle::new(Time::ZERO, SECOND.times(30), Duration::ZERO, SECOND.times(2));
        let at = |secs| Time::ZERO + SECOND.times(secs);
        idle.on_received(at(1), true);
        idle.on_answer_probe();
        idle.on_sent_ack_eliciting(at(3));
        assert_eq!(idle.deadline(Duration::ZERO), Some(at(31)));
        idle.on_received(at(4), false);
        assert_eq!(idle.deadline(Duration::ZERO), Some(at(34)));
    }
}
