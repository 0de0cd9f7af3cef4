//! How many streams each side may open (RFC 9000, Section 4.6).

use quicket_wire::MAX_STREAMS;

use super::pool::OutOfMemory;
use crate::range_set::RangeSet;

/// How many streams may wait for nothing but acknowledgments, for each that may be open.
const CLOSING_PER_OPEN: u64 = 1;

/// Streams of one direction that this side opens.
#[derive(Debug, Default)]
pub(super) struct LocalStreams {
    /// How many were opened.
    opened: u64,
    /// How many the peer permits.
    limit: u64,
    /// The limit at which the peer was told that we are blocked.
    signalled: Option<u64>,
    /// The application was refused a stream at the current limit.
    refused: bool,
    /// The application is to be told that it can open streams again.
    available: bool,
}

impl LocalStreams {
    /// The index of a new stream, or `None` at the limit.
    pub(super) fn open(&mut self) -> Option<u64> {
        if self.opened >= self.limit {
            self.refused = true;
            return None;
        }
        self.opened = self.opened.saturating_add(1);
        Some(self.opened.saturating_sub(1))
    }

    /// The application wants more streams than the peer permits.
    pub(super) fn refuse(&mut self) {
        self.refused = true;
    }

    /// Takes back the last [`Self::open`].
    pub(super) fn undo_open(&mut self) {
        self.opened = self.opened.saturating_sub(1);
    }

    /// True if the stream was opened.
    pub(super) fn is_opened(&self, index: u64) -> bool {
        index < self.opened
    }

    /// True if the peer permits the stream.
    pub(super) fn permits(&self, index: u64) -> bool {
        index < self.limit
    }

    /// How many were opened.
    pub(super) fn opened(&self) -> u64 {
        self.opened
    }

    /// The limit that the peer has set.
    pub(super) fn limit(&self) -> u64 {
        self.limit
    }

    /// True if more streams were opened than the peer permits, for want of accepted 0-RTT.
    pub(super) fn is_overdrawn(&self) -> bool {
        self.opened > self.limit
    }

    /// Takes a new limit; smaller ones are ignored (RFC 9000, Section 4.6). True if it grew.
    pub(super) fn raise(&mut self, limit: u64) -> bool {
        let limit = limit.min(MAX_STREAMS);
        if limit <= self.limit {
            return false;
        }
        self.limit = limit;
        if self.refused && self.opened < limit {
            self.refused = false;
            self.available = true;
        }
        true
    }

    /// Starts over without leave to open streams.
    pub(super) fn revoke(&mut self) {
        self.limit = 0;
        self.signalled = None;
    }

    /// True once for each time that streams became available after a refusal.
    pub(super) fn take_available_event(&mut self) -> bool {
        core::mem::take(&mut self.available)
    }

    /// The limit for STREAMS_BLOCKED, if it is to be sent.
    pub(super) fn due_blocked(&self) -> Option<u64> {
        (self.refused && self.signalled != Some(self.limit)).then_some(self.limit)
    }

    /// Notes that STREAMS_BLOCKED was sent.
    pub(super) fn on_blocked_sent(&mut self) {
        self.signalled = Some(self.limit);
    }

    /// Has STREAMS_BLOCKED sent again if `limit` still holds.
    pub(super) fn signal_blocked_again(&mut self, limit: u64) {
        if self.signalled == Some(limit) {
            self.signalled = None;
        }
    }
}

/// Streams of one direction that the peer opens.
///
/// A frame for a stream opens all lower ones too (RFC 9000, Section 3.2). Those that nobody has
/// used yet are known by their index alone, as ranges.
#[derive(Debug)]
pub(super) struct RemoteStreams {
    /// How many were opened.
    opened: u64,
    /// How many of the first ones were opened by 0-RTT packets.
    early: u64,
    /// How many the application has accepted.
    accepted: u64,
    /// How many are closed.
    closed: u64,
    /// How many are over but for the acknowledgment of what this side sent.
    closing: u64,
    /// How many may be open at once.
    max_open: u64,
    /// The limit that the peer knows.
    limit: u64,
    /// How far the limit may lag behind before the peer hears of it ...
    step: u64,
    /// ... if less than half of the streams that it may have open are left to it ...
    step_when_short: u64,
    /// ... and at all, if it has said that it is blocked at the current limit.
    peer_is_blocked: bool,
    /// Opened streams without state. A range more needs a stream in use more, which the limit
    /// bounds.
    untouched: RangeSet,
    announce: bool,
    resend: bool,
}

impl RemoteStreams {
    /// Gives back memory of streams that were skipped.
    pub(super) fn trim(&mut self) {
        self.untouched.trim();
    }

