//! The CRYPTO data of one encryption level (RFC 9000, Section 7.5).

use core::ops::Range;

use quicket_wire::TransportErrorCode;
use quicket_wire::frame::Crypto;

use crate::error::TransportError;
use crate::frame_sink::FrameSink;
use crate::sent_frame::SentFrame;
use crate::streams::{AssembleError, Assembler, BufferPool, OutOfMemory, SendBuffer};

/// The least that a peer may count on being buffered, in bytes (RFC 9000, Section 7.5).
const MIN_LIMIT: usize = 4096;

/// How many pieces beyond a gap are followed.
const MAX_PIECES: usize = 1024;

/// Handshake messages of one level in both directions: no flow control, no end.
#[derive(Debug)]
pub(crate) struct CryptoStream {
    received: Assembler,
    to_send: SendBuffer,
    limit: u64,
}

/// Keeps nothing: handshakes are short, and connections many.
const fn no_pool() -> BufferPool {
    BufferPool::new(0)
}

impl CryptoStream {
    /// A stream that buffers `limit` bytes beyond what has been read, but not less than 4096.
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            received: Assembler::new(MAX_PIECES),
            to_send: SendBuffer::new(),
            limit: limit.max(MIN_LIMIT) as u64,
        }
    }

    /// Gives back memory that what is lost and what came out of order took.
    pub(crate) fn trim(&mut self) {
        self.received.trim();
        self.to_send.trim();
    }

    /// Takes in a CRYPTO frame.
    pub(crate) fn on_frame(&mut self, frame: &Crypto<'_>) -> Result<(), TransportError> {
        let end = frame.offset.saturating_add(frame.data.len() as u64);
        if end > self.received.consumed().saturating_add(self.limit) {
            return Err(exceeded("handshake data beyond the buffer"));
        }
        let result = self.received.insert(frame.offset, frame.data, &mut no_pool());
        result.map(drop).map_err(|error| match error {
            AssembleError::TooManyGaps => exceeded("too many gaps in the handshake data"),
            AssembleError::OutOfMemory => out_of_memory(),
        })
    }

    /// Received data in order: the next contiguous part. Take it with [`Self::consume`] and ask
    /// again until it is empty.
    pub(crate) fn readable(&self) -> &[u8] {
        self.received.peek().0
    }

    /// True if data waits beyond a gap: the peer's flight is incomplete.
    #[cfg(test)]
    pub(crate) fn has_gap(&self) -> bool {
        self.received.pieces_ahead() > 0
    }

    /// Takes `len` bytes of what [`Self::readable`] shows.
    pub(crate) fn consume(&mut self, len: usize) {
        self.received.consume(len, &mut no_pool());
    }

    /// Adds handshake messages to send.
    pub(crate) fn write(&mut self, data: &[u8]) -> Result<(), TransportError> {
        self.to_send.write(data, &mut no_pool()).map_err(|OutOfMemory| out_of_memory())
    }

    /// True if there is anything to send, for the first time or again.
    pub(crate) fn has_pending(&self) -> bool {
        self.to_send.first_lost().is_some() || self.to_send.unsent() > 0
    }

    /// True if anything that was sent awaits acknowledgment.
    pub(crate) fn has_unacked(&self) -> bool {
        !self.to_send.is_all_acked()
    }

    /// The next piece to send, of at most `max_len` bytes, and its offset: what was lost before
    /// what is new. Follow with [`Self::on_sent`].
    pub(crate) fn next_frame(&self, max_len: usize) -> Option<Crypto<'_>> {
        let next = self.to_send.next()..self.to_send.end();
        let range = self.to_send.first_lost().unwrap_or(next);
        let end = range.end.min(range.start.saturating_add(max_len as u64));
        let (data, _) = self.to_send.slices(range.start..end);
        (!data.is_empty()).then_some(Crypto { offset: range.start, data })
    }

    /// Notes that the piece from [`Self::next_frame`] was sent.
    pub(crate) fn on_sent(&mut self, offset: u64, len: usize) {
        self.to_send.on_sent(offset..offset.saturating_add(len as u64));
    }

    /// Writes as much as fits into a packet.
    pub(crate) fn write_frames(&mut self, sink: &mut impl FrameSink) {
        loop {
            let room = sink.remaining();
            let offset = self.to_send.first_lost().map_or(self.to_send.next(), |lost| lost.start);
            let overhead = Crypto::header_len(offset, room);
            let Some(frame) = self.next_frame(room.saturating_sub(overhead)) else { return };
            let (offset, len) = (frame.offset, frame.data.len());
            let sent_len = u32::try_from(len).unwrap_or(u32::MAX);
            let sent = SentFrame::Crypto { offset, len: sent_len };
            if sink.frame(&frame, Some(sent)).is_err() {
                return;
            }
            self.on_sent(offset, len);
        }
    }

    /// The peer has these bytes.
    pub(crate) fn on_acked(&mut self, offset: u64, len: u32) {
        self.to_send.on_acked(sent(offset, len), &mut no_pool());
    }

    /// A packet with these bytes was lost.
    pub(crate) fn on_lost(&mut self, offset: u64, len: u32) {
        self.to_send.on_lost(sent(offset, len));
    }

    /// Sends everything that is not acknowledged again: after a Retry, or to fill a probe.
    pub(crate) fn resend_all(&mut self) {
        self.to_send.on_lost(0..u64::MAX);
    }
}

