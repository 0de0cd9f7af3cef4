//! The payload of a packet, frame by frame.

use std::ops::RangeInclusive;

use quicket_wire::frame::encode_ack;
use quicket_wire::{EcnCounts, FrameEncode, StreamId, Writer, frame};

/// Frames for one packet, or bytes that are none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Payload(Vec<u8>);

impl Payload {
    /// An empty payload.
    pub fn new() -> Self {
        Self::default()
    }

    /// A payload of one frame.
    pub fn of(frame: &impl FrameEncode) -> Self {
        Self::new().frame(frame)
    }

    /// Adds a frame.
    ///
    /// # Panics
    /// If it cannot be written, as with a number above 2^62 - 1.
    #[must_use]
    pub fn frame(mut self, frame: &impl FrameEncode) -> Self {
        self.push(frame);
        self
    }

    /// Adds a frame.
    ///
    /// # Panics
    /// If it cannot be written, as with a number above 2^62 - 1.
    pub fn push(&mut self, frame: &impl FrameEncode) {
        let start = self.0.len();
        self.0.resize(start + frame.encoded_len(), 0);
        let mut writer = Writer::new(&mut self.0[start..]);
        frame.encode(&mut writer).expect("there is room for the frame");
    }

    /// Adds bytes as they are.
    #[must_use]
    pub fn raw(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }

    /// Adds a STREAM frame.
    pub fn stream(&mut self, id: StreamId, offset: u64, data: &[u8], fin: bool) {
        self.push(&frame::Stream { id, offset, fin, data });
    }

    /// Adds an ACK frame for these packet numbers, the largest first.
    ///
    /// # Panics
    /// If there is no range.
    #[must_use]
    pub fn ack(
        mut self,
        delay: u64,
        ranges: &[RangeInclusive<u64>],
        ecn: Option<EcnCounts>,
    ) -> Self {
        let mut buf = vec![0; 64 + 16 * ranges.len()];
        let mut writer = Writer::new(&mut buf);
        let written = encode_ack(&mut writer, delay, ranges.iter().cloned(), ecn);
        assert_eq!(written, Ok(ranges.len()), "the ranges are in order");
        let len = writer.position();
        self.0.extend_from_slice(&buf[..len]);
        self
    }

    /// Its length in bytes.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True if there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}
