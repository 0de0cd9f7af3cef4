//! The listeners of an address, and which of them a client reaches: they are told apart by the
//! application protocols that clients ask for.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use quicket_engine::crypto::CryptoProvider;
use quicket_engine::random::Random;
use quicket_engine::time::Time;
use quicket_engine::{ServerConfig, TransportConfig, TransportError, TransportErrorCode};
use quicket_handshake::{AwsLcProvider, SystemRandom};
use quicket_switch::client::Family;
use quicket_switch::protocol::Attention;

use super::alpn::Alpn;
use super::attendance::{Attendance, Watched};
use super::bound::Bound;
use super::errno::Errno;
use super::mailbox::Mailbox;
use crate::config::{Admission, Decision};
use crate::core::{
    Cell, Conn, Core, CoreRef, Greeter, Interest, ListenOptions, Waiter, Waiters, Wakes,
};

/// How many handshakes may be without a whole ClientHello at a time.
const MAX_GREETINGS: usize = 4096;
/// How long a client may wait to be accepted.
const WAITING_TIME: Duration = Duration::from_secs(60);
/// The alert of a server that speaks none of the client's protocols (RFC 9001, Section 8.1).
const NO_APPLICATION_PROTOCOL: u8 = 120;

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The listeners of one address.
pub(super) struct Hub {
    this: Weak<Hub>,
    core: Weak<Core>,
    listeners: Mutex<Vec<Arc<ListenQueue>>>,
    /// How many listeners, of now and of before, processes may have that were forked and have yet to accept. Changed
    /// with the lock of `listeners` held.
    heirs: AtomicUsize,
    /// Keys of session tickets come from it.
    ticket_secret: [u8; 32],
}

/// A listener: connections whose ClientHello is here.
pub(super) struct ListenQueue {
    alpn: Alpn,
    reuse_port: bool,
    validate: bool,
    backlog: AtomicUsize,
    closed: AtomicBool,
    /// Held while the switch is told, which waits for nothing: it hears of changes in their order.
    attendance: Mutex<Attendance>,
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Greeted>,
    waiters: Waiters,
    /// Another program gets the clients: no more come.
    retired: bool,
}

/// A connection that waits to be accepted, and the worker where it lives, of the endpoint where the client has come:
/// a listener that leaves its socket to the switch has two for a while.
pub(super) struct Greeted {
    hub: Arc<Hub>,
    worker: usize,
    pub(super) cell: Arc<Cell>,
}

impl Greeted {
    /// The hold on its worker; `None` if that has ended.
    pub(super) fn bound(&self) -> Option<Bound> {
        let core = self.hub.core.upgrade()?.worker(self.worker).and_then(CoreRef::revive)?;
        Some(Bound { core, hub: Arc::clone(&self.hub) })
    }
}

/// What is left to do when a listener has been removed, once nothing is locked: who waited for clients is
/// woken, which is somebody else's code.
#[must_use]
pub(super) struct Removed {
    wakes: Wakes,
    waiting: VecDeque<Greeted>,
}

impl Removed {
    /// Wakes who waited, and turns the clients away that had not been accepted.
    pub(super) fn finish(mut self) {
        self.wakes.fire();
        turn_away(self.waiting);
    }
}

/// Tells clients that nobody accepts them.
fn turn_away(waiting: VecDeque<Greeted>) {
    for Greeted { hub, worker, cell } in waiting {
        let core = hub.core.upgrade().and_then(|core| core.worker(worker));
        let Some(core) = core else { continue };
        core.act_on(&cell, |conn, now| {
            conn.engine.abort(now, refused());
            ((), true)
        });
    }
}

impl ListenQueue {
    pub(super) fn new(alpn: Alpn, reuse_port: bool, validate: bool, backlog: usize) -> Self {
        Self {
            alpn,
            reuse_port,
            validate,
            backlog: AtomicUsize::new(backlog),
            closed: AtomicBool::new(false),
            attendance: Mutex::default(),
            queue: Mutex::default(),
        }
    }

    /// The same in a process that has it from another one.
    pub(super) fn inherited(self) -> Self {
        Self { attendance: Mutex::new(Attendance::inherited()), ..self }
    }

