//! What a program that runs on a TCP stack in user space, and the process that has the stack (the *lender*), say to each
//! other over local sockets. `docs/tcp.md` has the picture.
//!
//! A program's sockets are ends of pairs of local sockets. The name of the lender's end says that it is one, and which
//! ([`Names::socket`]); the program's end gets a name once it listens ([`Names::listener`]). So both are known to the system
//! alone, and hold after dup, fork and exec. A call that the system cannot answer is a [`Request`] on a connection of
//! its own (SOCK_SEQPACKET), and an [`Answer`]. A listener carries [`Accepted`] with a descriptor each.
//!
//! Both sides read what the other one has written as it may be wrong in all ways: all is of a fixed length, and each
//! value is checked.
#![forbid(unsafe_code)]
#![no_std]

#[cfg(test)]
extern crate std;

mod address;
mod message;
mod names;

pub use message::{Accepted, Answer, Call, Request, Setting};
pub use names::{MAX_NAME, Names, Place, TOKEN};

/// The variable in a program's environment that says where its lender is.
pub const VARIABLE: &str = "QUICKET_TCP";
