//! A stack: one port at the switch for packets, one thread.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use quicket_packets::client::{Parts, Port};
use quicket_packets::{ETHERNET_LEN, Layout};

use crate::connections::Sizes;
use crate::out::Out;
use crate::shared::{Handle, Shared};
use crate::state::Core;

/// The least MTU: what every host takes with IPv6 (RFC 8200, Section 5).
pub const MIN_MTU: usize = 1280;
/// The greatest: that of the longest slots of a port.
pub const MAX_MTU: usize = 16_384 - ETHERNET_LEN;
/// The least buffer of a connection, in octets.
pub const MIN_BUFFER: usize = 4096;
/// The greatest: that of windows that can be said (RFC 7323, Section 2.3) is more than one connection should have.
pub const MAX_BUFFER: usize = 64 << 20;

/// How a stack is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Octets of the longest packet, from [`MIN_MTU`] to [`MAX_MTU`]: 1,500 at first; ports of one host can agree on more. A connection has
    /// shorter ones where the system knows, when it begins, that the way there takes no more. What its other side
    /// says that it takes (MSS) is kept to.
    pub mtu: usize,
    /// Octets that a connection keeps until they are read, from [`MIN_BUFFER`] to [`MAX_BUFFER`]: 256 KiB at first. It is the
    /// greatest window.
    pub receive_buffer: usize,
    /// Octets that a connection keeps until they are acknowledged, from [`MIN_BUFFER`] to [`MAX_BUFFER`]: 256 KiB at first.
    pub send_buffer: usize,
    /// Positions of each ring of the port, a power of two from 16 to 4,096: 1,024 at first.
    pub ring: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self { mtu: 1500, receive_buffer: 256 << 10, send_buffer: 256 << 10, ring: 1024 }
    }
}

impl Options {
    /// # Errors
    ///
    /// `InvalidInput`, with what is wrong.
    fn check(&self) -> io::Result<Layout> {
        let wrong = |text: &str| io::Error::new(ErrorKind::InvalidInput, text);
        if !(MIN_MTU..=MAX_MTU).contains(&self.mtu) {
            return Err(wrong("the MTU of a stack is from 1,280 to 16,370 octets"));
        }
        for buffer in [self.receive_buffer, self.send_buffer] {
            if !(MIN_BUFFER..=MAX_BUFFER).contains(&buffer) {
                return Err(wrong("a buffer of a connection is from 4 KiB to 64 MiB long"));
            }
        }
        let slot = u32::try_from((ETHERNET_LEN + self.mtu).next_multiple_of(64));
        let layout = slot.ok().and_then(|slot| Layout::new(self.ring, self.ring, slot));
        layout.ok_or_else(|| wrong("a ring has 16 to 4,096 positions, a power of two"))
    }
}

/// TCP over a port of its own at the switch for packets.
///
/// Callers that wait drive it, and a thread where there are none (`quicket-tcp`). It goes on until this, its
/// clones, and all listeners and streams are gone, and then
/// until what was written is acknowledged, for a minute at most.
#[derive(Clone, Debug)]
pub struct Stack {
    pub(crate) handle: Arc<Handle>,
}

impl Stack {
    /// Opens a port at the switch that listens at a path.
    ///
    /// # Errors
    ///
    /// Those of [`Port::open`], with what to do; what the system says if no thread can start.
    pub fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        Self::with_options(path, Options::default())
    }

    /// The same with options.
    ///
    /// # Errors
    ///
    /// As [`Stack::open`]; `InvalidInput` if an option is out of its range.
    pub fn with_options(path: impl AsRef<Path>, options: Options) -> io::Result<Self> {
        let layout = options.check()?;
        let path = path.as_ref();
        let port = Port::open(path, layout).map_err(|error| {
            let advice = match error.kind() {
                ErrorKind::NotFound | ErrorKind::ConnectionRefused => {
                    "; quicket switch packets starts one"
                }
                ErrorKind::PermissionDenied => "; it is another user's, without --all-users",
                _ => "",
            };
            let what =
                format!("no switch for packets answers at {}: {error}{advice}", path.display());
            io::Error::new(error.kind(), what)
        })?;
        Self::over(port, options)
    }

    /// The same by a connection to the switch that was handed to this program ([`Port::open_on`]): it has the addresses that were
    /// reserved, and no others. Connections begin from those where nobody listens; there may be many from one, to different
    /// addresses.
    ///
    /// # Errors
    ///
    /// Those of [`Port::open_on`]; `InvalidInput` if an option is out of its range, or no address of TCP is reserved.
    pub fn open_on(control: OwnedFd, options: Options) -> io::Result<Self> {
        let stack = Self::over(Port::open_on(control, options.check()?)?, options)?;
        if stack.reserved().is_empty() {
            let why = "no address of TCP is reserved for this program: quicket switch open --tuple tcp:ADDRESS:PORT does";
            return Err(io::Error::new(ErrorKind::InvalidInput, why));
        }
        Ok(stack)
    }

    /// The addresses of this stack, if they were reserved for it. None if it has those of the host.
    #[must_use]
    pub fn reserved(&self) -> &[SocketAddr] {
        self.shared().reserved()
    }

    fn over(port: Port, options: Options) -> io::Result<Self> {
        let Parts { registrar, bell, sender, receiver } = port.into_parts();
        let Options { mtu, receive_buffer, send_buffer, .. } = options;
        let sizes = Sizes { receive: receive_buffer, send: send_buffer, mtu };
        let core = Core::new(receiver, Out::new(sender), sizes);
        let shared = Arc::new(Shared::new(core, registrar, bell)?);
        let driven = Arc::clone(&shared);
        std::thread::Builder::new().name("quicket-tcp".into()).spawn(move || driven.drive())?;
        Ok(Self { handle: Arc::new(Handle(shared)) })
    }

    /// Waits until all connections are over, TIME-WAIT left out: what was written to streams that are gone has been
    /// acknowledged then, or given up. Returns false if that is not so in some time.
    #[must_use]
    pub fn wait_until_over(&self, time: Duration) -> bool {
        let shared = self.shared();
        let until = Instant::now().checked_add(time);
        let mut core = shared.lock();
        while !core.connections.is_empty() {
            let left = until.map_or(time, |until| until.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                return false;
            }
            let waited = shared.driving.finished.wait_timeout(core, left);
            core = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    /// Whether this stack has an address and port: it listens there, or has connections from there.
    #[must_use]
    pub fn has(&self, address: SocketAddr) -> bool {
        self.shared().lock().connections.owned.has(address)
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.handle.0
    }
}
