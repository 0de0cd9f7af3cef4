use std::net::SocketAddr;

use super::tuples as ends;
use super::*;
use crate::compose;

fn frame(source: &str, destination: &str, payload: &[u8]) -> Vec<u8> {
    let mut slot = vec![0xee; 2048];
    let (source, destination): (SocketAddr, SocketAddr) =
        (source.parse().unwrap(), destination.parse().unwrap());
    let len = compose::udp(&mut slot, source, destination, payload).unwrap();
    slot.truncate(len);
    slot
}

fn v4_frame() -> Vec<u8> {
    frame("192.0.2.1:1000", "198.51.100.7:53", &[7; 40])
}

fn v6_frame() -> Vec<u8> {
    frame("[2001:db8::1]:1000", "[2001:db8::2]:53", &[7; 40])
}

fn tuple(protocol: u8, address: &str, port: u16) -> Tuple {
    Tuple { address: address.parse().unwrap(), protocol, port }
}

/// With a checksum of the header that is right again.
fn mended(mut frame: Vec<u8>) -> Vec<u8> {
    let len = usize::from(frame[14] & 0xf) * 4;
    frame[24..26].fill(0);
    let sum = Sum::new().bytes(&frame[14..14 + len]).checksum();
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    frame
}

fn changed(mut frame: Vec<u8>, at: usize, to: &[u8]) -> Vec<u8> {
    frame[at..at + to.len()].copy_from_slice(to);
    frame
}

/// A packet of IPv4 with another protocol and payload.
fn v4_of(protocol: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = v4_frame();
    frame.truncate(34);
    frame.extend(payload);
    let len = (frame.len() - 14) as u16;
    mended(changed(changed(frame, 23, &[protocol]), 16, &len.to_be_bytes()))
}

/// A packet of IPv6 with other headers before its UDP.
fn v6_of(first: u8, headers: &[u8]) -> Vec<u8> {
    let whole = v6_frame();
    let mut frame = whole[..54].to_vec();
    frame.extend(headers);
    frame.extend(&whole[54..]);
    let len = (frame.len() - 54) as u16;
    changed(changed(frame, 20, &[first]), 18, &len.to_be_bytes())
}

#[test]
fn frames_in_order_say_whose_they_are() {
    let expected = (tuple(17, "192.0.2.1", 1000), tuple(17, "198.51.100.7", 53));
    assert_eq!(ends(&v4_frame()), Ok(expected));
    let expected = (tuple(17, "2001:db8::1", 1000), tuple(17, "2001:db8::2", 53));
    assert_eq!(ends(&v6_frame()), Ok(expected));
    // Padding, and none where it is not needed.
    assert_eq!(frame("192.0.2.1:1", "192.0.2.2:2", b"").len(), MIN_FRAME);
    assert!(ends(&frame("192.0.2.1:1", "192.0.2.2:2", b"")).is_ok());
    let mut longer = v4_frame();
    longer.push(0);
    assert_eq!(ends(&longer), Err(Reason::Length));
    // All lengths: the checksum has an odd octet at its end in half of them.
    for len in 0..200 {
        assert!(ends(&frame("192.0.2.1:1", "192.0.2.2:2", &vec![len as u8; len])).is_ok());
        assert!(ends(&frame("[::1]:1", "[::1]:2", &vec![len as u8; len])).is_ok());
    }
}

#[test]
fn every_octet_that_is_changed_is_noticed() {
    for (frame, name) in [(v4_frame(), "IPv4"), (v6_frame(), "IPv6")] {
        let ends = check(&frame).unwrap();
        for at in 12..frame.len() {
            for bit in 0..8 {
                let mut changed = frame.clone();
                changed[at] ^= 1 << bit;
                match check(&changed) {
                    Err(_) => {}
                    // Traffic class, flow label and hop limit have no checksum in IPv6; another protocol
                    // makes another packet, of another tuple.
                    Ok(other) => {
                        let is_free = matches!(at, 14..=17 | 21) && other == ends;
                        let is_other = at == 20 && Tuple::from(other.source).protocol != 17;
                        let is_v6 = name == "IPv6";
                        assert!(is_v6 && (is_free || is_other), "{name}, octet {at}, bit {bit}");
                    }
                }
            }
        }
        for len in 0..frame.len() {
            assert_eq!(check(&frame[..len]), Err(Reason::Length), "{name} cut off at {len}");
        }
    }
}

