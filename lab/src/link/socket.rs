//! UDP sockets that bring stamps and ECN marks with trains of datagrams, and send bursts.

use std::io::{self, IoSliceMut};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags};
use nix::sys::socket::{setsockopt, sockopt};
use quicket_wire::EcnCodepoint;
use quinn_udp::{RecvMeta, Transmit, UdpSocketState};

/// Room for one train: what receive offload may join, or the largest datagram.
const TRAIN: usize = 64 << 10;
/// Trains that one system call brings at most: few, so that they stay in the cache.
const TRAINS: usize = 8;
/// What the kernel holds for a socket in each direction, in bytes, if it agrees: the arrivals of
/// some 10 ms at 1 Gbit/s, with its overhead.
const BUFFER: usize = 8 << 20;
/// How long to wait for room in the kernel's send buffer, in milliseconds.
const PATIENCE_MS: u8 = 20;

/// A bound socket.
#[derive(Debug)]
pub(super) struct Socket {
    io: UdpSocket,
    state: UdpSocketState,
    local: SocketAddr,
}

/// Datagrams that came from one address with one mark, equally long but the last, which may be
/// shorter.
pub(super) struct Train<'a> {
    pub(super) from: SocketAddr,
    pub(super) ecn: EcnCodepoint,
    /// When the kernel took it, by the wall clock since 1970.
    pub(super) stamp: Option<Duration>,
    pub(super) segment: usize,
    pub(super) bytes: &'a mut [u8],
}

impl Train<'_> {
    /// Hands out the datagrams one by one.
    pub(super) fn for_each(self, mut f: impl FnMut(&mut [u8])) {
        if self.bytes.is_empty() {
            return f(self.bytes);
        }
        self.bytes.chunks_mut(self.segment.max(1)).for_each(f);
    }
}

/// Where trains are received to.
pub(super) struct Buffers {
    bytes: Vec<u8>,
    meta: [RecvMeta; TRAINS],
}

impl std::fmt::Debug for Buffers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Buffers").finish_non_exhaustive()
    }
}

impl Buffers {
    pub(super) fn new() -> Self {
        Self { bytes: vec![0; TRAINS * TRAIN], meta: [RecvMeta::default(); TRAINS] }
    }

    /// Receives what waits in `socket`; `None` if nothing does.
    pub(super) fn receive<'a>(
        &'a mut self,
        socket: &Socket,
    ) -> io::Result<Option<impl Iterator<Item = Train<'a>> + use<'a>>> {
        let mut chunks = self.bytes.chunks_exact_mut(TRAIN);
        let mut slices: [IoSliceMut<'_>; TRAINS] =
            std::array::from_fn(|_| IoSliceMut::new(chunks.next().unwrap_or_default()));
        let count = loop {
            match socket.state.recv((&socket.io).into(), &mut slices, &mut self.meta) {
                Ok(count) => break count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                // News of an earlier send: a port or host that is not there.
                Err(error) if is_echo_of_send(&error) => {}
                Err(error) => return Err(error),
            }
        };
        let meta = self.meta.get(..count).unwrap_or_default();
        let trains = self.bytes.chunks_exact_mut(TRAIN).zip(meta);
        Ok(Some(trains.filter_map(|(bytes, meta)| {
            Some(Train {
                from: meta.addr,
                ecn: ecn_from(meta.ecn),
                stamp: meta.timestamp,
                segment: meta.stride,
                bytes: bytes.get_mut(..meta.len)?,
            })
        })))
    }
}

impl Socket {
    pub(super) fn bind(address: SocketAddr) -> io::Result<Self> {
        let io = UdpSocket::bind(address)?;
        let state = UdpSocketState::new((&io).into())?;
        // The control messages of quinn-udp have room for stamps or for local addresses, beside
        // marks and segment sizes. Each socket here has one address, which is known.
        if address.is_ipv4() {
            setsockopt(&io, sockopt::Ipv4PacketInfo, &false)?;
        } else {
            setsockopt(&io, sockopt::Ipv6RecvPacketInfo, &false)?;
        }
        enlarge(&io, &state)?;
        let local = io.local_addr()?;
        Ok(Self { io, state, local })
    }

