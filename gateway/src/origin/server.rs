//! One server of an origin.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::Response;
use http::request::Parts;

use super::Unanswered;
use super::connect::Dialer;
use super::health::Health;
use super::idle::{ClientFailed, Clock};
use super::pool::{self, Failed, Wanted};
use super::three;
use crate::Body;

/// One server with its connections.
pub(super) struct Server {
    pool: Pool,
    /// Its place as text.
    name: Arc<str>,
    /// Requests under way.
    active: AtomicUsize,
    pub(super) health: Health,
}

/// The connections to a server.
enum Pool {
    /// Of HTTP/1.1 and HTTP/2.
    Tcp(Arc<pool::Pool>),
    /// Of HTTP/3.
    Quic(Arc<three::Pool>),
}

impl Server {
    pub(super) fn new(dialer: Dialer, max_connections: usize) -> Arc<Self> {
        let (active, health) = (AtomicUsize::new(0), Health::default());
        let name = dialer.place.to_string().into();
        let pool = match dialer.is_three() {
            true => Pool::Quic(three::Pool::new(dialer)),
            false => Pool::Tcp(pool::Pool::new(dialer, max_connections)),
        };
        Arc::new(Self { pool, name, active, health })
    }

    pub(super) fn name(&self) -> Arc<str> {
        Arc::clone(&self.name)
    }

    pub(super) fn dialer(&self) -> &Dialer {
        match &self.pool {
            Pool::Tcp(pool) => &pool.dialer,
            Pool::Quic(pool) => pool.dialer(),
        }
    }

    /// From now on there may be so many connections, which those over QUIC do not count among.
    pub(super) fn limit(&self, max_connections: usize) {
        if let Pool::Tcp(pool) = &self.pool {
            pool.seats().limit(max_connections);
        }
    }

    /// How many connections there are, those that are being made over TCP included.
    pub(super) fn open(&self) -> usize {
        match &self.pool {
            Pool::Tcp(pool) => pool.seats().taken(),
            Pool::Quic(pool) => pool.open(),
        }
    }

    /// Requests under way.
    pub(super) fn active(&self) -> usize {
        self.active.load(Ordering::Relaxed)
    }

    /// Sends a request, and gives its answer. `clock` stands still as long as the server has no time for it.
    pub(super) async fn send(
        &self,
        parts: &Parts,
        body: Body,
        wanted: Wanted,
        clock: &Clock,
    ) -> Result<Response<Body>, Failed> {
        match &self.pool {
            Pool::Tcp(pool) => pool.send(parts, body, (wanted, clock)).await,
            // In a box is what few requests need: each has room for all that it may come to, and is moved.
            Pool::Quic(pool) => Box::pin(pool.send(parts, body, (wanted, clock))).await,
        }
    }

    /// How many requests have had their turn, where they wait for it.
    pub(super) fn granted(&self) -> u64 {
        match &self.pool {
            Pool::Tcp(_) => 0,
            Pool::Quic(pool) => pool.granted(),
        }
    }

    /// True if a request waits in vain: the server does nothing, and did nothing since `granted` said this. Connections
    /// are given up then.
    pub(super) fn gives_up_stuck(&self, granted: u64) -> bool {
        match &self.pool {
            Pool::Tcp(pool) => pool.gives_up_stuck(),
            Pool::Quic(pool) => pool.gives_up_stuck(granted),
        }
    }

    /// Says whose fault it is.
    pub(super) fn explain(&self, failed: &Failed) -> Unanswered {
        let (server, error) = (self.to_string(), Self::reason(failed));
        match failed {
            Failed::Connection(_) => Unanswered::Connection { server, error },
            Failed::Broken { error: broken, .. } => {
                match innermost(&**broken).downcast_ref::<ClientFailed>() {
                    Some(failed) => Unanswered::of_client(failed.reason()),
                    None => Unanswered::Broken { server, error },
                }
            }
            Failed::Incapable(_) => Unanswered::Incapable { server, error },
            Failed::Full(_) => Unanswered::Full { server, error },
            Failed::Busy(_) => Unanswered::Busy { server, error },
            Failed::Lack(what) => Unanswered::Lack { server, what },
        }
    }

    /// What has gone wrong.
    pub(super) fn reason(failed: &Failed) -> String {
        match failed {
            Failed::Connection(error) => innermost(error).to_string(),
            Failed::Broken { error, .. } => innermost(&**error).to_string(),
            Failed::Incapable(what)
            | Failed::Full(what)
            | Failed::Busy(what)
            | Failed::Lack(what) => (*what).to_owned(),
        }
    }
}

/// What an error is about: the outer ones say only where it was met.
fn innermost<'a>(
    error: &'a (dyn std::error::Error + 'static),
) -> &'a (dyn std::error::Error + 'static) {
    let mut reason = error;
    while !reason.is::<ClientFailed>()
        && let Some(source) = reason.source()
    {
        reason = source;
    }
    reason
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.dialer().place.fmt(f)
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("place", &self.dialer().place).finish_non_exhaustive()
    }
}

/// Counts a request as long as it is under way, its answer's body included.
pub(super) struct UnderWay(Arc<Server>);

impl UnderWay {
    pub(super) fn new(server: &Arc<Server>) -> Self {
        server.active.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(server))
    }

    pub(super) fn server(&self) -> &Server {
        &self.0
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.active.fetch_sub(1, Ordering::Relaxed);
    }
}
