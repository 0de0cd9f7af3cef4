//! The socket layer against the kernel, over loopback.

use std::io::IoSliceMut;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;

use nix::cmsg_space;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg};
use quicket_wire::EcnCodepoint;

use crate::{Outgoing, ReceiveBuffers, SendOutcome, Sender, UdpConfig, UdpOption, UdpSocket};

/// One received train, copied.
#[derive(Debug)]
struct Seen {
    remote: SocketAddr,
    local: Option<SocketAddr>,
    ecn: EcnCodepoint,
    stride: usize,
    bytes: Vec<u8>,
}

fn bind(address: &str, config: &UdpConfig) -> Arc<UdpSocket> {
    Arc::new(UdpSocket::bind(address.parse().unwrap(), config).unwrap())
}

/// Receives until `bytes` bytes have come.
fn receive(socket: &UdpSocket, buffers: &mut ReceiveBuffers, bytes: usize) -> Vec<Seen> {
    let mut seen = Vec::new();
    let mut total = 0;
    while total < bytes {
        let mut fds = [PollFd::new(socket.as_fd(), PollFlags::POLLIN)];
        assert_eq!(
            poll(&mut fds, PollTimeout::from(5000_u16)).unwrap(),
            1,
            "only {total} bytes came"
        );
        let mut batch = socket.receive(buffers).unwrap();
        for train in batch.trains() {
            total += train.bytes.len();
            seen.push(Seen {
                remote: train.remote,
                local: train.local,
                ecn: train.ecn,
                stride: train.stride,
                bytes: train.bytes.to_vec(),
            });
        }
    }
    seen
}

fn outgoing(remote: SocketAddr, segment_size: usize, bytes: &[u8]) -> Outgoing<'_> {
    Outgoing { remote, local: None, ecn: EcnCodepoint::Ect0, segment_size, bytes }
}

#[test]
fn a_burst_arrives_whole_with_its_mark_and_addresses() {
    let config = UdpConfig::default();
    let (a, b) = (bind("127.0.0.1:0", &config), bind("0.0.0.0:0", &config));
    let remote = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), b.local_addr().port());
    let bytes: Vec<u8> = (0..10_500_u32).map(|i| (i % 251) as u8).collect();
    let sender = Sender::new(Arc::clone(&a), &config).unwrap();
    assert_eq!(sender.send(&outgoing(remote, 1200, &bytes)), SendOutcome::Done);

    let seen = receive(&b, &mut ReceiveBuffers::new(), bytes.len());
    let all: Vec<u8> = seen.iter().flat_map(|train| train.bytes.iter().copied()).collect();
    assert_eq!(all, bytes);
    for train in &seen {
        assert_eq!(train.remote, a.local_addr());
        assert_eq!(train.local, Some(remote));
        assert_eq!(train.ecn, EcnCodepoint::Ect0);
        assert_eq!(train.stride, 1200.min(train.bytes.len()));
    }
}

/// Seen with the kernel's own word on each packet; the burst, its source and its mark as usual.
#[test]
fn packets_carry_the_class_of_their_socket_beside_their_mark() {
    const CLASS: u8 = 0xb8;
    let bytes: Vec<u8> = (0..10_500_u32).map(|i| (i % 251) as u8).collect();
    let options = vec![UdpOption::TrafficClassV4(CLASS), UdpOption::TrafficClassV6(CLASS)];
    let config = UdpConfig { options, ..UdpConfig::default() };
    for (ours, theirs) in
        [("127.0.0.1:0", "127.0.0.1:0"), ("[::1]:0", "[::1]:0"), ("[::]:0", "127.0.0.1:0")]
    {
        let (a, b) = (bind(ours, &config), bind(theirs, &UdpConfig::default()));
        let sender = Sender::new(Arc::clone(&a), &config).unwrap();
        let local = Some(b.local_addr().ip());
        let burst = Outgoing { local, ..outgoing(b.local_addr(), 1200, &bytes) };
        assert_eq!(sender.send(&burst), SendOutcome::Done);
        let seen = receive(&b, &mut ReceiveBuffers::new(), bytes.len());
        let all: Vec<u8> = seen.iter().flat_map(|train| train.bytes.iter().copied()).collect();
        assert_eq!(all, bytes);
        assert!(seen.iter().all(|train| train.ecn == EcnCodepoint::Ect0), "{ours}");
        assert_eq!(sender.send(&burst), SendOutcome::Done);
        assert_eq!(class_of_next(&b), CLASS | 0b10, "{ours}");
    }
}

