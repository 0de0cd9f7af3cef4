//! Programs of other users: what they may have, and what the switch does in their place.
//!
//! They get no descriptor of a socket of an address and no key of connection IDs. What comes is handed over, what
//! they send is sent for them, and connection IDs are made for them. `docs/switch.md` says what can go wrong.

use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::Arc;

use quicket_udp::{Sender, UdpConfig};

use super::Daemon;
use super::program::{Program, refused};
use super::rules::{News, Rules};
use crate::options::SocketOptions;
use crate::protocol::{
    Hex, ID_LEN, Join, MAX_MINTED, Message, Minted, Notice, Refusal, Reply, Tenancy,
};
use crate::registry::{
    AddressId, ListenAddress, ListenerId, MAX_ADDRESSES, Names, Place, ProcessId,
};
use crate::rule::{Rule, Who};

/// Connections that programs of one other user have to the switch.
pub const MAX_CONNECTIONS_OF_TENANT: usize = 64;
/// Addresses that they are at.
pub const MAX_ADDRESSES_OF_TENANT: usize = 16;
/// Their workers at all addresses.
pub const MAX_WORKERS_OF_TENANT: usize = 64;
/// Listeners of theirs that processes have from one another over fork(2).
pub const MAX_FAMILIES_OF_TENANT: usize = 64;
/// Connection IDs that are made for them in a second, beside those that rotations bring.
pub const MAX_MINTED_A_SECOND: u32 = 20_000;
/// What waits for one of their workers beside what the system keeps, in bytes.
pub const TENANT_BACKLOG: usize = 1 << 20;
/// What all of them together have of a table: the rest is for the switch's own user, and for root, who asks how it is.
pub(super) const fn part(whole: usize) -> usize {
    whole - whole / 8
}

/// Connection IDs in an answer to who has asked for more.
const BATCH: usize = 512;
/// The least that a worker gets to begin with.
const LEAST: usize = 16;
/// Users of whom is remembered what was made for them.
const REMEMBERED: usize = 1024;

/// Users beside the switch's own, as far as there may be some.
#[derive(Debug)]
pub(super) struct Tenants {
    pub(super) rule: Rule,
    news: News,
    /// By user: in which second how many connection IDs were made.
    minted: BTreeMap<u32, (u64, u32)>,
}

impl Tenants {
    pub(super) const fn new(rule: Rule, news: News) -> Self {
        Self { rule, news, minted: BTreeMap::new() }
    }

    /// Goes by another rule if there is one; false if not.
    pub(super) fn take_up_rule(&mut self) -> bool {
        let rule = self.news.last();
        let is_new = rule.is_some();
        if let Some(rule) = rule {
            self.rule = rule;
        }
        is_new
    }

    /// Whether somebody may be at an address as he wants to, by the rule.
    fn check(&self, who: &Who, join: &Join, address: SocketAddr) -> Result<(), Reply> {
        let uid = who.uid;
        if join.has_socket || join.has_keep {
            let text =
                "the switch binds addresses for programs of other users: leave the socket to it";
            return Err(refused(Refusal::Invalid, text));
        }
        if !self.rule.allows(who, address) {
            let text = format!(
                "the rule of this switch does not let user {uid} have {address}: choose another address or \
                 port, or ask who runs it (quicket switch --system --users)"
            );
            return Err(refused(Refusal::Denied, text));
        }
        if let Some(kind) = self.rule.refused_option(who, address, &join.options) {
            let text = format!(
                "the rule of this switch does not let user {uid} have the option {kind} at {address}: leave it \
                 out, or ask who runs it (quicket switch --system --users)"
            );
            return Err(refused(Refusal::Denied, text));
        }
        Ok(())
    }

    /// Whether he may serve names there.
    fn check_names(&self, who: &Who, address: SocketAddr, names: &Names) -> Result<(), Reply> {
        let Some(name) = self.rule.refused_name(who, address, names) else {
            return Ok(());
        };
        let text = format!(
            "the rule of this switch does not let user {} serve {name} at {address}: choose other server \
             names, or ask who runs it (quicket switch --system --users)",
            who.uid
        );
        Err(refused(Refusal::Denied, text))
    }

    /// How many connection IDs were made for a user in this second.
    fn made_for(&self, second: u64, uid: u32) -> u32 {
        let made = self.minted.get(&uid).filter(|(then, _)| *then == second);
        made.map_or(0, |(_, made)| *made)
    }

