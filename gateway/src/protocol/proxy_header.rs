//! What the origin is told of the client: PROXY protocol, version 2 (HAProxy's proxy-protocol.txt).

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ppp::v2::{Builder, Command, Protocol, Type, Version};

/// The header for a stream of a client.
///
/// # Errors
///
/// If a name is too long for it, which TLS does not let through.
pub(super) fn header(
    client: SocketAddr,
    local: Option<SocketAddr>,
    alpn: &[u8],
    name: Option<&str>,
) -> io::Result<Vec<u8>> {
    let (client, local) = same_family(client, local);
    // A stream is what the origin gets. Servers refuse the other word, DGRAM, for QUIC's sake.
    let command = Version::Two | Command::Proxy;
    let builder = Builder::with_addresses(command, Protocol::Stream, (client, local))
        .write_tlv(Type::ALPN, alpn)?;
    match name {
        Some(name) => builder.write_tlv(Type::Authority, name.as_bytes())?.build(),
        None => builder.build(),
    }
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
        let bytes =
            header(at("[::ffff:198.51.100.7]:5000"), Some(local), b"redis", Some("a.example"));
        let bytes = bytes.unwrap();
        let header = Header::try_from(bytes.as_slice()).unwrap();
        assert_eq!(header.addresses, Addresses::from((at("198.51.100.7:5000"), local)));
        let tlvs: Vec<_> = header.tlvs().map(|tlv| tlv.unwrap()).collect();
        assert_eq!((tlvs[0].kind, &*tlvs[0].value), (1, &b"redis"[..]));
        assert_eq!((tlvs[1].kind, &*tlvs[1].value), (2, &b"a.example"[..]));
    }

    #[test]
    fn an_unknown_address_is_none() {
        let client: SocketAddr = "[2001:db8::1]:5000".parse().unwrap();
        let bytes = super::header(client, None, b"x", None).unwrap();
        let header = Header::try_from(bytes.as_slice()).unwrap();
        let nowhere: SocketAddr = "[::]:0".parse().unwrap();
        assert_eq!(header.addresses, Addresses::from((client, nowhere)));
    }
}
