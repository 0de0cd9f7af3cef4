//! Segment by segment: a port without a stack says what it likes to a stack, and looks at what that answers.

mod common;

use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use common::{PATIENCE, Switch};
use quicket_packets::Layout;
use quicket_packets::client::Port;
use quicket_tcp::{MAX_HALF_OPEN, Stack, TcpListener, TcpStream, Watch};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{
    IpAddress, IpProtocol, IpRepr, Ipv4Packet, Ipv6Packet, TcpControl, TcpPacket, TcpRepr,
    TcpSeqNumber,
};

const ETHERNET: usize = 14;
const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// What a segment says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Said {
    to: u16,
    control: TcpControl,
    sequence: u32,
    acknowledgment: Option<u32>,
    len: usize,
}

/// A port that owns some addresses of TCP, and has no stack.
struct Peer {
    port: Port,
    addresses: Vec<SocketAddr>,
    /// What it says that it has room for.
    window: u16,
    /// The longest segment that it says it takes (RFC 9293, Section 3.7.1), if it says so.
    mss: Option<u16>,
}

impl Peer {
    fn open(switch: &Switch, addresses: usize) -> Self {
        Self::open_at(switch, HERE, addresses)
    }

    /// With several ports of one address.
    fn open_at(switch: &Switch, ip: IpAddr, addresses: usize) -> Self {
        let layout = Layout::new(1024, 1024, 2048).unwrap();
        let mut port = Port::open(&switch.path, layout).unwrap();
        let addresses = (0..addresses)
            .map(|_| {
                let family = if ip.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
                let kind = SocketType::STREAM;
                let socket =
                    rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None).unwrap();
                rustix::net::bind(&socket, &SocketAddr::from((ip, 0))).unwrap();
                let tuple = port.register(&socket).unwrap();
                (tuple.address, tuple.port).into()
            })
            .collect();
        Self { port, addresses, window: 60_000, mss: None }
    }

    /// Sends a segment from one of its addresses.
    fn send(
        &mut self,
        from: usize,
        to: SocketAddr,
        control: TcpControl,
        sequence: u32,
        acknowledgment: Option<u32>,
        payload: &[u8],
    ) {
        let number = |number: u32| TcpSeqNumber(number as i32);
        let tcp = TcpRepr {
            src_port: self.addresses[from].port(),
            dst_port: to.port(),
            control,
            seq_number: number(sequence),
            ack_number: acknowledgment.map(number),
            window_len: self.window,
            window_scale: None,
            max_seg_size: self.mss.filter(|_| control == TcpControl::Syn),
            sack_permitted: false,
            sack_ranges: [None; 3],
            timestamp: None,
            payload,
        };
        let ip = |address: SocketAddr| address.ip().into();
        let (source, destination) = (ip(self.addresses[from]), ip(to));
        let len = tcp.buffer_len();
        let head = IpRepr::new(source, destination, IpProtocol::Tcp, len, 64);
        let mut packet = vec![0; head.buffer_len()];
        let checksums = ChecksumCapabilities::default();
        head.emit(&mut packet[..], &checksums);
        let mut segment = TcpPacket::new_unchecked(&mut packet[head.header_len()..]);
        tcp.emit(&mut segment, &source, &destination, &checksums);
        self.send_packet(&packet);
    }

    fn send_packet(&mut self, packet: &[u8]) {
        let mut frame = Some(packet);
        assert!(self.port.wait_for_room(Some(PATIENCE)).unwrap());
        let sent = self.port.send(|slot| {
            let packet = frame.take()?;
            let len = (ETHERNET + packet.len()).max(60);
            slot[..len].fill(0);
            let is_v4 = packet[0] >> 4 == 4;
            slot[12..ETHERNET].copy_from_slice(if is_v4 { &[8, 0] } else { &[0x86, 0xdd] });
            slot[ETHERNET..ETHERNET + packet.len()].copy_from_slice(packet);
            Some(len)
        });
        assert_eq!(sent.unwrap(), 1);
    }

    /// All that has come by now.
    fn take(&mut self) -> Vec<Said> {
        let mut all = Vec::new();
        self.port.receive(u32::MAX, |frame| all.push(read(frame))).unwrap();
        all
    }

    /// The next segment.
    fn next(&mut self) -> Said {
        assert!(self.port.wait(Some(PATIENCE)).unwrap(), "no segment has come");
        let mut next = None;
        self.port.receive(1, |frame| next = Some(read(frame))).unwrap();
        next.unwrap()
    }

    /// Shakes hands. Returns the other side's next sequence number.
    fn shake(&mut self, from: usize, to: SocketAddr, sequence: u32) -> u32 {
        self.send(from, to, TcpControl::Syn, sequence, None, b"");
        let said = self.next();
        assert_eq!(
            (said.control, said.acknowledgment),
            (TcpControl::Syn, Some(sequence.wrapping_add(1)))
        );
        let theirs = said.sequence.wrapping_add(1);
        self.send(from, to, TcpControl::None, sequence.wrapping_add(1), Some(theirs), b"");
        theirs
    }
}

