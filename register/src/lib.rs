//! Which session tickets bring early data into a cluster of servers: each of them once, wherever it comes
//! (RFC 8446, Section 8).
//!
//! The servers have ticket keys in common, and a store that speaks the Redis protocol. A server asks it to set a
//! key for each ticket that is not there yet (`SET key NX PX`): if the store has set it, it is the first use. This crate
//! decides when it is asked, and what its answers are worth; sockets, time and randomness are arguments. A server
//! that is not sure refuses the early data, and the session is resumed without it.
//!
//! What could go wrong is that the store forgets a use while copies of the client's first messages are still
//! taken. So an answer counts only if all of this holds:
//!
//! - The store is the one that has known all uses for [`WINDOW`]: the same process (`run_id`), the same history of its
//!   data (`master_replid`), and nothing evicted since. That is written in the store itself, the [`Mark`], with the time of
//!   the store when it began; each answer comes with the mark behind it.
//! - It is a master, with as many replicas that keep up as the operator has said: one that was replaced behind its back
//!   has lost them.
//! - Its clock goes as fast as the server's, and both agree, within [`MAX_SKEW`]: uses are forgotten by the one, and
//!   copies are too old by the other.
//! - It says no to what it has: one that says yes to everything lies.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod breaker;
mod clock;
mod info;
mod mark;
mod refusal;
mod register;

pub use breaker::{Breaker, BreakerState};
pub use info::{Info, InfoError};
pub use mark::Mark;
pub use refusal::Refusal;
pub use register::{
    Config, Failure, Judgement, Look, MAX_ASKED, MAX_SEEN, Next, Register, SetReply, Trailer,
};

/// What identifies a ticket.
pub type Ticket = [u8; 12];

/// A time of this host that never goes back, in milliseconds.
pub type Millis = u64;

/// How long the store keeps a use, and for how long it must have known all uses before its answers count, in
/// milliseconds.
///
/// A server takes copies of a ClientHello for two minutes (`STRIKE_WINDOW` of `quicket-handshake`). Clocks of two
/// servers differ by [`MAX_SKEW`] each; a master that was replaced is noticed after [`MAX_LAG`] and a look; the rest is for
/// a clock that drifts.
pub const WINDOW: Millis = 180_000;

/// How far the clock of a server may be from that of the store, in milliseconds.
pub const MAX_SKEW: Millis = 10_000;

/// How long a replica may have said nothing that counts as one that keeps up, in seconds.
pub const MAX_LAG: u64 = 10;

/// How often the store is looked at, in milliseconds.
pub const LOOK_EVERY: Millis = 1_000;

/// How long a look counts, in milliseconds: after that nothing is known.
pub const LOOK_COUNTS: Millis = 5_000;
