//! Address validation tokens: Retry and NEW_TOKEN (RFC 9000, Section 8.1).
//!
//! A token is a nonce followed by a sealed plaintext: kind, time of issue, client address and,
//! for Retry, the connection IDs that the handshake must confirm (RFC 9000, Section 7.3).

use alloc::vec::Vec;
use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use quicket_wire::{ConnectionId, Reader, Writer};

use crate::crypto::{CryptoProvider, TAG_LEN};
use crate::random::Random;
use crate::site_keys::TokenKeys;

const NONCE_LEN: usize = 12;
const KIND_RETRY: u8 = 0;
const KIND_NEW_TOKEN: u8 = 1;
/// Kind, time, address with its family, port, two connection IDs with their lengths.
const MAX_PLAINTEXT: usize = 1 + 8 + 17 + 2 + 2 * (1 + ConnectionId::MAX_LEN);
/// The longest token that we make, in bytes; longer ones are not ours.
pub(crate) const MAX_TOKEN_LEN: usize = NONCE_LEN + MAX_PLAINTEXT + TAG_LEN;
/// How far the clocks of servers that share a key may differ, in seconds.
const CLOCK_SKEW: u64 = 2;

/// A time by the wall clock, in seconds since the Unix epoch: tokens outlive the process.
pub(crate) type UnixSeconds = u64;

/// How long tokens are good, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TokenLifetimes {
    pub(crate) retry: u64,
    pub(crate) new_token: u64,
}

/// What a token in a client's Initial packet proves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenVerdict {
    /// The client answers our Retry from the same address. Its Destination Connection ID must be
    /// `retry_scid`; both IDs go into our transport parameters (RFC 9000, Section 7.3).
    Retry { original_dcid: ConnectionId, retry_scid: ConnectionId },
    /// The client's address was validated by an earlier connection. Good once: see [`TokenLog`].
    NewToken { id: TokenId, issued: UnixSeconds },
    /// A Retry token of ours that is expired or comes from another address: the connection is
    /// refused with INVALID_TOKEN (RFC 9000, Section 8.1.2).
    InvalidRetry,
    /// Not ours, or no longer: as if there were no token (RFC 9000, Section 8.1.3).
    Unknown,
}

/// Names a NEW_TOKEN token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TokenId(pub [u8; 12]);

/// Makes a Retry token (RFC 9000, Section 8.1.2).
pub(crate) fn seal_retry(
    sealer: &TokenSealer<'_>,
    client: SocketAddr,
    original_dcid: &ConnectionId,
    retry_scid: &ConnectionId,
    random: &mut dyn Random,
) -> Option<Vec<u8>> {
    sealer.seal(random, |w| {
        w.u8(KIND_RETRY).ok()?;
        w.u64(sealer.now).ok()?;
        write_ip(w, client.ip())?;
        // Retry tokens are used at once, so the port is still the same.
        w.u16(client.port()).ok()?;
        write_cid(w, original_dcid)?;
        write_cid(w, retry_scid)
    })
}

/// Makes a token for a NEW_TOKEN frame (RFC 9000, Section 8.1.3). It holds no port, which may
/// differ the next time (RFC 9000, Section 8.1.4).
pub(crate) fn seal_new_token(
    sealer: &TokenSealer<'_>,
    client: IpAddr,
    random: &mut dyn Random,
) -> Option<Vec<u8>> {
    sealer.seal(random, |w| {
        w.u8(KIND_NEW_TOKEN).ok()?;
        w.u64(sealer.now).ok()?;
        write_ip(w, client)
    })
}

/// What sealing and opening need.
pub(crate) struct TokenSealer<'a> {
    pub(crate) crypto: &'a dyn CryptoProvider,
    pub(crate) keys: TokenKeys,
    pub(crate) now: UnixSeconds,
}

