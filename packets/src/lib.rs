//! Ports for packets: stacks of several programs side by side on one host.
//!
//! A program opens a *port* at the *switch for packets*, registers the *tuples* that it owns (address, protocol, port),
//! and sends and receives whole frames through memory that it shares with the switch. It sees no frame of
//! another's tuples, and sends none with another's source.
//!
//! [`client::Port`] is a program's side, [`daemon::Daemon`] that of the switch, [`control::Control`] that of who attaches
//! it to network devices ([`device`]). [`udp::UdpPort`] is a port for the datagrams of a QUIC socket. `frame`, [`registry`] and `tuple` decide, and have no I/O. [`Forwarder`] moves frames between rings
//! (`quicket-ring`). `docs/packets.md` says what may be tried against it, and what becomes of that.

mod ask;
mod batch;
pub mod client;
pub mod compose;
pub mod control;
mod counters;
pub mod daemon;
pub mod device;
mod evidence;
mod forwarder;
mod frame;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
mod handed;
mod hold;
pub mod icmp;
mod local;
pub mod pcap;
mod protocol;
mod queue;
mod queues;
mod refused;
mod registrar;
pub mod registry;
mod sys;
mod told;
pub mod traffic;
mod tuple;
pub mod udp;
mod watch;

pub use batch::BATCH;
pub use counters::{Counters, REASONS, Reason};
pub use forwarder::{
    ERRORS_OF_EACH_PORT, ERRORS_PER_SECOND, ERRORS_PER_SECOND_OF_DEVICE, Forwarder, IDLE_TURNS,
};
pub use frame::{
    ETHERNET_LEN, MAX_EXTENSIONS, MAX_TAGS, MIN_FRAME, packet, tuples, tuples_of_device,
};
pub use queue::{LOOKS, Queue};
pub use queues::MAX_QUEUES;

pub use quicket_ring::program::{Receiver, Sender, halves};
pub use quicket_ring::{Bell, Layout, Lie, Memory};
pub use refused::Refused;
pub use tuple::Tuple;
pub use watch::Seen;
