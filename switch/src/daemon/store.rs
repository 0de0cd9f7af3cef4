//! Sockets of addresses that the service manager keeps for the next switch (FDSTORE in sd_notify(3)): while none runs,
//! nobody else can bind them.

use std::collections::{BTreeMap, VecDeque};
use std::env;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, UnixAddr, connect, getsockopt, socket, sockopt,
};
use quicket_engine::time::{Duration, Time};

use super::Daemon;
use crate::registry::{ListenAddress, MAX_ADDRESSES};
use crate::sys;

/// How long a switch that has begun keeps sockets for programs that may come back. They look for it ten times in a
/// second; who has not come by then is not there.
pub const STORED_TIME: Duration = Duration::from_secs(10);
/// How often a manager that was busy is told again.
pub(super) const AGAIN: Duration = Duration::from_millis(100);

/// A service manager that keeps descriptors; or none, which keeps nothing.
#[derive(Debug, Default)]
pub struct Store {
    manager: Option<OwnedFd>,
    /// What it has yet to hear, with what it is to keep.
    unsaid: VecDeque<(String, Option<OwnedFd>)>,
    /// What it has kept for this switch, until a program comes for it.
    held: BTreeMap<ListenAddress, UdpSocket>,
    until: Time,
}

impl Store {
    /// The store of the service that this process is, if it is one and the manager says nothing else, and the sockets
    /// in it.
    ///
    /// # Errors
    ///
    /// When the manager cannot be reached, or one of the sockets is none.
    pub fn of_service(sockets: Vec<UdpSocket>) -> io::Result<Option<Self>> {
        let Some(path) = env::var_os("NOTIFY_SOCKET").filter(|path| !path.is_empty()) else {
            return Ok(None);
        };
        // Set since systemd 254.
        if env::var_os("FDSTORE").is_some_and(|most| most == "0") {
            return Ok(None);
        }
        let address = match path.as_bytes().strip_prefix(b"@") {
            Some(name) => UnixAddr::new_abstract(name)?,
            None => UnixAddr::new(path.as_bytes())?,
        };
        let manager =
            socket(AddressFamily::Unix, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)?;
        connect(manager.as_raw_fd(), &address)?;
        let mut held = BTreeMap::new();
        for socket in sockets {
            held.insert(address_of(&socket)?, socket);
        }
        let until = Time::ZERO + STORED_TIME;
        Ok(Some(Self { manager: Some(manager), unsaid: VecDeque::new(), held, until }))
    }

    fn say(&mut self, message: String, descriptor: Option<OwnedFd>) {
        // Each address is said once, and unsaid once.
        if self.unsaid.len() >= 2 * MAX_ADDRESSES {
            return log::warn!("the service manager is too busy to keep sockets");
        }
        self.unsaid.push_back((message, descriptor));
        self.flush();
    }

    fn flush(&mut self) {
        let Some(manager) = &self.manager else { return };
        while let Some((message, descriptor)) = self.unsaid.front() {
            let descriptors: Vec<_> = descriptor.iter().map(AsFd::as_fd).collect();
            match sys::send_with(manager.as_fd(), message.as_bytes(), &descriptors) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) => log::warn!("the service manager keeps no socket: {error}"),
                Ok(()) => {}
            }
            self.unsaid.pop_front();
        }
    }

    /// What was kept for this address.
    pub(super) fn take(&mut self, listen: &ListenAddress) -> Option<UdpSocket> {
        self.held.remove(listen)
    }

    /// Whether something is kept for it.
    pub(super) fn has(&self, listen: &ListenAddress) -> bool {
        self.held.contains_key(listen)
    }

    /// An address is read from now on: the next switch is to have its socket.
    pub(super) fn keep(&mut self, listen: &ListenAddress, socket: &impl AsFd) {
        if self.manager.is_none() {
            return;
        }
        // A program has brought the same.
        drop(self.held.remove(listen));
        match socket.as_fd().try_clone_to_owned() {
            // A socket with an error on it is readable with EPOLLERR, and one that is still wanted.
            Ok(descriptor) => {
                let message = format!("FDSTORE=1\nFDPOLL=0\nFDNAME={}", name_of(listen));
                self.say(message, Some(descriptor));
            }
            Err(error) => log::warn!("the service manager keeps no socket: {error}"),
        }
    }

    /// ... and no more.
    pub(super) fn release(&mut self, listen: &ListenAddress) {
        if self.manager.is_some() {
            self.say(format!("FDSTOREREMOVE=1\nFDNAME={}", name_of(listen)), None);
        }
    }

    /// Lets go of what nobody has come back for, and says again what was not heard.
    pub(super) fn tend(&mut self, now: Time) {
        self.flush();
        if now >= self.until {
            for (listen, socket) in std::mem::take(&mut self.held) {
                log::info!("nobody has come back to {listen}");
                drop(socket);
                self.release(&listen);
            }
        }
    }

    /// Whether something is to be said again.
    pub(super) fn waits(&self) -> bool {
        !self.unsaid.is_empty()
    }
}

