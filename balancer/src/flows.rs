//! Where flows went that have no routable connection ID: a bounded table.
//!
//! A flow is a client's address and port towards an address of ours. The table keeps it at its
//! server while others come and go. It is a memory of last resort: without an entry a flow takes
//! the way of the consistent hash, which is the same unless the servers have changed since. So a
//! flood that fills the table does no more harm than that.
//!
//! Buckets of eight entries of 16 octets; nothing moves and nothing is allocated. Where a bucket is
//! full, an entry of which only one datagram came goes first, then the one that was silent longest.

use std::net::{IpAddr, SocketAddr};

use quicket_steering::HashKey;

/// Entries of a bucket: two lines of a cache.
const WAYS: usize = 8;
/// In the server's number: more than one datagram came.
const SEEN_AGAIN: u32 = 1 << 31;
/// Octets of a flow: two addresses of IPv6 with their ports.
const MAX_FLOW: usize = 36;

/// A client and the address that it sent to, as octets to be hashed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// Who sent.
    pub client: SocketAddr,
    /// To whom.
    pub local: SocketAddr,
}

impl Flow {
    /// The octets and how many they are: 12 or 36, so that no two flows have the same.
    fn octets(&self) -> ([u8; MAX_FLOW], usize) {
        let mut octets = [0; MAX_FLOW];
        let mut len = 0;
        let mut put = |part: &[u8]| {
            for (to, from) in octets.iter_mut().skip(len).zip(part) {
                *to = *from;
            }
            len += part.len();
        };
        for address in [self.client, self.local] {
            match address.ip() {
                IpAddr::V4(ip) => put(&ip.octets()),
                IpAddr::V6(ip) => put(&ip.octets()),
            }
            put(&address.port().to_be_bytes());
        }
        (octets, len)
    }

    /// A hash of the flow, the same for all who have the key.
    #[must_use]
    pub fn hash(&self, key: &HashKey) -> u32 {
        let (octets, len) = self.octets();
        key.hash(octets.get(..len).unwrap_or(&octets))
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    /// 0: no entry. A keyed hash otherwise: who does not know the key cannot choose what collides.
    tag: u64,
    /// When a datagram came last, in seconds.
    seen: u32,
    /// The number of the server.
    server: u32,
}

/// The table. Each worker has its own: the system hands all datagrams of a flow to one of them.
#[derive(Debug)]
pub struct Flows {
    buckets: Vec<[Entry; WAYS]>,
    keys: [HashKey; 2],
    lifetime: u32,
    evicted: u64,
}

impl Flows {
    /// A table for at least `entries` flows that are forgotten after `lifetime` seconds of silence.
    /// `secret` should be random.
    #[must_use]
    pub fn new(entries: usize, lifetime: u32, secret: [u8; 16]) -> Self {
        let (first, second) = secret.split_at(8);
        let key = |half: &[u8]| HashKey::new(half.try_into().unwrap_or_default());
        Self {
            buckets: vec![[Entry::default(); WAYS]; entries.div_ceil(WAYS).max(1)],
            keys: [key(first), key(second)],
            lifetime,
            evicted: 0,
        }
    }

    /// The octets that one flow takes.
    pub const COST: usize = size_of::<Entry>();

    /// How many flows it holds at most.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.buckets.len() * WAYS
    }

    /// How many flows were given up for others before their time.
    #[must_use]
    pub const fn evicted(&self) -> u64 {
        self.evicted
    }

    /// How many flows it holds now. Looks at all.
    #[must_use]
    pub fn len(&self, now: u32) -> usize {
        let alive = |entry: &&Entry| entry.is_alive(now, self.lifetime);
        self.buckets.iter().flatten().filter(alive).count()
    }

    /// Whether it holds none.
    #[must_use]
    pub fn is_empty(&self, now: u32) -> bool {
        self.len(now) == 0
    }

    /// Forgets after this many seconds of silence from now on.
    pub fn set_lifetime(&mut self, seconds: u32) {
        self.lifetime = seconds;
    }

    /// The number of the server that a flow has. It has been seen now if `renews` says so of that
    /// server; else its lifetime goes on to run.
    pub fn get(&mut self, flow: &Flow, now: u32, renews: impl FnOnce(u32) -> bool) -> Option<u32> {
        let (tag, bucket) = self.place(flow);
        let lifetime = self.lifetime;
        let same = |entry: &&mut Entry| entry.tag == tag && entry.is_alive(now, lifetime);
        let entry = self.buckets.get_mut(bucket)?.iter_mut().find(same)?;
        let server = entry.server & !SEEN_AGAIN;
        entry.server |= SEEN_AGAIN;
        if renews(server) {
            entry.seen = now;
        }
        Some(server)
    }

