//! Packet number encoding (RFC 9000, Section 17.1 and Appendix A).

use crate::{Full, Writer};

/// The largest packet number: 2^62 - 1 (RFC 9000, Section 12.3).
pub const MAX: u64 = (1 << 62) - 1;

/// The number of bytes (1 to 4) in which to send packet number `pn`, so that a receiver can
/// tell it from all numbers in flight (RFC 9000, Section 17.1 and Appendix A.2).
#[inline]
#[must_use]
pub const fn encoded_len(pn: u64, largest_acked: Option<u64>) -> usize {
    let unacked = match largest_acked {
        Some(largest) => pn.saturating_sub(largest),
        None => pn.saturating_add(1),
    };
    // The range has to be more than twice as large as the number of unacknowledged packets.
    let bits = u64::BITS.saturating_sub(unacked.leading_zeros()).saturating_add(1);
    match bits.div_ceil(8) {
        0 | 1 => 1,
        2 => 2,
        3 => 3,
        _ => 4,
    }
}

/// Writes the `len` (1 to 4) least significant bytes of `pn`; other lengths are taken as the
/// nearest allowed one.
#[inline]
pub fn encode(writer: &mut Writer<'_>, pn: u64, len: usize) -> Result<(), Full> {
    let bytes = (pn as u32).to_be_bytes();
    let start = bytes.len().saturating_sub(len.clamp(1, 4));
    writer.bytes(bytes.get(start..).unwrap_or_default())
}

/// Restores the packet number of which `truncated` holds the `pn_len` (1 to 4) lowest bytes:
/// the candidate closest to `expected`, which is the largest number received plus one
/// (RFC 9000, Appendix A.3).
#[inline]
#[must_use]
pub const fn decode(truncated: u32, pn_len: usize, expected: u64) -> u64 {
    let window: u64 = match pn_len {
        0 | 1 => 1 << 8,
        2 => 1 << 16,
        3 => 1 << 24,
        _ => 1 << 32,
    };
    let half = window / 2;
    let mask = window.saturating_sub(1);
    let candidate = (expected & !mask) | (truncated as u64 & mask);
    if candidate.saturating_add(half) <= expected && candidate <= MAX.saturating_sub(window) {
        candidate.saturating_add(window)
    } else if candidate > expected.saturating_add(half) && candidate >= window {
        candidate.saturating_sub(window)
    } else {
        candidate
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quicket_testing::Rng;

    /// RFC 9000, Appendix A.2.
    #[test]
    fn sample_lengths() {
        assert_eq!(encoded_len(0xac5c02, Some(0xabe8b3)), 2);
        assert_eq!(encoded_len(0xace8fe, Some(0xabe8b3)), 3);
    }

    /// RFC 9000, Appendix A.3.
    #[test]
    fn sample_decoding() {
        assert_eq!(decode(0x9b32, 2, 0xa82f30ea + 1), 0xa82f9b32);
    }

    #[test]
    fn lengths_grow_with_the_packets_in_flight() {
        assert_eq!(encoded_len(0, None), 1);
        assert_eq!(encoded_len(126, None), 1);
        assert_eq!(encoded_len(127, None), 2);
        assert_eq!(encoded_len(MAX, Some(MAX - 1)), 1);
        assert_eq!(encoded_len(MAX, None), 4);
        assert_eq!(encoded_len(5, Some(9)), 1);
    }

    #[test]
    fn what_is_encoded_decodes_for_any_receiver_that_saw_the_acknowledged_packet() {
        let mut rng = Rng::new(1);
        for _ in 0..20_000 {
            let acked = rng.next() & MAX >> rng.below(62);
            let in_flight = 1 + ((rng.next() & 0x7fff_fffe) >> rng.below(31));
            let pn = (acked + in_flight).min(MAX);
            let len = encoded_len(pn, Some(acked));
            let mut buffer = [0; 4];
            let mut writer = Writer::new(&mut buffer);
            encode(&mut writer, pn, len).unwrap();
            assert_eq!(writer.position(), len);
            let truncated = writer.written().iter().fold(0, |n, byte| n << 8 | u32::from(*byte));
            let largest_received = acked + rng.below(pn - acked + 1);
            assert_eq!(decode(truncated, len, largest_received + 1), pn);
        }
    }

    #[test]
    fn results_stay_within_the_number_space() {
        let mut rng = Rng::new(2);
        for expected in [0, 1, 127, 128, 255, MAX - 1, MAX] {
            for len in 1..=4 {
                for _ in 0..200 {
                    assert!(decode(rng.next() as u32, len, expected) <= MAX);
                }
            }
        }
        assert_eq!(decode(0xff, 1, 0), 0xff);
        assert_eq!(decode(0x00, 1, MAX), MAX - 0xff);
    }
}
