//! The other ends of a tunnel that has many (`external`): which of them an address inside is behind.
//!
//! What the words say comes first. The rest is learned from where packets come, as far as that is asked
//! for: an address belongs to the other end that used it first, until it has been silent for
//! [`HELD`] seconds. Who may be learned from can claim addresses that nobody uses, and no others; it
//! has a part of the table only, and what is in use is never pushed out.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use crate::config::{External, Prefix};
use crate::counters::Drop;

/// Seconds that an address stays with its other end, however many others claim it.
const HELD: u32 = 30;
/// The part of the table that one other end may have.
const SHARE: usize = 8;

/// All other ends of a tunnel.
#[derive(Debug)]
pub(crate) struct Peers {
    external: External,
    /// By the length of prefixes, the longest first, and their addresses; of both versions of IP.
    fixed: Vec<(u8, HashMap<IpAddr, IpAddr>)>,
    /// The other ends that are in the table.
    listed: HashSet<IpAddr>,
    learned: Arc<RwLock<Learned>>,
}

#[derive(Debug, Default)]
struct Learned {
    entries: HashMap<IpAddr, Entry>,
    /// How many each other end has.
    counts: HashMap<IpAddr, usize>,
    /// When those that are too old were looked for, in seconds.
    swept: u32,
}

#[derive(Debug)]
struct Entry {
    peer: IpAddr,
    /// When a packet came last, in seconds.
    seen: AtomicU32,
}

impl Entry {
    fn age(&self, now: u32) -> u32 {
        now.saturating_sub(self.seen.load(Ordering::Relaxed))
    }
}

impl Peers {
    /// What was learned remains where the rules of learning do.
    pub(crate) fn new(external: &External, before: Option<&Self>) -> Self {
        let mut by_len: BTreeMap<u8, HashMap<IpAddr, IpAddr>> = BTreeMap::new();
        for (prefix, peer) in &external.table {
            by_len.entry(prefix.len).or_default().insert(prefix.network(), *peer);
        }
        let fixed = by_len.into_iter().rev().collect();
        let same = before.filter(|before| {
            let rules = |of: &External| (of.learn.clone(), of.most, of.age);
            rules(&before.external) == rules(external)
        });
        let learned = same.map_or_else(Arc::default, |before| before.learned.clone());
        let listed = external.table.iter().map(|(_, peer)| *peer).collect();
        Self { external: external.clone(), fixed, listed, learned }
    }

    fn fixed(&self, address: IpAddr) -> Option<IpAddr> {
        self.fixed.iter().find_map(|(len, peers)| {
            let prefix = Prefix { address, len: *len };
            let fits = address.is_ipv6() || *len <= 32;
            fits.then(|| peers.get(&prefix.network()).copied()).flatten()
        })
    }

    /// The other end that an address inside is behind.
    pub(crate) fn of(&self, address: IpAddr, now: u32) -> Option<IpAddr> {
        self.fixed(address).or_else(|| {
            let learned = self.learned.read().unwrap_or_else(PoisonError::into_inner);
            let entry = learned.entries.get(&address)?;
            (entry.age(now) <= self.external.age).then_some(entry.peer)
        })
    }

    /// Whether an address is that of another end.
    pub(crate) fn is_peer(&self, address: IpAddr) -> bool {
        self.listed.contains(&address) || {
            let learned = self.learned.read().unwrap_or_else(PoisonError::into_inner);
            learned.counts.contains_key(&address)
        }
    }

