//! Counters and gauges of a connection.

use quicket_wire::frame;

use core::time::Duration;

/// How many frames there were of each type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrameCounts {
    /// Those of types below 0x20, then the others in the order of [`FrameCounts::place`].
    by_type: [u64; TYPES],
}

/// Types of frames that can be counted.
const TYPES: usize = 0x20 + 3;

impl Default for FrameCounts {
    fn default() -> Self {
        Self { by_type: [0; TYPES] }
    }
}

impl FrameCounts {
    /// Where a type is counted. Connections are many, and most of the numbers are no type.
    fn place(frame_type: u64) -> Option<usize> {
        match frame_type {
            0..0x20 => Some(frame_type as usize),
            frame::Datagram::TYPE => Some(0x20),
            frame::Datagram::TYPE_WITH_LENGTH => Some(0x21),
            frame::AckFrequency::TYPE => Some(0x22),
            _ => None,
        }
    }

    pub(crate) fn add(&mut self, frame_type: u64, times: u64) {
        if let Some(count) = Self::place(frame_type).and_then(|at| self.by_type.get_mut(at)) {
            *count = (*count).saturating_add(times);
        }
    }

    /// How many frames of a type there were, such as 0x06 for CRYPTO; 0 for what is no type.
    pub fn of_type(&self, frame_type: u64) -> u64 {
        Self::place(frame_type).and_then(|at| self.by_type.get(at)).copied().unwrap_or(0)
    }

    /// How many frames there were.
    pub fn total(&self) -> u64 {
        self.by_type.iter().sum()
    }
}

/// What a connection counts. All values only grow; sizes are in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// UDP datagrams sent.
    pub datagrams_sent: u64,
    /// UDP payload sent.
    pub bytes_sent: u64,
    /// UDP datagrams received.
    pub datagrams_received: u64,
    /// UDP payload received.
    pub bytes_received: u64,
    /// Packets sent.
    pub packets_sent: u64,
    /// Packets received and authenticated.
    pub packets_received: u64,
    /// Received packets that were not processed: duplicates, garbage, without keys.
    pub packets_dropped: u64,
    /// Sent packets that the peer acknowledged in time.
    pub packets_acked: u64,
    /// Sent packets that were taken for lost; their content was sent again.
    pub packets_lost: u64,
    /// The size of those.
    pub bytes_lost: u64,
    /// Packets that were taken for lost and arrived after all.
    pub spurious_losses: u64,
    /// Probes for a larger MTU that were lost, which is their lot.
    pub mtu_probes_lost: u64,
    /// Probe timeouts (RFC 9002, Section 6.2).
    pub probe_timeouts: u64,
    /// Key updates (RFC 9001, Section 6).
    pub key_updates: u64,
    /// Moves to another path.
    pub path_changes: u64,
    /// Frames sent, by type.
    pub frames_sent: FrameCounts,
    /// Frames received, by type.
    pub frames_received: FrameCounts,
}

impl Counters {
    /// All of them, in an order that stays the same.
    pub(crate) fn each(&mut self) -> impl Iterator<Item = &mut u64> {
        let Self {
            datagrams_sent,
            bytes_sent,
            datagrams_received,
            bytes_received,
            packets_sent,
            packets_received,
            packets_dropped,
            packets_acked,
            packets_lost,
            bytes_lost,
            spurious_losses,
            mtu_probes_lost,
            probe_timeouts,
            key_updates,
            path_changes,
            frames_sent,
            frames_received,
        } = self;
        let packets = [
            datagrams_sent,
            bytes_sent,
            datagrams_received,
            bytes_received,
            packets_sent,
            packets_received,
            packets_dropped,
            packets_acked,
            packets_lost,
            bytes_lost,
            spurious_losses,
            mtu_probes_lost,
            probe_timeouts,
            key_updates,
            path_changes,
        ];
        packets.into_iter().chain(&mut frames_sent.by_type).chain(&mut frames_received.by_type)
    }

