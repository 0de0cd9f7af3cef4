//! Lends sockets of a TCP stack in user space to programs that know nothing of it.
//!
//! What a program holds is one end of a pair of local sockets, so that the system does for it all that programs do with
//! descriptors. The other end is here: one thread moves octets between these ends and the streams of the stack, for all
//! programs that have [`Lender::variable`] in their environment and the library `quicket-preload` before the C library.
//! `docs/tcp.md` has the picture.
//!
//! Programs are believed nothing: requests are of a fixed length and checked, who makes one proves by a token that sockets
//! were lent to it, and what a program can make grow has a limit. What one has ends with the last descriptor of it.
#![deny(unsafe_code)]

mod addresses;
mod calls;
mod errors;
mod lender;
mod listening;
mod pump;
mod requests;
mod socket;

pub use lender::{Lender, MAX_SOCKETS};
pub use pump::{MAX_ROUNDS, PIECE};
pub use requests::MAX_VISITORS;
pub use socket::ERROR_TIME;
