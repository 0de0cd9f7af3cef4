//! A switch for packets in this process, and programs at it: honest ones, and one that writes what it likes.
#![allow(dead_code, unreachable_pub, reason = "each test uses some of it")]

mod switch;
pub mod users;

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use quicket_packets::client::Port;
use quicket_packets::{Bell, Counters, Layout, Memory, Tuple, compose};
use quicket_ring::{Descriptor, Producer, Way};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};

pub use switch::Switch;

/// What a test waits for at most.
pub const PATIENCE: Duration = Duration::from_secs(20);

impl Switch {
    pub fn open(&self) -> Port {
        Port::open(&self.path, layout()).unwrap()
    }

    /// A port with a tuple of its own.
    pub fn stack(&self, address: &str) -> Stack {
        let socket = UdpSocket::bind((address, 0)).unwrap();
        let mut port = self.open();
        let tuple = port.register(&socket).unwrap();
        Stack { port, address: (tuple.address, tuple.port).into() }
    }
}

pub fn layout() -> Layout {
    Layout::new(64, 64, 2048).unwrap()
}

pub struct Stack {
    pub port: Port,
    pub address: SocketAddr,
}

impl Stack {
    pub fn send(&mut self, to: SocketAddr, payload: &[u8]) {
        self.send_as(self.address, to, payload);
    }

    pub fn send_as(&mut self, from: SocketAddr, to: SocketAddr, payload: &[u8]) {
        let mut frame = Some(|slot: &mut [u8]| compose::udp(slot, from, to, payload));
        assert!(self.port.wait_for_room(Some(PATIENCE)).unwrap());
        assert_eq!(self.port.send(|slot| frame.take()?(slot)).unwrap(), 1);
    }

    /// The payload of the next frame, which is one of UDP, and from where it is.
    pub fn receive(&mut self) -> (SocketAddr, Vec<u8>) {
        assert!(self.port.wait(Some(PATIENCE)).unwrap(), "no frame has come");
        let mut came = None;
        self.port.receive(1, |frame| came = Some(payload(frame))).unwrap();
        came.unwrap()
    }

    /// Waits until the counters are as wanted.
    pub fn until(&mut self, mut wanted: impl FnMut(&Counters) -> bool) -> Counters {
        let begun = Instant::now();
        loop {
            let counters = self.port.counters().unwrap();
            if wanted(&counters) {
                return counters;
            }
            assert!(begun.elapsed() < PATIENCE, "{counters:?}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Nothing has come, though all that was sent before is forwarded.
    pub fn has_nothing(&mut self) -> bool {
        self.port.receive(1, |_| ()).unwrap() == 0
    }
}

/// Of UDP.
pub fn tuple(address: SocketAddr) -> Tuple {
    Tuple { address: address.ip(), protocol: 17, port: address.port() }
}

/// How long the frames are that have come, and the last octet of each.
pub fn see(watcher: &mut Port, count: usize) -> Vec<(u32, Option<u8>)> {
    let mut seen = Vec::new();
    while seen.len() < count {
        assert!(watcher.wait(Some(PATIENCE)).unwrap(), "{seen:?}");
        let left = (count - seen.len()) as u32;
        watcher
            .see(left, |frame| {
                let age = SystemTime::now().duration_since(frame.time).unwrap();
                assert!(age < PATIENCE && frame.octets.len() <= frame.len as usize);
                seen.push((frame.len, frame.octets.last().copied()));
            })
            .unwrap();
    }
    seen
}

fn payload(frame: &[u8]) -> (SocketAddr, Vec<u8>) {
    let (address, udp): (std::net::IpAddr, _) = match frame[12..14] {
        [8, 0] => (<[u8; 4]>::try_from(&frame[26..30]).unwrap().into(), &frame[34..]),
        _ => (<[u8; 16]>::try_from(&frame[22..38]).unwrap().into(), &frame[54..]),
    };
    let len = usize::from(u16::from_be_bytes([udp[4], udp[5]]));
    ((address, u16::from_be_bytes([udp[0], udp[1]])).into(), udp[8..len].to_vec())
}

/// A program that keeps to nothing: it has the memory, and writes what it likes.
pub struct Liar {
    pub control: OwnedFd,
    pub memory: Memory,
    pub bell: Bell,
    pub send: Producer,
}

impl Liar {
    pub fn open(path: &Path) -> Self {
        let kind = SocketType::SEQPACKET;
        let control =
            rustix::net::socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)
                .unwrap();
        rustix::net::connect(&control, &SocketAddrUnix::new(path).unwrap()).unwrap();
        let mut request = vec![1, 3];
        [64_u32, 64, 2048].iter().for_each(|n| request.extend(n.to_ne_bytes()));
        let (answer, descriptors) = ask(&control, &request, None);
        assert_eq!(answer, [0]);
        let [memory, bell] = descriptors.try_into().unwrap();
        Self {
            control,
            memory: Memory::open(memory, layout()).unwrap(),
            bell: Bell::from_descriptor(bell),
            send: Producer::new(),
        }
    }

    /// Registers a socket of its own.
    pub fn register(&self) -> SocketAddr {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let (answer, _) = ask(&self.control, &[2], Some(&socket));
        assert_eq!(answer[0], 0);
        socket.local_addr().unwrap()
    }

    /// Publishes descriptors as they are.
    pub fn publish(&mut self, descriptors: &[Descriptor]) {
        let lines = self.memory.lines(Way::Send);
        let begun = Instant::now();
        while self.send.room(lines, 64).unwrap() < descriptors.len() as u32 {
            assert!(begun.elapsed() < PATIENCE, "there is no room");
            std::thread::yield_now();
        }
        for (n, descriptor) in (0..).zip(descriptors) {
            self.send.put(lines, n, *descriptor);
        }
        if self.send.publish(lines, descriptors.len() as u32) {
            self.bell.ring().unwrap();
        }
    }

    /// Whether the switch has closed the port.
    pub fn is_expelled(&self) -> bool {
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            let mut buffer = [0; 64];
            match rustix::net::recv(&self.control, &mut buffer[..], RecvFlags::DONTWAIT) {
                Ok((0, _)) | Err(rustix::io::Errno::CONNRESET) => return true,
                _ => std::thread::sleep(Duration::from_millis(1)),
            }
        }
        false
    }
}

/// Asks by hand.
pub fn ask(control: &OwnedFd, request: &[u8], with: Option<&UdpSocket>) -> (Vec<u8>, Vec<OwnedFd>) {
    let mut space = [MaybeUninit::uninit(); 64];
    let mut rights = SendAncillaryBuffer::new(&mut space);
    let with: Vec<_> = with.iter().map(|socket| socket.as_fd()).collect();
    if !with.is_empty() {
        assert!(rights.push(rustix::net::SendAncillaryMessage::ScmRights(&with)));
    }
    rustix::net::sendmsg(control, &[IoSlice::new(request)], &mut rights, SendFlags::empty())
        .unwrap();
    let mut space = [MaybeUninit::uninit(); 64];
    let mut rights = RecvAncillaryBuffer::new(&mut space);
    let mut buffer = vec![0; 512];
    let message = rustix::net::recvmsg(
        control,
        &mut [IoSliceMut::new(&mut buffer)],
        &mut rights,
        RecvFlags::CMSG_CLOEXEC,
    );
    buffer.truncate(message.unwrap().bytes);
    let mut descriptors = Vec::new();
    for part in rights.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = part {
            descriptors.extend(rights);
        }
    }
    (buffer, descriptors)
}
