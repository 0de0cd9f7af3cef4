//! Initial sequence numbers (RFC 6528): a clock, and a hash of the ends with a secret.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use crate::segment::Ends;

/// A tick of the clock is 64 ns, as with other systems; RFC 6528, Section 3, has 4 µs. So the next connection
/// between two ends begins beyond the last one even if that was short and fast.
const TICK: u32 = 6;

/// smoltcp takes the number from a generator (a congruential one, `state * FACTOR + STEP`), whose seed it is given.
const FACTOR: u64 = 0xbb2e_fcec_3c39_611d;
const STEP: u64 = 0x7590_ef39;

/// Says with which number a connection begins.
#[derive(Debug, Default)]
pub(crate) struct InitialSequence {
    secret: RandomState,
}

impl InitialSequence {
    /// The number of a connection that begins at some time after the stack did.
    pub(crate) fn number(&self, ends: &Ends, time: Duration) -> u32 {
        let ticks = time.as_nanos() >> TICK;
        (self.secret.hash_one(ends) as u32).wrapping_add(ticks as u32)
    }
}

/// The seed with which smoltcp begins with a number. Its generator is asked once before, for the identification of
/// packets of IPv4, and again if that is zero. Should another version of it ask otherwise, the number is another one that
/// nobody can foresee, as the seed has a secret in it.
pub(crate) fn seed(number: u32) -> u64 {
    let back = inverse(FACTOR);
    let before = |state: u64| state.wrapping_sub(STEP).wrapping_mul(back);
    // The upper three bits say which 32 are the result: with zeros there, those from the 30th on.
    let mut free = 0;
    loop {
        let state = u64::from(number) << 29 | free;
        let identification = before(state);
        if identification_of(identification) != 0 {
            return before(identification);
        }
        free += 1;
    }
}

const fn identification_of(state: u64) -> u16 {
    let number = (state >> (29 - (state >> 61))) as u32;
    (number ^ (number >> 16)) as u16
}

/// The inverse of an odd number modulo 2^64: each turn of Newton's doubles the bits that are right.
const fn inverse(odd: u64) -> u64 {
    let mut inverse = odd;
    let mut bits = 3;
    while bits < 64 {
        inverse = inverse.wrapping_mul(2_u64.wrapping_sub(odd.wrapping_mul(inverse)));
        bits *= 2;
    }
    inverse
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(port: u16) -> Ends {
        let local = "192.0.2.1:80".parse().unwrap();
        Ends { local, remote: ([192, 0, 2, 2], port).into() }
    }

    /// RFC 6528, Section 3.
    #[test]
    fn numbers_of_two_ends_go_up_and_say_nothing_of_others() {
        let isn = InitialSequence::default();
        let at = |micros| isn.number(&ends(7), Duration::from_micros(micros));
        assert_eq!(at(64).wrapping_sub(at(0)), 1000);
        assert_ne!(isn.number(&ends(8), Duration::ZERO), at(0));
        assert_ne!(InitialSequence::default().number(&ends(7), Duration::ZERO), at(0));
    }

    #[test]
    fn the_inverse_is_one() {
        assert_eq!(inverse(FACTOR).wrapping_mul(FACTOR), 1);
    }
}