impl TokenSealer<'_> {
    fn seal(
        &self,
        random: &mut dyn Random,
        fill: impl FnOnce(&mut Writer<'_>) -> Option<()>,
    ) -> Option<Vec<u8>> {
        let mut buf = [0; MAX_TOKEN_LEN];
        let (nonce, rest) = buf.split_first_chunk_mut::<NONCE_LEN>()?;
        random.fill(nonce);
        let room = rest.len().checked_sub(TAG_LEN)?;
        let mut w = Writer::new(rest.get_mut(..room)?);
        fill(&mut w)?;
        let sealed_len = w.position().checked_add(TAG_LEN)?;
        let key = self.keys.all().first()?;
        self.crypto.seal_token(key, nonce, rest.get_mut(..sealed_len)?).ok()?;
        buf.get(..NONCE_LEN.checked_add(sealed_len)?).map(Vec::from)
    }

    /// Judges the token of an Initial packet that came from `client`.
    pub(crate) fn open(
        &self,
        token: &[u8],
        client: SocketAddr,
        lifetimes: TokenLifetimes,
    ) -> TokenVerdict {
        self.try_open(token, client, lifetimes).unwrap_or(TokenVerdict::Unknown)
    }

    fn try_open(
        &self,
        token: &[u8],
        client: SocketAddr,
        lifetimes: TokenLifetimes,
    ) -> Option<TokenVerdict> {
        let (nonce, sealed) = token.split_first_chunk::<NONCE_LEN>()?;
        let mut buf = [0; MAX_PLAINTEXT + TAG_LEN];
        let buf = buf.get_mut(..sealed.len())?;
        let len = self.keys.all().iter().find_map(|key| {
            // A failure leaves nothing of use behind.
            buf.copy_from_slice(sealed);
            self.crypto.open_token(key, nonce, buf).ok()
        })?;
        let mut r = Reader::new(buf.get(..len)?);
        let kind = r.u8().ok()?;
        let issued = r.u64().ok()?;
        let same_ip = read_ip(&mut r)? == client.ip().to_canonical();
        match kind {
            KIND_RETRY => {
                let same_port = r.u16().ok()? == client.port();
                let original_dcid = read_cid(&mut r)?;
                let retry_scid = read_cid(&mut r)?;
                let good = same_ip && same_port && self.is_fresh(issued, lifetimes.retry);
                Some(if good {
                    TokenVerdict::Retry { original_dcid, retry_scid }
                } else {
                    TokenVerdict::InvalidRetry
                })
            }
            KIND_NEW_TOKEN if same_ip && self.is_fresh(issued, lifetimes.new_token) => {
                Some(TokenVerdict::NewToken { id: TokenId(*nonce), issued })
            }
            _ => None,
        }
    }

    fn is_fresh(&self, issued: UnixSeconds, lifetime: u64) -> bool {
        issued <= self.now.saturating_add(CLOCK_SKEW) && self.now.saturating_sub(issued) <= lifetime
    }
}

fn write_ip(w: &mut Writer<'_>, ip: IpAddr) -> Option<()> {
    // One form of each address, whatever the socket's family.
    match ip.to_canonical() {
        IpAddr::V4(ip) => {
            w.u8(4).ok()?;
            w.bytes(&ip.octets()).ok()
        }
        IpAddr::V6(ip) => {
            w.u8(6).ok()?;
            w.bytes(&ip.octets()).ok()
        }
    }
}

fn read_ip(r: &mut Reader<'_>) -> Option<IpAddr> {
    match r.u8().ok()? {
        4 => <[u8; 4]>::try_from(r.bytes(4).ok()?).ok().map(|o| IpAddr::V4(Ipv4Addr::from(o))),
        6 => <[u8; 16]>::try_from(r.bytes(16).ok()?).ok().map(|o| IpAddr::V6(Ipv6Addr::from(o))),
        _ => None,
    }
}

fn write_cid(w: &mut Writer<'_>, cid: &ConnectionId) -> Option<()> {
    w.u8(u8::try_from(cid.len()).ok()?).ok()?;
    w.bytes(cid.as_slice()).ok()
}

fn read_cid(r: &mut Reader<'_>) -> Option<ConnectionId> {
    let len = usize::from(r.u8().ok()?);
    ConnectionId::new(r.bytes(len).ok()?)
}

/// Remembers used NEW_TOKEN tokens, so that none validates an address twice
/// (RFC 9000, Section 8.1.4). Servers that share a token key may share a log behind this trait.
pub trait TokenLog: Send + fmt::Debug {
    /// An endpoint serves from `now` on, in seconds since the Unix epoch: it has issued no token before. A log
    /// that knows of no earlier uses must take what was issued earlier for used.
    fn begin(&mut self, _now: u64) {}

    /// Records the use of a token at `now`; false if it was used before, or if that cannot be
    /// known any more. Times are in seconds since the Unix epoch, `lifetime` in seconds; the
    /// token is known not to be expired.
    fn first_use(&mut self, id: TokenId, issued: u64, lifetime: u64, now: u64) -> bool;
}

