//! Tunnels without devices, over loopback: two of ours, and one whose other end is written in Python.
#![cfg(target_os = "linux")]

use std::io;
use std::process::Command;
use std::time::Duration;

use quicket_gue::{Sum, protocol, pseudo_header};
use quicket_tunnel::{Carrier, Line, SendError, Setup, parse_line};

const PATIENCE: Option<Duration> = Some(Duration::from_secs(30));
const NOW: Option<Duration> = Some(Duration::ZERO);
const PORT: u16 = 5555;

/// An address of loopback that no other test and no other process of these tests has.
fn address(test: u8, end: u8) -> String {
    let [.., high, low] = std::process::id().to_be_bytes();
    format!("127.{}.{high}.{low}", 100 + 2 * test + end)
}

fn open(lines: &[String]) -> io::Result<Carrier> {
    let tunnels = lines.iter().map(|line| match parse_line(&format!("add {line}")).unwrap() {
        Some(Line::Tunnel(tunnel)) => *tunnel,
        other => panic!("{other:?}"),
    });
    Carrier::open(Setup { tunnels: tunnels.collect(), ports: Vec::new() })
}

/// Both ends of tunnels with these words.
fn pair(test: u8, words: &[&str]) -> io::Result<[Carrier; 2]> {
    let end = |local, remote| {
        let (local, remote) = (address(test, local), address(test, remote));
        let line = |(index, words): (usize, &&str)| {
            let (kind, rest) = words.split_once(' ').unwrap_or((words, ""));
            format!("t{index} type {kind} local {local} remote {remote} {rest}")
        };
        open(&words.iter().enumerate().map(line).collect::<Vec<_>>())
    };
    Ok([end(0, 1)?, end(1, 0)?])
}

/// A packet of UDP from 10.9.0.`from`, or fd09::`from`.
fn packet(v4: bool, from: u8, payload: &[u8]) -> Vec<u8> {
    let to = 3 - from;
    let mut datagram = vec![0, 9, 0, 7];
    datagram.extend((8 + payload.len() as u16).to_be_bytes());
    datagram.extend([0, 0]);
    datagram.extend(payload);
    let (source, destination) = match v4 {
        true => ([10, 9, 0, from].into(), [10, 9, 0, to].into()),
        false => {
            let address = |last: u8| [0xfd09, 0, 0, 0, 0, 0, 0, u16::from(last)].into();
            (address(from), address(to))
        }
    };
    let sum = pseudo_header(source, destination, protocol::UDP, datagram.len() as u32);
    let sum = match sum.bytes(&datagram).checksum() {
        0 => 0xffff,
        sum => sum,
    };
    datagram[6..8].copy_from_slice(&sum.to_be_bytes());
    let mut packet = match v4 {
        true => {
            let len = (20 + datagram.len() as u16).to_be_bytes();
            vec![0x45, 0, len[0], len[1], 0, 7, 0x40, 0, 64, protocol::UDP, 0, 0]
        }
        false => {
            let len = (datagram.len() as u16).to_be_bytes();
            vec![0x60, 0, 0, 0, len[0], len[1], protocol::UDP, 64]
        }
    };
    for address in [source, destination] {
        match address {
            std::net::IpAddr::V4(address) => packet.extend(address.octets()),
            std::net::IpAddr::V6(address) => packet.extend(address.octets()),
        }
    }
    if v4 {
        let sum = Sum::new().bytes(&packet).checksum();
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
    }
    packet.extend(datagram);
    packet
}

fn receive(carrier: &Carrier) -> (usize, Vec<u8>) {
    let mut buffer = vec![0; 65_535];
    let received = carrier.recv(&mut buffer, PATIENCE).unwrap().expect("a packet within 30 s");
    buffer.truncate(received.len);
    (received.tunnel, buffer)
}

fn count(carrier: &Carrier, tunnel: Option<usize>, name: &str) -> u64 {
    let counters =
        tunnel.map_or(carrier.strays(), |tunnel| carrier.counters(tunnel).expect("a tunnel"));
    counters.values().into_iter().find(|(known, _)| *known == name).expect(name).1
}

