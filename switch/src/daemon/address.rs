//! An address: its socket and its secrets.

use std::cmp::Reverse;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use quicket_engine::time::{Duration, Time};
use quicket_steering::Configurations;
use quicket_udp::{Sender, UdpConfig, UdpSocket};

use super::Daemon;
use super::door::Quiet;
use super::group::Steering;
use super::loan::Lending;
use crate::protocol::Secrets;
use crate::registry::{AddressId, ListenAddress, RECYCLE_AFTER};

/// How long an address without programs is kept whose last one was killed: its peers are reset
/// meanwhile. As long as a number rests.
pub const LINGER: Duration = RECYCLE_AFTER;
/// How many such addresses there are at most.
pub const MAX_LINGERING: usize = 64;

/// An address that the switch reads.
#[derive(Debug)]
pub(super) struct Address {
    pub(super) listen: ListenAddress,
    pub(super) socket: Arc<UdpSocket>,
    pub(super) sender: Sender,
    pub(super) secrets: Secrets,
    pub(super) counters: Counters,
    /// What the kernel does.
    pub(super) steering: Steering,
    /// Clients that nobody knows wait, since a door was shut.
    pub(super) quiet: Option<Quiet>,
    /// Who reads the socket, if it is not the switch.
    pub(super) lending: Lending,
    /// Something that was to be sent for a program finds no room.
    pub(super) is_full: bool,
    /// Whose turn it is when there is.
    pub(super) turn: usize,
    /// Until when it is kept without programs.
    pub(super) lingers_until: Option<Time>,
    /// ... for peers of whose program.
    pub(super) lingers_for: u32,
}

/// What became of the datagrams of an address, beside what the router counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counters {
    /// Came to the socket.
    pub(super) received: u64,
    /// Were handed to programs.
    pub(super) forwarded: u64,
    /// Were lost because their program was slow.
    pub(super) lost: u64,
    /// Were handed back by programs, to whose own sockets they had come.
    pub(super) handed_back: u64,
    /// Were sent for programs that have no socket of the address.
    pub(super) sent: u64,
    /// Were not sent for them: from an address that is not theirs, or what cannot be sent.
    pub(super) not_sent: u64,
}

impl Address {
    pub(super) fn new(
        listen: ListenAddress,
        socket: std::net::UdpSocket,
        secrets: Secrets,
        configurations: Configurations,
    ) -> io::Result<Self> {
        let socket = Arc::new(UdpSocket::new(socket)?);
        let sender = Sender::new(Arc::clone(&socket), &UdpConfig::default())?;
        let (counters, steering) = (Counters::default(), Steering::new(configurations));
        let (is_full, turn, lingers_until, quiet) = (false, 0, None, None);
        Ok(Self {
            listen,
            socket,
            sender,
            secrets,
            counters,
            steering,
            quiet,
            lending: Lending::default(),
            is_full,
            turn,
            lingers_until,
            lingers_for: 0,
        })
    }

    /// Where this host reaches the address, as far as can be told from it.
    pub(super) fn own_addresses(&self) -> impl Iterator<Item = SocketAddr> {
        let bound = self.socket.local_addr();
        let any = [IpAddr::from(Ipv6Addr::LOCALHOST), IpAddr::from(Ipv4Addr::LOCALHOST)];
        let own = if bound.ip().is_unspecified() { any.to_vec() } else { vec![bound.ip()] };
        let own = own.into_iter().map(move |ip| SocketAddr::new(ip, bound.port()));
        own.filter(|own| self.socket.reaches(*own))
    }
}

/// Who makes room: of the user who has the most, what would end first.
fn first_to_go<K: Copy>(lingering: &[(K, u32, Option<Time>)]) -> Option<K> {
    let count = |uid| lingering.iter().filter(|(_, other, _)| *other == uid).count();
    let first = lingering.iter().min_by_key(|(_, uid, until)| (Reverse(count(*uid)), *until));
    first.map(|(id, ..)| *id)
}

impl Daemon {
    /// A program of an address has gone without a word: its peers are to be reset for a while, also if
    /// nobody else is there.
    pub(super) fn mourn(&mut self, id: AddressId, uid: u32) {
        let now = self.now();
        if let Some(address) = self.addresses.get_mut(&id) {
            (address.lingers_until, address.lingers_for) = (Some(now + LINGER), uid);
        }
    }

    /// Stops to read an address that nobody is at, unless there are peers to be reset.
    pub(super) fn close_if_unused(&mut self, id: AddressId) {
        let now = self.now();
        let Some(address) = self.addresses.get(&id) else { return };
        let lingers = address.lingers_until.is_some_and(|until| until > now);
        if !self.registry.is_vacant(id) {
            return;
        }
        if !lingers || !self.registry.has_dead(id) {
            return self.close(id);
        }
        let lingering = self.addresses.iter().filter(|(id, _)| self.registry.is_vacant(**id));
        let lingering = lingering.map(|(id, each)| (*id, each.lingers_for, each.lingers_until));
        let lingering: Vec<_> = lingering.collect();
        if lingering.len() > MAX_LINGERING
            && let Some(first) = first_to_go(&lingering)
        {
            self.close(first);
        }
    }

    /// Closes the addresses that have been kept long enough.
    pub(super) fn end_lingering(&mut self) {
        let now = self.now();
        let over = |address: &Address| address.lingers_until.is_some_and(|until| until <= now);
        let ended = self.addresses.iter().filter(|(_, address)| over(address));
        for id in ended.map(|(id, _)| *id).collect::<Vec<_>>() {
            if self.registry.is_vacant(id) {
                self.close(id);
            } else if let Some(address) = self.addresses.get_mut(&id) {
                address.lingers_until = None;
            }
        }
    }

    fn close(&mut self, id: AddressId) {
        if self.registry.forget(id) {
            self.unwatch_all(id);
            let Some(mut address) = self.addresses.remove(&id) else { return };
            let _ = self.events.remove(&address.socket);
            address.steering.end(&address.socket);
            self.store.release(&address.listen);
            self.traffic.router.remove_address(id);
            self.forget_families(id);
            self.unpark(id);
            self.binding.note_closed(self.now(), address.listen);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_the_most_dead_makes_room_for_more() {
        let at = |seconds| Some(Time::ZERO + Duration::from_secs(seconds));
        let lingering = [('a', 1, at(1)), ('b', 2, at(9)), ('c', 2, at(5)), ('d', 3, at(2))];
        assert_eq!(first_to_go(&lingering), Some('c'));
        // Where all have as many it is what ends first.
        assert_eq!(first_to_go(&[lingering[1], lingering[3]]), Some('d'));
        assert_eq!(first_to_go::<char>(&[]), None);
    }
}
