//! What programs ask for and get, and how both sides name it.

use super::address::ListenAddress;
use super::names::Names;
use super::receipt::Receipt;

/// Names an address of the registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AddressId(pub(super) u32);

impl AddressId {
    /// Stands for the address of who has one only, and no registry.
    pub const ONLY: Self = Self(0);

    /// Its number, which no other address gets while the switch lives.
    #[must_use]
    pub const fn number(self) -> u32 {
        self.0
    }
}

/// Names a process that registers: the caller counts them, by connection for example.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessId(pub u64);

/// Names a listener, and no later one in its slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ListenerId {
    pub(super) address: AddressId,
    pub(super) slot: u8,
    pub(super) serial: u64,
}

impl ListenerId {
    /// Its address.
    #[must_use]
    pub const fn address(self) -> AddressId {
        self.address
    }

    /// Its slot: the generation in connection IDs that lead to it.
    #[must_use]
    pub const fn generation(self) -> u8 {
        self.slot
    }

    /// One of a slot, for tests that have no registry.
    #[cfg(test)]
    pub(crate) const fn for_test(slot: u8) -> Self {
        Self { address: AddressId(0), slot, serial: 0 }
    }
}

/// What a program asks for.
#[derive(Clone, Debug)]
pub struct Registration {
    /// Where.
    pub address: ListenAddress,
    /// Who: as the system says, not as the program does.
    pub uid: u32,
    /// Which process.
    pub process: ProcessId,
    /// What the program is called: generations of one program have one name, and one user.
    pub program: String,
    /// What it serves.
    pub names: Names,
    /// How many workers it has, 1 to [`MAX_WORKERS`](super::MAX_WORKERS).
    pub workers: u16,
    /// Whether others of the same user may have the very same names (SO_REUSEPORT).
    pub reuse_port: bool,
    /// Whether it takes the place of the generations that there are.
    pub replace: bool,
    /// Which owner number it had from a switch that is gone.
    pub claim: Option<Claim>,
    /// The processes that have inherited the listener from one another, if it is one of those.
    pub family: Option<Family>,
    /// How far it is from accepting a client.
    pub attention: Attention,
}

/// Names processes that have a listener from one another over fork(2): they share its names.
pub type Family = [u8; 16];

/// How far a listener is from accepting its next client. Among those with the same names, first packets go
/// to the ones that stand first here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Attention {
    /// It waits for clients, or is not known to do anything else.
    #[default]
    Accepting,
    /// It has a client to serve, and comes back.
    Busy,
    /// It may never accept: it gets no client, who waits for another one of its family.
    Away,
}

/// An owner number that a program says it had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The slot.
    pub generation: u8,
    /// What the switch gave with it.
    pub receipt: Receipt,
    /// Whether it was draining: it comes back as that, and its names are not reserved.
    pub draining: bool,
}

/// What a program gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registered {
    /// The listener, [`Phase::Preparing`](super::Phase::Preparing); or [`Phase::Draining`](super::Phase::Draining), if it claimed to be.
    pub listener: ListenerId,
    /// Whether it has the owner number that it claimed.
    pub kept: bool,
    /// Whether the address is new: its socket is to be opened. If that fails, [`Registry::remove`](super::Registry::remove)
    /// the listener and [`Registry::forget`](super::Registry::forget) the address.
    pub new_address: bool,
    /// To be given back to the next switch.
    pub receipt: Receipt,
    /// Who had the number with an older receipt, and has it no more: it is gone from the registry.
    pub displaced: Option<ListenerId>,
}

/// To whom an owner number leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// To this listener.
    Living(ListenerId),
    /// To one that is gone: its peers are to be reset.
    Dead {
        /// Whose it was: reset keys are derived for users.
        uid: u32,
    },
    /// To none that was ever there.
    Nobody,
}

/// What time brought about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// The generation's deadline has come: it is to close its connections, within [`DRAIN_GRACE`](super::DRAIN_GRACE).
    DrainOver(ListenerId),
    /// It has not done so, and is gone.
    Removed(ListenerId),
}
