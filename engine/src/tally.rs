//! The counters of a connection, which take little memory while nothing is counted.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::iter;

use crate::stats::Counters;

/// Counters, of which a quiet connection keeps no more than what is not zero.
#[derive(Default)]
pub(crate) struct Tally {
    /// `None` while they are packed.
    whole: Option<Box<Counters>>,
    /// See [`pack`].
    packed: Box<[u8]>,
}

impl Tally {
    /// The counters as they are now.
    pub(crate) fn get(&self) -> Counters {
        self.whole.as_deref().cloned().unwrap_or_else(|| unpack(&self.packed))
    }

    /// How many packets were received and authenticated.
    pub(crate) fn packets_received(&self) -> u64 {
        match &self.whole {
            Some(counters) => counters.packets_received,
            None => unpack(&self.packed).packets_received,
        }
    }

    /// For counting.
    #[inline]
    pub(crate) fn count(&mut self) -> &mut Counters {
        let packed = &mut self.packed;
        self.whole.get_or_insert_with(|| wake(packed))
    }

    /// Gives memory back until something is counted.
    pub(crate) fn trim(&mut self) {
        if let Some(mut counters) = self.whole.take() {
            self.packed = pack(&mut counters);
        }
    }
}

#[cold]
#[inline(never)]
fn wake(packed: &mut Box<[u8]>) -> Box<Counters> {
    let packed = core::mem::take(packed);
    Box::new(unpack(&packed))
}

/// Each counter in pieces of seven bits, the lowest first, of which all but the last have the eighth bit
/// set; after a zero, as one byte, how many more there are of them.
fn pack(counters: &mut Counters) -> Box<[u8]> {
    let mut packed = Vec::new();
    let mut zeros = 0_u8;
    for &mut mut value in counters.each() {
        if value == 0 && zeros < u8::MAX {
            zeros = zeros.saturating_add(1);
            continue;
        }
        put_zeros(&mut packed, &mut zeros);
        while value >= 0x80 {
            packed.push(value.to_le_bytes()[0] | 0x80);
            value >>= 7;
        }
        packed.push(value.to_le_bytes()[0]);
    }
    // Those at the end need not be said.
    packed.into_boxed_slice()
}

fn put_zeros(packed: &mut Vec<u8>, zeros: &mut u8) {
    if let Some(more) = core::mem::take(zeros).checked_sub(1) {
        packed.extend([0, more]);
    }
}

fn unpack(packed: &[u8]) -> Counters {
    let mut counters = Counters::default();
    let mut bytes = packed.iter();
    let mut values = iter::from_fn(|| {
        let (mut value, mut shift) = (0_u64, 0_u32);
        loop {
            let byte = *bytes.next()?;
            value |= u64::from(byte & 0x7f).wrapping_shl(shift);
            shift = shift.saturating_add(7);
            if byte < 0x80 {
                break;
            }
        }
        let more = if value == 0 { *bytes.next()? } else { 0 };
        Some(iter::repeat_n(value, usize::from(more).saturating_add(1)))
    })
    .flatten();
    for counter in counters.each() {
        *counter = values.next().unwrap_or(0);
    }
    counters
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_counted_is_the_same_after_a_rest() {
        let mut tally = Tally::default();
        assert_eq!(tally.get(), Counters::default());
        tally.trim();
        assert_eq!((tally.get(), tally.packed.len()), (Counters::default(), 0));
        for (at, value) in [(0, 1), (5, u64::MAX), (6, 0x7f), (7, 0x80), (40, 1 << 62)] {
            *tally.count().each().nth(at).unwrap() = value;
            let before = tally.get();
            tally.trim();
            assert!(tally.whole.is_none());
            assert_eq!(tally.get(), before);
            tally.count().packets_lost += 1;
            assert_eq!(tally.get().packets_lost, before.packets_lost + 1);
            assert!(tally.packed.is_empty());
        }
        let last = tally.count().each().count() - 1;
        for (at, value) in tally.count().each().enumerate() {
            *value = (at as u64) << (at % 60);
        }
        let before = tally.get();
        tally.trim();
        assert_eq!(tally.get(), before);
        *tally.count().each().nth(last).unwrap() = 0;
        tally.trim();
        assert_eq!(tally.get().frames_received.of_type(0xaf), 0);
    }

    #[test]
    fn few_counters_take_few_bytes() {
        let mut tally = Tally::default();
        tally.count().udp_sent(1200);
        tally.count().frames_sent.add(0x06, 3);
        tally.trim();
        assert!(tally.packed.len() < 16, "{}", tally.packed.len());
    }
}
