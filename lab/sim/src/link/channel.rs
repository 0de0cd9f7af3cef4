//! What becomes of each packet, without keeping any.
//!
//! Impairments act in the order in which a packet would meet them: black hole, listed drops, loss,
//! MTU, bottleneck with its queue, ECN, corruption, delay, duplication.

use quicket_engine::time::Time;
use quicket_wire::EcnCodepoint;

use super::settings::LinkSettings;
use super::stats::{DropReason, Fate, LinkStats, Treatment};
use super::{LinkChange, corrupt, delay, ecn, loss, queue};
use crate::rng::SimRng;
use crate::schedule::Schedule;

/// A packet as a channel sees and changes it.
#[derive(Debug)]
pub struct PacketMut<'a> {
    /// Length of the IP packet in bytes.
    pub ip_len: usize,
    /// The ECN field of its IP header.
    pub ecn: &'a mut EcnCodepoint,
    /// The UDP payload.
    pub payload: &'a mut [u8],
}

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Whether and when it arrives, changed as it is now.
    pub fate: Fate,
    /// When a copy of it arrives, if one does. Of those that arrive at the same time, the copy
    /// comes first.
    pub copy: Option<Time>,
}

/// The decisions of one direction of a path.
#[derive(Clone, Debug)]
pub struct Channel {
    settings: LinkSettings,
    schedule: Schedule<LinkChange>,
    blackhole_until: Time,
    loss: loss::Runs,
    burst: loss::BurstState,
    corruption: loss::Runs,
    bottleneck: queue::Bottleneck,
    propagation: delay::Propagation,
    chance: Chance,
    stats: LinkStats,
}

/// A generator per impairment, so that switching one on leaves the others' draws as they were.
#[derive(Clone, Debug)]
struct Chance {
    loss: SimRng,
    burst: SimRng,
    corrupt: SimRng,
    delay: SimRng,
    duplicate: SimRng,
    mark: SimRng,
}

impl Channel {
    /// A channel that starts with `settings` and changes by `schedule`.
    pub fn new(settings: LinkSettings, schedule: Schedule<LinkChange>, rng: &SimRng) -> Self {
        Self {
            settings,
            schedule,
            blackhole_until: Time::ZERO,
            loss: loss::Runs::default(),
            burst: loss::BurstState::default(),
            corruption: loss::Runs::default(),
            bottleneck: queue::Bottleneck::default(),
            propagation: delay::Propagation::default(),
            chance: Chance {
                loss: rng.stream("loss"),
                burst: rng.stream("burst-loss"),
                corrupt: rng.stream("corrupt"),
                delay: rng.stream("delay"),
                duplicate: rng.stream("duplicate"),
                mark: rng.stream("mark"),
            },
            stats: LinkStats::default(),
        }
    }

    /// Takes a packet in at `now`, changes it, and says what becomes of it. Time must not go
    /// backwards from call to call.
    pub fn offer(&mut self, now: Time, packet: PacketMut<'_>) -> Verdict {
        self.apply_changes(now);
        let len = packet.ip_len as u64;
        self.stats.offered += 1;
        self.stats.offered_bytes += len;
        if let Some(reason) = self.drops_early(now, packet.ip_len) {
            return self.dropped(reason);
        }
        let LinkSettings { rate, queue, .. } = self.settings;
        let Some(passage) = self.bottleneck.offer(now, len, rate, queue) else {
            return self.dropped(DropReason::Queue);
        };
        let stats = &mut self.stats;
        stats.longest_queue_packets = stats.longest_queue_packets.max(passage.queued_packets);
        stats.longest_queue_bytes = stats.longest_queue_bytes.max(passage.queued_bytes);
        let marked = self.treat_ecn(packet.ecn, &passage);
        let corrupted = self.corrupts(packet.payload);
        let duplicated = self.settings.duplicate.draw(&mut self.chance.duplicate);
        self.stats.duplicated += u64::from(duplicated);
        let copy = duplicated.then(|| self.arrival(passage.departs).at);
        let delay::Arrival { at: arrives, reordered } = self.arrival(passage.departs);
        let treatment = Treatment { arrives, corrupted, reordered, duplicated, marked };
        Verdict { fate: Fate::Passed(treatment), copy }
    }