/// Packets of all sizes, both ways, by both versions of IP that the tunnel carries.
fn exchange(ends: &[Carrier; 2], tunnel: usize, versions: &[bool]) {
    for &v4 in versions {
        for (sender, receiver, from) in [(0, 1, 1), (1, 0, 2)] {
            let mtu = usize::from(ends[sender].mtu(tunnel).unwrap());
            let headers = if v4 { 28 } else { 48 };
            for len in [0, 1, 1000, mtu - headers] {
                let sent = packet(v4, from, &vec![len as u8; len]);
                ends[sender].send(tunnel, &sent).unwrap();
                assert_eq!(receive(&ends[receiver]), (tunnel, sent), "{len} bytes");
            }
            let long = packet(v4, from, &vec![0; mtu - headers + 1]);
            let refused = ends[sender].send(tunnel, &long);
            assert_eq!(refused, Err(SendError::TooBig { mtu: mtu as u16 }));
            assert_eq!(
                count(&ends[sender], Some(tunnel), "tx_too_big"),
                versions_until(versions, v4)
            );
        }
    }
}

/// How many versions were tried up to this one.
fn versions_until(versions: &[bool], v4: bool) -> u64 {
    versions.iter().position(|one| *one == v4).expect("one of them") as u64 + 1
}

#[test]
fn packets_go_both_ways_through_ipip_gue_and_gre() {
    let direct = format!("ipip encap fou encap-dport {PORT}");
    let all = [
        (&direct[..], &[true][..]),
        ("sit encap gue", &[true, false]),
        ("sit encap gue encap-version 1", &[true, false]),
        ("sit encap gue encap-remcsum", &[true, false]),
        ("gre encap gue key 7", &[true, false]),
        ("gre encap fou key 7 seq csum", &[true, false]),
    ];
    for (words, versions) in all {
        let ends = pair(0, &[words]).unwrap_or_else(|error| panic!("{words}: {error}"));
        exchange(&ends, 0, versions);
    }
}

#[test]
fn one_carrier_has_several_tunnels_and_tells_them_apart() {
    let ends = pair(1, &["gre encap gue key 1", "gre encap gue key 2", "sit encap gue"]).unwrap();
    for tunnel in [2, 0, 1] {
        exchange(&ends, tunnel, &[true, false]);
    }
    assert_eq!(ends[0].send(3, &packet(true, 1, b"x")), Err(SendError::NoTunnel));
    assert_eq!((ends[0].mtu(3), ends[0].setup().ports.len()), (None, 1));
}

