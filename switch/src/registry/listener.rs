//! One generation of a program at an address.

use quicket_engine::time::Time;

use super::names::Names;
use super::{Attention, Family, ListenerId, ProcessId, Registration};

/// Where a listener is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// It has an owner number, and has not said what it serves: it reserves nothing and gets no first
    /// packets.
    Joined,
    /// It has an owner number and reserves its names, and is not ready: it gets no first packets, and
    /// what it is to replace goes on.
    Preparing,
    /// It gets first packets.
    Active,
    /// It keeps its connections and gets no new ones.
    Draining {
        /// When the last of them have to end.
        deadline: Option<Time>,
    },
}

/// What a listener got.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ListenerCounters {
    /// Connections that it has, as it says itself, if it did.
    pub connections: Option<u64>,
    /// First packets that were given to it.
    pub first_packets: u64,
    /// Datagrams that were given to it, those included.
    pub datagrams: u64,
    /// Datagrams that were for it, and lost because it was too slow.
    pub lost: u64,
}

/// A listener as the registry keeps it.
#[derive(Clone, Debug)]
pub(super) struct Listener {
    pub(super) id: ListenerId,
    pub(super) uid: u32,
    pub(super) process: ProcessId,
    pub(super) program: String,
    pub(super) names: Names,
    pub(super) workers: u16,
    pub(super) reuse_port: bool,
    pub(super) replace: bool,
    pub(super) phase: Phase,
    pub(super) family: Option<Family>,
    pub(super) attention: Attention,
    pub(super) incarnation: u64,
    /// It had its number from a switch that is gone.
    pub(super) kept: bool,
    /// Peers may have connection IDs that lead to it.
    pub(super) used: bool,
    pub(super) counters: ListenerCounters,
}

impl Listener {
    /// Whether it is a generation of the program that registers.
    pub(super) fn is_of(&self, uid: u32, program: &str) -> bool {
        self.uid == uid && self.program == program
    }

    /// Whether both may have the same names: SO_REUSEPORT or one family, the same user, the same names and no
    /// others.
    pub(super) fn shares_with(&self, new: &Registration) -> bool {
        let kin = self.family.is_some() && self.family == new.family;
        let shared = self.reuse_port && new.reuse_port;
        (shared || kin) && self.uid == new.uid && self.names == new.names
    }

    /// Whether both have the same names, as members of a group.
    pub(super) fn is_beside(&self, other: &Self) -> bool {
        let kin = self.family.is_some() && self.family == other.family;
        (kin || self.reuse_port && other.reuse_port) && self.names == other.names
    }

    /// Whether its names are reserved for it.
    pub(super) const fn reserves(&self) -> bool {
        matches!(self.phase, Phase::Preparing | Phase::Active)
    }

    pub(super) const fn is_active(&self) -> bool {
        matches!(self.phase, Phase::Active)
    }
}