    pub(crate) fn udp_sent(&mut self, bytes: usize) {
        self.datagrams_sent = self.datagrams_sent.saturating_add(1);
        self.bytes_sent = self.bytes_sent.saturating_add(bytes as u64);
    }

    /// The same for several datagrams, each of `bytes`.
    pub(crate) fn udp_sent_each(&mut self, datagrams: u64, bytes: usize) {
        self.datagrams_sent = self.datagrams_sent.saturating_add(datagrams);
        let all = datagrams.saturating_mul(bytes as u64);
        self.bytes_sent = self.bytes_sent.saturating_add(all);
    }

    pub(crate) fn udp_received(&mut self, bytes: usize) {
        self.datagrams_received = self.datagrams_received.saturating_add(1);
        self.bytes_received = self.bytes_received.saturating_add(bytes as u64);
    }
}

/// What is known of ECN on a path (RFC 9000, Section 13.4.2 and Appendix A.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EcnState {
    /// The first packets are marked.
    Testing,
    /// They were sent; whether the marks arrive is not known yet.
    Unknown,
    /// The marks arrive: all packets are marked.
    Capable,
    /// The marks get lost or changed, or ECN is turned off: no packet is marked.
    Failed,
}

/// The active path at this moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PathStats {
    /// The last round trip time.
    pub latest_rtt: Duration,
    /// The smallest round trip time.
    pub min_rtt: Duration,
    /// The smoothed round trip time (RFC 9002, Section 5.3).
    pub smoothed_rtt: Duration,
    /// The round trip time variation.
    pub rtt_variation: Duration,
    /// The UDP payload that the path is known to carry, in bytes.
    pub mtu: u16,
    /// Packets are marked ECT(0) and the marks arrive.
    pub ecn_capable: bool,
    /// How far the validation of ECN has come.
    pub ecn: EcnState,
    /// The congestion controller's name.
    pub congestion_controller: &'static str,
    /// What the controller does, in its own words: `slow_start`, `congestion_avoidance` and
    /// `recovery`, or a state of BBR.
    pub congestion_state: &'static str,
    /// Congestion window, in bytes.
    pub congestion_window: u64,
    /// Slow start threshold, in bytes; `u64::MAX` while unknown.
    pub slow_start_threshold: u64,
    /// Bytes in flight.
    pub bytes_in_flight: u64,
    /// Pacing rate in bytes per second; 0 without pacing.
    pub pacing_rate: u64,
    /// The last measured delivery rate in bytes per second.
    pub delivery_rate: u64,
    /// How often the window was reduced for losses.
    pub congestion_events: u64,
    /// How often the window was reduced for ECN-CE marks.
    pub ecn_ce_events: u64,
    /// How often persistent congestion was found.
    pub persistent_congestion: u64,
}

/// Counters of the connection and gauges of its active path.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// What was counted since the connection began.
    pub counters: Counters,
    /// The active path now.
    pub path: PathStats,
    /// Streams with state.
    pub streams: usize,
    /// Bytes that wait to be sent or acknowledged, on all streams.
    pub send_buffered: usize,
    /// Received datagrams (RFC 9221) that were dropped before the application took them.
    pub datagrams_dropped: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_type_of_frame_is_counted_apart() {
        let mut counts = FrameCounts::default();
        let types = (0..0x20).chain([0x30, 0x31, 0xaf]);
        for (frame_type, times) in types.clone().zip(1..) {
            counts.add(frame_type, times);
        }
        for (frame_type, times) in types.zip(1..) {
            assert_eq!(counts.of_type(frame_type), times, "0x{frame_type:x}");
        }
        assert_eq!(counts.total(), (1..=35_u64).sum::<u64>());
        for frame_type in [0x20, 0x2f, 0x32, 0xae, 0xb0, u64::MAX] {
            counts.add(frame_type, 1);
            assert_eq!(counts.of_type(frame_type), 0);
        }
    }
}