    /// The process is about to fork: tells the switch so, and with the first time of which family children are.
    pub(super) fn pass_on(&self, bound: &Bound, watched: Watched, family: Option<&Family>) {
        let core = bound.core.core();
        let mut attendance = lock(&self.attendance);
        let attention = attendance.pass_on(watched);
        match family {
            Some(family) => core.bequeath(family, attention),
            None => core.attend(attention),
        }
        drop(attendance);
        bound.hub.heed_attention();
    }

    /// Notes what the process does with the listener, and tells the switch if that has to know.
    pub(super) fn attend(
        &self,
        bound: &Bound,
        note: impl FnOnce(&mut Attendance) -> Option<Attention>,
    ) {
        let mut attendance = lock(&self.attendance);
        let Some(attention) = note(&mut attendance) else { return };
        bound.core.core().attend(attention);
        drop(attendance);
        bound.hub.heed_attention();
    }

    /// How far the process is from accepting, as the switch is to know.
    pub(super) fn attention(&self) -> Attention {
        lock(&self.attendance).said()
    }

    pub(super) fn backlog(&self) -> usize {
        self.backlog.load(Ordering::Relaxed)
    }

    pub(super) fn set_backlog(&self, backlog: usize) {
        self.backlog.store(backlog, Ordering::Relaxed);
    }

    /// True once another program gets the clients.
    pub(super) fn is_retired(&self) -> bool {
        lock(&self.queue).retired
    }

    /// The next connection; `waiter` hears of the next if there is none.
    pub(super) fn pop(&self, waiter: Option<Waiter<'_>>) -> Result<Option<Greeted>, Errno> {
        let mut queue = lock(&self.queue);
        if self.closed.load(Ordering::Acquire) {
            return Err(Errno::EINVAL);
        }
        let next = queue.waiting.pop_front();
        if next.is_none() && queue.retired {
            return Err(Errno::EINVAL);
        }
        if let (None, Some(waiter)) = (&next, waiter) {
            queue.waiters.register(Interest::Message, waiter);
        }
        Ok(next)
    }

    /// True if there is a connection to accept, or there will be none; `waiter` hears of the next.
    pub(super) fn is_readable(&self, waiter: Option<Waiter<'_>>) -> bool {
        let mut queue = lock(&self.queue);
        if let Some(waiter) = waiter {
            queue.waiters.register(Interest::Message, waiter);
        }
        queue.retired || !queue.waiting.is_empty()
    }

    /// Adds a connection; false if nobody will accept it, or as many wait as may. As on other sockets,
    /// that is one more than the backlog.
    fn push(&self, greeted: Greeted, wakes: &mut Wakes) -> bool {
        let mut queue = lock(&self.queue);
        let has_room = queue.waiting.len() <= self.backlog.load(Ordering::Relaxed);
        let open = has_room && !self.closed.load(Ordering::Acquire);
        if open {
            queue.waiting.push_back(greeted);
            queue.waiters.wake(Interest::Message, wakes);
        }
        open
    }

    /// Turns the clients away that wait, though the listener goes on.
    pub(super) fn turn_away(&self) {
        turn_away(std::mem::take(&mut lock(&self.queue).waiting));
    }

    /// What waits can still be accepted, and no more comes.
    fn retire(&self) {
        let mut queue = lock(&self.queue);
        queue.retired = true;
        let mut wakes = Wakes::default();
        queue.waiters.wake_all(&mut wakes);
        drop(queue);
        wakes.fire();
    }

    /// Nobody accepts any more. What waited is returned.
    fn close(&self, wakes: &mut Wakes) -> VecDeque<Greeted> {
        let mut queue = lock(&self.queue);
        self.closed.store(true, Ordering::Release);
        queue.waiters.wake_all(wakes);
        std::mem::take(&mut queue.waiting)
    }
}

impl Hub {
    pub(super) fn new(core: Weak<Core>, ticket_secret: Option<[u8; 32]>) -> Arc<Self> {
        let ticket_secret = ticket_secret.unwrap_or_else(|| {
            let mut drawn = [0; 32];
            SystemRandom::new().fill(&mut drawn);
            drawn
        });
        let (listeners, heirs) = (Mutex::default(), AtomicUsize::default());
        Arc::new_cyclic(|this| Self { this: this.clone(), core, listeners, heirs, ticket_secret })
    }

