//! A deterministic network in virtual time.
//!
//! From the bottom up: a [`link::Link`] is one direction of a path as a state machine without a
//! clock, a [`scenario::Scenario`] describes two of them and what happens over time as text, a
//! [`network::Network`] connects hosts by such paths. Everything random comes from one seed
//! ([`rng::SimRng`]), so that a run can be repeated exactly.
#![forbid(unsafe_code)]

pub mod app;
pub mod attack;
pub mod clock;
pub mod datagram;
pub mod failing;
pub mod fuzz;
mod keyed_hash;
pub mod link;
pub mod log;
pub mod nat;
pub mod network;
pub mod null_tls;
pub mod offload;
pub mod rng;
pub mod scenario;
pub mod schedule;
pub mod sim;
pub mod test_crypto;
pub mod units;
