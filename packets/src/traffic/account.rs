//! What became of frames of flows that nobody has announced: for a sink that does not know its generators.

use std::collections::HashMap;
use std::net::SocketAddr;

use super::read_data;
use crate::icmp::Report;
use crate::udp::Datagram;

/// Flows that are told apart.
pub const MAX_FLOWS: usize = 4096;
/// So many frames may be missing in a row: a number farther ahead is no generator's.
const MAX_GAP: u64 = 1 << 40;
/// Frames of a flow of which it is known whether they have come.
pub const WINDOW: u64 = 1024;

/// Counts frames that come to an address of UDP.
#[derive(Debug)]
pub struct Account {
    here: SocketAddr,
    flows: HashMap<u32, Flow>,
    /// Frames that came as they were written, each counted once.
    pub received: u64,
    /// Octets of those, from the header of Ethernet on.
    pub octets: u64,
    /// Frames that did not come, as later ones of their flow tell. What was sent before the first one that came and behind the last
    /// one is not known here.
    pub lost: u64,
    /// Of those that were received, how many came behind a later one.
    pub late: u64,
    /// Frames that came again; and those that came more than [`WINDOW`] frames late, of which it is not known.
    pub doubled: u64,
    /// Frames for another address: the switch has made a mistake.
    pub misdelivered: u64,
    /// Frames that no generator has written, or that have changed since.
    pub foreign: u64,
    /// Frames of flows beyond [`MAX_FLOWS`]: whether all came is not known.
    pub untold: u64,
    /// What ICMP says of frames that were sent from here.
    pub errors: u64,
}

/// One flow, by the generator's number of it.
#[derive(Debug)]
struct Flow {
    first: u64,
    /// Behind the latest one.
    next: u64,
    /// A bit for each of the last [`WINDOW`].
    came: [u64; WINDOW as usize / 64],
}

/// What a number says.
enum News {
    /// So many before it are missing.
    Later(u64),
    Late,
    Doubled,
    /// It was sent before the first one that came.
    Early,
    /// No generator has come so far.
    Foreign,
}

impl Flow {
    const fn new(number: u64) -> Self {
        Self { first: number, next: number, came: [0; WINDOW as usize / 64] }
    }

    fn bit(&mut self, number: u64) -> (&mut u64, u64) {
        let at = number % WINDOW;
        (&mut self.came[at as usize / 64], 1 << (at % 64))
    }

    fn take(&mut self, number: u64) -> News {
        if number >= self.next {
            let missing = number - self.next;
            if missing > MAX_GAP || number == u64::MAX {
                return News::Foreign;
            }
            // All places between are of numbers that have not come.
            for skipped in 0..missing.min(WINDOW) {
                let (word, bit) = self.bit(number - skipped - 1);
                *word &= !bit;
            }
            self.next = number + 1;
            let (word, bit) = self.bit(number);
            *word |= bit;
            return News::Later(missing);
        }
        if self.next - number > WINDOW {
            return News::Doubled;
        }
        let first = self.first;
        let (word, bit) = self.bit(number);
        let is_new = *word & bit == 0;
        *word |= bit;
        match is_new {
            true if number < first => News::Early,
            true => News::Late,
            false => News::Doubled,
        }
    }
}

impl Account {
    /// Of frames to that address.
    #[must_use]
    pub fn new(here: SocketAddr) -> Self {
        Self {
            here,
            flows: HashMap::new(),
            received: 0,
            octets: 0,
            lost: 0,
            late: 0,
            doubled: 0,
            misdelivered: 0,
            foreign: 0,
            untold: 0,
            errors: 0,
        }
    }

    /// How many flows there are, [`MAX_FLOWS`] at most.
    #[must_use]
    pub fn flows(&self) -> usize {
        self.flows.len()
    }

    /// Reads a frame.
    pub fn read(&mut self, frame: &[u8]) {
        let Some(datagram) = Datagram::read(frame) else {
            match Report::read(frame) {
                Some(_) => self.errors += 1,
                None => self.foreign += 1,
            }
            return;
        };
        if datagram.destination != self.here {
            self.misdelivered += 1;
            return;
        }
        let Some((flow, number)) = read_data(datagram.payload) else {
            self.foreign += 1;
            return;
        };
        // What has no successor would make a flow of its own.
        if number == u64::MAX {
            self.foreign += 1;
            return;
        }
        if self.flows.len() >= MAX_FLOWS && !self.flows.contains_key(&flow) {
            self.untold += 1;
            return;
        }
        let flow = self.flows.entry(flow).or_insert_with(|| Flow::new(number));
        match flow.take(number) {
            News::Later(missing) => self.lost = self.lost.saturating_add(missing),
            News::Late => {
                self.late += 1;
                self.lost = self.lost.saturating_sub(1);
            }
            News::Early => self.late += 1,
            News::Foreign => {
                self.foreign += 1;
                return;
            }
            News::Doubled => {
                self.doubled += 1;
                return;
            }
        }
        self.received += 1;
        self.octets += frame.len() as u64;
    }

