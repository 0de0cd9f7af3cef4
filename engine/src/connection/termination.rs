//! How a connection ends, and why (RFC 9000, Section 10).

use alloc::boxed::Box;

use quicket_wire::TransportErrorCode;

use super::state::{CloseReason, State};
use crate::crypto::Level;
use crate::error::ConnectionError;
use crate::time::{Duration, Time};

/// Where a connection stands on the way from open to drained.
// What comes at the end, if ever, is boxed: most connections are idle ones.
pub(super) struct Termination {
    state: State,
    error: Option<Box<ConnectionError>>,
    /// The peer's CONNECTION_CLOSE that may hide a code of the application, which is looked for in
    /// the packets that are at hand (RFC 9000, Section 10.2.3).
    hidden_close: Option<Box<ConnectionError>>,
}

impl Termination {
    /// That of a connection that is open.
    pub(super) const fn new() -> Self {
        Self { state: State::Open, error: None, hidden_close: None }
    }

    pub(super) const fn state(&self) -> &State {
        &self.state
    }

    pub(super) fn is_open(&self) -> bool {
        self.state.is_open()
    }

    pub(super) fn is_drained(&self) -> bool {
        self.state.is_drained()
    }

    /// False once the peer has closed, and later: nothing is sent then (RFC 9000, Section 10.2.2).
    pub(super) fn may_send(&self) -> bool {
        !matches!(self.state, State::Draining { .. } | State::Drained)
    }

    /// When the closing or draining state ends.
    pub(super) fn deadline(&self) -> Option<Time> {
        self.state.deadline()
    }

    /// Why the connection ended; `None` while it is open.
    pub(super) fn error(&self) -> Option<&ConnectionError> {
        self.error.as_deref()
    }

    /// Enters the closing state, CONNECTION_CLOSE to be sent (RFC 9000, Section 10.2.1); false if
    /// the connection is not open.
    pub(super) fn close(&mut self, until: Time, reason: CloseReason) -> bool {
        let error = reason.to_error();
        self.leave_open(error, State::closing(until, reason))
    }

    /// Enters the draining state (RFC 9000, Section 10.2.2); false if the connection is not open.
    pub(super) fn drain(&mut self, until: Time, error: ConnectionError) -> bool {
        self.leave_open(error, State::Draining { until })
    }

    /// Goes to the drained state without a word; false if the connection is not open.
    pub(super) fn end(&mut self, error: ConnectionError) -> bool {
        self.leave_open(error, State::Drained)
    }

    fn leave_open(&mut self, error: ConnectionError, to: State) -> bool {
        if !self.state.is_open() {
            return false;
        }
        self.state = to;
        self.error = Some(Box::new(error));
        true
    }

    /// Nothing is sent any more, and draining ends now.
    pub(super) fn cut_short(&mut self, now: Time) {
        self.state = State::Draining { until: now };
    }

    /// Nothing is left of the connection; false if that was so before.
    pub(super) fn become_drained(&mut self) -> bool {
        let drains = !self.state.is_drained();
        if drains {
            self.state = State::Drained;
        }
        drains
    }

    /// What a CONNECTION_CLOSE is to say that is due.
    pub(super) fn due_close(&self) -> Option<&CloseReason> {
        match &self.state {
            State::Closing { pending: true, reason, .. } => Some(reason),
            _ => None,
        }
    }

    /// A CONNECTION_CLOSE leaves, which the peer cannot react to sooner than `min_rtt` from now.
    pub(super) fn on_close_sent(&mut self, now: Time, min_rtt: Duration) {
        self.state.on_close_sent(now, min_rtt);
    }

    /// A datagram arrived at a connection that is not open.
    pub(super) fn on_datagram(&mut self, now: Time) {
        self.state.on_datagram_while_closing(now);
    }

    /// The peer's CONNECTION_CLOSE came at `level`: gives back what it says if that is all, and
    /// keeps it if it may hide more.
    ///
    /// RFC 9000, Section 10.2.3: APPLICATION_ERROR stands for a code of the application, which is in
    /// a packet of a higher level, if the peer could send any: mostly behind this one.
    pub(super) fn on_close_received(
        &mut self,
        level: Level,
        error: ConnectionError,
    ) -> Option<ConnectionError> {
        let is_stand_in = matches!(
            (level, &error),
            (
                Level::Initial | Level::Handshake,
                ConnectionError::PeerTransport { code: TransportErrorCode::APPLICATION_ERROR, .. }
            )
        );
        if !is_stand_in {
            return Some(error);
        }
        self.hidden_close.get_or_insert_with(|| Box::new(error));
        None
    }

    /// The close that may have hidden more, once all that is at hand was read.
    pub(super) fn take_hidden_close(&mut self) -> Option<Box<ConnectionError>> {
        self.hidden_close.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn peer(code: TransportErrorCode) -> ConnectionError {
        ConnectionError::PeerTransport { code, frame_type: 0, reason: Vec::new() }
    }

    #[test]
    fn only_the_first_end_counts() {
        let mut termination = Termination::new();
        assert_eq!(termination.error(), None);
        assert!(termination.drain(Time::ZERO, ConnectionError::IdleTimeout));
        assert!(!termination.drain(Time::ZERO, ConnectionError::StatelessReset));
        assert!(!termination.end(ConnectionError::StatelessReset));
        let reason = CloseReason::Application { code: 1, reason: Vec::new() };
        assert!(!termination.close(Time::ZERO, reason));
        assert_eq!(termination.error(), Some(&ConnectionError::IdleTimeout));
        assert!(!termination.may_send() && termination.due_close().is_none());
        assert_eq!([0, 1].map(|_| termination.become_drained()), [true, false]);
    }

    #[test]
    fn a_close_is_due_until_it_is_sent() {
        let mut termination = Termination::new();
        let reason = CloseReason::Application { code: 1, reason: Vec::new() };
        assert!(termination.close(Time::ZERO, reason.clone()));
        assert_eq!(termination.due_close(), Some(&reason));
        termination.on_close_sent(Time::ZERO, Duration::ZERO);
        assert_eq!(termination.due_close(), None);
        assert!(termination.may_send());
        termination.on_datagram(Time::ZERO);
        assert_eq!(termination.due_close(), Some(&reason));
    }

    /// RFC 9000, Section 10.2.3.
    #[test]
    fn what_may_hide_a_code_of_the_application_is_kept() {
        let mut termination = Termination::new();
        let (hides, says) =
            (TransportErrorCode::APPLICATION_ERROR, TransportErrorCode::PROTOCOL_VIOLATION);
        for level in [Level::Initial, Level::Handshake] {
            assert_eq!(termination.on_close_received(level, peer(says)), Some(peer(says)));
            assert_eq!(termination.on_close_received(level, peer(hides)), None);
            assert_eq!(termination.take_hidden_close().as_deref(), Some(&peer(hides)));
        }
        let at_last = termination.on_close_received(Level::OneRtt, peer(hides));
        assert_eq!(at_last, Some(peer(hides)));
        assert_eq!(termination.take_hidden_close(), None);
    }
}
