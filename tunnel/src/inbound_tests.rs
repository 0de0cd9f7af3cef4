//! What becomes of received datagrams: tests.

use super::*;
use crate::testing::{ip, tcp, tunnel, udp};

struct World {
    tunnels: Vec<Tunnel>,
    registry: Registry,
    own: HashSet<IpAddr>,
    expected: Vec<AtomicU32>,
    peers: Vec<Option<Arc<Peers>>>,
    now: u32,
}

impl World {
    fn new(words: &[&str]) -> Self {
        let tunnels: Vec<_> = words.iter().map(|words| tunnel(words)).collect();
        let registry = Registry::new(&tunnels);
        let expected = tunnels.iter().map(|_| AtomicU32::new(0)).collect();
        let peers =
            |tunnel: &Tunnel| tunnel.external.as_ref().map(|all| Peers::new(all, None).into());
        let peers = tunnels.iter().map(peers).collect();
        Self { tunnels, registry, own: HashSet::new(), expected, peers, now: 0 }
    }

    fn inbound(&self) -> Inbound<'_> {
        let Self { tunnels, registry, own, expected, peers, now } = self;
        Inbound { tunnels, registry, own, expected, peers, now: *now }
    }

    fn open(&self, kind: PortKind, tos: u8, datagram: &mut [u8]) -> Result<Opened, Refused> {
        let port = Port { port: 1, kind, v6: false, local: None, peer: None };
        let source = [192, 0, 2, 2].into();
        let outer = Outer { source, destination: Some([192, 0, 2, 1].into()), tos };
        self.inbound().open(Way::Port(&port), outer, datagram)
    }

    fn raw(&self, tunnel: usize, protocol: u8, datagram: &[u8]) -> Result<Opened, Refused> {
        let source = [192, 0, 2, 2].into();
        let outer = Outer { source, destination: Some([192, 0, 2, 1].into()), tos: 0 };
        let way = Way::Raw { tunnel, protocol };
        self.inbound().open(way, outer, &mut datagram.to_vec())
    }

    fn gue(&self, tos: u8, header: &[u8], packet: &[u8]) -> Result<Opened, Refused> {
        self.open(PortKind::Gue, tos, &mut [header, packet].concat())
    }
}

const IPIP: &str = "a type ipip remote 192.0.2.2 local 192.0.2.1 encap gue";

fn why<T: std::fmt::Debug>(opened: Result<T, Refused>) -> Drop {
    opened.unwrap_err().1
}

#[test]
fn packets_come_out_of_each_encapsulation() {
    let packet = udp(true, b"hello");
    let world = World::new(&[IPIP]);
    let len = packet.len();
    assert_eq!(world.gue(0, &[0, 4, 0, 0], &packet).unwrap().range, 4..4 + len);
    assert_eq!(world.gue(0, &[], &packet).unwrap().range, 0..len);
    assert_eq!(world.gue(0, &[1, 4, 0, 0, 9, 9, 9, 9], &packet).unwrap().range, 8..8 + len);
    let world = World::new(&["a type ipip remote 192.0.2.2 encap fou encap-dport 1"]);
    let opened = world.open(PortKind::Direct(4), 0, &mut packet.clone()).unwrap();
    assert_eq!(opened.range, 0..len);
    let padded = [&packet[..], b"padding"].concat();
    assert_eq!(world.open(PortKind::Direct(4), 0, &mut padded.clone()).unwrap(), opened);
}

#[test]
fn what_is_not_for_a_tunnel_is_refused() {
    let packet = udp(true, b"hello");
    let world = World::new(&[IPIP]);
    assert_eq!(why(world.gue(0, &[0x20, 1, 0, 0], &packet)), Drop::Control);
    assert_eq!(why(world.gue(0, &[0, 41, 0, 0], &udp(false, b"x"))), Drop::Peer);
    assert_eq!(why(world.gue(0, &[0, 4, 0, 0], &udp(false, b"x"))), Drop::Malformed);
    assert_eq!(why(world.gue(0, &[0, 4, 0, 0], &packet[..packet.len() - 1])), Drop::Malformed);
    assert_eq!(why(world.gue(0, &[0, 4, 0x40, 0], &packet)), Drop::Malformed);
    let other = World::new(&["a type ipip remote 192.0.2.3 encap gue"]);
    assert_eq!(why(other.gue(0, &[0, 4, 0, 0], &packet)), Drop::Peer);
}

