//! QUIC sockets at the level of messages: the semantics of draft-lxin-quic-socket-apis and of the
//! in-kernel QUIC module, as Rust types.
//!
//! Where the std-like API has a type for each thing, here one [`Socket`] sends and receives
//! messages: each carries data of one stream, a datagram, a TLS message or a [`Notification`].
//! Numbers and structures ([`raw`]) are those of the interface that programs in C know, and calls
//! fail with the [`Errno`] that they would see.
//!
//! The handshake is the program's concern: it receives TLS messages with their [`CryptoLevel`],
//! sends its own with [`Socket::send_handshake`], hands over transport parameters and secrets as
//! options, and with both secrets of 1-RTT the socket is established.
//! [`Socket::connect_tls`] and [`Socket::accept_tls`] have Quicket's own TLS do all that.

mod errno;
mod flags;
mod hub;
mod inbox;
mod ledger;
mod mailbox;
mod notification;
mod option;
pub mod raw;
mod settings;
mod socket;

pub use errno::Errno;
pub use flags::{MsgFlags, StreamFlags};
pub use inbox::{Message, MessageKind};
pub use notification::{CryptoLevel, EventType, Notification, StreamState};
pub use option::OptionName;
pub use raw::{Config, ConnectionClose, StreamInfo, TransportParam};
pub use socket::{PollId, PollState, Shutdown, Socket};
