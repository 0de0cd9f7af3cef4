//! NEW_CONNECTION_ID (RFC 9000, Section 19.15).

use crate::{
    ConnectionId, DecodeError, Frame, FrameEncode, Full, Reader, StatelessResetToken, Writer,
    varint,
};

/// Offers a connection ID to the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NewConnectionId {
    /// The sequence number of the connection ID.
    pub sequence_number: u64,
    /// Connection IDs with a smaller sequence number have to be retired.
    pub retire_prior_to: u64,
    /// The connection ID, 1 to 20 bytes.
    pub connection_id: ConnectionId,
    /// The token that resets the connection statelessly.
    pub stateless_reset_token: StatelessResetToken,
}

impl NewConnectionId {
    /// The frame type.
    pub const TYPE: u64 = 0x18;

    /// Reads what follows the frame type.
    ///
    /// # Errors
    /// A connection ID of less than 1 or more than 20 bytes, retiring the offered connection
    /// ID itself, or truncation.
    pub fn decode(_type: u64, reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let sequence_number = reader.varint()?;
        let retire_prior_to = reader.varint()?;
        let connection_id = ConnectionId::decode_with_len(reader)?;
        let stateless_reset_token = StatelessResetToken(*reader.array()?);
        // RFC 9000, Section 19.15: both are FRAME_ENCODING_ERROR.
        if connection_id.is_empty() {
            return Err(DecodeError::InvalidValue("NEW_CONNECTION_ID without a connection ID"));
        }
        if retire_prior_to > sequence_number {
            return Err(DecodeError::InvalidValue("NEW_CONNECTION_ID retires itself"));
        }
        Ok(Self { sequence_number, retire_prior_to, connection_id, stateless_reset_token })
    }
}

impl FrameEncode for NewConnectionId {
    fn encode(&self, writer: &mut Writer<'_>) -> Result<(), Full> {
        writer.all_or_nothing(|writer| {
            writer.varint(Self::TYPE)?;
            writer.varint(self.sequence_number)?;
            writer.varint(self.retire_prior_to)?;
            writer.u8(self.connection_id.len() as u8)?;
            writer.bytes(self.connection_id.as_slice())?;
            writer.bytes(&self.stateless_reset_token.0)
        })
    }

    fn encoded_len(&self) -> usize {
        varint::total_len([Self::TYPE, self.sequence_number, self.retire_prior_to])
            .saturating_add(1 + StatelessResetToken::LEN)
            .saturating_add(self.connection_id.len())
    }

    fn to_frame(&self) -> Frame<'_> {
        Frame::NewConnectionId(*self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(sequence: u8, retire_prior_to: u8, len: u8) -> Result<NewConnectionId, DecodeError> {
        let mut bytes = [9; 3 + 255 + 16];
        bytes[..3].copy_from_slice(&[sequence, retire_prior_to, len]);
        NewConnectionId::decode(0x18, &mut Reader::new(&bytes))
    }

    /// RFC 9000, Section 19.15.
    #[test]
    fn the_length_has_to_be_1_to_20() {
        for len in 0..=255 {
            assert_eq!(decode(1, 1, len).is_ok(), (1..=20).contains(&len), "length {len}");
        }
    }

    /// RFC 9000, Section 19.15.
    #[test]
    fn an_offered_connection_id_cannot_be_retired_at_once() {
        assert!(decode(3, 3, 8).is_ok());
        assert!(matches!(decode(3, 4, 8), Err(DecodeError::InvalidValue(_))));
    }
}
