//! The benchmark over TCP: everything but the protocol above it, which is TLS or nothing at all.

mod client;
mod lane;
mod server;

use std::net::TcpStream;

pub use client::TcpClient;
pub use lane::Lane;
pub use server::serve;

use super::{Assignment, Congestion, Failure, Link, Session};

/// Whether the peer has closed the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Peer {
    /// It has not.
    Open,
    /// It has.
    Closed,
}

/// A protocol over TCP.
pub trait Protocol: Sized + Send + Sync {
    /// A connection, its handshake complete.
    type Channel: Send;
    /// What a thread needs for one connection after the other, so that idle ones need nothing.
    type Buffers: Default;

    /// Either end, as the assignment says.
    ///
    /// # Errors
    ///
    /// When the files of the assignment cannot be used.
    fn new(assignment: &Assignment) -> Result<Self, Failure>;

    /// Does the handshake as a client.
    ///
    /// # Errors
    ///
    /// When it fails, or is not the kind that `session` asks for.
    fn connect(
        &self,
        tcp: TcpStream,
        session: Session,
        buffers: &mut Self::Buffers,
    ) -> Result<Self::Channel, Failure>;

    /// Does the handshake as a server.
    ///
    /// # Errors
    ///
    /// When it fails.
    fn accept(&self, tcp: TcpStream, buffers: &mut Self::Buffers)
    -> Result<Self::Channel, Failure>;

    /// Writes `data`.
    ///
    /// # Errors
    ///
    /// When the connection fails.
    fn write(
        channel: &mut Self::Channel,
        buffers: &mut Self::Buffers,
        data: &[u8],
    ) -> Result<(), Failure>;

    /// Hands what is there to `sink`, and waits for it if that is nothing.
    ///
    /// # Errors
    ///
    /// When the connection fails.
    fn read(
        channel: &mut Self::Channel,
        buffers: &mut Self::Buffers,
        sink: &mut dyn FnMut(&[u8]),
    ) -> Result<Peer, Failure>;

    /// Says goodbye.
    ///
    /// # Errors
    ///
    /// When the connection fails.
    fn close(channel: Self::Channel, buffers: &mut Self::Buffers) -> Result<(), Failure>;

    /// What can be told of the connection.
    fn link(channel: &Self::Channel) -> Link;
}

/// Sets what all protocols have in common.
fn prepare(tcp: &TcpStream, congestion: Congestion) -> Result<(), Failure> {
    tcp.set_nodelay(true)?;
    rustix::net::sockopt::set_tcp_congestion(tcp, congestion.name())
        .map_err(|error| format!("TCP with {}: {error}", congestion.name()).into())
}
