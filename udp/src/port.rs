//! Datagrams that somebody else reads from the kernel's socket and hands over.

use std::fmt;
use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

use quicket_wire::EcnCodepoint;

use crate::Outgoing;
use crate::errors::Undelivered;

/// Where the datagrams of a socket come from that another process reads. Sending stays with the
/// socket, unless the port sends, too ([`UdpSocket::through`](crate::UdpSocket::through)).
pub trait Port: fmt::Debug + Send + Sync {
    /// The descriptor that is readable when something has come.
    fn readable(&self) -> BorrowedFd<'_>;

    /// The descriptor that is writable when there is room, for one that sends ([`Port::send_through`]).
    fn writable(&self) -> BorrowedFd<'_> {
        self.readable()
    }

    /// Takes what has come, without waiting: a train for each buffer, in order, and what is known of it
    /// at the same place in `arrivals`. Returns how many trains; `WouldBlock` if there is nothing.
    ///
    /// # Errors
    ///
    /// When the system refuses to read.
    fn receive(
        &self,
        buffers: &mut [IoSliceMut<'_>],
        arrivals: &mut [Arrival],
    ) -> io::Result<usize>;

    /// Whether who reads the socket has lent it: as long as that is so this process reads it, too, and hands back what is
    /// another's ([`UdpSocket::behind`](crate::UdpSocket::behind)). [`Port::readable`] tells of both then. What waits in
    /// the port comes first.
    fn is_lent(&self) -> bool {
        false
    }

    /// Hears that something was read from a socket that is lent.
    fn on_read_lent(&self) {}

    /// Hands back what came to the socket itself and belongs to somebody else: a train of datagrams
    /// ([`UdpSocket::beside`](crate::UdpSocket::beside), [`Self::is_lent`]). Never waits.
    ///
    /// # Errors
    ///
    /// `WouldBlock` when there is no room; when nobody is there to take it.
    fn hand_back(&self, train: &Arrival, bytes: &[u8]) -> io::Result<()>;

    /// Has who reads the socket send a burst in place of this process ([`UdpSocket::through`]). Never waits. Returns
    /// how many bytes it has taken: all, or as many whole datagrams as have room.
    ///
    /// # Errors
    ///
    /// `WouldBlock` when there is no room; `Unsupported` where this process sends by a socket of its own.
    ///
    /// [`UdpSocket::through`]: crate::UdpSocket::through
    fn send_through(&self, _: &Outgoing<'_>) -> io::Result<usize> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Keeps what ICMP says of datagrams that were sent by the port, a bounded number of messages, or forgets it
    /// ([`UdpSocket::keep_errors`](crate::UdpSocket::keep_errors)). [`Port::readable`] tells of messages, too, and receiving
    /// finds them. A port that hears none has nothing to do.
    fn keep_errors(&self, _on: bool) {}

    /// Whether some are kept.
    fn has_errors(&self) -> bool {
        false
    }

    /// Takes those that are kept.
    fn take_errors(&self, _each: &mut dyn FnMut(Undelivered<'_>)) {}
}

/// What is known of a train that came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// The sender.
    pub remote: SocketAddr,
    /// The address that it was sent to, if known.
    pub local: Option<SocketAddr>,
    /// The mark in the IP headers.
    pub ecn: EcnCodepoint,
    /// Size of each datagram but the last, in bytes.
    pub stride: usize,
    /// How many bytes there are.
    pub len: usize,
}

impl Arrival {
    /// A burst as it goes through a port to who sends it ([`Port::send_through`]): the sender's address is the
    /// receiver's then, and the other one is that to send from, whose port the one who sends knows.
    #[must_use]
    pub fn of(burst: &Outgoing<'_>) -> Self {
        let Outgoing { remote, local, ecn, segment_size: stride, bytes } = *burst;
        let local = local.map(|local| SocketAddr::new(local, 0));
        Self { remote, local, ecn, stride, len: bytes.len() }
    }

    /// The burst that has come so.
    #[must_use]
    pub fn outgoing<'a>(&self, bytes: &'a [u8]) -> Outgoing<'a> {
        let Self { remote, local, ecn, stride: segment_size, .. } = *self;
        Outgoing { remote, local: local.map(|local| local.ip()), ecn, segment_size, bytes }
    }
}

