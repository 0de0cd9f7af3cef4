use std::net::SocketAddr;

use quicket_gue::Sum;

use super::*;
use crate::compose;

const OURS: [&str; 2] = ["192.0.2.1:4433", "[2001:db8::1]:4433"];
const PEERS: [&str; 2] = ["198.51.100.7:53", "[2001:db8:7::7]:53"];
const ROUTERS: [&str; 2] = ["203.0.113.9", "2001:db8:9::9"];

/// A frame of ours, without the header of Ethernet.
fn sent(at: usize, len: usize) -> Vec<u8> {
    let mut slot = vec![0; 2048];
    let [from, to]: [SocketAddr; 2] = [OURS[at], PEERS[at]].map(|text| text.parse().unwrap());
    let len = compose::udp(&mut slot, from, to, &vec![7; len]).unwrap();
    slot[14..len].to_vec()
}

/// A frame with a message of ICMP.
pub(crate) fn message(at: usize, head: [u8; 8], quoted: &[u8], to: &str) -> Vec<u8> {
    let [router, to]: [IpAddr; 2] = [ROUTERS[at], to].map(|text| text.parse().unwrap());
    let mut icmp = [&head[..], quoted].concat();
    icmp[2..4].fill(0);
    let sum = match (router, to) {
        (IpAddr::V4(_), _) => Sum::new(),
        (_, to) => quicket_gue::pseudo_header(router, to, ICMPV6, icmp.len() as u32),
    };
    let sum = sum.bytes(&icmp).checksum();
    icmp[2..4].copy_from_slice(&sum.to_be_bytes());
    let mut frame = vec![0; 12];
    match (router, to) {
        (IpAddr::V4(router), IpAddr::V4(to)) => {
            frame.extend([8, 0, 0x45, 0]);
            frame.extend((20 + icmp.len() as u16).to_be_bytes());
            frame.extend([0, 0, 0, 0, 64, ICMP, 0, 0]);
            frame.extend(router.octets().into_iter().chain(to.octets()));
            let sum = Sum::new().bytes(&frame[14..34]).checksum();
            frame[24..26].copy_from_slice(&sum.to_be_bytes());
        }
        (IpAddr::V6(router), IpAddr::V6(to)) => {
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
            frame.extend((icmp.len() as u16).to_be_bytes());
            frame.extend([ICMPV6, 64]);
            frame.extend(router.octets().into_iter().chain(to.octets()));
        }
        _ => unreachable!("of one family"),
    }
    frame.extend(icmp);
    frame
}

fn host(at: usize) -> String {
    let address: SocketAddr = OURS[at].parse().unwrap();
    address.ip().to_string()
}