#[test]
fn what_is_no_ip_without_a_vlan_is_refused() {
    assert_eq!(ends(&changed(v4_frame(), 12, &[8, 6])), Err(Reason::NotIp));
    let tagged = |tags: &[[u8; 4]]| {
        let mut frame = v4_frame();
        tags.iter().rev().for_each(|tag| drop(frame.splice(12..12, *tag)));
        ends(&frame)
    };
    assert!(tagged(&[[0x81, 0, 0xe0, 0]]).is_ok(), "a priority is no VLAN");
    assert!(tagged(&[[0x88, 0xa8, 0, 0], [0x81, 0, 0, 0]]).is_ok());
    assert_eq!(tagged(&[[0x81, 0, 0, 5]]), Err(Reason::Vlan));
    assert_eq!(tagged(&[[0x81, 0, 0, 0], [0x81, 0, 1, 0]]), Err(Reason::Vlan));
    assert_eq!(tagged(&[[0x81, 0, 0, 0]; 3]), Err(Reason::Vlan));
    // A short frame is padded to 60 octets before or after tags come, and no further.
    let short = frame("192.0.2.1:1", "192.0.2.2:2", b"x");
    for (tags, most) in [(0, 60), (1, 64), (2, 68)] {
        for len in 58 + 4 * tags..80 {
            let mut tagged = short[..43].to_vec();
            (0..tags).for_each(|_| drop(tagged.splice(12..12, [0x81, 0, 0, 0])));
            tagged.resize(len, 0);
            assert_eq!(ends(&tagged).is_ok(), len <= most, "{tags} tags, {len} octets");
        }
    }
    // What says that it is one version and is the other.
    assert_eq!(ends(&changed(v4_frame(), 12, &[0x86, 0xdd])), Err(Reason::Headers));
    assert_eq!(ends(&changed(v6_frame(), 12, &[8, 0])), Err(Reason::Headers));
}

#[test]
fn the_tag_of_a_vlan_is_one_before_all_else_and_goes_in_and_out() {
    let tagged = |tags: &[[u8; 4]], whole: &[u8]| {
        let mut frame = whole.to_vec();
        tags.iter().rev().for_each(|tag| drop(frame.splice(12..12, *tag)));
        frame
    };
    for whole in [v4_frame(), v6_frame()] {
        for number in [1, 5, 100, 4094, 4095] {
            let tag = tag(&whole, number).unwrap();
            let mut frame = tagged(&[tag], &whole);
            assert_eq!(vlan(&frame), Some(number));
            let (source, destination) = ends(&whole).unwrap();
            assert_eq!(tuples_of_device(&frame), Ok((Some(number), source, destination)));
            assert_eq!(ends(&frame), Err(Reason::Vlan), "a port has none");
            assert_eq!(take_out_tag(&mut frame).unwrap(), whole);
        }
        assert_eq!(vlan(&tagged(&[[0x81, 0, 0xe1, 5]], &whole)), Some(0x105), "with a priority");
        // Of priority alone, of a provider, and none.
        for other in [[0x81, 0, 0xe0, 0], [0x88, 0xa8, 0, 5]] {
            let frame = tagged(&[other], &whole);
            assert_eq!((vlan(&frame), tag(&frame, 7)), (None, None), "{other:x?}");
        }
        assert_eq!(vlan(&whole), None);
        assert_eq!(tuples_of_device(&whole).map(|(number, ..)| number), Ok(None));
        // Another tag behind it, and what is no IP.
        for behind in [[0x81, 0, 0, 0], [0x81, 0, 0, 6], [0x88, 0xa8, 0, 6]] {
            let mut frame = tagged(&[[0x81, 0, 0, 5], behind], &whole);
            assert_eq!(take_out_tag(&mut frame), Err(Reason::Vlan), "{behind:x?}");
        }
        let mut frame = changed(tagged(&[[0x81, 0, 0, 5]], &whole), 16, &[8, 6]);
        assert_eq!(take_out_tag(&mut frame), Err(Reason::NotIp));
        let frame = tagged(&[[0x81, 0, 0, 5]], &whole);
        for len in 0..frame.len() {
            let found = tuples_of_device(&frame[..len]);
            assert!(matches!(found, Err(Reason::Length | Reason::Vlan)), "{len}: {found:?}");
        }
    }
}

#[test]
fn fragments_are_refused_the_first_one_too() {
    for flags in [0x2000_u16, 0x2001, 1, 0x1fff] {
        let fragment = mended(changed(v4_frame(), 20, &flags.to_be_bytes()));
        assert_eq!(ends(&fragment), Err(Reason::Fragment), "{flags:x}");
    }
    for offset in [0_u16, 1, 8, 0xfff8] {
        let [high, low] = offset.to_be_bytes();
        let fragment = v6_of(44, &[17, 0, high, low, 0, 0, 0, 1]);
        assert_eq!(ends(&fragment), Err(Reason::Fragment), "{offset:x}");
        let behind =
            v6_of(60, &[[44, 0, 1, 4, 0, 0, 0, 0], [17, 0, high, low, 0, 0, 0, 1]].concat());
        assert_eq!(ends(&behind), Err(Reason::Fragment), "{offset:x}");
    }
}

