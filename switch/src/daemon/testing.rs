//! A switch that goes on in steps: one for the system, to which the process of the test belongs to another user, or one of that
//! user.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::thread::JoinHandle;

use nix::sys::epoll::EpollEvent;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket};
use quicket_handshake::{Aes128, AwsLcProvider, SystemRandom};

use super::events::Token;
use super::{Daemon, Listener, Rules, Tools};
use crate::channel::Inlet;
use crate::client::{Membership, Options, Place, Way};
use crate::options::SocketOptions;
use crate::protocol::Join;
use crate::rule::Rule;

pub(super) type Program = (Membership, Vec<Inlet>, Way);

/// What a program asks for that joins with one worker and nothing else.
pub(super) fn join(address: SocketAddr) -> Join {
    Join {
        address,
        only_v6: false,
        workers: 1,
        label: "one".into(),
        has_socket: false,
        has_keep: false,
        has_ledger: false,
        steered: true,
        remains: false,
        options: SocketOptions::default(),
        resume: None,
        kin: None,
    }
}

/// With ciphers, and numbers that nobody knows.
pub(super) fn tools() -> Tools {
    Tools {
        crypto: Arc::new(AwsLcProvider),
        aes_128: |key| Arc::new(Aes128::new(key)),
        random: Box::new(SystemRandom::new()),
    }
}

pub(super) struct System {
    pub(super) daemon: Daemon,
    /// One that was free.
    pub(super) address: SocketAddr,
    name: String,
    /// With which the rule is replaced, where there is one.
    pub(super) rules: Option<Rules>,
}

impl System {
    pub(super) fn new(called: &str, rule: Rule) -> Self {
        Self::made(called, |mut daemon| {
            daemon.users.set_own(nix::unistd::geteuid().as_raw() + 1);
            let (daemon, rules) = daemon.for_system(rule).unwrap();
            (daemon, Some(rules))
        })
    }

    /// One of the user whose process this is.
    pub(super) fn plain(called: &str) -> Self {
        Self::made(called, |daemon| (daemon, None))
    }

    fn made(called: &str, set_up: impl FnOnce(Daemon) -> (Daemon, Option<Rules>)) -> Self {
        let file = format!("quicket-{called}-{}", std::process::id());
        let name = std::env::temp_dir().join(file).to_str().unwrap().to_owned();
        let (daemon, rules) =
            set_up(Daemon::new(Listener::bind(&name).unwrap(), tools(), None).unwrap());
        let address = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        Self { daemon, address, name, rules }
    }

    /// Has a program be at the address.
    pub(super) fn join(&mut self, options: SocketOptions) -> io::Result<Program> {
        let address = self.address;
        let (only_v6, workers, steered, remains) = (false, 1, true, false);
        self.join_at(Place { address, only_v6, workers, steered, remains, options })
    }

    /// The same at a place of its choice.
    pub(super) fn join_at(&mut self, place: Place) -> io::Result<Program> {
        let joining = self.begin_to_join(place);
        while !joining.is_finished() {
            self.daemon.step();
        }
        joining.join().unwrap()
    }

    /// Has somebody ask, and the switch answer.
    pub(super) fn answer<T: Send>(&mut self, ask: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| {
            let asking = scope.spawn(ask);
            while !asking.is_finished() {
                self.daemon.step();
            }
            asking.join().unwrap()
        })
    }

    /// Connects, as who says what the library does not say.
    pub(super) fn connect(&self) -> OwnedFd {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let socket = socket(AddressFamily::Unix, SockType::SeqPacket, flags, None).unwrap();
        connect(socket.as_raw_fd(), &UnixAddr::new(&*self.name).unwrap()).unwrap();
        socket
    }

    fn begin_to_join(&self, place: Place) -> JoinHandle<io::Result<Program>> {
        let name = Options { name: self.name.clone(), program: None, label: "tenant".into() };
        std::thread::spawn(move || {
            Membership::join_as(&name, place, None, || UdpSocket::bind(place.address))
        })
    }
}

impl Drop for System {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(format!("{}.lock", self.name));
    }
}

impl Daemon {
    /// What happens within a moment.
    pub(super) fn step(&mut self) {
        let mut events = [EpollEvent::empty(); 16];
        let count = self.events.wait(&mut events, 20_u8).unwrap_or(0);
        for event in events.iter().take(count) {
            self.on_event(Token::unpack(event.data()), event.events());
        }
    }
}
