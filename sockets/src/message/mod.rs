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
//! let address = listener.local_addr();
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
//!
//! # What differs from the in-kernel module
//!
//! Because RFC 9000 says so:
//!
//! - A server does not move an established connection (Section 9): CONNECTION_MIGRATION is EINVAL
//!   there, and on a client whose server forbids moves. Before the handshake it sets the preferred
//!   address, as in the kernel.
//! - Connection IDs that the peer has not yet retired count (Section 5.1.2): CONNECTION_ID is
//!   EAGAIN until it has answered the last request.
//! - Parameters and packet behaviour are settled once the handshake begins: TRANSPORT_PARAM and
//!   CONFIG are EINVAL from then on, where the kernel would change what nobody hears of.
//!
//! Because nothing is gained by the kernel's way:
//!
//! - Each way of [`Socket::shutdown`] tells the peer; the kernel falls silent for SHUT_RD.
//! - A client that no listener wants hears of it (no_application_protocol), and so does one whose
//!   ClientHello cannot be read; ClientHellos in several packets are put together before a
//!   listener is chosen.
//! - A path's MTU is searched for even if CONFIG does not say how often.
//! - A stream of the peer counts among those that may be open until all of it is received by the
//!   program; in the kernel until all of it has arrived.
//! - STREAM_STOP_SENDING drops what comes afterwards, as in the kernel, but a stream that is whole
//!   by then is over: no reset is told.
//! - A NEW_TOKEN frame that comes again (RFC 9000, Section 19.7) is told once.
//! - MAX_DATA and MAX_STREAM_DATA are sent for half of a window, in the kernel for a sixteenth.
//! - What can be read of a stream when its turn comes is received together, and its end with the
//!   last of it if it is known by then, even if the buffer is full. In the kernel a message ends where
//!   a packet of another stream came between, and an end in a packet of its own comes by itself
//!   where data has filled the buffer. How a peer cuts its data into packets is nothing to rely on:
//!   programs for either take both.
//!
//! Because this is no kernel:
//!
//! - SIGPIPE is never raised: whoever binds this to C does it for EPIPE on stream data, unless
//!   [`MsgFlags::NOSIGNAL`] is set. Signals end a wait (EINTR) only
//!   if that is wanted ([`Socket::set_interruptible`]).
//! - Buffers count bytes of data, not the system's bookkeeping: SO_SNDBUF is 4 MiB and does not
//!   follow the congestion window, SO_RCVBUF bounds what is not stream data, SIOCINQ counts what
//!   can be received now, and SIOCOUTQ leaves TLS messages out.
//! - Listeners are told apart by protocol within one process, and SO_REUSEPORT is among its sockets,
//!   unless the address is shared through the switch ([`Socket::set_switch`]): then across processes.
//! - TLS_CIPHER_AES_CCM_128 can be preferred with CONFIG, but CRYPTO_SECRET refuses it: AWS-LC has
//!   no packet protection of the kind. Port 0 cannot be connected to.

mod alpn;
mod attendance;
mod bound;
mod buffer;
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

pub use attendance::Watched;
pub use bound::ForkHold;
pub use buffer::{Data, Room};
pub use errno::Errno;
pub use flags::{MsgFlags, StreamFlags};
pub use inbox::{Message, MessageKind};
pub use notification::{CryptoLevel, EventType, Notification, StreamState};
pub use option::OptionName;
pub use raw::{Config, ConnectionClose, StreamInfo, TransportParam};
pub use socket::{Heir, PollId, PollState, Shutdown, Socket, Steward};