    pub(super) const fn local(&self) -> SocketAddr {
        self.local
    }

    /// Sends datagrams of `segment` bytes, the last perhaps shorter; returns how many the system
    /// refused.
    pub(super) fn send(
        &self,
        to: SocketAddr,
        ecn: EcnCodepoint,
        segment: usize,
        bytes: &[u8],
    ) -> u64 {
        let limit = self.state.max_gso_segments().max(1);
        if bytes.len() > segment && limit == 1 {
            return bytes.chunks(segment.max(1)).map(|one| self.send(to, ecn, segment, one)).sum();
        }
        let mut refused = 0;
        let most = if bytes.len() > segment { segment * limit } else { bytes.len() };
        let mut rest = bytes;
        loop {
            let (now, later) = rest.split_at_checked(most).unwrap_or((rest, &[]));
            if self.send_now(to, ecn, segment, now).is_err() {
                // Offload that a device does not have shows with the first burst.
                if now.len() > segment && self.state.max_gso_segments() == 1 {
                    return refused + self.send(to, ecn, segment, rest);
                }
                refused += now.len().div_ceil(segment.max(1)).max(1) as u64;
            }
            if later.is_empty() {
                return refused;
            }
            rest = later;
        }
    }

    fn send_now(
        &self,
        to: SocketAddr,
        ecn: EcnCodepoint,
        segment: usize,
        bytes: &[u8],
    ) -> io::Result<()> {
        let transmit = Transmit {
            destination: to,
            ecn: ecn_to(ecn),
            contents: bytes,
            segment_size: (bytes.len() > segment).then_some(segment),
            src_ip: None,
        };
        let mut waited = false;
        loop {
            match self.state.try_send((&self.io).into(), &transmit) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && !waited => {
                    waited = true;
                    let mut room = [PollFd::new(self.io.as_fd(), PollFlags::POLLOUT)];
                    nix::poll::poll(&mut room, PATIENCE_MS)?;
                }
                Err(error) if is_echo_of_send(&error) && !waited => waited = true,
                result => return result,
            }
        }
    }

    /// Datagrams that the kernel dropped because nobody took them from this socket in time. To be
    /// asked where the socket was made.
    pub(super) fn kernel_drops(&self) -> u64 {
        let Ok(stat) = rustix::fs::fstat(&self.io) else { return 0 };
        let table = if self.local.is_ipv4() { "udp" } else { "udp6" };
        let table = std::fs::read_to_string(format!("/proc/thread-self/net/{table}"));
        drops_in(&table.unwrap_or_default(), stat.st_ino)
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.io.as_fd()
    }
}

/// The drops of the socket with this inode, in a table of the kernel: the inode is the tenth
/// column, the drops are the last.
fn drops_in(table: &str, inode: u64) -> u64 {
    let row = |line: &str| {
        let columns: Vec<&str> = line.split_whitespace().collect();
        let found = columns.get(9)?.parse() == Ok(inode);
        found.then(|| columns.last()?.parse().ok()).flatten()
    };
    table.lines().skip(1).find_map(row).unwrap_or(0)
}

/// Asks for large buffers, past the limits of the system if permitted.
fn enlarge(io: &UdpSocket, state: &UdpSocketState) -> io::Result<()> {
    if setsockopt(io, sockopt::RcvBufForce, &BUFFER).is_err() {
        state.set_recv_buffer_size(io.into(), BUFFER)?;
    }
    if setsockopt(io, sockopt::SndBufForce, &BUFFER).is_err() {
        state.set_send_buffer_size(io.into(), BUFFER)?;
    }
    Ok(())
}

/// True for errors that tell of an earlier send and not of the socket.
fn is_echo_of_send(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionRefused, ConnectionReset, HostUnreachable, NetworkUnreachable};
    matches!(
        error.kind(),
        ConnectionRefused | ConnectionReset | HostUnreachable | NetworkUnreachable
    )
}