    /// Adds what another one has counted, of other flows.
    pub fn add(&mut self, other: &Self) {
        for (sum, more) in [
            (&mut self.received, other.received),
            (&mut self.octets, other.octets),
            (&mut self.lost, other.lost),
            (&mut self.late, other.late),
            (&mut self.doubled, other.doubled),
            (&mut self.misdelivered, other.misdelivered),
            (&mut self.foreign, other.foreign),
            (&mut self.untold, other.untold),
            (&mut self.errors, other.errors),
        ] {
            *sum = sum.saturating_add(more);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Generator;
    use super::*;

    const TO: [&str; 2] = ["192.0.2.2:9", "[2001:db8::2]:9"];
    const FROM: [&str; 2] = ["192.0.2.1:7", "[2001:db8::1]:7"];

    /// Frames of a flow.
    fn frames(at: usize, flow: u32, to: &str, count: usize) -> Vec<Vec<u8>> {
        let (from, to) = (FROM[at].parse().unwrap(), to.parse().unwrap());
        let mut generator = Generator::new(flow, from, to, 100).unwrap();
        let mut frame = || {
            let mut frame = vec![0; 100];
            generator.write(&mut frame).unwrap();
            frame
        };
        (0..count).map(|_| frame()).collect()
    }

    /// Received, lost, late, doubled.
    fn of(account: &Account) -> [u64; 4] {
        [account.received, account.lost, account.late, account.doubled]
    }

    #[test]
    fn it_is_known_what_was_lost_came_late_and_twice() {
        for (at, to) in TO.into_iter().enumerate() {
            let all = frames(at, 5, to, 5000);
            let mut account = Account::new(to.parse().unwrap());
            let mut read = |numbers: &mut dyn Iterator<Item = usize>| {
                numbers.for_each(|number| account.read(&all[number]));
                of(&account)
            };
            // What was sent before it looked is not lost.
            assert_eq!(read(&mut (10..20)), [10, 0, 0, 0]);
            assert_eq!(read(&mut (30..40)), [20, 10, 0, 0]);
            assert_eq!(read(&mut (25..30)), [25, 5, 5, 0]);
            assert_eq!(read(&mut [39, 25, 12].into_iter()), [25, 5, 5, 3]);
            assert_eq!(read(&mut [9].into_iter()), [26, 5, 6, 3]);
            // Farther than it remembers.
            assert_eq!(read(&mut [3000].into_iter()), [27, 2965, 6, 3]);
            assert_eq!(read(&mut [2999, 2999, 1977, 1976].into_iter()), [29, 2963, 8, 5]);
            assert_eq!(account.octets, 2900);
            assert_eq!((account.flows(), account.foreign), (1, 0));
        }
    }

    #[test]
    fn a_number_that_no_generator_has_come_to_is_foreign() {
        let mut flow = Flow::new(0);
        for number in [u64::MAX, u64::MAX - 1, MAX_GAP + 1] {
            assert!(matches!(flow.take(number), News::Foreign), "{number}");
        }
        assert!(matches!(flow.take(MAX_GAP), News::Later(MAX_GAP)));
        assert!(matches!(flow.take(MAX_GAP + 1), News::Later(0)));
        assert!(matches!(Flow::new(u64::MAX).take(u64::MAX), News::Foreign));
        let mut last = Flow::new(u64::MAX - 1);
        assert!(matches!(last.take(u64::MAX - 1), News::Later(0)));
        assert!(matches!(last.take(u64::MAX), News::Foreign));
        // By a frame, and sums that are as large as can be.
        let (from, to) = (FROM[0].parse().unwrap(), TO[0].parse().unwrap());
        let mut account = Account::new(to);
        account.lost = u64::MAX;
        let mut sum = Account::new(to);
        sum.add(&account);
        sum.add(&account);
        assert_eq!(sum.lost, u64::MAX);
        let mut generator = Generator::new(1, from, to, 100).unwrap();
        let mut frame = [0; 100];
        generator.write(&mut frame).unwrap();
        account.read(&frame);
        assert_eq!((account.received, account.foreign), (1, 0));
    }

    #[test]
    fn what_is_not_a_generators_or_for_another_is_told_apart() {
        let mut account = Account::new(TO[0].parse().unwrap());
        let mut changed = frames(0, 1, TO[0], 1).remove(0);
        *changed.get_mut(45).unwrap() ^= 1;
        account.read(&changed);
        account.read(&[0; 60]);
        account.read(&[]);
        account.read(&frames(0, 1, "192.0.2.3:9", 1)[0]);
        account.read(&frames(0, 1, "192.0.2.2:10", 1)[0]);
        assert_eq!((account.foreign, account.misdelivered, account.received), (3, 2, 0));
        // Each flow has numbers of its own, and only so many are told apart.
        for flow in 0..MAX_FLOWS as u32 + 3 {
            account.read(&frames(0, flow, TO[0], 1)[0]);
        }
        assert_eq!((account.received, account.untold), (MAX_FLOWS as u64, 3));
        let mut sum = Account::new(TO[0].parse().unwrap());
        sum.add(&account);
        sum.add(&account);
        assert_eq!((sum.received, sum.foreign, sum.untold), (2 * MAX_FLOWS as u64, 6, 6));
    }
}
