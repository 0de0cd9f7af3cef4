//! How many first packets are read in a second.

use std::collections::BTreeMap;
use std::net::IpAddr;

use quicket_engine::replies::RateLimiter;
use quicket_engine::time::Time;
use quicket_steering::HashKey;

use crate::registry::AddressId;

/// How many are read in a second at one address.
pub const HELLOS_PER_SECOND: u32 = 20_000;
/// ... and of one source.
pub const HELLOS_PER_SOURCE: u32 = 1000;
/// How many sources are told apart; those with the same hash share a limit.
pub const MAX_SOURCES: usize = 4096;

/// Where clients come from: an IPv4 address, or a network of 64 bits, which is what a subscriber has
/// of IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Source([u8; 9]);

impl Source {
    pub(super) fn of(ip: IpAddr) -> Self {
        let mut octets = [0; 9];
        match ip.to_canonical() {
            IpAddr::V4(v4) => {
                octets[0] = 4;
                octets[1..5].copy_from_slice(&v4.octets());
            }
            IpAddr::V6(v6) => {
                octets[0] = 6;
                octets[1..].copy_from_slice(&v6.octets()[..8]);
            }
        }
        Self(octets)
    }
}

/// Of all addresses and sources.
pub(super) struct Limits {
    key: HashKey,
    sources: Box<[RateLimiter]>,
    addresses: BTreeMap<AddressId, RateLimiter>,
}

impl Limits {
    pub(super) fn new(secret: [u8; 8]) -> Self {
        Self {
            key: HashKey::new(secret),
            sources: vec![RateLimiter::new(HELLOS_PER_SOURCE); MAX_SOURCES].into(),
            addresses: BTreeMap::new(),
        }
    }

    /// Whether one more may be read. What a source has too many of does not count for the address.
    pub(super) fn take(&mut self, now: Time, address: AddressId, source: Source) -> bool {
        let bucket = self.key.hash(&source.0) as usize % MAX_SOURCES;
        if !self.sources.get_mut(bucket).is_some_and(|limit| limit.take(now)) {
            return false;
        }
        let limit = self.addresses.entry(address);
        limit.or_insert_with(|| RateLimiter::new(HELLOS_PER_SECOND)).take(now)
    }

    pub(super) fn remove_address(&mut self, address: AddressId) {
        self.addresses.remove(&address);
    }
}