    fn note_made(&mut self, second: u64, uid: u32, count: u32) {
        let made = self.made_for(second, uid);
        if self.minted.len() > REMEMBERED {
            self.minted.retain(|_, (then, _)| *then == second);
        }
        self.minted.insert(uid, (second, made.saturating_add(count)));
    }
}

/// How many connection IDs each of so many workers gets at once.
fn minted_each(workers: u16) -> usize {
    (MAX_MINTED / usize::from(workers).max(1)).clamp(LEAST, BATCH)
}

/// ... and all of them together.
fn minted_at_once(workers: u16) -> u32 {
    (minted_each(workers) * usize::from(workers)) as u32
}

impl Program {
    pub(super) fn who(&self) -> Who {
        Who { uid: self.uid, gids: self.gids.clone() }
    }
}

impl Daemon {
    /// The same for programs of other users, too, as far as `rule` lets them. Without a site the secrets are derived
    /// from what switches of this name leave to each other, so that programs that do not know them come back. What
    /// is returned beside it replaces the rule later.
    ///
    /// # Errors
    ///
    /// When no descriptor is left.
    pub fn for_system(mut self, rule: Rule) -> io::Result<(Self, Rules)> {
        self.issuer.use_heirloom()?;
        self.registry.make_room_for_tenants();
        let (rules, news) = News::new(&self.events)?;
        self.users.take_tenants(Tenants::new(rule, news))?;
        Ok((self, rules))
    }

    pub(super) fn is_tenant_process(&self, process: ProcessId) -> bool {
        self.programs.uid(process).is_some_and(|uid| self.users.is_tenant(uid))
    }

    /// Whether a program of another user may be at an address.
    pub(super) fn check_tenant(
        &self,
        process: ProcessId,
        join: &Join,
        address: SocketAddr,
    ) -> Result<(), Reply> {
        let Some((tenants, program)) = self.users.tenants().zip(self.programs.get(process)) else {
            return Err(refused(Refusal::Denied, "this switch is for one user"));
        };
        let uid = program.uid;
        tenants.check(&program.who(), join, address)?;
        let seats: Vec<_> =
            self.programs.of_user(uid).filter_map(|other| other.seat.as_ref()).collect();
        let workers: usize = seats.iter().map(|seat| seat.outlets.len()).sum();
        if workers + usize::from(join.workers) > MAX_WORKERS_OF_TENANT {
            let text = format!(
                "programs of user {uid} have {workers} workers, and {MAX_WORKERS_OF_TENANT} at most: end \
                 some, or have fewer workers"
            );
            return Err(refused(Refusal::Full, text));
        }
        let kept = self.families.kept_for(uid);
        let mut addresses: Vec<_> = seats.iter().map(|seat| seat.address).chain(kept).collect();
        addresses.sort();
        addresses.dedup();
        let listen = ListenAddress::new(address, join.only_v6);
        let is_there = self.registry.address_id(&listen).is_some_and(|id| addresses.contains(&id));
        if !is_there && addresses.len() >= MAX_ADDRESSES_OF_TENANT {
            let text = format!("user {uid} has {MAX_ADDRESSES_OF_TENANT} addresses: close one");
            return Err(refused(Refusal::Full, text));
        }
        let is_known = self.registry.address_id(&listen).is_some();
        if !is_known && self.addresses.len() >= part(MAX_ADDRESSES) {
            let text = "the switch has as many addresses as other users than its own may fill";
            return Err(refused(Refusal::Full, text));
        }
        if self.made_for(uid) + minted_at_once(join.workers) > MAX_MINTED_A_SECOND {
            let text = "connection IDs are made for a user so many in a second: ask again";
            return Err(refused(Refusal::Later, text));
        }
        Ok(())
    }

