//! Sockets that a process has been given at its start: by the generation before it, or by a service manager.

use std::io;
use std::net::{SocketAddr, TcpListener, UdpSocket};
#[cfg(unix)]
use std::os::{fd::OwnedFd, unix::net::UnixListener};

#[cfg(unix)]
use rustix::net::{
    AddressFamily, SocketType,
    sockopt::{socket_acceptconn, socket_domain, socket_type},
};

/// Sockets that need not be bound any more, to be taken by those whose address they have.
#[derive(Debug, Default)]
pub struct Handed {
    udp: Vec<UdpSocket>,
    tcp: Vec<TcpListener>,
    #[cfg(unix)]
    unix: Vec<UnixListener>,
    /// What nobody takes is no mistake.
    inherited: bool,
}

impl Handed {
    /// Those of the generation before, whose file may have had other addresses.
    ///
    /// # Errors
    ///
    /// As [`Handed::new`].
    #[cfg(unix)]
    pub fn inherited(sockets: Vec<OwnedFd>) -> io::Result<Self> {
        Ok(Self { inherited: true, ..Self::new(sockets)? })
    }

    /// Those of a service manager. Looks what they are.
    ///
    /// # Errors
    ///
    /// If one is neither a UDP socket nor a listener of TCP or of Unix sockets.
    #[cfg(unix)]
    pub fn new(sockets: Vec<OwnedFd>) -> io::Result<Self> {
        let mut handed = Self::default();
        for socket in sockets {
            let (domain, kind) = (socket_domain(&socket)?, socket_type(&socket)?);
            let is_ip = domain == AddressFamily::INET || domain == AddressFamily::INET6;
            let listens = socket_acceptconn(&socket)?;
            match kind {
                SocketType::DGRAM if is_ip => handed.udp.push(socket.into()),
                SocketType::STREAM if is_ip && listens => handed.tcp.push(socket.into()),
                SocketType::STREAM if domain == AddressFamily::UNIX && listens => {
                    handed.unix.push(socket.into());
                }
                _ => {
                    let message = "a socket that was handed over is neither of UDP nor listening \
                                   (ListenDatagram=, ListenStream=)";
                    return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
                }
            }
        }
        Ok(handed)
    }

    /// The UDP socket with this address.
    pub fn udp(&mut self, address: SocketAddr) -> Option<UdpSocket> {
        let is_it = |socket: &UdpSocket| socket.local_addr().is_ok_and(|found| found == address);
        let at = self.udp.iter().position(is_it)?;
        Some(self.udp.swap_remove(at))
    }

    /// Any UDP socket.
    pub fn any_udp(&mut self) -> Option<UdpSocket> {
        self.udp.pop()
    }

    /// True if there is one.
    #[must_use]
    pub fn has_udp(&self) -> bool {
        !self.udp.is_empty()
    }

    /// True if there is a listener of TCP with this address.
    #[must_use]
    pub fn has_tcp(&self, address: SocketAddr) -> bool {
        self.tcp.iter().any(|socket| socket.local_addr().is_ok_and(|found| found == address))
    }

    /// The listener of TCP with this address, for tokio.
    pub fn tcp(&mut self, address: SocketAddr) -> Option<io::Result<tokio::net::TcpListener>> {
        let is_it = |socket: &TcpListener| socket.local_addr().is_ok_and(|found| found == address);
        let listener = self.tcp.swap_remove(self.tcp.iter().position(is_it)?);
        let ready = listener.set_nonblocking(true);
        Some(ready.and_then(|()| tokio::net::TcpListener::from_std(listener)))
    }

    /// A listener of Unix sockets, for tokio. There is one at most in a gateway, and its path may have been
    /// another one when it was bound.
    #[cfg(unix)]
    pub fn unix(&mut self) -> Option<io::Result<tokio::net::UnixListener>> {
        let listener = self.unix.pop()?;
        let ready = listener.set_nonblocking(true);
        Some(ready.and_then(|()| tokio::net::UnixListener::from_std(listener)))
    }

    /// What somebody should have taken, in words.
    #[must_use]
    pub fn left(&self) -> Option<String> {
        if self.inherited {
            return None;
        }
        let udp = self.udp.first().and_then(|socket| socket.local_addr().ok());
        let tcp = self.tcp.first().and_then(|socket| socket.local_addr().ok());
        match (udp, tcp) {
            (Some(address), _) => Some(format!("{address} (UDP)")),
            (None, Some(address)) => Some(format!("{address} (TCP)")),
            #[cfg(unix)]
            (None, None) => self.unix.first().map(|socket| format!("{:?}", socket.local_addr())),
            #[cfg(not(unix))]
            (None, None) => None,
        }
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[tokio::test]
    async fn sockets_go_to_those_whose_address_they_have() {
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let (at, also) = (udp.local_addr().unwrap(), tcp.local_addr().unwrap());
        let mut handed = Handed::new(vec![udp.into(), tcp.into()]).unwrap();
        assert!(handed.tcp("127.0.0.1:1".parse().unwrap()).is_none());
        assert!(handed.unix().is_none());
        assert_eq!(handed.udp(at).unwrap().local_addr().unwrap(), at);
        assert_eq!(handed.left().unwrap(), format!("{also} (TCP)"));
        assert_eq!(handed.tcp(also).unwrap().unwrap().local_addr().unwrap(), also);
        assert_eq!(handed.left(), None);
    }

    #[test]
    fn what_does_not_listen_is_refused() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let error = Handed::new(vec![stream.into()]).unwrap_err();
        assert!(error.to_string().contains("listening"), "{error}");
    }
}
