//! Sockets that a process has been given at its start: by the generation before it, or by a service manager.

use std::io;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;

use rustix::net::sockopt::{socket_acceptconn, socket_domain, socket_type};
use rustix::net::{AddressFamily, SocketType};

/// Sockets that need not be bound any more, to be taken by those whose address they have.
#[derive(Debug, Default)]
pub struct Handed {
    udp: Vec<UdpSocket>,
    tcp: Vec<TcpListener>,
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
    pub fn inherited(sockets: Vec<OwnedFd>) -> io::Result<Self> {
        Ok(Self { inherited: true, ..Self::new(sockets)? })
    }

    /// Those of a service manager. Looks what they are.
    ///
    /// # Errors
    ///
    /// If one is neither a UDP socket nor a listener of TCP or of Unix sockets.
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
    pub(crate) fn udp(&mut self, address: SocketAddr) -> Option<UdpSocket> {
        let is_it = |socket: &UdpSocket| socket.local_addr().is_ok_and(|found| found == address);
        let at = self.udp.iter().position(is_it)?;
        Some(self.udp.swap_remove(at))
    }

    /// The listener of TCP with this address, for tokio.
    pub(crate) fn tcp(
        &mut self,
        address: SocketAddr,
    ) -> Option<io::Result<tokio::net::TcpListener>> {
        let is_it = |socket: &TcpListener| socket.local_addr().is_ok_and(|found| found == address);
        let listener = self.tcp.swap_remove(self.tcp.iter().position(is_it)?);
        let ready = listener.set_nonblocking(true);
        Some(ready.and_then(|()| tokio::net::TcpListener::from_std(listener)))
    }

    /// A listener of Unix sockets, for tokio. There is one at most in a gateway, and its path may have been
    /// another one when it was bound.
    pub(crate) fn unix(&mut self) -> Option<io::Result<tokio::net::UnixListener>> {
        let listener = self.unix.pop()?;
        let ready = listener.set_nonblocking(true);
        Some(ready.and_then(|()| tokio::net::UnixListener::from_std(listener)))
    }

    /// What somebody should have taken, in words.
    pub(crate) fn left(&self) -> Option<String> {
        if self.inherited {
            return None;
        }
        let udp = self.udp.first().and_then(|socket| socket.local_addr().ok());
        let tcp = self.tcp.first().and_then(|socket| socket.local_addr().ok());
        match (udp, tcp) {
            (Some(address), _) => Some(format!("{address} (UDP)")),
            (None, Some(address)) => Some(format!("{address} (TCP)")),
            (None, None) => self.unix.first().map(|socket| format!("{:?}", socket.local_addr())),
        }
    }
}

#[cfg(test)]
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
