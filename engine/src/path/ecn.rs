//! ECN validation (RFC 9000, Section 13.4.2 and Appendix A.4).

use quicket_wire::{EcnCodepoint, EcnCounts};

use crate::stats::EcnState;
use crate::time::{Duration, Time};

/// Packets marked before any mark is known to arrive (RFC 9000, Appendix A.4).
const TESTING_PACKETS: u32 = 10;
/// PTOs that testing lasts (RFC 9000, Appendix A.4).
const TESTING_PTOS: u64 = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Marking the first packets of the path; `until` is set by the first of them.
    Testing { until: Option<Time> },
    /// No longer marking, not yet known.
    Unknown,
    /// Marks arrive: all packets are marked.
    Capable,
    /// Marks get lost or changed: none is marked. Also when ECN is turned off.
    Failed,
}

/// What one packet number space has sent and heard of marks. Counts are cumulative per space
/// (RFC 9000, Section 13.4.1), so they outlive a change of path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct EcnSpace {
    /// Packets sent with ECT(0).
    sent: u64,
    /// The counts of the newest ACK.
    reported: EcnCounts,
}

impl EcnSpace {
    /// A packet of this space was sent with `codepoint`.
    #[inline]
    pub(crate) fn on_sent(&mut self, codepoint: EcnCodepoint) {
        if codepoint == EcnCodepoint::Ect0 {
            self.sent = self.sent.saturating_add(1);
        }
    }
}

/// What an ACK said about marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EcnOutcome {
    /// Nothing new.
    Unchanged,
    /// Validation failed with this ACK: its counts mean nothing.
    Failed,
    /// This many more packets met congestion (RFC 9002, Section 7.1).
    Congestion(u64),
}

/// The ECN state of one path.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EcnValidation {
    state: State,
    marked: u32,
    lost: u32,
}

impl EcnValidation {
    /// Starts testing, or never marks if ECN is off.
    pub(crate) fn new(enabled: bool) -> Self {
        let state = if enabled { State::Testing { until: None } } else { State::Failed };
        Self { state, marked: 0, lost: 0 }
    }

    /// The mark for the next datagram.
    #[inline]
    pub(crate) fn codepoint(&self) -> EcnCodepoint {
        match self.state {
            State::Testing { .. } | State::Capable => EcnCodepoint::Ect0,
            State::Unknown | State::Failed => EcnCodepoint::NotEct,
        }
    }

    /// True once marks are known to arrive.
    pub(crate) fn is_capable(&self) -> bool {
        self.state == State::Capable
    }

    /// How far validation has come.
    pub(crate) fn state(&self) -> EcnState {
        match self.state {
            State::Testing { .. } => EcnState::Testing,
            State::Unknown => EcnState::Unknown,
            State::Capable => EcnState::Capable,
            State::Failed => EcnState::Failed,
        }
    }

    /// A packet was sent on this path with `codepoint`.
    #[inline]
    pub(crate) fn on_sent(&mut self, now: Time, codepoint: EcnCodepoint, pto: Duration) {
        let State::Testing { until } = self.state else { return };
        if codepoint != EcnCodepoint::Ect0 {
            return;
        }
        self.marked = self.marked.saturating_add(1);
        let until = until.unwrap_or(now + pto.times(TESTING_PTOS));
        self.state = if self.marked >= TESTING_PACKETS || now >= until {
            State::Unknown
        } else {
            State::Testing { until: Some(until) }
        };
    }

    /// A probe timeout expired: the marks themselves may be what gets packets dropped.
    pub(crate) fn on_pto(&mut self) {
        if matches!(self.state, State::Testing { .. }) && self.marked > 0 {
            self.state = State::Unknown;
        }
    }

    /// `packets` that were marked on this path were lost. When all test packets are, validation
    /// has failed (RFC 9000, Appendix A.4).
    pub(crate) fn on_marked_lost(&mut self, packets: u32) {
        self.lost = self.lost.saturating_add(packets);
        let undecided = matches!(self.state, State::Testing { .. } | State::Unknown);
        if undecided && self.marked >= TESTING_PACKETS && self.lost >= self.marked {
            self.state = State::Failed;
        }
    }

    /// An ACK that raised the largest acknowledged number (others are not looked at, because
    /// reordered ACKs carry older counts: RFC 9000, Section 13.4.2.1). It newly acknowledges
    /// `newly_acked` packets that were sent with ECT(0).
    pub(crate) fn on_ack(
        &mut self,
        space: &mut EcnSpace,
        newly_acked: u64,
        counts: Option<EcnCounts>,
    ) -> EcnOutcome {
        let before = space.reported;
        if let Some(counts) = counts {
            space.reported = counts;
        }
        if self.state == State::Failed {
            return EcnOutcome::Unchanged;
        }
        let Some(counts) = counts else {
            // A peer or path that does not report marks (RFC 9000, Section 13.4.2.1).
            return if newly_acked > 0 { self.fail() } else { EcnOutcome::Unchanged };
        };
        if !is_plausible(&before, &counts, newly_acked, space.sent) {
            return self.fail();
        }
        if newly_acked > 0 && matches!(self.state, State::Testing { .. } | State::Unknown) {
            self.state = State::Capable;
        }
        match counts.ce.saturating_sub(before.ce) {
            0 => EcnOutcome::Unchanged,
            more => EcnOutcome::Congestion(more),
        }
    }

    fn fail(&mut self) -> EcnOutcome {
        self.state = State::Failed;
        EcnOutcome::Failed
    }
}

/// The checks of RFC 9000, Section 13.4.2.1. We never send ECT(1), so any is a remark.
fn is_plausible(before: &EcnCounts, now: &EcnCounts, newly_acked: u64, sent: u64) -> bool {
    let (Some(ect0), Some(ce)) = (now.ect0.checked_sub(before.ect0), now.ce.checked_sub(before.ce))
    else {
        return false;
    };
    now.ect1 == 0
        && ect0.saturating_add(ce) >= newly_acked
        && now.ect0.saturating_add(now.ce) <= sent
}

#[cfg(test)]
#[path = "ecn_tests.rs"]
mod tests;
