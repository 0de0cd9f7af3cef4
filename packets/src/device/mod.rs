//! Network devices: frames that come from outside, and leave.
//!
//! `quicket-bpf` has the program that hands frames of registered tuples to a device's sockets, and everything else to
//! the system. `xsk` is such a socket, `attached` a device with one for each queue. `netlink` and `ways` say which
//! device leads where, `offloads` what a device must not do, `altered` what attaching has changed, `record` the notes of that for who has to undo it after a kill, and `checksum` completes what senders on this machine
//! leave open. `vlans` keeps VLANs apart. `trains` puts segments of TCP together that leave. `network` is all of that for the forwarder. [`Changes`] tells others that this host's networks are not
//! what they were, and [`Routes`] whether a device leads somewhere.

mod altered;
mod attached;
mod changes;
mod checksum;
mod netlink;
mod network;
mod offloads;
mod outside;
#[cfg(test)]
#[path = "../../tests/device/permitted.rs"]
pub(crate) mod permitted;
mod queue;
#[cfg(any(test, feature = "rates"))]
pub mod rates;
mod record;
mod routes;
mod sockets;
mod trains;
mod vlans;
mod ways;
mod xsk;

pub use altered::Loopback;
pub use attached::{Attached, Mode};
pub use changes::Changes;
pub use network::MAX_DEVICES;
pub use offloads::Offloads;
pub use routes::{Labels, Routes};
pub use vlans::{MAX_VLANS, ServedVlan};
pub use ways::MAX_WAYS;

pub(crate) use attached::Device;
pub(crate) use network::Network;
pub(crate) use outside::Entrance;
pub(crate) use record::Record;
