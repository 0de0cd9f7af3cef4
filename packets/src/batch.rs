//! Frames that a port has sent together, or that have come by a network device, on their way through the switch.
//!
//! They go step by step, all of them each step: copied, checked, delivered. So the processor fetches what it needs of
//! one while it waits for another's, and what a step has written is in its cache when the next one reads it.

use quicket_ring::MAX_SLOT;

use crate::counters::{Counters, Reason};
use crate::device::Entrance;
use crate::frame::Ends;
use crate::registry::{NOBODY, Owner, Registry};
use crate::tuple::Key;

/// Frames of a port, or of a device's queue, in one turn: then others have theirs.
pub const BATCH: u32 = 64;

/// Where the copy of a frame begins, its length, and to whom it goes: NOBODY, if it may leave.
#[derive(Clone, Copy, Default)]
struct Frame {
    at: u32,
    len: u16,
    owner: Owner,
}

/// What frames may be.
#[derive(Clone, Copy)]
pub(crate) struct Rule<'a> {
    /// The port whose tuple the source has to be. Of frames from outside, it is nobody's.
    pub(crate) sender: Option<Owner>,
    /// Whether frames whose destination nobody has are kept, to leave by a device.
    pub(crate) may_leave: bool,
    /// Of frames from outside: by what they come, which says who does not come by that.
    pub(crate) entrance: Option<Entrance<'a>>,
}

/// The ends of a frame that is none.
const NO_ENDS: Ends = {
    let key = Key { address: 0, rest: 0 };
    Ends { source: key, destination: key }
};

/// The switch's own copies of frames: what is checked is what is delivered.
pub(crate) struct Batch {
    copies: Box<[u8]>,
    frames: [Frame; BATCH as usize],
    /// Of frames that leave; of others anything.
    ends: Box<[Ends; BATCH as usize]>,
    len: usize,
}

impl Batch {
    pub(crate) fn new() -> Self {
        let copies = vec![0; MAX_SLOT as usize].into();
        let frames = [Frame::default(); BATCH as usize];
        Self { copies, frames, ends: Box::new([NO_ENDS; BATCH as usize]), len: 0 }
    }

    /// Copies frames that stand at positions of a ring, from `from` to `to`, as many as there is room for, and one at
    /// least. Returns the position behind them. `get` reads once what stands at a position: what `load` is told, and the
    /// length of the frame. `load` copies that to the beginning of a buffer, or says why not, which is counted.
    #[inline]
    pub(crate) fn fill<D>(
        &mut self,
        (from, to): (u32, u32),
        counters: &mut Counters,
        get: impl Fn(u32) -> (D, u16),
        mut load: impl FnMut(D, u16, &mut [u8]) -> Result<(), Reason>,
    ) -> u32 {
        let mut used = 0;
        self.len = 0;
        for position in from..to {
            let (descriptor, len) = get(position);
            let rest = self.copies.get_mut(used..).unwrap_or_default();
            // A frame has whole lines: so ports' memory is copied from and to.
            let room = usize::from(len).next_multiple_of(64);
            if used > 0 && room > rest.len() {
                return position;
            }
            let Some(place) = self.frames.get_mut(self.len) else { return position };
            if let Err(reason) = load(descriptor, len, rest) {
                counters.drop_one(reason);
                continue;
            }
            *place = Frame { at: used as u32, len, owner: NOBODY };
            self.len += 1;
            used += room;
        }
        to
    }

