//! For tests of crates that have clerks.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::mpsc::channel;
use std::time::Duration;

use rustix::net::sockopt;

use crate::{Clerk, Count};

impl<T> Clerk<T> {
    /// One that does not get on with what it has, which so many others have handed over.
    #[must_use]
    pub fn stuck(waiting: usize) -> Self {
        let [held, waiting] = [waiting; 2].map(AtomicUsize::new);
        Self { jobs: channel().0, count: Arc::new(Count { held, waiting }) }
    }
}

/// A connection of TCP that waits for a minute when it is closed, as long as the other end is there.
///
/// # Panics
///
/// Where there is no loopback device.
#[must_use]
pub fn lingering() -> (OwnedFd, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a socket");
    let mut one =
        TcpStream::connect(listener.local_addr().expect("its address")).expect("a socket");
    let (other, _) = listener.accept().expect("a connection");
    one.set_nonblocking(true).expect("a socket");
    while one.write(&[7; 65536]).is_ok() {}
    sockopt::set_socket_linger(&one, Some(Duration::from_secs(60))).expect("a socket");
    (one.into(), other)
}
