//! How large the UDP payloads are.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use quicket_workload::bench::{Assignment, Payload, Role, Scenario};
use s2n_quic::provider::event::events::{DatagramReceived, DatagramSent};
use s2n_quic::provider::event::{ConnectionInfo, ConnectionMeta, Subscriber};

/// Counts datagrams, where their size is checked or discovered; elsewhere it would only cost time.
#[derive(Debug, Clone, Default)]
pub struct Payloads {
    counted: Option<Arc<Counters>>,
}

#[derive(Debug, Default)]
struct Counters {
    sent: Mean,
    received: Mean,
}

#[derive(Debug, Default)]
struct Mean {
    datagrams: AtomicU64,
    bytes: AtomicU64,
}

impl Mean {
    fn count(&self, bytes: u64) {
        self.datagrams.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    fn get(&self) -> f64 {
        let datagrams = self.datagrams.load(Ordering::Relaxed).max(1);
        self.bytes.load(Ordering::Relaxed) as f64 / datagrams as f64
    }
}

impl Payloads {
    pub fn new(assignment: &Assignment) -> Self {
        let verified =
            matches!(assignment.role, Role::Client { scenario: Scenario::Verify { .. }, .. });
        let discovered = matches!(assignment.conditions.payload, Payload::Discovered(_));
        Self { counted: (verified || discovered).then(Arc::default) }
    }

    /// Means of those sent and received.
    pub fn means(&self) -> (Option<f64>, Option<f64>) {
        let counted = self.counted.as_deref();
        (counted.map(|all| all.sent.get()), counted.map(|all| all.received.get()))
    }
}

impl Subscriber for Payloads {
    type ConnectionContext = ();

    fn create_connection_context(&mut self, _: &ConnectionMeta, _: &ConnectionInfo) {}

    fn on_datagram_sent(&mut self, (): &mut (), _: &ConnectionMeta, event: &DatagramSent) {
        if let Some(counted) = &self.counted {
            counted.sent.count(event.len.into());
        }
    }

    fn on_datagram_received(&mut self, (): &mut (), _: &ConnectionMeta, event: &DatagramReceived) {
        if let Some(counted) = &self.counted {
            counted.received.count(event.len.into());
        }
    }
}
