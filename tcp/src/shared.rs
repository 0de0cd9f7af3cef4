//! The stack as its handles and its thread have it.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::{Duration, Instant};

use quicket_packets::client::Registrar;
use quicket_packets::{Bell, Tuple};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::connections::Wake;
use crate::segment::Ends;
use crate::state::Core;

const TCP: u8 = 6;
/// How soon it is looked again whether addresses can be given back.
const SURPLUS_TIME: Duration = Duration::from_millis(1);
/// How long the thread goes on after its last handle has gone, so that what was written still leaves.
const LINGER: smoltcp::time::Duration = smoltcp::time::Duration::from_secs(60);

#[derive(Debug)]
pub(crate) struct Shared {
    core: Mutex<Core>,
    /// Asked before the core is locked, never after. Whoever waits for its answer has it; the thread does not wait, for either.
    registrar: Mutex<Registrar>,
    bell: Bell,
    /// Readable when the thread is to wake up (eventfd).
    interrupt: OwnedFd,
    /// All connections are over: who waits for that.
    pub(crate) finished: Condvar,
}

/// What keeps a stack going: its handles, listeners and streams have it.
#[derive(Debug)]
pub(crate) struct Handle(pub(crate) Arc<Shared>);

impl Drop for Handle {
    fn drop(&mut self) {
        self.0.act(|core| core.abandoned = Some(core.now()));
        self.0.interrupt();
    }
}

impl Shared {
    pub(crate) fn new(core: Core, registrar: Registrar, bell: Bell) -> io::Result<Self> {
        use rustix::event::{EventfdFlags, eventfd};
        Ok(Self {
            core: Mutex::new(core),
            registrar: Mutex::new(registrar),
            bell,
            interrupt: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            finished: Condvar::new(),
        })
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Core> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn registrar(&self) -> MutexGuard<'_, Registrar> {
        self.registrar.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something with the core, and what comes of it: sends, wakes.
    pub(crate) fn act<T>(&self, what: impl FnOnce(&mut Core) -> T) -> T {
        let mut core = self.lock();
        let result = what(&mut core);
        self.leave(core);
        result
    }

    /// Unlocks the core, and then rings and wakes.
    fn leave(&self, mut core: MutexGuard<'_, Core>) {
        let must_ring = core.out.flush();
        let must_interrupt = core.must_interrupt();
        let woken = std::mem::take(&mut core.connections.woken);
        let is_finished = core.connections.is_empty();
        drop(core);
        if must_ring {
            // Of a switch that has gone, the thread hears.
            let _ = self.bell.ring();
        }
        if must_interrupt {
            self.interrupt();
        }
        woken.into_iter().for_each(Wake::wake);
        if is_finished {
            self.finished.notify_all();
        }
    }

    fn interrupt(&self) {
        // It fails where it is full, and then the thread wakes up anyway.
        let _ = rustix::io::write(&self.interrupt, &1_u64.to_ne_bytes());
    }

    /// Tries something until it is done, and sleeps in between, for some time at most. `sleeper` says on what, and counts who
    /// sleeps there: with 1 before it, and with -1 after it.
    ///
    /// # Errors
    ///
    /// `WouldBlock` when the time is over.
    pub(crate) fn block<T>(
        &self,
        time: Option<Duration>,
        mut attempt: impl FnMut(&mut Core) -> Poll<io::Result<T>>,
        mut sleeper: impl FnMut(&mut Core, i32) -> io::Result<Arc<Condvar>>,
    ) -> io::Result<T> {
        let until = time.and_then(|time| Instant::now().checked_add(time));
        let mut core = self.lock();
        loop {
            if let Poll::Ready(result) = attempt(&mut core) {
                self.leave(core);
                return result;
            }
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                return Err(ErrorKind::WouldBlock.into());
            }
            let changed = sleeper(&mut core, 1)?;
            core = match left {
                Some(left) => {
                    changed.wait_timeout(core, left).unwrap_or_else(PoisonError::into_inner).0
                }
                None => changed.wait(core).unwrap_or_else(PoisonError::into_inner),
            };
            sleeper(&mut core, -1)?;
        }
    }

    /// Registers an address to listen at.
    pub(crate) fn listen(&self, address: SocketAddr, backlog: usize) -> io::Result<SocketAddr> {
        let address = plain(address)?;
        let mut registrar = self.registrar();
        self.give_back(&mut registrar);
        let mut core = self.lock();
        core.check()?;
        let address = if core.connections.owned.has(address) {
            address
        } else {
            drop(core);
            let address = register(&mut registrar, address)?;
            core = self.lock();
            address
        };
        if !core.connections.owned.listen(address) {
            return Err(ErrorKind::AddrInUse.into());
        }
        core.connections.listen(address, backlog);
        drop(core);
        self.give_back(&mut registrar);
        Ok(address)
    }

    /// Begins a connection: says which.
    pub(crate) fn connect(&self, remote: SocketAddr) -> io::Result<usize> {
        let remote = plain(remote)?;
        let known = self.lock().source(remote.ip());
        let ip = known.map_or_else(|| source(remote), Ok)?;
        let chosen = self.act(|core| {
            core.check()?;
            core.remember_source(remote.ip(), ip);
            match choose(core, ip, remote)? {
                Some(local) => begin(core, Ends { local, remote }).map(Some),
                None => Ok(None),
            }
        })?;
        if let Some(id) = chosen {
            return Ok(id);
        }
        let mut registrar = self.registrar();
        self.give_back(&mut registrar);
        let local = register(&mut registrar, (ip, 0).into())?;
        self.act(|core| {
            core.connections.owned.add_ephemeral(local);
            begin(core, Ends { local, remote })
        })
    }

