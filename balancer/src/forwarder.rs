//! A yardstick: what it costs to carry datagrams on without a look at them.
//!
//! The sockets and calls are those of a worker; datagrams go to the servers in turn, as they came,
//! without encapsulation. The lab measures the balancer against it.

use std::io::{self, PipeReader, Read};
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::config::Config;
use crate::counters::{Counters, add};
use crate::outbox::{Outbox, Piece, Way};
use crate::snapshot::Snapshot;
use crate::sys::Arrivals;
use crate::udp;
use crate::worker::{SOURCE_PORTS, spread};

/// Carries datagrams from the first address of a balancer to its servers in turn.
pub struct Forwarder {
    socket: OwnedFd,
    outboxes: Vec<Outbox>,
    snapshot: Snapshot,
    servers: Vec<SocketAddr>,
    next: usize,
    arrivals: Arrivals,
    counters: Arc<Counters>,
}

impl Forwarder {
    /// Opens the sockets.
    ///
    /// # Errors
    ///
    /// When a socket cannot be made, or there is no server over IPv4.
    pub fn open(config: &Config, snapshot: Snapshot) -> io::Result<Self> {
        let wrong = |message: &str| io::Error::new(io::ErrorKind::InvalidInput, message);
        let listen = config.listen.first().ok_or_else(|| wrong("no address to listen on"))?;
        let servers = config.servers.iter().map(|server| server.address);
        let servers: Vec<SocketAddr> = servers.filter(SocketAddr::is_ipv4).collect();
        if servers.is_empty() {
            return Err(wrong("no server over IPv4"));
        }
        let outbox = |_| udp::sender(false, config.fragment).map(Outbox::new);
        Ok(Self {
            socket: udp::listen(*listen)?,
            outboxes: (0..SOURCE_PORTS).map(outbox).collect::<io::Result<_>>()?,
            snapshot,
            servers,
            next: 0,
            arrivals: Arrivals::new(),
            counters: Arc::default(),
        })
    }

    /// What it counts: received, sent and calls.
    #[must_use]
    pub fn counters(&self) -> Arc<Counters> {
        self.counters.clone()
    }

    /// Carries datagrams until the other end of `bell` is closed.
    ///
    /// # Errors
    ///
    /// What the system says of the sockets.
    pub fn run(mut self, mut bell: PipeReader) -> io::Result<()> {
        let ear = bell.try_clone()?;
        let socket = self.socket.try_clone()?;
        let mut files = [socket.as_fd(), ear.as_fd()].map(|fd| PollFd::new(fd, PollFlags::POLLIN));
        loop {
            match poll(&mut files, PollTimeout::NONE) {
                Err(Errno::EINTR) => continue,
                polled => polled?,
            };
            if files[1].any().unwrap_or(true) && bell.read(&mut [0; 16])? == 0 {
                return Ok(());
            }
            loop {
                match self.arrivals.receive(socket.as_fd()) {
                    Ok(()) => self.carry(),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            }
        }
    }

    fn carry(&mut self) {
        for train in self.arrivals.trains() {
            let server = self.next % self.servers.len();
            self.next = self.next.wrapping_add(1);
            let way = Way { server, to: self.servers[server], tos: train.tos & 0b11 };
            let outbox = &mut self.outboxes[spread(train.client) % SOURCE_PORTS];
            let end = train.start + train.len;
            let starts = (train.start..end).step_by(train.stride);
            for start in starts {
                let payload = start..end.min(start + train.stride);
                add(&self.counters.received, 1);
                add(&self.counters.received_bytes, payload.len() as u64);
                outbox.push(way, Piece { header: 0..0, payload });
            }
        }
        for outbox in &mut self.outboxes {
            outbox.flush(&[], self.arrivals.bytes(), &self.snapshot, &self.counters);
        }
        add(&self.counters.receive_calls, 1);
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, UdpSocket};
    use std::time::Duration;

    use super::*;
    use crate::{Health, Numbers};

    #[test]
    fn datagrams_go_to_the_servers_in_turn_as_they_came() {
        let server = || {
            let socket = UdpSocket::bind((Ipv4Addr::new(127, 0, 0, 2), 0)).unwrap();
            socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
            socket
        };
        let servers = [server(), server()];
        // A port that was free a moment ago.
        let free = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let listen = free.local_addr().unwrap();
        drop(free);
        let [one, two] = servers.each_ref().map(|socket| socket.local_addr().unwrap());
        let text = format!("listen {listen}\nserver a {one}\nserver b {two}\n");
        let config = Config::parse(&text).unwrap();
        let snapshot = Snapshot::new(&config, None, &Health::new(0), &mut Numbers::default(), 0);
        let forwarder = Forwarder::open(&config, snapshot).unwrap();
        let counters = forwarder.counters();
        let (ear, bell) = io::pipe().unwrap();
        let thread = std::thread::spawn(move || forwarder.run(ear));
        let client = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        for (number, server) in [0_u8, 1, 2, 3].into_iter().zip(servers.iter().cycle()) {
            client.send_to(&[number; 30], listen).unwrap();
            let mut buffer = [0; 100];
            let (len, _) = server.recv_from(&mut buffer).unwrap();
            assert_eq!(buffer[..len], [number; 30]);
        }
        drop(bell);
        thread.join().unwrap().unwrap();
        let sent = counters.values().into_iter().find(|(name, _)| *name == "sent");
        assert_eq!(sent, Some(("sent", 4)));
    }
}
