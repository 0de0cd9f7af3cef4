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
//!
//! ```
//! use quicket::message::{MsgFlags, Socket, StreamFlags, StreamInfo};
//! use quicket::{ClientTls, Identity, ServerTls};
//!
//! let identity = Identity::self_signed(["localhost"])?;
//! let client_tls = ClientTls::builder().pinned([identity.fingerprint()]).alpn(["echo"]).build()?;
//! let server_tls = ServerTls::builder(identity).alpn(["echo"]).build()?;
//!
//! let listener = Socket::new_v4();
//! listener.bind("127.0.0.1:0".parse()?)?;
//! listener.set_alpn(b"echo")?;
//! listener.listen(16)?;
//! let address = listener.local_addr()?;
//! let server = std::thread::spawn(move || {
//!     let socket = listener.accept()?;
//!     socket.accept_tls(server_tls)?;
//!     let mut buffer = [0; 1024];
//!     let message = socket.recv_message(&mut buffer, MsgFlags::NONE)?;
//!     // The answer goes to the stream that the peer opened last.
//!     socket.send_message(&buffer[..message.len], None, StreamFlags::FIN.into())?;
//!     socket.recv_message(&mut buffer, MsgFlags::NONE).unwrap_err(); // until the client is gone
//!     Ok::<_, quicket::message::Errno>(())
//! });
//!
//! let client = Socket::new_v4();
//! client.connect(address)?;
//! client.connect_tls(client_tls, "localhost")?;
//! let stream = StreamInfo::new(-1, StreamFlags::NEW | StreamFlags::FIN);
//! client.send_message(b"hello", Some(stream), MsgFlags::NONE)?;
//! let mut buffer = [0; 1024];
//! let message = client.recv_message(&mut buffer, MsgFlags::NONE)?;
//! assert_eq!(&buffer[..message.len], b"hello");
//! drop(client);
//! server.join().unwrap()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

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
