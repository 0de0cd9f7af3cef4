//! The life of a connection: open, closing, draining, drained (RFC 9000, Section 10.2).

use alloc::vec::Vec;

use quicket_wire::TransportErrorCode;

use crate::error::{ConnectionError, TransportError};
use crate::time::{Duration, Time};

/// What our CONNECTION_CLOSE says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CloseReason {
    /// Type 0x1c.
    Transport(TransportError),
    /// Type 0x1d.
    Application { code: u64, reason: Vec<u8> },
}

impl CloseReason {
    pub(crate) fn to_error(&self) -> ConnectionError {
        match self {
            Self::Transport(error) => ConnectionError::Transport(*error),
            Self::Application { code, reason } => {
                ConnectionError::Local { code: *code, reason: reason.clone() }
            }
        }
    }

    /// What may be said at Initial and Handshake level: nothing of the application
    /// (RFC 9000, Section 10.2.3).
    pub(crate) fn for_handshake(&self) -> TransportError {
        match self {
            Self::Transport(error) => *error,
            Self::Application { .. } => {
                TransportError::new(TransportErrorCode::APPLICATION_ERROR, "")
            }
        }
    }
}

/// Where a connection stands.
///
/// | from    | on                                   | to       |
/// |---------|--------------------------------------|----------|
/// | Open    | application close, error found here  | Closing  |
/// | Open    | CONNECTION_CLOSE received            | Draining |
/// | Open    | stateless reset, idle timeout        | Drained  |
/// | Closing, Draining | three probe timeouts passed | Drained  |
#[derive(Debug)]
pub(crate) enum State {
    Open,
    /// We sent CONNECTION_CLOSE and repeat it when the peer goes on sending.
    Closing {
        until: Time,
        reason: CloseReason,
        /// A CONNECTION_CLOSE is to be sent.
        pending: bool,
        /// What comes before this was on its way before the peer could know.
        heard_from: Time,
        /// Datagrams received since; the close is repeated at powers of two
        /// (RFC 9000, Section 10.2.1).
        received: u32,
    },
    /// The peer closed: nothing is sent any more.
    Draining {
        until: Time,
    },
    /// Gone.
    Drained,
}

impl State {
    /// A close for `reason`, which is to be sent.
    pub(crate) fn closing(until: Time, reason: CloseReason) -> Self {
        Self::Closing { until, reason, pending: true, heard_from: Time::ZERO, received: 0 }
    }

    pub(crate) fn is_open(&self) -> bool {
        matches!(self, Self::Open)
    }

    pub(crate) fn is_drained(&self) -> bool {
        matches!(self, Self::Drained)
    }

    pub(crate) fn deadline(&self) -> Option<Time> {
        match self {
            Self::Closing { until, .. } | Self::Draining { until } => Some(*until),
            Self::Open | Self::Drained => None,
        }
    }

    /// A CONNECTION_CLOSE leaves, which the peer cannot react to sooner than `min_rtt` from now.
    pub(crate) fn on_close_sent(&mut self, now: Time, min_rtt: Duration) {
        if let Self::Closing { pending, heard_from, .. } = self {
            *pending = false;
            *heard_from = now + min_rtt;
        }
    }

    /// A datagram arrived while closing: repeat the close now and then.
    pub(crate) fn on_datagram_while_closing(&mut self, now: Time) {
        if let Self::Closing { pending, heard_from, received, .. } = self
            && now >= *heard_from
        {
            *received = received.saturating_add(1);
            if received.is_power_of_two() {
                *pending = true;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl State {
        fn is_close_pending(&self) -> bool {
            matches!(self, Self::Closing { pending: true, .. })
        }
    }

    /// RFC 9000, Section 10.2.1: an endpoint limits the rate of its closing packets.
    #[test]
    fn close_is_repeated_ever_more_rarely() {
        let reason = CloseReason::Application { code: 1, reason: Vec::new() };
        let mut state = State::closing(Time::ZERO, reason);
        assert!(state.is_close_pending());
        let mut repeats = 0;
        for at in 0..1000 {
            let now = Time::ZERO + Duration::from_millis(at);
            state.on_close_sent(now, Duration::ZERO);
            state.on_datagram_while_closing(now);
            repeats += u32::from(state.is_close_pending());
        }
        assert_eq!(repeats, 10);
    }

    #[test]
    fn what_the_peer_sent_before_it_could_know_of_the_close_is_no_reason_to_repeat_it() {
        let reason = CloseReason::Application { code: 1, reason: Vec::new() };
        let mut state = State::closing(Time::ZERO, reason);
        state.on_close_sent(Time::ZERO, Duration::from_millis(30));
        for at in 0..30 {
            state.on_datagram_while_closing(Time::ZERO + Duration::from_millis(at));
        }
        assert!(!state.is_close_pending());
        state.on_datagram_while_closing(Time::ZERO + Duration::from_millis(30));
        assert!(state.is_close_pending());
    }
}
