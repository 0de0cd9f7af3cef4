//! The kernel's choice, datagram by datagram, against what `quicket_steering` reads from the same
//! connection ID.
#![cfg(target_os = "linux")]

mod classic;

use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use quicket_handshake::Aes128;
use quicket_steering::{BlockCipher, Codec, ConfigId, Format, HashKey, OwnerBits};
use quicket_testing::Rng;
use socket2::{Domain, Socket, Type};

const WORKERS: u16 = 4;

/// Sockets on one port, in the order in which they were bound.
struct Group {
    sockets: Vec<UdpSocket>,
    client: UdpSocket,
    address: SocketAddr,
}

impl Group {
    fn new(ip: &str) -> Self {
        let any: SocketAddr = format!("{ip}:0").parse().unwrap();
        let mut group =
            Self { sockets: Vec::new(), client: UdpSocket::bind(any).unwrap(), address: any };
        (0..WORKERS).for_each(|_| group.join());
        group
    }

    /// One more socket.
    fn join(&mut self) {
        let socket = Socket::new(Domain::for_address(self.address), Type::DGRAM, None).unwrap();
        socket.set_reuse_port(true).unwrap();
        socket.bind(&self.address.into()).unwrap();
        socket.set_nonblocking(true).unwrap();
        self.address = socket.local_addr().unwrap().as_socket().unwrap();
        self.sockets.push(UdpSocket::from(socket));
    }

    /// Which socket got the datagram.
    fn send(&self, datagram: &[u8]) -> usize {
        self.client.send_to(datagram, self.address).unwrap();
        let mut fds: Vec<_> = self
            .sockets
            .iter()
            .map(|socket| PollFd::new(socket.as_fd(), PollFlags::POLLIN))
            .collect();
        let some_time = PollTimeout::try_from(Duration::from_secs(10)).unwrap();
        assert_eq!(poll(&mut fds, some_time), Ok(1), "one socket has the datagram");
        let at = fds.iter().position(|fd| fd.any() == Some(true)).unwrap();
        let mut buffer = [0; 2048];
        let len = self.sockets[at].recv(&mut buffer).unwrap();
        assert_eq!(&buffer[..len], datagram);
        at
    }
}

fn codec(number: u8, block: (usize, usize), bits: OwnerBits, cipher: bool) -> Codec {
    let format = Format::new(block.0, block.1).unwrap().with_owner(bits).unwrap();
    let cipher = cipher.then(|| Arc::new(Aes128::new(&[number; 16])) as Arc<dyn BlockCipher>);
    let key = [number, 1, 2, 3, 0xfd, 0xfe, 0xff, 0x80 | number];
    Codec::new(ConfigId::new(number).unwrap(), format, cipher, HashKey::new(key))
}

/// A packet to `id` with a short header or a long one, of any version, the fixed bit set or not.
fn packet(rng: &mut Rng, id: &[u8], long: bool) -> Vec<u8> {
    let mut packet = vec![rng.next() as u8 & 0x7f];
    if long {
        packet[0] |= 0x80;
        packet.extend((rng.next() as u32).to_be_bytes());
        packet.push(id.len() as u8);
    }
    packet.extend(id);
    let mut rest = vec![0; rng.below(60) as usize];
    rng.fill(&mut rest);
    packet.extend(rest);
    packet
}
