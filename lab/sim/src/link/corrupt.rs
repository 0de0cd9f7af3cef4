//! Corruption: bits of the UDP payload that flip, past every checksum.

use crate::rng::SimRng;

/// Most bits that flip in one packet.
const MOST_FLIPS: u64 = 3;

/// Flips one to three bits of `payload`; the result always differs from what it was.
pub(super) fn corrupt(payload: &mut [u8], rng: &mut SimRng) -> bool {
    use quicket_engine::random::Random;

    if payload.is_empty() {
        return false;
    }
    let bits = payload.len() as u64 * 8;
    let first = rng.below(bits);
    flip(payload, first);
    for _ in 1..rng.between(1, MOST_FLIPS) {
        let other = rng.below(bits);
        // Flipping the first again would undo it.
        if other != first {
            flip(payload, other);
        }
    }
    true
}

fn flip(payload: &mut [u8], bit: u64) {
    payload[(bit / 8) as usize] ^= 1 << (bit % 8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payload_always_changes_by_a_few_bits() {
        let mut rng = SimRng::new(8);
        for len in [1, 2, 1_200] {
            for _ in 0..200 {
                let mut payload = vec![0; len];
                assert!(corrupt(&mut payload, &mut rng));
                let ones: u32 = payload.iter().map(|b| b.count_ones()).sum();
                assert!((1..=3).contains(&ones));
            }
        }
        assert!(!corrupt(&mut [], &mut rng), "an empty payload has nothing to flip");
    }
}
