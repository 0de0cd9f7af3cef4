//! A ClientHello put together from CRYPTO frames in any order (RFC 9000, Section 19.6).

use std::ops::Range;

use quicket_wire::ClientHello;

use super::Unread;

/// The longest ClientHello that is put together: ten datagrams full. One with post-quantum key shares
/// fills two.
pub const MAX_HELLO: usize = 16_384;
/// How many pieces beyond gaps are followed.
pub const MAX_PIECES: usize = 32;

/// The beginning of the CRYPTO stream.
#[derive(Clone, Debug, Default)]
pub(super) struct Assembly {
    bytes: Vec<u8>,
    /// What is there: sorted, apart from each other.
    pieces: Vec<Range<usize>>,
}

impl Assembly {
    /// How much memory it takes.
    pub(super) const fn cost(&self) -> usize {
        self.bytes.len()
    }

    /// Takes in a frame. What was there before counts.
    pub(super) fn add(&mut self, offset: u64, data: &[u8]) -> Result<(), Unread> {
        let start = usize::try_from(offset).map_err(|_| Unread::TooLarge)?;
        let end = start.checked_add(data.len()).filter(|end| *end <= MAX_HELLO);
        let end = end.ok_or(Unread::TooLarge)?;
        if data.is_empty() {
            return Ok(());
        }
        // Those that the new one touches become one with it.
        let first = self.pieces.partition_point(|piece| piece.end < start);
        let last = self.pieces.partition_point(|piece| piece.start <= end);
        let touched = self.pieces.get(first..last).unwrap_or_default();
        if touched.is_empty() && self.pieces.len() >= MAX_PIECES {
            return Err(Unread::TooLarge);
        }
        let whole = touched
            .iter()
            .fold(start..end, |all, piece| all.start.min(piece.start)..all.end.max(piece.end));
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        if let Some(room) = self.bytes.get_mut(start..end) {
            room.copy_from_slice(data);
        }
        self.pieces.splice(first..last, [whole]);
        Ok(())
    }

    /// The ClientHello, once all of it is there.
    pub(super) fn message(&self) -> Result<Option<&[u8]>, Unread> {
        let beginning = self.pieces.first().filter(|piece| piece.start == 0);
        let Some(beginning) = beginning.and_then(|piece| self.bytes.get(piece.clone())) else {
            return Ok(None);
        };
        match ClientHello::message_len(beginning) {
            Ok(Some(len)) if len > MAX_HELLO => Err(Unread::TooLarge),
            Ok(len) => Ok(len.and_then(|len| beginning.get(..len))),
            Err(_) => Err(Unread::NoClientHello),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::client_hello;
    use quicket_testing::Rng;

    #[test]
    fn pieces_in_any_order_make_the_message() {
        let mut rng = Rng::new(3);
        for round in 0..500 {
            let message = client_hello(Some("a.org"), &["h3"], 10 + rng.index(6000));
            let mut pieces: Vec<Range<usize>> = Vec::new();
            let mut at = 0;
            while at < message.len() {
                let end = (at + 1 + rng.index(900)).min(message.len());
                // Now and then with something that was there before.
                pieces.push(at.saturating_sub(rng.index(3) * 40)..end);
                at = end;
            }
            pieces.extend(pieces.clone().into_iter().take(rng.index(3)));
            for at in (1..pieces.len()).rev() {
                pieces.swap(at, rng.index(at + 1));
            }
            let mut assembly = Assembly::default();
            let mut missing: Vec<bool> = vec![true; message.len()];
            for piece in pieces {
                missing[piece.clone()].fill(false);
                assembly.add(piece.start as u64, &message[piece]).unwrap();
                let whole = !missing.contains(&true);
                assert_eq!(assembly.message(), Ok(whole.then_some(&message[..])), "round {round}");
                assert!(assembly.pieces.is_sorted_by(|a, b| a.end < b.start));
            }
            assert_eq!(assembly.pieces.len(), 1);
        }
    }

    #[test]
    fn what_a_stranger_can_make_it_hold_is_bounded() {
        let mut assembly = Assembly::default();
        assert_eq!(assembly.add(MAX_HELLO as u64, &[0]), Err(Unread::TooLarge));
        assert_eq!(assembly.add(u64::MAX, &[0]), Err(Unread::TooLarge));
        for piece in 0..MAX_PIECES as u64 {
            assert_eq!(assembly.add(1 + piece * 2, &[0]), Ok(()));
        }
        assert_eq!(assembly.add(1000, &[0]), Err(Unread::TooLarge));
        assert_eq!(assembly.message(), Ok(None));
        assert_eq!(assembly.add(0, &[1, 1, 1, 1]), Ok(()), "what closes gaps is welcome");
        assert_eq!(assembly.message(), Err(Unread::TooLarge), "of the length that it says");
        let mut other = Assembly::default();
        other.add(0, &[2, 0, 0, 5]).unwrap();
        assert_eq!(other.message(), Err(Unread::NoClientHello));
    }
}