    /// Streams of which `max_open` may be open at once. The peer hears of a new limit when
    /// `step` more may be opened: if that is not given, an eighth of them, or a 32nd while it has
    /// less than half left. A peer that is blocked hears of each.
    pub(super) fn new(max_open: u64, step: Option<u64>) -> Self {
        let max_open = max_open.min(MAX_STREAMS);
        Self {
            opened: 0,
            early: 0,
            accepted: 0,
            closed: 0,
            closing: 0,
            max_open,
            limit: max_open,
            step: step.unwrap_or(max_open / 8).max(1),
            step_when_short: step.unwrap_or(max_open / 32).max(1),
            peer_is_blocked: false,
            untouched: RangeSet::new(usize::MAX),
            announce: false,
            resend: false,
        }
    }

    /// True if the peer may use the stream.
    pub(super) fn permits(&self, index: u64) -> bool {
        index < self.limit
    }

    /// How many were opened.
    pub(super) fn opened(&self) -> u64 {
        self.opened
    }

    /// Opens the stream and all lower ones; `early` if a 0-RTT packet does it.
    pub(super) fn open_up_to(&mut self, index: u64, early: bool) -> Result<(), OutOfMemory> {
        if index >= self.opened {
            let new = self.opened..index.saturating_add(1);
            self.untouched.insert(new.clone()).map_err(|_| OutOfMemory)?;
            if early && self.early == self.opened {
                self.early = new.end;
            }
            self.opened = new.end;
            self.announce = true;
        }
        Ok(())
    }

    /// True if a 0-RTT packet opened the stream.
    pub(super) fn is_early(&self, index: u64) -> bool {
        index < self.early
    }

    /// True if the stream is open without state.
    pub(super) fn is_untouched(&self, index: u64) -> bool {
        self.untouched.contains(index)
    }

    /// How many ranges it takes to know the streams without state.
    #[cfg(test)]
    pub(super) fn untouched_ranges(&self) -> usize {
        self.untouched.len()
    }

    /// The stream has state from now on.
    pub(super) fn touch(&mut self, index: u64) -> Result<(), OutOfMemory> {
        self.untouched.remove(index..index.saturating_add(1)).map_err(|_| OutOfMemory)
    }

    /// The next stream, in the order of numbers.
    pub(super) fn accept(&mut self) -> Option<u64> {
        if self.accepted >= self.opened {
            return None;
        }
        self.accepted = self.accepted.saturating_add(1);
        Some(self.accepted.saturating_sub(1))
    }

    pub(super) fn is_accepted(&self, index: u64) -> bool {
        index < self.accepted
    }

    /// True once for each time that new streams can be accepted.
    pub(super) fn take_opened_event(&mut self) -> bool {
        core::mem::take(&mut self.announce) && self.accepted < self.opened
    }

    /// Nothing is awaited of a stream but acknowledgments: the peer may open another. To wait for
    /// them would keep the peer waiting for as long as it delays its ACK. Those that a peer never
    /// acknowledges count after all, beyond [`CLOSING_PER_OPEN`].
    pub(super) fn on_closing(&mut self) {
        self.closing = self.closing.saturating_add(1);
    }

    /// A stream is closed: the peer may open another. `was_closing` if [`Self::on_closing`] was
    /// called for it.
    pub(super) fn on_closed(&mut self, was_closing: bool) {
        self.closing = self.closing.saturating_sub(u64::from(was_closing));
        self.closed = self.closed.saturating_add(1);
    }

    /// True if MAX_STREAMS is to be sent.
    pub(super) fn update_due(&self) -> bool {
        let left = self.limit.saturating_sub(self.opened);
        let step = if self.peer_is_blocked {
            1
        } else if left < self.max_open / 2 {
            self.step_when_short
        } else {
            self.step
        };
        self.resend || self.growth() >= step
    }

    /// Moves the limit; returns it for MAX_STREAMS.
    pub(super) fn update(&mut self) -> u64 {
        self.limit = self.target();
        self.resend = false;
        self.peer_is_blocked = false;
        self.limit
    }

    /// Has MAX_STREAMS sent again if `maximum`, which was lost, is still the newest.
    pub(super) fn on_update_lost(&mut self, maximum: u64) {
        self.resend |= maximum == self.limit;
    }

    /// Answers a peer that says it is blocked at `limit` with whatever there is to give, now or
    /// once there is something.
    pub(super) fn on_peer_blocked(&mut self, limit: u64) {
        self.resend |= self.growth() > 0;
        self.peer_is_blocked |= limit >= self.limit;
    }