const fn ecn_from(ecn: Option<quinn_udp::EcnCodepoint>) -> EcnCodepoint {
    match ecn {
        None => EcnCodepoint::NotEct,
        Some(quinn_udp::EcnCodepoint::Ect0) => EcnCodepoint::Ect0,
        Some(quinn_udp::EcnCodepoint::Ect1) => EcnCodepoint::Ect1,
        Some(quinn_udp::EcnCodepoint::Ce) => EcnCodepoint::Ce,
    }
}

const fn ecn_to(ecn: EcnCodepoint) -> Option<quinn_udp::EcnCodepoint> {
    match ecn {
        EcnCodepoint::NotEct => None,
        EcnCodepoint::Ect0 => Some(quinn_udp::EcnCodepoint::Ect0),
        EcnCodepoint::Ect1 => Some(quinn_udp::EcnCodepoint::Ect1),
        EcnCodepoint::Ce => Some(quinn_udp::EcnCodepoint::Ce),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn pair(address: &str) -> (Socket, Socket) {
        let bind = || Socket::bind(address.parse().unwrap()).unwrap();
        (bind(), bind())
    }

    /// What comes to `socket`, datagram by datagram, until `count` have come.
    fn received(socket: &Socket, count: usize) -> Vec<(EcnCodepoint, Vec<u8>)> {
        let mut buffers = Buffers::new();
        let mut all = Vec::new();
        while all.len() < count {
            let mut ready = [PollFd::new(socket.as_fd(), PollFlags::POLLIN)];
            nix::poll::poll(&mut ready, 60_000_u16).unwrap();
            if let Some(trains) = buffers.receive(socket).unwrap() {
                for train in trains {
                    assert!(super::super::clock::age(train.stamp) < LONG);
                    assert!(train.stamp.is_some(), "the kernel stamps what it takes");
                    let ecn = train.ecn;
                    train.for_each(|datagram| all.push((ecn, datagram.to_vec())));
                }
            }
        }
        all
    }

    #[test]
    fn bursts_arrive_as_datagrams_with_their_marks() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let (a, b) = pair(address);
            let mut sent = Vec::new();
            for ecn in
                [EcnCodepoint::NotEct, EcnCodepoint::Ect0, EcnCodepoint::Ect1, EcnCodepoint::Ce]
            {
                let bytes: Vec<u8> = (0..250).collect();
                assert_eq!(a.send(b.local(), ecn, 100, &bytes), 0);
                sent.extend(bytes.chunks(100).map(|chunk| (ecn, chunk.to_vec())));
            }
            assert_eq!(a.send(b.local(), EcnCodepoint::NotEct, 0, &[]), 0);
            sent.push((EcnCodepoint::NotEct, Vec::new()));
            assert_eq!(received(&b, sent.len()), sent);
        }
    }

    #[test]
    fn what_the_system_refuses_is_counted() {
        let (a, _) = pair("127.0.0.1:0");
        let broadcast = "255.255.255.255:9".parse().unwrap();
        assert_eq!(a.send(broadcast, EcnCodepoint::NotEct, 10, &[0; 25]), 3);
    }

    #[test]
    fn drops_are_read_from_the_kernels_table() {
        const TABLE: &str = "\
   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops
 1234: 0100007F:1F90 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 4711 2 0000000000000000 12
 1235: 0100007F:1F91 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 4712 2 0000000000000000 0
";
        assert_eq!(drops_in(TABLE, 4711), 12);
        assert_eq!(drops_in(TABLE, 4712), 0);
        assert_eq!(drops_in(TABLE, 1), 0);
    }

    #[test]
    fn datagrams_that_nobody_takes_are_told_by_the_kernel() {
        let (a, b) = pair("127.0.0.1:0");
        setsockopt(&b.io, sockopt::RcvBuf, &4096).unwrap();
        for _ in 0..50 {
            a.send(b.local(), EcnCodepoint::NotEct, 1200, &[0; 1200]);
        }
        assert!(b.kernel_drops() > 0);
        assert_eq!(a.kernel_drops(), 0);
    }
}
