//! Programs that receive by hand, and a switch that tells what it does.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::io::{self, IoSliceMut};
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use quicket_handshake::{Aes128, SystemRandom};
use quicket_steering::{Codec, Owner, Place as SteeringPlace, ServerId};
use quicket_switch::client::{Membership, Place};
use quicket_switch::options::SocketOptions;
use quicket_switch::protocol::{Octets, Serve};
use quicket_udp::{Arrival, Port};
use quicket_wire::ConnectionId;
use serde_json::Value;

use crate::rig::{LONG, Switch, Worker};

impl Switch {
    pub(crate) fn new() -> Self {
        Self::named(Self::new_name(), false)
    }

    pub(crate) fn named(name: String, forwards: bool) -> Self {
        Self::start(name, |daemon| if forwards { daemon.forwarding() } else { daemon })
    }

    pub(crate) fn join(&self, address: SocketAddr, workers: usize) -> Program {
        self.join_as(address, workers, true, || UdpSocket::bind(address))
    }

    pub(crate) fn join_as(
        &self,
        address: SocketAddr,
        workers: usize,
        steered: bool,
        bind: impl FnMut() -> io::Result<UdpSocket>,
    ) -> Program {
        let options = SocketOptions::default();
        let place = Place { address, only_v6: false, workers, steered, remains: false, options };
        let (member, inlets, socket) = Membership::join(&self.options(), place, bind).unwrap();
        let workers = inlets.into_iter().map(Worker::new).collect();
        Program { address: socket.local_addr().unwrap(), member, workers }
    }

    pub(crate) fn wait_for(&self, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        let begun = Instant::now();
        loop {
            let address = self.address();
            if is_so(&address) {
                return address;
            }
            assert!(begun.elapsed() < LONG, "{what}: {address}");
            thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Worker {
    /// What has come to its own socket, within a time that is enough.
    pub(crate) fn direct(&self) -> Vec<u8> {
        let socket = self.socket.as_ref().expect("it has a socket");
        let (mut buffer, begun) = ([0; 2000], Instant::now());
        loop {
            match socket.recv(&mut buffer) {
                Ok(len) => return buffer[..len].to_vec(),
                Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
            }
            assert!(begun.elapsed() < LONG, "nothing came to the socket");
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// What the switch has handed over, within a time that is enough.
    pub(crate) fn handed(&self) -> Vec<u8> {
        let (mut buffer, begun) = ([0; 2000], Instant::now());
        loop {
            let mut arrival = [Arrival::default()];
            match self.inlet.receive(&mut [IoSliceMut::new(&mut buffer)], &mut arrival) {
                Ok(_) => return buffer[..arrival[0].len].to_vec(),
                Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
            }
            assert!(begun.elapsed() < LONG, "nothing was handed over");
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// A program.
pub(crate) struct Program {
    pub(crate) member: Membership,
    pub(crate) workers: Vec<Worker>,
    pub(crate) address: SocketAddr,
}

impl Program {
    pub(crate) fn codec(&self) -> Codec {
        let secrets = self.member.secrets();
        let keys = secrets.ring().unwrap();
        keys.current().unwrap().codec(&|key: &[u8; 16]| Arc::new(Aes128::new(key))).unwrap()
    }

    /// A packet to a connection of one of its workers.
    pub(crate) fn packet(&self, worker: u16, long: bool) -> Vec<u8> {
        let owner = Owner { generation: self.member.generation(), worker };
        let place = SteeringPlace { server_id: ServerId::new(&[0]).unwrap(), owner: Some(owner) };
        let mut random = SystemRandom::new();
        let mut fill = |out: &mut [u8]| quicket_engine::random::Random::fill(&mut random, out);
        let id = self.codec().mint(&place, &mut fill).unwrap();
        let mut rest = [0; 40];
        fill(&mut rest);
        let head: &[u8] = if long { &[0xe0, 0, 0, 0, 1, 14] } else { &[0x40] };
        [head, id.as_slice(), &rest].concat()
    }

    pub(crate) fn serve(&self, protocol: &str) {
        self.member.serve(serve(protocol)).unwrap();
    }

    /// The kernel brings packets of its connections to it, and the switch sees none of them.
    pub(crate) fn is_steered(&self, switch: &Switch, client: &UdpSocket) {
        let received = |switch: &Switch| switch.address()["datagrams"]["received"].clone();
        let before = received(switch);
        for (number, worker) in (0..).zip(&self.workers) {
            for long in [false, true] {
                let packet = self.packet(number, long);
                client.send_to(&packet, self.address).unwrap();
                assert_eq!(worker.direct(), packet);
            }
        }
        assert_eq!(received(switch), before);
    }

    /// The switch hands them over.
    pub(crate) fn is_forwarded(&self, client: &UdpSocket) {
        for (number, worker) in (0..).zip(&self.workers) {
            let packet = self.packet(number, false);
            client.send_to(&packet, self.address).unwrap();
            assert_eq!(worker.handed(), packet);
        }
    }
}

pub(crate) fn serve(protocol: &str) -> Serve {
    Serve {
        protocols: vec![Octets(protocol.as_bytes().to_vec())],
        server_names: Vec::new(),
        shared: false,
        replace: false,
        upgrades: false,
        drain_seconds: None,
    }
}

pub(crate) fn local() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

pub(crate) fn client() -> UdpSocket {
    UdpSocket::bind(local()).unwrap()
}

/// What looks like a client's first packet to a connection ID of its choice, and cannot be read.
pub(crate) fn initial(number: u8) -> Vec<u8> {
    let mut packet = vec![0xc0, 0, 0, 0, 1, 8];
    packet.extend([number; 8]);
    packet.push(8);
    packet.resize(1200, number);
    packet
}

/// The connection ID in it.
pub(crate) fn first_id(number: u8) -> ConnectionId {
    ConnectionId::new(&[number; 8]).unwrap()
}

impl Program {
    /// The worker to whose own socket a datagram has come, which it has read.
    pub(crate) fn who_got(&self, datagram: &[u8]) -> usize {
        let (mut buffer, begun) = ([0; 2000], Instant::now());
        loop {
            for (number, worker) in self.workers.iter().enumerate() {
                match worker.socket.as_ref().expect("it has a socket").recv(&mut buffer) {
                    Ok(len) => {
                        assert_eq!(&buffer[..len], datagram);
                        return number;
                    }
                    Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
                }
            }
            assert!(begun.elapsed() < LONG, "nothing came to the sockets");
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// The same for what the switch has handed over.
    pub(crate) fn who_was_handed(&self, datagram: &[u8]) -> usize {
        let (mut buffer, begun) = ([0; 2000], Instant::now());
        loop {
            for (number, worker) in self.workers.iter().enumerate() {
                let mut arrival = [Arrival::default()];
                match worker.inlet.receive(&mut [IoSliceMut::new(&mut buffer)], &mut arrival) {
                    Ok(_) => {
                        assert_eq!(&buffer[..arrival[0].len], datagram);
                        return number;
                    }
                    Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
                }
            }
            assert!(begun.elapsed() < LONG, "nothing was handed over");
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Serves in place of the generation before.
    pub(crate) fn replace(&self, protocol: &str) {
        self.member.serve(Serve { replace: true, ..serve(protocol) }).unwrap();
    }
}

impl Switch {
    /// Waits until the kernel brings clients past the switch.
    pub(crate) fn opens(&self) -> Value {
        self.wait_for("the door opens", |address| address["kernel"]["brings_first_packets"] == true)
    }

    /// The same as a question.
    pub(crate) fn is_open(&self) -> bool {
        self.address()["kernel"]["brings_first_packets"] == true
    }
}