#[test]
fn nesting_is_opened_one_level_deep() {
    let mut packet = udp(true, b"hello");
    for _ in 0..100 {
        packet = ip(true, 4, 0, &packet);
    }
    let opened = World::new(&[IPIP]).gue(0, &[0, 4, 0, 0], &packet).unwrap();
    assert_eq!(opened.range.len(), packet.len());
}

#[test]
fn gre_is_checked_as_it_was_agreed_on() {
    let packet = udp(true, b"hello");
    let gre = "a type gre remote 192.0.2.2 encap gue key 7 seq";
    let world = World::new(&[gre]);
    let send = |key: u8, number: u8| {
        let header = [0, 47, 0, 0, 0x30, 0, 8, 0, 0, 0, 0, key, 0, 0, 0, number];
        world.gue(0, &header, &packet)
    };
    assert_eq!(send(7, 3).unwrap().range.start, 16);
    assert_eq!(why(send(7, 3)), Drop::Sequence);
    assert!(send(7, 9).is_ok());
    assert_eq!(why(send(8, 10)), Drop::Peer);
    assert_eq!(why(world.gue(0, &[0, 47, 0, 0, 0, 0, 8, 0], &packet)), Drop::Peer);
    let header = [0, 47, 0, 0, 0x30, 0, 0x88, 0xbe, 0, 0, 0, 7, 0, 0, 0, 20];
    assert_eq!(why(world.gue(0, &header, &packet)), Drop::Family);
}

#[test]
fn frames_are_checked_where_they_carry_ip() {
    let world = World::new(&["a type gretap remote 192.0.2.2 encap gue"]);
    let open = |kind: u16, payload: &[u8]| {
        let link = [&[7; 12][..], &kind.to_be_bytes()].concat();
        world.gue(3, &[&[0, 47, 0, 0, 0, 0, 0x65, 0x58][..], &link].concat(), payload)
    };
    let packet = ip(true, 17, 1, &[0; 8]);
    let opened = open(0x800, &packet).unwrap();
    assert_eq!((opened.range, opened.link), (22..22 + packet.len(), 14));
    assert_eq!(why(open(0x800, &ip(true, 17, 0, &[0; 8]))), Drop::Congestion);
    assert_eq!(why(open(0x86dd, &packet)), Drop::Malformed);
    let arp = open(0x806, &[1; 28]).unwrap();
    assert_eq!((arp.range, arp.link), (8..50, 0));
    let cut = world.gue(0, &[0, 47, 0, 0, 0, 0, 0x65, 0x58], &[7; 13]);
    assert_eq!(why(cut), Drop::Malformed);
    assert_eq!(why(world.gue(0, &[0, 47, 0, 0, 0, 0, 8, 0], &packet)), Drop::Peer);
}

#[test]
fn marks_come_in_and_what_cannot_tell_of_congestion_is_dropped() {
    let world = World::new(&[IPIP]);
    let arrive = |inner: u8, outer: u8| {
        let mut datagram = [&[0, 4, 0, 0][..], &ip(true, 17, inner, &[0; 8])].concat();
        let opened = world.open(PortKind::Gue, outer, &mut datagram)?;
        let packet = Packet::parse(&datagram[opened.range]).unwrap();
        Ok::<_, Refused>((packet.tos, opened.suspicious))
    };
    assert_eq!(arrive(0x10 | 2, 3), Ok((0x10 | 3, false)));
    assert_eq!(arrive(0x10, 2), Ok((0x10, true)));
    assert_eq!(why(arrive(0x10, 3)), Drop::Congestion);
}

