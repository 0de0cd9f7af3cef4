//! The congestion state of one path: bytes in flight, recovery periods, pacing and statistics
//! around an exchangeable controller.

use alloc::boxed::Box;

use super::Congestion;
use super::controller::{AckEvent, CongestionController, CongestionEvent, LostPacket};
use super::delivery::{DeliveryRate, RateSample, RateSnapshot, rate};
use super::pacer::Pacer;
use crate::recovery::{RttEstimator, SentPacket};
use crate::time::{Duration, Time};

/// Counters and gauges of a path's congestion control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CongestionStats {
    /// The controller.
    pub(crate) algorithm: &'static str,
    /// What it does.
    pub(crate) state: &'static str,
    /// How many bytes may be in flight.
    pub(crate) window: u64,
    /// Where slow start ends; `u64::MAX` while unknown.
    pub(crate) ssthresh: u64,
    /// How many bytes are in flight.
    pub(crate) in_flight: u64,
    /// Bytes per second; 0 without pacing.
    pub(crate) pacing_rate: u64,
    /// The last delivery rate that was measured, in bytes per second.
    pub(crate) delivery_rate: u64,
    /// Bytes ever delivered.
    pub(crate) delivered_bytes: u64,
    /// Bytes ever lost, MTU probes aside.
    pub(crate) lost_bytes: u64,
    /// Packets ever lost, MTU probes aside.
    pub(crate) lost_packets: u64,
    /// Packets that were declared lost but arrived.
    pub(crate) spurious_losses: u64,
    /// How often the window was reduced for a loss.
    pub(crate) congestion_events: u64,
    /// How often it was reduced for an ECN-CE mark.
    pub(crate) ecn_ce_events: u64,
    /// How often persistent congestion was found.
    pub(crate) persistent_congestion: u64,
}

/// What the ACKs and losses handled together amount to.
#[derive(Debug, Default)]
struct Batch {
    acked: u64,
    /// Acknowledged bytes of packets sent after the last congestion event.
    acked_after_event: u64,
    latest_acked: Option<Time>,
    lost_packets: u64,
    latest_lost: Option<Time>,
    prior_in_flight: u64,
}

/// The time between a congestion event and the first ACK of a packet sent after it
/// (RFC 9002, Section 7.3.2).
#[derive(Clone, Copy, Debug)]
struct RecoveryPeriod {
    start: Time,
    /// Losses of packets sent before `start` that have not turned out to be spurious.
    losses: u64,
}

/// The largest number of bytes in flight in this round trip and the one before.
#[derive(Debug, Default)]
struct PeakFlight {
    current: u64,
    previous: u64,
    /// The round ends with the ACK of a packet sent when this many bytes were delivered.
    round_end: u64,
}

impl PeakFlight {
    fn peak(&self) -> u64 {
        self.current.max(self.previous)
    }

    fn on_sample(&mut self, sample: &RateSample, in_flight: u64) {
        if sample.prior_delivered >= self.round_end {
            self.round_end = sample.total_delivered;
            self.previous = self.current;
            self.current = in_flight;
        }
    }
}

/// Congestion control of one path.
#[derive(Debug)]
pub(crate) struct PathCongestion {
    controller: Box<dyn CongestionController>,
    pacer: Pacer,
    pacing: bool,
    delivery: DeliveryRate,
    mtu: u16,
    in_flight: u64,
    batch: Batch,
    recovery: Option<RecoveryPeriod>,
    /// Nothing sent since the recovery period began is acknowledged yet.
    recovering: bool,
    peak: PeakFlight,
    delivery_rate: u64,
    lost_packets: u64,
    spurious_losses: u64,
    congestion_events: u64,
    ecn_ce_events: u64,
    persistent_congestion: u64,
}

impl PathCongestion {
    /// The state of an unused path that carries datagrams of `mtu` bytes. A controller that
    /// depends on pacing is paced even without `pacing`. `seed` is a random number.
    pub(crate) fn new(
        congestion: Congestion,
        mtu: u16,
        rtt: &RttEstimator,
        pacing: bool,
        seed: u64,
    ) -> Self {
        Self::with_controller(congestion.controller(mtu, seed), mtu, rtt, pacing)
    }

