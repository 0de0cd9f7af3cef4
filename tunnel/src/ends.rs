//! The MTU of the path to each of many other ends, for a while.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// How long the MTU of a path is believed: one that has become wider says nothing.
pub(crate) const MTU_LIFETIME: Duration = Duration::from_secs(10);
/// Of how many other ends the MTU is remembered.
const MAX_ENDS: usize = 4096;

/// What is known of paths.
#[derive(Debug, Default)]
pub(crate) struct Ends {
    known: HashMap<IpAddr, End>,
    /// Who was asked for in which order: the first is forgotten for a new one.
    order: BTreeMap<u64, IpAddr>,
    next: u64,
}

#[derive(Clone, Copy, Debug)]
struct End {
    mtu: u16,
    until: Instant,
    /// Its place in the order.
    place: u64,
}

impl Ends {
    /// The MTU of a path, if it is known and still believed.
    pub(crate) fn mtu(&self, peer: IpAddr, now: Instant) -> Option<u16> {
        self.known.get(&peer).filter(|end| now < end.until).map(|end| end.mtu)
    }

    /// Remembers one that was found out now.
    pub(crate) fn insert(&mut self, peer: IpAddr, mtu: u16, now: Instant) {
        let place = self.next;
        self.next += 1;
        if let Some(before) = self.known.insert(peer, End { mtu, until: now + MTU_LIFETIME, place })
        {
            self.order.remove(&before.place);
        }
        self.order.insert(place, peer);
        if self.known.len() > MAX_ENDS
            && let Some((_, oldest)) = self.order.pop_first()
        {
            self.known.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(number: usize) -> IpAddr {
        IpAddr::from((number as u32).to_be_bytes())
    }

    #[test]
    fn what_is_known_is_believed_for_a_while() {
        let (mut ends, now) = (Ends::default(), Instant::now());
        assert_eq!(ends.mtu(ip(1), now), None);
        ends.insert(ip(1), 1400, now);
        assert_eq!(ends.mtu(ip(1), now + MTU_LIFETIME - Duration::from_millis(1)), Some(1400));
        assert_eq!(ends.mtu(ip(1), now + MTU_LIFETIME), None);
        ends.insert(ip(1), 1300, now + MTU_LIFETIME);
        assert_eq!(ends.mtu(ip(1), now + MTU_LIFETIME), Some(1300));
    }

    #[test]
    fn the_oldest_one_is_forgotten_and_no_other() {
        let (mut ends, now) = (Ends::default(), Instant::now());
        (0..MAX_ENDS).for_each(|number| ends.insert(ip(number), 1400, now));
        // Asked for again: it is the youngest now.
        ends.insert(ip(0), 1300, now);
        ends.insert(ip(MAX_ENDS), 1200, now);
        assert_eq!(ends.mtu(ip(1), now), None);
        for (number, mtu) in [(0, 1300), (2, 1400), (MAX_ENDS - 1, 1400), (MAX_ENDS, 1200)] {
            assert_eq!(ends.mtu(ip(number), now), Some(mtu), "{number}");
        }
        (0..3 * MAX_ENDS).for_each(|number| ends.insert(ip(number % 5000), 1400, now));
        assert_eq!((ends.known.len(), ends.order.len()), (MAX_ENDS, MAX_ENDS));
    }
}
