//! Clients of versions that nobody speaks here (RFC 9000, Section 6; RFC 8999, Section 6).

use std::net::UdpSocket;

use super::behind::{PATIENCE, Site, folder};

/// What comes back of a long header packet of this version, whose bytes behind it are these.
fn answer(site: &Site, version: &[u8; 4], rest: &[u8]) -> Vec<u8> {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(site.address).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut packet = [&[0xc3][..], version, rest].concat();
    packet.resize(1350, 0);
    socket.send(&packet).unwrap();
    let mut buffer = [0; 1500];
    let length = socket.recv(&mut buffer).expect("an answer");
    buffer[..length].to_vec()
}

/// The connection IDs that a Version Negotiation packet begins with, and its versions.
fn negotiation(packet: &[u8]) -> (Vec<u8>, Vec<u8>, Vec<u32>) {
    assert!(packet[0] & 0x80 != 0 && packet[1..5] == [0; 4], "{packet:?}");
    let (length, rest) = (usize::from(packet[5]), &packet[6..]);
    let (destination, rest) = rest.split_at(length);
    let (source, rest) = rest[1..].split_at(usize::from(rest[0]));
    assert!(rest.len() >= 4 && rest.len() % 4 == 0);
    let versions = rest.chunks(4).map(|four| u32::from_be_bytes(four.try_into().unwrap()));
    (destination.to_vec(), source.to_vec(), versions.collect())
}

#[test]
fn gquic_hears_which_versions_there_are() {
    let site = Site::start(folder(), "[[site]]\nnames = [\"*\"]\n[[site.route]]\nrespond = {}\n");
    // Lengths of connection IDs as RFC 8999 writes them.
    let packet = [&[8][..], b"destined", &[4], b"from", b"whatever follows"].concat();
    for version in [b"Q046", b"Q043", b"Q050", b"T051", &[0xfa, 0xce, 0xb0, 0x02]] {
        let (destination, source, versions) = negotiation(&answer(&site, version, &packet));
        assert_eq!((&destination[..], &source[..]), (&b"from"[..], &b"destined"[..]));
        assert!(versions.contains(&1) && versions.contains(&0x6b33_43cf), "{versions:x?}");
    }
    // Q046 has both lengths in one byte: by RFC 8999 that is a connection ID of 80 bytes, and fits.
    let packet = [&[0x50][..], b"destined", &[0, 0, 0, 1]].concat();
    let (destination, source, versions) = negotiation(&answer(&site, b"Q046", &packet));
    assert_eq!((destination.len(), source.len()), (0, 80));
    assert!(source.starts_with(b"destined") && versions.contains(&1));
}
