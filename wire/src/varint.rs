//! Variable-length integers (RFC 9000, Section 16).

/// The largest value a variable-length integer can hold: 2^62 - 1.
pub const MAX: u64 = (1 << 62) - 1;

/// The longest encoding in bytes.
pub const MAX_LEN: usize = 8;

/// The largest value that fits a two-byte encoding: 2^14 - 1.
pub const MAX_2: u64 = (1 << 14) - 1;

/// Length in bytes (1, 2, 4 or 8) of the shortest encoding of `value`.
///
/// Values above [`MAX`] have no encoding; they count as 8 bytes and
/// [`Writer::varint`](crate::Writer::varint) refuses them.
#[inline]
#[must_use]
pub const fn len(value: u64) -> usize {
    if value < 1 << 6 {
        1
    } else if value < 1 << 14 {
        2
    } else if value < 1 << 30 {
        4
    } else {
        8
    }
}

/// Length in bytes of the shortest encodings of `values`, one after the other.
#[inline]
#[must_use]
pub const fn total_len<const N: usize>(values: [u64; N]) -> usize {
    let mut rest: &[u64] = &values;
    let mut total: usize = 0;
    while let [first, behind @ ..] = rest {
        total = total.saturating_add(len(*first));
        rest = behind;
    }
    total
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DecodeError, Full, Reader, Writer};

    /// RFC 9000, Appendix A.1.
    #[test]
    fn sample_encodings_decode() {
        let samples: [(&[u8], u64); 5] = [
            (&[0xc2, 0x19, 0x7c, 0x5e, 0xff, 0x14, 0xe8, 0x8c], 151_288_809_941_952_652),
            (&[0x9d, 0x7f, 0x3e, 0x7d], 494_878_333),
            (&[0x7b, 0xbd], 15_293),
            (&[0x25], 37),
            (&[0x40, 0x25], 37),
        ];
        for (bytes, value) in samples {
            let mut reader = Reader::new(bytes);
            assert_eq!(reader.varint(), Ok(value));
            assert!(reader.is_empty());
            if bytes.len() == len(value) {
                let mut buffer = [0; 8];
                let mut writer = Writer::new(&mut buffer);
                writer.varint(value).unwrap();
                assert_eq!(writer.written(), bytes);
            }
        }
    }

    #[test]
    fn every_length_boundary_round_trips_in_the_shortest_form() {
        for bits in [0, 6, 14, 30, 62] {
            for value in [(1u64 << bits) - 1, 1 << bits] {
                let mut buffer = [0; 8];
                let mut writer = Writer::new(&mut buffer);
                if value > MAX {
                    assert_eq!(writer.varint(value), Err(Full));
                    assert_eq!(writer.position(), 0);
                    continue;
                }
                writer.varint(value).unwrap();
                assert_eq!(writer.position(), len(value));
                assert_eq!(Reader::new(writer.written()).varint(), Ok(value));
            }
        }
    }

    #[test]
    fn every_truncation_is_an_error_and_consumes_nothing() {
        for first in 0..=255u8 {
            let bytes = [first; 8];
            let needed = 1 << (first >> 6);
            for have in 0..needed {
                let mut reader = Reader::new(&bytes[..have]);
                assert_eq!(reader.varint(), Err(DecodeError::Truncated));
                assert_eq!(reader.remaining(), have);
            }
            assert!(Reader::new(&bytes[..needed]).varint().is_ok());
        }
    }
}
