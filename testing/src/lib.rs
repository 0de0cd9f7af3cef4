//! What tests of several crates share. No library depends on this one.

pub mod allocator;
mod left_out;
pub mod nginx;
mod port;
mod process;
mod rng;
mod wait;
mod wake_count;

pub use left_out::{leave_out, tell_left_out};
pub use port::free_port;
pub use process::{Process, signal};
pub use rng::Rng;
pub use wait::{LONG, until};
pub use wake_count::WakeCount;
