//! Pacing (RFC 9002, Section 7.7): a token bucket kept as time.
//!
//! The bucket is one moment, `due`: when all that was sent would be gone at the pacing rate.
//! Sending may run ahead of it by the burst; then it waits until a whole quantum fits again, so
//! that timers need be no finer than [`QUANTUM`] and whole bursts reach segmentation offload.

use super::delivery::{time_for, volume};
use crate::time::{Duration, Time};

/// How much sending time is gathered before sending goes on.
pub(super) const QUANTUM: Duration = Duration::from_millis(1);
/// How far sending may run ahead of the rate, and catch up with it after a late timer.
const BURST: Duration = Duration::from_millis(2);
/// Packets that may always leave together (RFC 9002, Section 7.7: the initial window).
const BURST_PACKETS: u64 = 10;

/// With a least round trip time below this, every link of the path sends a packet in less, so
/// that a burst may be all that segmentation offload takes at once. Linux lets TCP send larger
/// bursts on such paths, too (tcp_tso_rtt_log in its ip-sysctl document).
const NEAR: Duration = Duration::from_micros(500);

/// What segmentation offload takes at once, in bytes (draft-ietf-ccwg-bbr, Section 5.6.3).
const MAX_SEND_QUANTUM: u64 = 64 << 10;

/// Spreads packets over time.
#[derive(Debug)]
pub(crate) struct Pacer {
    /// Bytes per second; 0 sends without pacing.
    rate: u64,
    /// The path is a short one: [`NEAR`].
    near: bool,
    burst: Duration,
    due: Time,
    /// Out of credit until then.
    blocked_until: Option<Time>,
}

impl Pacer {
    /// A pacer that holds nothing back until it is given a rate.
    pub(crate) fn new() -> Self {
        Self { rate: 0, near: false, burst: BURST, due: Time::ZERO, blocked_until: None }
    }

    /// Sends at `rate` bytes per second in packets of at most `mtu` bytes on a path whose least
    /// round trip time is `min_rtt`; 0 stops pacing.
    pub(crate) fn set_rate(&mut self, now: Time, rate: u64, mtu: u16, min_rtt: Duration) {
        let near = min_rtt < NEAR;
        // Below a percent of difference, what the change costs is better spent on packets.
        if rate.abs_diff(self.rate) < self.rate / 128 && near == self.near {
            return;
        }
        let ahead = self.due.since(now);
        if rate == 0 {
            self.blocked_until = None;
        } else if self.rate != 0 {
            // What was sent ahead of time is as many bytes as before, but another time.
            self.due = now + time_for(volume(self.rate, ahead), rate);
            self.blocked_until = self.blocked_until.map(|at| at.min(self.due));
        }
        self.rate = rate;
        self.near = near;
        let packets = BURST_PACKETS * u64::from(mtu);
        let bytes = if near { packets.max(MAX_SEND_QUANTUM) } else { packets };
        self.burst = BURST.max(time_for(bytes, rate));
    }

    /// The pacing rate in bytes per second; 0 without pacing.
    pub(crate) fn rate(&self) -> u64 {
        self.rate
    }

    /// How many bytes to hand to the network at once: a quantum, within what segmentation
    /// offload takes.
    pub(crate) fn send_quantum(&self, mtu: u16) -> u64 {
        if self.rate == 0 || self.near {
            return MAX_SEND_QUANTUM;
        }
        volume(self.rate, QUANTUM).min(MAX_SEND_QUANTUM).max(2 * u64::from(mtu))
    }

    /// `None` if a packet may be sent now, or else when to come back.
    pub(crate) fn delay(&mut self, now: Time) -> Option<Time> {
        if self.rate == 0 {
            return None;
        }
        if let Some(at) = self.blocked_until {
            if now < at {
                return Some(at);
            }
            self.blocked_until = None;
        }
        if self.due <= now + self.burst {
            return None;
        }
        let at = self.due - self.burst + QUANTUM;
        self.blocked_until = Some(at);
        Some(at)
    }

    /// How many packets of `size` bytes, one after the other, [`Self::delay`] would let go now.
    pub(crate) fn packets(&mut self, now: Time, size: u64) -> u64 {
        if self.rate == 0 {
            return u64::MAX;
        }
        if self.delay(now).is_some() {
            return 0;
        }
        let ahead = (now + self.burst).since(self.due.max(now));
        volume(self.rate, ahead).checked_div(size.max(1)).unwrap_or(0).saturating_add(1)
    }

    /// `bytes` are sent.
    pub(crate) fn on_sent(&mut self, now: Time, bytes: u64) {
        if self.rate != 0 {
            self.due = self.due.max(now) + time_for(bytes, self.rate);
        }
    }
}

#[cfg(test)]
#[path = "pacer_tests.rs"]
mod tests;