fn read(frame: &[u8]) -> Said {
    let packet = &frame[ETHERNET..];
    let checksums = ChecksumCapabilities::default();
    let (source, destination, payload): (IpAddress, IpAddress, _) = match packet[0] >> 4 {
        4 => {
            let packet = Ipv4Packet::new_checked(packet).unwrap();
            assert!(packet.verify_checksum());
            (packet.src_addr().into(), packet.dst_addr().into(), packet.payload())
        }
        _ => {
            let packet = Ipv6Packet::new_checked(packet).unwrap();
            (packet.src_addr().into(), packet.dst_addr().into(), packet.payload())
        }
    };
    let segment = TcpPacket::new_checked(payload).unwrap();
    let tcp = TcpRepr::parse(&segment, &source, &destination, &checksums).unwrap();
    Said {
        to: tcp.dst_port,
        control: tcp.control,
        sequence: tcp.seq_number.0 as u32,
        acknowledgment: tcp.ack_number.map(|number| number.0 as u32),
        len: tcp.payload.len(),
    }
}

fn listen(stack: &Stack) -> (TcpListener, SocketAddr) {
    listen_at(stack, HERE)
}

fn listen_at(stack: &Stack, ip: IpAddr) -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind(stack, (ip, 0).into()).unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// RFC 9293, Section 3.10.7.1.
#[test]
fn segments_to_nobody_are_answered_with_a_reset() {
    let switch = Switch::start();
    let (stack, mut peer) = (switch.stack(), Peer::open(&switch, 1));
    let (_listener, address) = listen(&stack);
    let reset = |sequence, acknowledgment, to: &Peer| Said {
        to: to.addresses[0].port(),
        control: TcpControl::Rst,
        sequence,
        acknowledgment,
        len: 0,
    };
    peer.send(0, address, TcpControl::None, 100, Some(7), b"data");
    assert_eq!(peer.next(), reset(7, None, &peer));
    peer.send(0, address, TcpControl::Syn, 100, Some(9), b"");
    assert_eq!(peer.next(), reset(9, None, &peer));
    peer.send(0, address, TcpControl::Fin, 100, None, b"12345");
    assert_eq!(peer.next(), reset(0, Some(106), &peer));
    // A reset is not answered, or there would be no end.
    peer.send(0, address, TcpControl::Rst, 100, Some(9), b"");
    peer.send(0, address, TcpControl::None, 100, Some(8), b"");
    assert_eq!(peer.next(), reset(8, None, &peer));
}

/// RFC 6528, Section 3.
#[test]
fn sequence_numbers_begin_with_a_clock_and_a_secret() {
    let switch = Switch::start();
    let (stack, mut peer) = (switch.stack(), Peer::open(&switch, 3));
    let (_listener, address) = listen(&stack);
    let mut begin = |from, at_least: Duration| {
        let asked = Instant::now();
        peer.send(from, address, TcpControl::Syn, 1000, None, b"");
        let said = peer.next();
        let heard = Instant::now();
        // It is forgotten again.
        peer.send(from, address, TcpControl::Rst, 1001, Some(said.sequence.wrapping_add(1)), b"");
        std::thread::sleep(at_least);
        (asked, said.sequence, heard)
    };
    let pause = Duration::from_millis(20);
    let others = [begin(1, pause), begin(2, pause)];
    let first = begin(0, pause);
    let again = begin(0, pause);
    let ticks = |time: Duration| (time.as_nanos() >> 6) as u32;
    let grown = again.1.wrapping_sub(first.1);
    let (least, most) = (ticks(again.0 - first.2), ticks(again.2 - first.0));
    assert!((least - 32..=most + 32).contains(&grown), "{grown} of {least} to {most}");
    // Those of other ends are elsewhere, and not where the clock alone would have them.
    let is_far = |other: u32| other.wrapping_sub(first.1).cast_signed().unsigned_abs() > 4 * most;
    assert!(others.iter().any(|(_, other, _)| is_far(*other)), "{others:?} tell of {first:?}");
}