/// The Differentiated Services field of the next packet, with ECN's two bits.
fn class_of_next(socket: &UdpSocket) -> u8 {
    let mut room = cmsg_space!([u8; 256]);
    let mut bytes = [0; 65_536];
    let mut parts = [IoSliceMut::new(&mut bytes)];
    let mut fds = [PollFd::new(socket.as_fd(), PollFlags::POLLIN)];
    assert_eq!(poll(&mut fds, PollTimeout::from(5000_u16)).unwrap(), 1);
    let fd = socket.as_fd().as_raw_fd();
    let message = recvmsg::<()>(fd, &mut parts, Some(&mut room), MsgFlags::empty()).unwrap();
    let class = |control| match control {
        ControlMessageOwned::Ipv4Tos(class) => Some(class),
        ControlMessageOwned::Ipv6TClass(class) => Some(class as u8),
        _ => None,
    };
    message.cmsgs().unwrap().find_map(class).unwrap()
}

#[test]
fn without_offload_the_same_datagrams_arrive_one_by_one() {
    let config = UdpConfig { segmentation_offload: false, ..UdpConfig::default() };
    let (a, b) = (bind("127.0.0.1:0", &config), bind("127.0.0.1:0", &config));
    let sender = Sender::new(a, &config).unwrap();
    assert_eq!(sender.max_segments(), 1);
    assert_eq!(sender.send(&outgoing(b.local_addr(), 1200, &[7; 3000])), SendOutcome::Done);
    let seen = receive(&b, &mut ReceiveBuffers::new(), 3000);
    let sizes: Vec<usize> =
        seen.iter().flat_map(|t| t.bytes.chunks(t.stride).map(<[u8]>::len)).collect();
    assert_eq!(sizes, [1200, 1200, 600]);
}

#[test]
fn a_burst_that_the_kernel_refuses_goes_out_one_by_one_from_then_on() {
    let config = UdpConfig::default();
    let (a, b) = (bind("127.0.0.1:0", &config), bind("127.0.0.1:0", &config));
    let sender = Sender::new(a, &config).unwrap();
    if sender.max_segments() == 1 {
        return; // a kernel without offload has nothing to refuse
    }
    // More segments than any kernel takes: EINVAL, as from a device without offload.
    let bytes = vec![3; 40 * 500];
    assert_eq!(sender.send(&outgoing(b.local_addr(), 40, &bytes)), SendOutcome::Done);
    assert_eq!(receive(&b, &mut ReceiveBuffers::new(), bytes.len()).len(), 500);
    assert_eq!(sender.max_segments(), 1);
    assert_eq!(sender.send(&outgoing(b.local_addr(), 40, &bytes[..100])), SendOutcome::Done);
    assert_eq!(receive(&b, &mut ReceiveBuffers::new(), 100).len(), 3);
}

#[test]
fn a_datagram_that_is_too_large_is_lost_and_nothing_else() {
    let config = UdpConfig::default();
    let (a, b) = (bind("127.0.0.1:0", &config), bind("127.0.0.1:0", &config));
    let sender = Sender::new(a, &config).unwrap();
    let bytes = vec![1; 65_530];
    assert_eq!(sender.send(&outgoing(b.local_addr(), 65_530, &bytes)), SendOutcome::TooLarge);
    assert_eq!(sender.stats().too_large, 1);
    assert_eq!(sender.send(&outgoing(b.local_addr(), 100, &bytes[..100])), SendOutcome::Done);
    assert_eq!(receive(&b, &mut ReceiveBuffers::new(), 100).len(), 1);
}

