//! A switch for the system, to which the process of the test belongs to another user: it goes on in steps.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::thread::JoinHandle;

use nix::sys::epoll::EpollEvent;
use quicket_handshake::{Aes128, AwsLcProvider, SystemRandom};

use super::{Daemon, Listener, Token, Tools};
use crate::channel::Inlet;
use crate::client::{Membership, Options, Place, Way};
use crate::options::SocketOptions;
use crate::rule::Rule;

pub(super) type Program = (Membership, Vec<Inlet>, Way);

pub(super) struct System {
    pub(super) daemon: Daemon,
    /// One that was free.
    pub(super) address: SocketAddr,
    name: String,
}

impl System {
    pub(super) fn new(called: &str, rule: Rule) -> Self {
        let file = format!("quicket-{called}-{}", std::process::id());
        let name = std::env::temp_dir().join(file).to_str().unwrap().to_owned();
        let tools = Tools {
            crypto: Arc::new(AwsLcProvider),
            aes_128: |key| Arc::new(Aes128::new(key)),
            random: Box::new(SystemRandom::new()),
        };
        let mut daemon = Daemon::new(Listener::bind(&name).unwrap(), tools, None).unwrap();
        daemon.own_uid = nix::unistd::geteuid().as_raw() + 1;
        let (daemon, _) = daemon.for_system(rule).unwrap();
        let address = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        Self { daemon, address, name }
    }

    /// Has a program be at the address.
    pub(super) fn join(&mut self, options: SocketOptions) -> io::Result<Program> {
        let joining = self.begin_to_join(options);
        while !joining.is_finished() {
            self.daemon.step();
        }
        joining.join().unwrap()
    }

    fn begin_to_join(&self, options: SocketOptions) -> JoinHandle<io::Result<Program>> {
        let address = self.address;
        let name = Options { name: self.name.clone(), program: None, label: "tenant".into() };
        std::thread::spawn(move || {
            let place = Place {
                address,
                only_v6: false,
                workers: 1,
                steered: true,
                remains: false,
                options,
            };
            Membership::join_as(&name, place, None, || panic!("it binds nothing"))
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
        let count = self.epoll.wait(&mut events, 20_u8).unwrap_or(0);
        for event in events.iter().take(count) {
            self.on_event(Token::unpack(event.data()), event.events());
        }
    }
}