/// RFC 6191, Section 2; RFC 1337, Section 3.
#[test]
fn time_wait_is_kept_and_a_later_syn_opens_the_connection_again() {
    let switch = Switch::start();
    let (stack, mut peer) = (switch.stack(), Peer::open(&switch, 1));
    let (listener, address) = listen(&stack);
    let theirs = peer.shake(0, address, 1000);
    let (stream, _) = listener.accept().unwrap();
    drop(stream);
    // Ours ends first, and is the one that waits.
    let end = peer.next();
    assert_eq!((end.control, end.sequence), (TcpControl::Fin, theirs));
    peer.send(0, address, TcpControl::Fin, 1001, Some(theirs + 1), b"");
    let last = peer.next();
    assert_eq!((last.control, last.acknowledgment), (TcpControl::None, Some(1002)));
    assert!(stack.wait_until_over(PATIENCE));
    // The acknowledgment was lost: the same again.
    peer.send(0, address, TcpControl::Fin, 1001, Some(theirs + 1), b"");
    assert_eq!(peer.next(), last);
    // A reset changes nothing, nor does an earlier SYN.
    peer.send(0, address, TcpControl::Rst, 1002, Some(theirs + 1), b"");
    peer.send(0, address, TcpControl::Syn, 900, None, b"");
    assert_eq!(peer.next(), last);
    // A later one opens it, and the other side's numbers are later, too.
    let again = peer.shake(0, address, 5000);
    assert!(again.wrapping_sub(theirs) > 65_536 && again.wrapping_sub(theirs) < 1 << 31);
    let (mut stream, from) = listener.accept().unwrap();
    assert_eq!(from, peer.addresses[0]);
    peer.send(0, address, TcpControl::Psh, 5001, Some(again), b"hello");
    let mut hello = [0; 5];
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.read_exact(&mut hello).unwrap();
    assert_eq!(&hello, b"hello");
}