    /// Checks the copies with `read`, and finds out to whom they go. Those that are not in order, or not by the rule, are
    /// counted and left out. `read` may make a frame shorter, and says by how many octets.
    #[inline]
    pub(crate) fn check(
        &mut self,
        rule: Rule<'_>,
        registry: &Registry,
        counters: &mut Counters,
        read: impl Fn(&mut [u8]) -> Result<(Ends, u16), Reason>,
    ) {
        // Most often, neighbours are of one flow; and what is registered does not change meanwhile.
        let mut last: Option<(Ends, Owner)> = None;
        let mut kept = 0;
        for n in 0..self.len {
            let frame = self.frames[n];
            let at = frame.at as usize;
            let octets = self.copies.get_mut(at..at + usize::from(frame.len)).unwrap_or_default();
            let found = read(octets).and_then(|(ends, less)| {
                let owner = match last {
                    Some((same, owner)) if same == ends => owner,
                    _ => {
                        let owner = rule.owner(ends, registry)?;
                        last = Some((ends, owner));
                        owner
                    }
                };
                if owner == NOBODY {
                    self.ends[kept] = ends;
                }
                Ok(Frame { owner, len: frame.len.saturating_sub(less), ..frame })
            });
            match found {
                Ok(frame) => {
                    self.frames[kept] = frame;
                    kept += 1;
                }
                Err(reason) => counters.drop_one(reason),
            }
        }
        self.len = kept;
    }

    /// To whom the `n`th frame goes, none if it leaves, and how many that follow one another go to the same.
    #[inline]
    pub(crate) fn run(&self, n: usize) -> Option<(Option<Owner>, usize)> {
        let frames = self.frames.get(n..self.len)?;
        let owner = frames.first()?.owner;
        let run = frames.iter().take_while(|frame| frame.owner == owner).count();
        Some(((owner != NOBODY).then_some(owner), run))
    }

    /// The `n`th frame's copy, with what is behind it up to whole lines, and its length.
    #[inline]
    pub(crate) fn frame(&mut self, n: usize) -> Option<(&mut [u8], u16)> {
        let Frame { at, len, .. } = *self.frames.get(n)?;
        let (at, whole) = (at as usize, usize::from(len).next_multiple_of(64));
        Some((self.copies.get_mut(at..at + whole)?, len))
    }

    /// The `n`th frame's copy, and its ends, if it leaves.
    #[inline]
    pub(crate) fn leaving(&mut self, n: usize) -> Option<(&mut [u8], Ends)> {
        let Frame { at, len, .. } = *self.frames.get(n).filter(|frame| frame.owner == NOBODY)?;
        let at = at as usize;
        Some((self.copies.get_mut(at..at + usize::from(len))?, *self.ends.get(n)?))
    }
}

