//! What unit tests share.

use alloc::vec::Vec;

use quicket_wire::frame::StreamHeader;
use quicket_wire::{Frame, FrameEncode, Frames, Full, Writer};

use crate::frame_sink::FrameSink;
use crate::sent_frame::SentFrame;

/// A small random generator (xorshift64*), repeatable from its seed.
pub(crate) struct XorShift(u64);

impl XorShift {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `bound`, which must not be 0.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// True in `percent` of a hundred calls.
    pub(crate) fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// The payload of a packet of limited size, and what was recorded of it.
pub(crate) struct TestPacket {
    bytes: Vec<u8>,
    len: usize,
    pub(crate) sent: Vec<SentFrame>,
}

impl TestPacket {
    /// An empty packet with room for `size` bytes of frames.
    pub(crate) fn new(size: usize) -> Self {
        Self { bytes: alloc::vec![0; size], len: 0, sent: Vec::new() }
    }

    /// The frames, decoded.
    pub(crate) fn frames(&self) -> Vec<Frame<'_>> {
        if self.len == 0 {
            return Vec::new();
        }
        Frames::new(&self.bytes[..self.len]).map(|frame| frame.unwrap()).collect()
    }

    fn put(&mut self, write: impl FnOnce(&mut Writer<'_>) -> Result<(), Full>) -> Result<(), Full> {
        let mut writer = Writer::new(&mut self.bytes[self.len..]);
        write(&mut writer)?;
        self.len += writer.position();
        Ok(())
    }
}

impl FrameSink for TestPacket {
    fn remaining(&self) -> usize {
        self.bytes.len() - self.len
    }

    fn frame(&mut self, frame: &impl FrameEncode, sent: Option<SentFrame>) -> Result<(), Full> {
        self.put(|writer| frame.encode(writer))?;
        self.sent.extend(sent);
        Ok(())
    }

    fn stream_data(
        &mut self,
        header: StreamHeader,
        parts: (&[u8], &[u8]),
        sent: SentFrame,
    ) -> Result<(), Full> {
        let len = parts.0.len() + parts.1.len();
        assert_eq!(header.len.unwrap_or(len), len);
        if header.encoded_len() + len > self.remaining() {
            return Err(Full);
        }
        self.put(|writer| {
            header.encode(writer)?;
            writer.bytes(parts.0)?;
            writer.bytes(parts.1)
        })?;
        if header.len.is_none() {
            assert_eq!(self.remaining(), 0, "a frame without a length ends the packet");
        }
        self.sent.push(sent);
        Ok(())
    }
}
