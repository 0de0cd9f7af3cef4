//! Loss detection (RFC 9002): what was sent, what of it arrived, what was lost, and when to look
//! again. Congestion control is its neighbour, [`crate::congestion`].
//!
//! An ACK is handled in three steps: [`RecoverySpace::on_ack`] reports what arrived,
//! [`RecoverySpace::detect_lost`] what did not, and
//! [`PathCongestion::process`](crate::congestion::PathCongestion::process) of each path involved
//! draws the conclusions.

mod pto;
mod rtt;
mod sent;
mod space;

pub(crate) use pto::{LossTimer, SpaceId, SpaceTimes, TimerInputs, loss_detection_timer};
pub(crate) use rtt::{GRANULARITY, PERSISTENT_CONGESTION_THRESHOLD, RttEstimator};
pub(crate) use sent::{SentInfo, SentPacket};
pub(crate) use space::{
    AckOutcome, AckSink, AckedPacket, LossSink, PACKET_THRESHOLD, RecoverySpace, TIME_THRESHOLD,
};

/// Names one of a connection's paths in the packets that were sent on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct PathKey(pub(crate) u8);
