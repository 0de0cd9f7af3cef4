//! All connections over one socket, driven by one task.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::Waker;
use std::time::{Duration, Instant};

use quiche::{Config, ConnectionId, Header, RecvInfo, Type};
use quicket_workload::bench::{Failure, Link, SERVER_NAME, Session};
use tokio::sync::Notify;

use super::socket::{Messages, Udp};
use crate::client::GOODBYES;

/// Length of our connection IDs in bytes.
const ID: usize = 16;
/// What one call to the kernel takes at most.
const BURST: usize = 65_000;
/// Messages received until others have their turn.
const TURNS: usize = 8;
/// How early a packet may leave: timers are no finer.
const EARLY: Duration = Duration::from_millis(1);

/// A connection, and who waits for it.
pub struct Conn {
    pub quic: quiche::Connection,
    pub readers: HashMap<u64, Waker>,
    pub writers: HashMap<u64, Waker>,
    /// Who waits for anything else.
    pub others: Vec<Waker>,
    /// Streams of the peer that were accepted.
    pub streams: HashSet<u64>,
    pub incoming: VecDeque<u64>,
    pub next_stream: u64,
    ids: Vec<Vec<u8>>,
    accepted: bool,
    timer: Option<Instant>,
    /// A packet, where it goes, and when.
    held: Option<(Vec<u8>, SocketAddr, Instant)>,
    received: (u64, u64),
}

impl Conn {
    /// The handshake is complete, or early data flows.
    pub fn is_open(&self) -> bool {
        self.quic.is_established() || self.quic.is_in_early_data()
    }

    pub fn link(&self) -> Link {
        let stats = self.quic.stats();
        let mean = |bytes: u64, packets: u64| Some(bytes as f64 / packets.max(1) as f64);
        Link {
            cipher: None,
            mean_udp_payload: mean(stats.sent_bytes, stats.sent as u64),
            mean_udp_payload_received: mean(self.received.0, self.received.1),
            lost_packets: Some(stats.lost as u64),
        }
    }

    fn wake(&mut self, server: bool) {
        let over = self.quic.is_closed() || self.quic.is_draining();
        for id in self.quic.readable() {
            if server && self.streams.insert(id) {
                self.incoming.push_back(id);
            }
            self.readers.remove(&id).into_iter().for_each(Waker::wake);
        }
        if over {
            self.readers.drain().for_each(|(_, waker)| waker.wake());
            self.writers.drain().for_each(|(_, waker)| waker.wake());
        } else if !self.writers.is_empty() {
            for id in self.quic.writable() {
                self.writers.remove(&id).into_iter().for_each(Waker::wake);
            }
        }
        self.others.drain(..).for_each(Waker::wake);
    }
}

/// One of an endpoint's connections.
pub type Shared = Rc<RefCell<Conn>>;

/// A connection with the endpoint that drives it.
#[derive(Clone)]
pub struct Connection {
    pub conn: Shared,
    pub number: u64,
    pub endpoint: Rc<Endpoint>,
}

impl Connection {
    /// Has the endpoint send what there is.
    pub fn touch(&self) {
        self.endpoint.dirty.borrow_mut().insert(self.number);
        self.endpoint.work.notify_one();
    }
}

/// A socket and its connections.
pub struct Endpoint {
    udp: Udp,
    config: RefCell<Config>,
    server: bool,
    conns: RefCell<HashMap<u64, Shared>>,
    by_id: RefCell<HashMap<Vec<u8>, u64>>,
    count: Cell<u64>,
    dirty: RefCell<BTreeSet<u64>>,
    timers: RefCell<BTreeSet<(Instant, u64)>>,
    work: Notify,
    arrivals: RefCell<VecDeque<(u64, Shared)>>,
    arrived: Notify,
    /// What the last server gave, to resume the session.
    ticket: RefCell<Option<Vec<u8>>>,
    pub buffer: RefCell<Vec<u8>>,
}

impl Endpoint {
    pub fn new(address: SocketAddr, config: Config, server: bool) -> Result<Rc<Self>, Failure> {
        Ok(Rc::new(Self {
            udp: Udp::bind(address)?,
            config: config.into(),
            server,
            conns: RefCell::default(),
            by_id: RefCell::default(),
            count: Cell::new(0),
            dirty: RefCell::default(),
            timers: RefCell::default(),
            work: Notify::new(),
            arrivals: RefCell::default(),
            arrived: Notify::new(),
            ticket: RefCell::default(),
            buffer: vec![0; 256 << 10].into(),
        }))
    }