    /// Gives the system back what nobody uses any more, and waits until the switch has done so.
    fn give_back(&self, registrar: &mut Registrar) {
        // What the thread has asked for is done then, too.
        if let Err(error) = registrar.settle() {
            log::debug!("addresses are not given back: {error}");
        }
        let surplus = self.lock().take_surplus();
        for address in surplus {
            let tuple = tuple(address);
            if let Err(error) = registrar.remove(tuple) {
                log::debug!("{tuple} is not given back: {error}");
            }
        }
    }

    /// The same without waiting, by the thread, for whom all connections would wait. What the switch does not take now is given
    /// back later.
    fn start_giving_back(&self, registrar: &mut Registrar) {
        let mut surplus = self.lock().take_surplus().into_iter();
        while let Some(address) = surplus.next() {
            let tuple = tuple(address);
            match registrar.start_removal(tuple) {
                Ok(true) => {}
                Ok(false) => {
                    let rest = std::iter::once(address).chain(surplus);
                    return self.lock().connections.owned.return_surplus(rest);
                }
                Err(error) => log::debug!("{tuple} is not given back: {error}"),
            }
        }
    }

    /// What the stack's thread does.
    pub(crate) fn drive(&self) {
        // Without this thread, nobody who waits would be woken.
        let _end = End(self);
        loop {
            let mut core = self.lock();
            let has_more = core.turn();
            let is_finished = core.connections.is_empty();
            if is_finished {
                self.finished.notify_all();
            }
            if let Some(since) = core.abandoned
                && (is_finished || core.now() > since + LINGER)
            {
                let now = core.now();
                let Core { connections, out, .. } = &mut *core;
                connections.abort_all(out, now);
                self.leave(core);
                return;
            }
            if core.is_over() {
                self.leave(core);
                return;
            }
            let has_surplus = core.connections.owned.has_surplus();
            // Published before the switch is told that this side sleeps, so that an answer wakes it.
            let must_ring = core.out.flush();
            let sleep = if has_more { None } else { core.fall_asleep() };
            let woken = std::mem::take(&mut core.connections.woken);
            drop(core);
            if must_ring {
                let _ = self.bell.ring();
            }
            woken.into_iter().for_each(Wake::wake);
            // Who registers something meanwhile does that, too.
            if has_surplus && let Ok(mut registrar) = self.registrar.try_lock() {
                self.start_giving_back(&mut registrar);
            }
            if let Some(time) = sleep {
                // What is not given back yet is so soon.
                let most = has_surplus.then_some(SURPLUS_TIME);
                self.sleep(time.into_iter().chain(most).min());
            }
            let is_gone = self.bell.hush().is_err();
            let mut core = self.lock();
            core.wake();
            if is_gone {
                core.fail(ErrorKind::ConnectionReset);
            }
        }
    }

    /// Sleeps until the bell rings, or somebody interrupts, or the time is over.
    fn sleep(&self, time: Option<Duration>) {
        let time = time.map(|time| Timespec {
            tv_sec: time.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: time.subsec_nanos().into(),
        });
        let bell = self.bell.as_fd();
        let mut both =
            [PollFd::new(&bell, PollFlags::IN), PollFd::new(&self.interrupt, PollFlags::IN)];
        match poll(&mut both, time.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => log::warn!("the thread of a TCP stack cannot sleep: {error}"),
        }
        let _ = rustix::io::read(&self.interrupt, &mut [0; 8]);
    }
}

/// Ends the stack if its thread panics.
struct End<'a>(&'a Shared);

impl Drop for End<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.act(|core| core.fail(ErrorKind::Other));
        }
    }
}

fn choose(core: &Core, ip: IpAddr, remote: SocketAddr) -> io::Result<Option<SocketAddr>> {
    let now = core.now();
    let connections = &core.connections;
    let choose = |may_reopen| {
        let is_free = |local| connections.is_free(&Ends { local, remote }, may_reopen, now);
        connections.owned.choose(ip, is_free)
    };
    choose(false).or_else(|_| choose(true))
}

fn begin(core: &mut Core, ends: Ends) -> io::Result<usize> {
    let now = core.now();
    core.connections.connect(ends, &mut core.out, now)
}

/// An address without what segments do not tell.
fn plain(address: SocketAddr) -> io::Result<SocketAddr> {
    if let SocketAddr::V6(v6) = address {
        let ip = v6.ip();
        if ip.is_unicast_link_local() || ip.to_ipv4_mapped().is_some() {
            let text = "a stack has no addresses of one link (fe80::/10), and those of IPv4 only in their own form";
            return Err(io::Error::new(ErrorKind::InvalidInput, text));
        }
    }
    Ok((address.ip(), address.port()).into())
}

/// An address as the switch knows it.
const fn tuple(address: SocketAddr) -> Tuple {
    Tuple { address: address.ip(), protocol: TCP, port: address.port() }
}

/// The address from which the system would send.
fn source(remote: SocketAddr) -> io::Result<IpAddr> {
    let any = if remote.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = UdpSocket::bind(any)?;
    socket.connect(remote)?;
    Ok(socket.local_addr()?.ip())
}

/// Has the switch register an address, which a socket of the system proves.
fn register(registrar: &mut Registrar, address: SocketAddr) -> io::Result<SocketAddr> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    rustix::net::bind(&socket, &address)?;
    let tuple = registrar.register(&socket)?;
    Ok((tuple.address, tuple.port).into())
}
