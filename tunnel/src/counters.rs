//! What happened, counted.

use std::sync::atomic::{AtomicU64, Ordering};

use quicket_gue::counters;

/// Why a packet was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Drop {
    /// Not what the format allows.
    Malformed,
    /// A wrong checksum of GRE.
    Checksum,
    /// A control message, of which none is known.
    Control,
    /// From an address that is not the other end of a tunnel, or with a key of no tunnel.
    Peer,
    /// A packet inside of a family or protocol that the tunnel does not carry.
    Family,
    /// A source address inside that may not come this way.
    Source,
    /// Out of sequence.
    Sequence,
    /// Congestion was experienced outside by a packet that cannot say so (RFC 6040).
    Congestion,
    /// A packet of this tunnel that was routed into it.
    Loop,
    /// Longer than the path allows.
    TooBig,
    /// For a tunnel whose own socket has it, too: all raw sockets get copies.
    Copy,
    /// No other end is known for where it goes.
    Unknown,
    /// There is no room to learn where it came from.
    Full,
    /// Datagrams that the system has joined without saying how long they were.
    Joined,
    /// The system refused to send, or the device to take a packet.
    Refused,
}

counters! {
    /// Counters of a tunnel. They only grow.
    Counters:
    /// Packets received and handed to the device.
    rx_packets,
    /// Bytes of packets received, without encapsulation.
    rx_bytes,
    /// Packets sent.
    tx_packets,
    /// Bytes of packets sent, without encapsulation.
    tx_bytes,
    /// System calls that sent packets.
    tx_bursts,
    /// Writes of packets to the device.
    rx_writes,
    /// Received: not what the formats allow.
    rx_malformed,
    /// Received: a wrong checksum of GRE.
    rx_checksum,
    /// Received: a control message that is not known, or too many probes of the path.
    rx_control,
    /// Received: probes of the path's MTU that were answered, and answers.
    rx_probes,
    /// Received: not from the other end of a tunnel.
    rx_peer,
    /// Received: of a family that the tunnel does not carry.
    rx_family,
    /// Received: a source inside that may not come this way.
    rx_source,
    /// Received: from an address inside for which there was no room to learn it.
    rx_full,
    /// Received: out of sequence.
    rx_sequence,
    /// Received: congestion of a packet that cannot say so.
    rx_congestion,
    /// Received: a combination of ECN fields that should not be; not dropped.
    rx_ecn_suspicious,
    /// Received without UDP: datagrams of UDP inside that the system has joined into one.
    rx_joined,
    /// Received: refused by the device, which may be down.
    rx_refused,
    /// Probes of the path's MTU that were sent.
    tx_probes,
    /// To be sent: no packet of IP.
    tx_malformed,
    /// To be sent: of a family that the tunnel does not carry.
    tx_family,
    /// To be sent: to where no other end is known; the sender was told.
    tx_unknown,
    /// To be sent: the tunnel's own packets, and those whose encapsulation limit is used up.
    tx_loop,
    /// To be sent: longer than the path allows; the sender was told.
    tx_too_big,
    /// To be sent: refused by the system.
    tx_refused,
}

impl Counters {
    /// Adds to a counter.
    #[inline]
    pub(crate) fn add(counter: &AtomicU64, count: u64) {
        counter.fetch_add(count, Ordering::Relaxed);
    }

    /// Counts a received packet that was dropped.
    pub(crate) fn dropped_in(&self, why: Drop) {
        let counter = match why {
            Drop::Malformed | Drop::TooBig | Drop::Loop | Drop::Unknown => &self.rx_malformed,
            Drop::Full => &self.rx_full,
            Drop::Joined => &self.rx_joined,
            Drop::Checksum => &self.rx_checksum,
            Drop::Control => &self.rx_control,
            Drop::Peer => &self.rx_peer,
            Drop::Family => &self.rx_family,
            Drop::Source => &self.rx_source,
            Drop::Sequence => &self.rx_sequence,
            Drop::Congestion => &self.rx_congestion,
            Drop::Refused => &self.rx_refused,
            Drop::Copy => return,
        };
        Self::add(counter, 1);
    }

    /// Counts a packet that was not sent.
    pub(crate) fn dropped_out(&self, why: Drop) {
        let counter = match why {
            Drop::Family => &self.tx_family,
            Drop::Unknown => &self.tx_unknown,
            Drop::Loop => &self.tx_loop,
            Drop::TooBig => &self.tx_too_big,
            Drop::Refused => &self.tx_refused,
            _ => &self.tx_malformed,
        };
        Self::add(counter, 1);
    }
}
