//! Delivery rate estimation (draft-ietf-ccwg-bbr, Section 4.1; it first appeared as
//! draft-cheng-iccrg-delivery-rate-estimation).

use crate::recovery::SentPacket;
use crate::time::{Duration, Time};

const NANOS_PER_SEC: u64 = 1_000_000_000;

/// What a packet remembers of the state of delivery when it was sent; the draft's P.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RateSnapshot {
    /// Bytes ever delivered.
    pub(crate) delivered: u64,
    /// When that was last updated.
    pub(crate) delivered_time: Time,
    /// When the packet that was delivered last was sent.
    pub(crate) first_sent_time: Time,
    /// Bytes ever lost.
    pub(crate) lost: u64,
    /// Bytes in flight, this packet included.
    pub(crate) tx_in_flight: u64,
    /// The application left the window unused.
    pub(crate) app_limited: bool,
}

/// What an ACK says of the delivery rate; the draft's RS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RateSample {
    /// Bytes delivered between the sending of the packet and now.
    pub(crate) delivered: u64,
    /// Bytes ever delivered when the packet was sent.
    pub(crate) prior_delivered: u64,
    /// Bytes ever delivered, this ACK included.
    pub(crate) total_delivered: u64,
    /// Bytes per second; `None` if the interval is too short to tell.
    pub(crate) rate: Option<u64>,
    /// Bytes in flight just after the packet was sent.
    pub(crate) tx_in_flight: u64,
    /// Bytes lost between the sending of the packet and now.
    pub(crate) lost: u64,
    /// The application left the window unused when the packet was sent.
    pub(crate) app_limited: bool,
}

/// The newest packet of an ACK.
#[derive(Clone, Copy, Debug)]
struct Newest {
    number: u64,
    time_sent: Time,
    snapshot: RateSnapshot,
}

/// The delivery rate estimator of one path; the draft's C.
#[derive(Debug, Default)]
pub(crate) struct DeliveryRate {
    delivered: u64,
    delivered_time: Time,
    first_sent_time: Time,
    lost: u64,
    /// The number of delivered bytes beyond which samples are not limited by the application.
    app_limited: Option<u64>,
    newest: Option<Newest>,
}

impl DeliveryRate {
    /// A packet of `bytes` is sent while `in_flight` others are.
    pub(crate) fn on_sent(&mut self, now: Time, bytes: u64, in_flight: u64) -> RateSnapshot {
        if in_flight == 0 {
            self.first_sent_time = now;
            self.delivered_time = now;
        }
        RateSnapshot {
            delivered: self.delivered,
            delivered_time: self.delivered_time,
            first_sent_time: self.first_sent_time,
            lost: self.lost,
            tx_in_flight: in_flight.saturating_add(bytes),
            app_limited: self.app_limited.is_some(),
        }
    }

    /// Takes in a newly acknowledged packet.
    pub(crate) fn on_packet_acked(&mut self, now: Time, number: u64, packet: &SentPacket) {
        self.delivered = self.delivered.saturating_add(u64::from(packet.size));
        self.delivered_time = now;
        let is_newest = self
            .newest
            .is_none_or(|newest| (packet.time_sent, number) > (newest.time_sent, newest.number));
        if is_newest {
            let (time_sent, snapshot) = (packet.time_sent, packet.rate);
            self.newest = Some(Newest { number, time_sent, snapshot });
        }
    }

    /// Takes in a lost packet.
    pub(crate) fn on_packet_lost(&mut self, bytes: u64) {
        self.lost = self.lost.saturating_add(bytes);
    }

    /// Ends the handling of an ACK. `None` if it acknowledged nothing new.
    pub(crate) fn take_sample(&mut self, min_rtt: Duration) -> Option<RateSample> {
        if self.app_limited.is_some_and(|limit| self.delivered > limit) {
            self.app_limited = None;
        }
        let newest = self.newest.take()?;
        let sent = newest.snapshot;
        let send_elapsed = newest.time_sent.since(sent.first_sent_time);
        let ack_elapsed = self.delivered_time.since(sent.delivered_time);
        self.first_sent_time = self.first_sent_time.max(newest.time_sent);
        let interval = send_elapsed.max(ack_elapsed);
        let delivered = self.delivered.saturating_sub(sent.delivered);
        let reliable = interval >= min_rtt && !interval.is_zero();
        Some(RateSample {
            delivered,
            prior_delivered: sent.delivered,
            total_delivered: self.delivered,
            rate: reliable.then(|| rate(delivered, interval)),
            tx_in_flight: sent.tx_in_flight,
            lost: self.lost.saturating_sub(sent.lost),
            app_limited: sent.app_limited,
        })
    }

    /// The application has nothing to send although the window has room: what is in flight
    /// now, and what is sent until it is delivered, measures the application, not the path.
    pub(crate) fn mark_app_limited(&mut self, in_flight: u64) {
        self.app_limited = Some(self.delivered.saturating_add(in_flight));
    }

    /// True in a phase that the application limits.
    pub(crate) fn is_app_limited(&self) -> bool {
        self.app_limited.is_some()
    }

    /// Bytes ever delivered.
    pub(crate) fn delivered(&self) -> u64 {
        self.delivered
    }

    /// Bytes ever lost.
    pub(crate) fn lost(&self) -> u64 {
        self.lost
    }
}

/// `bytes` in `interval` as bytes per second, saturating.
pub(crate) fn rate(bytes: u64, interval: Duration) -> u64 {
    ratio(bytes, NANOS_PER_SEC, interval.as_nanos())
}

/// How many bytes `rate` bytes per second make in `interval`, saturating.
pub(crate) fn volume(rate: u64, interval: Duration) -> u64 {
    ratio(rate, interval.as_nanos(), NANOS_PER_SEC)
}

/// How long `rate` bytes per second take for `bytes`.
pub(crate) fn time_for(bytes: u64, rate: u64) -> Duration {
    Duration::from_nanos(ratio(bytes, NANOS_PER_SEC, rate))
}

/// `a * b / c`, saturating; in 64 bits where they suffice, for 128 bits divide slowly.
fn ratio(a: u64, b: u64, c: u64) -> u64 {
    let c = c.max(1);
    match a.checked_mul(b) {
        Some(product) => product.checked_div(c).unwrap_or(0),
        None => {
            let wide =
                u128::from(a).wrapping_mul(u128::from(b)).checked_div(u128::from(c)).unwrap_or(0);
            u64::try_from(wide).unwrap_or(u64::MAX)
        }
    }
}
