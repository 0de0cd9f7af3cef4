//! Flow control of one stream or of all together (RFC 9000, Section 4).

use quicket_wire::varint;

use crate::time::{Duration, Time};

/// How much the peer lets us send.
#[derive(Debug, Default)]
pub(crate) struct SendCredit {
    limit: u64,
    used: u64,
    /// The limit at which the peer was told that we are blocked.
    signalled: Option<u64>,
}

impl SendCredit {
    /// Credit up to offset or sum `limit`.
    pub(crate) const fn new(limit: u64) -> Self {
        Self { limit, used: 0, signalled: None }
    }

    pub(crate) fn limit(&self) -> u64 {
        self.limit
    }

    /// Bytes that may still be sent for the first time.
    pub(crate) fn available(&self) -> u64 {
        self.limit.saturating_sub(self.used)
    }

    /// Takes a new limit; smaller ones are ignored (RFC 9000, Section 4.1). True if it grew.
    pub(crate) fn raise(&mut self, limit: u64) -> bool {
        let grew = limit > self.limit;
        self.limit = self.limit.max(limit);
        grew
    }

    /// Notes that `len` new bytes were sent.
    pub(crate) fn spend(&mut self, len: u64) {
        self.used = self.used.saturating_add(len);
    }

    /// Starts over without any credit.
    pub(crate) fn reset(&mut self) {
        *self = Self::new(0);
    }

    /// True if all credit is used and the peer was not told so at this limit.
    pub(crate) fn must_signal(&self) -> bool {
        self.available() == 0 && self.signalled != Some(self.limit)
    }

    /// Notes that the peer was told at the current limit.
    pub(crate) fn on_signalled(&mut self) {
        self.signalled = Some(self.limit);
    }

    /// Has the peer told again, unless the limit has moved since.
    pub(crate) fn signal_again(&mut self, limit: u64) {
        if self.signalled == Some(limit) {
            self.signalled = None;
        }
    }
}

/// How much we let the peer send: a window that moves with what the application reads, and
/// doubles while it is read faster than a window in two round trips, so that the window never
/// limits a reader that keeps up.
#[derive(Debug)]
pub(crate) struct RecvWindow {
    /// The limit that the peer knows.
    limit: u64,
    /// What the peer has used of it.
    received: u64,
    /// What nobody needs to hold any more.
    consumed: u64,
    size: u64,
    max_size: u64,
    /// What of `size` there is memory for now.
    cap: u64,
    last_update: Option<Time>,
    resend: bool,
    /// The peer said that it is blocked by `limit`.
    peer_blocked: bool,
    /// The application waits for data, and nothing of it is here.
    reader_waits: bool,
}

impl RecvWindow {
    /// A window of `size` bytes that may grow to `max_size`.
    pub(crate) fn new(size: u64, max_size: u64) -> Self {
        let size = size.min(varint::MAX);
        let max_size = max_size.clamp(size, varint::MAX);
        Self {
            limit: size,
            received: 0,
            consumed: 0,
            size,
            max_size,
            cap: u64::MAX,
            last_update: None,
            resend: false,
            peer_blocked: false,
            reader_waits: false,
        }
    }

    /// The limit that the peer knows.
    #[cfg(test)]
    pub(crate) fn limit(&self) -> u64 {
        self.limit
    }

    /// The size of the window.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// Moves and grows the window no further than memory for `cap` bytes suffices. What the peer
    /// was promised stays (RFC 9000, Section 4.1).
    pub(crate) fn restrict(&mut self, cap: u64) {
        self.cap = cap;
    }

    /// The size that the window moves with now.
    fn moving_size(&self) -> u64 {
        self.size.min(self.cap)
    }

    /// What the peer has sent: the highest offset, or the sum of them.
    pub(crate) fn received(&self) -> u64 {
        self.received
    }

    /// What was received and is still held.
    #[cfg(test)]
    pub(crate) fn unread(&self) -> u64 {
        self.received - self.consumed
    }

    /// What the peer may send before the next update.
    pub(crate) fn available(&self) -> u64 {
        self.limit.saturating_sub(self.received)
    }

    /// Notes `len` new bytes, of which the caller has checked that they are available.
    pub(crate) fn receive(&mut self, len: u64) {
        self.received = self.received.saturating_add(len);
    }

