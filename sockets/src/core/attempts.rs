//! Attempts to connect that have heard nothing yet. While there are any, the kernel keeps what ICMP
//! says, and it is read: a port where nobody listens is known at once.
//!
//! Established connections do not listen to it (RFC 9000, Section 14.2.1). The kernel goes on keeping it until
//! something comes that is no attempt's: most endpoints that have connected do so again, and hear nothing in between.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Core;
use super::cell::{Cell, Conn};
use super::link::Links;
use super::waiters::Wakes;
use quicket_engine::Unreachable;
use quicket_udp::UdpSocket;

/// How far a client has got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Attempt {
    /// It has yet to say something. A server's connection never is here.
    New,
    /// It waits for a sign of the server.
    Waiting,
    /// It has heard one, or come to an end.
    Over,
}

/// Connections by the address and port that they go to.
type ByDestination = HashMap<(IpAddr, u16), Vec<Arc<Cell>>>;

/// Attempts by where they go. The lock is the last of all, held to look something up.
#[derive(Default)]
pub(super) struct Attempts {
    list: Mutex<ByDestination>,
    any: AtomicBool,
    /// The sockets keep errors. Changed under the lock of the list.
    is_kept: AtomicBool,
}

/// Scopes are left out: not all that name an address know them.
fn key(address: SocketAddr) -> (IpAddr, u16) {
    (address.ip(), address.port())
}

impl Attempts {
    fn list(&self) -> MutexGuard<'_, ByDestination> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if there are any.
    pub(super) fn any(&self) -> bool {
        self.any.load(Ordering::Acquire)
    }

    /// Has the sockets keep errors if there are attempts. `_list` is locked.
    fn update(&self, _list: &ByDestination, any: bool, links: &Links) {
        self.any.store(any, Ordering::Release);
        if any && !self.is_kept.swap(true, Ordering::AcqRel) {
            keep_errors(true, links);
        }
    }

    /// There are other sockets than before: what attempts send goes out by these, too.
    pub(super) fn heed(&self, links: &Links) {
        // An attempt that begins meanwhile finds them among the endpoint's.
        if self.is_kept.load(Ordering::Acquire) {
            keep_errors(true, links);
        }
    }

    /// Has the sockets keep errors no more, unless there are attempts. Returns whether there are none.
    fn keep_no_more(&self, links: &Links) -> bool {
        let _list = self.list();
        if self.any() {
            return false;
        }
        if self.is_kept.swap(false, Ordering::AcqRel) {
            keep_errors(false, links);
        }
        true
    }
}

fn keep_errors(on: bool, links: &Links) {
    for link in links.iter() {
        if let Err(error) = link.socket.keep_errors(on) {
            log::debug!("{} tells nothing of closed ports: {error}", link.socket.local_addr());
        }
    }
}

impl Core {
    /// Keeps the account of a client's attempt. Call before it sends.
    pub(super) fn follow_attempt(&self, cell: &Arc<Cell>, conn: &mut Conn) {
        let over = conn.ended.is_some() || conn.engine.has_received();
        let key = key(conn.engine.remote());
        let mut list = match (conn.attempt, over) {
            (Attempt::New, false) => {
                conn.attempt = Attempt::Waiting;
                let mut list = self.attempts.list();
                list.entry(key).or_default().push(Arc::clone(cell));
                list
            }
            (Attempt::Waiting, true) => {
                conn.attempt = Attempt::Over;
                let mut list = self.attempts.list();
                if let Some(cells) = list.get_mut(&key) {
                    cells.retain(|known| !Arc::ptr_eq(known, cell));
                    if cells.is_empty() {
                        list.remove(&key);
                    }
                }
                list
            }
            (Attempt::New, true) => {
                conn.attempt = Attempt::Over;
                return;
            }
            _ => return,
        };
        let any = !list.is_empty();
        if !any {
            list.shrink_to_fit();
        }
        self.attempts.update(&list, any, &self.links());
    }

    /// Something has come that may be what ICMP says.
    pub(super) fn on_errors(&self, socket: &UdpSocket, wakes: &mut Wakes) {
        if !self.attempts.keep_no_more(&self.links()) {
            self.take_errors(socket, wakes);
        }
    }

    /// Reads what ICMP says, and ends attempts that are in vain.
    pub(super) fn take_errors(&self, socket: &UdpSocket, wakes: &mut Wakes) {
        let taken = socket.take_errors(|error| {
            let what = match error.what {
                quicket_udp::Unreachable::Port => Unreachable::Port,
                quicket_udp::Unreachable::Host => Unreachable::Host,
            };
            let found = self.attempts.list().get(&key(error.remote)).cloned();
            let now = self.clock.now();
            for cell in found.unwrap_or_default() {
                let mut conn = cell.lock();
                conn.engine.on_unreachable(now, what, error.quoted);
                self.pump(now, &cell, &mut conn, wakes);
            }
        });
        if let Err(error) = taken {
            log::debug!("no errors can be read from {}: {error}", socket.local_addr());
        }
        // Tasks are woken when the seat is left.
        wakes.fire_threads();
    }
}

#[cfg(test)]
mod tests {
    use socket2::SockRef;

    use super::*;
    use crate::config::EndpointConfig;
    use crate::core::receive::{Origin, Scratch};
    use crate::ops;

    #[test]
    fn errors_are_kept_until_one_comes_that_no_attempt_waits_for() {
        let local = "127.0.0.1:0".parse().unwrap();
        let core = ops::endpoint(local, EndpointConfig::default()).unwrap();
        let links = core.links();
        let closed = std::net::UdpSocket::bind(local).unwrap().local_addr().unwrap();
        let is_kept = || core.attempts.is_kept.load(Ordering::Acquire);
        let mut scratch = Scratch::default();
        let mut hear_of_closed_port = || {
            let socket = &links.current().unwrap().socket;
            SockRef::from(&**socket).send_to(b"hello", &closed.into()).unwrap();
            assert!(core.receive_from(socket, Origin::Socket, &mut scratch));
        };
        for _ in 0..2 {
            core.attempts.update(&core.attempts.list(), true, &links);
            hear_of_closed_port();
            assert!(is_kept(), "an attempt may wait for it");
            core.attempts.update(&core.attempts.list(), false, &links);
            assert!(is_kept(), "nothing has come since");
            hear_of_closed_port();
            assert!(!is_kept());
        }
    }
}