    /// Adds a listener. Whether other programs leave it its clients is then asked with
    /// [`Self::register`].
    ///
    /// # Errors
    ///
    /// EADDRINUSE if another one has some of its protocols, or all of them and not both share
    /// the port.
    pub(super) fn listen(self: &Arc<Self>, new: &Arc<ListenQueue>) -> Result<(), Errno> {
        let mut listeners = lock(&self.listeners);
        for other in listeners.iter() {
            let same = other.alpn.is_same(&new.alpn);
            if same && new.reuse_port && other.reuse_port {
                break;
            }
            if same || other.alpn.overlaps(&new.alpn) {
                return Err(Errno::EADDRINUSE);
            }
        }
        if listeners.is_empty() {
            self.open()?;
        }
        listeners.push(Arc::clone(new));
        drop(listeners);
        self.heed_attention();
        Ok(())
    }

    /// Where no switch divides clients, those wait that come while nobody of the process accepts from a listener that it
    /// has passed on.
    fn heed_attention(&self) {
        let Some(core) = self.core.upgrade() else { return };
        // Who looks last has the last word.
        let listeners = lock(&self.listeners);
        core.set_first_packets_waiting(self.has_clients_wait(&core, &listeners));
        drop(listeners);
        core.admit_first_packets();
    }

    fn has_clients_wait(&self, core: &Core, listeners: &[Arc<ListenQueue>]) -> bool {
        let is_away = |listener: &Arc<ListenQueue>| listener.attention() == Attention::Away;
        match listeners {
            // They are those of the processes that have the listener yet. Several workers have none wait.
            [] => core.workers().len() == 1 && self.heirs.load(Ordering::Relaxed) > 0,
            listeners => listeners.iter().all(is_away),
        }
    }

    /// Whether anybody of this process listens.
    pub(super) fn has_listener(&self) -> bool {
        !lock(&self.listeners).is_empty()
    }

    /// Processes may have a listener, which leave the address to this one until they accept.
    pub(super) fn expect_heirs(&self) {
        let listeners = lock(&self.listeners);
        self.heirs.fetch_add(1, Ordering::Relaxed);
        drop(listeners);
    }

    /// None of them has it any more, or none ever will.
    pub(super) fn give_up_heirs(&self) {
        let Some(core) = self.core.upgrade() else { return };
        let listeners = lock(&self.listeners);
        let left = self.heirs.fetch_sub(1, Ordering::Relaxed) - 1;
        if listeners.is_empty() && left == 0 {
            core.workers().iter().for_each(|worker| worker.routing().endpoint.set_server(None));
        }
        drop(listeners);
        self.heed_attention();
    }

    /// Gets the clients of a listener from the switch, if its address is shared: waits for the answer.
    ///
    /// # Errors
    ///
    /// As [`Self::listen`], of all programs at the address; and when there is no switch.
    pub(super) fn register(&self, listener: &ListenQueue) -> io::Result<()> {
        let core = self.core.upgrade().ok_or(io::ErrorKind::NotConnected)?;
        if core.remains() {
            let text = "the process has left the address to the switch since this socket was bound: bind another one";
            return Err(io::Error::new(io::ErrorKind::AddrInUse, text));
        }
        core.register(listener.alpn.names(), listener.reuse_port)
    }

    /// Lets clients knock.
    fn open(self: &Arc<Self>) -> Result<(), Errno> {
        let core = self.core.upgrade().ok_or(Errno::EBADF)?;
        // Each connection gets a configuration of its own when its handshake begins.
        let mut server = ServerConfig::new(Arc::new(Mailbox::default()));
        server.hold_client_hello = true;
        server.transport = Arc::new(TransportConfig {
            max_idle_timeout: Duration::ZERO,
            handshake_timeout: WAITING_TIME,
            ..TransportConfig::default()
        });
        let hub = Arc::downgrade(self);
        let admission = Admission::new(move |attempt| {
            let validate = hub.upgrade().is_some_and(|hub| hub.validates());
            if validate && !attempt.validated { Decision::Retry } else { Decision::Accept }
        });
        let options = ListenOptions {
            backlog: MAX_GREETINGS,
            admission,
            hello: None,
            early: false,
            greeter: Some(Arc::clone(self) as Arc<dyn Greeter>),
            unencrypted: None,
        };
        core.open(options, server).map_err(|_| Errno::EBADF)
    }