    /// Notes that `len` received bytes need not be held any more.
    pub(crate) fn consume(&mut self, len: u64) {
        self.consumed = self.consumed.saturating_add(len).min(self.received);
    }

    /// True if the peer should hear of a new limit: half of the window has moved, or the frame
    /// that said so was lost.
    pub(crate) fn update_due(&self) -> bool {
        self.resend || self.growth() >= (self.moving_size() / 2).max(1)
    }

    /// Has the limit sent again if `maximum`, which was lost, is still the newest.
    pub(crate) fn on_update_lost(&mut self, maximum: u64) {
        self.resend |= maximum == self.limit;
    }

    /// Has the limit sent, whether it has changed or not.
    pub(crate) const fn send_again(&mut self) {
        self.resend = true;
    }

    /// Answers a peer that says it is blocked with whatever there is to give.
    pub(crate) fn on_peer_blocked(&mut self) {
        self.resend |= self.growth() > 0;
    }

    /// The same for a peer whose streams share the window and are blocked by `limit`.
    pub(crate) fn on_peer_blocked_at(&mut self, limit: u64) {
        self.peer_blocked |= limit == self.limit;
        self.on_peer_blocked();
        self.relieve();
    }

    /// The application reads from one of the streams that share the window; it `waits` if nothing
    /// of it is here.
    #[inline]
    pub(crate) fn on_read(&mut self, waits: bool) {
        self.reader_waits = waits;
        if waits {
            self.relieve();
        }
    }

    /// Doubles the window where other streams fill it while the one that is read waits for data:
    /// nobody would ever make room. DATA_BLOCKED is there to tune flow control by (RFC 9000,
    /// Section 19.12).
    fn relieve(&mut self) {
        let stuck = self.peer_blocked && self.reader_waits && self.available() == 0;
        if stuck && self.size < self.max_size {
            self.grow_to(self.size.saturating_mul(2));
            self.peer_blocked = false;
            self.resend = true;
        }
    }

    /// Moves the limit, and doubles the window if the last update was less than two round trips
    /// ago. Returns the limit to announce.
    pub(crate) fn update(&mut self, now: Time, rtt: Duration) -> u64 {
        if self.growth() >= (self.moving_size() / 2).max(1) {
            if self.last_update.is_some_and(|last| now.since(last) < rtt.times(2)) {
                self.grow_to(self.size.saturating_mul(2));
            }
            self.last_update = Some(now);
        }
        let target = self.target();
        self.peer_blocked &= target == self.limit;
        self.limit = target;
        self.resend = false;
        self.limit
    }

    /// Raises the size of the window, as far as allowed.
    pub(crate) fn grow_to(&mut self, size: u64) {
        self.size = self.size.max(size.min(self.max_size).min(self.cap));
    }

    fn target(&self) -> u64 {
        self.consumed
            .saturating_add(self.moving_size())
            .clamp(self.limit, varint::MAX.max(self.limit))
    }

