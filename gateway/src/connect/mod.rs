//! The client's half of private protocols: a local socket, or standard input and output, carried over QUIC.
//!
//! `dial` makes connections, `keep` makes another when one ends. `listen` has local connections that become
//! streams, `packets` local packets that become datagrams, `pipe` standard input and output as one stream.

mod dial;
mod event;
mod keep;
mod listen;
mod packets;
mod pipe;

use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::path::PathBuf;

use tokio::net::{TcpListener, UdpSocket};

pub use self::dial::Server;
pub use self::event::{Error, Event, Say};
use crate::carry::code;

/// How much is read from a local socket at once, in bytes.
const PIECE: usize = 64 << 10;

/// Where it is carried from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Local {
    /// Standard input and output are one stream.
    Standard,
    /// Each TCP connection to this address is a stream.
    Tcp(SocketAddr),
    /// Each connection to this Unix socket is a stream.
    Unix(PathBuf),
    /// Packets to this UDP address are datagrams: each sender has a connection of its own.
    Udp(SocketAddr),
}

impl std::str::FromStr for Local {
    type Err = String;

    /// Reads `-`, `tcp:ADDR:PORT`, `unix:PATH` or `udp:ADDR:PORT`.
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("{text:?} is none of -, tcp:127.0.0.1:6379, unix:/PATH, udp:127.0.0.1:5000");
        let at = |address: &str| address.parse().map_err(|_| wrong());
        match text.split_once(':') {
            None if text == "-" => Ok(Self::Standard),
            Some(("tcp", address)) => at(address).map(Self::Tcp),
            Some(("udp", address)) => at(address).map(Self::Udp),
            Some(("unix", path)) if !path.is_empty() => Ok(Self::Unix(path.into())),
            _ => Err(wrong()),
        }
    }
}

impl fmt::Display for Local {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Standard => f.write_str("standard input and output"),
            Self::Tcp(at) => write!(f, "{at} (TCP)"),
            Self::Unix(path) => write!(f, "{}", path.display()),
            Self::Udp(at) => write!(f, "{at} (UDP)"),
        }
    }
}

/// Carries until `stop` is ready; standard input and output until both have ended.
///
/// Whoever is told `say` hears of connections that come and go. A connection that ends is made anew, after
/// waits that grow up to 30 seconds, for as long as it takes; the first one has to come about.
///
/// # Errors
///
/// If the local socket cannot be had, the first connection does not come about, or the only stream breaks.
pub async fn run(
    server: Server,
    local: Local,
    say: Say,
    stop: impl Future<Output = ()>,
) -> Result<(), Error> {
    let refused = |error| Error::Local(local.clone(), error);
    match &local {
        Local::Standard => pipe::run(&server, &say, stop).await,
        Local::Tcp(at) => {
            let listener = TcpListener::bind(at).await.map_err(refused)?;
            let at = listener.local_addr().map_err(refused)?;
            listen::run(listen::Listener::Tcp(listener), &Local::Tcp(at), server, say, stop).await
        }
        Local::Unix(path) => {
            let listener = listen::Listener::unix(path).await.map_err(refused)?;
            listen::run(listener, &local, server, say, stop).await
        }
        Local::Udp(at) => {
            let socket = UdpSocket::bind(at).await.map_err(refused)?;
            let at = socket.local_addr().map_err(refused)?;
            packets::run(socket, &Local::Udp(at), server, say, stop).await
        }
    }
}

/// What a code of a gateway means; `None` if it is one of the application's own.
pub const fn meaning(code: u64) -> Option<&'static str> {
    code::meaning(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_sides_are_read() {
        let read = |text: &str| text.parse::<Local>();
        assert_eq!(read("-"), Ok(Local::Standard));
        assert_eq!(read("tcp:[::1]:80"), Ok(Local::Tcp("[::1]:80".parse().unwrap())));
        assert_eq!(read("udp:127.0.0.1:0"), Ok(Local::Udp("127.0.0.1:0".parse().unwrap())));
        assert_eq!(read("unix:a"), Ok(Local::Unix("a".into())));
        for wrong in ["", "tcp", "tcp:80", "unix:", "http:a", "--"] {
            assert!(read(wrong).is_err(), "{wrong:?}");
        }
    }
}
