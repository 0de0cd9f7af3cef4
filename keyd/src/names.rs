//! The addresses of a host. The system gives no deadline for a name: a thread asks, and others wait for it as long as
//! they may.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How long addresses are taken for right.
const FRESH: Duration = Duration::from_secs(60);
/// How long a name is left alone that was asked for, where that or connecting has failed.
const AGAIN: Duration = Duration::from_secs(1);
/// The most addresses of a name that are tried.
pub(crate) const MAX_ADDRESSES: usize = 8;

/// A host, whose addresses are asked for by one thread at a time.
pub(crate) struct Names {
    shared: Arc<Shared>,
}

struct Shared {
    host: String,
    port: u16,
    state: Mutex<State>,
    came: Condvar,
}

#[derive(Default)]
struct State {
    known: Vec<SocketAddr>,
    failed: Option<String>,
    /// A thread asks now.
    is_asking: bool,
    /// When they were asked for last.
    asked: Option<Instant>,
    /// None of them takes a connection.
    is_doubted: bool,
}

impl State {
    fn is_due(&self) -> bool {
        let patience = match self.failed.is_some() || self.is_doubted {
            true => AGAIN,
            false => FRESH,
        };
        !self.is_asking && self.asked.is_none_or(|at| at.elapsed() >= patience)
    }
}

impl Names {
    /// Asks for the addresses at once. An address in place of a name is taken as it is.
    pub(crate) fn new(host: &str, port: u16) -> Self {
        let (host, state) = (host.to_owned(), Mutex::default());
        let this = Self { shared: Arc::new(Shared { host, port, state, came: Condvar::new() }) };
        match this.shared.host.parse::<IpAddr>() {
            Ok(address) => this.shared.lock().known.push((address, port).into()),
            Err(_) => drop(this.ask(this.shared.lock())),
        }
        this
    }

    /// The addresses. Those that are known are given at once, while a thread asks for those of now.
    pub(crate) fn get(&self, deadline: Instant) -> io::Result<Vec<SocketAddr>> {
        let mut state = self.shared.lock();
        let is_name = state.asked.is_some();
        if is_name && state.is_due() {
            state = self.ask(state);
        }
        let left = deadline.saturating_duration_since(Instant::now());
        let waits = |state: &mut State| state.known.is_empty() && state.is_asking;
        let waited = self.shared.came.wait_timeout_while(state, left, waits);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        match (&state.failed, state.is_asking) {
            _ if !state.known.is_empty() => Ok(state.known.clone()),
            (_, true) => Err(io::ErrorKind::TimedOut.into()),
            (Some(why), false) => Err(io::Error::other(why.clone())),
            (None, false) => Err(io::Error::other("its name has no address")),
        }
    }

    /// None of the addresses takes a connection: others may have taken their place.
    pub(crate) fn doubt(&self) {
        self.shared.lock().is_doubted = true;
    }

    fn ask<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        (state.is_asking, state.asked) = (true, Some(Instant::now()));
        let shared = Arc::clone(&self.shared);
        let asking = move || {
            let found = (shared.host.as_str(), shared.port).to_socket_addrs();
            shared.answered(found.map(|found| found.take(MAX_ADDRESSES).collect()));
        };
        let started = thread::Builder::new().name("quicket-names".to_owned()).spawn(asking);
        if let Err(error) = started {
            (state.is_asking, state.failed) = (false, Some(error.to_string()));
        }
        state
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answered(&self, found: io::Result<Vec<SocketAddr>>) {
        let mut state = self.lock();
        (state.is_asking, state.is_doubted) = (false, false);
        match found {
            Ok(found) => (state.known, state.failed) = (found, None),
            // Those of before are better than none.
            Err(error) => state.failed = Some(error.to_string()),
        }
        drop(state);
        self.came.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_before_are_kept_and_a_name_is_waited_for_no_longer_than_may_be() {
        let deadline = || Instant::now() + Duration::from_secs(30);
        let bare = Names::new("127.0.0.1", 7);
        assert_eq!(bare.get(Instant::now()).unwrap(), ["127.0.0.1:7".parse().unwrap()]);
        let names = Names::new("localhost", 7);
        let known = names.get(deadline()).unwrap();
        assert!(known.iter().all(|address| address.ip().is_loopback()), "{known:?}");
        names.shared.answered(Err(io::Error::other("no server of names")));
        assert_eq!(names.get(deadline()).unwrap(), known);
        // A thread that hears nothing.
        let mut state = names.shared.lock();
        (state.known, state.is_asking) = (Vec::new(), true);
        state.asked = Some(Instant::now() + Duration::from_secs(3600));
        drop(state);
        let begun = Instant::now();
        let told = names.get(begun + Duration::from_millis(20)).unwrap_err();
        assert_eq!(told.kind(), io::ErrorKind::TimedOut);
        names.shared.answered(Err(io::Error::other("no server of names")));
        assert!(names.get(deadline()).unwrap_err().to_string().contains("no server"));
    }
}
