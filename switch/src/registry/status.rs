//! What there is, as plain values.

use super::address::ListenAddress;
use super::listener::{ListenerCounters, Phase};
use super::{Attention, ListenerId, ProcessId};

/// All addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// In the order in which they came.
    pub addresses: Vec<AddressStatus>,
}

/// An address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressStatus {
    /// Which one.
    pub address: ListenAddress,
    /// Those who have it, by slot.
    pub listeners: Vec<ListenerStatus>,
    /// Owner numbers whose listeners are gone and whose peers may not know yet.
    pub dead: usize,
    /// Owner numbers that nobody has.
    pub free: usize,
}

/// A generation of a program at an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerStatus {
    /// Names it towards the registry.
    pub listener: ListenerId,
    /// The program.
    pub program: String,
    /// Its user.
    pub uid: u32,
    /// Its process, as the caller counts them.
    pub process: ProcessId,
    /// Its slot: what connection IDs say.
    pub generation: u8,
    /// Its workers.
    pub workers: u16,
    /// Where in its life it is.
    pub phase: Phase,
    /// How far it is from accepting a client.
    pub attention: Attention,
    /// Protocols, as text with escapes; none for the catch-all.
    pub protocols: Vec<String>,
    /// Server names; none for all.
    pub servers: Vec<String>,
    /// How many more there are than were asked for.
    pub more_servers: usize,
    /// What it got.
    pub counters: ListenerCounters,
}
