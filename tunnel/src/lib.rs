//! IP tunnels, in UDP and without: Generic UDP Encapsulation, direct encapsulation (FOU), GRE in
//! either, IP in IP.
//!
//! [`parse_line`] reads what people write for `ip link add … type ipip … encap gue`, and [`Setup`]
//! checks tunnels and ports against each other. With it, [`Tunnels`] opens TUN devices and sockets
//! and carries packets until it is told to stop. What decides is pure and has no I/O: `outbound`
//! (a super-packet from the device becomes datagrams), `inbound` (a train of datagrams becomes
//! packets) and `coalesce` (those become a super-packet).
//!
//! [`Carrier`] does without devices: a program hands packets over, and takes those that arrive.
//!
//! Needs Linux. [`Tunnels`] need the right to make network devices (CAP_NET_ADMIN).
#![cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "the I/O is Linux's"))]
#![deny(unsafe_code)]
// They panic where nothing can be written.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod answers;
#[cfg(target_os = "linux")]
mod arrivals;
#[cfg(target_os = "linux")]
mod carrier;
mod coalesce;
mod config;
mod counters;
mod departures;
#[cfg(target_os = "linux")]
mod device;
mod discovery;
mod ends;
mod ethernet;
mod grammar;
mod inbound;
#[cfg(target_os = "linux")]
mod ledger;
mod outbound;
#[cfg(target_os = "linux")]
mod path;
mod peers;
mod registry;
#[cfg(target_os = "linux")]
mod relay;
mod segments;
#[cfg(target_os = "linux")]
mod sources;
#[cfg(target_os = "linux")]
mod sys;
#[cfg(test)]
mod testing;
#[cfg(target_os = "linux")]
mod transit;
#[cfg(target_os = "linux")]
mod tunnels;
#[cfg(target_os = "linux")]
mod udp;
#[cfg(target_os = "linux")]
mod worker;
#[cfg(target_os = "linux")]
mod world;

#[cfg(target_os = "linux")]
pub use carrier::{Carrier, Received, SendError};
pub use config::{
    Encap, External, Families, FlowLabel, Kind, Port, PortKind, Prefix, Setup, SetupError, Tunnel,
};
pub use counters::Counters;
#[cfg(target_os = "linux")]
pub use device::remove_device;
pub use grammar::{
    Line, ParseError, PortChoice, change, parse_line, parse_port, parse_port_choice,
};
#[cfg(target_os = "linux")]
pub use relay::Relay;
#[cfg(target_os = "linux")]
pub use tunnels::Tunnels;