#[test]
fn sources_that_may_not_come_this_way_are_refused() {
    let from = |source: [u8; 4]| {
        let mut bytes = udp(true, b"x");
        bytes[12..16].copy_from_slice(&source);
        bytes
    };
    let mut world = World::new(&[&format!("{IPIP} allow 10.0.0.0/8 allow 192.0.2.0/24")]);
    world.own.insert([10, 0, 0, 9].into());
    let header = [0, 4, 0, 0];
    assert!(world.gue(0, &header, &from([10, 0, 0, 1])).is_ok());
    assert!(world.gue(0, &header, &from([192, 0, 2, 77])).is_ok());
    for source in [[11, 0, 0, 1], [10, 0, 0, 9], [127, 0, 0, 1], [224, 0, 0, 1], [0; 4]] {
        assert_eq!(why(world.gue(0, &header, &from(source))), Drop::Source, "{source:?}");
    }
    let open = World::new(&[IPIP]);
    assert_eq!(why(open.gue(0, &header, &from([127, 0, 0, 1]))), Drop::Source);
    assert!(open.gue(0, &header, &from([11, 0, 0, 1])).is_ok());
}

#[test]
fn remote_checksums_are_passed_on_where_the_device_knows_them() {
    let world = World::new(&[IPIP]);
    let packet = udp(true, b"hello");
    let header = |offset: u8| [2, 4, 0, 1, 0x80, 0, 0, 0, 0, 20, 0, offset];
    let opened = world.gue(0, &header(26), &packet).unwrap();
    assert_eq!(opened.partial, Some(Partial { start: 20, offset: 6 }));
    assert_eq!(world.gue(0, &header(28), &packet).unwrap().partial, None);
    assert_eq!(why(world.gue(0, &header(60), &packet)), Drop::Malformed);
}

#[test]
fn of_the_copies_of_a_packet_without_udp_one_counts() {
    let ends = "remote 192.0.2.2 local 192.0.2.1";
    let world = World::new(&[
        &format!("a type gre {ends} key 1 seq"),
        &format!("b type gre {ends} key 2 seq"),
        &format!("c type gre {ends} key 2 seq encap gue"),
        &format!("d type sit {ends}"),
    ]);
    let packet = udp(true, b"hello");
    let send = |key: u8, number: u8| {
        let gre = [0x30, 0, 8, 0, 0, 0, 0, key, 0, 0, 0, number];
        [0, 1].map(|tunnel| world.raw(tunnel, 47, &[&gre[..], &packet].concat()))
    };
    let [first, second] = send(1, 1);
    assert_eq!(first.unwrap().range, 12..12 + packet.len());
    assert_eq!(why(second), Drop::Copy);
    let [first, second] = send(2, 1);
    assert_eq!(
        (why(first), second.unwrap().tunnel),
        (Drop::Copy, 1),
        "counted as in sequence once"
    );
    assert_eq!(send(3, 2).map(why), [Drop::Peer, Drop::Copy], "for nobody: a stray once");
    assert_eq!(send(2, 1).map(why), [Drop::Copy, Drop::Sequence]);
    assert_eq!(
        [0, 1].map(|tunnel| why(world.raw(tunnel, 47, &[0]))),
        [Drop::Malformed, Drop::Copy]
    );
    assert_eq!(world.raw(3, 4, &packet).unwrap().tunnel, 3);
    assert_eq!(world.raw(3, 41, &udp(false, b"x")).unwrap().tunnel, 3);
}

#[test]
fn a_checksum_of_gre_may_be_open_without_udp_only() {
    let words = ["a type gre remote 192.0.2.2 csum", "b type gre remote 192.0.2.2 csum encap gue"];
    let world = World::new(&words);
    let packet = udp(true, b"hello");
    let with = |checksum: [u8; 2]| [&[0x80, 0, 8, 0][..], &checksum, &[0, 0], &packet].concat();
    let right = Sum::new().bytes(&with([0; 2])).checksum().to_be_bytes();
    assert!(world.raw(0, 47, &with(right)).is_ok() && world.raw(0, 47, &with([0; 2])).is_ok());
    assert_eq!(why(world.raw(0, 47, &with([right[0], !right[1]]))), Drop::Checksum);
    let gue = |checksum| world.gue(0, &[0, 47, 0, 0], &with(checksum));
    assert!(gue(right).is_ok());
    assert_eq!(why(gue([0; 2])), Drop::Checksum);
    assert_eq!(why(world.raw(0, 47, &[0x80, 0, 8, 0, 0, 0])), Drop::Malformed);
}