    /// The state of an unused path with a controller of the caller's.
    pub(crate) fn with_controller(
        controller: Box<dyn CongestionController>,
        mtu: u16,
        rtt: &RttEstimator,
        pacing: bool,
    ) -> Self {
        let mut path = Self {
            controller,
            pacer: Pacer::new(),
            pacing,
            delivery: DeliveryRate::default(),
            mtu,
            in_flight: 0,
            batch: Batch::default(),
            recovery: None,
            recovering: false,
            peak: PeakFlight::default(),
            delivery_rate: 0,
            lost_packets: 0,
            spurious_losses: 0,
            congestion_events: 0,
            ecn_ce_events: 0,
            persistent_congestion: 0,
        };
        path.update_pacer(Time::ZERO, rtt);
        path
    }

    /// Has another controller decide from now on. It begins as on an unused path; what is in flight counts on.
    pub(crate) fn exchange(
        &mut self,
        congestion: Congestion,
        now: Time,
        rtt: &RttEstimator,
        seed: u64,
    ) {
        self.controller = congestion.controller(self.mtu, seed);
        self.recovery = None;
        self.recovering = false;
        self.update_pacer(now, rtt);
    }

    /// True if the window has room for `bytes` more. Probes need not ask
    /// (RFC 9002, Section 7.5).
    pub(crate) fn can_send(&self, bytes: u64) -> bool {
        self.in_flight.saturating_add(bytes) <= self.controller.window()
    }

    /// How many packets of `size` bytes window and pacer let go now.
    pub(crate) fn burst(&mut self, now: Time, size: u64) -> u64 {
        let window = self
            .controller
            .window()
            .saturating_sub(self.in_flight)
            .checked_div(size.max(1))
            .unwrap_or(0);
        window.min(self.pacer.packets(now, size))
    }

    /// `None` if pacing lets a packet go now, or else when to come back.
    pub(crate) fn pacing_delay(&mut self, now: Time) -> Option<Time> {
        self.pacer.delay(now)
    }

    /// A packet of `size` bytes that counts toward bytes in flight is sent. The answer goes into
    /// its `SentInfo`.
    pub(crate) fn on_sent(&mut self, now: Time, size: u16) -> RateSnapshot {
        let bytes = u64::from(size);
        let snapshot = self.delivery.on_sent(now, bytes, self.in_flight);
        self.in_flight = self.in_flight.saturating_add(bytes);
        self.peak.current = self.peak.current.max(self.in_flight);
        self.pacer.on_sent(now, bytes);
        self.controller.on_sent(now, bytes, self.in_flight, snapshot.app_limited);
        snapshot
    }

    /// There is nothing to send although window and pacer would let it go
    /// (RFC 9002, Section 7.8).
    pub(crate) fn set_app_limited(&mut self) {
        if self.can_send(u64::from(self.mtu)) {
            self.delivery.mark_app_limited(self.in_flight);
        }
    }

    /// A packet is acknowledged; [`Self::process`] follows.
    pub(crate) fn on_packet_acked(&mut self, now: Time, number: u64, packet: &SentPacket) {
        if !packet.in_flight {
            return;
        }
        let bytes = u64::from(packet.size);
        self.note_prior_in_flight();
        self.in_flight = self.in_flight.saturating_sub(bytes);
        self.delivery.on_packet_acked(now, number, packet);
        let batch = &mut self.batch;
        batch.acked = batch.acked.saturating_add(bytes);
        if self.recovery.is_none_or(|recovery| packet.time_sent > recovery.start) {
            batch.acked_after_event = batch.acked_after_event.saturating_add(bytes);
        }
        batch.latest_acked = batch.latest_acked.max(Some(packet.time_sent));
    }

