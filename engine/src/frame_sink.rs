//! The one place through which frames enter a packet under construction.

use quicket_wire::frame::StreamHeader;
use quicket_wire::{FrameEncode, Full};

use crate::sent_frame::SentFrame;

/// A packet under construction.
///
/// Each method either writes the whole frame, counts it, logs it and records `sent` for the day
/// the packet is acknowledged or lost, or changes nothing and returns [`Full`].
pub(crate) trait FrameSink {
    /// How many bytes of frames still fit.
    fn remaining(&self) -> usize;

    /// Writes a frame. `sent` is `None` for frames whose fate nobody follows.
    fn frame(&mut self, frame: &impl FrameEncode, sent: Option<SentFrame>) -> Result<(), Full>;

    /// Writes a STREAM frame whose data is `parts.0` followed by `parts.1`. A header without a
    /// length ends the packet: nothing is written behind it (RFC 9000, Section 19.8).
    fn stream_data(
        &mut self,
        header: StreamHeader,
        parts: (&[u8], &[u8]),
        sent: SentFrame,
    ) -> Result<(), Full>;
}
