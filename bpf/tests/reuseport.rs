//! The kernel's choice, datagram by datagram, against what `quicket_steering` reads from the same
//! connection ID.
#![cfg(target_os = "linux")]

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use quicket_bpf::{OwnerProgram, attach_reuseport, detach_reuseport};
use quicket_handshake::Aes128;
use quicket_steering::{
    BlockCipher, Codec, ConfigId, Format, HashKey, Owner, OwnerBits, Place, ServerId,
};
use socket2::{Domain, Socket, Type};

const WORKERS: u16 = 4;
const GENERATION: u8 = 3;

/// A generator with a fixed seed (xorshift64).
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn fill(&mut self, out: &mut [u8]) {
        out.iter_mut().for_each(|octet| *octet = (self.next() >> 32) as u8);
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}

/// Sockets on one port, in the order in which they were bound.
struct Group {
    sockets: Vec<UdpSocket>,
    client: UdpSocket,
    address: SocketAddr,
}

impl Group {
    fn new(ip: &str) -> Self {
        let mut address: SocketAddr = format!("{ip}:0").parse().unwrap();
        let mut sockets = Vec::new();
        for _ in 0..WORKERS {
            let socket = Socket::new(Domain::for_address(address), Type::DGRAM, None).unwrap();
            socket.set_reuse_port(true).unwrap();
            socket.bind(&address.into()).unwrap();
            socket.set_nonblocking(true).unwrap();
            address = socket.local_addr().unwrap().as_socket().unwrap();
            sockets.push(UdpSocket::from(socket));
        }
        Self { sockets, client: UdpSocket::bind(format!("{ip}:0")).unwrap(), address }
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

/// Every kind of datagram goes where the owner in its connection ID lives.
fn the_kernel_reads_owners_as_we_do(ip: &str) {
    let mut rng = Rng(7);
    for (block, bits) in [
        ((1, 5), OwnerBits::ONE_OCTET),
        ((1, 15), OwnerBits::ONE_OCTET),
        ((3, 13), OwnerBits::TWO_OCTETS),
        ((2, 9), OwnerBits::new(0, 8).unwrap()),
        ((4, 14), OwnerBits::ONE_OCTET),
    ] {
        let codecs = [codec(0, block, bits, true), codec(5, block, bits, false)];
        let generation = if bits.generations() > 1 { GENERATION } else { 0 };
        let group = Group::new(ip);
        let by_address = group.send(b"x");
        let program = OwnerProgram::new(&codecs, generation, WORKERS).unwrap();
        attach_reuseport(&group.sockets[1], &program).unwrap();
        let len = codecs[0].format().id_len();
        for _ in 0..300 {
            let codec = &codecs[rng.below(2) as usize];
            let owner = Owner {
                generation: if rng.below(4) == 0 {
                    rng.below(bits.generations() as u64) as u8
                } else {
                    generation
                },
                worker: rng.below(u64::from(WORKERS) + 1) as u16,
            };
            let mut server_id = vec![0; block.0];
            rng.fill(&mut server_id);
            let place = Place { server_id: ServerId::new(&server_id).unwrap(), owner: Some(owner) };
            let id = codec.mint(&place, &mut |out| rng.fill(out)).unwrap();
            let long = rng.below(2) == 0;
            let ours = owner.generation == generation && owner.worker < WORKERS;
            let expected = if ours { usize::from(owner.worker) } else { by_address };
            let packet = packet(&mut rng, id.as_slice(), long);
            assert_eq!(group.send(&packet), expected, "{owner} {packet:02x?}");
        }
        // What nobody of ours wrote: the owner that it seems to have decides, wherever it is.
        for _ in 0..300 {
            let mut id = vec![0; len];
            rng.fill(&mut id);
            let owner = codecs.iter().find_map(|codec| codec.owner(&id));
            let expected = owner
                .filter(|owner| owner.generation == generation && owner.worker < WORKERS)
                .map_or(by_address, |owner| usize::from(owner.worker));
            let long = rng.below(2) == 0;
            let packet = packet(&mut rng, &id, long);
            assert_eq!(group.send(&packet), expected, "{packet:02x?}");
        }
        // Connection IDs of other lengths, and datagrams that end before theirs does.
        for other in (0..=20).filter(|other| *other != len) {
            let mut id = vec![0; other];
            rng.fill(&mut id);
            let packet = packet(&mut rng, &id, true);
            assert_eq!(group.send(&packet), by_address, "{packet:02x?}");
        }
        for short in 0..=len {
            let mut octets = vec![0; short];
            rng.fill(&mut octets);
            assert_eq!(group.send(&octets), by_address, "{octets:02x?}");
        }
        detach_reuseport(&group.sockets[0]).unwrap();
        let place = Place {
            server_id: ServerId::new(&vec![9; block.0]).unwrap(),
            owner: Some(Owner { generation, worker: (by_address as u16 + 1) % WORKERS }),
        };
        let id = codecs[0].mint(&place, &mut |out| rng.fill(out)).unwrap();
        assert_eq!(group.send(&packet(&mut rng, id.as_slice(), false)), by_address);
    }
}

#[test]
fn the_kernel_reads_owners_as_we_do_over_ipv4() {
    the_kernel_reads_owners_as_we_do("127.0.0.1");
}

#[test]
fn the_kernel_reads_owners_as_we_do_over_ipv6() {
    the_kernel_reads_owners_as_we_do("[::1]");
}

#[test]
fn the_longest_program_is_taken() {
    let codecs: Vec<_> =
        (0..7).map(|number| codec(number, (3, 15), OwnerBits::ONE_OCTET, false)).collect();
    let group = Group::new("127.0.0.1");
    let program = OwnerProgram::new(&codecs, 0, WORKERS).unwrap();
    attach_reuseport(&group.sockets[0], &program).unwrap();
    let mut rng = Rng(1);
    for (worker, codec) in (0..WORKERS).cycle().zip(&codecs) {
        let place = Place {
            server_id: ServerId::new(&[1, 2, 3]).unwrap(),
            owner: Some(Owner { generation: 0, worker }),
        };
        let id = codec.mint(&place, &mut |out| rng.fill(out)).unwrap();
        assert_eq!(group.send(&packet(&mut rng, id.as_slice(), false)), usize::from(worker));
    }
}

#[test]
fn a_socket_that_shares_no_port_is_refused() {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let codec = codec(0, (1, 15), OwnerBits::ONE_OCTET, false);
    let program = OwnerProgram::new([&codec], 0, 1).unwrap();
    let error = attach_reuseport(&socket, &program).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{error}");
    let error = detach_reuseport(&socket).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{error}");
}

/// The test above in a process of an ordinary user, if this is root's.
#[test]
fn an_ordinary_user_may_attach() {
    if !nix::unistd::geteuid().is_root() {
        return the_kernel_reads_owners_as_we_do("127.0.0.1");
    }
    let output = Command::new("/proc/self/exe")
        .args(["--exact", "the_kernel_reads_owners_as_we_do_over_ipv4"])
        .uid(65_534)
        .gid(65_534)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}
