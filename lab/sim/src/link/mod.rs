//! One direction of a path as a state machine without a clock: packets are offered with the
//! present time, and come out when theirs has come.
//!
//! A [`Channel`] decides what becomes of each packet, a [`Link`] keeps those that pass until they
//! arrive. Who has packets in buffers of his own, as a forwarder between real sockets, takes the
//! channel alone.

mod channel;
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

pub use channel::{Channel, PacketMut, Verdict};
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

/// One direction of a path, with the packets on their way.
#[derive(Clone, Debug)]
pub struct Link {
    channel: Channel,
    in_flight: BTreeMap<(Time, u64), Datagram>,
    next_id: u64,
}

impl Link {
    /// A link that starts with `settings` and changes by `schedule`.
    pub fn new(settings: LinkSettings, schedule: Schedule<LinkChange>, rng: &SimRng) -> Self {
        Self::from(Channel::new(settings, schedule, rng))
    }

    /// Takes a packet in at `now` and says what becomes of it. Time must not go backwards from
    /// call to call.
    pub fn offer(&mut self, now: Time, mut datagram: Datagram) -> Fate {
        let ip_len = datagram.ip_len();
        let Datagram { ecn, payload, .. } = &mut datagram;
        let verdict = self.channel.offer(now, PacketMut { ip_len, ecn, payload });
        if let Some(at) = verdict.copy {
            self.launch(at, datagram.clone());
        }
        if let Fate::Passed(treatment) = verdict.fate {
            self.launch(treatment.arrives, datagram);
        }
        verdict.fate
    }

    /// When the next packet comes out; `None` while the link is empty.
    pub fn next_delivery_time(&self) -> Option<Time> {
        self.in_flight.first_key_value().map(|((at, _), _)| *at)
    }

    /// The next packet that has arrived by `now`, in order of arrival.
    pub fn poll(&mut self, now: Time) -> Option<Datagram> {
        let entry = self.in_flight.first_entry().filter(|entry| entry.key().0 <= now)?;
        let datagram = entry.remove();
        self.channel.count_delivery(datagram.ip_len());
        Some(datagram)
    }

    /// What happened so far.
    pub fn stats(&self) -> &LinkStats {
        self.channel.stats()
    }

    /// The settings in force at the latest offer.
    pub fn settings(&self) -> &LinkSettings {
        self.channel.settings()
    }

    /// Packets on their way.
    pub fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    fn launch(&mut self, at: Time, datagram: Datagram) {
        self.in_flight.insert((at, self.next_id), datagram);
        self.next_id += 1;
    }
}

impl From<Channel> for Link {
    fn from(channel: Channel) -> Self {
        Self { channel, in_flight: BTreeMap::new(), next_id: 0 }
    }
}