#[test]
fn header_chains_end_or_are_refused() {
    const PADDED: [u8; 6] = [1, 4, 0, 0, 0, 0];
    let header = |next: u8| [&[next, 0][..], &PADDED].concat();
    assert!(ends(&v6_of(60, &header(17))).is_ok());
    assert!(ends(&v6_of(0, &[header(60), header(17)].concat())).is_ok());
    assert_eq!(ends(&v6_of(60, &[header(0), header(17)].concat())), Err(Reason::Headers));
    assert_eq!(ends(&v6_of(43, &header(17))), Err(Reason::Headers));
    let chain = |n: usize| {
        let mut headers = vec![header(60); n - 1];
        headers.push(header(17));
        ends(&v6_of(60, &headers.concat()))
    };
    assert!(chain(MAX_EXTENSIONS).is_ok());
    assert_eq!(chain(MAX_EXTENSIONS + 1), Err(Reason::Headers));
    assert_eq!(ends(&v6_of(60, &[17, 255, 0, 0, 0, 0, 0, 0])), Err(Reason::Headers));
    // Options of IPv4: whole, and no source route.
    let with = |options: [u8; 4]| {
        let mut frame = v4_frame();
        frame.splice(34..34, options);
        let len = (frame.len() - 14) as u16;
        ends(&mended(changed(changed(frame, 14, &[0x46]), 16, &len.to_be_bytes())))
    };
    assert!(with([1, 1, 1, 0]).is_ok());
    assert!(with([148, 4, 0, 0]).is_ok(), "Router Alert");
    for options in [[131, 3, 4, 0], [1, 137, 3, 4], [148, 1, 0, 0], [148, 5, 0, 0], [1, 1, 1, 7]] {
        assert_eq!(with(options), Err(Reason::Headers), "{options:?}");
    }
}

#[test]
fn udp_has_to_have_a_length_and_with_ipv6_a_checksum() {
    assert!(ends(&changed(v4_frame(), 40, &[0, 0])).is_ok(), "RFC 768 allows none");
    assert_eq!(ends(&changed(v6_frame(), 60, &[0, 0])), Err(Reason::Checksum));
    for len in [0_u16, 7, 47, 49] {
        let wrong = changed(changed(v4_frame(), 40, &[0, 0]), 38, &len.to_be_bytes());
        assert_eq!(ends(&wrong), Err(Reason::Length), "{len}");
    }
}

#[test]
fn an_address_of_ipv4_in_the_form_of_ipv6_is_none() {
    let mapped = "[::ffff:192.0.2.1]:1000";
    assert_eq!(ends(&frame(mapped, "[2001:db8::2]:53", b"")), Err(Reason::Address));
    assert_eq!(ends(&frame("[2001:db8::2]:53", mapped, b"")), Err(Reason::Address));
}

#[test]
fn protocols_without_ports_have_port_zero_and_those_with_ports_are_known_or_refused() {
    let without = (tuple(47, "192.0.2.1", 0), tuple(47, "198.51.100.7", 0));
    assert_eq!(ends(&v4_of(47, &[1, 2, 3, 4])), Ok(without));
    for protocol in [33, 132, 136, 255] {
        assert_eq!(ends(&v4_of(protocol, &[0; 32])), Err(Reason::Protocol), "{protocol}");
    }
    for protocol in [0, 43, 44, 60] {
        assert_eq!(ends(&v4_of(protocol, &[0; 32])), Err(Reason::Headers), "{protocol}");
    }
    let mut echo = [8, 0, 0, 0, 0, 1, 0, 2];
    assert_eq!(ends(&v4_of(1, &echo)), Err(Reason::Checksum));
    let sum = Sum::new().bytes(&echo).checksum();
    echo[2..4].copy_from_slice(&sum.to_be_bytes());
    assert!(ends(&v4_of(1, &echo)).is_ok());
    assert_eq!(ends(&v4_of(1, &[0; 3])), Err(Reason::Length));
}

#[test]
fn segments_of_tcp_are_checked() {
    let segment = |offset: u8, len: usize| {
        let mut tcp = vec![0; len];
        tcp[..4].copy_from_slice(&[3, 232, 0, 80]);
        tcp[12] = offset << 4;
        let (from, to) = ([192, 0, 2, 1].into(), [198, 51, 100, 7].into());
        let sum = quicket_gue::pseudo_header(from, to, 6, len as u32).bytes(&tcp);
        tcp[16..18].copy_from_slice(&sum.checksum().to_be_bytes());
        tcp
    };
    let expected = (tuple(6, "192.0.2.1", 1000), tuple(6, "198.51.100.7", 80));
    assert_eq!(ends(&v4_of(6, &segment(5, 40))), Ok(expected));
    assert_eq!(ends(&v4_of(6, &segment(10, 40))), Ok(expected));
    assert_eq!(ends(&v4_of(6, &segment(11, 40))), Err(Reason::Length));
    assert_eq!(ends(&v4_of(6, &segment(4, 40))), Err(Reason::Length));
    assert_eq!(ends(&v4_of(6, &segment(5, 40)[..19])), Err(Reason::Length));
    let mut wrong = segment(5, 40);
    wrong[39] = 1;
    assert_eq!(ends(&v4_of(6, &wrong)), Err(Reason::Checksum));
}
