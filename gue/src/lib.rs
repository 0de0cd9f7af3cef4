//! Generic UDP Encapsulation, GRE, and what a tunnel does to IP headers.
//!
//! The crate turns bytes into values and values into bytes. It holds no state, allocates nothing,
//! performs no I/O and never panics on input. Decoding borrows from the datagram and checks
//! everything; encoding writes all or nothing.
//!
//! Sources: draft-ietf-intarea-gue and what Linux has of it (version 0 with private flags and
//! remote checksum offload, version 1), RFC 2003, 2473, 2784, 2890, 4213 and 8086 (what is
//! carried), RFC 8899 (what is asked by probes), RFC 6040 and 9601 (ECN), RFC 792, 1191, 4443 and 8201 (path MTU), RFC 1071 (checksums),
//! VIRTIO 1.2 (super-packets).
#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(
        clippy::indexing_slicing,
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::arithmetic_side_effects,
        clippy::float_arithmetic
    )
)]

#[cfg(test)]
extern crate std;

mod checksum;
mod counters;
mod ecn;
mod encapsulation_limit;
mod error;
pub mod flow;
mod fragment;
mod gre;
mod header;
mod icmp;
mod inherit;
mod ip;
mod mtu;
mod probe;
mod remote_checksum;
pub mod super_packet;
pub mod vnet;

pub use checksum::{Sum, pseudo_header};
pub use ecn::{Arrival, Ecn, EcnIngress};
pub use encapsulation_limit::{
    ENCAPSULATION_LIMIT_LEN, encapsulation_limit, encapsulation_limit_header,
};
pub use error::{DecodeError, Full};
pub use fragment::{Fragment, Fragments, MAX_HEADER, fragments};
pub use gre::{Gre, GreMismatch, GreRules, MAX_GRE_LEN, in_sequence};
pub use header::{Decoded, GUE_PORT, Gue, Kind, MAX_GUE_LEN, decode, implied_protocol};
pub use icmp::{MAX_ICMP, parameter_problem, too_big, unreachable};
pub use inherit::{Tos, Ttl};
pub use ip::{MAX_EXTENSION_HEADERS, Packet, set_ecn};
pub use mtu::{MIN_MTU_V4, MIN_MTU_V6, Outer, Overhead, Shim};
pub use probe::{PROBE_LEN, Probe};
pub use remote_checksum::{REMOTE_CHECKSUM_LEN, RemoteChecksum};

/// Numbers of IP protocols (IANA).
pub mod protocol {
    /// ICMP.
    pub const ICMP: u8 = 1;
    /// IPv4 in IP (RFC 2003).
    pub const IPIP: u8 = 4;
    /// TCP.
    pub const TCP: u8 = 6;
    /// UDP.
    pub const UDP: u8 = 17;
    /// IPv6 in IP (RFC 2473, RFC 4213).
    pub const IPV6: u8 = 41;
    /// GRE (RFC 2784).
    pub const GRE: u8 = 47;
    /// Destination options of IPv6 (RFC 8200, Section 4.6).
    pub const DESTINATION_OPTIONS: u8 = 60;
    /// ICMPv6.
    pub const ICMPV6: u8 = 58;
}
