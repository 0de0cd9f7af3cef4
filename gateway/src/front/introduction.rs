//! The PROXY protocol, version 2, by which a balancer in front says who the client is.

use std::io;
use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;
use ppp::v2::{Addresses, Command, Header, PROTOCOL_PREFIX, Protocol};
use tokio::io::{AsyncRead, AsyncReadExt};

/// What comes before the addresses, in bytes.
const MINIMUM_LENGTH: usize = 16;
/// The longest header that is read, in bytes: the addresses and what balancers add, such as a certificate's name.
pub(crate) const MAX_HEADER: usize = 4096;

/// True if connections from this address begin with a header. From others it would not be believed.
pub(crate) fn is_expected(balancers: &[IpNet], peer: IpAddr) -> bool {
    let peer = peer.to_canonical();
    balancers.iter().any(|network| network.contains(&peer))
}

/// Reads the header and nothing behind it; the client's address, if the balancer does not speak for itself.
pub(crate) async fn read<R: AsyncRead + Unpin>(stream: &mut R) -> io::Result<Option<SocketAddr>> {
    let wrong = |what: &str| {
        let what = format!("the balancer sent {what} where a header of PROXY protocol v2 is due");
        io::Error::new(io::ErrorKind::InvalidData, what)
    };
    let mut bytes = vec![0; MINIMUM_LENGTH];
    stream.read_exact(&mut bytes).await?;
    if !bytes.starts_with(PROTOCOL_PREFIX) {
        return Err(wrong("something else"));
    }
    let rest = usize::from(u16::from_be_bytes([bytes[14], bytes[15]]));
    if MINIMUM_LENGTH + rest > MAX_HEADER {
        return Err(wrong("too long a header"));
    }
    bytes.resize(MINIMUM_LENGTH + rest, 0);
    stream.read_exact(&mut bytes[MINIMUM_LENGTH..]).await?;
    let header = Header::try_from(bytes.as_slice()).map_err(|error| wrong(&error.to_string()))?;
    if header.command == Command::Local {
        return Ok(None);
    }
    Ok(match (header.protocol, header.addresses) {
        (Protocol::Stream, Addresses::IPv4(v4)) => Some((v4.source_address, v4.source_port).into()),
        (Protocol::Stream, Addresses::IPv6(v6)) => Some((v6.source_address, v6.source_port).into()),
        _ => return Err(wrong("no address of TCP")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use ppp::v2::{Builder, Version};

    async fn said(bytes: &[u8]) -> io::Result<(Option<SocketAddr>, Vec<u8>)> {
        let mut rest = bytes;
        let client = read(&mut rest).await?;
        Ok((client, rest.to_vec()))
    }

    fn header(command: Command, protocol: Protocol) -> Vec<u8> {
        let addresses: (SocketAddr, SocketAddr) =
            ("192.0.2.1:9".parse().unwrap(), "192.0.2.2:443".parse().unwrap());
        Builder::with_addresses(Version::Two | command, protocol, addresses).build().unwrap()
    }

    #[tokio::test]
    async fn the_client_is_who_the_balancer_says_and_nothing_more_is_read() {
        let proxied = [header(Command::Proxy, Protocol::Stream), b"hello".to_vec()].concat();
        let (client, rest) = said(&proxied).await.unwrap();
        assert_eq!(
            (client, rest.as_slice()),
            (Some("192.0.2.1:9".parse().unwrap()), &b"hello"[..])
        );
        let local = said(&header(Command::Local, Protocol::Stream)).await.unwrap();
        assert_eq!(local.0, None, "the balancer's own check");
    }

    #[tokio::test]
    async fn all_else_is_refused() {
        let mut long = header(Command::Proxy, Protocol::Stream);
        long[14] = 0xff;
        let whole = header(Command::Proxy, Protocol::Stream);
        for wrong in [
            b"GET / HTTP/1.1\r\nHost: a\r\n\r\n".to_vec(),
            b"PROXY TCP4 192.0.2.1 192.0.2.2 9 443\r\n".to_vec(),
            header(Command::Proxy, Protocol::Datagram),
            whole[..20].to_vec(),
            long,
            Vec::new(),
        ] {
            assert!(said(&wrong).await.is_err(), "{}", wrong.escape_ascii());
        }
    }

    #[test]
    fn only_the_networks_of_the_file_are_believed() {
        let networks: Vec<IpNet> = vec!["10.0.0.0/8".parse().unwrap(), "fd00::/8".parse().unwrap()];
        for (peer, expected) in
            [("10.1.2.3", true), ("::ffff:10.1.2.3", true), ("11.0.0.1", false), ("fd00::1", true)]
        {
            assert_eq!(is_expected(&networks, peer.parse().unwrap()), expected, "{peer}");
        }
    }
}
