//! Enciphering the server ID and the nonce of a connection ID
//! (draft-ietf-quic-load-balancers-21, Section 5.4).

use core::fmt;

/// What the cipher works on.
pub type Block = [u8; 16];

/// AES-128 with a key of its own.
///
/// Implementations must not take longer for some blocks than for others.
pub trait BlockCipher: Send + Sync + fmt::Debug {
    /// Enciphers one block in place.
    fn encrypt(&self, block: &mut Block);

    /// Deciphers one block in place.
    fn decrypt(&self, block: &mut Block);
}

/// Half of the longest text, rounded up.
const MAX_HALF: usize = 10;

/// Enciphers 5 to 19 octets in place: a whole block in one pass (Section 5.4.1), else in four
/// (Section 5.4.2).
pub(crate) fn encrypt(cipher: &dyn BlockCipher, text: &mut [u8]) {
    if let Ok(block) = <&mut Block>::try_from(&mut *text) {
        return cipher.encrypt(block);
    }
    let mut halves = Halves::split(text);
    halves.pass(cipher, 1);
    halves.pass(cipher, 2);
    halves.pass(cipher, 3);
    halves.pass(cipher, 4);
    halves.join(text);
}

/// Deciphers what [`encrypt`] made, in place; only the first `wanted` octets are sure to be
/// deciphered then.
pub(crate) fn decrypt(cipher: &dyn BlockCipher, text: &mut [u8], wanted: usize) {
    if let Ok(block) = <&mut Block>::try_from(&mut *text) {
        return cipher.decrypt(block);
    }
    let mut halves = Halves::split(text);
    halves.pass(cipher, 4);
    halves.pass(cipher, 3);
    halves.pass(cipher, 2);
    // With an odd length the octet in the middle belongs to both halves.
    if wanted > text.len() / 2 {
        halves.pass(cipher, 1);
    }
    halves.join(text);
}

/// The two halves of a text; of an odd number of octets each has four bits of the one in the
/// middle, the others are zero.
struct Halves {
    left: [u8; MAX_HALF],
    right: [u8; MAX_HALF],
    /// Octets of the whole text.
    len: usize,
}

impl Halves {
    fn split(text: &[u8]) -> Self {
        let mut halves = Self { left: [0; MAX_HALF], right: [0; MAX_HALF], len: text.len() };
        let half = halves.half();
        for (to, from) in halves.left.iter_mut().zip(text.iter().take(half)) {
            *to = *from;
        }
        let right = text.iter().skip(text.len().saturating_sub(half));
        for (to, from) in halves.right.iter_mut().zip(right) {
            *to = *from;
        }
        halves.clear_shared_bits();
        halves
    }

    fn join(&self, text: &mut [u8]) {
        let half = self.half();
        let skipped = self.len.saturating_sub(half);
        for to in text.iter_mut() {
            *to = 0;
        }
        for (to, from) in text.iter_mut().zip(self.left.iter().take(half)) {
            *to = *from;
        }
        for (to, from) in text.iter_mut().skip(skipped).zip(self.right.iter().take(half)) {
            *to |= *from;
        }
    }

    const fn half(&self) -> usize {
        self.len.div_ceil(2)
    }

    /// One round of the Feistel network: odd ones change the right half, even ones the left.
    fn pass(&mut self, cipher: &dyn BlockCipher, number: u8) {
        let half = self.half();
        let odd = number % 2 == 1;
        let (source, target) =
            if odd { (&self.left, &mut self.right) } else { (&self.right, &mut self.left) };
        let mut block = [0; 16];
        for (to, from) in block.iter_mut().zip(source.iter().take(half)) {
            *to = *from;
        }
        // The length has at most 19 octets.
        block[14] = self.len as u8;
        block[15] = number;
        cipher.encrypt(&mut block);
        for (to, mask) in target.iter_mut().take(half).zip(block) {
            *to ^= mask;
        }
        self.clear_shared_bits();
    }

    fn clear_shared_bits(&mut self) {
        if self.len % 2 == 1 {
            let shared = self.half().saturating_sub(1);
            if let Some(last) = self.left.get_mut(shared) {
                *last &= 0xf0;
            }
            self.right[0] &= 0x0f;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Aes, hex};
    use quicket_testing::Rng;

    /// The example of Section 5.4.2.3.
    #[test]
    fn the_drafts_example_is_enciphered_as_there() {
        let cipher = Aes::new("fdf726a9893ec05c0632d3956680baf0");
        let mut text = hex("31441a9c69c275");
        encrypt(&cipher, &mut text);
        assert_eq!(text, hex("67947d29be054a"));
        decrypt(&cipher, &mut text, 7);
        assert_eq!(text, hex("31441a9c69c275"));
    }

    #[test]
    fn every_length_comes_back_whole_and_three_passes_give_the_left_half() {
        let cipher = Aes::new("8f95f09245765f80256934e50c66207f");
        let mut rng = Rng::new(1);
        for len in 5..=19 {
            for _ in 0..50 {
                let plain = rng.bytes(len);
                let mut text = plain.clone();
                encrypt(&cipher, &mut text);
                assert_ne!(text, plain);
                let mut whole = text.clone();
                decrypt(&cipher, &mut whole, len);
                assert_eq!(whole, plain);
                decrypt(&cipher, &mut text, len / 2);
                assert_eq!(text[..len / 2], plain[..len / 2]);
            }
        }
    }
}
