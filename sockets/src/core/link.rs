//! The socket that an endpoint uses now.

use std::io;
use std::sync::Arc;

use crate::udp::{BindError, Sender, UdpConfig, UdpSocket};

/// A socket with its two halves. Replaced as a whole when an endpoint moves to another one.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) socket: Arc<UdpSocket>,
    pub(crate) sender: Sender,
}

impl Link {
    /// Binds a socket.
    pub(crate) fn bind(
        address: std::net::SocketAddr,
        config: &UdpConfig,
    ) -> Result<Self, BindError> {
        let socket = UdpSocket::bind(address, config)?;
        Self::of(socket, config).map_err(|source| BindError::new(address, source))
    }

    /// Takes a socket that is bound already.
    pub(crate) fn adopt(io: std::net::UdpSocket, config: &UdpConfig) -> io::Result<Self> {
        Self::of(UdpSocket::adopt(io, config)?, config)
    }

    fn of(socket: UdpSocket, config: &UdpConfig) -> io::Result<Self> {
        let socket = Arc::new(socket);
        let sender = Sender::new(Arc::clone(&socket), config)?;
        Ok(Self { socket, sender })
    }
}
