//! socket, bind, listen, accept, connect, shutdown.

use std::ffi::c_int;
use std::sync::OnceLock;
use std::sync::atomic::Ordering;

use quicket::SwitchConfig;
use quicket::message::{Shutdown, Socket};

use super::{number, unless_interrupted};
use crate::address::{self, Given};
use crate::constants::IPPROTO_QUIC;
use crate::entry::Entry;
use crate::fork;
use crate::memory::Memory;
use crate::native::Result;
use crate::table;

const TYPE_FLAGS: c_int = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;

/// socket(2).
pub(crate) fn socket(domain: c_int, kind: c_int, protocol: c_int) -> Result<c_int> {
    if protocol != IPPROTO_QUIC {
        return Err(libc::EPROTONOSUPPORT);
    }
    let is_v6 = match domain {
        libc::AF_INET => false,
        libc::AF_INET6 => true,
        _ => return Err(libc::EAFNOSUPPORT),
    };
    let (kind, flags) = (kind & !TYPE_FLAGS, kind & TYPE_FLAGS);
    if !matches!(kind, libc::SOCK_STREAM | libc::SOCK_DGRAM) {
        return Err(if (0..=10).contains(&kind) { libc::ESOCKTNOSUPPORT } else { libc::EINVAL });
    }
    fork::prepare();
    let socket = if is_v6 { Socket::new_v6() } else { Socket::new_v4() };
    if let Some(switch) = shared() {
        socket.set_switch(switch).map_err(|error| {
            log::error!(
                "no QUIC sockets: {} is longer than 64 bytes, or not printable",
                SwitchConfig::LISTENERS_VARIABLE
            );
            number(error)
        })?;
    }
    Entry::open(socket, is_v6, kind, flags)
}

/// That listeners share their addresses, if the environment says so. It is looked at once: other
/// threads of the program may change it later.
fn shared() -> Option<SwitchConfig> {
    static SHARED: OnceLock<Option<SwitchConfig>> = OnceLock::new();
    SHARED.get_or_init(SwitchConfig::from_env).clone()
}

/// bind(2).
pub(crate) fn bind(memory: &mut Memory, fd: c_int, address: usize, len: u32) -> Result<c_int> {
    let entry = table::get(fd)?;
    let bound = match address::read(memory, address, len)? {
        Given::Address(address) => entry.socket.bind(address).map_err(number),
        Given::Unspecified => Err(libc::EINVAL),
    };
    bound.map(|()| 0)
}

/// listen(2); 0 stops listening.
pub(crate) fn listen(fd: c_int, backlog: c_int) -> Result<c_int> {
    let entry = table::get(fd)?;
    // As elsewhere, a negative backlog is a large one.
    let backlog = usize::try_from(backlog).unwrap_or(usize::MAX).min(libc::SOMAXCONN as usize);
    entry.socket.listen(backlog).map_err(number)?;
    entry.listening.store(backlog > 0, Ordering::Release);
    if backlog == 0 {
        let unopened = std::mem::take(&mut *entry.unopened());
        drop(unopened);
    }
    entry.settle();
    Ok(0)
}

/// accept4(2).
pub(crate) fn accept4(
    memory: &mut Memory,
    fd: c_int,
    address: usize,
    len: usize,
    flags: c_int,
) -> Result<c_int> {
    if flags & !TYPE_FLAGS != 0 {
        return Err(libc::EINVAL);
    }
    let entry = table::get(fd)?;
    let timed = entry.remembered().receiving_is_timed();
    let unopened = entry.unopened().pop();
    let accepted = match unopened {
        Some(socket) => Ok(socket),
        None => unless_interrupted(timed, || entry.socket.accept()),
    };
    entry.settle();
    let socket = accepted?;
    if address != 0 {
        // It may have ended already.
        let peer = socket.peer_addr().unwrap_or_else(|_| address::unspecified(entry.is_v6));
        address::write(memory, peer, address, len)?;
    }
    entry.open_accepted(socket, flags)
}

/// connect(2).
pub(crate) fn connect(memory: &mut Memory, fd: c_int, address: usize, len: u32) -> Result<c_int> {
    let entry = table::get(fd)?;
    let connected = match address::read(memory, address, len)? {
        Given::Address(address) => entry.socket.connect(address),
        Given::Unspecified => entry.socket.disconnect(),
    };
    connected.map_err(number)?;
    entry.set_connected();
    entry.settle();
    Ok(0)
}

/// shutdown(2).
pub(crate) fn shutdown(fd: c_int, how: c_int) -> Result<c_int> {
    let entry = table::get(fd)?;
    let how = match how {
        libc::SHUT_RD => Shutdown::Read,
        libc::SHUT_WR => Shutdown::Write,
        libc::SHUT_RDWR => Shutdown::Both,
        _ => return Err(libc::EINVAL),
    };
    let done = entry.socket.shutdown(how).map_err(number);
    entry.settle();
    done.map(|()| 0)
}
