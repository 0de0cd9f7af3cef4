//! Ways out: which device leads to an address, and the next hop's address of Ethernet.
//!
//! The system's tables say so. What they have said is remembered for a second, so that a change of them is followed
//! within that time.

use std::collections::HashMap;
use std::io;
use std::time::{Duration, Instant};

use super::netlink::{LOOPBACK, Neighbour, Netlink, Route};
use crate::counters::Reason;
use crate::frame::Ends;
use crate::tuple::Tuple;

/// Pairs of addresses whose way is remembered.
pub const MAX_WAYS: usize = 4096;
/// For how long.
const WAY_TIME: Duration = Duration::from_secs(1);
/// How long there is no other look for a neighbour that has not answered yet.
const NEIGHBOUR_TIME: Duration = Duration::from_millis(20);

/// The way to an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// By a device, to its neighbour. `mtu` is that of the route, where it is known.
    By { device: u32, mac: [u8; 6], mtu: Option<u32> },
    /// There is none, or the neighbour's address is not known yet.
    Closed(Reason),
}

/// Source and destination.
type Pair = (u128, u128);

#[derive(Clone, Copy, Debug)]
struct Known {
    way: Way,
    until: Instant,
}

/// Ways that are known, and the tables.
#[derive(Debug)]
pub(super) struct Ways {
    tables: Netlink,
    known: HashMap<Pair, Known>,
    /// The one that was asked for last: frames come in trains.
    last: Option<(Pair, Known)>,
}

impl Ways {
    /// By the tables of this thread's network namespace.
    pub(super) fn open() -> io::Result<Self> {
        Ok(Self { tables: Netlink::open()?, known: HashMap::new(), last: None })
    }

    /// The tables.
    pub(super) const fn tables(&mut self) -> &mut Netlink {
        &mut self.tables
    }

    /// Forgets all: devices have changed.
    pub(super) fn forget(&mut self) {
        self.known.clear();
        self.last = None;
    }

    /// The way between the ends of a frame. The tables are asked `looks` times at most, which then is less.
    #[inline]
    pub(super) fn find(&mut self, ends: &Ends, now: Instant, looks: &mut u32) -> Way {
        let pair = (ends.source.address, ends.destination.address);
        match self.last {
            Some((last, known)) if last == pair && now < known.until => known.way,
            _ => self.look(pair, ends, now, looks),
        }
    }

    #[cold]
    fn look(&mut self, pair: Pair, ends: &Ends, now: Instant, looks: &mut u32) -> Way {
        let known = self.known.get(&pair).copied().filter(|known| now < known.until);
        let known = match known {
            Some(known) => known,
            None if *looks == 0 => return Way::Closed(Reason::Route),
            None => {
                *looks -= 1;
                let way = self.ask(ends);
                let time = match way {
                    Way::Closed(Reason::Neighbour) => NEIGHBOUR_TIME,
                    _ => WAY_TIME,
                };
                let known = Known { way, until: now + time };
                self.remember(pair, known, now);
                known
            }
        };
        self.last = Some((pair, known));
        known.way
    }

    fn remember(&mut self, pair: Pair, known: Known, now: Instant) {
        if self.known.len() >= MAX_WAYS {
            self.known.retain(|_, known| now < known.until);
        }
        if self.known.len() >= MAX_WAYS {
            self.known.clear();
        }
        self.known.insert(pair, known);
    }

    /// Asks the system's tables.
    fn ask(&mut self, ends: &Ends) -> Way {
        let [from, to] = [ends.source, ends.destination].map(|key| Tuple::from(key).address);
        let Ok(Route { device, next, mtu }) = self.tables.route(from, to) else {
            return Way::Closed(Reason::Route);
        };
        match device {
            0 => return Way::Closed(Reason::Route),
            // To this host itself: there are no neighbours.
            LOOPBACK => return Way::By { device, mac: [0; 6], mtu },
            _ => {}
        }
        // What an administrator has entered is taken as it is: a kernel that is told of its use lets it go (`__neigh_update` of
        // net/core/neighbour.c, for NTF_USE).
        if let Ok(Some(Neighbour { mac, is_fixed: true })) = self.tables.neighbour(device, next) {
            return Way::By { device, mac, mtu };
        }
        // It asks for the address if it does not know it; if it does, it looks after it as if it sent itself.
        let used = self.tables.use_neighbour(device, next);
        match self.tables.neighbour(device, next) {
            Ok(Some(Neighbour { mac, .. })) if used.is_ok() => Way::By { device, mac, mtu },
            _ => Way::Closed(Reason::Neighbour),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(from: [u8; 4], to: u32) -> Ends {
        let key = |address: std::net::Ipv4Addr| {
            Tuple { address: address.into(), protocol: 17, port: 53 }.into()
        };
        Ends { source: key(from.into()), destination: key(to.into()) }
    }

    #[test]
    fn ever_new_addresses_are_asked_for_as_often_as_may_be_and_remembered_in_bounded_memory() {
        let (mut ways, now) = (Ways::open().unwrap(), Instant::now());
        let new = |n: u32| ends([127, 0, 0, 1], 0x7f00_0002 + n);
        let mut looks = 8;
        for n in 0..60 {
            let is_asked = ways.find(&new(n), now, &mut looks) != Way::Closed(Reason::Route);
            assert_eq!(is_asked, n < 8, "{n}");
        }
        assert_eq!((looks, ways.known.len()), (0, 8));
        // What is known takes no look.
        assert!(matches!(ways.find(&new(3), now, &mut looks), Way::By { .. }));
        let mut most = 0;
        for n in 0..3 * MAX_WAYS as u32 {
            assert!(matches!(ways.find(&new(n), now, &mut 1), Way::By { .. }));
            most = most.max(ways.known.len());
        }
        assert_eq!(most, MAX_WAYS);
    }
}
