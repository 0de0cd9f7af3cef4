//! A peer that keeps to no rule: it completes a handshake as everybody does, or part of one, and
//! then seals whatever frames it likes at any level for which it has keys.
//!
//! [`Duel`] is the attacker against one victim, without a network: what the attacker sends
//! arrives at once, and time passes when the test says so. [`Party`] is an endpoint with its
//! connections, for floods that need no handshake. Both roles can be attacked.

mod duel;
mod forge;
mod party;
mod payload;
mod tap;
#[cfg(test)]
mod tests;

pub use duel::{Duel, DuelOptions, Stage};
pub use forge::{Forge, Opened};
pub use party::{Party, Sent};
pub use payload::Payload;
