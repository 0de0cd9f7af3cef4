use alloc::{vec, vec::Vec};

use super::*;
use quicket_testing::Rng;

fn decode(frame_type: u64, bytes: &[u8]) -> Result<Ack<'_>, DecodeError> {
    Ack::decode(frame_type, &mut Reader::new(bytes))
}

fn ranges(ack: &Ack<'_>) -> Vec<(u64, u64)> {
    ack.ranges.iter().map(RangeInclusive::into_inner).collect()
}

fn random_len(rng: &mut Rng) -> u64 {
    (rng.next() & 0xf_ffff) >> rng.below(20)
}

/// Ranges in descending order, as an endpoint would have received packets.
fn random_ranges(rng: &mut Rng, count: u64) -> Vec<RangeInclusive<u64>> {
    let mut next = 0;
    let mut ranges = Vec::new();
    for _ in 0..count {
        let start = next + random_len(rng);
        let end = start + random_len(rng);
        ranges.push(start..=end);
        next = end + 2;
    }
    ranges.reverse();
    ranges
}

#[test]
fn gaps_and_lengths_unfold_to_packet_numbers() {
    let ack = decode(2, &[60, 7, 2, 10, 0, 5, 3, 0]).unwrap();
    assert_eq!((ack.largest, ack.delay, ack.ecn), (60, 7, None));
    assert_eq!(ranges(&ack), [(50, 60), (43, 48), (38, 38)]);
    assert_eq!(ack.ranges.iter().len(), 3);
}

#[test]
fn ecn_counts_follow_the_ranges_of_type_3() {
    let ack = decode(3, &[0, 0, 0, 0, 1, 2, 3]).unwrap();
    assert_eq!(ack.ecn, Some(EcnCounts { ect0: 1, ect1: 2, ce: 3 }));
    assert_eq!(decode(3, &[0, 0, 0, 0, 1, 2]), Err(DecodeError::Truncated));
}

/// RFC 9000, Section 19.3.1.
#[test]
fn negative_packet_numbers_are_refused() {
    assert_eq!(decode(2, &[5, 0, 0, 6]), Err(BELOW_ZERO));
    assert_eq!(decode(2, &[5, 0, 1, 0, 4, 0]), Err(BELOW_ZERO));
    assert_eq!(decode(2, &[5, 0, 1, 0, 3, 1]), Err(BELOW_ZERO));
    assert_eq!(decode(2, &[5, 0, 1, 5, 0, 0]), Err(BELOW_ZERO));
    assert_eq!(ranges(&decode(2, &[5, 0, 1, 0, 3, 0]).unwrap()), [(5, 5), (0, 0)]);
}

#[test]
fn a_range_count_beyond_the_input_is_refused() {
    let mut bytes = vec![5, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0];
    assert_eq!(decode(2, &bytes), Err(DecodeError::Truncated));
    bytes.extend([0; 100]);
    assert_eq!(decode(2, &bytes), Err(DecodeError::Truncated));
}

#[test]
fn ranges_that_do_not_fit_are_left_out_and_ecn_counts_keep_their_room() {
    let mut rng = Rng::new(3);
    let ecn = Some(EcnCounts { ect0: 1000, ect1: 0, ce: 70_000 });
    for size in 0..200 {
        let all = random_ranges(&mut rng, 64);
        let mut buffer = vec![0; size];
        let mut writer = Writer::new(&mut buffer);
        let Ok(count) = encode_ack(&mut writer, 25, all.iter().cloned(), ecn) else {
            assert_eq!(writer.position(), 0);
            assert!(size < 24);
            continue;
        };
        assert!(count >= 1);
        let ack = decode(3, &writer.written()[1..]).unwrap();
        assert_eq!(ack.ecn, ecn);
        assert!(ack.ranges.iter().eq(all[..count].iter().cloned()));
        assert_eq!(ack.encoded_len(), writer.position());
        if count < all.len() {
            assert!(writer.remaining() < 16, "room for one more range");
        }
    }
}

#[test]
fn the_range_count_takes_two_bytes_only_beyond_64_ranges() {
    let mut rng = Rng::new(4);
    for (count, expected_len) in [(64, 1), (65, 2), (300, 2)] {
        let all = random_ranges(&mut rng, count);
        let mut buffer = vec![0; 4000];
        let mut writer = Writer::new(&mut buffer);
        assert_eq!(encode_ack(&mut writer, 0, all.iter().cloned(), None), Ok(count as usize));
        let written = writer.written();
        let ack = decode(2, &written[1..]).unwrap();
        let prefix = 1 + varint::len(ack.largest) + 1;
        assert_eq!(1 << (written[prefix] >> 6), expected_len);
        assert_eq!(ack.encoded_len(), written.len());
        let mut buffer = vec![0; written.len()];
        let mut again = Writer::new(&mut buffer);
        ack.encode(&mut again).unwrap();
        assert_eq!(again.written(), written);
    }
}

#[test]
fn ranges_out_of_order_or_touching_end_the_frame() {
    let mut buffer = [0; 64];
    for second in [9..=9, 10..=12, 20..=30, RangeInclusive::new(5, 4)] {
        let mut writer = Writer::new(&mut buffer);
        assert_eq!(encode_ack(&mut writer, 0, [10..=20, second, 1..=2], None), Ok(1));
        assert_eq!(ranges(&decode(2, &writer.written()[1..]).unwrap()), [(10, 20)]);
    }
    let mut writer = Writer::new(&mut buffer);
    assert_eq!(encode_ack(&mut writer, 0, [10..=20, 0..=8], None), Ok(2));
}

#[test]
fn nothing_received_is_nothing_written() {
    let mut buffer = [0; 64];
    let mut writer = Writer::new(&mut buffer);
    assert_eq!(encode_ack(&mut writer, 0, [], None), Ok(0));
    assert_eq!(writer.position(), 0);
}

#[test]
fn all_or_none_of_the_ranges_of_a_frame_are_encoded() {
    let ack = decode(2, &[60, 7, 2, 10, 0, 5, 3, 0]).unwrap();
    let mut buffer = [0; 9];
    let mut writer = Writer::new(&mut buffer);
    assert_eq!(ack.encode(&mut Writer::new(&mut [0; 8])), Err(Full));
    ack.encode(&mut writer).unwrap();
    assert_eq!(writer.position(), ack.encoded_len());
}