    fn target(&self) -> u64 {
        let closing = self.closing.min(self.max_open.saturating_mul(CLOSING_PER_OPEN));
        let gone = self.closed.saturating_add(closing);
        gone.saturating_add(self.max_open).min(MAX_STREAMS).max(self.limit)
    }

    fn growth(&self) -> u64 {
        self.target().saturating_sub(self.limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_signalled_once_for_each_limit_and_ends_with_an_event() {
        let mut local = LocalStreams::default();
        local.raise(1);
        assert_eq!((local.open(), local.due_blocked()), (Some(0), None));
        assert_eq!((local.open(), local.due_blocked()), (None, Some(1)));
        local.on_blocked_sent();
        assert_eq!((local.open(), local.due_blocked()), (None, None));
        local.signal_blocked_again(1);
        assert_eq!(local.due_blocked(), Some(1), "the frame was lost");
        assert!(!local.raise(1) && !local.take_available_event());
        assert!(local.raise(2) && local.take_available_event());
        assert!(!local.take_available_event());
        assert_eq!((local.due_blocked(), local.open()), (None, Some(1)));
    }

    #[test]
    fn opening_a_stream_opens_all_lower_ones_at_no_cost() {
        // RFC 9000, Section 3.2
        let mut remote = RemoteStreams::new(MAX_STREAMS, None);
        remote.open_up_to(4_000_000, false).unwrap();
        assert!(remote.take_opened_event() && !remote.take_opened_event());
        assert_eq!(remote.untouched.len(), 1);
        assert!(remote.is_untouched(4_000_000) && !remote.is_untouched(4_000_001));
        remote.touch(4_000_000).unwrap();
        assert!(!remote.is_untouched(4_000_000) && remote.is_untouched(3_999_999));
        assert_eq!((remote.accept(), remote.accept()), (Some(0), Some(1)));
        assert!(remote.is_accepted(1) && !remote.is_accepted(2));
    }

    #[test]
    fn a_step_of_one_tells_of_each_closed_stream() {
        let mut remote = RemoteStreams::new(16, Some(1));
        assert!(!remote.update_due());
        remote.on_closed(false);
        assert!(remote.update_due());
        assert_eq!(remote.update(), 17);
        assert!(!remote.update_due());
    }

    #[test]
    fn closed_streams_make_room_for_new_ones() {
        let mut remote = RemoteStreams::new(16, None);
        assert!(remote.permits(15) && !remote.permits(16));
        remote.on_closed(false);
        assert!(!remote.update_due(), "waits for an eighth of the limit");
        remote.on_peer_blocked(15);
        assert!(remote.update_due(), "unless the peer waits");
        assert_eq!(remote.update(), 17);
        remote.on_peer_blocked(16);
        assert!(!remote.update_due(), "there is nothing to give");
        remote.on_closed(false);
        assert!(!remote.update_due(), "and that was at another limit");
        remote.on_closed(false);
        assert!(remote.update_due());
        assert_eq!(remote.update(), 19);
        remote.on_update_lost(17);
        assert!(!remote.update_due());
        remote.on_update_lost(19);
        assert!(remote.update_due());
    }

    #[test]
    fn a_peer_that_is_blocked_hears_of_the_next_stream_that_closes() {
        let mut remote = RemoteStreams::new(100, None);
        remote.open_up_to(40, false).unwrap();
        (0..11).for_each(|_| remote.on_closed(false));
        assert!(!remote.update_due(), "an eighth");
        remote.open_up_to(60, false).unwrap();
        assert!(remote.update_due(), "less than half is left");
        assert_eq!(remote.update(), 111);
        remote.open_up_to(110, false).unwrap();
        remote.on_peer_blocked(111);
        assert!(!remote.update_due(), "there is nothing to give");
        remote.on_closed(false);
        assert!(remote.update_due(), "there is");
        assert_eq!(remote.update(), 112);
        remote.on_closed(false);
        assert!(!remote.update_due(), "it has not said that it is blocked again");
    }

    #[test]
    fn streams_that_wait_for_acknowledgments_alone_make_room_up_to_a_bound() {
        let mut remote = RemoteStreams::new(16, Some(1));
        (0..20).for_each(|_| remote.on_closing());
        assert_eq!(remote.update(), 32);
        (0..20).for_each(|_| remote.on_closed(true));
        assert_eq!(remote.update(), 36);
    }

    #[test]
    fn the_limit_never_exceeds_what_stream_ids_can_express() {
        // RFC 9000, Section 4.6
        let mut remote = RemoteStreams::new(u64::MAX, None);
        remote.on_closed(false);
        assert_eq!(remote.update(), MAX_STREAMS);
    }
}
