//! STREAM (RFC 9000, Section 19.8).

use core::fmt;

use super::{ByteCount, check_end};
use crate::{DecodeError, Frame, FrameEncode, Full, Reader, StreamId, Writer, varint};

const FIN: u64 = 0x01;
const LEN: u64 = 0x02;
const OFF: u64 = 0x04;

/// Bytes of a stream.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Stream<'a> {
    /// The stream.
    pub id: StreamId,
    /// The position of `data` in the stream, in bytes.
    pub offset: u64,
    /// Whether the stream ends with this data.
    pub fin: bool,
    /// The bytes.
    pub data: &'a [u8],
}

impl<'a> Stream<'a> {
    /// The smallest of the eight frame types.
    pub const TYPE_FIRST: u64 = 0x08;
    /// The largest of the eight frame types.
    pub const TYPE_LAST: u64 = 0x0f;

    /// Reads what follows the frame type.
    ///
    /// # Errors
    /// Data beyond offset 2^62 - 1, or truncation.
    #[inline]
    pub fn decode(frame_type: u64, reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let id = StreamId::decode(reader)?;
        let offset = if frame_type & OFF != 0 { reader.varint()? } else { 0 };
        let data =
            if frame_type & LEN != 0 { reader.bytes_with_varint_len()? } else { reader.rest() };
        // RFC 9000, Section 19.8: FRAME_ENCODING_ERROR is one of the two codes allowed here.
        check_end(offset, data, "STREAM data ends beyond 2^62-1")?;
        Ok(Self { id, offset, fin: frame_type & FIN != 0, data })
    }

    /// The fields before the data, with an explicit length.
    #[inline]
    #[must_use]
    pub const fn header(&self) -> StreamHeader {
        StreamHeader { id: self.id, offset: self.offset, len: Some(self.data.len()), fin: self.fin }
    }
}

impl FrameEncode for Stream<'_> {
    /// Writes the frame with an explicit length.
    fn encode(&self, writer: &mut Writer<'_>) -> Result<(), Full> {
        writer.all_or_nothing(|writer| {
            self.header().encode(writer)?;
            writer.bytes(self.data)
        })
    }

    fn encoded_len(&self) -> usize {
        self.header().encoded_len().saturating_add(self.data.len())
    }

    fn to_frame(&self) -> Frame<'_> {
        Frame::Stream(*self)
    }
}

impl fmt::Debug for Stream<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream")
            .field("id", &self.id)
            .field("offset", &self.offset)
            .field("fin", &self.fin)
            .field("data", &ByteCount(self.data.len()))
            .finish()
    }
}

/// The part of a STREAM frame before its data, for a sender that copies the data itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StreamHeader {
    /// The stream.
    pub id: StreamId,
    /// The position of the data in the stream, in bytes; 0 is left out of the encoding.
    pub offset: u64,
    /// The number of bytes that will follow; `None` when they extend to the end of the packet.
    pub len: Option<usize>,
    /// Whether the stream ends with this data.
    pub fin: bool,
}

impl StreamHeader {
    /// The frame type, with the OFF, LEN and FIN bits as the fields need them.
    #[inline]
    #[must_use]
    pub const fn frame_type(&self) -> u64 {
        let off = if self.offset != 0 { OFF } else { 0 };
        let len = if self.len.is_some() { LEN } else { 0 };
        let fin = if self.fin { FIN } else { 0 };
        Stream::TYPE_FIRST | off | len | fin
    }

    /// Writes the header. The caller writes exactly the announced data next.
    ///
    /// # Errors
    /// [`Full`] when the header does not fit; whether the data fits is not looked at.
    #[inline]
    pub fn encode(&self, writer: &mut Writer<'_>) -> Result<(), Full> {
        writer.all_or_nothing(|writer| {
            writer.u8(self.frame_type() as u8)?;
            writer.varint(self.id.as_u64())?;
            if self.offset != 0 {
                writer.varint(self.offset)?;
            }
            match self.len {
                Some(len) => writer.varint(len as u64),
                None => Ok(()),
            }
        })
    }

    /// The length of the header in bytes.
    #[inline]
    #[must_use]
    pub const fn encoded_len(&self) -> usize {
        let offset = if self.offset != 0 { varint::len(self.offset) } else { 0 };
        let len = match self.len {
            Some(len) => varint::len(len as u64),
            None => 0,
        };
        varint::total_len([Stream::TYPE_FIRST, self.id.as_u64()])
            .saturating_add(offset)
            .saturating_add(len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Dir, Side};

    const ID: StreamId = StreamId::new(Side::Client, Dir::Bidi, 100);

    fn header(offset: u64, len: Option<usize>, fin: bool) -> StreamHeader {
        StreamHeader { id: ID, offset, len, fin }
    }

    #[test]
    fn all_eight_types_round_trip() {
        for bits in 0..8 {
            let offset = if bits & OFF != 0 { 70_000 } else { 0 };
            let len = if bits & LEN != 0 { Some(3) } else { None };
            let header = header(offset, len, bits & FIN != 0);
            assert_eq!(header.frame_type(), 8 + bits);
            let mut buffer = [0; 32];
            let mut writer = Writer::new(&mut buffer);
            header.encode(&mut writer).unwrap();
            assert_eq!(writer.position(), header.encoded_len());
            writer.bytes(b"abc").unwrap();
            if len.is_some() {
                writer.bytes(b"next frame").unwrap();
            }
            let mut reader = Reader::new(writer.written());
            let frame_type = reader.varint().unwrap();
            let stream = Stream::decode(frame_type, &mut reader).unwrap();
            assert_eq!(stream, Stream { id: ID, offset, fin: header.fin, data: b"abc" });
            assert_eq!(reader.rest(), if len.is_some() { &b"next frame"[..] } else { b"" });
        }
    }

    /// RFC 9000, Section 19.8: offset plus length cannot exceed 2^62-1.
    #[test]
    fn data_beyond_the_last_offset_is_refused() {
        let mut buffer = [0; 32];
        let mut writer = Writer::new(&mut buffer);
        header(varint::MAX - 2, Some(3), false).encode(&mut writer).unwrap();
        writer.bytes(b"abc").unwrap();
        let mut reader = Reader::new(writer.written());
        let frame_type = reader.varint().unwrap();
        assert!(matches!(
            Stream::decode(frame_type, &mut reader),
            Err(DecodeError::InvalidValue(_))
        ));
        let mut writer = Writer::new(&mut buffer);
        header(varint::MAX - 3, Some(3), false).encode(&mut writer).unwrap();
        writer.bytes(b"abc").unwrap();
        let mut reader = Reader::new(writer.written());
        let frame_type = reader.varint().unwrap();
        assert!(Stream::decode(frame_type, &mut reader).is_ok());
    }
}
