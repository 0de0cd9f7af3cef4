//! Captures: whoever debugs sees what an endpoint sends and receives of some clients, while it runs.
//!
//! While there is none, a train or a burst costs a look at one atomic.

use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};

use quicket_engine::time::Time;
use quicket_engine::{NewConnection, Observation, Observer, Observers};
use quicket_handshake::{KeyLog, LinesTaker};
use quicket_udp::{Outgoing, SendOutcome};
use quicket_wire::EcnCodepoint;

use crate::core::{Clock, Core};
use crate::qlog::Qlog;

/// Who captures.
///
/// Called by whoever serves connections, some of it under their locks: it must not wait, nor use connections.
pub trait Capture: Send + Sync {
    /// Whether what comes from this address and goes there is wanted.
    fn wants(&self, remote: SocketAddr) -> bool;

    /// Whether the secrets of connections that begin are wanted.
    fn wants_secrets(&self) -> bool;

    /// These datagrams came, or went.
    fn datagrams(&self, datagrams: &Captured<'_>);

    /// A line of the SSLKEYLOGFILE format (RFC 9850) of a connection that began during the capture, without its line
    /// break.
    fn secret(&self, line: &str);
}

/// Datagrams that came from one address, or went there, together.
#[derive(Clone, Copy, Debug)]
pub struct Captured<'a> {
    /// True for those that were sent.
    pub sent: bool,
    /// The peer's address.
    pub remote: SocketAddr,
    /// This side's; of an unspecified address if it is not known.
    pub local: SocketAddr,
    /// The mark in their IP headers (RFC 3168).
    pub ecn: EcnCodepoint,
    /// The size of each but the last, which may be smaller, in bytes; at least 1.
    pub segment_size: usize,
    /// All of them, as they are on the wire.
    pub bytes: &'a [u8],
}

/// A place where captures of endpoints begin ([`EndpointConfig::captures`](crate::EndpointConfig::captures)).
///
/// It is the [`KeyLog`] of the endpoint's TLS configuration too, if secrets are to be captured. Clones are the same
/// place.
#[derive(Clone, Default)]
pub struct Captures(Arc<Place>);

#[derive(Default)]
struct Place {
    is_active: AtomicBool,
    running: RwLock<Option<Running>>,
    /// The endpoints; held while a capture begins or ends.
    turn: Mutex<Vec<Weak<Core>>>,
}

#[derive(Clone)]
struct Running {
    capture: Arc<dyn Capture>,
    qlog: Option<Qlog>,
    is_over: Arc<AtomicBool>,
}

impl fmt::Debug for Captures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Captures").field("is_active", &self.is_active()).finish_non_exhaustive()
    }
}

impl Captures {
    /// Begins a capture, which ends when what is returned is dropped; `None` if there is one already. Accepted
    /// connections that are wanted have a log in `qlog`, those that are there from now on, unless the listener has a log
    /// or observers of its own.
    #[must_use]
    pub fn begin(&self, capture: Arc<dyn Capture>, qlog: Option<Qlog>) -> Option<Capturing> {
        let turn = self.turn();
        let running = Running { capture, qlog, is_over: Arc::default() };
        {
            let mut place = self.0.running.write().unwrap_or_else(PoisonError::into_inner);
            if place.is_some() {
                return None;
            }
            *place = Some(running.clone());
        }
        self.0.is_active.store(true, Ordering::Relaxed);
        for core in workers(&turn) {
            core.observe_all(&running);
        }
        Some(Capturing { captures: self.clone(), is_over: running.is_over })
    }

    /// Ends the capture of this mark.
    fn end(&self, is_over: &Arc<AtomicBool>) {
        let turn = self.turn();
        let running = {
            let mut place = self.0.running.write().unwrap_or_else(PoisonError::into_inner);
            place.take_if(|running| Arc::ptr_eq(&running.is_over, is_over))
        };
        let Some(running) = running else { return };
        self.0.is_active.store(false, Ordering::Relaxed);
        running.is_over.store(true, Ordering::Relaxed);
        if running.qlog.is_some() {
            for core in workers(&turn) {
                core.forget_observers();
            }
        }
    }

    /// What has TLS tell a capture the secrets of connections that begin during it.
    #[must_use]
    pub fn key_log(&self) -> Arc<dyn KeyLog> {
        Arc::new(Secrets(self.clone()))
    }

    pub(crate) fn attach(&self, core: &Arc<Core>) {
        let mut endpoints = self.turn();
        endpoints.retain(|endpoint| endpoint.strong_count() > 0);
        endpoints.push(Arc::downgrade(core));
    }

    /// Has connections of a listener observed that begin during a capture.
    pub(crate) fn observers(&self, clock: &Clock) -> Arc<dyn Observers> {
        Arc::new(Beginning { captures: self.clone(), clock: *clock })
    }

    pub(crate) fn is_active(&self) -> bool {
        self.0.is_active.load(Ordering::Relaxed)
    }

    /// The capture that wants this peer.
    fn wanting(&self, remote: SocketAddr) -> Option<Running> {
        if !self.is_active() {
            return None;
        }
        let running = self.0.running.read().unwrap_or_else(PoisonError::into_inner);
        running.as_ref().filter(|running| running.capture.wants(remote)).cloned()
    }

