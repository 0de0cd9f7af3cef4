//! ACK (RFC 9000, Section 19.3).

use core::{fmt, ops::RangeInclusive};

use crate::{DecodeError, EcnCounts, Frame, FrameEncode, Full, Reader, Writer, varint};

/// Acknowledges packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ack<'a> {
    /// The largest packet number acknowledged.
    pub largest: u64,
    /// ACK Delay as sent, not scaled: multiply by 2^ack_delay_exponent to get microseconds.
    pub delay: u64,
    /// The packet numbers acknowledged; the first range ends with `largest`.
    pub ranges: AckRanges<'a>,
    /// The ECN counts of an ACK frame of type 0x03.
    pub ecn: Option<EcnCounts>,
}

impl<'a> Ack<'a> {
    /// The frame type without ECN counts.
    pub const TYPE: u64 = 0x02;
    /// The frame type with ECN counts.
    pub const TYPE_ECN: u64 = 0x03;

    /// Reads what follows the frame type, and checks every range.
    ///
    /// # Errors
    /// A range that extends below packet number 0, or truncation. The work done is bounded by
    /// the bytes present, whatever range count the frame claims.
    #[inline]
    pub fn decode(frame_type: u64, reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let largest = reader.varint()?;
        let delay = reader.varint()?;
        let ranges = AckRanges::decode(largest, reader)?;
        let ecn = if frame_type == Self::TYPE_ECN { Some(decode_ecn(reader)?) } else { None };
        Ok(Self { largest, delay, ranges, ecn })
    }

    #[inline]
    pub(super) const fn frame_type(&self) -> u64 {
        if self.ecn.is_some() { Self::TYPE_ECN } else { Self::TYPE }
    }
}

fn decode_ecn(reader: &mut Reader<'_>) -> Result<EcnCounts, DecodeError> {
    Ok(EcnCounts { ect0: reader.varint()?, ect1: reader.varint()?, ce: reader.varint()? })
}

/// The ranges of an ACK frame: validated, but not unpacked.
#[derive(Clone, Copy)]
pub struct AckRanges<'a> {
    /// The first range.
    largest: u64,
    smallest: u64,
    /// How many ranges follow the first one.
    more: usize,
    /// Their Gap and ACK Range Length fields.
    encoded: &'a [u8],
}

impl<'a> AckRanges<'a> {
    /// The one range `first`, as for an ACK frame without gaps; `None` if it is empty.
    #[must_use]
    pub fn single(first: RangeInclusive<u64>) -> Option<Self> {
        let (smallest, largest) = first.into_inner();
        (smallest <= largest).then_some(Self { largest, smallest, more: 0, encoded: &[] })
    }

    fn decode(largest: u64, reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let count = reader.varint()?;
        let first_len = reader.varint()?;
        // RFC 9000, Section 19.3.1: a negative packet number is a FRAME_ENCODING_ERROR.
        let smallest = largest.checked_sub(first_len).ok_or(BELOW_ZERO)?;
        // Each range takes at least two bytes: do not start on a count that cannot be true.
        let more = usize::try_from(count).map_err(|_| DecodeError::Truncated)?;
        if more > reader.remaining() / 2 {
            return Err(DecodeError::Truncated);
        }
        let before = reader.peek();
        let mut lower = smallest;
        for _ in 0..more {
            lower = *next_range(lower, reader)?.start();
        }
        let used = before.len().saturating_sub(reader.remaining());
        let encoded = before.get(..used).unwrap_or_default();
        Ok(Self { largest, smallest, more, encoded })
    }

    /// The number of ranges, at least 1.
    #[inline]
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "there is always a first range")]
    pub const fn len(&self) -> usize {
        self.more.saturating_add(1)
    }

    /// The ranges, those of larger packet numbers first.
    #[inline]
    #[must_use]
    pub const fn iter(&self) -> AckRangesIter<'a> {
        AckRangesIter {
            first: Some((self.smallest, self.largest)),
            lower: self.smallest,
            more: self.more,
            reader: Reader::new(self.encoded),
        }
    }
}

const BELOW_ZERO: DecodeError = DecodeError::InvalidValue("ACK range extends below packet 0");

/// Reads the Gap and ACK Range Length that follow a range beginning with packet `lower`.
#[inline]
fn next_range(lower: u64, reader: &mut Reader<'_>) -> Result<RangeInclusive<u64>, DecodeError> {
    let gap = reader.varint()?;
    let len = reader.varint()?;
    // RFC 9000, Section 19.3.1: largest = previous smallest - gap - 2.
    let largest = lower.checked_sub(gap).and_then(|n| n.checked_sub(2)).ok_or(BELOW_ZERO)?;
    let smallest = largest.checked_sub(len).ok_or(BELOW_ZERO)?;
    Ok(smallest..=largest)
}

impl<'a> IntoIterator for AckRanges<'a> {
    type Item = RangeInclusive<u64>;
    type IntoIter = AckRangesIter<'a>;

    fn into_iter(self) -> AckRangesIter<'a> {
        self.iter()
    }
}

impl<'a> IntoIterator for &AckRanges<'a> {
    type Item = RangeInclusive<u64>;
    type IntoIter = AckRangesIter<'a>;

    fn into_iter(self) -> AckRangesIter<'a> {
        self.iter()
    }
}

impl PartialEq for AckRanges<'_> {
    /// Compares the packet numbers, however they are encoded.
    fn eq(&self, other: &Self) -> bool {
        self.more == other.more && self.iter().eq(other.iter())
    }
}

