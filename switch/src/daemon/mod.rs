//! The switch: one thread that reads the sockets of addresses, and hears programs.
//!
//! The only wait is for all events together. A program that does not read loses what was sent to it.

mod address;
mod binding;
mod counting;
mod door;
mod entrance;
mod events;
mod family;
mod group;
mod handed;
mod issuer;
mod join;
mod lifetime;
mod listener;
mod loan;
mod outgoing;
mod park;
mod program;
mod programs;
mod report;
mod route;
mod rules;
mod serve;
mod site;
mod steer;
mod store;
mod tenant;
#[cfg(test)]
mod testing;
mod traffic;
mod users;

use std::collections::BTreeMap;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use nix::errno::Errno;
use nix::sys::epoll::{EpollEvent, EpollFlags, EpollTimeout};
use quicket_engine::ReplyRates;
use quicket_engine::crypto::CryptoProvider;
use quicket_engine::random::Random;
use quicket_engine::time::{Duration, Time};
use quicket_steering::BlockCipher;
use quicket_udp::Complaints;

use crate::protocol::{self, Message};
use crate::registry::{AddressId, Notice, ProcessId, Receipts, Registry};
use crate::router::Router;
use crate::strikes::Strikes;
use address::Address;
use binding::Binding;
use counting::Counting;
use door::Doors;
use entrance::Entrance;
use events::{Events, Token};
use family::Families;
use issuer::Issuer;
use lifetime::Lifetime;
use programs::Programs;
use traffic::Traffic;
use users::Users;

/// Keeps from the switch that this process is about to run whatever the process was given beside its standard
/// descriptors: listeners, locks and pipes of the program that wants a switch would stay open as long as
/// that.
///
/// # Errors
///
/// When the system neither marks descriptors nor lists them.
pub fn hand_nothing_on() -> io::Result<()> {
    crate::sys::hand_nothing_on()
}

pub use address::{LINGER, MAX_LINGERING};
pub use door::QUIET;
pub use family::MAX_FAMILIES;
pub use handed::{MAX_HANDED, MAX_TENANTS};
pub use listener::Listener;
pub use program::MAX_QUEUED;
pub use rules::Rules;
pub use site::Rotations;
pub use store::{STORED_TIME, Store};
pub use tenant::{
    MAX_ADDRESSES_OF_TENANT, MAX_CONNECTIONS_OF_TENANT, MAX_FAMILIES_OF_TENANT,
    MAX_MINTED_A_SECOND, MAX_WORKERS_OF_TENANT, TENANT_BACKLOG,
};

/// Connections of programs, those that only ask included.
pub const MAX_PROGRAMS: usize = 4096;
/// What is waited for at a time.
const EVENTS: usize = 256;
/// How long a switch without programs stays, unless it is told otherwise.
pub const IDLE: std::time::Duration = std::time::Duration::from_secs(10);
/// How long a program that connects may say nothing.
const SILENCE: std::time::Duration = std::time::Duration::from_secs(10);

/// AES-128 with a key.
pub type Aes128 = fn(&[u8; 16]) -> Arc<dyn BlockCipher>;

/// What the switch works with.
pub struct Tools {
    /// Keys of first packets, and stateless resets.
    pub crypto: Arc<dyn CryptoProvider>,
    /// Connection IDs.
    pub aes_128: Aes128,
    /// Keys.
    pub random: Box<dyn Random>,
}

/// The switch.
pub struct Daemon {
    events: Events,
    entrance: Entrance,
    users: Users,
    issuer: Issuer,
    /// Sockets that a service manager keeps.
    store: Store,
    lifetime: Lifetime,
    registry: Registry,
    addresses: BTreeMap<AddressId, Address>,
    programs: Programs,
    /// Who may bind which address.
    binding: Binding,
    /// Listeners that processes have from one another.
    families: Families,
    traffic: Traffic,
    /// Tickets that brought early data.
    strikes: Strikes,
    /// Programs are saying how many connections they have.
    counting: Counting,
    /// Whose first packets the kernel may bring.
    doors: Doors,
    complaints: Arc<Complaints>,
}

impl Daemon {
    /// A switch that programs find at `listener`, and that ends when there has been none for `idle`.
    ///
    /// # Errors
    ///
    /// When no descriptor is left.
    pub fn new(
        mut listener: Listener,
        mut tools: Tools,
        idle: Option<std::time::Duration>,
    ) -> io::Result<Self> {
        let mut key = [0; 32];
        tools.random.fill(&mut key);
        let mut secret = [0; 16];
        tools.random.fill(&mut secret);
        let crypto = Arc::clone(&tools.crypto);
        let day = time_of_day();
        let begins = u64::try_from(day.as_nanos()).unwrap_or(u64::MAX);
        let takes_over = listener.takes_over();
        let heirloom = listener.key(key);
        let receipts = Receipts::new(Arc::clone(&tools.crypto), heirloom, begins);
        let mut name = [0; 8];
        tools.random.fill(&mut name);
        let own_uid = nix::unistd::geteuid().as_raw();
        let events = Events::new()?;
        let entrance = Entrance::open(&events, listener)?;
        let complaints = Arc::<Complaints>::default();
        Ok(Self {
            events,
            entrance,
            users: Users::new(own_uid, Arc::clone(&complaints)),
            issuer: Issuer::new(tools, heirloom),
            store: Store::default(),
            lifetime: Lifetime::new(idle),
            registry: Registry::new(Time::ZERO, own_uid, receipts, false),
            addresses: BTreeMap::new(),
            programs: Programs::default(),
            binding: Binding::new(takes_over),
            families: Families::default(),
            traffic: Traffic::new(Router::new(crypto, secret, ReplyRates::default())),
            strikes: Strikes::new(name, day.as_secs()),
            counting: Counting::default(),
            doors: Doors::default(),
            complaints,
        })
    }

