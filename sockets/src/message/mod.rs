//! QUIC sockets at the level of messages: the semantics of draft-lxin-quic-socket-apis and of the
//! in-kernel QUIC module, as Rust types.
//!
//! Where the std-like API has a type for each thing, here one [`Socket`](Errno) sends and receives
//! messages: each carries data of one stream, a datagram, a TLS message or a notification. Numbers
//! and structures are those of the interface that programs in C know.

mod errno;

pub use errno::Errno;
