//! Stateless reset: tokens and datagrams (RFC 9000, Section 10.3).

use alloc::vec::Vec;

use quicket_wire::{ConnectionId, StatelessResetToken};

use crate::crypto::CryptoProvider;
use crate::random::Random;

const TOKEN_LEN: usize = 16;
/// The shortest datagram that can be a stateless reset, in bytes (RFC 9000, Section 10.3).
pub(crate) const MIN_LEN: usize = 21;
/// Triggers up to this length are answered one byte shorter; at this length a reset looks like an
/// ordinary packet whatever the length of connection IDs (RFC 9000, Section 10.3.3).
const INDISTINGUISHABLE_LEN: usize = 43;
/// Resets of longer triggers vary by up to this many bytes.
const LEN_VARIATION: usize = 32;

/// The stateless reset token of a connection ID, from the endpoint's static key
/// (RFC 9000, Section 10.3.2).
pub(crate) fn token(
    crypto: &dyn CryptoProvider,
    key: &[u8; 32],
    cid: &ConnectionId,
) -> StatelessResetToken {
    let hash = crypto.keyed_hash(key, cid.as_slice());
    let mut token = [0; TOKEN_LEN];
    token.iter_mut().zip(hash).for_each(|(t, h)| *t = h);
    StatelessResetToken(token)
}

/// Writes a stateless reset into `out` in answer to a datagram of `trigger_len` bytes; returns its
/// length. `None` if the trigger is too short to be answered by something shorter, which ends
/// loops of resets answering each other (RFC 9000, Section 10.3.3), or `out` is too small.
pub(crate) fn write(
    out: &mut [u8],
    trigger_len: usize,
    token: &StatelessResetToken,
    random: &mut dyn Random,
) -> Option<usize> {
    let shorter = trigger_len.checked_sub(1)?;
    let len = if trigger_len <= INDISTINGUISHABLE_LEN {
        shorter
    } else {
        let room = shorter.saturating_sub(INDISTINGUISHABLE_LEN - 1).min(LEN_VARIATION);
        let extra = random.below(room.saturating_add(1) as u64);
        (INDISTINGUISHABLE_LEN - 1).saturating_add(usize::try_from(extra).unwrap_or(0))
    };
    if len < MIN_LEN {
        return None;
    }
    let datagram = out.get_mut(..len)?;
    let (unpredictable, tail) = datagram.split_at_mut_checked(len.checked_sub(TOKEN_LEN)?)?;
    random.fill(unpredictable);
    // A short header with the fixed bit, like any 1-RTT packet.
    let first = unpredictable.first_mut()?;
    *first = (*first & 0x3f) | 0x40;
    tail.copy_from_slice(&token.0);
    Some(len)
}

/// The token that `datagram`, which could not be processed as a packet, carries if it is a
/// stateless reset; `None` if it is too short (RFC 9000, Section 10.3). Whether it is one of the
/// peer's tokens, [`RemoteCids::is_reset_token`](crate::cid::RemoteCids::is_reset_token) knows.
pub(crate) fn candidate_token(datagram: &[u8]) -> Option<StatelessResetToken> {
    let long_enough = Some(datagram).filter(|d| d.len() >= MIN_LEN)?;
    long_enough.last_chunk::<TOKEN_LEN>().map(|token| StatelessResetToken(*token))
}

/// A whole stateless reset as a new datagram; see [`write`].
pub(crate) fn datagram(
    trigger_len: usize,
    token: &StatelessResetToken,
    random: &mut dyn Random,
) -> Option<Vec<u8>> {
    let mut out = [0; INDISTINGUISHABLE_LEN + LEN_VARIATION];
    let len = write(&mut out, trigger_len, token, random)?;
    out.get(..len).map(Vec::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cid::test_support::{TestCrypto, TestRandom};

    const TOKEN: StatelessResetToken = StatelessResetToken([7; 16]);

    /// RFC 9000, Section 10.3.2.
    #[test]
    fn tokens_depend_on_key_and_connection_id_alone() {
        let a = ConnectionId::new(&[1, 2, 3]).unwrap();
        let b = ConnectionId::new(&[1, 2, 4]).unwrap();
        let of = |key: u8, cid| token(&TestCrypto, &[key; 32], cid).0;
        assert_eq!(of(1, &a), of(1, &a));
        assert_ne!(of(1, &a), of(1, &b));
        assert_ne!(of(1, &a), of(2, &a));
    }

    /// RFC 9000, Section 10.3.3.
    #[test]
    fn a_reset_is_always_shorter_than_its_trigger_and_never_below_21_bytes() {
        let mut random = TestRandom::new(2);
        let mut lengths = [0usize; 100];
        for trigger in 0..3000 {
            match datagram(trigger, &TOKEN, &mut random) {
                None => assert!(trigger <= MIN_LEN, "{trigger}"),
                Some(reset) => {
                    assert!(trigger > MIN_LEN && reset.len() < trigger && reset.len() >= MIN_LEN);
                    assert!(trigger > 43 || reset.len() == trigger - 1);
                    assert!(trigger <= 43 || reset.len() >= 42);
                    assert_eq!(reset[0] & 0xc0, 0x40, "short header with the fixed bit");
                    lengths[reset.len()] += 1;
                }
            }
        }
        assert!(lengths[42..74].iter().all(|&n| n > 0), "lengths vary");
        assert_eq!(write(&mut [0; 20], 1200, &TOKEN, &mut random), None);
    }

    #[test]
    fn the_unpredictable_bits_differ_each_time() {
        let mut random = TestRandom::new(5);
        let a = datagram(30, &TOKEN, &mut random).unwrap();
        let b = datagram(30, &TOKEN, &mut random).unwrap();
        assert_ne!(a[..13], b[..13]);
        assert_eq!(a[13..], b[13..]);
    }

    #[test]
    fn the_token_of_a_reset_is_its_last_16_bytes() {
        let mut random = TestRandom::new(9);
        let reset = datagram(1200, &TOKEN, &mut random).unwrap();
        assert_eq!(candidate_token(&reset), Some(TOKEN));
        assert_eq!(candidate_token(&[7; 21]), Some(TOKEN));
        assert_eq!(candidate_token(&[7; 20]), None);
    }
}