/// A [`TokenLog`] in memory, exact and bounded: when it is full, further tokens count as used,
/// which costs their clients a round trip at most.
///
/// Tokens issued in one period of their lifetime share a generation; only the current and the
/// previous period can hold tokens that are still good, so older generations are forgotten whole.
#[derive(Debug)]
pub struct StrikeRegister {
    current: Generation,
    previous: Generation,
    capacity: usize,
    /// Tokens from before this moment may have been used unseen: the register is younger.
    since: Option<u64>,
}

#[derive(Debug, Default)]
struct Generation {
    period: u64,
    /// Open addressing by the random ID; length zero or a power of two; 0 is an empty place.
    slots: Vec<u64>,
    used: usize,
}

/// How many used NEW_TOKEN tokens are remembered by default: at 32 bytes each, 2 MiB at most.
const TOKENS_REMEMBERED: usize = 1 << 15;

impl Default for StrikeRegister {
    /// Remembers 32,768 tokens of each of two generations.
    fn default() -> Self {
        Self::new(TOKENS_REMEMBERED)
    }
}

impl StrikeRegister {
    /// Remembers up to `capacity` tokens of each of two generations, at 16 to 32 bytes each.
    /// Memory is taken as it is needed.
    pub fn new(capacity: usize) -> Self {
        Self {
            current: Generation::default(),
            previous: Generation::default(),
            capacity,
            since: None,
        }
    }
}

impl TokenLog for StrikeRegister {
    fn begin(&mut self, now: u64) {
        self.since.get_or_insert(now);
    }

    fn first_use(&mut self, id: TokenId, issued: u64, lifetime: u64, now: u64) -> bool {
        // After a restart with the same key, what was issued before may have been used before.
        let since = *self.since.get_or_insert(now);
        if issued.saturating_add(CLOCK_SKEW) < since {
            return false;
        }
        let period = issued.checked_div(lifetime).unwrap_or(issued);
        if period > self.current.period {
            let next = Generation { period, ..Generation::default() };
            self.previous = core::mem::replace(&mut self.current, next);
        }
        let generation = if period == self.current.period {
            &mut self.current
        } else if period == self.previous.period {
            &mut self.previous
        } else {
            return false;
        };
        generation.insert(id, self.capacity)
    }
}

impl Generation {
    /// Adds an ID; false if it is there already or there is no room.
    fn insert(&mut self, id: TokenId, capacity: usize) -> bool {
        if self.used >= capacity || !self.reserve() {
            return false;
        }
        let value = fingerprint(id);
        match place(&mut self.slots, value) {
            Some(slot) if *slot == 0 => {
                *slot = value;
                self.used = self.used.saturating_add(1);
                true
            }
            _ => false,
        }
    }

    /// Keeps at least half of the places empty.
    fn reserve(&mut self) -> bool {
        if self.used.saturating_mul(2) < self.slots.len() {
            return true;
        }
        let len = self.slots.len().saturating_mul(2).max(64);
        let mut slots = Vec::new();
        // `first_place` counts them in 32 bits.
        if u32::try_from(len).is_err() || slots.try_reserve_exact(len).is_err() {
            return false;
        }
        slots.resize(len, 0);
        for &value in self.slots.iter().filter(|v| **v != 0) {
            if let Some(slot) = place(&mut slots, value) {
                *slot = value;
            }
        }
        self.slots = slots;
        true
    }
}

/// The place of `value`, or the empty one where it belongs.
fn place(slots: &mut [u64], value: u64) -> Option<&mut u64> {
    let mask = slots.len().checked_sub(1)?;
    let start = usize::try_from(first_place(value, u32::try_from(mask).ok()?)).ok()?;
    let offset = (0..slots.len()).find(|n| {
        let index = start.wrapping_add(*n) & mask;
        slots.get(index).is_none_or(|&s| s == 0 || s == value)
    })?;
    slots.get_mut(start.wrapping_add(offset) & mask)
}

/// Where the search for `value` begins: its low bits, on machines of any width.
const fn first_place(value: u64, mask: u32) -> u32 {
    value as u32 & mask
}

/// Eight bytes of an ID, which is random; never zero.
fn fingerprint(id: TokenId) -> u64 {
    let value = id.0.iter().take(8).fold(0u64, |v, &b| v << 8 | u64::from(b));
    value.max(1)
}

#[cfg(test)]
#[path = "token_tests.rs"]
mod tests;