    /// A packet is lost; [`Self::process`] follows.
    pub(crate) fn on_packet_lost(&mut self, now: Time, number: u64, packet: &SentPacket) {
        if !packet.in_flight {
            return;
        }
        let bytes = u64::from(packet.size);
        self.note_prior_in_flight();
        self.in_flight = self.in_flight.saturating_sub(bytes);
        // RFC 9000, Section 14.4: the loss of a PMTU probe SHOULD NOT trigger a congestion
        // control reaction.
        if packet.mtu_probe {
            return;
        }
        self.delivery.on_packet_lost(bytes);
        self.lost_packets = self.lost_packets.saturating_add(1);
        let batch = &mut self.batch;
        batch.lost_packets = batch.lost_packets.saturating_add(1);
        batch.latest_lost = batch.latest_lost.max(Some(packet.time_sent));
        let lost = LostPacket {
            number,
            bytes,
            tx_in_flight: packet.rate.tx_in_flight,
            lost_since_sent: self.delivery.lost().saturating_sub(packet.rate.lost),
            total_delivered: self.delivery.delivered(),
            app_limited: packet.rate.app_limited,
        };
        self.controller.on_packet_lost(now, &lost);
    }

    /// A packet that was declared lost is acknowledged after all.
    pub(crate) fn on_spurious_loss(&mut self, now: Time, packet: &SentPacket) {
        if !packet.in_flight || packet.mtu_probe {
            return;
        }
        self.spurious_losses = self.spurious_losses.saturating_add(1);
        let Some(recovery) = &mut self.recovery else { return };
        if packet.time_sent > recovery.start || recovery.losses == 0 {
            return;
        }
        recovery.losses = recovery.losses.saturating_sub(1);
        if recovery.losses == 0 {
            self.recovery = None;
            self.controller.on_spurious_loss(now);
        }
    }

    /// The peer reports more ECN-CE marks, in an ACK whose largest packet was sent at
    /// `time_sent` (RFC 9002, Section 7.1). [`Self::process`] follows.
    pub(crate) fn on_ecn_ce(&mut self, now: Time, time_sent: Time) {
        if self.in_recovery(time_sent) {
            return;
        }
        self.ecn_ce_events = self.ecn_ce_events.saturating_add(1);
        self.recovering = true;
        self.recovery = Some(RecoveryPeriod { start: now, losses: 0 });
        let prior_in_flight = self.batch.prior_in_flight.max(self.in_flight);
        let event = CongestionEvent { now, prior_in_flight, is_ecn_ce: true };
        self.controller.on_congestion(&event);
    }

    /// Draws the conclusions from the acknowledged and lost packets reported since the last
    /// call. `rtt_sample` is the round trip time that the ACK measured on this path, if any.
    pub(crate) fn process(
        &mut self,
        now: Time,
        rtt: &RttEstimator,
        rtt_sample: Option<Duration>,
        persistent_congestion: bool,
    ) {
        let batch = core::mem::take(&mut self.batch);
        if let Some(latest) = batch.latest_lost {
            self.on_losses(now, latest, &batch);
        }
        if persistent_congestion {
            // RFC 9002, Section B.8: the recovery period ends too.
            self.persistent_congestion = self.persistent_congestion.saturating_add(1);
            self.recovery = None;
            self.recovering = false;
            self.controller.on_persistent_congestion(now);
        }
        if let Some(latest) = batch.latest_acked {
            self.on_acks(now, rtt, rtt_sample, latest, &batch);
        }
        self.update_pacer(now, rtt);
    }

    fn on_losses(&mut self, now: Time, latest: Time, batch: &Batch) {
        if self.in_recovery(latest) {
            if let Some(recovery) = &mut self.recovery
                && recovery.losses > 0
            {
                recovery.losses = recovery.losses.saturating_add(batch.lost_packets);
            }
            return;
        }
        self.congestion_events = self.congestion_events.saturating_add(1);
        self.recovering = true;
        self.recovery = Some(RecoveryPeriod { start: now, losses: batch.lost_packets });
        let prior_in_flight = batch.prior_in_flight;
        let event = CongestionEvent { now, prior_in_flight, is_ecn_ce: false };
        self.controller.on_congestion(&event);
    }