    /// Remembers the server of a flow; numbers are below 2^31.
    pub fn put(&mut self, flow: &Flow, server: u32, now: u32) {
        let (tag, bucket) = self.place(flow);
        let lifetime = self.lifetime;
        let Some(bucket) = self.buckets.get_mut(bucket) else { return };
        // The flow's own entry, else the one that is missed least.
        let worth = |entry: &Entry| match entry.tag == tag {
            true => (0, 0),
            false if !entry.is_alive(now, lifetime) => (1, 0),
            false if entry.server & SEEN_AGAIN == 0 => (2, entry.seen),
            false => (3, entry.seen),
        };
        let Some(entry) = bucket.iter_mut().min_by_key(|entry| worth(entry)) else { return };
        self.evicted += u64::from(worth(entry).0 >= 2);
        *entry = Entry { tag, seen: now, server: server & !SEEN_AGAIN };
    }

    fn place(&self, flow: &Flow) -> (u64, usize) {
        let [high, low] = self.keys.each_ref().map(|key| u64::from(flow.hash(key)));
        let at = high.wrapping_mul(self.buckets.len() as u64) >> 32;
        ((high << 32 | low).max(1), at as usize)
    }
}

impl Entry {
    fn is_alive(&self, now: u32, lifetime: u32) -> bool {
        self.tag != 0 && now.saturating_sub(self.seen) <= lifetime
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(number: u32) -> Flow {
        let [a, b, c, d] = number.to_be_bytes();
        Flow {
            client: SocketAddr::from(([10, a, b, c], 1024 + u16::from(d))),
            local: "192.0.2.1:443".parse().unwrap(),
        }
    }

    #[test]
    fn a_flow_is_remembered_until_it_was_silent_too_long() {
        let mut flows = Flows::new(1000, 60, [7; 16]);
        assert_eq!(flows.get(&flow(1), 5, |_| true), None);
        flows.put(&flow(1), 3, 5);
        flows.put(&flow(2), 4, 5);
        assert_eq!(flows.get(&flow(1), 65, |_| true), Some(3));
        assert_eq!(flows.get(&flow(2), 66, |_| true), None);
        assert_eq!(flows.get(&flow(1), 125, |_| true), Some(3), "what was seen lives on");
        assert_eq!((flows.len(125), flows.evicted()), (1, 0));
        flows.put(&flow(1), 9, 125);
        assert_eq!(flows.get(&flow(1), 125, |_| true), Some(9), "a flow has one entry");
        assert_eq!(flows.len(125), 1);
        assert_eq!(flows.get(&flow(1), 185, |_| false), Some(9));
        assert_eq!(flows.get(&flow(1), 186, |_| true), None, "what was not renewed is forgotten");
    }

    #[test]
    fn a_full_table_stays_as_large_and_keeps_flows_that_came_again() {
        let mut flows = Flows::new(1024, 60, [1; 16]);
        let memory = (flows.buckets.capacity(), flows.buckets.as_ptr());
        for number in 0..300 {
            flows.put(&flow(number), number, 1);
            flows.get(&flow(number), 1, |_| true);
        }
        // A flood of first packets, later: each is newer than what it would push out.
        for number in 1000..51_000 {
            flows.put(&flow(number), 1, 2);
        }
        let kept = (0..300)
            .filter(|number| flows.get(&flow(*number), 3, |_| true) == Some(*number))
            .count();
        assert!(kept >= 299, "{kept} of 300 are left");
        assert_eq!(memory, (flows.buckets.capacity(), flows.buckets.as_ptr()));
        assert!(flows.len(3) <= flows.capacity() && flows.evicted() > 40_000);
        assert_eq!(Flows::COST, 16);
    }

    #[test]
    fn another_secret_makes_other_flows_collide() {
        let bucket = |secret: u8| {
            let flows = Flows::new(8 * 64, 60, [secret; 16]);
            move |number: u32| flows.place(&flow(number)).1
        };
        let (one, other) = (bucket(1), bucket(2));
        let chosen: Vec<u32> = (0..20_000).filter(|number| one(*number) == 5).collect();
        let there = chosen.iter().filter(|number| other(**number) == 5).count();
        assert!(chosen.len() > 200 && there * 10 < chosen.len(), "{there} of {}", chosen.len());
    }

    #[test]
    fn flows_differ_in_each_of_their_four_parts() {
        let key = HashKey::new([3; 8]);
        let base = Flow {
            client: "[2001:db8::1]:5".parse().unwrap(),
            local: "[2001:db8::2]:443".parse().unwrap(),
        };
        let mut others = [base; 5];
        others[1].client.set_port(6);
        others[2].local.set_port(444);
        others[3].client.set_ip("2001:db8::3".parse().unwrap());
        others[4].local.set_ip("2001:db8::3".parse().unwrap());
        let mut hashes = others.map(|flow| flow.hash(&key));
        hashes.sort_unstable();
        assert!(hashes.windows(2).all(|pair| pair[0] != pair[1]));
    }
}
