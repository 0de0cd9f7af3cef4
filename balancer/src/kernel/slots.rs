//! Where a program counts what it forwards to each server.
//!
//! Slots are given to servers by their numbers. While one program takes the place of another, packets
//! meet either, and both count: a server that is gone keeps its slot, and its counters what comes,
//! until the next program is made.

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use quicket_bpf::Counts;

use crate::config::MAX_SERVERS;
use crate::counters::{ServerCounters, add};
use crate::snapshot::Snapshot;

/// All servers may be replaced at once.
const MAX_SLOTS: u32 = 2 * MAX_SERVERS as u32;

/// What the kernel has forwarded.
#[derive(Debug)]
pub(super) struct Counted {
    counts: Counts,
    slots: Mutex<Slots>,
}

#[derive(Debug, Default)]
struct Slots {
    used: HashMap<u32, Slot>,
    /// Those of servers that the program before has sent to.
    leaving: Vec<Slot>,
    free: Vec<u32>,
    /// Slots that were given so far.
    given: u32,
    /// Packets and bytes of all that have been added to counters.
    total: [u64; 2],
}

#[derive(Debug)]
struct Slot {
    at: u32,
    counters: Arc<ServerCounters>,
    /// What has been added to the counters.
    seen: [u64; 2],
}

impl Counted {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self { counts: Counts::new(MAX_SLOTS)?, slots: Mutex::default() })
    }

    pub(super) const fn counts(&self) -> &Counts {
        &self.counts
    }

    fn slots(&self) -> MutexGuard<'_, Slots> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds what has been forwarded to the counters of servers; packets and bytes of all so far.
    pub(super) fn count(&self) -> [u64; 2] {
        self.slots().count(&self.counts)
    }

    /// The slots of a snapshot's servers, by their numbers: a program that is to be made counts there.
    pub(super) fn prepare(&self, snapshot: &Snapshot) -> HashMap<u32, u32> {
        let mut slots = self.slots();
        slots.count(&self.counts);
        let Slots { leaving, free, .. } = &mut *slots;
        // The program that sent to them was replaced before the last one was.
        free.extend(leaving.drain(..).map(|slot| slot.at));
        let members = snapshot.members().iter();
        members.filter_map(|one| slots.of(one.number, &one.counters, &self.counts)).collect()
    }

    /// The program that was prepared has taken its place: others lose their slots, later.
    pub(super) fn settle(&self, snapshot: &Snapshot) {
        let numbers: HashSet<u32> = snapshot.members().iter().map(|one| one.number).collect();
        let mut slots = self.slots();
        let Slots { used, leaving, .. } = &mut *slots;
        leaving
            .extend(used.extract_if(|number, _| !numbers.contains(number)).map(|(_, slot)| slot));
    }
}

impl Slots {
    fn count(&mut self, counts: &Counts) -> [u64; 2] {
        for slot in self.used.values_mut().chain(&mut self.leaving) {
            let Ok(now) = counts.of(slot.at) else { continue };
            let grown = [0, 1].map(|which: usize| now[which].wrapping_sub(slot.seen[which]));
            slot.seen = now;
            add(&slot.counters.sent, grown[0]);
            add(&slot.counters.sent_bytes, grown[1]);
            self.total.iter_mut().zip(grown).for_each(|(sum, one)| *sum += one);
        }
        self.total
    }

    /// A server's number and its slot; none if there are too many.
    fn of(
        &mut self,
        number: u32,
        counters: &Arc<ServerCounters>,
        counts: &Counts,
    ) -> Option<(u32, u32)> {
        if let Some(slot) = self.used.get(&number) {
            return Some((number, slot.at));
        }
        let next = (self.given < MAX_SLOTS).then_some(self.given);
        let at = self.free.pop().or(next)?;
        self.given += u32::from(Some(at) == next);
        let slot = Slot { at, counters: counters.clone(), seen: counts.of(at).unwrap_or_default() };
        self.used.insert(number, slot);
        Some((number, at))
    }
}
