//! What happened, counted.

use std::sync::atomic::{AtomicU64, Ordering};

use quicket_gue::counters;
use quicket_wire::PacketKind;

use crate::decide::{Cause, Decision, Refusal, Way};

counters! {
    /// Counters of a worker. They only grow.
    Counters:
    /// Datagrams that came.
    received,
    /// Bytes of the datagrams that came.
    received_bytes,
    /// Calls that received datagrams.
    receive_calls,
    /// Datagrams that came with an Initial packet.
    initial,
    /// Datagrams that came with a 0-RTT packet.
    zero_rtt,
    /// Datagrams that came with a Handshake packet.
    handshake,
    /// Datagrams that came with a Retry packet, which only servers send; their receiver discards them.
    retry,
    /// Datagrams that came with a short header.
    one_rtt,
    /// Datagrams that came with a version that is not known.
    unknown_version,
    /// Forwarded: to the server that the connection ID names.
    named,
    /// Forwarded: to the server that the flow has.
    kept,
    /// Forwarded: to the server that the consistent hash gives.
    hashed,
    /// Forwarded, kept or hashed: the connection ID follows no configuration.
    unroutable,
    /// Forwarded, kept or hashed: the connection ID names a server that there is not.
    unknown_server,
    /// Datagrams sent to servers.
    sent,
    /// Calls that sent datagrams.
    send_calls,
    /// Dropped: shorter than any packet of QUIC.
    too_short,
    /// Dropped: a long header that is not whole.
    malformed,
    /// Dropped: Version Negotiation.
    version_negotiation,
    /// Dropped: nobody takes connections.
    no_server,
    /// Dropped: longer than the path to the server allows.
    too_big,
    /// Dropped as too long, and the client was told by ICMP.
    told,
    /// Dropped: its time to live was used up, or the source cannot be answered.
    expired,
    /// Dropped: the system had no room to send.
    send_full,
    /// Dropped: the system refused to send.
    send_refused,
    /// Datagrams that came and were sent by the kernel, on the device of `xdp`.
    in_kernel,
    /// How often workers taught the kernel a connection ID; again after seconds if packets still
    /// come by user space.
    taught,
    /// Flows that were forgotten before their time, as the table was full.
    evicted,
}

counters! {
    /// Counters of a server.
    ServerCounters:
    /// Datagrams sent to the server.
    sent,
    /// Bytes of the datagrams sent to the server, without encapsulation.
    sent_bytes,
}

/// Adds to a counter.
#[inline]
pub(crate) fn add(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Ordering::Relaxed);
}

impl Counters {
    /// Counts what datagrams are.
    pub(crate) fn kind(&self, kind: PacketKind, count: u64) {
        let counter = match kind {
            PacketKind::Initial => &self.initial,
            PacketKind::ZeroRtt => &self.zero_rtt,
            PacketKind::Handshake => &self.handshake,
            PacketKind::Retry => &self.retry,
            PacketKind::OneRtt => &self.one_rtt,
            PacketKind::UnknownVersion | PacketKind::VersionNegotiation => &self.unknown_version,
        };
        add(counter, count);
    }

    /// Counts what becomes of datagrams.
    pub(crate) fn decided(&self, decision: Decision, count: u64) {
        let (counter, cause) = match decision {
            Decision::Forward { way: Way::Named, .. } => (&self.named, None),
            Decision::Forward { way: Way::Kept(cause), .. } => (&self.kept, Some(cause)),
            Decision::Forward { way: Way::Hashed(cause), .. } => (&self.hashed, Some(cause)),
            Decision::Refuse(Refusal::TooShort) => (&self.too_short, None),
            Decision::Refuse(Refusal::Malformed) => (&self.malformed, None),
            Decision::Refuse(Refusal::VersionNegotiation) => (&self.version_negotiation, None),
            Decision::Refuse(Refusal::NoServer) => (&self.no_server, None),
        };
        add(counter, count);
        match cause {
            Some(Cause::Unroutable) => add(&self.unroutable, count),
            Some(Cause::UnknownServer) => add(&self.unknown_server, count),
            None => {}
        }
    }
}
