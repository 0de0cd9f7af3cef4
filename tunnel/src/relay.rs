//! A yardstick: what it costs to carry super-packets between a device and UDP without a look at
//! them. The lab measures tunnels against it.
//!
//! A super-packet with its header travels as the datagrams of one burst, and is what one train
//! brings, which is so where nothing between the ends takes trains apart: on a pair of virtual
//! Ethernet devices. The device has to have a `gso_max_size` that fits in one datagram of IP.

use std::io::{self, IoSlice, PipeReader, Read};
use std::net::SocketAddr;
use std::os::fd::AsFd;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::config::FlowLabel;
use crate::device::{self, Queue};
use crate::udp::{self, Burst, Datagrams, Options, Socket};

/// Bytes of each datagram but the last: what an Ethernet carries over IPv4.
const SEGMENT: usize = 1472;
/// Packets or trains taken from one side before the other has its turn.
const BATCH: usize = 64;

/// A device and a socket.
#[derive(Debug)]
pub struct Relay {
    queue: Queue,
    socket: Socket,
}

impl Relay {
    /// Makes the device, which stays, and the socket.
    ///
    /// # Errors
    ///
    /// What the system says of either.
    pub fn open(name: &str, mtu: u16, local: SocketAddr, remote: SocketAddr) -> io::Result<Self> {
        let mut queues = device::attach(name, false, 1, mtu)?;
        let queue = queues.pop().ok_or(io::ErrorKind::NotFound)?;
        let socket = Socket::open(Options {
            protocol: None,
            local,
            remote: Some(remote),
            dev: None,
            checksum: true,
            dont_fragment: true,
            limit: None,
            label: FlowLabel::Auto,
            mark: None,
            deaf: false,
        })?;
        Ok(Self { queue, socket })
    }

    /// Carries packets until the other end of `bell` is closed.
    ///
    /// # Errors
    ///
    /// What the system says of waiting; packets that either side does not take are lost.
    pub fn run(self, mut bell: PipeReader) -> io::Result<()> {
        let (mut buffer, mut control) = (vec![0; 1 << 17], udp::control_buffer());
        let ear = bell.try_clone()?;
        let files = [self.queue.as_fd(), self.socket.as_fd(), ear.as_fd()];
        let mut files = files.map(|fd| PollFd::new(fd, PollFlags::POLLIN));
        loop {
            match poll(&mut files, PollTimeout::NONE) {
                Err(Errno::EINTR) => continue,
                polled => polled?,
            };
            if files[2].any().unwrap_or(true) && bell.read(&mut [0; 16])? == 0 {
                return Ok(());
            }
            for _ in 0..BATCH {
                let Ok(len) = self.queue.read(&mut buffer) else { break };
                let parts = [IoSlice::new(&buffer[..len])];
                let segment = (len > SEGMENT).then_some(SEGMENT as u16);
                let _ =
                    self.socket.send(&Burst { parts: &parts, segment, tos: 0, ttl: 64, to: None });
            }
            for _ in 0..BATCH {
                let Ok(train) = self.socket.receive(&mut buffer, &mut control) else { break };
                let _ = self.queue.write(&[IoSlice::new(&buffer[..train.bytes])]);
            }
        }
    }
}
