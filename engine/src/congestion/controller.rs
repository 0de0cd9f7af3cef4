//! What a congestion controller is told and asked.

use core::fmt;

use super::RateSample;
use crate::recovery::RttEstimator;
use crate::time::{Duration, Time};

/// What one or more ACK frames that arrived together brought to a path. Losses that they
/// revealed have been reported before.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AckEvent<'a> {
    /// Now.
    pub(crate) now: Time,
    /// Newly acknowledged bytes that were in flight.
    pub(crate) bytes: u64,
    /// Those of them that may raise the window: sent after the last congestion event
    /// (RFC 9002, Section 7.3.2) and while the sender made use of the window (Section 7.8).
    pub(crate) growth_bytes: u64,
    /// Bytes in flight after it.
    pub(crate) in_flight: u64,
    /// The most bytes in flight in this round trip or the one before.
    pub(crate) peak_in_flight: u64,
    /// When the most recently sent of the newly acknowledged packets was sent.
    pub(crate) latest_time_sent: Time,
    /// The round trip time that the ACK measured, if it did; ack delay is not subtracted.
    pub(crate) rtt_sample: Option<Duration>,
    /// The path's round trip time, sample included.
    pub(crate) rtt: &'a RttEstimator,
    /// The delivery rate that the ACK measured.
    pub(crate) rate: Option<RateSample>,
    /// The most recently sent of the packets was sent before the last congestion event.
    pub(crate) in_recovery: bool,
}

/// The start of a recovery period: a loss or an ECN mark of a packet that was sent after the
/// last one began (RFC 9002, Section 7.3.2).
#[derive(Clone, Copy, Debug)]
pub(crate) struct CongestionEvent {
    /// Now.
    pub(crate) now: Time,
    /// Bytes in flight before the losses.
    pub(crate) prior_in_flight: u64,
    /// The peer reported an ECN-CE mark; no packet need have been lost.
    pub(crate) is_ecn_ce: bool,
}

/// A packet that was lost for congestion's sake.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LostPacket {
    /// Its packet number.
    pub(crate) number: u64,
    /// Its length in bytes.
    pub(crate) bytes: u64,
    /// Bytes in flight just after it was sent.
    pub(crate) tx_in_flight: u64,
    /// Bytes lost since it was sent, itself included.
    pub(crate) lost_since_sent: u64,
    /// Bytes ever delivered.
    pub(crate) total_delivered: u64,
    /// The application had left the window unused when it was sent.
    pub(crate) app_limited: bool,
}

/// A congestion controller of one path.
pub(crate) trait CongestionController: fmt::Debug + Send + Sync {
    /// `bytes` were sent in a packet that counts; `in_flight` includes them.
    fn on_sent(&mut self, _now: Time, _bytes: u64, _in_flight: u64, _app_limited: bool) {}

    /// Packets were acknowledged.
    fn on_ack(&mut self, ack: &AckEvent<'_>);

    /// A packet was lost; called for each one, before [`Self::on_congestion`].
    fn on_packet_lost(&mut self, _now: Time, _packet: &LostPacket) {}

    /// A recovery period begins.
    fn on_congestion(&mut self, event: &CongestionEvent);

    /// Nothing got through for a long time (RFC 9002, Section 7.6).
    fn on_persistent_congestion(&mut self, now: Time);

    /// All losses that began the current recovery period turned out not to be losses.
    fn on_spurious_loss(&mut self, now: Time);

    /// The path carries datagrams of `mtu` bytes now.
    fn on_mtu_changed(&mut self, mtu: u16);

    /// How many bytes may be in flight.
    fn window(&self) -> u64;

    /// How fast to send, in bytes per second; `None` to spread the window over the round trip.
    fn pacing_rate(&self) -> Option<u64> {
        None
    }

    /// The controller sends less than it could, so that what is sent now measures nothing.
    fn limits_itself(&self) -> bool {
        false
    }

    /// The window still grows exponentially.
    fn in_slow_start(&self) -> bool;

    /// The window at which slow start ends; `u64::MAX` while unknown or without meaning.
    fn ssthresh(&self) -> u64;

    /// What the controller does now, for logs. `in_recovery` says whether the newest
    /// acknowledged packet was sent before the last reduction of the window.
    fn state(&self, in_recovery: bool) -> &'static str {
        match (in_recovery, self.in_slow_start()) {
            (true, _) => "recovery",
            (false, true) => "slow_start",
            (false, false) => "congestion_avoidance",
        }
    }

    /// The controller's name, for logs.
    fn name(&self) -> &'static str;
}
