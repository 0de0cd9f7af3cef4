//! What happens when time passes.

use super::Connection;
use super::transmit::ACK_ROOM;
use crate::error::ConnectionError;
use crate::time::{Duration, Earliest, Time};

/// Deadlines of what is done only once the handshake is confirmed.
#[derive(Default)]
struct Confirmed {
    /// Of a probe of the path's MTU.
    mtu: Option<Time>,
    /// To look whether the peer owes an answer.
    answer: Option<Time>,
    /// To count as quiet.
    quiet: Option<Time>,
}

impl Connection {
    /// When to call [`Connection::handle_timeout`] next, if nothing else happens before; `None`
    /// if never.
    pub fn poll_timeout(&self) -> Option<Time> {
        if !self.termination.is_open() {
            return self.termination.deadline();
        }
        let handshake = &self.handshake;
        let first = Earliest::NEVER
            .or(self.recovery.timer().map(|timer| timer.at()))
            .or(self.transmission.pacing_until())
            .or(self.ack_deadline())
            .or(self.keys.previous_expires())
            .or(self.cids.local.timeout())
            .or(self.paths.timeout());
        let pto = self.pto();
        let first = first.or(self.idle.deadline(pto)).or(self.keys.early_expires());
        let first = if handshake.complete {
            first.or(self.idle.keep_alive_deadline())
        } else {
            first.or_at(handshake.deadline)
        };
        let Confirmed { mtu, answer, quiet } = self.confirmed_deadlines(pto);
        first.or(handshake.waits_until).or(mtu).or(answer).or(quiet).get()
    }

    /// When is due what waits for the handshake to be confirmed.
    fn confirmed_deadlines(&self, pto: Duration) -> Confirmed {
        if !self.handshake.confirmed {
            return Confirmed::default();
        }
        let path = self.paths.active();
        Confirmed {
            // As there are probes: a client at a new port has the MTU of the former path at once.
            mtu: if path.is_validated() { path.mtu.timeout() } else { None },
            answer: self.idle.answer_deadline(pto),
            quiet: self.idle.quiet_deadline(pto),
        }
    }

    /// Does what is due at `now`. Harmless when called too early.
    pub fn handle_timeout(&mut self, now: Time) {
        if let Some(until) = self.termination.deadline() {
            if until <= now {
                self.become_drained();
            }
            return;
        }
        if self.termination.is_drained() || self.check_ends(now) {
            return;
        }
        self.transmission.on_timeout(now);
        if let Some(timer) = self.recovery.due(now) {
            self.on_loss_timer(now, timer);
        }
        if self.keep_alive_deadline().is_some_and(|at| at <= now) {
            self.idle.on_keep_alive();
            self.recovery.ping();
            self.streams.repeat_blocked();
        }
        if self.confirmed_deadlines(self.pto()).answer.is_some_and(|at| at <= now) {
            self.look_for_answer();
        }
        if self.keys.previous_expires().is_some_and(|at| at <= now) {
            self.keys.forget_previous();
        }
        if self.keys.take_early_expired(now) {
            self.discard_early_keys(now);
        }
        if self.handshake.waits_until.is_some_and(|at| at <= now) {
            self.stop_waiting(now);
        }
        if let Err(error) = self.paths_timeout(now) {
            return self.fail(now, error);
        }
        self.issue_cids(now);
        if self.reception.waiting() > 0 {
            self.reception.try_again();
            self.after_receiving(now);
        }
        self.report_cids(now);
        if self.confirmed_deadlines(self.pto()).quiet.is_some_and(|at| at <= now) {
            self.go_quiet();
        }
    }

    /// Idle and handshake timeouts end the connection without a word
    /// (RFC 9000, Section 10.1).
    fn check_ends(&mut self, now: Time) -> bool {
        let error = if self.idle.deadline(self.pto()).is_some_and(|at| at <= now) {
            ConnectionError::IdleTimeout
        } else if !self.handshake.complete && self.handshake.deadline <= now {
            ConnectionError::HandshakeTimeout
        } else {
            return false;
        };
        self.end(now, error);
        true
    }

    /// When an ACK is due; without a timer while the anti-amplification limit keeps it back, which
    /// ends by a datagram from the peer, or the key to send it is missing: TLS that runs elsewhere
    /// may have that to receive with long before. Without one, too, on a path whose connection ID the
    /// peer had retired and not replaced, and while as many packets are remembered as can be: what
    /// comes next ends that.
    fn ack_deadline(&self) -> Option<Time> {
        let path = self.paths.active();
        if path.sendable_data() < ACK_ROOM || self.cids.remote.get(path.key()).is_none() {
            return None;
        }
        self.recovery.ack_deadline(|level| self.keys.can_send(level))
    }

    fn keep_alive_deadline(&self) -> Option<Time> {
        self.handshake.complete.then(|| self.idle.keep_alive_deadline()).flatten()
    }

    /// The peer has been silent for long. If it owes data, it is asked for a sign of life: one that
    /// has lost its state answers with a stateless reset (RFC 9000, Section 10.3), which nobody
    /// would elicit who only receives. What is in flight elicits it already.
    fn look_for_answer(&mut self) {
        if self.streams.awaits_answer() {
            self.idle.on_answer_probe();
            self.recovery.elicit_answer();
        } else {
            self.idle.on_nothing_owed();
        }
    }
}
