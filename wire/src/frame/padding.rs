//! PADDING (RFC 9000, Section 19.1).

use crate::{DecodeError, Frame, FrameEncode, Full, Reader, Writer};

/// A run of PADDING frames, each of which is one zero byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Padding {
    /// The length of the run in bytes, at least 1 when decoded.
    pub count: usize,
}

impl Padding {
    /// The frame type.
    pub const TYPE: u64 = 0x00;

    /// Reads the zero bytes that follow the first one.
    #[inline]
    pub fn decode(_type: u64, reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let more = leading_zero_bytes(reader.peek());
        reader.bytes(more)?;
        Ok(Self { count: more.saturating_add(1) })
    }
}

/// Counts in steps of 16 bytes: padding often fills most of a datagram.
fn leading_zero_bytes(bytes: &[u8]) -> usize {
    let (chunks, _) = bytes.as_chunks::<16>();
    let zero_chunks = chunks.iter().take_while(|chunk| **chunk == [0; 16]).count();
    let counted = zero_chunks.saturating_mul(16);
    let rest = bytes.get(counted..).unwrap_or_default();
    counted.saturating_add(rest.iter().take_while(|byte| **byte == 0).count())
}

impl FrameEncode for Padding {
    #[inline]
    fn encode(&self, writer: &mut Writer<'_>) -> Result<(), Full> {
        writer.zeros(self.count)
    }

    #[inline]
    fn encoded_len(&self) -> usize {
        self.count
    }

    #[inline]
    fn is_ack_eliciting(&self) -> bool {
        false
    }

    fn to_frame(&self) -> Frame<'_> {
        Frame::Padding(*self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_ends_at_the_first_byte_that_is_not_zero() {
        for run in 1..70 {
            let mut bytes = [0; 80];
            bytes[run] = 1;
            let mut reader = Reader::new(&bytes);
            reader.u8().unwrap();
            assert_eq!(Padding::decode(0, &mut reader), Ok(Padding { count: run }));
            assert_eq!(reader.position(), run);
            let mut reader = Reader::new(&bytes[..run]);
            reader.u8().unwrap();
            assert_eq!(Padding::decode(0, &mut reader), Ok(Padding { count: run }));
        }
    }
}