    /// Datagrams have come, or a burst has gone.
    #[cold]
    pub(crate) fn tell(&self, datagrams: &Captured<'_>) {
        if let Some(running) = self.wanting(datagrams.remote) {
            running.capture.datagrams(datagrams);
        }
    }

    fn turn(&self) -> std::sync::MutexGuard<'_, Vec<Weak<Core>>> {
        self.0.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Of all endpoints.
fn workers(endpoints: &[Weak<Core>]) -> impl Iterator<Item = Arc<Core>> {
    endpoints.iter().filter_map(Weak::upgrade).flat_map(|core| core.workers())
}

/// A capture that runs, and ends when this is dropped. What connections have under way may still be told for a moment.
#[must_use = "the capture ends when this is dropped"]
pub struct Capturing {
    captures: Captures,
    is_over: Arc<AtomicBool>,
}

impl fmt::Debug for Capturing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Capturing").finish_non_exhaustive()
    }
}

impl Drop for Capturing {
    fn drop(&mut self) {
        self.captures.end(&self.is_over);
    }
}

/// How much of a burst is out.
pub(crate) fn sent_of<'a>(burst: &Outgoing<'a>, outcome: SendOutcome) -> &'a [u8] {
    match outcome {
        SendOutcome::Done => burst.bytes,
        SendOutcome::TooLarge => &[],
        SendOutcome::Blocked { sent } => burst.bytes.get(..sent).unwrap_or_default(),
    }
}

impl Core {
    /// Has connections that are there observed, as far as the capture wants them.
    fn observe_all(&self, running: &Running) {
        let Some(qlog) = &running.qlog else { return };
        let observers = Logged { of: qlog.observers(self.clock()), running: running.clone() };
        let cells = self.routing().all();
        for cell in cells {
            let mut conn = cell.lock();
            // Who is there already stays.
            if running.capture.wants(conn.engine.remote()) {
                conn.engine.observe_from(self.clock().now(), &observers);
            }
        }
    }

    /// Forgets observers of captures that have ended.
    fn forget_observers(&self) {
        let cells = self.routing().all();
        for cell in cells {
            cell.lock().engine.forget_observer_that_is_done();
        }
    }
}

/// The secrets of connections as a capture wants them.
struct Secrets(Captures);

impl KeyLog for Secrets {
    /// Who is asked for says which log takes the lines.
    fn line(&self, _: &str) {}

    fn taker(&self, peer: Option<SocketAddr>) -> LinesTaker {
        let wanting = peer.and_then(|peer| self.0.wanting(peer));
        match wanting.filter(|running| running.capture.wants_secrets()) {
            Some(running) => LinesTaker::Other(Arc::new(Lines(running))),
            None => LinesTaker::Nobody,
        }
    }
}

/// The lines of one connection. They are told to no capture but the one that wanted them.
struct Lines(Running);

impl KeyLog for Lines {
    fn line(&self, line: &str) {
        if !self.0.is_over.load(Ordering::Relaxed) {
            self.0.capture.secret(line);
        }
    }
}

/// Observes connections that begin.
struct Beginning {
    captures: Captures,
    clock: Clock,
}

impl Observers for Beginning {
    fn observer(&self, connection: &NewConnection) -> Option<Box<dyn Observer>> {
        let running = self.captures.wanting(connection.remote)?;
        let of = running.qlog.as_ref()?.observers(&self.clock);
        Logged { of, running }.observer(connection)
    }
}

/// Logs connections until a capture ends.
struct Logged {
    of: Arc<dyn Observers>,
    running: Running,
}

impl Observers for Logged {
    fn observer(&self, connection: &NewConnection) -> Option<Box<dyn Observer>> {
        let observer = self.of.observer(connection)?;
        Some(Box::new(UntilOver { observer, is_over: Arc::clone(&self.running.is_over) }))
    }
}

struct UntilOver {
    observer: Box<dyn Observer>,
    is_over: Arc<AtomicBool>,
}

impl Observer for UntilOver {
    fn observe(&mut self, now: Time, observation: &Observation<'_>) {
        if !self.is_done() {
            self.observer.observe(now, observation);
        }
    }

    fn is_done(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Nothing;

    impl Capture for Nothing {
        fn wants(&self, _: SocketAddr) -> bool {
            true
        }

        fn wants_secrets(&self) -> bool {
            true
        }

        fn datagrams(&self, _: &Captured<'_>) {}

        fn secret(&self, _: &str) {}
    }

    #[test]
    fn a_capture_ends_itself_and_no_other() {
        let captures = Captures::default();
        let first = captures.begin(Arc::new(Nothing), None).unwrap();
        assert!(captures.begin(Arc::new(Nothing), None).is_none());
        let mark = Arc::clone(&first.is_over);
        drop(first);
        assert!(!captures.is_active() && mark.load(Ordering::Relaxed));
        let second = captures.begin(Arc::new(Nothing), None).unwrap();
        // The end of one that is over already.
        captures.end(&mark);
        assert!(captures.is_active() && !second.is_over.load(Ordering::Relaxed));
        assert!(captures.wanting(([192, 0, 2, 7], 1).into()).is_some());
        drop(second);
        assert!(!captures.is_active());
    }
}
