//! The stack as its handles and its thread have it.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::task::Poll;
use std::time::Duration;

use quicket_packets::client::Registrar;
use quicket_packets::{Bell, Tuple};
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::driving::{Driving, Step};
use crate::segment::Ends;
use crate::state::Core;
use crate::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

const TCP: u8 = 6;

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) driving: Driving,
    /// Asked before the core is locked, never after. Whoever waits for its answer has it; the thread does not wait, for either.
    registrar: Mutex<Registrar>,
    /// The addresses that the stack may have, if its connection to the switch was handed to it: sockets of the system prove nothing then.
    reserved: Vec<SocketAddr>,
}

/// What keeps a stack going: its handles, listeners and streams have it.
#[derive(Debug)]
pub(crate) struct Handle(pub(crate) Arc<Shared>);

impl Drop for Handle {
    fn drop(&mut self) {
        self.0.act(|core| core.abandoned = Some(core.now()));
        self.0.driving.rouse();
    }
}

impl Shared {
    pub(crate) fn new(core: Core, registrar: Registrar, bell: Bell) -> io::Result<Self> {
        let reserved = registrar.reserved().iter().filter(|tuple| tuple.protocol == TCP);
        let reserved = reserved.map(|tuple| (tuple.address, tuple.port).into()).collect();
        Ok(Self { driving: Driving::new(core, bell)?, registrar: Mutex::new(registrar), reserved })
    }

    pub(crate) fn reserved(&self) -> &[SocketAddr] {
        &self.reserved
    }

    /// Registers an address: one that is reserved, or one of the system.
    fn register(&self, registrar: &mut Registrar, address: SocketAddr) -> io::Result<SocketAddr> {
        if self.reserved.is_empty() {
            return register(registrar, address);
        }
        let tuple = registrar.claim_one(TCP, address)?;
        Ok((tuple.address, tuple.port).into())
    }

    /// The address from which connections to another one begin.
    fn source(&self, remote: SocketAddr) -> io::Result<IpAddr> {
        if self.reserved.is_empty() {
            return source(remote);
        }
        let mut all = self
            .reserved
            .iter()
            .map(SocketAddr::ip)
            .filter(|own| own.is_ipv4() == remote.is_ipv4());
        // An address of this host alone leads to no other host.
        let fits = |own: &IpAddr| own.is_loopback() == remote.ip().is_loopback();
        let own = all.clone().find(fits).or_else(|| all.next());
        own.ok_or_else(|| ErrorKind::AddrNotAvailable.into())
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Core> {
        self.driving.lock()
    }

    fn registrar(&self) -> MutexGuard<'_, Registrar> {
        self.registrar.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As [`Driving::act`].
    pub(crate) fn act<T>(&self, what: impl FnOnce(&mut Core) -> T) -> T {
        self.driving.act(what)
    }

    /// As [`Driving::block`].
    ///
    /// # Errors
    ///
    /// As there.
    pub(crate) fn block<T>(
        &self,
        time: Option<Duration>,
        attempt: impl FnMut(&mut Core) -> Poll<io::Result<T>>,
        sleeper: impl FnMut(&mut Core, Step) -> io::Result<Arc<Condvar>>,
    ) -> io::Result<T> {
        self.driving.block(time, attempt, sleeper)
    }

    /// Registers an address to listen at.
    pub(crate) fn listen(&self, address: SocketAddr, backlog: usize) -> io::Result<SocketAddr> {
        let address = plain(address)?;
        let mut registrar = self.registrar();
        self.give_back(&mut registrar);
        let mut core = self.lock();
        core.check()?;
        // What has just been left may not be given back yet.
        let owned = &mut core.connections.owned;
        let address = if owned.has(address) || owned.reclaim(address) {
            address
        } else {
            drop(core);
            let address = self.register(&mut registrar, address)?;
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
        let ip = known.map_or_else(|| self.source(remote), Ok)?;
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
        let local = match self.register(&mut registrar, (ip, 0).into()) {
            Ok(local) => local,
            // All that is reserved is this stack's already: several connections begin from one.
            Err(error) if !self.reserved.is_empty() => {
                return self.act(|core| {
                    let now = core.now();
                    let connections = &core.connections;
                    let is_free = |local| connections.is_free(&Ends { local, remote }, true, now);
                    match connections.owned.choose_among(ip, is_free)? {
                        Some(local) => begin(core, Ends { local, remote }),
                        None => Err(error),
                    }
                });
            }
            Err(error) => return Err(error),
        };
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
        self.driving.drive(|| {
            // Who registers something meanwhile does that, too.
            if let Ok(mut registrar) = self.registrar.try_lock() {
                self.start_giving_back(&mut registrar);
            }
        });
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

#[cfg(test)]
#[path = "shared_tests.rs"]
mod tests;