#[test]
fn errors_say_of_which_flow_they_are_and_what_became_of_it() {
    let kinds: [&[([u8; 8], Failure)]; 2] = [
        &[
            ([3, 3, 0, 0, 0, 0, 0, 0], Failure::Port),
            ([3, 1, 0, 0, 0, 0, 0, 0], Failure::Host),
            ([3, 4, 0, 0, 0, 0, 5, 120], Failure::TooBig { mtu: 1400 }),
            ([11, 0, 0, 0, 0, 0, 0, 0], Failure::TimeExceeded),
            ([12, 0, 0, 0, 9, 0, 0, 0], Failure::Parameter),
        ],
        &[
            ([1, 4, 0, 0, 0, 0, 0, 0], Failure::Port),
            ([1, 0, 0, 0, 0, 0, 0, 0], Failure::Host),
            ([2, 0, 0, 0, 0, 0, 5, 0], Failure::TooBig { mtu: 1280 }),
            ([3, 1, 0, 0, 0, 0, 0, 0], Failure::TimeExceeded),
            ([4, 2, 0, 0, 0, 0, 0, 40], Failure::Parameter),
        ],
    ];
    for (at, kinds) in kinds.into_iter().enumerate() {
        let [ours, peers]: [SocketAddr; 2] =
            [OURS[at], PEERS[at]].map(|text| text.parse().unwrap());
        let packet = sent(at, 100);
        let header = if at == 0 { 20 } else { 40 };
        for (head, failure) in kinds {
            // All of it, and what RFC 792 asks for at least.
            for kept in [packet.len(), header + 8] {
                let frame = message(at, *head, &packet[..kept], &host(at));
                let report = Report::read(&frame).unwrap();
                assert_eq!(report.failure, *failure);
                assert_eq!(report.kind, (head[0], head[1]));
                assert_eq!(report.reporter, ROUTERS[at].parse::<IpAddr>().unwrap());
                let tuple = |address: SocketAddr| Tuple {
                    address: address.ip(),
                    protocol: UDP,
                    port: address.port(),
                };
                assert_eq!((report.source, report.destination), (tuple(ours), tuple(peers)));
                assert_eq!(report.quoted, &packet[header..kept]);
                // As if the peer had sent it.
                let ends = check(&frame).unwrap();
                assert_eq!(Tuple::from(ends.destination), tuple(ours));
                assert_eq!(Tuple::from(ends.source), tuple(peers));
                // Cut off anywhere, and without a checksum, it is none.
                for len in 0..frame.len() {
                    assert!(check(&frame[..len]).is_err(), "{len}");
                    let _ = Report::read(&frame[..len]);
                }
                let mut wrong = frame.clone();
                *wrong.last_mut().unwrap() ^= 1;
                assert_eq!(check(&wrong), Err(Reason::Checksum));
            }
        }
    }
}

#[test]
fn what_quotes_too_little_or_another_address_or_is_no_error_is_refused() {
    for at in 0..2 {
        let packet = sent(at, 10);
        let head = if at == 0 { [3, 3, 0, 0, 0, 0, 0, 0] } else { [1, 4, 0, 0, 0, 0, 0, 0] };
        let header = if at == 0 { 20 } else { 40 };
        for kept in 0..header + 4 {
            let frame = message(at, head, &packet[..kept], &host(at));
            assert_eq!(check(&frame), Err(Reason::Length), "{kept}");
        }
        // To somebody who has not sent it.
        let other = if at == 0 { "192.0.2.2" } else { "2001:db8::2" };
        assert_eq!(check(&message(at, head, &packet, other)), Err(Reason::Destination));
        // An echo, and source quench.
        for kind in if at == 0 { [8, 4] } else { [128, 129] } {
            let echo = message(at, [kind, 0, 0, 0, 0, 0, 0, 0], &packet, &host(at));
            assert_eq!(check(&echo), Err(Reason::Protocol));
            assert_eq!(Report::read(&echo), None);
        }
        // A packet of the other version, and one of a protocol whose ports are not read.
        let other = message(at, head, &sent(1 - at, 10), &host(at));
        assert_eq!(check(&other), Err(Reason::Headers));
        let mut sctp = packet.clone();
        sctp[if at == 0 { 9 } else { 6 }] = 132;
        assert_eq!(check(&message(at, head, &sctp, &host(at))), Err(Reason::Protocol));
        // A datagram is no error.
        let mut frame = vec![0; 12];
        frame.extend(if at == 0 { [8, 0] } else { [0x86, 0xdd] });
        frame.extend(sent(at, 30));
        assert_eq!(check(&frame), Err(Reason::Protocol));
    }
    // What is not the first fragment has no ports; the first one has.
    let mut packet = sent(0, 10);
    packet[6..8].copy_from_slice(&[0x20, 0]);
    let head = [11, 1, 0, 0, 0, 0, 0, 0];
    assert!(check(&message(0, head, &packet, &host(0))).is_ok());
    packet[6..8].copy_from_slice(&[0, 9]);
    assert_eq!(check(&message(0, head, &packet, &host(0))), Err(Reason::Fragment));
}