#[test]
fn checksums_that_the_system_left_open_are_passed_on() {
    let world =
        World::new(&["a type sit remote 192.0.2.2", "b type sit remote 192.0.2.2 encap gue"]);
    for v4 in [true, false] {
        let whole = tcp(v4, 1, 0x10, &[7; 3000]);
        let packet = Packet::parse(&whole).unwrap();
        let (start, len) = (packet.transport, packet.payload().len() as u32);
        let pseudo = pseudo_header(packet.source, packet.destination, 6, len).folded();
        let mut open = whole.clone();
        open[start + 16..start + 18].copy_from_slice(&pseudo.to_be_bytes());
        let carried = if v4 { 4 } else { 41 };
        let partial = Some(Partial { start: start as u16, offset: 16 });
        assert_eq!(world.raw(0, carried, &open).unwrap().partial, partial);
        assert_eq!(world.raw(0, carried, &whole).unwrap().partial, None);
        let header = [0, carried, 0, 0];
        assert_eq!(world.gue(0, &header, &open).unwrap().partial, None, "UDP has offloads");
        let headers = start as u16 + 20;
        let expected = Joined { headers, offload: (Offload::Tcp, 1480 - headers) };
        assert_eq!(joined(&open, 1480), Ok(Some(expected)));
        assert_eq!(joined(&open, open.len() as u16), Ok(None));
        assert_eq!(joined(&open, headers), Ok(None));
    }
    // Lengths of datagrams mean something, and which they were is lost.
    assert_eq!(joined(&udp(true, &[0; 3000]), 1480), Err(Drop::Joined));
    assert_eq!(joined(&udp(true, &[0; 1000]), 1480), Ok(None));
    assert_eq!(joined(&ip(true, 1, 0, &[0; 3000]), 1480), Ok(None));
}

#[test]
fn no_datagram_makes_it_panic() {
    let world = World::new(&[
        IPIP,
        "b type gre remote 192.0.2.2 encap gue",
        "c type sit mode ip6ip remote 192.0.2.2 encap gue",
        "d type gretap remote 192.0.2.2 encap gue",
    ]);
    let mut state = 9u64;
    let mut next = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) as u8
    };
    let (mut good, (v4, v6)) = (0, (udp(true, &[1; 40]), udp(false, &[1; 40])));
    for round in 0..100_000 {
        let gre = [0, 47, 0, 0, 0x80 & next(), 0, 8, 0];
        let remote = [2, 4, 0, 1, 0x80, 0, 0, 0, 0, next() & 63, 0, next() & 63];
        let mut datagram = match round % 4 {
            0 => [&[0, 4, 0, 0][..], &v4].concat(),
            1 => [&gre[..], &v4].concat(),
            2 => [&[0, 41, 0, 0][..], &v6].concat(),
            _ => [&remote[..], &v4].concat(),
        };
        for _ in 0..next() % 4 {
            let at = usize::from(next()) % datagram.len();
            datagram[at] = next();
        }
        datagram.truncate(usize::from(next()).max(20));
        if let Ok(opened) = world.open(PortKind::Gue, next(), &mut datagram) {
            good += 1;
            assert!(opened.range.end <= datagram.len());
        }
    }
    assert!(good > 10_000, "{good}");
}

#[test]
fn one_of_many_other_ends_sends_for_what_is_behind_it() {
    let packet = udp(true, b"hello");
    let gue = |words: &str| {
        let world = World::new(&[&format!("a type ipip external {words} encap gue")]);
        world.gue(0, &[0, 4, 0, 0], &packet).map(|opened| opened.tunnel)
    };
    // The packet is from 10.0.0.1, and comes from 192.0.2.2.
    assert_eq!(gue("to 10.0.0.0/24 dst 192.0.2.2"), Ok(0));
    assert_eq!(gue("learn 192.0.2.0/24"), Ok(0));
    assert_eq!(gue("to 10.0.0.0/24 dst 192.0.2.3"), Err(Refused(Some(0), Drop::Source)));
    assert_eq!(gue("to 10.0.1.0/24 dst 192.0.2.2"), Err(Refused(Some(0), Drop::Source)));
    assert_eq!(gue("learn 192.0.3.0/24"), Err(Refused(None, Drop::Peer)));
    assert_eq!(gue("learn 192.0.2.0/24 allow 10.1.0.0/16"), Err(Refused(Some(0), Drop::Source)));
    assert_eq!(gue("learn 192.0.2.0/24 maxaddress 0"), Err(Refused(Some(0), Drop::Full)));
}