    /// The same without the kernel's help: every datagram goes through the switch.
    #[must_use]
    pub fn forwarding(mut self) -> Self {
        self.doors.keep_shut();
        self
    }

    fn now(&self) -> Time {
        self.lifetime.now()
    }

    /// Works until nobody has been there for a while, or `stop` is readable.
    ///
    /// # Errors
    ///
    /// When nothing can be waited for any more.
    pub fn run(mut self, stop: BorrowedFd<'_>) -> io::Result<()> {
        self.events.add(stop, EpollFlags::EPOLLIN, Token::Stop)?;
        let mut events = [EpollEvent::empty(); EVENTS];
        loop {
            let timeout = self.patience();
            let count = match self.events.wait(&mut events, timeout) {
                Ok(count) => count,
                Err(Errno::EINTR) => 0,
                Err(error) => return Err(error.into()),
            };
            for event in events.iter().take(count) {
                match Token::unpack(event.data()) {
                    Token::Stop => return Ok(()),
                    token => self.on_event(token, event.events()),
                }
            }
            self.on_time();
            if self.is_over() {
                return Ok(());
            }
        }
    }

    /// How long to wait for events.
    fn patience(&self) -> EpollTimeout {
        let now = self.now();
        let mut wait = Duration::from_millis(1000);
        if self.entrance.is_deaf() {
            wait = wait.min(Duration::from(entrance::DEAF));
        }
        if self.store.waits() {
            wait = wait.min(store::AGAIN);
        }
        if let Some(deadline) = self.registry.next_deadline() {
            wait = wait.min(deadline.since(now));
        }
        if let Some(due) = self.doors.next_look() {
            wait = wait.min(due.since(now));
        }
        if let Some(until) = self.next_end_of_quiet() {
            wait = wait.min(until.since(now));
        }
        if let Some(at) = self.next_look_at_loan() {
            wait = wait.min(at.since(now));
        }
        if let Some(left) = self.counting.time_left() {
            wait = wait.min(left);
        }
        if let (true, Some(left)) = (self.is_unused(), self.lifetime.time_left()) {
            let left = Duration::from_nanos(u64::try_from(left.as_nanos()).unwrap_or(u64::MAX));
            wait = wait.min(left);
        }
        // Rounded up, so that time has come when it ends.
        let millis = wait.as_nanos().div_ceil(1_000_000);
        EpollTimeout::try_from(u32::try_from(millis).unwrap_or(1000)).unwrap_or(EpollTimeout::ZERO)
    }

    fn is_over(&self) -> bool {
        self.is_unused() && self.lifetime.time_left() == Some(std::time::Duration::ZERO)
    }

    /// An address whose peers are still to be reset is there without a program.
    fn is_unused(&self) -> bool {
        self.programs.have_no_listeners() && self.addresses.is_empty()
    }

    fn on_event(&mut self, token: Token, events: EpollFlags) {
        let is_datagrams =
            matches!(token, Token::Address(_) | Token::Spare(..) | Token::Channel(..));
        if !is_datagrams {
            self.doors.mind();
        }
        match token {
            Token::Listener => self.welcome(),
            Token::Secrets => self.take_up_secrets(),
            Token::Rule => self.take_up_rule(),
            Token::Program(program) => self.attend(ProcessId(program.into()), events),
            Token::Address(address) => {
                if events.contains(EpollFlags::EPOLLOUT) {
                    self.send_unsent(address);
                }
                self.receive(address);
            }
            Token::Spare(address, place) => self.receive_spare(address, place),
            Token::Channel(program, worker) => {
                self.on_channel(ProcessId(program.into()), worker, events);
            }
            Token::Process(program) => {
                // It may have said that it leaves.
                self.attend(ProcessId(program.into()), EpollFlags::EPOLLHUP);
            }
            Token::Family(number) => self.end_family(number),
            Token::Stop => {}
        }
    }

    /// What time brings about.
    fn on_time(&mut self) {
        let now = self.now();
        while let Some(notice) = self.registry.poll(now) {
            match notice {
                Notice::DrainOver(listener) => {
                    if let Some(process) = self.programs.owner(listener) {
                        self.tell(process, &Message::Notice(protocol::Notice::DrainOver));
                    }
                }
                Notice::Removed(listener) => self.forget(listener),
            }
        }
        self.end_lingering();
        self.store.tend(now);
        self.end_inheritance();
        self.end_counting();
        self.traffic.expire(now);
        self.tend_doors();
        self.tend_loans();
        self.entrance.hear_again(&self.events);
        for process in self.programs.silent_for(SILENCE) {
            self.dismiss(process);
        }
    }

    /// Tells a program something; it waits if there is no room.
    fn tell(&mut self, process: ProcessId, message: &Message) {
        self.programs.tell(&self.events, process, message);
    }
}

/// Since 1970.
fn time_of_day() -> std::time::Duration {
    let day = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    day.unwrap_or_default()
}
