//! TCP in user space over a port of the switch for packets, with calls like those of `std::net`.
//!
//! A [`Stack`] is one port and one thread, which goes on where no caller waits; one that does takes frames off the port itself.
//! [`TcpListener`] and [`TcpStream`] are what those of `std::net` are, but that they
//! are of a stack. TCP itself is [smoltcp]'s; what stands in front of it is ours, as it would search all sockets for each
//! segment, keep a socket for each connection in TIME-WAIT, and has no queue of connections to accept. `docs/tcp.md` has the way of a
//! segment, and what is not there.
//!
//! ```no_run
//! use std::io::{Read, Write};
//!
//! use quicket_tcp::{Stack, TcpListener, TcpStream};
//!
//! # fn main() -> std::io::Result<()> {
//! let stack = Stack::open("./ports")?;
//! let listener = TcpListener::bind(&stack, "127.0.0.1:8000".parse().unwrap())?;
//! let mut client = TcpStream::connect(&stack, listener.local_addr()?)?;
//! let (mut server, _) = listener.accept()?;
//! client.write_all(b"hello")?;
//! let mut buffer = [0; 5];
//! server.read_exact(&mut buffer)?;
//! # Ok(())
//! # }
//! ```
//!
//! [smoltcp]: https://docs.rs/smoltcp

mod bed;
mod connection;
mod connections;
mod device;
mod driving;
mod event;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
mod initial;
mod isn;
mod listener;
mod listening;
mod out;
mod owned;
mod screen;
#[cfg(test)]
#[path = "../tests/scripts/mod.rs"]
mod scripts;
mod seat;
mod segment;
mod shared;
mod stack;
mod state;
mod stream;
mod sync;
mod time_wait;
mod timers;
mod watch;
mod way;

pub use connection::{MAX_BURST, ORPHAN_TIME, USER_TIMEOUT};
pub use connections::{HANDSHAKE_TIME, MAX_BUFFERS, MAX_CONNECTIONS, MAX_ORPHANS, MAX_PREPARED};
pub use listener::{BACKLOG, MAX_BACKLOG, TcpListener};
pub use listening::MAX_HALF_OPEN;
pub use owned::MAX_EPHEMERAL;
pub use stack::{MAX_BUFFER, MAX_MTU, MIN_BUFFER, MIN_MTU, Options, Stack};
pub use stream::{CONNECT_TIME, TcpStream};
pub use time_wait::{MAX_TIME_WAIT, TIME_WAIT};
pub use watch::Watch;