    pub fn address(&self) -> SocketAddr {
        self.udp.address()
    }

    /// Waits for a connection of a client.
    pub async fn accept(self: &Rc<Self>) -> Connection {
        loop {
            // It may be over by now, and counts nevertheless.
            if let Some((number, conn)) = self.arrivals.borrow_mut().pop_front() {
                return Connection { conn, number, endpoint: self.clone() };
            }
            self.arrived.notified().await;
        }
    }

    /// Begins a handshake.
    pub fn connect(
        self: &Rc<Self>,
        server: SocketAddr,
        session: Session,
    ) -> Result<Connection, Failure> {
        let id = draw()?;
        let mut quic = quiche::connect(
            Some(SERVER_NAME),
            &ConnectionId::from_ref(&id),
            self.address(),
            server,
            &mut self.config.borrow_mut(),
        )?;
        if session != Session::None {
            let ticket = self.ticket.borrow_mut().take();
            quic.set_session(&ticket.ok_or("there is no session to resume")?)?;
        }
        let number = self.insert(quic, vec![id]);
        let conn = self.get(number).ok_or("the connection is gone")?;
        let connection = Connection { conn, number, endpoint: self.clone() };
        // The first flight; with a ticket, early data can follow.
        self.flush(number);
        Ok(connection)
    }

    fn get(&self, number: u64) -> Option<Shared> {
        self.conns.borrow().get(&number).cloned()
    }

    fn insert(&self, quic: quiche::Connection, ids: Vec<Vec<u8>>) -> u64 {
        let number = self.count.get();
        self.count.set(number + 1);
        self.by_id.borrow_mut().extend(ids.iter().map(|id| (id.clone(), number)));
        let conn = Conn {
            quic,
            readers: HashMap::new(),
            writers: HashMap::new(),
            others: Vec::new(),
            streams: HashSet::new(),
            incoming: VecDeque::new(),
            next_stream: 0,
            ids,
            accepted: false,
            timer: None,
            held: None,
            received: (0, 0),
        };
        self.conns.borrow_mut().insert(number, Rc::new(RefCell::new(conn)));
        number
    }

    /// Receives, sends and waits, for ever.
    pub async fn drive(self: Rc<Self>) {
        let mut messages = Messages::default();
        loop {
            let mut received = false;
            for _ in 0..TURNS {
                if !self.udp.receive(&mut messages, |datagram, from| self.take(datagram, from)) {
                    break;
                }
                received = true;
            }
            self.expire();
            let dirty = std::mem::take(&mut *self.dirty.borrow_mut());
            for number in dirty {
                self.settle(number);
            }
            if received {
                tokio::task::yield_now().await;
                continue;
            }
            if !self.dirty.borrow().is_empty() {
                // The socket is full.
                self.udp.writable().await;
                continue;
            }
            let timer = self.timers.borrow().first().map(|(at, _)| *at);
            let timer = timer.unwrap_or_else(|| Instant::now() + Duration::from_secs(3600));
            tokio::select! {
                () = self.udp.readable() => {}
                () = self.work.notified() => {}
                () = tokio::time::sleep_until(timer.into()) => {}
            }
        }
    }

    /// Gives a datagram to its connection.
    fn take(&self, datagram: &mut [u8], from: SocketAddr) {
        let Ok(header) = Header::from_slice(datagram, ID) else { return };
        let known = self.by_id.borrow().get(&*header.dcid).copied();
        let number = match known {
            Some(number) => number,
            None if self.server && header.ty == Type::Initial => {
                let Ok(id) = draw() else { return };
                let quic = quiche::accept(
                    &ConnectionId::from_ref(&id),
                    None,
                    self.address(),
                    from,
                    &mut self.config.borrow_mut(),
                );
                let Ok(quic) = quic else { return };
                self.insert(quic, vec![id, header.dcid.to_vec()])
            }
            None => return,
        };
        let Some(conn) = self.get(number) else { return };
        let mut conn = conn.borrow_mut();
        conn.received.0 += datagram.len() as u64;
        conn.received.1 += 1;
        // What is wrong with a packet ends the connection, or is ignored.
        let _ = conn.quic.recv(datagram, RecvInfo { from, to: self.address() });
        self.dirty.borrow_mut().insert(number);
    }

