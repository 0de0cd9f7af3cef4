//! What was received and when to say so: the packet numbers to acknowledge and the schedule of
//! ACK frames (RFC 9000, Section 13.2; draft-ietf-quic-ack-frequency).

mod frequency;
mod received;
mod schedule;

pub(crate) use frequency::{AckFrequencySender, AckFrequencyTarget};
pub(crate) use received::ReceivedPackets;
pub(crate) use schedule::{AckPolicy, AckScheduler};
