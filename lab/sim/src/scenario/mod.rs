//! A network path and what happens on it over time, as plain data with a text form.
//!
//! ```text
//! delay=15ms rate=10mbit queue=25; down loss=1%; at 2s blackhole=500ms; every 1s rebind=port
//! ```
//!
//! Clauses are separated by `;`. A clause is a list of `key=value`, which may be preceded by a time
//! (`at TIME`, `every TIME` or `every TIME from TIME`) and by a direction (`up`: from the host that
//! connects, `down`: to it; both if neither is written). The first clause may be the name of a
//! [named scenario](Scenario::NAMES) that the others then change.
//!
//! What the simulator of the QUIC interop runner takes is understood as well:
//!
//! ```text
//! drop-rate --delay=15ms --bandwidth=10Mbps --queue=25 --rate_to_server=2 --rate_to_client=2
//! ```

mod named;
mod parse;
mod print;
mod runner;
#[cfg(test)]
mod tests;

use quicket_engine::time::{Duration, Time};

use crate::link::{Channel, Link, LinkChange, LinkSettings, Setting};
use crate::nat::{Nat, Rebind};
use crate::rng::SimRng;
use crate::schedule::{Schedule, When};

pub use parse::ScenarioError;

/// One direction of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Way {
    /// From the host that connects to the other.
    Up,
    /// Back.
    Down,
}

/// What may happen on a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// A setting changes.
    Set(Setting),
    /// Everything is lost for a time.
    Blackhole(Duration),
    /// The NAT in front of the host that connects rebinds.
    Rebind(Rebind),
}

/// Something that happens on a path at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// When.
    pub when: When,
    /// In which direction; `None` is both.
    pub way: Option<Way>,
    /// What.
    pub action: Action,
}

/// A path: two directions, and what changes over time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scenario {
    /// From the host that connects.
    pub up: LinkSettings,
    /// To it.
    pub down: LinkSettings,
    /// What happens later.
    pub changes: Vec<Change>,
}

impl Scenario {
    /// The two links of the path, up and down, for a start at `start`.
    pub fn links(&self, start: Time, rng: &SimRng) -> (Link, Link) {
        let (up, down) = self.channels(start, rng);
        (up.into(), down.into())
    }

    /// The decisions of the two links, for those who keep packets themselves.
    pub fn channels(&self, start: Time, rng: &SimRng) -> (Channel, Channel) {
        let channel = |way, settings: &LinkSettings, label| {
            let changes = self.changes.iter().filter_map(move |change| {
                let concerned = change.way.is_none_or(|w| w == way);
                let action = match &change.action {
                    Action::Set(setting) => LinkChange::Set(setting.clone()),
                    Action::Blackhole(length) => LinkChange::Blackhole(*length),
                    Action::Rebind(_) => return None,
                };
                concerned.then_some((change.when, action))
            });
            Channel::new(settings.clone(), Schedule::new(start, changes), &rng.stream(label))
        };
        (channel(Way::Up, &self.up, "up"), channel(Way::Down, &self.down, "down"))
    }

    /// The NAT in front of the host that connects; see [`Nat::new`] for `site`.
    pub fn nat(&self, start: Time, site: u8, rng: &SimRng) -> Nat {
        Nat::new(self.rebindings(start), site, rng)
    }

    /// When the NAT in front of the host that connects rebinds.
    pub fn rebindings(&self, start: Time) -> Schedule<Rebind> {
        let changes = self.changes.iter().filter_map(|change| match change.action {
            Action::Rebind(rebind) => Some((change.when, rebind)),
            Action::Set(_) | Action::Blackhole(_) => None,
        });
        Schedule::new(start, changes)
    }

    /// The shortest round trip at the start: propagation both ways.
    pub fn min_rtt(&self) -> Duration {
        self.up.delay + self.down.delay
    }
}
