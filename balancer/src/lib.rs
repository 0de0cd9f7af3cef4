//! A UDP address in front of many QUIC servers.
//!
//! A datagram goes to the server that its connection ID names (draft-ietf-quic-load-balancers-21);
//! one that names none, such as a client's first, to the server that its flow has, or that a
//! consistent hash gives it. It travels as a whole IP packet in GUE, from the client's address to
//! the address of the site, so that the server answers the client directly.
//!
//! What decides is pure: [`Config`] and [`Site`] (what operators write), [`Health`] (what servers
//! report), [`Snapshot`] (all of that, checked and immutable), [`Flows`] (the one thing that
//! remembers), [`Snapshot::decide`]. Time and randomness are arguments. `Balancer` is the sockets
//! and threads around it, on Linux.
//!
//! Sources: draft-ietf-quic-load-balancers-21, RFC 8999 (what holds for all versions of QUIC),
//! RFC 6040 (ECN), RFC 6864 (the identification of packets that are not fragmented).
#![deny(unsafe_code)]
// They panic where nothing can be written.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

#[cfg(target_os = "linux")]
mod answer;
#[cfg(target_os = "linux")]
mod balancer;
mod config;
mod counters;
mod decide;
#[cfg(target_os = "linux")]
mod device;
mod flows;
#[cfg(target_os = "linux")]
mod forwarder;
mod grammar;
mod health;
mod inner;
#[cfg(target_os = "linux")]
mod kernel;
#[cfg(target_os = "linux")]
mod outbox;
mod report;
mod site;
mod snapshot;
#[cfg(target_os = "linux")]
mod sys;
#[cfg(test)]
mod testing;
#[cfg(target_os = "linux")]
mod udp;
#[cfg(target_os = "linux")]
mod worker;

#[cfg(target_os = "linux")]
pub use balancer::Balancer;
pub use config::{Config, MAX_FLOWS, MAX_LISTEN, MAX_SERVERS, Reports, Server, Wish, Xdp, XdpMode};
pub use counters::{Counters, ServerCounters};
pub use decide::{Cause, Decision, Refusal, Way};
#[cfg(target_os = "linux")]
pub use device::Device;
pub use flows::{Flow, Flows};
#[cfg(target_os = "linux")]
pub use forwarder::Forwarder;
pub use grammar::ConfigError;
pub use health::{Health, Standing};
pub use inner::{MAX_HEADER, encapsulate, header_len};
#[cfg(target_os = "linux")]
pub use kernel::{Kernel, Offload};
pub use report::{REPORT_LEN, Report, ReportError};
pub use site::{Aes128, Site, SiteConfiguration};
pub use snapshot::{Member, Numbers, Snapshot};