    /// Counts a packet that was handed out at the other end.
    pub fn count_delivery(&mut self, ip_len: usize) {
        self.stats.delivered += 1;
        self.stats.delivered_bytes += ip_len as u64;
    }

    /// What happened so far.
    pub fn stats(&self) -> &LinkStats {
        &self.stats
    }

    /// The settings in force at the latest offer.
    pub fn settings(&self) -> &LinkSettings {
        &self.settings
    }

    fn apply_changes(&mut self, now: Time) {
        while let Some((at, change)) = self.schedule.next_due(now) {
            match change {
                LinkChange::Set(setting) => self.settings.set(setting),
                LinkChange::Blackhole(length) => {
                    self.blackhole_until = self.blackhole_until.max(at + length);
                }
            }
        }
    }

    fn drops_early(&mut self, now: Time, ip_len: usize) -> Option<DropReason> {
        let settings = &self.settings;
        // Both loss models are asked whatever the other says, so that each draws once per packet.
        let lost = self.loss.draw(settings.loss, settings.loss_run, &mut self.chance.loss);
        let burst = settings
            .burst_loss
            .as_ref()
            .is_some_and(|model| self.burst.drops(model, &mut self.chance.burst));
        if now < self.blackhole_until {
            Some(DropReason::Blackhole)
        } else if settings.drop.contains(self.stats.offered) {
            Some(DropReason::Listed)
        } else if lost {
            Some(DropReason::Loss)
        } else if burst {
            Some(DropReason::BurstLoss)
        } else if settings.mtu.is_some_and(|mtu| ip_len > mtu as usize) {
            Some(DropReason::Mtu)
        } else {
            None
        }
    }

    fn dropped(&mut self, reason: DropReason) -> Verdict {
        let counter = match reason {
            DropReason::Loss => &mut self.stats.lost,
            DropReason::BurstLoss => &mut self.stats.lost_in_bursts,
            DropReason::Listed => &mut self.stats.dropped_by_number,
            DropReason::Queue => &mut self.stats.dropped_by_queue,
            DropReason::Mtu => &mut self.stats.dropped_by_mtu,
            DropReason::Blackhole => &mut self.stats.dropped_by_blackhole,
        };
        *counter += 1;
        Verdict { fate: Fate::Dropped(reason), copy: None }
    }

    fn corrupts(&mut self, payload: &mut [u8]) -> bool {
        let LinkSettings { corrupt, corrupt_run, .. } = self.settings;
        let rng = &mut self.chance.corrupt;
        let corrupted =
            self.corruption.draw(corrupt, corrupt_run, rng) && corrupt::corrupt(payload, rng);
        self.stats.corrupted += u64::from(corrupted);
        corrupted
    }

    /// Marks and rewrites the ECN field; true if it was marked.
    fn treat_ecn(&mut self, field: &mut EcnCodepoint, passage: &queue::Passage) -> bool {
        let settings = &self.settings;
        let congested = settings.mark_above.is_some_and(|length| passage.is_above(length));
        let chosen = settings.mark.draw(&mut self.chance.mark);
        let marked = ecn::is_capable(*field) && (congested || chosen);
        if marked {
            *field = EcnCodepoint::Ce;
            self.stats.marked += 1;
        }
        let treated = settings.ecn.apply(*field);
        self.stats.ecn_rewritten += u64::from(treated != *field);
        *field = treated;
        marked
    }

    fn arrival(&mut self, departs: Time) -> delay::Arrival {
        let LinkSettings { delay, jitter, .. } = self.settings;
        let reorder = self.settings.reorder.as_ref();
        let arrival =
            self.propagation.arrival(departs, (delay, jitter), reorder, &mut self.chance.delay);
        self.stats.reordered += u64::from(arrival.reordered);
        arrival
    }
}