    /// Whether a packet with this source inside may come from this end; learns that it did.
    pub(crate) fn admit(&self, peer: IpAddr, source: IpAddr, now: u32) -> Result<(), Drop> {
        if let Some(own) = self.fixed(source) {
            return if own == peer { Ok(()) } else { Err(Drop::Source) };
        }
        if !self.external.learn.iter().any(|prefix| prefix.contains(peer)) {
            // One of the table may only send for what it is there for.
            let known = self.listed.contains(&peer);
            return Err(if known { Drop::Source } else { Drop::Peer });
        }
        {
            let learned = self.learned.read().unwrap_or_else(PoisonError::into_inner);
            if let Some(entry) = learned.entries.get(&source) {
                if entry.peer == peer {
                    entry.seen.store(now, Ordering::Relaxed);
                    return Ok(());
                }
                if entry.age(now) <= HELD.min(self.external.age) {
                    return Err(Drop::Source);
                }
            }
        }
        let mut learned = self.learned.write().unwrap_or_else(PoisonError::into_inner);
        learned.learn(&self.external, peer, source, now)
    }

    /// Addresses that were learned, the other ends that they are behind, and since how many seconds
    /// nothing came from there.
    pub(crate) fn learned(&self, now: u32) -> Vec<(IpAddr, IpAddr, u32)> {
        let learned = self.learned.read().unwrap_or_else(PoisonError::into_inner);
        let all = learned.entries.iter();
        let all = all.map(|(address, entry)| (*address, entry.peer, entry.age(now)));
        let mut all: Vec<_> = all.filter(|(.., age)| *age <= self.external.age).collect();
        all.sort_unstable();
        all
    }
}

impl Learned {
    fn learn(
        &mut self,
        rules: &External,
        peer: IpAddr,
        source: IpAddr,
        now: u32,
    ) -> Result<(), Drop> {
        let most = rules.most as usize;
        if self.entries.len() >= most {
            self.sweep(rules.age, now);
        }
        let taken = self.entries.get(&source).map(|entry| entry.peer);
        // Another worker may have been faster.
        if taken == Some(peer) {
            return Ok(());
        }
        let own = self.counts.get(&peer).copied().unwrap_or(0);
        if taken.is_none() && self.entries.len() >= most || own >= most.div_ceil(SHARE) {
            return Err(Drop::Full);
        }
        if let Some(before) = taken {
            self.discount(before);
        }
        *self.counts.entry(peer).or_default() += 1;
        self.entries.insert(source, Entry { peer, seen: AtomicU32::new(now) });
        Ok(())
    }

    /// Forgets what is too old, at most once a second: it looks at all.
    fn sweep(&mut self, age: u32, now: u32) {
        if now <= self.swept {
            return;
        }
        self.swept = now;
        let gone = |entry: &Entry| entry.age(now) > age;
        let old: Vec<_> = self.entries.extract_if(|_, entry| gone(entry)).collect();
        old.iter().for_each(|(_, entry)| self.discount(entry.peer));
    }

    fn discount(&mut self, peer: IpAddr) {
        if let Some(count) = self.counts.get_mut(&peer) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&peer);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn peers(words: &str) -> Peers {
        let tunnel = crate::testing::tunnel(&format!("a type sit external encap gue {words}"));
        Peers::new(&tunnel.external.unwrap(), None)
    }

    #[test]
    fn the_longest_prefix_of_the_table_counts_and_nothing_is_learned_beside_it() {
        let peers = peers(
            "to 10.0.0.0/8 dst 192.0.2.1 to 10.1.0.0/16 dst 192.0.2.2 to 2001:db8::/32 dst 192.0.2.3 \
             to 0.0.0.0/0 dst 192.0.2.4 to 10.1.2.3 dst 192.0.2.5 learn 192.0.2.0/24",
        );
        for (address, peer) in [
            ("10.1.2.3", Some("192.0.2.5")),
            ("10.1.2.4", Some("192.0.2.2")),
            ("10.2.0.0", Some("192.0.2.1")),
            ("11.0.0.0", Some("192.0.2.4")),
            ("2001:db8::9", Some("192.0.2.3")),
            ("2001:db9::9", None),
        ] {
            assert_eq!(peers.of(ip(address), 0), peer.map(ip), "{address}");
        }
        assert_eq!(peers.admit(ip("192.0.2.2"), ip("10.1.2.4"), 0), Ok(()));
        assert_eq!(peers.admit(ip("192.0.2.1"), ip("10.1.2.4"), 0), Err(Drop::Source));
        assert_eq!(peers.admit(ip("192.0.2.9"), ip("10.1.2.4"), 0), Err(Drop::Source));
        assert_eq!(peers.admit(ip("198.51.100.9"), ip("2001:db9::9"), 0), Err(Drop::Peer));
        assert!(peers.learned(0).is_empty());
        assert_eq!(peers.admit(ip("192.0.2.9"), ip("2001:db9::9"), 0), Ok(()));
        assert_eq!(peers.of(ip("2001:db9::9"), 0), Some(ip("192.0.2.9")));
        assert!(peers.is_peer(ip("192.0.2.9")) && peers.is_peer(ip("192.0.2.5")));
        assert!(!peers.is_peer(ip("192.0.2.8")));
    }