impl Default for Arrival {
    fn default() -> Self {
        let remote = SocketAddr::from(([0, 0, 0, 0], 0));
        Self { remote, local: None, ecn: EcnCodepoint::NotEct, stride: 1, len: 0 }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixDatagram;

    use super::*;
    use crate::{ReceiveBuffers, UdpConfig, UdpSocket};

    /// Trains of one datagram each, without addresses.
    #[derive(Debug)]
    struct Plain(UnixDatagram, Arrival);

    impl Port for Plain {
        fn readable(&self) -> BorrowedFd<'_> {
            self.0.as_fd()
        }

        fn receive(
            &self,
            buffers: &mut [IoSliceMut<'_>],
            arrivals: &mut [Arrival],
        ) -> io::Result<usize> {
            let len = self.0.recv(&mut buffers[0])?;
            arrivals[0] = Arrival { len, stride: len, ..self.1 };
            Ok(1)
        }

        fn hand_back(&self, _: &Arrival, bytes: &[u8]) -> io::Result<()> {
            self.0.send(bytes).map(drop)
        }
    }

    #[test]
    fn datagrams_come_from_the_port_and_not_from_the_socket() {
        let io = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let stranger = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let (ours, theirs) = UnixDatagram::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let arrival = Arrival {
            remote: "192.0.2.7:9".parse().unwrap(),
            local: Some(SocketAddr::new("192.0.2.1".parse().unwrap(), 0)),
            ecn: EcnCodepoint::Ce,
            ..Arrival::default()
        };
        let port = io.local_addr().unwrap().port();
        let socket = UdpSocket::behind(io, Box::new(Plain(ours, arrival))).unwrap();
        stranger.send_to(b"not this", socket.local_addr()).unwrap();
        let mut buffers = ReceiveBuffers::new();
        let error = socket.receive(&mut buffers).map(|_| ()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        theirs.send(b"but this").unwrap();
        let mut batch = socket.receive(&mut buffers).unwrap();
        let train = batch.trains().next().unwrap();
        assert_eq!((train.remote, train.ecn, train.stride), (arrival.remote, arrival.ecn, 8));
        assert_eq!(train.local, Some(SocketAddr::new("192.0.2.1".parse().unwrap(), port)));
        assert_eq!(train.bytes, b"but this");
        // It goes on sending by itself.
        let sender = crate::Sender::new(socket.into(), &UdpConfig::default()).unwrap();
        let to = stranger.local_addr().unwrap();
        let burst = crate::Outgoing {
            remote: to,
            local: None,
            ecn: EcnCodepoint::NotEct,
            segment_size: 2,
            bytes: b"ok",
        };
        assert_eq!(sender.send(&burst), crate::SendOutcome::Done);
        let mut answer = [0; 8];
        assert_eq!(stranger.recv_from(&mut answer).unwrap(), (2, ([127, 0, 0, 1], port).into()));
    }

    /// A port that sends, too, as long as there is room.
    #[derive(Debug)]
    struct Sends(UnixDatagram);

    impl Port for Sends {
        fn readable(&self) -> BorrowedFd<'_> {
            self.0.as_fd()
        }

        fn receive(&self, _: &mut [IoSliceMut<'_>], _: &mut [Arrival]) -> io::Result<usize> {
            Err(io::ErrorKind::WouldBlock.into())
        }

        fn hand_back(&self, _: &Arrival, _: &[u8]) -> io::Result<()> {
            Err(io::ErrorKind::Unsupported.into())
        }

        fn send_through(&self, burst: &crate::Outgoing<'_>) -> io::Result<usize> {
            self.0.send(burst.bytes)
        }
    }

    #[test]
    fn who_has_no_socket_sends_by_the_port_a_burst_in_one_piece() {
        let (ours, theirs) = UnixDatagram::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        theirs.set_nonblocking(true).unwrap();
        let local = "127.0.0.1:4433".parse().unwrap();
        let socket = UdpSocket::through(Box::new(Sends(ours)), local, false).unwrap();
        assert_eq!(socket.local_addr(), local);
        assert!(socket.is_behind_port() && socket.reaches("192.0.2.1:1".parse().unwrap()));
        let config = UdpConfig::default();
        let sender = crate::Sender::new(socket.into(), &config).unwrap();
        assert_eq!(sender.max_segments(), crate::MAX_SEGMENTS);
        let burst = crate::Outgoing {
            remote: "127.0.0.1:9".parse().unwrap(),
            local: None,
            ecn: EcnCodepoint::Ect0,
            segment_size: 2,
            bytes: b"a train",
        };
        assert_eq!(sender.send(&burst), crate::SendOutcome::Done);
        let mut whole = [0; 16];
        assert_eq!(theirs.recv(&mut whole).unwrap(), 7, "one piece");
        let mut sent = 0;
        while sender.send(&burst) == crate::SendOutcome::Done {
            sent += 1;
            assert!(sent < 1 << 16, "there is no end of room");
        }
        assert_eq!(sender.send(&burst), crate::SendOutcome::Blocked { sent: 0 });
        theirs.recv(&mut whole).unwrap();
        assert_eq!(sender.send(&burst), crate::SendOutcome::Done);
        drop(theirs);
        assert_eq!(sender.send(&burst), crate::SendOutcome::Done, "as lost as any datagram");
        assert_eq!(sender.stats().refused, 1);
    }

    #[test]
    fn a_socket_with_a_port_beside_it_brings_what_came_to_both() {
        let io = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let stranger = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let (ours, theirs) = UnixDatagram::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let plain =
            Plain(ours, Arrival { remote: "192.0.2.7:9".parse().unwrap(), ..Arrival::default() });
        let socket = UdpSocket::beside(io, Box::new(plain)).unwrap();
        assert!(!socket.is_behind_port());
        let mut buffers = ReceiveBuffers::new();
        assert!(
            socket.receive(&mut buffers).is_err() && socket.receive_beside(&mut buffers).is_err()
        );
        stranger.send_to(b"direct", socket.local_addr()).unwrap();
        theirs.send(b"handed over").unwrap();
        let mut batch = socket.receive(&mut buffers).unwrap();
        assert_eq!(batch.trains().next().unwrap().bytes, b"direct");
        let mut batch = socket.receive_beside(&mut buffers).unwrap();
        assert_eq!(batch.trains().next().unwrap().bytes, b"handed over");
        let port = socket.port_beside().unwrap();
        port.hand_back(&Arrival::default(), b"another's").unwrap();
        let mut back = [0; 16];
        assert_eq!(theirs.recv(&mut back).unwrap(), 9);
    }
}
