//! An impaired link between real sockets: a forwarder in user space that does to datagrams what a
//! [`Scenario`] says, the same that drives the simulation.
//!
//! ```text
//! client ──▶ listen [ up: from clients ] outside ──▶ server
//!        ◀──        [ down: to them    ]         ◀──
//! ```
//!
//! Each client gets a socket of its own on the outside, as from a NAT; a rebinding gives it
//! another. The two sides may be in different network namespaces, which need no other connection.
//!
//! The times of a scenario count from the first datagram of a client. A datagram's delay counts
//! from its arrival in the kernel, so that the forwarder's own slowness is no part of it as long
//! as it is not slower than the scenario; how late datagrams leave is measured and reported.

mod arguments;
mod capture;
mod clock;
mod delay_error;
pub(crate) mod direction;
mod forwarder;
mod measure;
pub(crate) mod namespace;
mod nat;
mod report;
mod socket;
#[cfg(test)]
mod tests;

use std::fmt;
use std::io::{self, PipeWriter};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::thread::JoinHandle;
use std::time::Duration;

use quicket_sim::nat::Rebind;
use quicket_sim::scenario::Scenario;

pub use arguments::LinkArguments;
pub(crate) use arguments::run;
pub use delay_error::DelayError;
pub use report::{NatReport, Report, WayReport};

use forwarder::Forwarder;
use nat::Wish;

/// Most bytes of datagrams on their way unless told otherwise, in each direction: what a
/// geostationary satellite holds at 6 Gbit/s.
const MEMORY: usize = 256 << 20;

/// A link to lay.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where clients send to; port 0 takes a free one.
    pub listen: SocketAddr,
    /// The server.
    pub to: SocketAddr,
    /// More places that clients send to, each with the address of the server that it reaches: one
    /// that the server prefers, say (RFC 9000, Section 9.6).
    pub also: Vec<(SocketAddr, SocketAddr)>,
    /// What the link does.
    pub scenario: Scenario,
    /// Where chance starts from: equal seeds make equal decisions for equal datagrams.
    pub seed: u64,
    /// Addresses to reach the server from, the first first; each rebinding of the address takes
    /// the next. When empty, the address is the system's choice, or one of 127.64.0.0/16 after a
    /// rebinding if the server is on the IPv4 loopback.
    pub outside: Vec<IpAddr>,
    /// Network namespace to listen in, as `ip netns` names it; this process's own if `None`.
    pub listen_in: Option<String>,
    /// Network namespace to reach the server in; this process's own if `None`.
    pub send_in: Option<String>,
    /// Waits shorter than this are spent looking at the clock: less delay error for more CPU time.
    pub spin: Duration,
    /// Most bytes of datagrams on their way in each direction; more are dropped and counted.
    pub memory: usize,
    /// Folder for captures of what passes on both sides: `client.pcap` and `server.pcap`.
    pub capture: Option<PathBuf>,
    /// How many bytes to keep in captures of datagrams with short headers; all if `None`.
    pub snap: Option<usize>,
}

impl Options {
    /// A link from a free port of the IPv4 loopback.
    #[must_use]
    pub fn new(to: SocketAddr, scenario: Scenario) -> Self {
        Self {
            listen: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0),
            to,
            also: Vec::new(),
            scenario,
            seed: 1,
            outside: Vec::new(),
            listen_in: None,
            send_in: None,
            spin: Duration::ZERO,
            memory: MEMORY,
            capture: None,
            snap: None,
        }
    }
}

/// A link that carries datagrams on a thread of its own until it is finished or dropped.
#[derive(Debug)]
pub struct RunningLink {
    addresses: Vec<SocketAddr>,
    wish: Wish,
    /// The thread ends when this is closed.
    stop: Option<PipeWriter>,
    thread: Option<JoinHandle<Result<Report, LinkError>>>,
}

impl RunningLink {
    /// Lays a link.
    ///
    /// # Errors
    ///
    /// When the options make no sense or a socket cannot be made; the message says what to do.
    pub fn start(options: &Options) -> Result<Self, LinkError> {
        let mut forwarder = Forwarder::new(options)?;
        let (addresses, wish) = (forwarder.addresses(), forwarder.wish());
        let (until, stop) =
            io::pipe().map_err(|error| LinkError::system("cannot make a pipe", error))?;
        let thread = std::thread::Builder::new()
            .name("link".to_owned())
            .spawn(move || {
                forwarder.run(Some(until.as_fd()), None)?;
                Ok(forwarder.report())
            })
            .map_err(|error| LinkError::system("cannot start a thread", error))?;
        Ok(Self { addresses, wish, stop: Some(stop), thread: Some(thread) })
    }

    /// Where clients send to.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.addresses[0]
    }

    /// All that clients may send to: [`Options::listen`], then those of [`Options::also`].
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Rebinds with the next datagram of a client, beside what the scenario says. An address needs
    /// what a scenario that rebinds it needs, see [`Options::outside`].
    pub fn rebind(&self, rebind: Rebind) {
        self.wish.set(rebind);
    }

    /// Ends the link and says what it did. Datagrams on their way are lost.
    ///
    /// # Errors
    ///
    /// When the link could not go on.
    pub fn finish(mut self) -> Result<Report, LinkError> {
        self.stop = None;
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(result)) => result,
            _ => Err(LinkError("the link's thread has panicked".to_owned())),
        }
    }
}

impl Drop for RunningLink {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // What it has to say interests nobody any more.
            let _ = thread.join();
        }
    }
}

/// Why there is no link, in a sentence that says what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkError(String);

impl LinkError {
    fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }

    fn system(what: impl fmt::Display, error: impl fmt::Display) -> Self {
        Self(format!("{what}: {error}"))
    }
}

impl fmt::Display for LinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for LinkError {}
