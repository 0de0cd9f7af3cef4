//! Connections to one server: those of HTTP/1.1 carry one request at a time and are kept while idle, those
//! of HTTP/2 are shared.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::request::Parts;
use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::client::conn::TrySendError;
use tokio::time::Instant;

use super::connect::{Dialed, Dialer};
use super::held::{Held, Lease};
use super::hints::Hints;
use super::idle::Clock;
use super::line::Left;
use super::message;
use super::one::One;
use super::seats::{Seat, Seats};
use super::sweep::keep_sweeping;
use super::two::{self, Share, Two};
use super::{MAX_IDLE, MAX_IDLE_TIME, lack};
use crate::{Body, BodyError};

/// Connections of HTTP/2 to one server. A further one is made where all have as many requests as the server
/// takes; then requests wait.
const MAX_SHARED: usize = 8;
/// How often a request that no idle connection helps has one make room for its own.
const GIVE_WAY: Duration = Duration::from_millis(200);
/// How long a connection of HTTP/1.1 may take after an answer until it can take another request.
const SETTLE: Duration = Duration::from_secs(5);

/// Connections to one server.
pub(super) struct Pool {
    pub(super) dialer: Dialer,
    kept: Mutex<Kept>,
    /// What the server speaks, as far as it is known.
    speaks: AtomicU8,
    /// Requests that come at once share the first connection of HTTP/2.
    dialing: tokio::sync::Mutex<()>,
    /// How many connections there are, and who waits.
    seats: Arc<Seats>,
}

const UNKNOWN: u8 = 0;
const ONE: u8 = 1;
const TWO: u8 = 2;

#[derive(Default)]
struct Kept {
    one: Vec<Idle>,
    two: Vec<Shared>,
    /// There is a task that lets go of what is idle.
    is_swept: bool,
}

struct Idle {
    one: One,
    since: Instant,
}

struct Shared {
    two: Arc<Two>,
    address: Option<SocketAddr>,
    used: Instant,
}

/// A connection for a request.
enum Sender {
    One(One),
    Two(Share),
}

/// What there is for a request.
enum Found {
    /// A connection that has served others.
    Kept(Sender),
    New(Sender),
    /// None, and another one may be made ...
    Another,
    /// ... by who has waited for that.
    Seat(Seat),
    /// As many connections as there may be, and none with room.
    Full,
}

/// What there is of HTTP/2.
enum Room {
    Share(Share),
    /// None with room, and there may be another one.
    Another,
    Full,
}

