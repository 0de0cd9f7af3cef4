//! What became of packets, told to everything that a path learns from it: congestion control,
//! round trip time, MTU, ECN.

use quicket_wire::{EcnCodepoint, EcnCounts};

use super::{EcnOutcome, EcnSpace, PathKey, Paths};
use crate::ack::AckFrequencyTarget;
use crate::recovery::{AckOutcome, AckedPacket, SentPacket};
use crate::time::{Duration, Time};

/// The packet threshold of loss detection (RFC 9002, Section 6.1.1), which ACK_FREQUENCY must
/// respect.
const REORDERING_THRESHOLD: u64 = 3;

impl Paths {
    pub(crate) fn on_packet_acked(&mut self, now: Time, number: u64, packet: &SentPacket) {
        let Some(path) = self.get_mut(packet.path) else { return };
        path.congestion.on_packet_acked(now, number, packet);
        if !packet.mtu_probe {
            path.mtu.on_packet_acked(packet.size);
        } else if path.mtu.on_probe_acked(packet.size) {
            path.congestion.on_mtu_changed(path.mtu.current());
        }
    }

    pub(crate) fn on_spurious_loss(&mut self, now: Time, packet: &SentPacket) {
        if let Some(path) = self.get_mut(packet.path) {
            path.congestion.on_spurious_loss(now, packet);
        }
    }

    pub(crate) fn on_packet_lost(&mut self, now: Time, number: u64, packet: &SentPacket) {
        let Some(path) = self.get_mut(packet.path) else { return };
        path.congestion.on_packet_lost(now, number, packet);
        if packet.mtu_probe {
            path.mtu.on_probe_lost(packet.size);
        } else if path.mtu.on_packet_lost(now, packet.size) {
            path.congestion.on_mtu_changed(path.mtu.current());
        }
        if packet.ecn_ect {
            path.ecn.on_marked_lost(1);
        }
    }

    /// A packet whose fate says nothing of the path: its keys are gone, or 0-RTT was refused.
    pub(crate) fn on_packet_discarded(&mut self, packet: &SentPacket) {
        if !packet.in_flight {
            return;
        }
        if let Some(path) = self.get_mut(packet.path) {
            path.congestion.remove_in_flight(u64::from(packet.size));
        }
    }

    /// A round trip time sample (RFC 9002, Section 5). `max_ack_delay` bounds `ack_delay` once
    /// the handshake is confirmed.
    pub(crate) fn on_rtt_sample(
        &mut self,
        now: Time,
        key: PathKey,
        sample: Duration,
        ack_delay: Duration,
        max_ack_delay: Option<Duration>,
    ) {
        if let Some(path) = self.get_mut(key) {
            path.rtt.update(now, sample, ack_delay, max_ack_delay);
        }
    }

    /// The ECN counts of an ACK that raised the largest acknowledged number
    /// (RFC 9000, Section 13.4.2).
    pub(crate) fn on_ecn_ack(
        &mut self,
        now: Time,
        largest: AckedPacket,
        outcome: &AckOutcome,
        counts: Option<EcnCounts>,
        space: &mut EcnSpace,
    ) {
        let Some(path) = self.get_mut(largest.path) else { return };
        if let EcnOutcome::Congestion(_) = path.ecn.on_ack(space, outcome.newly_acked_ect, counts) {
            path.congestion.on_ecn_ce(now, largest.time_sent);
        }
    }

    /// Lets every path draw its conclusions from what was reported since the last call.
    pub(crate) fn process_congestion(
        &mut self,
        now: Time,
        sample: Option<(PathKey, Duration)>,
        persistent_congestion: Option<PathKey>,
    ) {
        for path in self.iter_mut() {
            let own = sample.filter(|(key, _)| *key == path.key()).map(|(_, rtt)| rtt);
            let persistent = persistent_congestion == Some(path.key());
            if persistent {
                // RFC 9002, Section 5.2: min_rtt may be stale.
                path.rtt.reset_min();
            }
            path.congestion.process(now, &path.rtt, own, persistent);
        }
    }

    /// A probe timeout expired for the `count`-th time in a row.
    pub(crate) fn on_pto(&mut self, count: u32) {
        let path = self.active_mut();
        path.ecn.on_pto();
        if path.mtu.on_pto(count) {
            path.congestion.on_mtu_changed(path.mtu.current());
        }
    }

    /// A packet with this PATH_CHALLENGE was lost.
    pub(crate) fn on_challenge_lost(&mut self, data: u64) {
        for path in self.iter_mut() {
            path.validation.on_challenge_lost(data.to_be_bytes());
        }
    }

    /// A datagram of `len` bytes was sent with `mark`.
    pub(crate) fn on_datagram_sent(
        &mut self,
        now: Time,
        key: PathKey,
        len: usize,
        mark: EcnCodepoint,
        pto: Duration,
    ) {
        let Some(path) = self.get_mut(key) else { return };
        path.amplification.on_sent(len);
        path.ecn.on_sent(now, mark, pto);
    }

    /// What to ask the peer's ACKs to be like on the active path.
    pub(crate) fn ack_frequency_target(&self) -> AckFrequencyTarget {
        let path = self.active();
        AckFrequencyTarget {
            smoothed_rtt: path.rtt.smoothed(),
            congestion_window: path.congestion.window(),
            packet_size: path.mtu.current(),
            reordering_threshold: REORDERING_THRESHOLD,
        }
    }
}
