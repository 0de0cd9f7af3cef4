//! TLS 1.3 over TCP as a row of the benchmark: rustls without its own buffers, blocking sockets.
//!
//! rustls' buffered interface reads 4 KiB at a time, which would measure system calls. Over the
//! unbuffered one, records are decrypted where the kernel put them, many to a read, and many are
//! encrypted to a write.

mod channel;
mod client;
mod server;

pub(super) use client::TcpTlsClient;
pub(super) use server::serve;
