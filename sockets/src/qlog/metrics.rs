//! From gauges to events: only what changed is logged.

use quicket_engine::{EcnState, PathStats};

use super::event::{Category, MtuUpdated, RecoveryMetrics, StateUpdated};
use super::observer::ConnectionLog;

/// The values that were logged last.
#[derive(Default)]
pub(super) struct Gauges {
    metrics: RecoveryMetrics,
    mtu: Option<u16>,
    ecn: Option<EcnState>,
    congestion: Option<&'static str>,
}

impl ConnectionLog {
    /// The active path after an ACK, a loss or a timeout.
    pub(super) fn on_metrics(&mut self, path: &PathStats, pto_count: u32) {
        let metrics = RecoveryMetrics::of(path, pto_count);
        let changed = metrics.changed_since(&self.gauges.metrics);
        self.gauges.metrics = metrics;
        if changed != RecoveryMetrics::default() {
            let records = &mut self.records;
            records.write(Category::Recovery, "quic:recovery_metrics_updated", &changed);
            // Of the name that qvis draws.
            records.write(Category::Recovery, "recovery:metrics_updated", &changed);
        }
        if let Some(data) = update(&mut self.gauges.congestion, path.congestion_state) {
            self.records.write(Category::Recovery, "quic:congestion_state_updated", &data);
        }
        if let Some(StateUpdated { old, new }) = update(&mut self.gauges.ecn, path.ecn) {
            let data = StateUpdated { old: old.map(ecn_state), new: ecn_state(new) };
            self.records.write(Category::Recovery, "quic:ecn_state_updated", &data);
        }
        if let Some(StateUpdated { old, new }) = update(&mut self.gauges.mtu, path.mtu) {
            let data = MtuUpdated { old, new };
            self.records.write(Category::Connectivity, "quic:mtu_updated", &data);
        }
    }
}

/// Takes a value over; tells of it if it is a new one.
fn update<T: Copy + PartialEq>(known: &mut Option<T>, new: T) -> Option<StateUpdated<T>> {
    let old = known.replace(new);
    (old != Some(new)).then_some(StateUpdated { old, new })
}

const fn ecn_state(state: EcnState) -> &'static str {
    match state {
        EcnState::Testing => "testing",
        EcnState::Unknown => "unknown",
        EcnState::Capable => "capable",
        EcnState::Failed => "failed",
    }
}

impl RecoveryMetrics {
    fn of(path: &PathStats, pto_count: u32) -> Self {
        Self {
            min_rtt: Some(path.min_rtt.into()),
            smoothed_rtt: Some(path.smoothed_rtt.into()),
            latest_rtt: Some(path.latest_rtt.into()),
            rtt_variance: Some(path.rtt_variation.into()),
            pto_count: Some(pto_count),
            congestion_window: Some(path.congestion_window),
            bytes_in_flight: Some(path.bytes_in_flight),
            ssthresh: Some(path.slow_start_threshold).filter(|ssthresh| *ssthresh != u64::MAX),
            pacing_rate: Some(path.pacing_rate.saturating_mul(8)).filter(|rate| *rate > 0),
        }
    }

    /// The values that are not the same in `old`.
    fn changed_since(&self, old: &Self) -> Self {
        Self {
            min_rtt: changed(self.min_rtt, old.min_rtt),
            smoothed_rtt: changed(self.smoothed_rtt, old.smoothed_rtt),
            latest_rtt: changed(self.latest_rtt, old.latest_rtt),
            rtt_variance: changed(self.rtt_variance, old.rtt_variance),
            pto_count: changed(self.pto_count, old.pto_count),
            congestion_window: changed(self.congestion_window, old.congestion_window),
            bytes_in_flight: changed(self.bytes_in_flight, old.bytes_in_flight),
            ssthresh: changed(self.ssthresh, old.ssthresh),
            pacing_rate: changed(self.pacing_rate, old.pacing_rate),
        }
    }
}

fn changed<T: PartialEq>(new: Option<T>, old: Option<T>) -> Option<T> {
    if new == old { None } else { new }
}
