//! Lets each ticket bring early data in only once (RFC 8446, Section 8).
//!
//! A register that begins empty does not know what was used before it. Such a use is repeated by
//! sending the same ClientHello again, which is too old after [`WINDOW`]. So within the first
//! window only tickets bring early data in that were made for this very register: none of them was
//! in use before it began (RFC 8446, Section 8.2, asks for that delay).

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::Waker;

use quicket_engine::UsedLately;
use rustls::pki_types::UnixTime;

/// How long a use is remembered, in seconds. rustls refuses early data whose ticket age is off by
/// more than a minute, so a copy of a ClientHello comes in at most two minutes apart.
const WINDOW: u64 = 120;
/// Uses remembered per window, which bounds the memory to a few megabytes.
const CAPACITY: usize = 1 << 16;
/// Length of a register's name in tickets, in bytes.
pub(super) const NAME_LEN: usize = 8;

/// What identifies a ticket: the random nonce with which it was sealed.
pub type TicketId = [u8; 12];

/// Remembers which tickets brought early data, so that a copy of a client's first messages is not
/// taken for the client (RFC 8446, Section 8.1).
///
/// Unless told otherwise a server asks a [`ProcessRegister`]. Servers that share ticket keys need
/// one that they share too, or each of them takes a copy once.
pub trait StrikeRegister: fmt::Debug + Send + Sync {
    /// Asks whether it is the first time that `ticket` comes with early data, at `now`, in seconds since 1970. The
    /// answer is true if it is; false if it is not, or if that cannot be told: the client's session is then resumed
    /// without its early data, which it sends again. A use must be remembered for [two minutes](STRIKE_WINDOW); older
    /// copies are refused by their age.
    ///
    /// It is called with nothing locked, by a thread that serves others too, and should not wait: who has to ask
    /// somebody else gives the answer later, from any thread. The handshake goes on with the answer, or without it
    /// after [a quarter of a second](quicket_engine::ANSWER_TIME). A panic counts as false, and goes no further than
    /// this call.
    fn ask(&self, ticket: &TicketId, now: u64, answer: StrikeAnswer);

    /// Early data was refused without a question. It is called while its connection is locked: to count it, and neither to wait
    /// nor to use connections.
    fn refused(&self, why: Unasked) {
        let _ = why;
    }

    /// When the register began, if it does not know what was used before: that of a process. By
    /// default it does, as one does that outlives the server or is common to several. Asked once, when
    /// a configuration is built: a register that begins again is another one. Where that changes, a [`SharedBeginning`]
    /// says it.
    fn beginning(&self) -> Option<Beginning> {
        None
    }
}

/// Why a server refuses early data without asking its [`StrikeRegister`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unasked {
    /// The ticket is not resumed: it has expired, or is of no key of this server, or was made for another version
    /// of QUIC or for other rules.
    NotResumed,
    /// The ticket promises more than this server allows now (RFC 9000, Section 7.4.1).
    Promised,
    /// The ticket was made in the future: a clock is wrong.
    Future,
    /// Another register was asked where the ticket was made, or this one does not know of its uses yet.
    OtherRegister,
}

/// Since when a register knows all uses.
#[derive(Clone)]
pub(super) enum Known {
    /// What it said itself.
    Once(Option<Beginning>),
    /// What whoever shares it said last.
    Shared(SharedBeginning),
}

impl Known {
    pub(super) fn beginning(&self) -> Option<Beginning> {
        match self {
            Self::Once(beginning) => *beginning,
            Self::Shared(beginning) => Some(beginning.get()),
        }
    }
}

/// When a register that several servers share began. Another may take its place: whoever shares it says so
/// here, and handshakes look here. No function is called in the midst of a handshake.
#[derive(Clone, Debug)]
pub struct SharedBeginning(Arc<Mutex<Beginning>>);

impl SharedBeginning {
    /// That of a register which began then.
    pub fn new(beginning: Beginning) -> Self {
        Self(Arc::new(Mutex::new(beginning)))
    }

    /// Another register is asked from now on. Say so before it gives its first answer: an answer counts for the
    /// register that is noted here when it comes.
    pub fn set(&self, beginning: Beginning) {
        *self.lock() = beginning;
    }

    fn get(&self) -> Beginning {
        *self.lock()
    }

    fn lock(&self) -> MutexGuard<'_, Beginning> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for SharedBeginning {
    /// That of a register of which nothing is known, so that no ticket brings early data in.
    fn default() -> Self {
        Self::new(Beginning::UNKNOWN)
    }
}

/// Where the answer of a [`StrikeRegister`] goes. Who drops it without one has answered false.
pub struct StrikeAnswer {
    place: Arc<OnceLock<bool>>,
    waker: Waker,
}

