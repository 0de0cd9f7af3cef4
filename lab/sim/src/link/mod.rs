//! One direction of a path as a state machine without a clock: packets are offered with the
//! present time, and come out when theirs has come.
//!
//! Impairments act in the order in which a packet would meet them: black hole, listed drops, loss,
//! MTU, bottleneck with its queue, ECN, corruption, delay, duplication.

mod corrupt;
mod delay;
mod ecn;
mod loss;
mod queue;
mod settings;
mod stats;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use quicket_engine::time::{Duration, Time};
use quicket_wire::EcnCodepoint;

pub use delay::Reorder;
pub use ecn::EcnTreatment;
pub use loss::{BurstLoss, PacketList};
pub use settings::{LinkSettings, Setting};
pub use stats::{DropReason, Fate, LinkStats, Treatment};

use crate::datagram::Datagram;
use crate::rng::SimRng;
use crate::schedule::Schedule;

/// What a schedule does to a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkChange {
    /// Changes a setting for packets offered from then on.
    Set(Setting),
    /// Opens a black hole: all packets offered during this time vanish.
    Blackhole(Duration),
}

/// One direction of a path.
#[derive(Clone, Debug)]
pub struct Link {
    settings: LinkSettings,
    schedule: Schedule<LinkChange>,
    blackhole_until: Time,
    burst: loss::BurstState,
    bottleneck: queue::Bottleneck,
    propagation: delay::Propagation,
    chance: Chance,
    in_flight: BTreeMap<(Time, u64), Datagram>,
    next_id: u64,
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

impl Link {
    /// A link that starts with `settings` and changes by `schedule`.
    pub fn new(settings: LinkSettings, schedule: Schedule<LinkChange>, rng: &SimRng) -> Self {
        Self {
            settings,
            schedule,
            blackhole_until: Time::ZERO,
            burst: loss::BurstState::default(),
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
            in_flight: BTreeMap::new(),
            next_id: 0,
            stats: LinkStats::default(),
        }
    }

    /// Takes a packet in at `now` and says what becomes of it. Time must not go backwards from
    /// call to call.
    pub fn offer(&mut self, now: Time, mut datagram: Datagram) -> Fate {
        self.apply_changes(now);
        self.stats.offered += 1;
        self.stats.offered_bytes += datagram.ip_len() as u64;
        if let Some(reason) = self.drops_early(now, &datagram) {
            return self.dropped(reason);
        }
        let len = datagram.ip_len() as u64;
        let LinkSettings { rate, queue, .. } = self.settings;
        let Some(passage) = self.bottleneck.offer(now, len, rate, queue) else {
            return self.dropped(DropReason::Queue);
        };
        let stats = &mut self.stats;
        stats.longest_queue_packets = stats.longest_queue_packets.max(passage.queued_packets);
        stats.longest_queue_bytes = stats.longest_queue_bytes.max(passage.queued_bytes);
        let marked = self.treat_ecn(&mut datagram, &passage);
        let corrupted = self.settings.corrupt.draw(&mut self.chance.corrupt)
            && corrupt::corrupt(&mut datagram.payload, &mut self.chance.corrupt);
        self.stats.corrupted += u64::from(corrupted);
        let duplicated = self.settings.duplicate.draw(&mut self.chance.duplicate);
        if duplicated {
            self.stats.duplicated += 1;
            self.launch(passage.departs, datagram.clone());
        }
        let arrival = self.launch(passage.departs, datagram);
        let (arrives, reordered) = (arrival.at, arrival.reordered);
        Fate::Passed(Treatment { arrives, corrupted, reordered, duplicated, marked })
    }

    /// When the next packet comes out; `None` while the link is empty.
    pub fn next_delivery_time(&self) -> Option<Time> {
        self.in_flight.first_key_value().map(|((at, _), _)| *at)
    }

    /// The next packet that has arrived by `now`, in order of arrival.
    pub fn poll(&mut self, now: Time) -> Option<Datagram> {
        let entry = self.in_flight.first_entry().filter(|entry| entry.key().0 <= now)?;
        let datagram = entry.remove();
        self.stats.delivered += 1;
        self.stats.delivered_bytes += datagram.ip_len() as u64;
        Some(datagram)
    }

    /// What happened so far.
    pub fn stats(&self) -> &LinkStats {
        &self.stats
    }

    /// The settings in force at the latest offer.
    pub fn settings(&self) -> &LinkSettings {
        &self.settings
    }

    /// Packets on their way.
    pub fn in_flight(&self) -> usize {
        self.in_flight.len()
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

    fn drops_early(&mut self, now: Time, datagram: &Datagram) -> Option<DropReason> {
        let settings = &self.settings;
        // Both loss models are asked whatever the other says, so that each draws once per packet.
        let lost = settings.loss.draw(&mut self.chance.loss);
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
        } else if settings.mtu.is_some_and(|mtu| datagram.ip_len() > mtu as usize) {
            Some(DropReason::Mtu)
        } else {
            None
        }
    }

    fn dropped(&mut self, reason: DropReason) -> Fate {
        let counter = match reason {
            DropReason::Loss => &mut self.stats.lost,
            DropReason::BurstLoss => &mut self.stats.lost_in_bursts,
            DropReason::Listed => &mut self.stats.dropped_by_number,
            DropReason::Queue => &mut self.stats.dropped_by_queue,
            DropReason::Mtu => &mut self.stats.dropped_by_mtu,
            DropReason::Blackhole => &mut self.stats.dropped_by_blackhole,
        };
        *counter += 1;
        Fate::Dropped(reason)
    }

    /// Marks and rewrites the ECN field; true if it was marked.
    fn treat_ecn(&mut self, datagram: &mut Datagram, passage: &queue::Passage) -> bool {
        let settings = &self.settings;
        let congested = settings.mark_above.is_some_and(|length| passage.is_above(length));
        let chosen = settings.mark.draw(&mut self.chance.mark);
        let marked = ecn::is_capable(datagram.ecn) && (congested || chosen);
        if marked {
            datagram.ecn = EcnCodepoint::Ce;
            self.stats.marked += 1;
        }
        let treated = settings.ecn.apply(datagram.ecn);
        self.stats.ecn_rewritten += u64::from(treated != datagram.ecn);
        datagram.ecn = treated;
        marked
    }

    fn launch(&mut self, departs: Time, datagram: Datagram) -> delay::Arrival {
        let LinkSettings { delay, jitter, .. } = self.settings;
        let reorder = self.settings.reorder.as_ref();
        let arrival =
            self.propagation.arrival(departs, (delay, jitter), reorder, &mut self.chance.delay);
        self.stats.reordered += u64::from(arrival.reordered);
        self.in_flight.insert((arrival.at, self.next_id), datagram);
        self.next_id += 1;
        arrival
    }
}
