//! The laboratory: drives Quicket against real peers and measures it beside them.
//!
//! No library depends on this crate. Everything that is driven runs as a process of its own; a
//! program which calls [`interop::run`] or [`bench::run`] must therefore first give
//! [`hidden_process`] the chance to take over, because Quicket's own processes are the calling
//! program started again.
// They panic where nothing can be written.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

pub mod bench;
mod certificates;
pub mod command;
mod hidden;
pub mod hold;
pub mod interop;
pub mod link;
pub mod netns;
pub mod peers;
pub mod process;
mod trace;
mod tun;

pub use certificates::Certificates;
pub use hidden::hidden_process;