impl Eq for AckRanges<'_> {}

impl fmt::Debug for AckRanges<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// Iterates over the ranges of an ACK frame, those of larger packet numbers first.
#[derive(Clone, Debug)]
pub struct AckRangesIter<'a> {
    first: Option<(u64, u64)>,
    lower: u64,
    more: usize,
    reader: Reader<'a>,
}

impl Iterator for AckRangesIter<'_> {
    type Item = RangeInclusive<u64>;

    #[inline]
    fn next(&mut self) -> Option<RangeInclusive<u64>> {
        if let Some((smallest, largest)) = self.first.take() {
            return Some(smallest..=largest);
        }
        self.more = self.more.checked_sub(1)?;
        // The fields were checked when the frame was decoded, so this does not fail.
        let range = next_range(self.lower, &mut self.reader).ok()?;
        self.lower = *range.start();
        Some(range)
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.more.saturating_add(usize::from(self.first.is_some()));
        (left, Some(left))
    }
}

impl ExactSizeIterator for AckRangesIter<'_> {}
impl core::iter::FusedIterator for AckRangesIter<'_> {}

/// Writes an ACK frame from `ranges`, those of larger packet numbers first, and returns how
/// many of them it holds.
///
/// Ranges that do not fit are left out, as are those after the first one that is not below its
/// predecessor with at least one packet in between. Without any range nothing is written and
/// the answer is 0. With an upper bound in [`Iterator::size_hint`] of at most 64 ranges the
/// count takes one byte, otherwise two and at most 16384 ranges are written.
///
/// # Errors
/// [`Full`] when there is no room for the first range; then nothing is written.
pub fn encode_ack(
    writer: &mut Writer<'_>,
    delay: u64,
    ranges: impl IntoIterator<Item = RangeInclusive<u64>>,
    ecn: Option<EcnCounts>,
) -> Result<usize, Full> {
    let mut ranges = ranges.into_iter();
    let one_byte_count = ranges.size_hint().1.is_some_and(|most| most <= 64);
    let Some((mut lower, largest)) = ranges.next().map(RangeInclusive::into_inner) else {
        return Ok(0);
    };
    let first_len = largest.checked_sub(lower).ok_or(Full)?;
    let ecn_len = ecn.map_or(0, ecn_len);
    let most = if one_byte_count { 63 } else { varint::MAX_2 };
    writer.all_or_nothing(|writer| {
        writer.varint(if ecn.is_some() { Ack::TYPE_ECN } else { Ack::TYPE })?;
        writer.varint(largest)?;
        writer.varint(delay)?;
        let count_offset = writer.position();
        if one_byte_count {
            writer.u8(0)?
        } else {
            writer.varint_2(0)?
        }
        writer.varint(first_len)?;
        let mut more: u64 = 0;
        while more < most {
            let Some((smallest, largest)) = ranges.next().map(RangeInclusive::into_inner) else {
                break;
            };
            let gap = lower.checked_sub(largest).and_then(|distance| distance.checked_sub(2));
            let (Some(gap), Some(len)) = (gap, largest.checked_sub(smallest)) else { break };
            let needed = varint::total_len([gap, len]).saturating_add(ecn_len);
            if writer.remaining() < needed {
                break;
            }
            writer.varint(gap)?;
            writer.varint(len)?;
            lower = smallest;
            more = more.saturating_add(1);
        }
        if one_byte_count {
            writer.patch(count_offset, &[more as u8])?;
        } else {
            writer.patch_varint_2(count_offset, more)?;
        }
        if let Some(counts) = ecn {
            encode_ecn(writer, counts)?;
        }
        Ok(usize::try_from(more).unwrap_or(usize::MAX).saturating_add(1))
    })
}

const fn ecn_len(counts: EcnCounts) -> usize {
    varint::total_len([counts.ect0, counts.ect1, counts.ce])
}

fn encode_ecn(writer: &mut Writer<'_>, counts: EcnCounts) -> Result<(), Full> {
    writer.varint(counts.ect0)?;
    writer.varint(counts.ect1)?;
    writer.varint(counts.ce)
}

impl FrameEncode for Ack<'_> {
    /// Writes all ranges; see [`encode_ack`] to write as many as fit.
    fn encode(&self, writer: &mut Writer<'_>) -> Result<(), Full> {
        writer.all_or_nothing(|writer| {
            let written = encode_ack(writer, self.delay, self.ranges, self.ecn)?;
            if written == self.ranges.len() { Ok(()) } else { Err(Full) }
        })
    }

    fn encoded_len(&self) -> usize {
        let mut lower = self.ranges.smallest;
        let first_len = self.ranges.largest.saturating_sub(lower);
        let count = if self.ranges.more <= 63 { 1 } else { 2 };
        let first = [self.frame_type(), self.ranges.largest, self.delay, first_len];
        let head = varint::total_len(first).saturating_add(count);
        let ecn = self.ecn.map_or(0, ecn_len);
        self.ranges.iter().skip(1).fold(head.saturating_add(ecn), |sum, range| {
            let gap = lower.saturating_sub(*range.end()).saturating_sub(2);
            lower = *range.start();
            let len = range.end().saturating_sub(lower);
            sum.saturating_add(varint::total_len([gap, len]))
        })
    }

    #[inline]
    fn is_ack_eliciting(&self) -> bool {
        false
    }

    fn to_frame(&self) -> Frame<'_> {
        Frame::Ack(*self)
    }
}

#[cfg(test)]
#[path = "ack_tests.rs"]
mod tests;