impl Rule<'_> {
    /// Who has the destination, if the source may send: NOBODY, if it may leave.
    #[inline]
    fn owner(self, ends: Ends, registry: &Registry) -> Result<Owner, Reason> {
        if registry.owner(ends.source) != self.sender {
            return Err(Reason::Source);
        }
        let (source, destination) = (ends.source.address, ends.destination.address);
        if self.entrance.is_some_and(|entrance| !entrance.may_come(source, destination)) {
            return Err(Reason::Source);
        }
        match registry.receiver(&ends) {
            Some(owner) => Ok(owner),
            None if self.may_leave => Ok(NOBODY),
            None => Err(Reason::Destination),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, SocketAddr};

    use super::*;
    use crate::{compose, frame};

    const OURS: Owner = 3;
    const OTHERS: Owner = 4;

    fn address(n: u8) -> SocketAddr {
        ([192, 0, 2, n], 7).into()
    }

    fn udp(from: u8, to: u8, len: usize) -> Vec<u8> {
        let mut slot = vec![0; 2048];
        let len = compose::udp(&mut slot, address(from), address(to), &vec![to; len]).unwrap();
        slot.truncate(len);
        slot
    }

    /// Who is at which address: 1 and 2 are ours, 3 is the others'.
    fn registry() -> Registry {
        let mut registry = Registry::new([1, 2, 3]);
        for (n, owner) in [(1, OURS), (2, OURS), (3, OTHERS)] {
            let IpAddr::V4(ip) = address(n).ip() else { unreachable!() };
            registry.register(Key::v4(ip.octets(), 17, 7), owner).unwrap();
        }
        registry
    }

    /// The owner of each frame that is kept, and its octets.
    type Kept = Vec<(Option<Owner>, Vec<u8>)>;

    /// What a batch makes of frames: those that are kept, and what is counted.
    fn sort(frames: &[Vec<u8>], rule: Rule<'_>) -> (Kept, Counters) {
        let (mut batch, mut counters) = (Batch::new(), Counters::default());
        let mut kept = Kept::new();
        let (mut at, to) = (0, frames.len() as u32);
        while at < to {
            let before = at;
            let get = |at: u32| (at as usize, frames[at as usize].len() as u16);
            at = batch.fill((at, to), &mut counters, get, |at, len, to| {
                assert_eq!(usize::from(len), frames[at].len());
                to[..frames[at].len()].copy_from_slice(&frames[at]);
                if frames[at].len() == 1 { Err(Reason::Descriptor) } else { Ok(()) }
            });
            assert!(at > before && batch.len <= BATCH as usize);
            batch.check(rule, &registry(), &mut counters, |frame| Ok((frame::check(frame)?, 0)));
            let mut n = 0;
            while let Some((owner, run)) = batch.run(n) {
                for n in n..n + run {
                    let (copy, len) = batch.frame(n).unwrap();
                    let octets = copy[..len.into()].to_vec();
                    assert_eq!(copy.len() % 64, 0);
                    match batch.leaving(n) {
                        Some((copy, ends)) => {
                            assert_eq!((owner, &*copy), (None, &octets[..]));
                            assert_eq!(frame::check(copy), Ok(ends));
                        }
                        None => assert!(owner.is_some()),
                    }
                    kept.push((owner, octets));
                }
                n += run;
            }
        }
        (kept, counters)
    }

    #[test]
    fn frames_are_kept_in_order_with_whom_they_are_for() {
        // There is room for less than all of them at once.
        let frames: Vec<_> = (0..90_u16)
            .map(|n| match n % 9 {
                0 | 1 => udp(1, 3, 700),
                2 => udp(3, 1, 10),
                3 => udp(2, 9, 300),
                4 => vec![0],
                5 => udp(1, 8, 18),
                6 => udp(1, 2, 500),
                7 => udp(8, 1, 1400),
                _ => udp(7, 9, 64),
            })
            .collect();
        let of = |kinds: &[usize]| -> Vec<_> {
            let all = frames.iter().enumerate().filter(|(n, _)| kinds.contains(&(n % 9)));
            all.map(|(n, frame)| (n % 9, frame.clone())).collect()
        };
        for may_leave in [true, false] {
            let rule = Rule { sender: Some(OURS), may_leave, entrance: None };
            let (kept, counters) = sort(&frames, rule);
            let expected = if may_leave { of(&[0, 1, 3, 5, 6]) } else { of(&[0, 1, 6]) };
            let owner = |kind| match kind {
                0 | 1 => Some(OTHERS),
                6 => Some(OURS),
                _ => None,
            };
            let expected: Vec<_> =
                expected.into_iter().map(|(kind, frame)| (owner(kind), frame)).collect();
            assert!(kept == expected, "{may_leave}");
            let reasons = [Reason::Source, Reason::Descriptor, Reason::Destination];
            let left_out = if may_leave { 0 } else { 20 };
            assert_eq!(reasons.map(|reason| counters.dropped(reason)), [30, 10, left_out]);
        }
        // From outside: nobody's sources, to tuples.
        let (kept, counters) =
            sort(&frames, Rule { sender: None, may_leave: false, entrance: None });
        let expected: Vec<_> = of(&[7]).into_iter().map(|(_, frame)| (Some(OURS), frame)).collect();
        assert!(kept == expected);
        let reasons = [Reason::Source, Reason::Descriptor, Reason::Destination];
        assert_eq!(reasons.map(|reason| counters.dropped(reason)), [60, 10, 10]);
    }
}
