//! What a program that watches a port is shown: the port's frames, each behind when it was forwarded.
//!
//! Numbers are in the order of the machine, as both sides are on one.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Octets before a frame: nanoseconds since 1970, the length of the whole frame, and how many were lost before it.
pub(crate) const HEAD: usize = 16;

/// Writes what is before a frame of `len` octets.
#[inline]
pub(crate) fn head(nanoseconds: u64, len: u16, lost: u32) -> [u8; HEAD] {
    let mut head = [0; HEAD];
    head[..8].copy_from_slice(&nanoseconds.to_ne_bytes());
    head[8..12].copy_from_slice(&u32::from(len).to_ne_bytes());
    head[12..].copy_from_slice(&lost.to_ne_bytes());
    head
}

/// Now, in nanoseconds since 1970.
pub(crate) fn now() -> u64 {
    let time = SystemTime::now().duration_since(UNIX_EPOCH);
    // They last until 2554.
    time.map_or(0, |time| time.as_nanos() as u64)
}

/// A frame of a port that is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen<'a> {
    /// When it was forwarded.
    pub time: SystemTime,
    /// How long it is, in octets.
    pub len: u32,
    /// Frames before it, since watching began, for which who watches had no room, modulo 2^32.
    pub lost: u32,
    /// Its first octets, all of them if there was room.
    pub octets: &'a [u8],
}

impl<'a> Seen<'a> {
    /// Reads what the switch has shown. None if it is too short for that.
    pub(crate) fn read(shown: &'a [u8]) -> Option<Self> {
        let (head, octets) = shown.split_first_chunk::<HEAD>()?;
        let time = UNIX_EPOCH + Duration::from_nanos(u64::from_ne_bytes(*head.first_chunk()?));
        let len = u32::from_ne_bytes(*head[8..].first_chunk()?);
        let lost = u32::from_ne_bytes(*head[12..].first_chunk()?);
        Some(Self { time, len, lost, octets })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_is_seen() {
        let shown = [&head(1_000_000_007, 1500, 3)[..], b"frame"].concat();
        let time = UNIX_EPOCH + Duration::new(1, 7);
        assert_eq!(Seen::read(&shown), Some(Seen { time, len: 1500, lost: 3, octets: b"frame" }));
        assert_eq!(Seen::read(&shown[..15]), None);
    }
}