    fn expire(&self) {
        let now = Instant::now();
        loop {
            let first = self.timers.borrow().first().copied().filter(|(at, _)| *at <= now);
            let Some((at, number)) = first else { return };
            self.timers.borrow_mut().remove(&(at, number));
            let Some(conn) = self.get(number) else { continue };
            let mut conn = conn.borrow_mut();
            conn.timer = None;
            if conn.quic.timeout_instant().is_some_and(|at| at <= now) {
                conn.quic.on_timeout();
            }
            self.dirty.borrow_mut().insert(number);
        }
    }

    /// Wakes who waits, and sends.
    fn settle(&self, number: u64) {
        let Some(shared) = self.get(number) else { return };
        let mut conn = shared.borrow_mut();
        conn.wake(self.server);
        if self.server && !conn.accepted && conn.is_open() {
            conn.accepted = true;
            self.arrivals.borrow_mut().push_back((number, shared.clone()));
            self.arrived.notify_one();
        }
        if !self.server
            && let Some(ticket) = conn.quic.session()
        {
            self.ticket.replace(Some(ticket.to_vec()));
        }
        drop(conn);
        self.flush(number);
    }

    /// Sends what there is, and sets the timer; forgets the connection if it is over.
    pub fn flush(&self, number: u64) {
        let Some(shared) = self.get(number) else { return };
        let mut conn = shared.borrow_mut();
        let mut buffer = [0; BURST];
        let blocked = !self.send_all(&mut conn, &mut buffer);
        if blocked {
            self.dirty.borrow_mut().insert(number);
        }
        if let Some(at) = conn.timer.take() {
            self.timers.borrow_mut().remove(&(at, number));
        }
        // Neither end has anything to say once it has said or heard goodbye.
        if conn.quic.is_draining() || conn.quic.is_closed() || conn.quic.local_error().is_some() {
            conn.wake(self.server);
            self.conns.borrow_mut().remove(&number);
            let mut by_id = self.by_id.borrow_mut();
            for id in &conn.ids {
                by_id.remove(id);
            }
            return;
        }
        let held = conn.held.as_ref().map(|(_, _, at)| *at);
        conn.timer = conn.quic.timeout_instant().into_iter().chain(held).min();
        if let Some(at) = conn.timer {
            self.timers.borrow_mut().insert((at, number));
        }
    }

    /// Sends bursts of packets of one size; false if the socket takes no more. Of a connection that
    /// is closed few go out: if a probe is due at that moment, quiche writes others without end,
    /// and remembers each.
    fn send_all(&self, conn: &mut Conn, buffer: &mut [u8; BURST]) -> bool {
        loop {
            let soon = Instant::now() + EARLY;
            let (mut filled, mut segment, mut count) = (0, 0, 0);
            let mut to = None;
            if let Some((packet, destination, at)) = conn.held.take() {
                if at > soon {
                    conn.held = Some((packet, destination, at));
                    return true;
                }
                buffer[..packet.len()].copy_from_slice(&packet);
                (filled, segment, count, to) = (packet.len(), packet.len(), 1, Some(destination));
            }
            let most = conn.quic.max_send_udp_payload_size();
            let closes = conn.quic.local_error().is_some();
            let segments = if closes { GOODBYES } else { self.udp.segments() };
            while count < segments && filled + most <= BURST {
                let Ok((length, info)) = conn.quic.send(&mut buffer[filled..filled + most]) else {
                    break;
                };
                let other = segment > 0 && length > segment || to.is_some_and(|to| to != info.to);
                if other || info.at > soon {
                    let packet = buffer[filled..filled + length].to_vec();
                    conn.held = Some((packet, info.to, info.at));
                    break;
                }
                segment = segment.max(length);
                (filled, count, to) = (filled + length, count + 1, Some(info.to));
                if length < segment {
                    break;
                }
            }
            let Some(to) = to else { return true };
            if !self.udp.send(&buffer[..filled], segment, to) {
                return false;
            }
            if closes {
                return true;
            }
        }
    }
}

fn draw() -> Result<Vec<u8>, Failure> {
    let mut id = vec![0; ID];
    aws_lc_rs::rand::fill(&mut id).map_err(|_| "no random numbers")?;
    Ok(id)
}