    /// Binds an address for a program of another user, which never has the socket.
    pub(super) fn bind_for(
        &mut self,
        process: ProcessId,
        listen: ListenAddress,
    ) -> Result<(UdpSocket, ListenAddress), Reply> {
        if self.binding.is_by_another(self.now(), process, &listen) {
            return Err(refused(Refusal::Later, "another program is binding the address"));
        }
        if let Some(socket) = self.store.take(&listen) {
            return Ok((socket, listen));
        }
        let config = UdpConfig { only_v6: listen.only_v6(), ..UdpConfig::default() };
        let bound = quicket_udp::UdpSocket::bind(listen.socket_addr(), &config);
        let bound = bound.map_err(|error| {
            let why = match error.io_error().kind() {
                io::ErrorKind::AddrInUse => Refusal::InUse,
                io::ErrorKind::PermissionDenied => Refusal::Denied,
                _ => Refusal::Invalid,
            };
            let text = format!(
                "the switch cannot bind {listen} for programs of other users, which have no socket there \
                 themselves: {}",
                error.io_error()
            );
            refused(why, text)
        })?;
        let cannot = |error: io::Error| refused(Refusal::Full, error.to_string());
        let at = ListenAddress::new(bound.local_addr(), listen.only_v6());
        let allowed = self.programs.get(process).zip(self.users.tenants()).is_some_and(
            |(program, tenants)| tenants.rule.allows(&program.who(), at.socket_addr()),
        );
        if !allowed {
            let text = "the rule of this switch has no ports for any that is free: name one";
            return Err(refused(Refusal::Denied, text));
        }
        let socket = bound.as_fd().try_clone_to_owned().map_err(cannot)?;
        Ok((UdpSocket::from(socket), at))
    }

    /// Has the socket of an address have the options that a program of another user wants, if he is the first there; or
    /// sees whether it has them.
    pub(super) fn set_options(
        &self,
        id: AddressId,
        options: &SocketOptions,
        is_new: bool,
    ) -> Result<(), Reply> {
        let Some(address) = self.addresses.get(&id) else { return Ok(()) };
        for option in options.all() {
            let cannot = |error: io::Error| {
                let text =
                    format!("the switch cannot set {option:?} at {}: {error}", address.listen);
                refused(Refusal::Invalid, text)
            };
            if is_new {
                address.socket.set_option(&option).map_err(cannot)?;
            } else if !address.socket.has_option(&option).map_err(cannot)? {
                let text = format!(
                    "the socket of {} has another value than {option:?}: who is there first sets it for all",
                    address.listen
                );
                return Err(refused(Refusal::Invalid, text));
            }
        }
        Ok(())
    }

    /// Whether a program may serve names.
    pub(super) fn check_names(
        &self,
        process: ProcessId,
        id: AddressId,
        names: &Names,
    ) -> Result<(), Reply> {
        match self.registry.listen_address(id) {
            Some(address) => self.check_names_at(process, address.socket_addr(), names),
            None => Ok(()),
        }
    }

    pub(super) fn check_names_at(
        &self,
        process: ProcessId,
        address: SocketAddr,
        names: &Names,
    ) -> Result<(), Reply> {
        let Some((tenants, program)) = self.users.tenants().zip(self.programs.get(process)) else {
            return Ok(());
        };
        if !self.users.is_tenant(program.uid) {
            return Ok(());
        }
        tenants.check_names(&program.who(), address, names)
    }

    /// What sends for a program, if it cannot do so itself.
    pub(super) fn sender_for(
        &self,
        listener: ListenerId,
        uid: u32,
    ) -> Result<Option<Sender>, Reply> {
        let address = self.addresses.get(&listener.address()).filter(|_| self.users.is_tenant(uid));
        let Some(address) = address else { return Ok(None) };
        let sender = Sender::new(Arc::clone(&address.socket), &UdpConfig::default());
        sender.map(Some).map_err(|error| refused(Refusal::Full, error.to_string()))
    }

    /// What a program of another user has at its address.
    pub(super) fn tenancy_of(
        &mut self,
        process: ProcessId,
        listener: ListenerId,
    ) -> Option<Tenancy> {
        if !self.is_tenant_process(process) {
            return None;
        }
        let minted = self.mint_all(listener, true);
        let uid = self.programs.uid(process)?;
        let count = minted.iter().map(|minted| minted.ids.len() as u32).sum();
        self.note_made(uid, count);
        let address = self.addresses.get(&listener.address())?.socket.local_addr();
        Some(Tenancy { address, minted })
    }

    /// Connection IDs for all workers of a listener.
    pub(super) fn mint_all(&mut self, listener: ListenerId, anew: bool) -> Vec<Minted> {
        let workers = self.registry.workers(listener).unwrap_or(0);
        let count = minted_each(workers);
        let minted = (0..workers).map(|worker| {
            let ids = self.mint(listener, worker, count);
            Minted { worker, anew, ids }
        });
        minted.collect()
    }