#[test]
fn an_unreachable_peer_leaves_the_socket_working() {
    let config = UdpConfig::default();
    let (a, b) = (bind("127.0.0.1:0", &config), bind("127.0.0.1:0", &config));
    let closed = bind("127.0.0.1:0", &config).local_addr();
    let sender = Sender::new(Arc::clone(&a), &config).unwrap();
    for _ in 0..3 {
        assert_eq!(sender.send(&outgoing(closed, 100, &[1; 100])), SendOutcome::Done);
    }
    assert_eq!(sender.send(&outgoing(b.local_addr(), 100, &[2; 100])), SendOutcome::Done);
    assert_eq!(receive(&b, &mut ReceiveBuffers::new(), 100)[0].bytes, [2; 100]);
    let back = Sender::new(b, &config).unwrap();
    assert_eq!(back.send(&outgoing(a.local_addr(), 100, &[3; 100])), SendOutcome::Done);
    assert_eq!(receive(&a, &mut ReceiveBuffers::new(), 100)[0].bytes, [3; 100]);
}

#[test]
fn a_lost_source_address_is_replaced_and_offload_survives() {
    let config = UdpConfig::default();
    let (a, b) = (bind("0.0.0.0:0", &config), bind("127.0.0.1:0", &config));
    let sender = Sender::new(a, &config).unwrap();
    let before = sender.max_segments();
    let local = Some(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)));
    let burst = Outgoing { local, ..outgoing(b.local_addr(), 100, &[9; 250]) };
    assert_eq!(sender.send(&burst), SendOutcome::Done);
    let seen = receive(&b, &mut ReceiveBuffers::new(), 250);
    assert_eq!(seen[0].remote.ip(), IpAddr::V4(Ipv4Addr::LOCALHOST));
    assert_eq!(sender.stats().source_lost, 1);
    assert_eq!(sender.max_segments(), before);
}

#[test]
fn a_dual_stack_socket_serves_both_families_under_their_own_addresses() {
    let config = UdpConfig::default();
    let server = bind("[::]:0", &config);
    let port = server.local_addr().port();
    let server_sender = Sender::new(Arc::clone(&server), &config).unwrap();
    let mut buffers = ReceiveBuffers::new();
    for (client, ip) in [
        ("127.0.0.1:0", IpAddr::V4(Ipv4Addr::LOCALHOST)),
        ("[::1]:0", IpAddr::V6(Ipv6Addr::LOCALHOST)),
    ] {
        let client = bind(client, &config);
        let sender = Sender::new(Arc::clone(&client), &config).unwrap();
        sender.send(&outgoing(SocketAddr::new(ip, port), 700, &[5; 1400]));
        let seen = receive(&server, &mut buffers, 1400);
        assert_eq!(seen[0].remote, client.local_addr());
        let local = SocketAddr::new(ip, port);
        assert_eq!((seen[0].local, seen[0].ecn), (Some(local), EcnCodepoint::Ect0));
        let reply = Outgoing { local: Some(ip), ..outgoing(client.local_addr(), 50, &[6; 50]) };
        assert_eq!(server_sender.send(&reply), SendOutcome::Done);
        let seen = receive(&client, &mut ReceiveBuffers::new(), 50);
        assert_eq!(seen[0].remote, SocketAddr::new(ip, port));
        assert_eq!(seen[0].ecn, EcnCodepoint::Ect0);
    }
    assert!(server.reaches("127.0.0.1:1".parse().unwrap()));
    let v4_only = bind("127.0.0.1:0", &config);
    assert!(!v4_only.reaches("[::1]:1".parse().unwrap()));
}

#[test]
fn a_full_receive_buffer_loses_datagrams_and_nothing_else() {
    let config = UdpConfig { receive_buffer: 4096, ..UdpConfig::default() };
    let (a, b) = (bind("127.0.0.1:0", &config), bind("127.0.0.1:0", &config));
    let sender = Sender::new(a, &config).unwrap();
    for _ in 0..100 {
        assert_eq!(sender.send(&outgoing(b.local_addr(), 1200, &[1; 1200])), SendOutcome::Done);
    }
    let mut buffers = ReceiveBuffers::new();
    let mut kept = 0;
    while let Ok(mut batch) = b.receive(&mut buffers) {
        kept += batch.trains().count();
    }
    assert!((1..100).contains(&kept), "{kept} of 100 kept");
    sender.send(&outgoing(b.local_addr(), 1200, &[2; 1200]));
    assert_eq!(receive(&b, &mut buffers, 1200)[0].bytes, [2; 1200]);
}

#[test]
fn nothing_there_is_would_block() {
    let socket = bind("127.0.0.1:0", &UdpConfig::default());
    let error = socket.receive(&mut ReceiveBuffers::new()).err().unwrap();
    assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
}
