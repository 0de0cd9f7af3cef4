//! Connections of HTTP/3 to one server: few, which many requests share (RFC 9114).
//!
//! `connection` is one of them, `exchange` a request and its answer on it, `line` how it waits for its turn, `upload` and
//! `received` their bodies, `link` what follows an upgrade, and `fault` what goes wrong.

mod connection;
mod exchange;
mod fault;
mod line;
mod link;
mod received;
mod upload;

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::request::Parts;
use http::{Request, Response};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use self::connection::{Share, Three};
use self::exchange::{NoAnswer, exchange, upgrade};
use self::line::Line;
use super::MAX_IDLE_TIME;
use super::connect::Dialer;
use super::idle::Clock;
use super::message;
use super::pool::{Failed, Wanted};
use super::sweep::keep_sweeping;
use crate::Body;

/// Of an answer whose body lies in the memory of the connection on which it came: it is not to wait there for a client.
/// Other requests need that memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InPages;

/// Connections to one server. A further one is made where all have as many requests as the server allows; then
/// requests wait.
const MAX_SHARED: usize = 8;
/// Connections to one server for WebSocket, which keeps its streams for as long as it likes: ordinary requests would wait
/// without end where all streams are such. Where these have no room, no more is asked for.
const MAX_UPGRADED: usize = 8;
/// Requests to one server that wait for a stream, each of which looks for one now and then. Beyond that it is busy at once.
const MAX_WAITING: usize = 512;

/// The connections to one server.
pub(super) struct Pool {
    dialer: Dialer,
    kept: Mutex<Kept>,
    /// Requests that come at once share the first connection.
    dialing: tokio::sync::Mutex<()>,
    /// Places for requests that wait for a stream.
    waiting: Arc<Semaphore>,
    /// As often there as there are connections, and once more.
    open: Arc<()>,
}

#[derive(Default)]
struct Kept {
    shared: Vec<Shared>,
    /// Those for WebSocket.
    upgraded: Vec<Shared>,
    /// There is a task that lets go of what is idle.
    is_swept: bool,
}

struct Shared {
    three: Arc<Three>,
    used: Instant,
}

/// A connection for a request.
struct Chosen {
    share: Share,
    /// It served others: the server may have ended it just then.
    is_reused: bool,
    /// There is no other: the request waits until the server allows it.
    may_wait: bool,
}

impl Pool {
    pub(super) fn new(dialer: Dialer) -> Arc<Self> {
        let dialing = tokio::sync::Mutex::new(());
        let waiting = Arc::new(Semaphore::new(MAX_WAITING));
        Arc::new(Self { dialer, kept: Mutex::default(), dialing, waiting, open: Arc::default() })
    }

    pub(super) const fn dialer(&self) -> &Dialer {
        &self.dialer
    }