fn sent(offset: u64, len: u32) -> Range<u64> {
    offset..offset.saturating_add(u64::from(len))
}

fn exceeded(reason: &'static str) -> TransportError {
    TransportError::at(TransportErrorCode::CRYPTO_BUFFER_EXCEEDED, Crypto::TYPE, reason)
}

fn out_of_memory() -> TransportError {
    TransportError::new(TransportErrorCode::INTERNAL_ERROR, "out of memory for handshake data")
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use quicket_wire::Frame;

    use super::*;
    use crate::testing::{TestPacket, XorShift};

    fn frame(offset: u64, data: &[u8]) -> Crypto<'_> {
        Crypto { offset, data }
    }

    fn read_all(stream: &mut CryptoStream) -> Vec<u8> {
        let mut all = Vec::new();
        while !stream.readable().is_empty() {
            let part = stream.readable().to_vec();
            stream.consume(part.len());
            all.extend(part);
        }
        all
    }

    #[test]
    fn messages_are_read_in_order() {
        let mut stream = CryptoStream::new(0);
        stream.on_frame(&frame(3, b"defg")).unwrap();
        assert!(stream.readable().is_empty() && stream.has_gap());
        stream.on_frame(&frame(0, b"abcd")).unwrap();
        assert_eq!(read_all(&mut stream), b"abcdefg");
        assert!(!stream.has_gap());
    }

    #[test]
    fn data_beyond_the_buffer_closes_the_connection() {
        // RFC 9000, Section 7.5
        let mut stream = CryptoStream::new(5000);
        stream.on_frame(&frame(4000, &[0; 1000])).unwrap();
        let error = stream.on_frame(&frame(5000, &[0])).unwrap_err();
        assert_eq!(error.code, TransportErrorCode::CRYPTO_BUFFER_EXCEEDED);
        stream.on_frame(&frame(0, &[0; 4000])).unwrap();
        read_all(&mut stream);
        stream.on_frame(&frame(9999, &[0])).unwrap();
        assert!(stream.on_frame(&frame(10_000, &[0])).is_err());
    }

    #[test]
    fn at_least_4096_bytes_are_buffered() {
        // RFC 9000, Section 7.5
        let mut stream = CryptoStream::new(1);
        assert!(stream.on_frame(&frame(4095, &[0])).is_ok());
        assert!(stream.on_frame(&frame(4096, &[0])).is_err());
    }

    #[test]
    fn scattered_pieces_are_bounded() {
        let mut stream = CryptoStream::new(1 << 20);
        for at in 0..MAX_PIECES as u64 {
            stream.on_frame(&frame(1 + 2 * at, &[0])).unwrap();
        }
        let error = stream.on_frame(&frame(1 << 19, &[0])).unwrap_err();
        assert_eq!(error.code, TransportErrorCode::CRYPTO_BUFFER_EXCEEDED);
    }

    #[test]
    fn a_flight_survives_loss_in_any_pattern() {
        let mut rng = XorShift::new(21);
        let (mut sender, mut receiver) = (CryptoStream::new(0), CryptoStream::new(1 << 16));
        let data: Vec<u8> = (0..30_000u32).map(|n| (n * 7) as u8).collect();
        for part in data.chunks(7000) {
            sender.write(part).unwrap();
        }
        while sender.has_unacked() {
            let mut packet = TestPacket::new(40 + rng.below(1200) as usize);
            sender.write_frames(&mut packet);
            let delivered = rng.chance(60);
            if delivered {
                for frame in packet.frames() {
                    let Frame::Crypto(crypto) = frame else { panic!("{frame:?}") };
                    receiver.on_frame(&crypto).unwrap();
                }
            }
            for sent in packet.sent {
                let SentFrame::Crypto { offset, len } = sent else { panic!("{sent:?}") };
                if delivered {
                    sender.on_acked(offset, len);
                } else {
                    sender.on_lost(offset, len);
                }
            }
        }
        assert!(!sender.has_pending());
        assert_eq!(read_all(&mut receiver), data);
    }

    #[test]
    fn everything_unacknowledged_can_be_sent_again() {
        let mut stream = CryptoStream::new(0);
        stream.write(b"hello world").unwrap();
        stream.on_sent(0, 8);
        stream.on_acked(0, 2);
        stream.resend_all();
        let first = stream.next_frame(100).unwrap();
        assert_eq!((first.offset, first.data), (2, &b"llo wo"[..]));
    }
}