    /// A program asks for connection IDs.
    pub(super) fn mint_for(&mut self, process: ProcessId, worker: u16) {
        let program = self.programs.get(process);
        let seat = program.and_then(|program| Some((program.uid, program.seat.as_ref()?)));
        let Some((uid, listener)) = seat.map(|(uid, seat)| (uid, seat.listener)) else { return };
        if !self.users.is_tenant(uid)
            || self.registry.workers(listener).is_none_or(|count| worker >= count)
        {
            return;
        }
        let count = BATCH.min(MAX_MINTED_A_SECOND.saturating_sub(self.made_for(uid)) as usize);
        self.note_made(uid, count as u32);
        let ids = self.mint(listener, worker, count);
        let minted = Minted { worker, anew: false, ids };
        self.tell(process, &Message::Notice(Notice::Minted(minted)));
    }

    /// How many connection IDs were made for a user in this second.
    fn made_for(&self, uid: u32) -> u32 {
        let second = self.lifetime.seconds();
        self.users.tenants().map_or(0, |tenants| tenants.made_for(second, uid))
    }

    fn note_made(&mut self, uid: u32, count: u32) {
        let second = self.lifetime.seconds();
        if let Some(tenants) = self.users.tenants_mut() {
            tenants.note_made(second, uid, count);
        }
    }

    fn mint(&mut self, listener: ListenerId, worker: u16, count: usize) -> Vec<Hex<ID_LEN>> {
        let Some(address) = self.addresses.get(&listener.address()) else { return Vec::new() };
        self.issuer.mint(address, Place { listener, worker }, count)
    }
}

#[cfg(test)]
mod tests {
    use quicket_udp::UdpOption;

    use super::*;
    use crate::daemon::testing::System;

    #[test]
    fn connection_ids_of_who_joins_count_like_others() {
        let mut system = System::new("minted", Rule::default());
        let uid = nix::unistd::geteuid().as_raw();
        let _program = system.join(SocketOptions::default()).unwrap();
        let (_, made) = system.daemon.users.tenants().unwrap().minted[&uid];
        assert_eq!(made, minted_at_once(1));
        let most = MAX_MINTED_A_SECOND - made;
        system.daemon.note_made(uid, most);
        // A second may end at any time.
        let left = MAX_MINTED_A_SECOND - system.daemon.made_for(uid);
        assert!(left == 0 || left >= made);
    }

    #[test]
    fn the_socket_has_the_options_of_who_is_there_first_as_far_as_the_rule_lets_him() {
        let rule = Rule::parse("user * ports 1024-65535 options ttl,dscp").unwrap();
        let mut system = System::new("options", rule);
        let mark = SocketOptions { mark: Some(1), ..SocketOptions::default() };
        let refused = system.join(mark).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
        assert!(refused.to_string().contains("mark (SO_MARK)"), "{refused}");
        assert!(system.daemon.addresses.is_empty());
        let seven =
            SocketOptions { ttl: Some(7), class_v4: Some(0x28), ..SocketOptions::default() };
        let first = system.join(seven).unwrap();
        let socket = Arc::clone(&system.daemon.addresses.values().next().unwrap().socket);
        for option in seven.all() {
            assert!(socket.has_option(&option).unwrap(), "{option:?}");
        }
        let eight = SocketOptions { ttl: Some(8), ..SocketOptions::default() };
        let other = system.join(eight).unwrap_err();
        assert_eq!(other.kind(), io::ErrorKind::InvalidInput);
        assert!(other.to_string().contains("who is there first"), "{other}");
        assert!(socket.has_option(&UdpOption::Ttl(7)).unwrap());
        let same = [system.join(seven).unwrap(), system.join(SocketOptions::default()).unwrap()];
        drop((first, same));
    }

    #[test]
    fn what_was_made_for_a_user_counts_for_a_second() {
        let events = crate::daemon::events::Events::new().unwrap();
        let (_rules, news) = News::new(&events).unwrap();
        let mut tenants = Tenants::new(Rule::default(), news);
        tenants.note_made(1, 1000, 5);
        tenants.note_made(1, 1000, 6);
        tenants.note_made(1, 1001, 7);
        assert_eq!((tenants.made_for(1, 1000), tenants.made_for(1, 1001)), (11, 7));
        assert_eq!(tenants.made_for(2, 1000), 0);
        // Earlier seconds are forgotten as users come.
        (0..2 * REMEMBERED as u32).for_each(|uid| tenants.note_made(3 + u64::from(uid), uid, 1));
        assert!(tenants.minted.len() <= REMEMBERED + 1);
    }
}
