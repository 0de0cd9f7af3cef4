//! ACK_FREQUENCY (draft-ietf-quic-ack-frequency, Section 4).

use crate::{DecodeError, Frame, FrameEncode, Full, Reader, Writer, varint};

/// Asks the peer to acknowledge more or less often.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AckFrequency {
    /// Larger numbers replace smaller ones.
    pub sequence_number: u64,
    /// How many ack-eliciting packets may stay without an acknowledgment; 0 asks for one each.
    pub ack_eliciting_threshold: u64,
    /// The max_ack_delay to apply, in microseconds. The receiver checks it against its own
    /// min_ack_delay and against 2^14 milliseconds (PROTOCOL_VIOLATION).
    pub requested_max_ack_delay: u64,
    /// The reordering, in packets, that calls for an immediate acknowledgment; 0 for never.
    pub reordering_threshold: u64,
}

impl AckFrequency {
    /// The frame type.
    pub const TYPE: u64 = 0xaf;

    /// Reads what follows the frame type.
    ///
    /// # Errors
    /// Truncation.
    #[inline]
    pub fn decode(_type: u64, reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            sequence_number: reader.varint()?,
            ack_eliciting_threshold: reader.varint()?,
            requested_max_ack_delay: reader.varint()?,
            reordering_threshold: reader.varint()?,
        })
    }
}

impl FrameEncode for AckFrequency {
    fn encode(&self, writer: &mut Writer<'_>) -> Result<(), Full> {
        writer.all_or_nothing(|writer| {
            writer.varint(Self::TYPE)?;
            writer.varint(self.sequence_number)?;
            writer.varint(self.ack_eliciting_threshold)?;
            writer.varint(self.requested_max_ack_delay)?;
            writer.varint(self.reordering_threshold)?;
            Ok(())
        })
    }

    fn encoded_len(&self) -> usize {
        varint::total_len([
            Self::TYPE,
            self.sequence_number,
            self.ack_eliciting_threshold,
            self.requested_max_ack_delay,
            self.reordering_threshold,
        ])
    }

    fn to_frame(&self) -> Frame<'_> {
        Frame::AckFrequency(*self)
    }
}