#[test]
fn without_udp_it_takes_a_right_and_works_as_well() {
    match pair(2, &["gre key 7", "sit"]) {
        Ok(ends) => (0..2).for_each(|tunnel| exchange(&ends, tunnel, &[true, false])),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            quicket_testing::leave_out("raw sockets take CAP_NET_RAW");
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn what_does_not_belong_into_a_tunnel_is_refused_and_counted() {
    let words = format!("ipip encap fou encap-dport {PORT} allow 10.9.0.0/31");
    let ends = pair(3, &[&words]).unwrap();
    let good = packet(true, 1, b"x");
    assert_eq!(ends[0].send(0, &packet(false, 1, b"x")), Err(SendError::Family));
    for bad in [&good[..good.len() - 1], &[], &[0x45; 20]] {
        assert_eq!(ends[0].send(0, bad), Err(SendError::Malformed));
    }
    assert_eq!(count(&ends[0], Some(0), "tx_malformed"), 3);
    // Sources that may not come this way, and strangers.
    ends[1].send(0, &packet(true, 2, b"x")).unwrap();
    let stranger = std::net::UdpSocket::bind((address(3, 1), 0)).unwrap();
    stranger.send_to(&[0; 99], (address(3, 0), PORT)).unwrap();
    let other = std::net::UdpSocket::bind((address(20, 0), 0)).unwrap();
    other.send_to(&good, (address(3, 0), PORT)).unwrap();
    ends[1].send(0, &good).unwrap();
    assert_eq!(receive(&ends[0]), (0, good));
    assert_eq!(count(&ends[0], Some(0), "rx_source"), 1);
    assert_eq!(count(&ends[0], Some(0), "rx_malformed"), 1);
    assert_eq!(count(&ends[0], None, "rx_peer"), 1);
    assert_eq!(count(&ends[0], Some(0), "rx_packets"), 1);
    let error = open(&[]).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
}

#[test]
fn who_waits_is_told_when_the_time_is_over_and_loses_nothing_to_a_small_buffer() {
    let [near, far] = pair(4, &["sit encap gue discovery"]).unwrap();
    let mut buffer = vec![0; 2000];
    assert_eq!(near.recv(&mut buffer, NOW).unwrap(), None);
    assert_eq!(near.recv(&mut buffer, Some(Duration::from_millis(20))).unwrap(), None);
    let sent = packet(true, 2, &[7; 1000]);
    far.send(0, &sent).unwrap();
    let error = near.recv(&mut buffer[..1000], PATIENCE).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    assert_eq!(receive(&near), (0, sent));
    // Another thread sends while this one waits.
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| receive(&near));
        far.send(0, &packet(true, 2, b"later")).unwrap();
        assert_eq!(waits.join().unwrap(), (0, packet(true, 2, b"later")));
    });
    // Whoever waits answers probes.
    let end = std::time::Instant::now() + Duration::from_secs(30);
    while count(&near, Some(0), "rx_probes") == 0 || count(&far, Some(0), "rx_probes") == 0 {
        assert!(std::time::Instant::now() < end, "nobody answers probes");
        for end in [&near, &far] {
            let waited = end.recv(&mut buffer, Some(Duration::from_millis(10)));
            assert_eq!(waited.unwrap(), None);
        }
    }
}

#[test]
fn the_other_ends_of_one_tunnel_are_learned() {
    let (hub, spoke) = (address(5, 0), address(5, 1));
    let learn = format!("t type sit encap gue local {hub} external learn {spoke}/32");
    let hub_end = open(&[learn]).unwrap();
    let spoke_end = open(&[format!("t type sit encap gue local {spoke} remote {hub}")]).unwrap();
    let (out, back) = (packet(true, 1, b"out"), packet(true, 2, b"back"));
    assert_eq!(hub_end.send(0, &out), Err(SendError::Unreachable));
    spoke_end.send(0, &back).unwrap();
    assert_eq!(receive(&hub_end), (0, back));
    let learned = hub_end.learned(0);
    assert_eq!(learned.len(), 1);
    assert_eq!((learned[0].0, learned[0].1), ([10, 9, 0, 2].into(), spoke.parse().unwrap()));
    hub_end.send(0, &out).unwrap();
    assert_eq!(receive(&spoke_end), (0, out));
}

#[test]
fn datagrams_of_a_program_in_python_are_understood_and_it_understands_ours() {
    let (here, there) = (address(6, 0), address(6, 1));
    let ends = format!("local {here} remote {there}");
    let carrier = open(&[
        format!("t0 type ipip {ends} encap fou encap-dport {PORT}"),
        format!("t1 type sit {ends} encap gue mode ip6ip"),
        format!("t2 type gre {ends} encap gue key 7 csum"),
    ])
    .unwrap();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/peer.py");
    let mut peer = Command::new("python3").args([script, &here, &there]).spawn().unwrap();
    // Direct, in GUE, with an open checksum inside, behind GRE.
    let expected = [(0, true), (1, false), (1, false), (2, true), (2, false)];
    let mut received = expected.map(|_| receive(&carrier));
    // Two ports have no order among each other.
    received.sort_by_key(|(tunnel, _)| *tunnel);
    assert_eq!(received, expected.map(|(tunnel, v4)| (tunnel, packet(v4, 2, b"from python"))));
    assert_eq!((count(&carrier, None, "rx_checksum"), count(&carrier, None, "rx_peer")), (1, 1));
    for (tunnel, v4) in [(0, true), (1, false), (2, true), (2, false)] {
        carrier.send(tunnel, &packet(v4, 1, b"to python")).unwrap();
    }
    assert!(peer.wait().unwrap().success(), "it found other bytes than it expected");
}
