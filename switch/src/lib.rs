//! One UDP address for many QUIC programs.
//!
//! Programs register what they serve at an address: application protocols and server names. The
//! switch reads the address's socket and hands each datagram to the program and worker that own its
//! connection, or, if it begins one, to the program that serves what the client asks for.
//!
//! What decides is pure; time and randomness are arguments, and everything is bounded:
//!
//! - [`Registry`]: who has which names at which address, generations and upgrades, owner numbers.
//! - [`FirstPackets`]: the server name and the protocols in a client's first packets.
//! - [`Pins`]: connection IDs and reset tokens that do not say whose they are.
//! - [`Router`]: what becomes of a datagram.
//! - [`rule`]: which users may have what at a switch for the system.
//! - [`Strikes`]: which session tickets brought early data.
//!
//! Around that is what reads, writes and waits:
//!
//! - [`rendezvous`]: the file of the local socket on which programs find the switch.
//! - [`environment`]: variables, which a program with more rights than its caller does not read.
//! - [`activation`]: sockets that a service manager hands over.
//! - [`channel`]: trains of datagrams between the switch and a program.
//! - [`protocol`]: what both say to each other.
//! - [`client`]: the side of programs, which finds the switch, starts it, and outlives it.
//! - [`daemon`]: the side of the switch.
//! - [`Ledger`]: which clients a program took past the switch.
//!
//! Sources: RFC 8999 (what holds for all versions of QUIC), RFC 9000, Sections 5.2 and 10.3, RFC
//! 9001, Section 5.2, draft-ietf-quic-load-balancers-21; the rules about who may listen for what are
//! those of the QUIC module for Linux.
#![deny(unsafe_code)]

pub mod activation;
mod borrower;
pub mod channel;
pub mod client;
pub mod daemon;
pub mod environment;
pub mod first_packet;
mod keep;
mod ledger;
pub mod options;
pub mod pins;
pub mod protocol;
pub mod registry;
pub mod rendezvous;
pub mod router;
pub mod rule;
mod strikes;
mod sys;
#[cfg(test)]
mod testing;

pub use first_packet::FirstPackets;
pub use keep::{MAX_KEPT, MAX_STEERED};
pub use ledger::{Ledger, MAX_NOTED};
pub use pins::Pins;
pub use registry::Registry;
pub use router::Router;
pub use strikes::{MAX_STRIKES, MAX_STRIKES_OF_PROGRAM, Strikes};
