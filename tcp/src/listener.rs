//! Listeners, as those of `std::net`.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

use crate::shared::Handle;
use crate::stack::Stack;
use crate::stream::TcpStream;
use crate::watch::Watch;

/// Connections that wait to be accepted at most, unless something else is said.
pub const BACKLOG: usize = 128;
/// The most that can be said.
pub const MAX_BACKLOG: usize = 4096;

/// Accepts connections at an address of a stack.
#[derive(Debug)]
pub struct TcpListener {
    handle: Arc<Handle>,
    local: SocketAddr,
    is_nonblocking: AtomicBool,
}

impl TcpListener {
    /// Listens at one address of this host, with [`BACKLOG`]. With port 0, the system chooses one. The address is taken from the
    /// system, too: it has it back when nobody listens and no connection of it is left.
    ///
    /// # Errors
    ///
    /// `AddrInUse` when somebody has it, and what the switch and the system say: see
    /// [`quicket_packets::client::Port::register`].
    pub fn bind(stack: &Stack, address: SocketAddr) -> io::Result<Self> {
        Self::with_backlog(stack, address, BACKLOG)
    }

    /// The same with a number of connections that wait to be accepted, from 1 to [`MAX_BACKLOG`]. Clients beyond that are not
    /// answered, and try again.
    ///
    /// # Errors
    ///
    /// As [`TcpListener::bind`]; `InvalidInput` for another number.
    pub fn with_backlog(stack: &Stack, address: SocketAddr, backlog: usize) -> io::Result<Self> {
        if !(1..=MAX_BACKLOG).contains(&backlog) {
            let text = "a backlog is from 1 to 4,096 connections";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let local = stack.shared().listen(address, backlog)?;
        let handle = Arc::clone(&stack.handle);
        Ok(Self { handle, local, is_nonblocking: AtomicBool::new(false) })
    }

    /// Waits for a connection.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if it is not to wait; otherwise when the switch has gone.
    pub fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        let local = self.local;
        let is_nonblocking = self.is_nonblocking.load(Ordering::Relaxed);
        let time = is_nonblocking.then_some(std::time::Duration::ZERO);
        let id = self.handle.0.block(
            time,
            |core| match core.check() {
                Err(error) => Poll::Ready(Err(error)),
                Ok(()) => {
                    core.connections.accept(local).map_or(Poll::Pending, |id| Poll::Ready(Ok(id)))
                }
            },
            |core, step| core.connections.step(local, step),
        )?;
        let stream = TcpStream::new(Arc::clone(&self.handle), id)?;
        let peer = stream.peer_addr()?;
        Ok((stream, peer))
    }

    /// All connections, one after the other.
    pub fn incoming(&self) -> impl Iterator<Item = io::Result<TcpStream>> {
        std::iter::repeat_with(|| self.accept().map(|(stream, _)| stream))
    }

    /// Where it listens.
    ///
    /// # Errors
    ///
    /// None: it is as in `std::net`.
    pub const fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.local)
    }

    /// Whether [`TcpListener::accept`] fails with `WouldBlock` instead of waiting.
    ///
    /// # Errors
    ///
    /// None: it is as in `std::net`.
    pub fn set_nonblocking(&self, is_nonblocking: bool) -> io::Result<()> {
        self.is_nonblocking.store(is_nonblocking, Ordering::Relaxed);
        Ok(())
    }

    /// Has a watch say `token` whenever there is something to accept, and once at the beginning.
    ///
    /// # Errors
    ///
    /// None but that of a stack that is over.
    pub fn watch(&self, watch: &Watch, token: u64) -> io::Result<()> {
        let watched = watch.watched(token);
        self.handle.0.act(|core| core.connections.watch_listener(self.local, watched))
    }
}

impl Drop for TcpListener {
    fn drop(&mut self) {
        self.handle.0.act(|core| {
            let now = core.now();
            core.connections.listen_no_more(self.local, &mut core.out, now);
        });
    }
}