    /// How many connections there are.
    pub(super) fn open(&self) -> usize {
        Arc::strong_count(&self.open) - 1
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a request, and gives its answer. One of which nothing was sent goes over another connection.
    pub(super) async fn send(
        self: &Arc<Self>,
        parts: &Parts,
        body: Body,
        (wanted, clock): (Wanted, &Clock),
    ) -> Result<Response<Body>, Failed> {
        let (mut late, mut place) = (None, None);
        let mut request = Request::from_parts(parts.clone(), body);
        message::for_three(&mut request);
        if wanted.is_upgrade && !message::extend_three(&mut request) {
            return Err(Failed::Incapable("it speaks HTTP/3, in which only WebSocket is known"));
        }
        loop {
            if wanted.is_upgrade && self.lock().has_no_upgrade() {
                return Err(Failed::Full("it has as many WebSockets as it allows here"));
            }
            let chosen = match self.checkout(wanted) {
                Some(chosen) => chosen,
                None => Box::pin(self.connect(wanted)).await.map_err(Failed::to_connect)?,
            };
            let Chosen { share, is_reused, may_wait } = chosen;
            let three = share.connection().clone();
            let sent = match wanted.is_upgrade {
                true => {
                    // Late SETTINGS are no inability: the server has as long for them as for its answer.
                    if three.takes_extended_connect().await == Some(false) {
                        return Err(Failed::Incapable("it speaks HTTP/3, and no extended CONNECT"));
                    }
                    Box::pin(upgrade(share, request)).await
                }
                false => {
                    let line = may_wait.then(|| {
                        let until =
                            *late.get_or_insert_with(|| Instant::now() + self.dialer.timeout);
                        Line { pool: self, clock, until }
                    });
                    exchange(share, request, line, &mut place).await
                }
            };
            request = match sent {
                Ok(answer) => return Ok(answer),
                Err(NoAnswer::NoRoom(unsent)) => unsent,
                Err(NoAnswer::Busy) => {
                    return Err(Failed::Busy("it allows no more requests at the moment"));
                }
                Err(NoAnswer::Unsent(unsent, _)) if is_reused => {
                    three.spend();
                    unsent
                }
                Err(NoAnswer::Unsent(_, error)) => {
                    let is_unprocessed = true;
                    return Err(Failed::Broken { error, is_reused, is_unprocessed });
                }
                Err(NoAnswer::Broken { error, is_unprocessed }) => {
                    return Err(Failed::Broken { error, is_reused, is_unprocessed });
                }
            };
        }
    }

    /// Whether another connection takes ordinary requests at once, or may be made and nobody is about to make it.
    fn has_room_beside(&self, three: &Three) -> bool {
        let open = {
            let kept = self.lock();
            let mut open = 0;
            for shared in kept.shared.iter().filter(|shared| self.is_good(&shared.three)) {
                if shared.three.has_room() && !std::ptr::eq(&*shared.three, three) {
                    return true;
                }
                open += 1;
            }
            open
        };
        open < MAX_SHARED && self.dialing.try_lock().is_ok()
    }

    /// Whether a connection takes requests, and leads to where the server is by now.
    fn is_good(&self, three: &Three) -> bool {
        three.is_open() && self.dialer.leads_to(Some(three.address()))
    }

    /// How many ordinary requests have got a stream of the connections that are there.
    pub(super) fn granted(&self) -> u64 {
        self.lock().shared.iter().map(|shared| shared.three.granted()).sum()
    }

    /// True if no ordinary request has a stream, nor got one since there were as many as `granted`: the server does nothing,
    /// and allows nothing. Its connections are given up.
    pub(super) fn gives_up_stuck(&self, granted: u64) -> bool {
        let is_stuck = granted == self.granted()
            && self.lock().shared.iter().all(|shared| shared.three.streams() == 0);
        if is_stuck {
            self.lock().shared.iter().for_each(|shared| shared.three.spend());
        }
        is_stuck
    }

    /// A connection that is there, if there is one to be had.
    fn checkout(&self, wanted: Wanted) -> Option<Chosen> {
        if wanted.is_fresh {
            return None;
        }
        let mut kept = self.lock();
        kept.of(wanted).retain(|shared| self.is_good(&shared.three));
        kept.share(wanted)
    }

    /// A new connection, or one that another request has made meanwhile.
    async fn connect(self: &Arc<Self>, wanted: Wanted) -> io::Result<Chosen> {
        let waiting = tokio::time::timeout(self.dialer.timeout, self.dialing.lock());
        let _turn = waiting.await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?;
        if let Some(chosen) = self.checkout(wanted) {
            return Ok(chosen);
        }
        let (connection, address) = self.dialer.dial_quic().await?;
        let three = Arc::new(Three::new(connection, address, Arc::clone(&self.open)).await?);
        let share = Share::new(&three);
        self.keep(three, wanted);
        Ok(Chosen { share, is_reused: false, may_wait: !wanted.is_upgrade })
    }

    fn keep(self: &Arc<Self>, three: Arc<Three>, wanted: Wanted) {
        let mut kept = self.lock();
        kept.of(wanted).push(Shared { three, used: Instant::now() });
        if !std::mem::replace(&mut kept.is_swept, true) {
            keep_sweeping(self, |pool| pool.lock().sweep());
        }
    }
}

impl Kept {
    const fn of(&mut self, wanted: Wanted) -> &mut Vec<Shared> {
        match wanted.is_upgrade {
            true => &mut self.upgraded,
            false => &mut self.shared,
        }
    }

    /// There is no stream for another WebSocket, and no connection will be made for it.
    fn has_no_upgrade(&self) -> bool {
        let is_taken = |shared: &Shared| shared.three.is_open() && !shared.three.has_room();
        self.upgraded.iter().filter(|shared| is_taken(shared)).count() >= MAX_UPGRADED
    }

    /// A connection with room; the one with the fewest requests if there are as many as there may be.
    fn share(&mut self, wanted: Wanted) -> Option<Chosen> {
        let most = if wanted.is_upgrade { MAX_UPGRADED } else { MAX_SHARED };
        let these = self.of(wanted);
        let count = these.len();
        let with_room = these.iter().position(|shared| shared.three.has_room());
        // WebSockets do not end for others to begin.
        let may_wait = with_room.is_none() && !wanted.is_upgrade;
        let at = with_room.or_else(|| {
            let least = (0..count).min_by_key(|&at| these[at].three.active());
            least.filter(|_| count >= most)
        })?;
        let shared = &mut these[at];
        shared.used = Instant::now();
        Some(Chosen { share: Share::new(&shared.three), is_reused: true, may_wait })
    }

    /// Lets go of what was idle for long; false if nothing is left.
    fn sweep(&mut self) -> bool {
        for these in [&mut self.shared, &mut self.upgraded] {
            these.retain_mut(|shared| {
                if shared.three.active() > 0 {
                    shared.used = Instant::now();
                } else {
                    // Since the last stream has ended the server may have allowed more, and nobody waited for it.
                    shared.three.unfill();
                }
                shared.three.is_open() && shared.used.elapsed() < MAX_IDLE_TIME
            });
        }
        self.is_swept = !(self.shared.is_empty() && self.upgraded.is_empty());
        self.is_swept
    }
}
