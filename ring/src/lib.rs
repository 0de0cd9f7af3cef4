//! Rings of descriptors and slots for frames, in memory that two processes share.
//!
//! The other side may be hostile: it may write anything anywhere in that memory at any time. Each side has its own
//! count of positions in memory of its own; of the other's, which it reads once, it accepts what can be,
//! and a descriptor leads to a slot of that memory or nowhere. So who lies harms the port that he has, and nobody
//! else.
//!
//! [`Producer`] and [`Consumer`] are the two sides of a ring: pure, `no_std`, and tried in all interleavings by
//! `ring/tests/model`. With the feature `std` there are [`Memory`], a sealed memfd, [`Bell`], and
//! [`program`], which shows frames in place to a side that trusts the other one.
#![cfg_attr(not(feature = "std"), no_std)]

#[cfg(feature = "std")]
mod bell;
mod descriptor;
mod layout;
#[cfg(feature = "std")]
mod memory;
#[cfg(feature = "std")]
pub mod program;
mod queue;
mod sync;

#[cfg(feature = "std")]
pub use bell::{Bell, Gone};
pub use descriptor::Descriptor;
pub use layout::{Layout, MAX_ENTRIES, MAX_SLOT, MIN_ENTRIES, MIN_SLOT, Way};
#[cfg(feature = "std")]
pub use memory::Memory;
pub use queue::{Consumer, Lie, Lines, Producer};
