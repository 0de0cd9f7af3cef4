//! QUIC as a socket.
#![forbid(unsafe_code)]

mod udp;

pub use udp::{BindError, UdpConfig};