impl StrikeAnswer {
    pub(super) fn new(place: Arc<OnceLock<bool>>, waker: Waker) -> Self {
        Self { place, waker }
    }

    /// Says whether it was the first use; from any thread, once.
    pub fn give(self, first: bool) {
        let _ = self.place.set(first);
    }
}

impl Drop for StrikeAnswer {
    fn drop(&mut self) {
        let _ = self.place.set(false);
        self.waker.wake_by_ref();
    }
}

impl fmt::Debug for StrikeAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StrikeAnswer").finish_non_exhaustive()
    }
}

/// How long a [`StrikeRegister`] must remember a use, in seconds.
pub const STRIKE_WINDOW: u64 = WINDOW;

/// The time from which a [`StrikeRegister`] knows all uses, and a name that no other register has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Beginning {
    name: [u8; NAME_LEN],
    /// In seconds since 1970.
    at: u64,
}

impl Beginning {
    /// That of a register of which nothing is known: the name is none, and the time is never to come.
    pub const UNKNOWN: Self = Self::known([0xff; NAME_LEN], u64::MAX);

    /// That of a register which begins now. Make it once for each register.
    pub fn now() -> Self {
        let mut name = [0; NAME_LEN];
        crate::random::fill(&mut name);
        Self { name, at: UnixTime::now().as_secs() }
    }

    /// That of a register of which these are known: a name that no other has, and since when it knows all
    /// uses, in seconds since 1970.
    pub const fn known(name: [u8; NAME_LEN], at: u64) -> Self {
        Self { name, at }
    }

    /// The same where others have the keys of this server: whatever age a ticket of theirs has, they may have taken it
    /// a moment ago. Only tickets that were made for this register count.
    pub(super) const fn among_others(self) -> Self {
        Self { at: u64::MAX, ..self }
    }

    pub(super) const fn name(&self) -> [u8; NAME_LEN] {
        self.name
    }

    /// Whether the register would know of a use of a ticket, now: one that was made at `issued` for
    /// the register called `made_for`.
    ///
    /// Both are sealed in the ticket. One that was made for this register could not be used before
    /// it began; so nothing depends on clocks. For others there is the age: what was sent before
    /// the beginning is refused by rustls once the window is over. A ticket that another register's
    /// server made after that, or in the future, tells of a clock that was set back, or of a server
    /// that shares the keys: then the age tells nothing.
    pub(super) fn covers(&self, made_for: &[u8; NAME_LEN], issued: u64, now: u64) -> bool {
        *made_for == self.name || issued <= self.at && now >= self.at.saturating_add(WINDOW)
    }
}

/// A register in memory, of up to 65536 uses in two minutes. It ends with the process; configurations
/// that follow each other in one process can share it.
#[derive(Debug)]
pub struct ProcessRegister {
    used: Mutex<UsedLately<TicketId>>,
    beginning: Beginning,
}

impl ProcessRegister {
    /// An empty register, which begins now.
    pub fn new() -> Self {
        let beginning = Beginning::now();
        Self { used: Mutex::new(UsedLately::new(beginning.at, WINDOW, CAPACITY)), beginning }
    }
}

impl Default for ProcessRegister {
    fn default() -> Self {
        Self::new()
    }
}

impl StrikeRegister for ProcessRegister {
    fn ask(&self, ticket: &TicketId, now: u64, answer: StrikeAnswer) {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        used.turn(now);
        let first = used.first_use(*ticket);
        drop(used);
        answer.give(first);
    }

    fn beginning(&self) -> Option<Beginning> {
        Some(self.beginning)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_register_knows_of_its_own_tickets_at_once_and_of_older_ones_after_a_window() {
        // RFC 8446, Section 8.2
        let (own, other) = ([1; NAME_LEN], [2; NAME_LEN]);
        let beginning = Beginning { name: own, at: 1_000 };
        for now in [990, 1_000, 1_000 + WINDOW] {
            assert!(beginning.covers(&own, 1_000, now));
        }
        assert!(!beginning.covers(&other, 500, 1_000));
        assert!(!beginning.covers(&other, 500, 1_000 + WINDOW - 1));
        assert!(beginning.covers(&other, 500, 1_000 + WINDOW));
        assert!(beginning.covers(&other, 1_000, 1_000 + WINDOW));
        // Made while this register was at work, or by a clock that was ahead: used elsewhere.
        assert!(!beginning.covers(&other, 1_001, 1_000 + WINDOW));
        assert!(!beginning.covers(&other, u64::MAX, u64::MAX));
        assert_ne!(Beginning::now().name, Beginning::now().name);
    }
}
