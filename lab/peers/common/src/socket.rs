//! The socket of an implementation that does no I/O of its own.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

/// The longest sleep.
const NAP: Duration = Duration::from_millis(100);

/// Receives a datagram if one comes before a connection must be looked at, `wait` from now.
///
/// # Errors
///
/// When the socket fails.
pub fn receive<'a>(
    socket: &UdpSocket,
    wait: Option<Duration>,
    buffer: &'a mut [u8],
) -> io::Result<Option<(&'a mut [u8], SocketAddr)>> {
    let wait = wait.unwrap_or(NAP).clamp(Duration::from_millis(1), NAP);
    socket.set_read_timeout(Some(wait))?;
    match socket.recv_from(buffer) {
        Ok((len, from)) => Ok(Some((&mut buffer[..len], from))),
        Err(error) if is_nothing(error.kind()) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Sends a datagram; if that is not possible now, it is as if it had been lost.
///
/// # Errors
///
/// When the socket fails.
pub fn send(socket: &UdpSocket, datagram: &[u8], to: SocketAddr) -> io::Result<()> {
    match socket.send_to(datagram, to) {
        Err(error) if !is_nothing(error.kind()) => Err(error),
        _ => Ok(()),
    }
}

/// Nothing came, or what went before found nobody.
fn is_nothing(kind: ErrorKind) -> bool {
    use ErrorKind::{ConnectionRefused, Interrupted, TimedOut, WouldBlock};
    matches!(kind, WouldBlock | TimedOut | Interrupted | ConnectionRefused)
}
