//! Which ports are queues of another one, and which of them has a flow.

use crate::frame::Ends;
use crate::registry::{Owner, fold};

/// Queues of a port, its own one among them.
pub const MAX_QUEUES: usize = 64;

/// The queues of all ports that have more than one.
#[derive(Debug, Default)]
pub(crate) struct Queues {
    /// By the port, which is the first of its queues. Empty where it is the only one.
    of: Vec<Vec<Owner>>,
    seed: [u64; 3],
}

impl Queues {
    /// The seed keeps others from choosing flows that one queue has.
    pub(crate) const fn new(seed: [u64; 3]) -> Self {
        Self { of: Vec::new(), seed }
    }

    /// Adds a queue to a port. Returns whether there may be one more.
    pub(crate) fn add(&mut self, port: Owner, queue: Owner) -> bool {
        let at = port as usize;
        if self.of.len() <= at {
            self.of.resize_with(at + 1, Vec::new);
        }
        let Some(queues) = self.of.get_mut(at) else { return false };
        if queues.is_empty() {
            queues.push(port);
        }
        if queues.len() >= MAX_QUEUES {
            return false;
        }
        queues.push(queue);
        true
    }

    /// The queues of a port, which is the first of them.
    pub(crate) fn all(&self, port: Owner) -> impl Iterator<Item = Owner> {
        let more = self.of.get(port as usize).into_iter().flatten().copied().skip(1);
        std::iter::once(port).chain(more)
    }

    /// Forgets a port, or the queue of one.
    pub(crate) fn forget(&mut self, number: Owner) {
        if let Some(queues) = self.of.get_mut(number as usize) {
            queues.clear();
        }
        for queues in self.of.iter_mut().filter(|queues| !queues.is_empty()) {
            queues.retain(|queue| *queue != number);
        }
        // Without any there is nothing to look up.
        if self.of.iter().all(Vec::is_empty) {
            self.of.clear();
        }
    }

    /// The queue of a port that has a flow.
    #[inline]
    pub(crate) fn choose(&self, port: Owner, ends: &Ends) -> Owner {
        match self.of.get(port as usize) {
            Some(queues) if !queues.is_empty() => self.spread(queues, ends),
            _ => port,
        }
    }

    #[inline(never)]
    fn spread(&self, queues: &[Owner], ends: &Ends) -> Owner {
        let [a, b, c] = self.seed;
        let mut hash = c;
        for key in [ends.source, ends.destination] {
            hash = fold(hash ^ key.address as u64 ^ a, (key.address >> 64) as u64 ^ b);
            hash = fold(hash ^ u64::from(key.rest), c);
        }
        // The upper half of a product is as evenly spread as the hash.
        let at = ((u128::from(hash) * queues.len() as u128) >> 64) as usize;
        queues.get(at).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tuple::Key;

    fn flow(n: u16) -> Ends {
        let source = Key::v4([192, 0, 2, (n >> 8) as u8], 17, n);
        Ends { source, destination: Key::v4([192, 0, 2, 200], 17, 7) }
    }

    #[test]
    fn flows_are_spread_evenly_and_each_stays_where_it_is() {
        let mut queues = Queues::new([0x243f_6a88_85a3_08d3, 0x1319_8a2e_0370_7344, 3]);
        assert_eq!(queues.choose(5, &flow(1)), 5);
        assert!(queues.all(5).eq([5]));
        for queue in [7, 8, 9] {
            assert!(queues.add(5, queue));
        }
        assert!(queues.all(5).eq([5, 7, 8, 9]));
        let mut counts = [0; 10];
        for n in 0..8000 {
            let chosen = queues.choose(5, &flow(n));
            assert_eq!(queues.choose(5, &flow(n)), chosen);
            counts[chosen as usize] += 1;
        }
        for queue in [5, 7, 8, 9] {
            assert!((1800..2200).contains(&counts[queue]), "{counts:?}");
        }
        // Others have what they had.
        assert_eq!((queues.choose(4, &flow(1)), queues.choose(7, &flow(1))), (4, 7));
        queues.forget(8);
        assert!((0..8000).all(|n| queues.choose(5, &flow(n)) != 8));
        queues.forget(5);
        assert_eq!(queues.choose(5, &flow(1)), 5);
        assert!(queues.of.is_empty());
    }

    #[test]
    fn there_are_so_many_queues_and_no_more() {
        let mut queues = Queues::new([1, 2, 3]);
        let added = (10..1000).take_while(|queue| queues.add(0, *queue)).count();
        assert_eq!((added, queues.all(0).count()), (MAX_QUEUES - 1, MAX_QUEUES));
    }
}