/// Where a socket is bound.
fn address_of(socket: &UdpSocket) -> io::Result<ListenAddress> {
    let address = socket.local_addr()?;
    let only_v6 = address.is_ipv6() && getsockopt(&socket.as_fd(), sockopt::Ipv6V6Only)?;
    Ok(ListenAddress::new(address, only_v6))
}

/// What the manager calls the socket of an address: no two have one name, and there is no colon in it.
fn name_of(listen: &ListenAddress) -> String {
    let address = listen.socket_addr();
    let ip = match address.ip() {
        IpAddr::V4(ip) => ip.to_string(),
        IpAddr::V6(ip) => format!("{:032x}", u128::from(ip)),
    };
    let scope = match address {
        SocketAddr::V6(v6) if v6.scope_id() != 0 => format!("-on-{}", v6.scope_id()),
        _ => String::new(),
    };
    let only = if listen.only_v6() { "-only" } else { "" };
    format!("udp-{ip}-{}{scope}{only}", address.port())
}

impl Daemon {
    /// The same with a service manager that keeps the sockets of addresses for the next switch.
    #[must_use]
    pub fn with_store(mut self, store: Store) -> Self {
        self.store = store;
        self
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixDatagram;

    use super::*;

    #[test]
    fn addresses_have_names_of_their_own() {
        let name = |text: &str, only| name_of(&ListenAddress::new(text.parse().unwrap(), only));
        assert_eq!(name("192.0.2.1:443", false), "udp-192.0.2.1-443");
        let zeros = "0".repeat(31);
        assert_eq!(name("[::1]:443", false), format!("udp-{zeros}1-443"));
        // Only the wildcard address can have the other family too.
        assert_eq!(name("[::]:443", false), format!("udp-{zeros}0-443"));
        assert_eq!(name("[::]:443", true), format!("udp-{zeros}0-443-only"));
        assert!(!name("[fe80::1%3]:443", false).contains(':'));
    }

    #[test]
    fn a_socket_says_where_it_is_bound() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let socket = UdpSocket::bind(address).unwrap();
            let found = address_of(&socket).unwrap();
            assert_eq!(found.socket_addr(), socket.local_addr().unwrap());
        }
    }

    /// A store, and the manager's end of it.
    fn store(held: &[&UdpSocket]) -> (Store, UnixDatagram) {
        let (ours, theirs) = UnixDatagram::pair().unwrap();
        theirs.set_nonblocking(true).unwrap();
        let held = held.iter().map(|socket| socket.try_clone().unwrap());
        let held = held.map(|socket| (address_of(&socket).unwrap(), socket)).collect();
        let until = Time::ZERO + STORED_TIME;
        (Store { manager: Some(ours.into()), unsaid: VecDeque::new(), held, until }, theirs)
    }

    /// What the manager hears next, and whether a socket comes with it.
    fn heard(manager: &UnixDatagram) -> Option<(String, bool)> {
        let mut buffer = [0; 200];
        let (len, came) = sys::receive_with(manager.as_fd(), &mut buffer).ok()?;
        Some((String::from_utf8(buffer[..len].to_vec()).unwrap(), !came.is_empty()))
    }

    #[test]
    fn the_manager_keeps_what_is_read_and_forgets_what_nobody_has_come_back_for() {
        let sockets = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
        let [one, other] = sockets.each_ref().map(|socket| address_of(socket).unwrap());
        let (mut store, manager) = store(&[&sockets[0], &sockets[1]]);
        assert!(store.has(&one) && store.has(&other));
        let taken = store.take(&one).unwrap();
        assert!(!store.has(&one));
        store.keep(&one, &taken);
        let kept = format!("FDSTORE=1\nFDPOLL=0\nFDNAME={}", name_of(&one));
        assert_eq!(heard(&manager), Some((kept, true)));
        store.tend(Time::ZERO);
        assert_eq!(heard(&manager), None);
        store.tend(Time::ZERO + STORED_TIME);
        let forgotten = format!("FDSTOREREMOVE=1\nFDNAME={}", name_of(&other));
        assert_eq!(heard(&manager), Some((forgotten, false)));
        assert!(!store.has(&other) && !store.waits());
    }

    #[test]
    fn where_no_manager_keeps_anything_nothing_waits_to_be_said() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let listen = address_of(&socket).unwrap();
        let mut store = Store::default();
        store.keep(&listen, &socket);
        store.release(&listen);
        store.tend(Time::ZERO);
        assert!(!store.waits() && !store.has(&listen) && store.take(&listen).is_none());
    }
}
