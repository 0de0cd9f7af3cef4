//! What the origin is told of the client: PROXY protocol, version 2 (HAProxy's proxy-protocol.txt).

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ppp::v2::{Builder, Command, Protocol, Type, Version};

/// The header for a stream of a client. Its protocol is left out where TLS has not settled it.
///
/// # Errors
///
/// If a name is too long for it, which TLS does not let through.
pub(crate) fn header(
    client: SocketAddr,
    local: Option<SocketAddr>,
    alpn: Option<&[u8]>,
    name: Option<&str>,
    certificate: Option<&[u8]>,
) -> io::Result<Vec<u8>> {
    // A stream is what the origin gets. Servers refuse the other word, DGRAM, for QUIC's sake.
    let builder = begin(Protocol::Stream, client, local, alpn, name)?;
    match certificate {
        Some(certificate) => builder.write_tlv(Type::SSL, &shown(certificate)?)?.build(),
        None => builder.build(),
    }
}

/// The header for a datagram of a client, which has to fit before it: the client's certificate is left out.
///
/// # Errors
///
/// As of [`header`].
pub(super) fn of_datagram(
    client: SocketAddr,
    local: Option<SocketAddr>,
    alpn: &[u8],
    name: Option<&str>,
) -> io::Result<Vec<u8>> {
    begin(Protocol::Datagram, client, local, Some(alpn), name)?.build()
}

fn begin(
    transport: Protocol,
    client: SocketAddr,
    local: Option<SocketAddr>,
    alpn: Option<&[u8]>,
    name: Option<&str>,
) -> io::Result<Builder> {
    let addresses = same_family(client, local);
    let builder = Builder::with_addresses(Version::Two | Command::Proxy, transport, addresses);
    let builder = match alpn {
        None => builder,
        Some(alpn) => builder.write_tlv(Type::ALPN, alpn)?,
    };
    match name {
        Some(name) => builder.write_tlv(Type::Authority, name.as_bytes()),
        None => Ok(builder),
    }
}

/// A client certificate that was verified in this connection (Section 2.2.5, PP2_TYPE_SSL), and itself in DER
/// (PP2_SUBTYPE_SSL_CLIENT_CERT).
fn shown(certificate: &[u8]) -> io::Result<Vec<u8>> {
    const CLIENT_SSL: u8 = 1;
    const CLIENT_CERT_CONN: u8 = 2;
    const VERIFIED: [u8; 4] = [0; 4];
    const VERSION: u8 = 0x21;
    const CLIENT_CERT: u8 = 0x28;
    let mut shown = vec![CLIENT_SSL | CLIENT_CERT_CONN];
    shown.extend_from_slice(&VERIFIED);
    for (kind, value) in [(VERSION, &b"TLSv1.3"[..]), (CLIENT_CERT, certificate)] {
        let length = u16::try_from(value.len()).map_err(io::Error::other)?;
        shown.push(kind);
        shown.extend_from_slice(&length.to_be_bytes());
        shown.extend_from_slice(value);
    }
    Ok(shown)
}

/// Both addresses in one family, which that of the header is. Sockets for both families show those of
/// IPv4 as those of IPv6 (RFC 4291, Section 2.5.5.2).
fn same_family(client: SocketAddr, local: Option<SocketAddr>) -> (SocketAddr, SocketAddr) {
    let canonical = |at: SocketAddr| SocketAddr::new(at.ip().to_canonical(), at.port());
    let client = canonical(client);
    let unknown: IpAddr = match client {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let local = local.map(canonical).filter(|local| local.is_ipv4() == client.is_ipv4());
    (client, local.unwrap_or(SocketAddr::new(unknown, 0)))
}

#[cfg(test)]
mod tests {
    use ppp::v2::{Addresses, Header};

    use super::*;

    #[test]
    fn a_header_says_who_and_what() {
        let at = |text: &str| text.parse::<SocketAddr>().unwrap();
        let local = at("192.0.2.1:443");
        let bytes = header(
            at("[::ffff:198.51.100.7]:5000"),
            Some(local),
            Some(b"redis"),
            Some("a.example"),
            Some(&[7; 300]),
        );
        let bytes = bytes.unwrap();
        let header = Header::try_from(bytes.as_slice()).unwrap();
        assert_eq!(header.addresses, Addresses::from((at("198.51.100.7:5000"), local)));
        let tlvs: Vec<_> = header.tlvs().map(|tlv| tlv.unwrap()).collect();
        assert_eq!((tlvs[0].kind, &*tlvs[0].value), (1, &b"redis"[..]));
        assert_eq!((tlvs[1].kind, &*tlvs[1].value), (2, &b"a.example"[..]));
        let (flags, parts) = tlvs[2].value.split_at(5);
        assert_eq!((tlvs[2].kind, flags), (0x20, &[3, 0, 0, 0, 0][..]), "shown, and verified");
        assert_eq!(parts[..13], *b"\x21\0\x07TLSv1.3\x28\x01\x2c");
        assert_eq!(parts[13..], [7; 300]);
    }

    #[test]
    fn an_unknown_address_is_none() {
        let client: SocketAddr = "[2001:db8::1]:5000".parse().unwrap();
        let bytes = super::header(client, None, Some(b"x"), None, None).unwrap();
        let header = Header::try_from(bytes.as_slice()).unwrap();
        let nowhere: SocketAddr = "[::]:0".parse().unwrap();
        assert_eq!(header.addresses, Addresses::from((client, nowhere)));
    }
}
