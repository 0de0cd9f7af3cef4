//! Ports for packets for C: `include/quicket/packets.h` says what each function does, and
//! `include/net/netmap_user.h` has netmap's `nm_open`, `nm_inject`, `nm_dispatch`, `nm_nextpkt` and `nm_close` over them.
//!
//! No panic leaves a function: it is EIO. Errors are those of the system by number; the sentence that the switch
//! gives with them is kept for each thread.
#![deny(unsafe_code)]

#[allow(unsafe_code, reason = "addresses that C gives and takes")]
mod address;
mod error;
#[allow(unsafe_code, reason = "functions for C, and what C gives them")]
mod exports;
#[allow(unsafe_code, reason = "functions for C, and what C gives them")]
mod icmp;

pub use exports::*;
pub use icmp::*;
