//! A listener of TCP.

use std::io;
use std::net::SocketAddr;

use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::TcpListener;

/// How many TCP connections may wait to be taken.
const BACKLOG: i32 = 1024;

/// Binds a listener. `only_v6` leaves the addresses of IPv4 to others (RFC 3493, Section 5.3), where the address is one
/// of IPv6.
///
/// # Errors
///
/// If the address cannot be had.
pub fn listen(address: SocketAddr, only_v6: bool) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(only_v6)?;
    }
    // What lingers of connections of the process before is no reason to refuse.
    #[cfg(unix)]
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}