    /// Removes a listener, but for what is left to do with it. Of an address that is shared, others may
    /// have the protocols as soon as this returns.
    pub(super) fn unlisten(&self, core: &CoreRef, listener: &Arc<ListenQueue>) -> Removed {
        // It is alone here if it shares its address. The switch answers.
        core.cease_through_switch();
        let mut listeners = lock(&self.listeners);
        listeners.retain(|other| !Arc::ptr_eq(other, listener));
        let mut wakes = Wakes::default();
        if listeners.is_empty() {
            // Who comes from now on is theirs, and waits for them.
            let waits = self.has_clients_wait(core, &listeners);
            core.set_first_packets_waiting(waits);
            for worker in core.workers().iter().filter(|_| !waits) {
                worker.routing().endpoint.set_server(None);
            }
            core.routing().stop_accepting(&mut wakes);
        }
        drop(listeners);
        let waiting = listener.close(&mut wakes);
        Removed { wakes, waiting }
    }

    /// True if clients must prove their address: nobody knows yet which listener they want, so
    /// that one listener's wish binds all.
    fn validates(&self) -> bool {
        lock(&self.listeners).iter().any(|listener| listener.validate)
    }

    /// The listener that a client wants. Its protocols count in its order. Where no listener has
    /// protocols, clients with any may come.
    fn choose(&self, remote: IpAddr, alpn: &[Vec<u8>]) -> Option<Arc<ListenQueue>> {
        let listeners = lock(&self.listeners);
        let undivided = listeners.iter().all(|listener| listener.alpn.is_empty());
        let matching: Vec<_> = if alpn.is_empty() || undivided {
            listeners.iter().filter(|listener| listener.alpn.is_empty()).collect()
        } else {
            let of = |name: &Vec<u8>| {
                let having = listeners.iter().filter(|listener| listener.alpn.has(name));
                Some(having.collect::<Vec<_>>()).filter(|having| !having.is_empty())
            };
            alpn.iter().find_map(of).unwrap_or_default()
        };
        // Several share the port: a client keeps to one of them.
        let mut hasher = DefaultHasher::new();
        remote.hash(&mut hasher);
        let count = matching.len().max(1) as u64;
        let index = usize::try_from(hasher.finish() % count).unwrap_or_default();
        matching.get(index).map(|listener| Arc::clone(listener))
    }

    /// For another process that has a listener from this one.
    pub(super) const fn ticket_secret(&self) -> [u8; 32] {
        self.ticket_secret
    }

    /// The master key of session tickets for a client: 64 bytes.
    pub(super) fn ticket_key(&self, client: IpAddr) -> Vec<u8> {
        let name = match client {
            IpAddr::V4(v4) => v4.octets().to_vec(),
            IpAddr::V6(v6) => v6.octets().to_vec(),
        };
        let part = |number: u8| {
            let data = [&b"session_ticket"[..], &[number], &name].concat();
            AwsLcProvider.keyed_hash(&self.ticket_secret, &data)
        };
        [part(0), part(1)].concat()
    }
}

impl Greeter for Hub {
    fn on_client_hello(
        &self,
        now: Time,
        (worker, cell): (usize, &Arc<Cell>),
        conn: &mut Conn,
        alpn: &[Vec<u8>],
        wakes: &mut Wakes,
    ) {
        let listener = self.choose(conn.engine.remote().ip(), alpn);
        match listener.zip(self.this.upgrade()) {
            Some((listener, hub)) => {
                let greeted = Greeted { hub, worker, cell: Arc::clone(cell) };
                // It may have been closed this moment.
                if !listener.push(greeted, wakes) {
                    conn.engine.abort(now, refused());
                }
            }
            None => {
                let code = TransportErrorCode::crypto(NO_APPLICATION_PROTOCOL);
                let reason = "no listener speaks the client's protocols";
                conn.engine.abort(now, TransportError::new(code, reason));
            }
        }
    }