/// What a request needs of a connection.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Wanted {
    /// One that nobody used before.
    pub(super) is_fresh: bool,
    /// One that can become another protocol's: of HTTP/1.1, where the server has a choice.
    pub(super) is_upgrade: bool,
    /// It is a health check: `max_connections` does not hold it up.
    pub(super) is_check: bool,
}

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum Failed {
    /// There is no connection.
    Connection(io::Error),
    /// The connection ended, or what came is no answer.
    Broken {
        error: BodyError,
        /// The connection had served others: the server may have ended it just then.
        is_reused: bool,
        /// The server has said that it did nothing with the request.
        is_unprocessed: bool,
    },
    /// The server cannot do what the request needs.
    Incapable(&'static str),
    /// It does as many of them as it may, which is no failure of its.
    Full(&'static str),
    /// It is there, and had no time for the request as long as that could wait: no failure either.
    Busy(&'static str),
    /// This system lacks something for a connection, which is no failure of the server either.
    Lack(&'static str),
}

impl Failed {
    /// Of a connection that could not be made.
    pub(super) fn to_connect(error: io::Error) -> Self {
        lack::of(&error).map_or(Self::Connection(error), Self::Lack)
    }
}

/// Why a connection gave no answer.
#[derive(Debug)]
pub(super) struct Unanswered {
    pub(super) error: BodyError,
    /// The request's body, if nothing of the request was written.
    pub(super) unsent: Option<Body>,
    /// The server has said that it did nothing with it.
    pub(super) is_unprocessed: bool,
}

impl From<BodyError> for Unanswered {
    fn from(error: BodyError) -> Self {
        Self { error, unsent: None, is_unprocessed: false }
    }
}

impl From<hyper::Error> for Unanswered {
    fn from(error: hyper::Error) -> Self {
        let is_unprocessed = two::is_unprocessed(&error);
        Self { error: error.into(), unsent: None, is_unprocessed }
    }
}

impl From<TrySendError<Request<Body>>> for Unanswered {
    fn from(mut error: TrySendError<Request<Body>>) -> Self {
        let unsent = error.take_message().map(Request::into_body);
        Self { unsent, ..Self::from(error.into_error()) }
    }
}

impl Pool {
    /// A pool of no more than `max` connections.
    pub(super) fn new(dialer: Dialer, max: usize) -> Arc<Self> {
        let dialing = tokio::sync::Mutex::new(());
        let (kept, speaks) = (Mutex::default(), AtomicU8::new(UNKNOWN));
        Arc::new(Self { dialer, kept, speaks, dialing, seats: Seats::new(max) })
    }

    pub(super) fn seats(&self) -> &Seats {
        &self.seats
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a request, and gives its answer. What is not written yet when a connection ends goes over
    /// another one. `clock` stands still as long as no connection has room for it.
    pub(super) async fn send(
        self: &Arc<Self>,
        parts: &Parts,
        mut body: Body,
        (wanted, clock): (Wanted, &Clock),
    ) -> Result<Response<Body>, Failed> {
        let mut late = None;
        loop {
            // What is not for every request is in a box, as in `Server::send`.
            let mut found = self.checkout(wanted);
            if let Found::Another = found {
                let connecting = Box::pin(self.connect(wanted, None));
                found = connecting.await.map_err(Failed::to_connect)?;
            }
            if let Found::Full = found {
                let until = *late.get_or_insert_with(|| Instant::now() + self.dialer.timeout);
                found = Box::pin(self.turn(wanted, clock, until)).await?;
            }
            if let Found::Seat(seat) = found {
                let connecting = Box::pin(self.connect(wanted, Some(seat)));
                found = connecting.await.map_err(Failed::to_connect)?;
            }
            let (sender, is_reused) = match found {
                Found::Kept(sender) => (sender, true),
                Found::New(sender) => (sender, false),
                Found::Full | Found::Another | Found::Seat(_) => continue,
            };
            let sent = match sender {
                Sender::One(one) => self.send_one(one, parts, body, wanted.is_upgrade).await,
                Sender::Two(share) => {
                    let request = Request::from_parts(parts.clone(), body);
                    match wanted.is_upgrade {
                        true => Box::pin(self.upgrade_two(share, request)).await?,
                        false => Box::pin(self.send_two(share, request)).await,
                    }
                }
            };
            match sent {
                Ok(answer) => return Ok(answer),
                Err(Unanswered { unsent: Some(unsent), .. }) if is_reused => body = unsent,
                Err(Unanswered { error, is_unprocessed, .. }) => {
                    return Err(Failed::Broken { error, is_reused, is_unprocessed });
                }
            }
        }
    }

    async fn send_one(
        self: &Arc<Self>,
        mut one: One,
        parts: &Parts,
        body: Body,
        is_upgrade: bool,
    ) -> Result<Response<Body>, Unanswered> {
        let answer = one.send(parts, body, is_upgrade).await?;
        let lease = Lease::One { pool: Arc::clone(self), one };
        Ok(answer.map(|rest| Held::body(rest, lease)))
    }

    async fn send_two(
        self: &Arc<Self>,
        share: Share,
        mut request: Request<Body>,
    ) -> Result<Response<Body>, Unanswered> {
        message::for_two(&mut request, self.dialer.place.is_tls());
        Hints::ask_hyper(&mut request);
        let mut sender = share.connection().sender();
        let sent: Result<Response<Incoming>, _> = sender.try_send_request(request).await;
        if let Err(error) = &sent
            && (error.message().is_some() || two::is_leaving(error.error()))
        {
            share.connection().spend();
        }
        Ok(sent?.map(|body| Held::body(Some(body), Lease::Two(share))))
    }

    /// Asks for another protocol on a stream of HTTP/2 (RFC 8441); the answer is as in HTTP/1.1.
    async fn upgrade_two(
        self: &Arc<Self>,
        share: Share,
        mut request: Request<Body>,
    ) -> Result<Result<Response<Body>, Unanswered>, Failed> {
        if !share.connection().can_extend() {
            return Err(Failed::Incapable("it speaks HTTP/2, and no extended CONNECT"));
        }
        message::extend(&mut request);
        let mut sent = self.send_two(share, request).await;
        if let Ok(answer) = &mut sent
            && answer.status().is_success()
        {
            *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        }
        Ok(sent)
    }

    /// Whether a request needs a connection that no other request is on.
    fn is_apart(&self, wanted: Wanted) -> bool {
        wanted.is_fresh || (wanted.is_upgrade && !self.dialer.is_always_two())
    }

    /// What there is for a request that comes.
    fn checkout(&self, wanted: Wanted) -> Found {
        let line = if self.is_apart(wanted) { &self.seats.apart } else { &self.seats.line };
        // Who came before has what is free.
        if line.is_waited_in() && !wanted.is_check {
            return Found::Full;
        }
        self.look(wanted)
    }

    /// What there is, for a request whose turn it is.
    fn look(&self, wanted: Wanted) -> Found {
        if wanted.is_fresh {
            return Found::Another;
        }
        let mut kept = self.lock();
        kept.retain_good(&self.dialer);
        if !self.is_apart(wanted) {
            match kept.share(MAX_SHARED) {
                Room::Share(share) => return Found::Kept(Sender::Two(share)),
                Room::Full => return Found::Full,
                Room::Another => {}
            }
        }
        match kept.take_idle(&self.dialer) {
            Some(one) => Found::Kept(Sender::One(one)),
            None => Found::Another,
        }
    }

    /// Waits until there is a connection with room, or another one may be made.
    async fn turn(&self, wanted: Wanted, clock: &Clock, until: Instant) -> Result<Found, Failed> {
        let is_apart = self.is_apart(wanted);
        let mut give_way = Instant::now();
        let look = || match self.look(wanted) {
            Found::Full => None,
            Found::Another => {
                let seat = self.seats.take();
                if seat.is_none() && is_apart && give_way <= Instant::now() {
                    self.lock().give_way();
                    give_way += GIVE_WAY;
                }
                seat.map(Found::Seat)
            }
            found => Some(found),
        };
        let line = if is_apart { &self.seats.apart } else { &self.seats.line };
        let left = match line.wait(clock, until, look).await {
            Ok(found) => return Ok(found),
            Err(left) => left,
        };
        if left == Left::Late && !is_apart && self.gives_up_stuck() {
            let error = BodyError::from("it allows no requests");
            return Err(Failed::Broken { error, is_reused: true, is_unprocessed: true });
        }
        Err(Failed::Busy(match self.seats.are_taken() {
            true => "as many connections to it as max_connections allows are busy",
            false => "it takes no more requests at the moment",
        }))
    }

    /// True if the server takes no request at all, on no connection of HTTP/2: it is not busy. They are given up.
    pub(super) fn gives_up_stuck(&self) -> bool {
        let kept = self.lock();
        let is_stuck = !kept.two.is_empty() && kept.two.iter().all(|shared| shared.two.is_shut());
        if is_stuck {
            kept.two.iter().for_each(|shared| shared.two.spend());
        }
        is_stuck
    }

    /// A new connection, which takes this seat, or what there is meanwhile.
    async fn connect(self: &Arc<Self>, wanted: Wanted, seat: Option<Seat>) -> io::Result<Found> {
        let mut turn = None;
        let only_one = wanted.is_upgrade && !self.dialer.is_always_two();
        if self.speaks.load(Ordering::Relaxed) != ONE && !wanted.is_fresh && !only_one {
            let waiting = tokio::time::timeout(self.dialer.timeout, self.dialing.lock());
            turn = Some(waiting.await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?);
            match if seat.is_some() { self.look(wanted) } else { self.checkout(wanted) } {
                Found::Another => {}
                found => return Ok(found),
            }
        }
        let seat = seat.or_else(|| self.seats.take());
        let seat = seat.or_else(|| wanted.is_check.then(|| self.seats.beside()));
        let Some(seat) = seat else { return Ok(Found::Full) };
        let Dialed { link, is_two, address } = self.dialer.dial(only_one).await?;
        let link = link.seated(seat);
        if !only_one {
            self.speaks.store(if is_two { TWO } else { ONE }, Ordering::Relaxed);
        }
        let sender = match is_two {
            true => {
                let two = Arc::new(Two::new(link, Arc::clone(&self.seats.line)).await?);
                let share = Share::new(&two);
                self.keep(|kept| kept.two.push(Shared { two, address, used: Instant::now() }));
                Sender::Two(share)
            }
            false => Sender::One(One::new(link, address)),
        };
        drop(turn);
        Ok(Found::New(sender))
    }

    /// Keeps a connection of HTTP/1.1 for another request, as soon as it can take one.
    pub(super) fn give_back(self: Arc<Self>, mut one: One) {
        if one.is_ready() {
            return self.put(one);
        }
        tokio::spawn(async move {
            if let Ok(true) = tokio::time::timeout(SETTLE, one.becomes_ready()).await {
                self.put(one);
            }
        });
    }

    fn put(self: &Arc<Self>, one: One) {
        self.keep(|kept| {
            if kept.one.len() < MAX_IDLE {
                kept.one.push(Idle { one, since: Instant::now() });
            }
        });
    }

    fn keep(self: &Arc<Self>, put: impl FnOnce(&mut Kept)) {
        let mut kept = self.lock();
        put(&mut kept);
        if !std::mem::replace(&mut kept.is_swept, true) {
            keep_sweeping(self, |pool| pool.lock().sweep());
        }
        drop(kept);
        self.seats.wake();
    }
}

impl Kept {
    /// The connection that was used last: the others come to their end.
    fn take_idle(&mut self, dialer: &Dialer) -> Option<One> {
        while let Some(Idle { mut one, since }) = self.one.pop() {
            let is_good = one.is_still_ready() && dialer.leads_to(one.address());
            if is_good && since.elapsed() < MAX_IDLE_TIME {
                return Some(one);
            }
        }
        None
    }

    /// Lets go of a connection that nobody uses, for one of another kind: of HTTP/1.1 the one that was used least lately.
    fn give_way(&mut self) {
        let idle = self.two.iter().position(|shared| shared.two.active() == 0);
        if !self.one.is_empty() {
            drop(self.one.remove(0));
        } else if let Some(at) = idle {
            drop(self.two.swap_remove(at));
        }
    }

    /// Lets go of connections of HTTP/2 that take no more requests, or lead to where the server is no more.
    fn retain_good(&mut self, dialer: &Dialer) {
        self.two.retain(|shared| shared.two.is_open() && dialer.leads_to(shared.address));
    }

    /// A share of a connection with room.
    fn share(&mut self, max: usize) -> Room {
        let count = self.two.len();
        match self.two.iter_mut().find(|shared| shared.two.has_room()) {
            Some(shared) => {
                shared.used = Instant::now();
                Room::Share(Share::new(&shared.two))
            }
            None if count < max => Room::Another,
            None => Room::Full,
        }
    }

    /// Lets go of what was idle for long; false if nothing is left.
    fn sweep(&mut self) -> bool {
        self.one
            .retain_mut(|idle| idle.one.is_still_ready() && idle.since.elapsed() < MAX_IDLE_TIME);
        self.two.retain_mut(|shared| {
            if shared.two.active() > 0 {
                shared.used = Instant::now();
            }
            shared.two.is_open() && shared.used.elapsed() < MAX_IDLE_TIME
        });
        self.is_swept = !(self.one.is_empty() && self.two.is_empty());
        self.is_swept
    }
}

#[cfg(test)]
#[path = "pool_tests.rs"]
mod tests;
