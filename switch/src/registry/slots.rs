//! The owner numbers of an address: who has them, who had them, and when they can be used again.

use quicket_engine::time::{Duration, Time};
use quicket_steering::OwnerBits;

use super::RegisterError;
use super::listener::Listener;

/// Generation and worker in a connection ID of an address that programs share: 256 slots, one for each
/// generation of each program, with 256 workers.
pub const OWNER_BITS: OwnerBits = match OwnerBits::new(8, 8) {
    Ok(bits) => bits,
    Err(_) => OwnerBits::TWO_OCTETS,
};

/// How many slots there are.
pub(super) const SLOTS: usize = OWNER_BITS.generations();

/// How many listeners a user has at an address, living and known dead.
pub const MAX_LISTENERS_PER_USER: usize = 240;

/// ... and another user than the switch's, where there may be others: several such users have room.
pub const MAX_LISTENERS_PER_TENANT: usize = 32;

/// When a slot whose listener is gone may be used again by the same user. Peers that have something to
/// say hear of its end at their next packet, by a stateless reset; those that have not give up after
/// their idle timeout, which is 30 seconds unless a program says otherwise. This is twice as long. A
/// peer that comes later still comes to a program with the same reset key, and is reset by that.
pub const RECYCLE_AFTER: Duration = Duration::from_secs(60);

/// ... and by another user, whose reset key is another: a peer that comes later waits for its idle
/// timeout.
pub const RECYCLE_FOR_OTHERS_AFTER: Duration = Duration::from_secs(600);

/// How long after its start a switch that took over gives numbers only to those who had them, so that
/// programs that come back find theirs. They do so within a second.
pub const RECLAIM_TIME: Duration = Duration::from_secs(2);

/// One number.
#[derive(Clone, Debug, Default)]
pub(super) enum Slot {
    /// Nobody has it, and no peer knows it.
    #[default]
    Free,
    /// Somebody has it.
    Held(Box<Listener>),
    /// Its listener is gone, and peers may not know.
    Dead { uid: u32, since: Time },
}

/// All of an address.
#[derive(Clone, Debug)]
pub(super) struct Slots(Box<[Slot]>);

impl Slots {
    pub(super) fn new() -> Self {
        Self((0..SLOTS).map(|_| Slot::Free).collect())
    }

    pub(super) fn get(&self, slot: u8) -> &Slot {
        self.0.get(usize::from(slot)).unwrap_or(&Slot::Free)
    }

    pub(super) fn get_mut(&mut self, slot: u8) -> Option<&mut Slot> {
        self.0.get_mut(usize::from(slot))
    }

    pub(super) fn listener(&self, slot: u8) -> Option<&Listener> {
        match self.get(slot) {
            Slot::Held(listener) => Some(listener),
            _ => None,
        }
    }

    pub(super) fn listener_mut(&mut self, slot: u8) -> Option<&mut Listener> {
        match self.get_mut(slot) {
            Some(Slot::Held(listener)) => Some(listener),
            _ => None,
        }
    }

    pub(super) fn listeners(&self) -> impl Iterator<Item = &Listener> {
        self.0.iter().filter_map(|slot| match slot {
            Slot::Held(listener) => Some(&**listener),
            _ => None,
        })
    }

    pub(super) fn dead(&self) -> usize {
        self.0.iter().filter(|slot| matches!(slot, Slot::Dead { .. })).count()
    }

    pub(super) fn free(&self) -> usize {
        self.0.iter().filter(|slot| matches!(slot, Slot::Free)).count()
    }

    fn of_user(&self, user: u32) -> usize {
        let of_user = |slot: &&Slot| match slot {
            Slot::Held(listener) => listener.uid == user,
            Slot::Dead { uid, .. } => *uid == user,
            Slot::Free => false,
        };
        self.0.iter().filter(of_user).count()
    }

    /// A number for a new listener: one that no peer knows, or else one whose time is over.
    /// `most`: so many may be of one user.
    pub(super) fn find(&self, now: Time, uid: u32, most: usize) -> Result<u8, RegisterError> {
        let numbered = || (0..=u8::MAX).zip(&self.0);
        let mut free = numbered().filter(|(_, slot)| matches!(slot, Slot::Free));
        let full = self.of_user(uid) >= most;
        if let (false, Some((slot, _))) = (full, free.next()) {
            return Ok(slot);
        }
        let left = |slot: &Slot| match slot {
            Slot::Dead { uid: user, .. } if full && *user != uid => None,
            Slot::Dead { uid: user, since } => {
                let time = if *user == uid { RECYCLE_AFTER } else { RECYCLE_FOR_OTHERS_AFTER };
                let left = time.as_nanos().saturating_sub(now.since(*since).as_nanos());
                Some(Duration::from_nanos(left))
            }
            _ => None,
        };
        let soonest = numbered().filter_map(|(slot, each)| Some((left(each)?, slot))).min();
        match soonest {
            Some((Duration::ZERO, slot)) => Ok(slot),
            _ if full => Err(RegisterError::TooManyListeners(most)),
            soonest => Err(RegisterError::NoSlot(soonest.map(|(left, _)| left))),
        }
    }
}