    #[test]
    fn an_address_stays_with_who_uses_it_and_is_forgotten() {
        let peers = peers("learn 192.0.2.0/24 ageing 100");
        let (one, two, inside) = (ip("192.0.2.1"), ip("192.0.2.2"), ip("10.0.0.1"));
        assert_eq!(peers.admit(one, inside, 0), Ok(()));
        assert_eq!(peers.admit(two, inside, 30), Err(Drop::Source), "it is the other one's");
        assert_eq!(peers.admit(one, inside, 30), Ok(()));
        assert_eq!(peers.admit(two, inside, 60), Err(Drop::Source));
        assert_eq!(peers.of(inside, 60), Some(one));
        assert_eq!(peers.admit(two, inside, 61), Ok(()), "it has moved");
        assert_eq!(peers.learned(70), [(inside, two, 9)]);
        assert!(!peers.is_peer(one));
        assert_eq!((peers.of(inside, 161), peers.of(inside, 162)), (Some(two), None));
        assert_eq!(peers.admit(ip("198.51.100.1"), inside, 162), Err(Drop::Peer));
    }

    #[test]
    fn a_flood_fills_its_share_and_pushes_nobody_out() {
        let peers = peers("learn 192.0.2.0/24 maxaddress 64 ageing 50");
        let inside = |number: u32| IpAddr::from((0x0a00_0000 + number).to_be_bytes());
        assert_eq!(peers.admit(ip("192.0.2.1"), inside(0), 0), Ok(()));
        let flood = |from: &str, now| {
            (1..1000).filter(|one| peers.admit(ip(from), inside(*one), now).is_ok()).count()
        };
        assert_eq!(flood("192.0.2.2", 0), 8, "an eighth");
        // With as many other ends as it likes, the table is full, and what is there remains.
        let all: usize = (3..=200).map(|last| flood(&format!("192.0.2.{last}"), 0)).sum();
        assert_eq!(all, 64 - 1 - 8);
        assert_eq!(peers.admit(ip("192.0.2.1"), inside(2000), 40), Err(Drop::Full));
        assert_eq!(peers.admit(ip("192.0.2.1"), inside(0), 40), Ok(()));
        assert_eq!(
            peers.admit(ip("192.0.2.1"), inside(2000), 51),
            Ok(()),
            "the flood is forgotten"
        );
        assert_eq!(peers.learned(51).len(), 2);
        let learned = peers.learned.read().unwrap();
        assert_eq!(learned.counts.values().sum::<usize>(), learned.entries.len());
    }

    #[test]
    fn a_change_of_the_table_keeps_what_was_learned_and_one_of_the_rules_does_not() {
        let before = peers("learn 192.0.2.0/24");
        before.admit(ip("192.0.2.1"), ip("10.0.0.1"), 0).unwrap();
        for (words, kept) in [
            ("learn 192.0.2.0/24 to 10.9.0.0/16 dst 192.0.2.9", true),
            ("learn 192.0.3.0/24", false),
            ("learn 192.0.2.0/24 maxaddress 9", false),
        ] {
            let external = peers(words).external;
            let after = Peers::new(&external, Some(&before));
            assert_eq!(after.of(ip("10.0.0.1"), 0).is_some(), kept, "{words}");
        }
    }
}
