//! Socket addresses in the program's memory.

use std::ffi::c_int;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use crate::memory::Memory;
use crate::native::Result;

/// The size of a `struct sockaddr_in`.
const V4_SIZE: usize = 16;
/// What is enough of a `struct sockaddr_in6`: its scope came later.
const V6_ENOUGH: usize = 24;
/// The most that any address takes.
const MAX_SIZE: usize = 128;

/// An address as a program gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Given {
    Address(SocketAddr),
    /// AF_UNSPEC.
    Unspecified,
}

/// Reads an address.
pub(crate) fn read(memory: &mut Memory, address: usize, len: u32) -> Result<Given> {
    let len = usize::try_from(len).ok().filter(|len| *len <= MAX_SIZE).ok_or(libc::EINVAL)?;
    parse(&memory.bytes(address, len)?)
}

fn parse(bytes: &[u8]) -> Result<Given> {
    let family = bytes.first_chunk().map(|bytes| u16::from_ne_bytes(*bytes)).ok_or(libc::EINVAL)?;
    let port = || bytes.get(2..4)?.first_chunk().map(|bytes| u16::from_be_bytes(*bytes));
    match c_int::from(family) {
        libc::AF_UNSPEC => Ok(Given::Unspecified),
        libc::AF_INET if bytes.len() >= V4_SIZE => {
            let ip = bytes.get(4..).and_then(|rest| rest.first_chunk::<4>());
            let ip = Ipv4Addr::from(*ip.ok_or(libc::EINVAL)?);
            Ok(Given::Address(SocketAddr::new(ip.into(), port().ok_or(libc::EINVAL)?)))
        }
        libc::AF_INET6 if bytes.len() >= V6_ENOUGH => {
            let ip = bytes.get(8..).and_then(|rest| rest.first_chunk::<16>());
            let ip = Ipv6Addr::from(*ip.ok_or(libc::EINVAL)?);
            let scope = bytes.get(24..).and_then(|rest| rest.first_chunk::<4>());
            let scope = scope.map_or(0, |bytes| u32::from_ne_bytes(*bytes));
            let address = SocketAddrV6::new(ip, port().ok_or(libc::EINVAL)?, 0, scope);
            Ok(Given::Address(SocketAddr::V6(address)))
        }
        libc::AF_INET | libc::AF_INET6 => Err(libc::EINVAL),
        _ => Err(libc::EAFNOSUPPORT),
    }
}

/// An address as it lies in memory. Those of IPv4 are never mapped ones, whatever the family of
/// the socket: so it is in the kernel's module.
fn encode(address: SocketAddr) -> Vec<u8> {
    let port = address.port().to_be_bytes();
    match (address, address.ip().to_canonical()) {
        (_, IpAddr::V4(ip)) => {
            let family = (libc::AF_INET as u16).to_ne_bytes();
            let mut bytes = [&family[..], &port, &ip.octets()].concat();
            bytes.resize(V4_SIZE, 0);
            bytes
        }
        (address, IpAddr::V6(ip)) => {
            let family = (libc::AF_INET6 as u16).to_ne_bytes();
            let scope = match address {
                SocketAddr::V6(v6) => v6.scope_id(),
                SocketAddr::V4(_) => 0,
            };
            [&family[..], &port, &[0; 4], &ip.octets(), &scope.to_ne_bytes()].concat()
        }
    }
}

/// Puts an address where the program has room for some of it, and its whole length beside it.
pub(crate) fn write(
    memory: &mut Memory,
    address: SocketAddr,
    to: usize,
    len_at: usize,
) -> Result<()> {
    let room = memory.value::<i32>(len_at)?;
    let room = usize::try_from(room).map_err(|_| libc::EINVAL)?;
    let bytes = encode(address);
    memory.put_bytes(to, bytes.get(..room.min(bytes.len())).unwrap_or_default())?;
    memory.put(len_at, bytes.len() as i32)
}

/// The unspecified address of a family.
pub(crate) fn unspecified(is_v6: bool) -> SocketAddr {
    let ip: IpAddr =
        if is_v6 { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
    SocketAddr::new(ip, 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_survive_their_encoding() {
        for (text, size) in
            [("127.0.0.1:8080", V4_SIZE), ("[::1]:443", 28), ("[fe80::1%7]:443", 28)]
        {
            let address: SocketAddr = text.parse().unwrap();
            let bytes = encode(address);
            assert_eq!(bytes.len(), size);
            assert_eq!(parse(&bytes), Ok(Given::Address(address)));
        }
        let mapped = encode("[::ffff:192.0.2.1]:1".parse().unwrap());
        assert_eq!(parse(&mapped), Ok(Given::Address("192.0.2.1:1".parse().unwrap())));
    }

    #[test]
    fn what_is_no_address_is_refused() {
        assert_eq!(parse(&[0, 0]), Ok(Given::Unspecified));
        assert_eq!(parse(&[]), Err(libc::EINVAL));
        assert_eq!(parse(&[2, 0, 1, 1, 127, 0, 0, 1]), Err(libc::EINVAL));
        assert_eq!(parse(&[1, 0, 1, 1]), Err(libc::EAFNOSUPPORT));
    }

    #[test]
    fn an_address_is_cut_to_the_room_and_its_length_is_not() {
        let mut place = [0xffu8; 8];
        let mut len = 4i32;
        let (to, len_at) = (place.as_mut_ptr() as usize, (&raw mut len) as usize);
        let address = "127.0.0.1:258".parse().unwrap();
        write(&mut Memory::of_test(), address, to, len_at).unwrap();
        assert_eq!((place, len), ([2, 0, 1, 2, 0xff, 0xff, 0xff, 0xff], 16));
        len = -1;
        assert_eq!(write(&mut Memory::of_test(), address, to, len_at), Err(libc::EINVAL));
        assert_eq!(len, -1);
    }
}