/// RFC 5961, Section 3.2.
#[test]
fn only_a_reset_with_the_next_sequence_number_ends_a_connection() {
    let switch = Switch::start();
    let (stack, mut peer) = (switch.stack(), Peer::open(&switch, 1));
    let (listener, address) = listen(&stack);
    let theirs = peer.shake(0, address, 1000);
    let (mut stream, _) = listener.accept().unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    peer.send(0, address, TcpControl::Psh, 1001, Some(theirs), b"one");
    stream.read_exact(&mut [0; 3]).unwrap();
    let said = peer.next();
    assert_eq!((said.control, said.acknowledgment), (TcpControl::None, Some(1004)));
    // Outside of the window it is not answered.
    peer.send(0, address, TcpControl::Rst, 1003, Some(theirs), b"");
    peer.send(0, address, TcpControl::Rst, 2000, Some(theirs), b"");
    let said = peer.next();
    assert_eq!((said.control, said.sequence), (TcpControl::None, theirs));
    assert_eq!(said.acknowledgment, Some(1004));
    peer.send(0, address, TcpControl::Psh, 1004, Some(theirs), b"two");
    stream.read_exact(&mut [0; 3]).unwrap();
    peer.send(0, address, TcpControl::Rst, 1007, Some(theirs), b"");
    let error = stream.read(&mut [0]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

/// RFC 5961, Section 4; RFC 9293, Section 3.10.7.4.
#[test]
fn who_has_forgotten_a_connection_connects_again_from_the_same_port() {
    let switch = Switch::start();
    let (stack, mut peer) = (switch.stack(), Peer::open(&switch, 1));
    let (listener, address) = listen(&stack);
    let theirs = peer.shake(0, address, 1000);
    let (mut stream, _) = listener.accept().unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    peer.send(0, address, TcpControl::Syn, 900_000, None, b"");
    let said = peer.next();
    assert_eq!((said.control, said.sequence), (TcpControl::None, theirs));
    assert_eq!(said.acknowledgment, Some(1001));
    // What it is answered with tells that nobody knows of it.
    peer.send(0, address, TcpControl::Rst, 1001, None, b"");
    let error = stream.read(&mut [0]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    peer.shake(0, address, 900_000);
    listener.accept().unwrap();
}

/// As a socket of the system.
#[test]
fn one_that_is_not_connected_yet_has_nothing_to_read_and_takes_nothing() {
    let switch = Switch::start();
    let (stack, mut peer) = (switch.stack(), Peer::open(&switch, 1));
    let mut stream = TcpStream::begin(&stack, peer.addresses[0]).unwrap();
    let said = peer.next();
    assert_eq!((said.control, said.acknowledgment), (TcpControl::Syn, None));
    stream.set_nonblocking(true).unwrap();
    assert_eq!(stream.read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
    assert_eq!(stream.write(b"x").unwrap_err().kind(), ErrorKind::WouldBlock);
    let watch = Watch::new().unwrap();
    stream.watch(&watch, 7).unwrap();
    let mut told = Vec::new();
    watch.take(&mut told);
    assert_eq!(told, [7], "at the beginning");
    // It is looked at, and nothing can be done.
    stream.set_nodelay(true).unwrap();
    watch.take(&mut told);
    assert_eq!(told, [7]);
    let (from, next) = (stream.local_addr().unwrap(), said.sequence.wrapping_add(1));
    peer.send(0, from, TcpControl::Syn, 5000, Some(next), b"");
    assert_eq!(peer.next().acknowledgment, Some(5001));
    assert_eq!(stream.write(b"x").unwrap(), 1);
    assert_eq!(peer.next().len, 1);
    stream.set_nonblocking(false).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    peer.send(0, from, TcpControl::Psh, 5001, Some(next.wrapping_add(1)), b"y");
    assert_eq!(stream.read(&mut [0; 2]).unwrap(), 1);
}

/// RFC 1122, Section 4.2.3.4.
#[test]
fn what_is_held_back_leaves_when_nothing_is_to_be() {
    let switch = Switch::start();
    let (stack, mut peer) = (switch.stack(), Peer::open(&switch, 1));
    let (listener, address) = listen(&stack);
    let theirs = peer.shake(0, address, 1000);
    let (mut stream, _) = listener.accept().unwrap();
    stream.write_all(b"one").unwrap();
    stream.write_all(b"second").unwrap();
    let said = peer.next();
    assert_eq!((said.sequence, said.len), (theirs, 3));
    stream.set_nodelay(true).unwrap();
    let said = peer.next();
    assert_eq!((said.sequence, said.len), (theirs.wrapping_add(3), 6));
}

/// RFC 9293, Section 3.10.7.4: what was not sent is not acknowledged, and nobody else suffers.
#[test]
fn one_who_acknowledges_what_was_not_sent_stops_nobody() {
    let switch = Switch::start();
    let (stack, mut peer) = (switch.stack(), Peer::open(&switch, 1));
    let (listener, address) = listen(&stack);
    peer.window = 0;
    let theirs = peer.shake(0, address, 1000);
    let (mut stream, _) = listener.accept().unwrap();
    stream.write_all(&[7; 10_000]).unwrap();
    drop(stream);
    peer.send(0, address, TcpControl::None, 1001, Some(theirs + 10_001), b"");
    let said = peer.next();
    assert_eq!((said.control, said.acknowledgment), (TcpControl::None, Some(1001)));
    assert!(said.sequence.wrapping_sub(theirs) <= 1);
    // Until its timers have come.
    let other = switch.stack();
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(2500) {
        let mut client = TcpStream::connect_timeout(&other, address, PATIENCE).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        server.write_all(b"served").unwrap();
        client.read_exact(&mut [0; 6]).unwrap();
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Who drops all of a stack does not take its last segments with it.
#[test]
fn the_last_acknowledgment_of_a_stack_that_ends_is_sent() {
    let switch = Switch::start();
    let (stack, mut peer) = (switch.stack(), Peer::open(&switch, 1));
    let (listener, address) = listen(&stack);
    let theirs = peer.shake(0, address, 1000);
    let (stream, _) = listener.accept().unwrap();
    drop((stream, listener, stack));
    let end = peer.next();
    assert_eq!((end.control, end.sequence), (TcpControl::Fin, theirs));
    peer.send(0, address, TcpControl::Fin, 1001, Some(theirs + 1), b"");
    let last = peer.next();
    assert_eq!((last.control, last.acknowledgment), (TcpControl::None, Some(1002)));
}

#[test]
fn a_flood_of_syns_has_a_bound_and_keeps_nobody_out() {
    const FLOOD: usize = MAX_HALF_OPEN + 40;
    let switch = Switch::start();
    let (stack, mut peer) = (switch.stack(), Peer::open(&switch, FLOOD));
    let (listener, address) = listen(&stack);
    let mut numbers = HashMap::new();
    (0..FLOOD).for_each(|from| peer.send(from, address, TcpControl::Syn, 1000, None, b""));
    // Some come twice, if that takes long.
    while numbers.len() < FLOOD {
        let said = peer.next();
        assert_eq!(said.control, TcpControl::Syn);
        numbers.insert(said.to, said.sequence);
    }
    // A client that answers gets through.
    let other = switch.stack();
    let mut client = TcpStream::connect_timeout(&other, address, PATIENCE).unwrap();
    let (mut server, _) = listener.accept().unwrap();
    client.write_all(b"x").unwrap();
    server.read_exact(&mut [0]).unwrap();
    // The first ones are forgotten, the last ones are not.
    let answer = |peer: &mut Peer, from: usize| {
        let number = numbers[&peer.addresses[from].port()].wrapping_add(1);
        peer.take();
        peer.send(from, address, TcpControl::Psh, 1001, Some(number), b"x");
        loop {
            let said = peer.next();
            if said.to == peer.addresses[from].port() && said.control != TcpControl::Syn {
                return said.control;
            }
        }
    };
    assert_eq!(answer(&mut peer, 0), TcpControl::Rst);
    assert_eq!(answer(&mut peer, FLOOD - 1), TcpControl::None);
    let (mut last, from) = listener.accept().unwrap();
    assert_eq!(from, peer.addresses[FLOOD - 1]);
    last.read_exact(&mut [0]).unwrap();
}

/// Whatever comes, nothing panics, and others are served.
#[test]
fn segments_of_all_kinds_hurt_nobody() {
    let switch = Switch::start();
    let (stack, mut peer) = (switch.stack(), Peer::open(&switch, 4));
    let (listener, address) = listen(&stack);
    let mut random = 0x853c_49e6_748f_ea9b_u64;
    let mut draw = move |below: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % below
    };
    listener.set_nonblocking(true).unwrap();
    let mut streams = Vec::new();
    // What was sent last by the stack, so that many segments are nearly right.
    let mut last = [(0_u32, 0_u32); 4];
    for round in 0..60_000_u32 {
        let from = draw(4) as usize;
        let near = |of: u32, draw: u64| of.wrapping_add(draw as u32).wrapping_sub(2);
        let (sequence, acknowledgment) = match draw(8) {
            0 => (draw(1 << 32) as u32, draw(1 << 32) as u32),
            _ => (near(last[from].1, draw(5)), near(last[from].0, draw(5))),
        };
        let mut segment = vec![0; 20 + draw(10) as usize * 4 + draw(30) as usize];
        segment.fill_with(|| draw(256) as u8);
        segment[..2].copy_from_slice(&peer.addresses[from].port().to_be_bytes());
        segment[2..4].copy_from_slice(&address.port().to_be_bytes());
        segment[4..8].copy_from_slice(&sequence.to_be_bytes());
        segment[8..12].copy_from_slice(&acknowledgment.to_be_bytes());
        let words = 5 + draw(((segment.len() - 20) / 4 + 1) as u64) as u8;
        segment[12] = words << 4;
        segment[13] = [2, 16, 24, 17, 20, 4, 18, 1, draw(256) as u8][draw(9) as usize];
        let (source, destination) = (peer.addresses[from].ip().into(), address.ip().into());
        let mut checked = TcpPacket::new_unchecked(&mut segment[..]);
        checked.fill_checksum(&source, &destination);
        let head = IpRepr::new(source, destination, IpProtocol::Tcp, segment.len(), 64);
        let mut packet = vec![0; head.buffer_len()];
        head.emit(&mut packet[..], &ChecksumCapabilities::default());
        packet[20..].copy_from_slice(&segment);
        peer.send_packet(&packet);
        for said in peer.take() {
            if let Some(from) = peer.addresses.iter().position(|one| one.port() == said.to) {
                let len = said.len as u32 + u32::from(said.control != TcpControl::None);
                last[from] =
                    (said.sequence.wrapping_add(len), said.acknowledgment.unwrap_or_default());
            }
        }
        if round % 16 == 0
            && let Ok((mut stream, _)) = listener.accept()
        {
            let _ = stream.write(&[7; 100]);
            streams.push(stream);
        }
        if round % 1000 == 0 {
            streams.clear();
        }
    }
    listener.set_nonblocking(false).unwrap();
    let other = switch.stack();
    let mut client = TcpStream::connect_timeout(&other, address, PATIENCE).unwrap();
    client.write_all(b"still here").unwrap();
    let ours = client.local_addr().unwrap();
    let begun = Instant::now();
    loop {
        assert!(begun.elapsed() < PATIENCE);
        let (mut server, from) = listener.accept().unwrap();
        if from == ours {
            let mut said = [0; 10];
            server.set_read_timeout(Some(PATIENCE)).unwrap();
            server.read_exact(&mut said).unwrap();
            assert_eq!(&said, b"still here");
            return;
        }
    }
}

/// What a peer says of its longest segment, and how long those to it are then.
struct Segments {
    ip: IpAddr,
    mss: Option<u16>,
    len: usize,
}

/// One that says nothing (RFC 9293, Section 3.7.1), those of Ethernet with either version of IP, and those behind PPPoE (RFC
/// 2516, Section 7).
const SEGMENTS: [Segments; 5] = [
    Segments { ip: HERE, mss: None, len: 536 },
    Segments { ip: HERE, mss: Some(1460), len: 1460 },
    Segments { ip: HERE, mss: Some(1452), len: 1452 },
    Segments { ip: IpAddr::V6(Ipv6Addr::LOCALHOST), mss: Some(1440), len: 1440 },
    Segments { ip: IpAddr::V6(Ipv6Addr::LOCALHOST), mss: Some(1432), len: 1432 },
];

/// A stack that writes more than its window, and the first segments of that.
fn first_flight(
    Segments { ip, mss, len }: &Segments,
    then: impl FnOnce(&mut Peer, SocketAddr, u32, &mut dyn FnMut(&mut Peer, usize)),
) {
    let switch = Switch::start();
    let (stack, mut peer) = (switch.stack(), Peer::open_at(&switch, *ip, 1));
    peer.mss = *mss;
    let (listener, address) = listen_at(&stack, *ip);
    let theirs = peer.shake(0, address, 1000);
    let (mut stream, _) = listener.accept().unwrap();
    stream.write_all(&[7; 40_000]).unwrap();
    let mut comes = |peer: &mut Peer, number: usize| {
        let said = peer.next();
        let at = said.sequence.wrapping_sub(theirs) as usize;
        assert_eq!((said.len, at), (*len, number * len), "{ip}, {mss:?}");
    };
    // RFC 6928, Section 2.
    (0..10).for_each(|number| comes(&mut peer, number));
    then(&mut peer, address, theirs + 10 * *len as u32, &mut comes);
}

#[test]
fn the_first_flight_is_of_ten_segments_and_more_follows_what_is_acknowledged() {
    for segments in &SEGMENTS {
        first_flight(segments, |peer, address, sent, comes| {
            // Outside of the window: it is answered at once (RFC 9293, Section 3.10.7.4), and nothing comes before that.
            let nothing_new = sent.wrapping_sub(10 * segments.len as u32);
            peer.send(0, address, TcpControl::None, 1001 + (1 << 30), Some(nothing_new), b"x");
            assert_eq!(peer.next().len, 0, "more than ten have come");
            peer.send(0, address, TcpControl::None, 1001, Some(sent), b"");
            // What congestion control begins with, 2,048 octets, and what was acknowledged, one segment at most.
            let window = 2048 + segments.len;
            (10..10 + window / segments.len).for_each(|number| comes(peer, number));
        });
    }
}

/// RFC 5681, Section 3.1: the window is a segment then. smoltcp's congestion control, which begins after the handshake, takes segments
/// to have 1,024 octets at most.
#[test]
fn of_a_first_flight_that_nobody_acknowledges_the_beginning_is_sent_again() {
    for segments in &SEGMENTS {
        first_flight(segments, |peer, _, sent, _| {
            let said = peer.next();
            let at = sent.wrapping_sub(said.sequence) as usize;
            assert_eq!((said.len, at), (segments.len.min(1024), 10 * segments.len));
        });
    }
}
