//! Addresses as C has them.

use std::ffi::c_int;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ptr;

use quicket_packets::Tuple;

/// Writes something where the caller wants it, if he does.
///
/// # Safety
///
/// It is null, or there is room for one.
pub(crate) unsafe fn put<T>(to: *mut T, what: T) {
    if !to.is_null() {
        // SAFETY: as the caller says.
        unsafe { to.write(what) };
    }
}

/// The tuple of a protocol and an address.
///
/// # Safety
///
/// The address is null, or there are `len` octets.
pub(crate) unsafe fn tuple_of(
    protocol: c_int,
    address: *const libc::sockaddr,
    len: libc::socklen_t,
) -> io::Result<Tuple> {
    let protocol = u8::try_from(protocol).map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: as the caller says.
    let address = unsafe { address_of(address, len) }.ok_or(io::ErrorKind::InvalidInput)?;
    let has_ports = matches!(c_int::from(protocol), libc::IPPROTO_TCP | libc::IPPROTO_UDP);
    let port = if has_ports { address.port() } else { 0 };
    Ok(Tuple { address: address.ip().to_canonical(), protocol, port })
}

/// An address as C has it; none if it is none of IP, or cut off.
///
/// # Safety
///
/// It is null, or there are `len` octets.
unsafe fn address_of(address: *const libc::sockaddr, len: libc::socklen_t) -> Option<SocketAddr> {
    let len = len as usize;
    if address.is_null() || len < size_of::<libc::sa_family_t>() {
        return None;
    }
    // SAFETY: the family is at the beginning, and there; it need not be aligned.
    let family = unsafe { ptr::read_unaligned(address.cast::<libc::sa_family_t>()) };
    if c_int::from(family) == libc::AF_INET && len >= size_of::<libc::sockaddr_in>() {
        // SAFETY: there are as many octets, and any of them are such a structure; it need not be aligned.
        let v4 = unsafe { ptr::read_unaligned(address.cast::<libc::sockaddr_in>()) };
        let ip = Ipv4Addr::from_bits(u32::from_be(v4.sin_addr.s_addr));
        return Some((ip, u16::from_be(v4.sin_port)).into());
    }
    if c_int::from(family) == libc::AF_INET6 && len >= size_of::<libc::sockaddr_in6>() {
        // SAFETY: as before.
        let v6 = unsafe { ptr::read_unaligned(address.cast::<libc::sockaddr_in6>()) };
        let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
        return Some((ip, u16::from_be(v6.sin6_port)).into());
    }
    None
}

/// The address of a tuple.
pub(crate) fn storage(tuple: &Tuple) -> libc::sockaddr_storage {
    of_ip(tuple.address, tuple.port)
}

pub(crate) fn of_ip(ip: IpAddr, port: u16) -> libc::sockaddr_storage {
    // SAFETY: numbers, for which zero is a value.
    let mut storage: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
    let place = (&raw mut storage).cast::<libc::sockaddr>();
    match ip {
        IpAddr::V4(ip) => {
            let v4 = libc::sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: port.to_be(),
                sin_addr: libc::in_addr { s_addr: ip.to_bits().to_be() },
                sin_zero: [0; 8],
            };
            // SAFETY: there is room for any address, and alignment for each.
            unsafe { place.cast::<libc::sockaddr_in>().write(v4) };
        }
        IpAddr::V6(ip) => {
            let v6 = libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: port.to_be(),
                sin6_flowinfo: 0,
                sin6_addr: libc::in6_addr { s6_addr: ip.octets() },
                sin6_scope_id: 0,
            };
            // SAFETY: as above.
            unsafe { place.cast::<libc::sockaddr_in6>().write(v6) };
        }
    }
    storage
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_they_are_written() {
        for (address, protocol, port) in
            [("192.0.2.1", 6, 80), ("2001:db8::1", 17, 53), ("192.0.2.1", 47, 0)]
        {
            let tuple = Tuple { address: address.parse().unwrap(), protocol, port };
            let storage = storage(&tuple);
            let len = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
            // SAFETY: as many octets.
            let read = unsafe { tuple_of(protocol.into(), (&raw const storage).cast(), len) };
            assert_eq!(read.unwrap(), tuple);
        }
        // SAFETY: nothing is read.
        assert!(unsafe { tuple_of(300, ptr::null(), 0) }.is_err());
    }
}