    fn growth(&self) -> u64 {
        self.target().saturating_sub(self.limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(10);

    fn at(ms: u64) -> Time {
        Time::ZERO + Duration::from_millis(ms)
    }

    #[test]
    fn a_window_without_memory_neither_moves_nor_grows_and_recovers() {
        let mut window = RecvWindow::new(100, 1000);
        window.restrict(10);
        window.receive(100);
        window.consume(60);
        assert!(!window.update_due(), "40 bytes are unread, 100 promised, and 10 affordable");
        window.consume(40);
        assert!(window.update_due());
        assert_eq!(window.update(at(1), RTT), 110);
        window.receive(10);
        window.consume(10);
        assert_eq!(window.update(at(2), RTT), 120);
        assert_eq!(window.size(), 100, "read fast, and yet not doubled");
        window.restrict(u64::MAX);
        assert!(window.update_due());
        assert_eq!(window.update(at(3), RTT), 310, "and doubled again");
    }

    #[test]
    fn a_smaller_limit_is_ignored() {
        // RFC 9000, Section 4.1
        let mut credit = SendCredit::new(100);
        assert!(!credit.raise(50));
        assert_eq!(credit.available(), 100);
        assert!(credit.raise(150));
        credit.spend(120);
        assert_eq!(credit.available(), 30);
    }

    #[test]
    fn blocked_is_signalled_once_for_each_limit() {
        let mut credit = SendCredit::new(10);
        credit.spend(9);
        assert!(!credit.must_signal());
        credit.spend(1);
        assert!(credit.must_signal());
        credit.on_signalled();
        assert!(!credit.must_signal());
        credit.signal_again(10);
        assert!(credit.must_signal(), "the frame was lost");
        credit.on_signalled();
        credit.raise(11);
        credit.spend(1);
        assert!(credit.must_signal());
        credit.on_signalled();
        credit.signal_again(10);
        assert!(!credit.must_signal(), "an old frame's loss does not matter");
    }

    #[test]
    fn the_window_moves_after_half_of_it_is_read() {
        let mut window = RecvWindow::new(100, 100);
        window.receive(80);
        window.consume(49);
        assert!(!window.update_due());
        window.consume(1);
        assert!(window.update_due());
        assert_eq!(window.update(at(0), RTT), 150);
        assert!(!window.update_due());
        assert_eq!(window.available(), 70);
    }

    #[test]
    fn the_window_doubles_for_a_fast_reader_up_to_its_maximum() {
        let mut window = RecvWindow::new(100, 300);
        let mut sizes = [0; 4];
        for (round, size) in sizes.iter_mut().enumerate() {
            let len = window.available();
            window.receive(len);
            window.consume(len);
            window.update(at(5 * round as u64), RTT);
            *size = window.size();
        }
        assert_eq!(sizes, [100, 200, 300, 300]);
    }

    #[test]
    fn the_window_stays_for_a_slow_reader() {
        let mut window = RecvWindow::new(100, 300);
        for round in 0..5 {
            let len = window.available();
            window.receive(len);
            window.consume(len);
            window.update(at(25 * round), RTT);
        }
        assert_eq!(window.size(), 100);
    }

    #[test]
    fn a_lost_update_is_repeated_only_if_it_was_the_last() {
        let mut window = RecvWindow::new(100, 100);
        window.receive(60);
        window.consume(60);
        assert_eq!(window.update(at(0), RTT), 160);
        window.on_update_lost(100);
        assert!(!window.update_due());
        window.on_update_lost(160);
        assert!(window.update_due());
        assert_eq!(window.update(at(1), RTT), 160);
    }

    #[test]
    fn a_blocked_peer_gets_what_there_is() {
        let mut window = RecvWindow::new(100, 100);
        window.on_peer_blocked();
        assert!(!window.update_due(), "nothing was read, nothing to give");
        window.receive(10);
        window.consume(10);
        window.on_peer_blocked();
        assert!(window.update_due());
        assert_eq!(window.update(at(0), RTT), 110);
    }

    #[test]
    fn a_window_full_of_other_streams_data_grows_for_a_reader_that_waits() {
        for peer_first in [true, false] {
            let mut window = RecvWindow::new(100, 150);
            window.receive(100);
            window.consume(3);
            if peer_first {
                window.on_peer_blocked_at(100);
                assert_eq!(window.size(), 100, "nobody waits");
                window.on_read(true);
            } else {
                window.on_read(true);
                assert_eq!(window.size(), 100, "nobody is blocked");
                window.on_peer_blocked_at(100);
            }
            assert!(window.update_due());
            assert_eq!(window.update(at(0), RTT), 153, "twice the window, but within its bound");
            window.on_peer_blocked_at(153);
            assert!(!window.update_due(), "the peer has not used what it has");
            window.receive(53);
            window.on_peer_blocked_at(153);
            assert!(!window.update_due(), "no larger than allowed");
        }
    }

    #[test]
    fn an_application_that_does_not_read_is_sent_no_more() {
        let mut window = RecvWindow::new(100, 1000);
        window.receive(100);
        window.on_read(true);
        window.on_read(false);
        for limit in [100, 99, 101] {
            window.on_peer_blocked_at(limit);
        }
        assert!(!window.update_due());
        window.on_peer_blocked_at(7);
        assert_eq!(window.size(), 100);
    }

    #[test]
    fn limits_stay_within_a_varint() {
        let mut window = RecvWindow::new(u64::MAX, u64::MAX);
        assert_eq!(window.limit(), varint::MAX);
        window.receive(varint::MAX);
        window.consume(varint::MAX);
        assert!(!window.update_due());
        assert_eq!(window.update(at(0), RTT), varint::MAX);
    }
}