    fn on_retired(&self) {
        let listeners = lock(&self.listeners).clone();
        listeners.iter().for_each(|listener| listener.retire());
    }
}

/// RFC 9000, Section 5.2.2.
const fn refused() -> TransportError {
    TransportError::new(TransportErrorCode::CONNECTION_REFUSED, "the listener accepts no more")
}

#[cfg(test)]
mod tests {
    use quicket_engine::ClientConfig;

    use super::*;
    use crate::core::Role;
    use crate::message::bound::Wanted;

    #[test]
    fn whom_a_listener_is_given_after_it_was_closed_is_not_left_to_wait() {
        let address = "127.0.0.1:0".parse().unwrap();
        let Bound { core, hub } = Bound::to(address, &Wanted::default()).unwrap();
        let mut routing = core.routing();
        let config = ClientConfig::new(Arc::new(Mailbox::default()));
        let remote = "127.0.0.1:9".parse().unwrap();
        let connection = routing.endpoint.connect(Time::ZERO, config, remote, None, "localhost");
        let (handle, connection) = connection.unwrap();
        let cell = routing.insert(handle, connection, Role::Client);
        drop(routing);
        let listener = ListenQueue::new(Alpn::default(), false, false, 5);
        let mut wakes = Wakes::default();
        let greeted = || Greeted { hub: Arc::clone(&hub), worker: 0, cell: Arc::clone(&cell) };
        assert!(listener.push(greeted(), &mut wakes));
        assert_eq!(listener.close(&mut wakes).len(), 1);
        assert!(!listener.push(greeted(), &mut wakes));
        assert!(listener.close(&mut wakes).is_empty());
        core.close_all(0, b"");
    }

    /// Whose clients do not wait for heirs: it is as if there were none.
    #[test]
    fn no_worker_of_several_answers_once_nobody_listens() {
        let address = "127.0.0.1:0".parse().unwrap();
        let wanted = Wanted { workers: 2, ..Wanted::default() };
        let Bound { core, hub } = Bound::to(address, &wanted).unwrap();
        let listener = Arc::new(ListenQueue::new(Alpn::default(), false, false, 5));
        hub.listen(&listener).unwrap();
        hub.expect_heirs();
        let clients: Vec<_> = (0..8)
            .map(|_| {
                let client = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
                client.connect(core.local_addr()).unwrap();
                client.set_read_timeout(Some(std::time::Duration::from_millis(100))).unwrap();
                client
            })
            .collect();
        // In a version that nobody speaks (RFC 8999, Section 6).
        let mut first = [0; 1200];
        first[..14].copy_from_slice(&[0xc0, 0x1a, 0x2a, 0x3a, 0x4a, 8, 1, 2, 3, 4, 5, 6, 7, 8]);
        let is_answered = |client: &std::net::UdpSocket| {
            client.send(&first).unwrap();
            client.recv(&mut [0; 1500]).is_ok()
        };
        for client in &clients {
            assert!((0..100).any(|_| is_answered(client)));
        }
        hub.unlisten(&core, &listener).finish();
        // What was asked more than once is answered more than once.
        clients.iter().for_each(|client| while client.recv(&mut [0; 1500]).is_ok() {});
        assert!(!clients.iter().any(is_answered));
        hub.give_up_heirs();
        assert!(!clients.iter().any(is_answered));
        core.close_all(0, b"");
    }

    #[test]
    fn a_listener_whose_clients_another_program_gets_hands_out_those_that_wait_and_ends() {
        let listener = ListenQueue::new(Alpn::default(), false, false, 5);
        assert!(matches!(listener.pop(None), Ok(None)));
        assert!(!listener.is_readable(None));
        assert!(!listener.is_retired());
        listener.retire();
        assert!(listener.is_retired() && listener.is_readable(None));
        assert!(matches!(listener.pop(None), Err(Errno::EINVAL)));
    }
}
