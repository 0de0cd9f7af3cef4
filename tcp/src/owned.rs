//! The addresses that the stack has registered, and what for.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};

/// Addresses that connections of this side begin from are used again once there are so many: fewer would be guessed
/// easily (RFC 6056).
const FEWEST: usize = 64;
/// The most of them for each address of IP.
pub const MAX_EPHEMERAL: usize = 4096;

#[derive(Debug, Default)]
struct Use {
    connections: u32,
    is_listened: bool,
    /// It is for connections of this side, and stays.
    is_ephemeral: bool,
}

impl Use {
    const fn is_over(&self) -> bool {
        self.connections == 0 && !self.is_listened && !self.is_ephemeral
    }
}

#[derive(Debug, Default)]
pub(crate) struct Owned {
    uses: HashMap<SocketAddr, Use>,
    ephemeral: HashMap<IpAddr, Vec<u16>>,
    /// What nobody uses any more, and the switch still has.
    surplus: Vec<SocketAddr>,
}

impl Owned {
    /// Whether it is registered for something.
    pub(crate) fn has(&self, address: SocketAddr) -> bool {
        self.uses.contains_key(&address)
    }

    /// Somebody listens there from now on. Returns false if somebody does already.
    pub(crate) fn listen(&mut self, address: SocketAddr) -> bool {
        !std::mem::replace(&mut self.uses.entry(address).or_default().is_listened, true)
    }

    pub(crate) fn listen_no_more(&mut self, address: SocketAddr) {
        self.change(address, |is| is.is_listened = false);
    }

    pub(crate) fn connection_begins(&mut self, address: SocketAddr) {
        self.uses.entry(address).or_default().connections += 1;
    }

    pub(crate) fn connection_ends(&mut self, address: SocketAddr) {
        self.change(address, |is| is.connections = is.connections.saturating_sub(1));
    }

    /// It was registered for connections of this side.
    pub(crate) fn add_ephemeral(&mut self, address: SocketAddr) {
        self.uses.entry(address).or_default().is_ephemeral = true;
        self.ephemeral.entry(address.ip()).or_default().push(address.port());
    }

    /// An address to connect from, by chance among those that are registered and free. None if another is to be registered.
    ///
    /// # Errors
    ///
    /// `AddrNotAvailable` when there are as many as there may be.
    pub(crate) fn choose(
        &self,
        ip: IpAddr,
        is_free: impl Fn(SocketAddr) -> bool,
    ) -> io::Result<Option<SocketAddr>> {
        let ports = self.ephemeral.get(&ip).map_or(0, Vec::len);
        if ports < FEWEST {
            return Ok(None);
        }
        let free = self.choose_among(ip, is_free)?;
        if free.is_some() {
            return Ok(free);
        }
        if ports >= MAX_EPHEMERAL {
            let text = "no port is free for another connection to that address";
            return Err(io::Error::new(io::ErrorKind::AddrNotAvailable, text));
        }
        Ok(None)
    }

    /// The same among those that are registered, however few they are. None if none of them is free.
    ///
    /// # Errors
    ///
    /// When the system has no number that is drawn by chance.
    pub(crate) fn choose_among(
        &self,
        ip: IpAddr,
        is_free: impl Fn(SocketAddr) -> bool,
    ) -> io::Result<Option<SocketAddr>> {
        let Some(ports) = self.ephemeral.get(&ip).filter(|ports| !ports.is_empty()) else {
            return Ok(None);
        };
        let number = getrandom::u32().map_err(io::Error::other)? as usize;
        // From there on, the next one that is free (RFC 6056, Section 3.3.1).
        let (after, first) = ports.split_at(number % ports.len());
        Ok(first.iter().chain(after).map(|port| (ip, *port).into()).find(|at| is_free(*at)))
    }

    /// Takes an address back that nobody uses any more, if the switch still has it.
    pub(crate) fn reclaim(&mut self, address: SocketAddr) -> bool {
        let at = self.surplus.iter().position(|surplus| *surplus == address);
        at.map(|at| self.surplus.swap_remove(at)).is_some()
    }

    /// Takes what is to be given back to the system.
    pub(crate) fn take_surplus(&mut self) -> Vec<SocketAddr> {
        std::mem::take(&mut self.surplus)
    }

    /// What could not be given back now.
    pub(crate) fn return_surplus(&mut self, addresses: impl IntoIterator<Item = SocketAddr>) {
        self.surplus.extend(addresses);
    }

    pub(crate) const fn has_surplus(&self) -> bool {
        !self.surplus.is_empty()
    }

    fn change(&mut self, address: SocketAddr, change: impl FnOnce(&mut Use)) {
        let Some(is) = self.uses.get_mut(&address) else { return };
        change(is);
        if is.is_over() {
            self.uses.remove(&address);
            self.surplus.push(address);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(port: u16) -> SocketAddr {
        ([192, 0, 2, 1], port).into()
    }

    #[test]
    fn an_address_is_given_back_once_nobody_listens_and_no_connection_has_it() {
        let mut owned = Owned::default();
        assert!(owned.listen(at(80)) && !owned.listen(at(80)));
        owned.connection_begins(at(80));
        owned.listen_no_more(at(80));
        assert!(owned.has(at(80)) && !owned.has_surplus());
        // Somebody listens again meanwhile.
        assert!(owned.listen(at(80)));
        owned.listen_no_more(at(80));
        owned.connection_ends(at(80));
        assert!(!owned.has(at(80)));
        assert_eq!(owned.take_surplus(), [at(80)]);
        assert!(!owned.has_surplus());
    }

    #[test]
    fn an_address_that_is_not_given_back_yet_is_the_stacks_again() {
        let mut owned = Owned::default();
        owned.listen(at(80));
        owned.listen(at(81));
        owned.listen_no_more(at(80));
        owned.listen_no_more(at(81));
        assert!(!owned.has(at(80)) && owned.reclaim(at(80)));
        assert!(owned.listen(at(80)) && !owned.reclaim(at(80)));
        assert_eq!(owned.take_surplus(), [at(81)]);
    }

    /// RFC 6056, Section 3.3.1.
    #[test]
    fn ports_to_connect_from_are_chosen_by_chance_among_those_that_are_free() {
        let mut owned = Owned::default();
        let ip = at(0).ip();
        for port in 1..FEWEST {
            owned.add_ephemeral(at(port as u16));
            assert_eq!(owned.choose(ip, |_| true).unwrap(), None);
        }
        owned.add_ephemeral(at(FEWEST as u16));
        let chosen = |_| owned.choose(ip, |_| true).unwrap().unwrap().port();
        let chosen: std::collections::HashSet<u16> = (0..200).map(chosen).collect();
        assert!(chosen.len() > FEWEST / 2, "{chosen:?}");
        assert_eq!(owned.choose(ip, |_| false).unwrap(), None);
        for port in FEWEST..MAX_EPHEMERAL {
            owned.add_ephemeral(at(port as u16 + 1));
        }
        let error = owned.choose(ip, |_| false).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrNotAvailable);
    }
}