    fn on_acks(
        &mut self,
        now: Time,
        rtt: &RttEstimator,
        rtt_sample: Option<Duration>,
        latest: Time,
        batch: &Batch,
    ) {
        let utilised = self.is_utilised();
        let rate = self.delivery.take_sample(rtt.min());
        if let Some(sample) = &rate {
            self.peak.on_sample(sample, self.in_flight);
            self.delivery_rate = sample.rate.unwrap_or(self.delivery_rate);
        }
        self.recovering = self.in_recovery(latest);
        self.controller.on_ack(&AckEvent {
            now,
            bytes: batch.acked,
            growth_bytes: if utilised { batch.acked_after_event } else { 0 },
            in_flight: self.in_flight,
            peak_in_flight: self.peak.peak(),
            latest_time_sent: latest,
            rtt_sample,
            rtt,
            rate,
            in_recovery: self.recovering,
        });
        if self.controller.limits_itself() {
            self.delivery.mark_app_limited(self.in_flight);
        }
    }

    /// RFC 9002, Section 7.8: a window that is not used does not grow. In slow start the window
    /// may be twice what was used, for it doubles while what fills it is on the way.
    fn is_utilised(&self) -> bool {
        let (window, peak) = (self.controller.window(), self.peak.peak());
        !self.delivery.is_app_limited()
            || if self.controller.in_slow_start() {
                peak.saturating_mul(2) >= window
            } else {
                peak.saturating_add(window / 8) >= window
            }
    }

    fn in_recovery(&self, time_sent: Time) -> bool {
        self.recovery.is_some_and(|recovery| time_sent <= recovery.start)
    }

    fn note_prior_in_flight(&mut self) {
        self.batch.prior_in_flight = self.batch.prior_in_flight.max(self.in_flight);
    }

    /// Takes packets off the flight whose fate is of no concern to congestion control: their
    /// keys were discarded (RFC 9002, Section 6.4), 0-RTT was rejected, or a Retry came.
    pub(crate) fn remove_in_flight(&mut self, bytes: u64) {
        self.in_flight = self.in_flight.saturating_sub(bytes);
    }

    /// The path carries datagrams of `mtu` bytes now.
    pub(crate) fn on_mtu_changed(&mut self, mtu: u16) {
        self.mtu = mtu;
        self.controller.on_mtu_changed(mtu);
    }

    fn update_pacer(&mut self, now: Time, rtt: &RttEstimator) {
        let own = self.controller.pacing_rate();
        let bytes_per_second = own.unwrap_or_else(|| {
            if !self.pacing {
                return 0;
            }
            // RFC 9002, Section 7.7: N * congestion_window / smoothed_rtt, where N is slightly
            // above 1; in slow start, twice the window is sent while it doubles.
            let window = self.controller.window();
            let slow_start = self.controller.in_slow_start();
            let paced = if slow_start {
                window.saturating_mul(2)
            } else {
                window.saturating_add(window / 4)
            };
            rate(paced, rtt.smoothed())
        });
        self.pacer.set_rate(now, bytes_per_second, self.mtu, rtt.min());
    }

    /// How many bytes to hand to the network at once, 64 KiB at most.
    pub(crate) fn send_quantum(&self) -> u64 {
        self.pacer.send_quantum(self.mtu)
    }

    /// How many bytes are in flight.
    pub(crate) fn in_flight(&self) -> u64 {
        self.in_flight
    }

    /// How many bytes may be in flight.
    pub(crate) fn window(&self) -> u64 {
        self.controller.window()
    }

    /// Counters and gauges.
    pub(crate) fn stats(&self) -> CongestionStats {
        CongestionStats {
            algorithm: self.controller.name(),
            state: self.controller.state(self.recovering),
            window: self.controller.window(),
            ssthresh: self.controller.ssthresh(),
            in_flight: self.in_flight(),
            pacing_rate: self.pacer.rate(),
            delivery_rate: self.delivery_rate,
            delivered_bytes: self.delivery.delivered(),
            lost_bytes: self.delivery.lost(),
            lost_packets: self.lost_packets,
            spurious_losses: self.spurious_losses,
            congestion_events: self.congestion_events,
            ecn_ce_events: self.ecn_ce_events,
            persistent_congestion: self.persistent_congestion,
        }
    }
}

#[cfg(test)]
#[path = "flight_tests.rs"]
mod tests;
