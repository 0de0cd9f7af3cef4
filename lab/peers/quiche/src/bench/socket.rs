//! A UDP socket with segmentation and receive offload.

use std::io::{self, IoSliceMut};
use std::net::SocketAddr;

use quicket_workload::bench::Failure;
use quinn_udp::{BATCH_SIZE, RecvMeta, Transmit, UdpSocketState};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::io::Interest;
use tokio::net::UdpSocket;

/// Receive and send buffer of the UDP socket in bytes; the kernel may grant less.
const SOCKET_BUFFER: usize = 4 << 20;
/// What one message from the kernel holds at most.
const MESSAGE: usize = 64 << 10;

pub struct Udp {
    socket: UdpSocket,
    state: UdpSocketState,
    address: SocketAddr,
}

/// What is received into.
pub struct Messages {
    memory: Vec<u8>,
    meta: Vec<RecvMeta>,
}

impl Default for Messages {
    fn default() -> Self {
        let meta = vec![RecvMeta::default(); BATCH_SIZE];
        Self { memory: vec![0; MESSAGE * BATCH_SIZE], meta }
    }
}

impl Udp {
    pub fn bind(address: SocketAddr) -> Result<Self, Failure> {
        let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
        socket.set_recv_buffer_size(SOCKET_BUFFER)?;
        socket.set_send_buffer_size(SOCKET_BUFFER)?;
        socket.bind(&address.into())?;
        let state = UdpSocketState::new((&socket).into())?;
        socket.set_nonblocking(true)?;
        let socket = UdpSocket::from_std(socket.into())?;
        let address = socket.local_addr()?;
        Ok(Self { socket, state, address })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub async fn readable(&self) {
        // An error shows when it is read.
        let _ = self.socket.readable().await;
    }

    pub async fn writable(&self) {
        let _ = self.socket.writable().await;
    }

    /// Hands datagrams to `take`, with where they come from; false if there are none.
    pub fn receive(
        &self,
        messages: &mut Messages,
        mut take: impl FnMut(&mut [u8], SocketAddr),
    ) -> bool {
        let Messages { memory, meta } = messages;
        let mut pieces = memory.chunks_mut(MESSAGE).map(IoSliceMut::new);
        let mut slices: [IoSliceMut<'_>; BATCH_SIZE] =
            std::array::from_fn(|_| pieces.next().unwrap_or_else(|| IoSliceMut::new(&mut [])));
        let socket = &self.socket;
        let received =
            socket.try_io(Interest::READABLE, || self.state.recv(socket.into(), &mut slices, meta));
        let Ok(count) = received else { return false };
        for (meta, message) in meta.iter().zip(memory.chunks_mut(MESSAGE)).take(count) {
            for datagram in message[..meta.len].chunks_mut(meta.stride.max(1)) {
                take(datagram, meta.addr);
            }
        }
        count > 0
    }

    /// Sends datagrams of `segment` bytes each, save that the last may be shorter; false if the
    /// socket takes no more by now.
    pub fn send(&self, contents: &[u8], segment: usize, destination: SocketAddr) -> bool {
        let segment_size = (contents.len() > segment).then_some(segment);
        let transmit = Transmit { destination, ecn: None, contents, segment_size, src_ip: None };
        let socket = &self.socket;
        let sent =
            socket.try_io(Interest::WRITABLE, || self.state.try_send(socket.into(), &transmit));
        // Of any other error the connection learns as of a loss.
        !matches!(sent, Err(error) if error.kind() == io::ErrorKind::WouldBlock)
    }

    /// How many datagrams may be sent at once.
    pub fn segments(&self) -> usize {
        self.state.max_gso_segments()
    }
}
