//! BPF programs that let the kernel route datagrams, and how they get there.
//!
//! [`OwnerProgram`] is a classic BPF program that chooses a socket of a SO_REUSEPORT group by the
//! owner in a datagram's connection ID (`quicket_steering::Owner`). An ordinary user may attach it.
//! [`ForwardTable`] is an extended one, the balancer's on a device (XDP), which takes privileges, and so is
//! [`TupleProgram`], that of the switch for packets. All are written by code in this crate: no compiler for BPF is
//! needed to build Quicket, and no compiled array can differ from its source.
//!
//! [`error_socket`] is a socket whose classic program lets errors of ICMP through and nothing else, [`train_socket`] one that
//! receives nothing.
//!
//! A program is a help and not a promise: while it is attached or replaced, and for datagrams that
//! came together, the kernel may give a socket what is another's. Whoever receives must look.
#![cfg_attr(
    not(test),
    deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]

mod classic;
#[cfg(target_os = "linux")]
mod cuckoo;
mod door;
#[cfg(target_os = "linux")]
mod errors;
#[cfg(target_os = "linux")]
pub mod extended;
#[cfg(target_os = "linux")]
mod forward;
#[cfg(target_os = "linux")]
mod forward_program;
mod labels;
#[cfg(target_os = "linux")]
mod load_error;
mod owner;
#[cfg(target_os = "linux")]
mod redirect;
#[cfg(target_os = "linux")]
mod sys;
#[cfg(target_os = "linux")]
mod trains;
#[cfg(target_os = "linux")]
mod tuple_program;
#[cfg(target_os = "linux")]
mod tuples;
#[cfg(target_os = "linux")]
mod xdp;

pub use classic::Instruction;
pub use door::Door;
#[cfg(target_os = "linux")]
pub use errors::{error_socket, hear_errors_of, receive_error};
#[cfg(target_os = "linux")]
pub use forward::{Counts, ForwardTable, MAX_EGRESS, Reading, Rules, Target, Way};
#[cfg(target_os = "linux")]
pub use load_error::LoadError;
pub use owner::{OwnerProgram, ProgramError};
#[cfg(target_os = "linux")]
pub use redirect::RedirectProgram;
#[cfg(target_os = "linux")]
pub use sys::{attach_reuseport, detach_reuseport};
#[cfg(target_os = "linux")]
pub use trains::train_socket;
#[cfg(target_os = "linux")]
pub use tuples::{MAX_QUEUES, TupleKey, TupleProgram, Tuples};
#[cfg(target_os = "linux")]
pub use xdp::{Link, Mode, Run, Verdict, XdpProgram};
